"""Edits of several files that belong together: all of them happen, or none.

A ``Change`` in, its files written, or a ``Refusal`` and the files as they were.  Before the first of several
files is written, a journal beside the source says what each was and shall be; it goes when all is done.  Who
finds one whose writer is dead finishes the edit.  Shown right by ``campaigns/kills.py``: killed at each
system call, then finished, all files are the old ones or all are the new ones.

    gemm.c  ->  .gemm.c.mdh-lift-journal        JSON: writer, and of each file its name, old hash, new content
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mdh_core.diagnostics import Diagnostic, Refusal
from mdh_core.replacing import alive, replace_file, sweep, synchronise_directory, this_machine
from mdh_lift import beside
from mdh_lift.files import Change

_SUFFIX = ".mdh-lift-journal"
_LONGEST = 200  # bytes of a file's name
_SECONDS = 600.0  # an edit takes far less


def journal_path(source: str) -> Path:
    """Where the journal of a source file is; the file that a symbolic link leads to counts."""
    target = Path(source).resolve()
    raw = os.fsencode(target.name)
    name = target.name if len(raw) <= _LONGEST else hashlib.sha256(raw).hexdigest()
    return target.with_name(f".{name}{_SUFFIX}")


# --------------------------------------------------------------------------- making


def make(change: Change) -> int:
    """Make all changes that belong to one; how many files were written.

    Raises ``Refusal`` MDH507, MDH803, MDH827; then all files are as they were, or, where even that cannot be
    written, the journal stays for the next run.
    """
    parts = change.all
    if len(parts) < 2:
        for part in parts:
            beside.write(part, change.path)
        return len(parts)
    journal = _begin(change, parts)
    try:
        for part in parts:
            beside.write(part, change.path)
    except BaseException:
        _undo(parts, change.path)
        if all(_content(part.path) == part.old for part in parts):
            _end(journal)
        raise
    _end(journal)
    return len(parts)


def _begin(change: Change, parts: tuple[Change, ...]) -> Path:
    try:
        journal = journal_path(change.path)
        entries = [
            {
                "path": os.path.relpath(Path(part.path).resolve(), journal.parent),
                "old": _hash(part.old),
                "new": None if part.new is None else base64.b64encode(part.new).decode(),
            }
            for part in parts
        ]
        content = {"schema_version": 1, "writer": os.getpid(), "machine": this_machine(), "changes": entries}
        sweep(journal.parent)
        try:
            replace_file(journal, json.dumps(content).encode(), new=True)
        except FileExistsError:
            raise
        except OSError:
            _end(journal)  # it may be there already
            raise
    except FileExistsError:
        raise Refusal(Diagnostic(
            "MDH827", f"`{change.path}` is being edited by another run", change.path,
            help="run the command again",
        )) from None  # fmt: skip
    except (OSError, RuntimeError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise Refusal(
            Diagnostic("MDH803", f"`{change.path}` cannot be written: {reason}", change.path)
        ) from None
    return journal


def _undo(parts: tuple[Change, ...], source: str) -> None:
    for part in reversed(parts):
        if part.old != part.new and _content(part.path) == part.new:
            with contextlib.suppress(Refusal, OSError):
                beside.write(Change(part.path, part.new, part.old), source)


def _end(journal: Path) -> None:
    """Without it the edit is over; if its removal does not outlast a loss of power, it is finished again."""
    with contextlib.suppress(OSError):
        journal.unlink()
        synchronise_directory(journal.parent)


def _content(path: str | Path) -> bytes | None:
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        return None
    except OSError:
        return b"\0unreadable"


def _hash(data: bytes | None) -> str | None:
    return None if data is None else hashlib.sha256(data).hexdigest()


# --------------------------------------------------------------------------- finishing


@dataclass(frozen=True, slots=True)
class _Step:
    path: Path
    old: str | None
    new: bytes | None

    @property
    def content(self) -> bytes | None:
        return _content(self.path)


def interrupted(source: str) -> Diagnostic | None:
    """MDH825 where an edit of this source was begun and its writer is dead; changes nothing."""
    with contextlib.suppress(OSError, RuntimeError):
        journal = journal_path(source)
        if journal.exists() and not _is_at_work(journal, _read(journal)):
            return Diagnostic(
                "MDH825", "an edit of several files was interrupted", source,
                help=f"`mdh-lift revert -w {source}` or `mdh-lift -w {source}` finishes it first",
            )  # fmt: skip
    return None


def finish(source: str) -> Iterator[Diagnostic]:
    """Finish an interrupted edit of a source, remove what killed runs left beside it, and tell.

    Yields MDH826 (finished), MDH825 (not possible as a file was changed since; all stay as they are), MDH827
    (its writer is at work), MDH803.
    """
    try:
        journal = journal_path(source)
        if not journal.parent.is_dir():
            return
        sweep(journal.parent)
        if not journal.is_file():
            return
        content = _read(journal)
        if _is_at_work(journal, content):
            yield Diagnostic(
                "MDH827", f"`{source}` is being edited by another run", source, help="run the command again"
            )
            return
        yield _finished(source, journal, _steps(source, journal, content))
    except Refusal as refusal:
        yield refusal.diagnostic
    except (OSError, RuntimeError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        yield Diagnostic(
            "MDH803", f"an interrupted edit of `{source}` cannot be finished: {reason}", source
        )


def _finished(source: str, journal: Path, steps: list[_Step] | None) -> Diagnostic:
    if steps is None:
        journal.unlink()
        return Diagnostic(
            "MDH825", "an edit was interrupted, and its journal cannot be read", source,
            notes=("the journal was removed; the files are as they were found",),
        )  # fmt: skip
    foreign = [s for s in steps if (now := s.content) != s.new and _hash(now) != s.old]
    if foreign:
        journal.unlink()
        return Diagnostic(
            "MDH825", f"an interrupted edit cannot be finished: `{foreign[0].path.name}` was changed", source,
            notes=("the journal was removed; the files are as they were found",),
            help="`mdh-lift status` tells what is stale",
        )  # fmt: skip
    for step in steps:
        now = step.content
        if now != step.new:
            beside.write(Change(str(step.path), now, step.new), source)
    _end(journal)
    return Diagnostic("MDH826", "an interrupted edit was finished", source)


def _read(journal: Path) -> Any:
    try:
        return json.loads(journal.read_bytes())
    except ValueError:
        return None


def _is_at_work(journal: Path, content: Any) -> bool:
    """Does its writer live?  Of one on another machine, only how long ago it began is known."""
    writer = content.get("writer") if isinstance(content, dict) else None
    if not isinstance(writer, int) or writer <= 0:
        return False
    if content.get("machine") != this_machine():
        return time.time() - journal.stat().st_mtime < _SECONDS
    return writer != os.getpid() and alive(writer)


def _steps(source: str, journal: Path, content: Any) -> list[_Step] | None:
    """The edit as the journal has it; None where it is no journal of ours, or names files elsewhere.

    A journal may come with a tree of somebody else, so it may change nothing but files beside the source.
    """
    try:
        steps = [
            _Step(
                Path(os.path.normpath(journal.parent / entry["path"])),
                entry["old"],
                None if entry["new"] is None else base64.b64decode(entry["new"], validate=True),
            )
            for entry in content["changes"]
        ]
    except (ValueError, KeyError, TypeError):
        return None
    places = {journal.parent, Path(source).parent.resolve()}
    ours = all(step.path.parent in places and not step.path.is_symlink() for step in steps)
    return steps if ours and content.get("schema_version") == 1 else None
