"""``mdh-lift.lock``: what was chosen for each nest, in version control.

Sorted JSON, one block per (nest, fingerprint, size class), without paths, host names or times, so that
the same decisions give the same bytes.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mdh_core.replacing import replace_file, sweep

if TYPE_CHECKING:
    from tuning.measure import Ratio

NAME = "mdh-lift.lock"
SCHEMA_VERSION = 1
Lock = dict[str, Any]


class LockError(Exception):
    """The lock file cannot be understood; the message says why."""


@dataclass(frozen=True, slots=True)
class Entry:
    nest: str
    fingerprint: str
    size_class: str
    source_hash: str
    configuration: Mapping[str, Any]
    text_hash: str  # of the generated text
    speedup: Ratio | None = None
    verification: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    strategy: str = ""
    budget: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)


def empty() -> Lock:
    return {"schema_version": SCHEMA_VERSION, "nests": {}}


def parse(text: str) -> Lock:
    try:
        lock = json.loads(text)
    except ValueError as error:
        raise LockError(f"not valid JSON ({error}); unresolved merge conflict?") from error
    if not isinstance(lock, dict) or not isinstance(lock.get("nests"), dict):
        raise LockError("not a lock file of mdh-lift")
    if lock.get("schema_version") != SCHEMA_VERSION:
        raise LockError(f"schema version {lock.get('schema_version')!r}, this version reads {SCHEMA_VERSION}")
    return lock


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
    nests.setdefault(entry.fingerprint, {})[entry.size_class] = _block(entry)
    return merged


def remove(lock: Lock, nest: str) -> Lock:
    return {**lock, "nests": {n: block for n, block in lock["nests"].items() if n != nest}}


def _block(entry: Entry) -> dict[str, Any]:
    names = (
        "source_hash",
        "configuration",
        "text_hash",
        "verification",
        "seed",
        "strategy",
        "budget",
        "versions",
    )
    block = {name: getattr(entry, name) for name in names}
    if entry.speedup is not None:
        r = entry.speedup
        numbers = {"median": r.median, "low": r.low, "high": r.high}
        block["speedup"] = {**{k: float(f"{v:.3g}") for k, v in numbers.items()}, "confidence": r.confidence}
    return block


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
    lock = read(path)
    for entry in entries:
        lock = merge(lock, entry)
    return write(path, lock)
