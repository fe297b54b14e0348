"""Exports of recorded searches, judged by the schemas and readers of those that they are for."""

from __future__ import annotations

import csv
import dataclasses
import importlib.util
import io
import json
from pathlib import Path

import jsonschema
import pytest

from tests.test_store import CONTEXT
from tuning import exports, records, runner
from tuning.records import RecordError, SearchRecord, Step
from tuning.store import Store

KINDS = (
    runner.OK, runner.COMPILE_FAILED, runner.CRASHED, runner.TIMED_OUT, runner.WRONG_RESULT, runner.NO_MEMORY,
    runner.OUTPUT_FLOOD, runner.DECLINED, runner.CUT_OFF, runner.OVER_LIMITS, runner.NOT_GENERATED,
    runner.HARNESS_FAILED,
)  # fmt: skip


@pytest.fixture
def record(tmp_path: Path) -> SearchRecord:
    """A search in which everything happened once; then a leader failed the full verification."""
    context = dataclasses.replace(
        CONTEXT, machine={"system": "linux", "isa": "x86_64"}, versions={"mdh-lift": "0.1", "compiler": "gcc 12"}
    )
    with Store(tmp_path / "db.sqlite") as database:
        search = database.begin(context, "greedy", "30ev")
        for k, kind in enumerate(KINDS):
            times = (0.5, 0.25) if kind == runner.OK else ()
            point = records.canonical({"T": k, "way": "a,b"})
            database.step(search, Step(0, float(k), "search", point, kind, "" if times else "why", times, f"h{k}"))
        led = records.canonical({"T": 99, "way": "c"})
        database.step(search, Step(0, 20.0, "search", led, runner.OK, "", (0.1,), "h99"))
        first = records.canonical({"T": 0, "way": "a,b"})
        database.step(search, Step(0, 21.0, "race", first, runner.OK, records.IN_TURN, (0.2,), "h0"))
        database.step(search, Step(0, 22.0, "verification", led, runner.WRONG_RESULT, "y[3]", (), "h99"))
        return database.finish(search, winner=first, winner_text="h0", stopped="space exhausted", pairs=((2.0, 0.2),))


def schema_of(name: str) -> dict[str, object]:
    """One of the schemas inside of Kernel Tuner."""
    found = importlib.util.find_spec("kernel_tuner")
    assert found is not None and found.submodule_search_locations
    place = Path(found.submodule_search_locations[0], "schema", "T4", "1.0.0", f"{name}-schema.json")
    return dict(json.loads(place.read_text()))


def test_t4_has_every_failed_candidate(record: SearchRecord) -> None:
    data = json.loads(exports.t4([record]))
    for name in ("results", "metadata"):
        schema = schema_of(name)
        jsonschema.Draft202012Validator.check_schema(schema)
        jsonschema.Draft202012Validator(schema).validate(data)
    states = {r["configuration"]["T"]: r["invalidity"] for r in data["results"] if r["configuration"]["T"] != 99}
    assert [states[k] for k in range(len(KINDS))] == [
        "correct", "compile", "runtime", "timeout", "correctness", "runtime",
        "runtime", "constraints", "timeout", "constraints", "constraints",
        "runtime",
    ]  # fmt: skip
    assert len(data["results"]) == len(KINDS) + 2
    assert data["results"][-1]["invalidity"] == "correctness"
    right = data["results"][0]
    assert right["times"]["runtimes"] == [500.0, 250.0] and right["correctness"] == 1
    assert {m["name"]: m["value"] for m in right["measurements"]}["time"] == pytest.approx(300.0)
    assert all(r["correctness"] == 0 and not r["times"]["runtimes"] for r in data["results"] if r["invalidity"] != "correct")
    assert data["metadata"]["hardware"]["operating_system"] == "linux"


@pytest.mark.parametrize("fault", [{"invalidity": "slow"}, {"correctness": "yes"}, {"times": []}])
def test_the_schema_of_t4_refuses(record: SearchRecord, fault: dict[str, object]) -> None:
    data = json.loads(exports.t4([record]))
    data["results"][0] |= fault
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(schema_of("results")).validate(data)


