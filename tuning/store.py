"""The tuning database: every evaluation, failed ones included, in one SQLite file outside version control.

One writer at a time, by a file lock, so that several tuners share a database; rollback journal, because
home directories may be network file systems.  Two things are in it: per key of all that a result depends on
the newest evaluation (``find``, ``all``), and the searches, step by step (``begin``, ``step``, ``finish``;
``searches`` reads them).  A killed writer loses at most its last step.  ``tuning.records`` says what a
search is, ``tuning.exports`` writes it in other formats, ``tuning.store_schema`` has the tables.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import filelock
import platformdirs

from tuning import store_schema as schema
from tuning.records import IN_TURN, RACE, SearchRecord, Step, canonical

__all__ = ["SCHEMA_VERSION", "Context", "Record", "Store", "StoreError", "canonical", "default_path"]

SCHEMA_VERSION = schema.VERSION
_SELECT = "SELECT configuration, outcome, reason, times, text_hash, details, created FROM evaluations WHERE "
_SELECT += " AND ".join(f"{c} = ?" for c in schema.SHARED)


class StoreError(Exception):
    """The database cannot be used; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Context:
    """What all evaluations of one tuning run have in common.

    nest      ``path::function::label``, the path from the lock file's directory
    machine   facts of the machine, ``versions`` of the tools: as in ``SearchRecord``
    """

    nest: str
    source_hash: str
    fingerprint: str
    size_class: str
    flags: str
    compiler: str
    seed: int = 0
    tool_version: str = ""
    target: str = "openmp"
    machine: Mapping[str, Any] | None = None
    versions: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """One evaluation; ``times`` in seconds, ``details`` plain values, ``text_hash`` of the generated code."""

    configuration: str
    outcome: str
    reason: str = ""
    times: tuple[float, ...] = ()
    text_hash: str = ""
    details: str = "{}"
    created: float = 0.0


def default_path() -> Path:
    chosen = os.environ.get("MDH_LIFT_STORE")
    return Path(chosen) if chosen else Path(platformdirs.user_data_dir("mdh-lift")) / "tuning.sqlite"


