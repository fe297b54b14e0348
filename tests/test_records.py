"""Records of searches as JSON, and their replay."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from tests.test_store import add_search
from tuning import records
from tuning.records import RecordError
from tuning.store import Store


@pytest.fixture
def record(tmp_path: Path) -> records.SearchRecord:
    with Store(tmp_path / "db.sqlite") as database:
        return add_search(database, diagnostics=({"code": "MDH605", "message": "no", "help": "pip"},))


def test_json_and_back(record: records.SearchRecord) -> None:
    data = json.loads(json.dumps(records.to_json(record)))
    assert records.from_json(data) == record
    assert data["winner"] == {"T": 4} and data["steps"][0]["configuration"] == {"T": 1}
    running = dataclasses.replace(record, id="", winner="")
    assert records.from_json(json.loads(json.dumps(records.to_json(running)))) == running


def changed(data: dict[str, Any], *path: Any, to: Any) -> dict[str, Any]:
    copy = json.loads(json.dumps(data))
    inner = copy
    for key in path[:-1]:
        inner = inner[key]
    if to is ...:
        del inner[path[-1]]
    else:
        inner[path[-1]] = to
    return copy


@pytest.mark.parametrize(
    ("path", "to", "told"),
    [
        (("steps", 0, "times"), [0.001], "changed"),
        (("winner",), {"T": 8}, "changed"),
        (("nest",), 3, "`nest`"),
        (("nest",), ..., "missing nest"),
        (("color",), "red", "unknown color"),
        (("steps",), {}, "`steps`"),
        (("steps", 1, "ordinal"), 7, "step 1"),
        (("steps", 1, "times"), ["x"], "seconds"),
        (("steps", 1), "x", "object"),
        (("pairs",), [[1.0]], "pairs"),
        (("original",), ["x"], "original"),
    ],
)
def test_what_is_no_record_is_told(record: records.SearchRecord, path: tuple[Any, ...], to: Any, told: str) -> None:
    with pytest.raises(RecordError, match=told):
        records.from_json(changed(records.to_json(record), *path, to=to))
