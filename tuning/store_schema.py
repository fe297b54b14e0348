"""The tables of the tuning database, and how a database of an older version becomes one of this version.

``evaluations`` holds the newest result per key, for searches that go on; ``searches`` and ``steps`` hold what
happened, in order.  ``upgrade`` runs inside a transaction of the caller: afterwards the database is of this
version, or as it was.  Shown right by ``tests/test_store.py``, which upgrades a database of version 1.
"""

from __future__ import annotations

import json
import sqlite3
import uuid
from dataclasses import fields, replace
from typing import Any

from tuning.records import IN_TURN, RACE, SEARCH, SearchRecord, Step

VERSION = 2
KEY = ("source_hash", "text_hash", "fingerprint", "size_class", "configuration", "flags", "compiler", "seed")
COLUMNS = (*KEY, "nest", "outcome", "reason", "times", "details", "tool_version", "created")
SHARED = ("source_hash", "fingerprint", "size_class", "flags", "compiler", "seed")
SEARCHES = tuple(f.name for f in fields(SearchRecord) if f.name not in ("id", "steps"))
STEPS = tuple(f.name for f in fields(Step))
JSON = ("machine", "versions", "original", "verification", "pairs", "diagnostics", "times")

_EVALUATIONS = (
    f"""CREATE TABLE evaluations (
        id INTEGER PRIMARY KEY, {" NOT NULL, ".join(COLUMNS)} NOT NULL, UNIQUE ({", ".join(KEY)})
    )""",
    "CREATE INDEX by_nest ON evaluations (nest, fingerprint)",
)
_RECORDS = (
    f"""CREATE TABLE searches (
        id INTEGER PRIMARY KEY, record TEXT NOT NULL, {" NOT NULL, ".join(SEARCHES)} NOT NULL, UNIQUE (token)
    )""",
    "CREATE INDEX search_by_nest ON searches (nest, fingerprint)",
    "CREATE INDEX search_by_record ON searches (record)",
    f"""CREATE TABLE steps (
        search INTEGER NOT NULL REFERENCES searches (id) ON DELETE CASCADE,
        {" NOT NULL, ".join(STEPS)} NOT NULL, PRIMARY KEY (search, ordinal)
    ) WITHOUT ROWID""",
)
# Only names from this file go into the text of statements; values are bound.
INSERT = f"REPLACE INTO evaluations ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"  # noqa: S608
INSERT_SEARCH = f"INSERT INTO searches (record, {', '.join(SEARCHES)}) VALUES (?{', ?' * len(SEARCHES)})"  # noqa: S608
INSERT_STEP = f"INSERT INTO steps (search, {', '.join(STEPS)}) VALUES (?{', ?' * len(STEPS)})"  # noqa: S608


def create(connection: sqlite3.Connection) -> None:
    """The tables of a new database."""
    for statement in (*_EVALUATIONS, *_RECORDS):
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {VERSION}")


def upgrade(connection: sqlite3.Connection) -> None:
    """From version 1: its evaluations stay, and become searches as far as that can be told."""
    for statement in _RECORDS:
        connection.execute(statement)
    shared = (*SHARED, "nest", "tool_version")
    groups = connection.execute(f"SELECT DISTINCT {', '.join(shared)} FROM evaluations").fetchall()  # noqa: S608
    for group in groups:
        record = _of_version_1(connection, dict(zip(shared, group, strict=True)))
        insert_search(connection, record)
    connection.execute(f"PRAGMA user_version = {VERSION}")


def _of_version_1(connection: sqlite3.Connection, shared: dict[str, Any]) -> SearchRecord:
    """What one context's evaluations say: their order and times, not what won."""
    wanted = " AND ".join(f"{name} = ?" for name in shared)
    columns = "created, configuration, outcome, reason, times, text_hash"
    query = f"SELECT {columns} FROM evaluations WHERE {wanted} ORDER BY created, id"  # noqa: S608
    rows = connection.execute(query, list(shared.values())).fetchall()
    begun = rows[0][0]
    steps = tuple(
        Step(k, at - begun, RACE if reason == IN_TURN else SEARCH, c, outcome, reason, _floats(times), text)
        for k, (at, c, outcome, reason, times, text) in enumerate(rows)
    )
    record = SearchRecord(
        token=uuid.uuid4().hex,
        target="",
        strategy="",
        budget="",
        started=begun,
        stopped="kept from version 1 of the database",
        steps=steps,
        **shared,
    )
    return record.with_id()


def _floats(text: str) -> tuple[float, ...]:
    return tuple(map(float, json.loads(text)))


# --------------------------------------------------------------------------- rows


def insert_search(connection: sqlite3.Connection, record: SearchRecord) -> int:
    """Write a record with its steps; its row."""
    at = connection.execute(INSERT_SEARCH, [record.id, *_row(record, SEARCHES)]).lastrowid
    assert at is not None
    connection.executemany(INSERT_STEP, ([at, *_row(step, STEPS)] for step in record.steps))
    return at


def insert_step(connection: sqlite3.Connection, search: int, step: Step) -> None:
    connection.execute(INSERT_STEP, [search, *_row(step, STEPS)])


def update_search(connection: sqlite3.Connection, search: int, record: SearchRecord) -> None:
    """Everything but the steps."""
    settings = ", ".join(f"{name} = ?" for name in ("record", *SEARCHES))
    connection.execute(
        f"UPDATE searches SET {settings} WHERE id = ?",  # noqa: S608
        [record.id, *_row(record, SEARCHES), search],
    )


def _row(value: SearchRecord | Step, columns: tuple[str, ...]) -> list[Any]:
    return [
        json.dumps(getattr(value, name), default=dict) if name in JSON else getattr(value, name)
        for name in columns
    ]


def select_searches(
    connection: sqlite3.Connection, where: str, values: list[Any]
) -> list[tuple[int, SearchRecord]]:
    """Records with their rows, oldest first; ``where``: text of this program, no data."""
    query = f"SELECT id, record, {', '.join(SEARCHES)} FROM searches WHERE {where} ORDER BY started, id"  # noqa: S608
    found = []
    for at, record, *rest in connection.execute(query, values).fetchall():
        named: dict[str, Any] = {
            n: json.loads(v) if n in JSON else v for n, v in zip(SEARCHES, rest, strict=True)
        }
        named["original"] = tuple(named["original"])
        named["pairs"] = tuple((a, b) for a, b in named["pairs"])
        named["diagnostics"] = tuple(named["diagnostics"])
        found.append((at, replace(SearchRecord(**named), id=record, steps=_steps(connection, at))))
    return found


def _steps(connection: sqlite3.Connection, search: int) -> tuple[Step, ...]:
    query = f"SELECT {', '.join(STEPS)} FROM steps WHERE search = ? ORDER BY ordinal"  # noqa: S608
    found = []
    for row in connection.execute(query, [search]).fetchall():
        named = dict(zip(STEPS, row, strict=True))
        found.append(
            Step(**{**named, "times": _floats(named["times"]), "reused": bool(named["reused"])})
        )
    return tuple(found)
