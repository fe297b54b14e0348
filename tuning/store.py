"""The tuning database: every evaluation, failed ones included, in one SQLite file outside version control.

One writer at a time, by a file lock, so that several tuners share a database; rollback journal, because
home directories may be network file systems.  A record is keyed by everything that its result depends on,
so writing it again replaces it.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import filelock
import platformdirs

SCHEMA_VERSION = 1
_KEY = ("source_hash", "text_hash", "fingerprint", "size_class", "configuration", "flags", "compiler", "seed")
_COLUMNS = (*_KEY, "nest", "outcome", "reason", "times", "details", "tool_version", "created")
_SCHEMA = f"""
CREATE TABLE evaluations (
    id INTEGER PRIMARY KEY,
    {" NOT NULL, ".join(_COLUMNS)} NOT NULL,
    UNIQUE ({", ".join(_KEY)})
);
CREATE INDEX by_nest ON evaluations (nest, fingerprint);
PRAGMA user_version = {SCHEMA_VERSION};
"""
_SHARED = ("source_hash", "fingerprint", "size_class", "flags", "compiler", "seed")
# Only names from this file go into the text of statements; values are bound.
_INSERT = f"REPLACE INTO evaluations ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"  # noqa: S608
_SELECT = "SELECT configuration, outcome, reason, times, text_hash, details, created FROM evaluations WHERE "
_SELECT += " AND ".join(f"{c} = ?" for c in _SHARED)


class StoreError(Exception):
    """The database cannot be used; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Context:
    """What all evaluations of one tuning run have in common."""

    nest: str
    source_hash: str
    fingerprint: str
    size_class: str
    flags: str
    compiler: str
    seed: int = 0
    tool_version: str = ""


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


def canonical(configuration: Mapping[str, Any]) -> str:
    return json.dumps(configuration, sort_keys=True, separators=(",", ":"))


def default_path() -> Path:
    chosen = os.environ.get("MDH_LIFT_STORE")
    return Path(chosen) if chosen else Path(platformdirs.user_data_dir("mdh-lift")) / "tuning.sqlite"


class Store:
    def __init__(self, path: Path | None = None, *, wait: float = 60.0) -> None:
        self.path = path or default_path()
        self._wait = wait
        self._threads = threading.RLock()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = filelock.FileLock(str(self.path) + ".lock", timeout=wait)
            self._connection = sqlite3.connect(
                self.path, timeout=wait, isolation_level=None, check_same_thread=False
            )
            self._prepare()
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"{self.path}: {error}; move the file away to start afresh") from error

    def _prepare(self) -> None:
        with self._writing():
            self._connection.execute("PRAGMA journal_mode = DELETE")
            (version,) = self._connection.execute("PRAGMA user_version").fetchone()
            if version == 0:
                self._connection.executescript("BEGIN IMMEDIATE;" + _SCHEMA + "COMMIT;")
            elif version != SCHEMA_VERSION:
                raise StoreError(
                    f"{self.path}: written by another version (schema {version}, here {SCHEMA_VERSION})"
                )
            (state,) = self._connection.execute("PRAGMA integrity_check(1)").fetchone()
            if state != "ok":
                raise StoreError(f"{self.path}: damaged ({state}); move the file away to start afresh")

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            with self._threads, self._writer:
                yield
        except filelock.Timeout as error:
            raise StoreError(
                f"{self.path}: another process holds the lock for more than {self._wait} s"
            ) from error

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, context: Context, record: Record) -> None:
        values = _row(context, record)
        with self._writing():
            self._connection.execute(_INSERT, [values[c] for c in _COLUMNS])

    def find(self, context: Context, configuration: str, text_hash: str | None = None) -> Record | None:
        """The newest record of a configuration; with ``text_hash``, only of exactly this generated code."""
        with_text = text_hash is not None
        records = [r for r in self.all(context, configuration) if not with_text or r.text_hash == text_hash]
        return records[-1] if records else None

    def all(self, context: Context, configuration: str = "") -> list[Record]:
        """Every record of this context (and configuration), oldest first."""
        query, values = _SELECT, [getattr(context, c) for c in _SHARED]
        if configuration:
            query, values = query + " AND configuration = ?", [*values, configuration]
        with self._threads:
            rows = self._connection.execute(query + " ORDER BY created, id", values).fetchall()
        return [Record(c, o, r, tuple(json.loads(t)), h, d, at) for c, o, r, t, h, d, at in rows]


def _row(context: Context, record: Record) -> dict[str, Any]:
    row = {c: getattr(context, c) for c in Context.__slots__} | {
        c: getattr(record, c) for c in Record.__slots__
    }
    return {**row, "times": json.dumps(record.times), "created": record.created or time.time()}
