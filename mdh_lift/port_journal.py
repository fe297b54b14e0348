"""What a long run has finished, so that it goes on after it was killed at any moment.

One JSON object per line, each written and synchronised before the next step depends on it.  A last line that
was cut off is dropped.  The first line says for which settings the rest holds; a journal of others is started
afresh.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import filelock

SCHEMA_VERSION = 1
Record = dict[str, Any]


class BusyError(Exception):
    """Another process is at work with this journal."""


class Journal:
    """``records`` are those that were there.  Raises ``BusyError`` and ``OSError``."""

    def __init__(self, path: Path, settings: str, resume: bool = True) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = filelock.FileLock(f"{path}.lock", timeout=0)
        try:
            self._lock.acquire()
        except filelock.Timeout:
            raise BusyError(f"{path}: another run is at work on this tree") from None
        head = _head(settings)
        self.records = records_of(path, settings) if resume else []
        temporary = path.with_name(f"{path.name}.tmp")
        with temporary.open("wb") as out:  # without a line that was cut off
            for record in (head, *self.records):
                out.write(_line(record))
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(path)
        self._file: BinaryIO = path.open("ab")

    def add(self, record: Record) -> None:
        self._file.write(_line(record))
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()
        self._lock.release()


def records_of(path: Path, settings: str) -> list[Record]:
    """What a journal holds that was made with these settings, without taking it over.  Raises ``OSError``."""
    found = list(_read(path))
    return found[1:] if found and found[0] == _head(settings) else []


def _head(settings: str) -> Record:
    return {"schema_version": SCHEMA_VERSION, "settings": settings}


def _line(record: Record) -> bytes:
    return json.dumps(record, sort_keys=True).encode() + b"\n"


def _read(path: Path) -> Iterator[Record]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    for line in data.split(b"\n")[:-1]:
        try:
            record = json.loads(line)
        except ValueError:
            return
        if not isinstance(record, dict):
            return
        yield record
