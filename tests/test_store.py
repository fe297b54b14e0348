"""The tuning database: searches in order, several writers, killed writers, older and newer versions."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tuning import records, store, store_schema
from tuning.records import RACE, SearchRecord, Step
from tuning.store import Context, Record, Store, StoreError

CONTEXT = Context("src/f.c::dot::0", "abc", "machine", "n=1024", "-O2", "gcc 12", 3, "0.1")


def steps() -> list[Step]:
    return [
        Step(0, 0.5, "search", '{"T":1}', "ok", "", (0.5, 0.25, 0.75), "h1"),
        Step(0, 1.5, "search", '{"T":2}', "crashed", "signal 11", (), "h2"),
        Step(0, 2.5, "search", '{"T":4}', "ok", "", (0.125,), "h4"),
        Step(0, 3.0, "search", '{"T":8}', "ok", "", (0.125,), "h4", True),
        Step(0, 4.5, RACE, '{"T":4}', "ok", records.IN_TURN, (0.1,), "h4"),
    ]


def add_search(database: Store, context: Context = CONTEXT, **results: object) -> SearchRecord:
    search = database.begin(context, "greedy", "30ev")
    for step in steps():
        database.step(search, step)
    settings = {"winner": '{"T":4}', "winner_text": "h4", "original": (1.0, 2.0), "pairs": ((1.0, 0.1),),
                "verification": {"cases": 3}, "measured": "ok", "stopped": "budget spent"}  # fmt: skip
    return database.finish(search, **{**settings, **results})


def test_a_search_is_read_as_it_was_written(tmp_path: Path) -> None:
    with Store(tmp_path / "db.sqlite") as database:
        made = add_search(database)
        other = add_search(database, dataclasses.replace(CONTEXT, nest="g.c::dot::0", fingerprint="other"))
    with Store(tmp_path / "db.sqlite") as database:
        (found,) = database.searches("src/f.c::dot::0")
        assert found == made
        assert [r.nest for r in database.searches("dot::0")] == ["src/f.c::dot::0", "g.c::dot::0"]
        assert database.searches("dot::0", fingerprint="other") == [other] == database.searches(id=other.id)
        assert database.searches("ot::0") == []
        assert len(database.searches()) == 2
    assert [s.ordinal for s in found.steps] == [0, 1, 2, 3, 4]
    assert found.finished and found.original_seconds == 1.0
    assert found.outcomes() == {"crashed": 1, "ok": 3}
    assert found.best_so_far() == [(0, 0.5, pytest.approx(0.35)), (2, 2.5, 0.125)]
    assert found.winning_step == found.steps[4]


def test_the_id_is_of_the_content(tmp_path: Path) -> None:
    with Store(tmp_path / "a.sqlite") as one, Store(tmp_path / "b.sqlite") as two:
        first, second = add_search(one), add_search(two)
        assert first.token != second.token
        assert first.id == second.id  # no row numbers, no dates
        for change in ({"winner": '{"T":8}'}, {"pairs": ((1.0, 0.2),)}, {"verification": {"cases": 4}}):
            assert add_search(two, **change).id != first.id
        slower = dataclasses.replace(first, steps=(dataclasses.replace(first.steps[0], times=(9.0,)),))
        assert slower.with_id().id != first.id


def test_a_search_that_was_killed_is_there_with_its_steps(tmp_path: Path) -> None:
    path = tmp_path / "db.sqlite"
    with Store(path) as database:
        search = database.begin(CONTEXT, "greedy", "30ev")
        database.step(search, steps()[0])
    with Store(path) as database:
        (found,) = database.searches("dot::0")
    assert not found.finished and found.stopped == ""
    assert [s.configuration for s in found.steps] == ['{"T":1}']


_VERSION_1 = """
CREATE TABLE evaluations (id INTEGER PRIMARY KEY, source_hash NOT NULL, text_hash NOT NULL, fingerprint NOT NULL,
  size_class NOT NULL, configuration NOT NULL, flags NOT NULL, compiler NOT NULL, seed NOT NULL, nest NOT NULL,
  outcome NOT NULL, reason NOT NULL, times NOT NULL, details NOT NULL, tool_version NOT NULL, created NOT NULL,
  UNIQUE (source_hash, text_hash, fingerprint, size_class, configuration, flags, compiler, seed));
