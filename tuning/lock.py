"""``mdh-lift.lock``: what was chosen for each nest, in version control.

Sorted JSON, one block per (nest, fingerprint, size class), without paths, host names or times, so that
the same decisions give the same bytes.  Several processes may update one file: each reads, merges and writes
under a lock of the directory, so none loses what another wrote.  ``tests/test_lock.py`` shows both.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mdh_core.replacing import replace_file, sweep

if TYPE_CHECKING:
    from tuning.measure import Ratio

NAME = "mdh-lift.lock"
SCHEMA_VERSION = 1
Lock = dict[str, Any]
_CONFLICT = ("<<<<<<< ", "=======", ">>>>>>> ", "||||||| ")
_TAKE_ONE_SIDE = (
    "keep the blocks of both sides, and one side where they differ; or take one side whole"
    " (`git checkout --ours` or `--theirs`) and run `mdh-lift tune` again"
)


class LockError(Exception):
    """The lock file cannot be understood; the message says why, ``help`` what to do."""

    def __init__(self, message: str, help: str = "") -> None:  # noqa: A002 - as in diagnostics
        super().__init__(message)
        self.help = help or "restore it from version control, or delete it and run `mdh-lift tune` again"


@dataclass(frozen=True, slots=True)
class Entry:
    """One block.

    text_hash      of the generated code, ``tuning.results.text_hash``
    configuration  ``{"point": ..., "machine": ... or "device": ...}``: all that the code is generated from
    verification   on what it was compared with the original, and how much it differed
    record         id of the search in the tuning database, a hash of its content
    """

    nest: str
    fingerprint: str
    size_class: str
    source_hash: str
    configuration: Mapping[str, Any]
    text_hash: str
    speedup: Ratio | None = None
    verification: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    strategy: str = ""
    budget: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    record: str = ""


def empty() -> Lock:
    return {"schema_version": SCHEMA_VERSION, "nests": {}}


def parse(text: str) -> Lock:
    """The lock of a text; every block is an object.  Raises ``LockError``."""
    conflict = next((k for k, line in enumerate(text.splitlines(), 1) if line.startswith(_CONFLICT)), 0)
    if conflict:
        raise LockError(f"unresolved merge conflict in line {conflict}", _TAKE_ONE_SIDE)
    try:
        lock = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LockError(f"not valid JSON ({error})") from error
    if not isinstance(lock, dict) or not isinstance(lock.get("nests"), dict):
        raise LockError("not a lock file of mdh-lift")
    if lock.get("schema_version") != SCHEMA_VERSION:
        found = f"schema version {lock.get('schema_version')!r}, this version reads {SCHEMA_VERSION}"
        raise LockError(found, "update mdh-lift")
    for nest, machines in lock["nests"].items():
        blocks = [b for m in _values(machines) for b in _values(m)]
        if not all(isinstance(b, dict) for b in blocks):
            raise LockError(f"the entry of `{nest}` is none")
    return lock


def _values(value: object) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else [value]


def read(path: Path) -> Lock:
    """The lock at ``path``; an empty one where there is no file."""
    try:
        return parse(path.read_text("utf-8"))
    except FileNotFoundError:
        return empty()
    except (OSError, UnicodeDecodeError) as error:
        raise LockError(str(error)) from error


def find(lock: Lock, nest: str, fingerprint: str, size_class: str) -> dict[str, Any] | None:
    block = lock["nests"].get(nest, {}).get(fingerprint, {}).get(size_class)
    return block if isinstance(block, dict) else None


def merge(lock: Lock, entry: Entry) -> Lock:
    """A new lock in which ``entry`` replaces the block of its nest, fingerprint and size class."""
    merged = parse(render(lock))
    nests = merged["nests"].setdefault(entry.nest, {})
    nests.setdefault(entry.fingerprint, {})[entry.size_class] = block_of(entry)
    return merged


def remove(lock: Lock, nest: str) -> Lock:
    return {**lock, "nests": {n: block for n, block in lock["nests"].items() if n != nest}}


def changes(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> list[str]:
    """The names of what differs between two blocks; ``entry`` where there was none."""
    if before is None:
        return ["entry"]
    return sorted(k for k in before.keys() | after.keys() if before.get(k) != after.get(k))


def block_of(entry: Entry) -> dict[str, Any]:
    """An entry as it stands in the file."""
    names = (
        "source_hash",
        "configuration",
        "text_hash",
        "verification",
        "seed",
        "strategy",
        "budget",
        "versions",
        "record",
    )
    block = {name: getattr(entry, name) for name in names}
    if entry.speedup is not None:
        r = entry.speedup
        numbers = {"median": r.median, "low": r.low, "high": r.high}
        block["speedup"] = {**{k: float(f"{v:.3g}") for k, v in numbers.items()}, "confidence": r.confidence}
    return dict(json.loads(json.dumps(block, default=dict)))


def render(lock: Lock) -> str:
    return json.dumps(lock, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def write(path: Path, lock: Lock) -> bool:
    """Replace the file atomically; False (and nothing touched) where it already holds these bytes."""
    data = render(lock).encode("utf-8", "backslashreplace")  # names that are no UTF-8: as JSON escapes them
    with contextlib.suppress(OSError):
        if path.read_bytes() == data:
            return False
    path = path.resolve()  # never replace a symbolic link by a file
    sweep(path.parent)
    replace_file(path, data, path.stat() if path.exists() else None)
    return True


def update(path: Path, entries: Iterable[Entry]) -> bool:
    """Put entries into the file; False where it already says so."""
    return change(path, lambda lock: functools.reduce(merge, entries, lock))


def change(path: Path, made: Callable[[Lock], Lock]) -> bool:
    """Read, change and write while no other process does; False where nothing changes.

    Raises ``LockError``, ``OSError``.
    """
    with _only_writer(path.resolve().parent):
        return write(path, made(read(path)))


@contextlib.contextmanager
def _only_writer(directory: Path, seconds: float = 60.0) -> Iterator[None]:
    """The directory is what is locked: a file for that would lie about in version control."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        until = time.monotonic() + seconds
        while not _locked(handle):
            if time.monotonic() > until:
                raise LockError("another process is writing it for a minute", "try again when it has ended")
            time.sleep(0.02)
        yield
    finally:
        os.close(handle)  # which unlocks it; so does the end of the process


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
