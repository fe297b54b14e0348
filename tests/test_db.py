"""`mdh-lift db`: every verb, on whole, damaged and foreign databases."""

from __future__ import annotations

import dataclasses
import json
import os
import sqlite3
from pathlib import Path

import click.testing
import jsonschema
import pytest

from mdh_lift import cli
from mdh_lift.version import VERSION
from tests.test_exports import schema_of
from tests.test_store import CONTEXT, add_search, version_1
from tests.test_tuning import entry
from tuning import lock
from tuning.store import Store

DATABASE = Path(".mdh-lift/tune.sqlite")
NEST = "src/f.c::dot::0"
SOURCE = "float dot(int n, float *x)\n{\n    float s = 0;\n#pragma mdh\n    for (int i = 0; i < n; i++)\n        s += x[i];\n    return s;\n}\n"


@pytest.fixture(autouse=True)
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a database of three searches, one of them killed."""
    monkeypatch.chdir(tmp_path)
    Path("mdh-lift.toml").write_text("schema = 1\n")
    Path("src").mkdir()
    Path("src/f.c").write_text(SOURCE)
    with Store(DATABASE) as store:
        add_search(store, dataclasses.replace(CONTEXT, tool_version=VERSION))
        add_search(store, dataclasses.replace(CONTEXT, nest="src/gone.c::f::0", fingerprint="m2"), pairs=((1.0, 0.2),))
        store.begin(dataclasses.replace(CONTEXT, fingerprint="m3", tool_version=VERSION), "greedy", "30ev")
    return tmp_path


def db(*arguments: str) -> click.testing.Result:
    done = click.testing.CliRunner().invoke(cli.cli, ["db", *arguments])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert "Traceback" not in done.output
    return done


def records() -> dict[str, str]:
    with Store(DATABASE) as store:
        return {r.nest + "@" + r.fingerprint: r.id for r in store.searches()}


def test_list() -> None:
    done = db("list")
    assert done.exit_code == 0
    rows = done.stdout.splitlines()
    assert len(rows) == 4
    assert NEST in rows[1] and "1 search, 1 unfinished, 0 evaluations" in rows[1]
    assert NEST in rows[2] and "100 ms" in rows[2] and "10.00 x" in rows[2] and "1 search, 5 evaluations" in rows[2]
    data = json.loads(db("list", "--format", "json", "dot::0").stdout)
    assert data["schema_version"] == 1 and [n["fingerprint"] for n in data["nests"]] == ["m3", "machine"]
    told = db("list", "dto::0")
    assert told.exit_code == 2 and "dot::0" in told.output


def test_show() -> None:
    done = db("show", NEST)
    assert done.exit_code == 0
    assert "T=4" in done.stdout and "greedy, budget 30ev, seed 3" in done.stdout and "killed" in done.stdout
    data = json.loads(db("show", "--format", "json", "src/gone.c::f::0").stdout)
    (one,) = data["searches"]
    assert one["winner"] == {"T": 4} and [s["outcome"] for s in one["steps"]][:2] == ["ok", "crashed"]


def test_export() -> None:
    for form in ("json", "csv", "t4"):
        done = db("export", "--as", form, "-o", f"out.{form}")
        assert done.exit_code == 0 and done.stdout == ""
    assert len(json.loads(Path("out.json").read_text())["searches"]) == 3
    assert len(Path("out.csv").read_text().splitlines()) == 11
    jsonschema.validate(json.loads(Path("out.t4").read_text()), schema_of("results"))
    several = db("export", "--as", "kernel-tuner")
    ids = records()
    assert several.exit_code == 2 and ids[f"{NEST}@machine"] in several.output
    one = db("export", "--as", "kernel-tuner", "--record", ids[f"{NEST}@machine"])
    assert len(json.loads(one.stdout)["cache"]) == 4
    assert db("export", "--record", "nothing").exit_code == 2
    assert db("export", "-o", "no/such/directory/x").exit_code == 2


def test_import_is_idempotent(tree: Path) -> None:
    db("export", "-o", "out.json")
    before = records()
    done = db("import", "--database", "other.sqlite", "out.json")
    assert done.exit_code == 0 and "3 new records, 0 known" in done.stdout
    again = db("import", "--database", "other.sqlite", "out.json", "out.json")
    assert "0 new records, 6 known" in again.stdout
    with Store(DATABASE) as one, Store(tree / "other.sqlite") as two:
        assert one.searches() == two.searches()
    assert records() == before


@pytest.mark.parametrize("text", ["", "{}", '{"kind": "mdh-lift tuning records", "schema_version": 1, "searches": [{}]}', "\xff"])
def test_import_takes_all_or_nothing(text: str) -> None:
    Path("bad.json").write_bytes(text.encode("latin-1"))
    before = records()
    done = db("import", "bad.json")
    assert done.exit_code == 2 and "MDH524" in done.stderr
    assert records() == before
    assert db("import", "absent.json").exit_code == 2


def test_a_changed_record_is_not_imported() -> None:
    db("export", "-o", "out.json")
    Path("out.json").write_text(Path("out.json").read_text().replace("0.125", "0.0125"))
    done = db("import", "--database", "other.sqlite", "out.json")
    assert done.exit_code == 2 and "was changed" in done.stderr
    assert not Path("other.sqlite").exists()


def test_merge_leaves_the_other_alone(tree: Path) -> None:
    version_1(tree / "old.sqlite")
    before = Path("old.sqlite").read_bytes()
    done = db("merge", "old.sqlite")
    assert done.exit_code == 0 and "1 new records" in done.stdout
    assert "0 new records, 1 known" in db("merge", "old.sqlite").stdout
    assert Path("old.sqlite").read_bytes() == before
    assert sorted(os.listdir(tree)) == [".mdh-lift", "mdh-lift.toml", "old.sqlite", "src"]
    assert db("merge", str(DATABASE)).exit_code == 2
    assert "MDH521" in db("merge", "absent.sqlite").stderr


def test_prune_asks_first_and_spares_what_is_locked() -> None:
    ids = records()
    locked = entry(nest="src/gone.c::f::0", record=ids["src/gone.c::f::0@m2"])
    lock.update(Path(lock.NAME), [locked, entry(nest=NEST)])
    assert db("prune").exit_code == 2
    for what in (["--other-versions"], ["--older-than", "9w"]):
        nothing = db("prune", *what)
        assert nothing.exit_code == 0 and "0 of 3 records" in nothing.stdout  # the lock refers to it
    said = db("prune", "--gone")
    assert said.exit_code == 1 and "would remove" in said.stdout and "1 of 3 records, 1 lock entries" in said.stdout
    assert records() == ids and len(lock.read(Path(lock.NAME))["nests"]) == 2
    done = db("prune", "--gone", "--yes")
    assert done.exit_code == 0 and records().keys() == {f"{NEST}@machine", f"{NEST}@m3"}
    assert list(lock.read(Path(lock.NAME))["nests"]) == [NEST]
    data = json.loads(db("prune", "--gone", "--format", "json").stdout)
    assert data["records"] == [] and data["lock_entries"] == []


def test_prune_by_nest_age_and_version() -> None:
    Path("src/f.c").write_text(SOURCE.replace("#pragma mdh", "#pragma mdh name(sum)"))  # the nest has another name
    assert "3 of 3 records" in db("prune", "--gone").stdout
    Path("src/f.c").write_text(SOURCE + "#pragma mdh nonsense(\n")  # unreadable is not gone
    assert "1 of 3 records" in db("prune", "--gone").stdout
    assert "1 of 3 records" in db("prune", "--other-versions").stdout
    assert "3 of 3 records" in db("prune", "--older-than", "0h").stdout
    assert db("prune", "--older-than", "soon").exit_code == 2
    db("prune", "--older-than", "0h", "-w")
    with sqlite3.connect(DATABASE) as connection:
        for table in ("searches", "steps", "evaluations"):
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
    connection.close()
    assert db("list").stdout == "no searches are recorded\n"


def test_vacuum_gives_space_back() -> None:
    with Store(DATABASE) as store, store.changing() as connection:
        connection.execute("CREATE TABLE big (x)")
        connection.execute("INSERT INTO big VALUES (zeroblob(1000000))")
        connection.execute("DROP TABLE big")
    done = json.loads(db("vacuum", "--format", "json").stdout)
    assert done["bytes_after"] < 200_000 < done["bytes_before"]
    assert len(records()) == 3


@pytest.mark.parametrize("verb", [["list"], ["show"], ["export"], ["merge", "broken.sqlite"], ["prune", "--gone"], ["vacuum"]])
@pytest.mark.parametrize("content", [b"no database at all" * 300, b"", None])
def test_what_is_no_database_is_told(verb: list[str], content: bytes | None) -> None:
    if content is not None:
        Path("broken.sqlite").write_bytes(content)
    done = db(*verb, *(["--database", "broken.sqlite"] if verb[0] != "merge" else []))
    assert done.exit_code == 2 and "MDH521" in done.stderr
    assert (Path("broken.sqlite").read_bytes() if content is not None else None) == content


def test_a_lock_with_a_conflict_is_told() -> None:
    Path(lock.NAME).write_text("<<<<<<< HEAD\n")
    done = db("prune", "--gone")
    assert done.exit_code == 2 and "MDH511" in done.stderr and "both sides" in done.stderr


def test_a_place_where_no_database_can_be() -> None:
    db("export", "-o", "out.json")
    for verb in (["list"], ["import", "out.json"], ["merge", str(DATABASE)]):
        done = db(*verb, "--database", "mdh-lift.toml/tune.sqlite")
        assert done.exit_code == 2 and "MDH521" in done.stderr