CREATE INDEX by_nest ON evaluations (nest, fingerprint);
PRAGMA user_version = 1;
"""


def version_1(path: Path, rows: int = 3) -> None:
    with sqlite3.connect(path) as connection:
        connection.executescript(_VERSION_1)
        for k in range(rows):
            values = ("abc", f"h{k}", "machine", "n=1024", f'{{"T":{k}}}', "-O2", "gcc 12", 3, "dot::0")
            last = ("ok", records.IN_TURN if k == 2 else "", f"[{k + 1}.0]", "{}", "0.1", 100.0 + k)
            connection.execute(f"INSERT INTO evaluations VALUES (NULL{', ?' * 15})", (*values, *last))
    connection.close()


@pytest.mark.parametrize("create", [True, False])
def test_a_store_of_version_1_is_upgraded(tmp_path: Path, create: bool) -> None:
    path = tmp_path / "db.sqlite"
    version_1(path)
    with Store(path, create=create) as database:
        known = database.find(CONTEXT, '{"T":1}', "h1")
        assert known is not None and known.times == (2.0,)
        (found,) = database.searches("dot::0")
    assert [(s.offset, s.phase, s.times) for s in found.steps] == [
        (0.0, "search", (1.0,)), (1.0, "search", (2.0,)), (2.0, RACE, (3.0,))
    ]  # fmt: skip
    assert (found.seed, found.winner, found.strategy) == (3, "", "")
    with Store(path) as database:  # once only
        assert len(database.searches()) == 1
        add_search(database)


def test_an_upgrade_that_fails_leaves_the_old_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "db.sqlite"
    version_1(path)
    before = path.read_bytes()

    def broken(*_: object) -> int:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(store_schema, "insert_search", broken)
        with pytest.raises(StoreError, match="disk is full"):
            Store(path)
    assert path.read_bytes() == before
    with Store(path) as database:
        assert len(database.searches()) == 1


def test_what_is_no_store_is_told_and_left_alone(tmp_path: Path) -> None:
    newer, foreign, cut = (tmp_path / name for name in ("newer.sqlite", "foreign.sqlite", "cut.sqlite"))
    Store(newer).close()
    with sqlite3.connect(newer) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with sqlite3.connect(foreign) as connection:
        connection.execute("CREATE TABLE bookmarks (url)")
    connection.close()
    with Store(cut) as database:
        for k in range(200):
            database.add(CONTEXT, Record(f"{k}", "ok", "x" * 200))
    cut.write_bytes(cut.read_bytes()[: 3 * 4096])
    for path, text in ((newer, "schema 99, here 2"), (foreign, "another program"), (cut, "move it away")):
        before = path.read_bytes()
        for create in (True, False):
            with pytest.raises(StoreError, match=text):
                Store(path, create=create)
        assert path.read_bytes() == before
    with pytest.raises(StoreError, match="no such database"):
        Store(tmp_path / "absent.sqlite", create=False)
    assert not (tmp_path / "absent.sqlite").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError):
        Store(tmp_path / "file" / "db.sqlite")


_WRITER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from tests.test_store import CONTEXT
from tuning.records import Step
from tuning.store import Record, Store
with Store(Path(sys.argv[1])) as database:
    search = database.begin(CONTEXT, "greedy", sys.argv[2])
    for k in range(int(sys.argv[4])):
        database.add(CONTEXT, Record(f'{{"{sys.argv[2]}":{k}}}', "ok", "", (1.0,)))
        database.step(search, Step(0, float(k), "search", f'{{"T":{k}}}', "ok", "", (1.0,)))
        print(k, flush=True)
    database.finish(search, stopped="space exhausted")
"""


def writer(path: Path, name: str, count: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", _WRITER, str(path), name, str(Path(__file__).parent.parent), str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


def test_eight_writers_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "db.sqlite"
    writers = [writer(path, f"w{k}", 12) for k in range(8)]
    for w in writers:
        w.communicate(timeout=300)
    assert [w.returncode for w in writers] == [0] * 8
    with Store(path) as database:
        found = database.searches("dot::0")
        assert sorted(r.budget for r in found) == [f"w{k}" for k in range(8)]
        assert all(r.finished and [s.offset for s in r.steps] == [float(k) for k in range(12)] for r in found)
        assert len(database.all(CONTEXT)) == 96


def test_a_killed_writer_loses_at_most_its_last_record(tmp_path: Path) -> None:
    path = tmp_path / "db.sqlite"
    for turn in range(3):
        killed = writer(path, f"k{turn}", 10**6)
        assert killed.stdout is not None
        told = [int(killed.stdout.readline()) for _ in range(5 + 3 * turn)]
        time.sleep(0.003 * turn)
        os.kill(killed.pid, signal.SIGKILL)
        rest = killed.communicate()[0].split()
        last = int(rest[-1]) if rest else told[-1]
        with Store(path) as database:  # it opens, is whole, and nobody holds the lock
            (found,) = database.searches("dot::0", budget=f"k{turn}")
            assert [s.ordinal for s in found.steps] == list(range(len(found.steps)))
            assert len(found.steps) >= last + 1
            own = [r for r in database.all(CONTEXT) if f"k{turn}" in r.configuration]
            assert len(own) >= last + 1
            add_search(database)


def test_merging_twice_is_merging_once(tmp_path: Path) -> None:
    with Store(tmp_path / "a.sqlite") as one, Store(tmp_path / "b.sqlite") as two:
        made = add_search(one)
        running = one.begin(CONTEXT, "greedy", "9ev")
        one.step(running, steps()[0])
        assert two.merge(one.searches()) == 2
        assert two.merge(one.searches()) == 0
        one.step(running, steps()[1])
        assert two.merge(one.searches()) == 1  # it went on
        one.finish(running)
        assert two.merge(one.searches()) == 1  # and ended
        assert two.searches() == one.searches()
        assert len(two.searches()) == 2
        known = two.find(CONTEXT, '{"T":4}', "h4")  # so that a search here need not try it again
        assert known is not None and known.times == (0.1,) and known.reason == records.IN_TURN
        assert two.find(CONTEXT, '{"T":8}', "h4") is None  # its twin was measured
        mine = Record('{"T":4}', "ok", "", (7.0,), "h4")
        two.add(CONTEXT, mine)
        assert two.merge([dataclasses.replace(made, token="x", steps=made.steps[:3]).with_id()]) == 1
        still = two.find(CONTEXT, '{"T":4}', "h4")
        assert still is not None and still.times == (7.0,)  # what is here stays


def test_an_error_while_writing_is_told(tmp_path: Path) -> None:
    with Store(tmp_path / "db.sqlite") as database:
        search = database.begin(CONTEXT, "greedy", "30ev")
        with sqlite3.connect(tmp_path / "db.sqlite") as connection:
            connection.execute("DROP TABLE steps")
        connection.close()
        with pytest.raises(StoreError, match="steps"):
            database.step(search, steps()[0])
        with pytest.raises(StoreError):
            database.searches()
    assert json.dumps(store.SCHEMA_VERSION) == "2"