class Store:
    """An open database.  Every method may raise ``StoreError``; nothing else.

    ``create``: make the file where there is none; without it, it must be there, and is only read unless
    something is added, so that a file that may not be written can be looked at.
    """

    def __init__(self, path: Path | None = None, *, wait: float = 60.0, create: bool = True) -> None:
        self.path = path or default_path()
        self._wait = wait
        self._threads = threading.RLock()
        self._writer = filelock.FileLock(str(self.path) + ".lock", timeout=wait)
        self._opened: dict[int, SearchRecord] = {}  # searches of ours that run
        if not create and not self.path.is_file():
            raise StoreError(f"{self.path}: there is no such database")
        with self._told():
            if create:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            mode = "rwc" if create else "rw"
            self._connection = sqlite3.connect(
                f"{self.path.absolute().as_uri()}?mode={mode}",
                uri=True,
                timeout=wait,
                isolation_level=None,
                check_same_thread=False,
            )
        try:
            with self._told():
                self._prepare(create)
        except StoreError:
            self._connection.close()
            raise

    def _prepare(self, create: bool) -> None:
        if create or self._version() in (0, 1):
            with self._writing():
                version = self._version()
                if version == 0:
                    self._expect_no_tables()
                if version == 0 and not create:
                    raise StoreError(f"{self.path}: not a tuning database")
                if version == 0:
                    self._connection.execute("PRAGMA journal_mode = DELETE")
                    with self._transaction():
                        schema.create(self._connection)
                elif version == 1:
                    with self._transaction():
                        schema.upgrade(self._connection)
        version = self._version()
        if version != SCHEMA_VERSION:
            raise StoreError(
                f"{self.path}: written by another version (schema {version}, here {SCHEMA_VERSION});"
                " update mdh-lift, or move it away to start afresh"
            )
        (state,) = self._connection.execute("PRAGMA integrity_check(1)").fetchone()
        if state != "ok":
            raise StoreError(f"{self.path}: damaged ({state}); move it away to start afresh")
        self._connection.execute("PRAGMA foreign_keys = ON")

    def _version(self) -> int:
        return int(self._connection.execute("PRAGMA user_version").fetchone()[0])

    def _expect_no_tables(self) -> None:
        """A database of another program, which has no version either, is not ours to write to."""
        if self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise StoreError(f"{self.path}: a database of another program")

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Errors of the file and of SQLite, in words."""
        try:
            yield
        except filelock.Timeout:
            raise StoreError(
                f"{self.path}: another process holds the lock for more than {self._wait:g} s"
            ) from None
        except sqlite3.DatabaseError as error:
            advice = "" if isinstance(error, sqlite3.OperationalError) else "; move it away to start afresh"
            raise StoreError(f"{self.path}: {error}{advice}") from error
        except (OSError, sqlite3.Error, UnicodeError, ValueError) as error:
            raise StoreError(f"{self.path}: {getattr(error, 'strerror', None) or error}") from error

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        with self._told(), self._threads, self._writer:
            yield

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        """All or nothing; the caller holds the lock."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    @contextlib.contextmanager
    def changing(self) -> Iterator[sqlite3.Connection]:
        """One transaction of the only writer, for modules that change many rows at once."""
        with self._writing(), self._transaction():
            yield self._connection

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        with self._told(), self._threads:
            yield self._connection

    def vacuum(self) -> None:
        """Give the space of what was removed back."""
        with self._writing():
            self._connection.execute("VACUUM")

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------ evaluations

    def add(self, context: Context, record: Record) -> None:
        """Keep an evaluation; one with the same key is replaced."""
        values = _row(context, record)
        with self._writing():
            self._connection.execute(schema.INSERT, [values[c] for c in schema.COLUMNS])

    def find(self, context: Context, configuration: str, text_hash: str | None = None) -> Record | None:
        """The newest record of a configuration; with ``text_hash``, only of exactly this generated code."""
        with_text = text_hash is not None
        records = [r for r in self.all(context, configuration) if not with_text or r.text_hash == text_hash]
        return records[-1] if records else None

    def all(self, context: Context, configuration: str = "") -> list[Record]:
        """Every record of this context (and configuration), oldest first."""
        query, values = _SELECT, [getattr(context, c) for c in schema.SHARED]
        if configuration:
            query, values = query + " AND configuration = ?", [*values, configuration]
        with self.reading() as connection:
            rows = connection.execute(query + " ORDER BY created, id", values).fetchall()
            return [Record(c, o, r, tuple(json.loads(t)), h, d, at) for c, o, r, t, h, d, at in rows]

    # ------------------------------------------------------------------ searches

    def begin(self, context: Context, strategy: str, budget: str) -> int:
        """A new search; what is returned names it in ``step`` and ``finish``."""
        record = SearchRecord(
            token=uuid.uuid4().hex,
            nest=context.nest,
            source_hash=context.source_hash,
            fingerprint=context.fingerprint,
            size_class=context.size_class,
            flags=context.flags,
            compiler=context.compiler,
            seed=context.seed,
            tool_version=context.tool_version,
            target=context.target,
            strategy=strategy,
            budget=budget,
            started=time.time(),
            machine=context.machine or {},
            versions=context.versions or {},
        )
        with self.changing() as connection:
            search = schema.insert_search(connection, record)
        self._opened[search] = record
        return search

    def step(self, search: int, step: Step) -> None:
        """The next step of a search; its ``ordinal`` is set here."""
        record = self._opened[search]
        step = replace(step, ordinal=len(record.steps))
        with self._writing():
            schema.insert_step(self._connection, search, step)
        self._opened[search] = replace(record, steps=(*record.steps, step))

    def finish(self, search: int, **results: Any) -> SearchRecord:
        """Fields of ``SearchRecord`` that are known at the end; the record with its id."""
        record = replace(self._opened.pop(search), **results).with_id()
        with self.changing() as connection:
            schema.update_search(connection, search, record)
        return record

    def searches(self, nest: str = "", **equal: Any) -> list[SearchRecord]:
        """The recorded searches of a nest, oldest first, with all their steps in order.

        ``nest``: its whole name ``path::function::label``, or the end of it (``function::label``); empty: all
        nests.  ``equal``: fields of ``SearchRecord`` with the value that is asked for, for example
        ``fingerprint="..."``, ``id="..."``.  A search that still runs, or was killed, is among them, with the
        steps that it got to: ``finished`` is False.

            for record in store.searches("src/gemm.c::gemm::0", target="openmp"):
                for step in record.steps:
                    print(step.ordinal, step.offset, step.outcome, step.seconds)
                print(record.winner, record.original_seconds, record.pairs)
        """
        where, values = ["1"], []
        if nest:
            where.append("(nest = ? OR substr(nest, -length(?)) = ?)")
            values += [nest, "::" + nest, "::" + nest]
        for name, value in equal.items():
            column = "record" if name == "id" else name
            if column not in ("record", *schema.SEARCHES):
                raise TypeError(f"a search record has no field {name}")
            where.append(f"{column} = ?")
            values.append(value)
        with self.reading() as connection:
            return [r for _, r in schema.select_searches(connection, " AND ".join(where), values)]

    def merge(self, records: Iterable[SearchRecord]) -> int:
        """Take over records of another database, and what their steps measured; how many were new.

        A record that is here already is left alone, so doing it twice is doing it once.
        """
        new = 0
        with self.changing() as connection:
            for record in records:
                rows = connection.execute(
                    "SELECT id, record FROM searches WHERE token = ? OR (record = ? AND record != '')",
                    [record.token, record.id],
                ).fetchall()
                if any(known for _, known in rows):
                    continue
                if not record.id and any(_steps_of(connection, at) >= len(record.steps) for at, _ in rows):
                    continue
                for at, _ in rows:  # the same search, seen before its end
                    connection.execute("DELETE FROM searches WHERE id = ?", [at])
                schema.insert_search(connection, record)
                for values in _measured(record):
                    text = schema.INSERT.replace("REPLACE", "INSERT OR IGNORE", 1)
                    connection.execute(text, [values[c] for c in schema.COLUMNS])
                new += 1
        return new


def _steps_of(connection: sqlite3.Connection, search: int) -> int:
    (number,) = connection.execute("SELECT count(*) FROM steps WHERE search = ?", [search]).fetchone()
    return int(number)


def _measured(record: SearchRecord) -> Iterator[dict[str, Any]]:
    """Rows of evaluations that a record's own steps stand for, the newest first."""
    shared = {c: getattr(record, c) for c in (*schema.SHARED, "nest", "tool_version")}
    for s in reversed(record.steps):
        if s.text_hash and not s.reused and not (s.outcome == "ok" and not s.times):
            reason = IN_TURN if s.phase == RACE else s.reason
            own = {"configuration": s.configuration, "outcome": s.outcome, "reason": reason}
            own |= {"times": json.dumps(s.times), "text_hash": s.text_hash, "details": "{}"}
            yield {**shared, **own, "created": record.started + s.offset}


def _row(context: Context, record: Record) -> dict[str, Any]:
    row = {c: getattr(context, c) for c in Context.__slots__} | {
        c: getattr(record, c) for c in Record.__slots__
    }
    return {**row, "times": json.dumps(record.times), "created": record.created or time.time()}