@pytest.mark.parametrize("open_cache", [False, True])
def test_kernel_tuner_reads_its_cache(record: SearchRecord, tmp_path: Path, open_cache: bool) -> None:
    from kernel_tuner import util

    path = tmp_path / "cache.json"
    path.write_text(exports.kernel_tuner(record))
    data = util.read_cache(str(path), open_cache=open_cache)
    assert data["kernel_name"] == "src/f.c::dot::0" and data["tune_params_keys"] == ["T", "way"]
    cache = data["cache"]
    assert len(cache) == len(KINDS) + 1
    assert cache["0,a,b"]["time"] == pytest.approx(300.0) and cache["0,a,b"]["times"] == [500.0, 250.0]
    assert isinstance(cache["1,a,b"]["__error__"], util.CompilationFailedConfig)
    assert isinstance(cache["2,a,b"]["__error__"], util.RuntimeFailedConfig)
    assert isinstance(cache["10,a,b"]["__error__"], util.InvalidConfig)
    assert isinstance(cache["99,c"]["__error__"], util.RuntimeFailedConfig)  # it led, and was wrong
    assert sum("__error__" not in e for e in cache.values()) == 1
    if open_cache:  # its writer goes on where ours ended
        util.store_cache("7,x", {"T": 7, "way": "x", "time": 1.0}, str(path), dict(cache))
        assert len(util.read_cache(str(path), open_cache=False)["cache"]) == len(KINDS) + 2


@pytest.mark.filterwarnings("ignore:None of the tunable parameters")
def test_kernel_tuner_simulates_with_its_cache(record: SearchRecord, tmp_path: Path) -> None:
    """Its own search over our measurements finds our best."""
    import kernel_tuner

    steps = tuple(
        Step(k, 0.0, "search", records.canonical({"T": k, "U": 1}), "ok", "", (0.01 * (k + 2 * (k < 3)),), f"h{k}")
        for k in range(1, 6)
    )
    path = tmp_path / "cache.json"
    path.write_text(exports.kernel_tuner(dataclasses.replace(record, steps=steps)))
    found, _ = kernel_tuner.tune_kernel(
        record.nest, "void f(void) {}", 1024, [], {"T": [1, 2, 3, 4, 5], "U": [1]}, lang="C",
        cache=str(path), simulation_mode=True, quiet=True,
    )  # fmt: skip
    assert {r["T"]: r["time"] for r in found} == {k: pytest.approx(10.0 * (k + 2 * (k < 3))) for k in range(1, 6)}
    assert min(found, key=lambda r: r["time"])["T"] == 1


def test_csv_has_a_row_per_step(record: SearchRecord) -> None:
    rows = list(csv.DictReader(io.StringIO(exports.as_csv([record]))))
    assert len(rows) == len(record.steps)
    assert [r["ordinal"] for r in rows] == [str(k) for k in range(len(rows))]
    assert [r["winner"] for r in rows].count("1") == 2 and rows[0]["winner"] == "1"
    assert float(rows[0]["seconds"]) == pytest.approx(0.3) and rows[1]["seconds"] == ""
    assert json.loads(rows[4]["configuration"]) == {"T": 4, "way": "a,b"} and rows[4]["reason"] == "why"


def test_json_is_read_again(record: SearchRecord) -> None:
    text = exports.as_json([record])
    assert exports.from_text(text) == [record]
    for other in ("", "[]", "{}", text.replace('"schema_version": 1', '"schema_version": 9'), "[" * 10**5, text[:-30],
                  text.replace('"outcome": "crashed"', '"outcome": "ok"')):  # fmt: skip
        with pytest.raises(RecordError):
            exports.from_text(other)


def test_a_search_without_steps_has_no_cache(record: SearchRecord) -> None:
    with pytest.raises(exports.ExportError, match="tried nothing"):
        exports.kernel_tuner(dataclasses.replace(record, steps=()))
