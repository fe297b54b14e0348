"""Reading and replacing source files, and finding them below a directory."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from mdh_core.diagnostics import Diagnostic, Refusal
from mdh_core.replacing import replace_file, sweep, synchronise_directory
from mdh_core.source import SourceFile
from mdh_lift.findings import Finding

SUFFIXES = (".c", ".py")
_DECORATED = re.compile(rb"^[ \t]*@[\w.]*\bmdh\b", re.MULTILINE)  # a cheap look at a Python file
_SKIPPED_DIRECTORIES = re.compile(
    r"\..*|build.*|cmake-build.*|dist|node_modules|__pycache__|venv|_deps|CMakeFiles"
)


def read_source(path: str) -> SourceFile:
    """The file's bytes; raises ``Refusal`` MDH001."""
    try:
        return SourceFile(path, Path(path).read_bytes())
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise Refusal(Diagnostic("MDH001", f"`{path}` cannot be read: {reason}", file=path)) from None


def is_python(path: str) -> bool:
    return path.endswith(".py")


def source_files(path: str) -> list[str]:
    """The path itself, or all C files and decorated Python files below a directory, sorted.

    Hidden and build directories are skipped.
    """
    return sorted(_below(path)) if Path(path).is_dir() else [path]


def _below(directory: str) -> Iterator[str]:
    for root, directories, names in os.walk(directory):
        directories[:] = [d for d in directories if not _SKIPPED_DIRECTORIES.fullmatch(d)]
        for name in names:
            if name.endswith(SUFFIXES) and not name.startswith("."):
                file = os.path.normpath(Path(root, name))
                if not is_python(file) or _is_decorated(file):
                    yield file


def _is_decorated(path: str) -> bool:
    try:
        return _DECORATED.search(Path(path).read_bytes()) is not None
    except OSError:
        return False


# --------------------------------------------------------------------------- replacing


@dataclass(frozen=True, slots=True)
class Change:
    """A file's content before and after (None: there is no file); equal where there is nothing to do.

    ``beside``: changes of generated files that must come first; ``removed``: files to remove behind it.
    """

    path: str
    old: bytes | None
    new: bytes | None
    findings: tuple[Finding, ...] = ()
    beside: tuple[Change, ...] = ()
    removed: tuple[Change, ...] = ()

    @property
    def all(self) -> tuple[Change, ...]:
        """Those of them that change something, in the order in which they must be made."""
        return tuple(c for c in (*self.beside, self, *self.removed) if c.old != c.new)


def write_atomic(path: str, data: bytes, expected_old: bytes | None, like: str = "") -> None:
    """Replace the file's content in one step, and only where it still is ``expected_old``.

    None: there is no such file yet; its mode is that of the file ``like``.  Mode and owner are kept, a
    symbolic link stays a link (``mdh_core.replacing``).  Raises ``Refusal`` MDH507 (changed meanwhile) or
    MDH803 (not writable); then the file is as it was and no temporary file is left.
    """
    try:
        target = Path(path).resolve()
        sweep(target.parent)
        status = target.stat() if expected_old is not None else Path(like).stat()
        if not ((expected_old is None or _may_write(target)) and _may_write(target.parent)):
            raise PermissionError(errno.EACCES, "permission denied")
        unchanged = partial(_refuse_if_changed, path, target, expected_old)
        unchanged()
        replace_file(target, data, status, new=expected_old is None, check=unchanged)
    except FileExistsError:
        raise _changed(path) from None
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
        raise _not_written(path, error) from None


def remove(path: str, expected_old: bytes) -> None:
    """Remove a file that still is ``expected_old``.  Raises ``Refusal`` MDH507 or MDH803."""
    target = Path(path)
    try:
        _refuse_if_changed(path, target, expected_old)
        if not _may_write(target.parent):
            raise PermissionError(errno.EACCES, "permission denied")
        target.unlink()
        synchronise_directory(target.parent)
    except OSError as error:
        raise _not_written(path, error, "removed") from None


def write_output(path: str, data: bytes) -> None:
    """What ``-o`` asks for: a file replaced in one step; devices and pipes are written to.

    Raises ``OSError``; then a file is as it was.
    """
    target = Path(path).resolve()
    status = target.stat() if target.exists() else None
    if status is None or stat.S_ISREG(status.st_mode):
        sweep(target.parent)
        replace_file(target, data, status)
        return
    with target.open("wb", buffering=0) as out:
        view = memoryview(data)
        while view:
            view = view[out.write(view) or 0 :]


def _not_written(path: str, error: Exception, what: str = "written") -> Refusal:
    reason = (getattr(error, "strerror", None) or str(error)).lower()
    return Refusal(Diagnostic("MDH803", f"`{path}` cannot be {what}: {reason}", file=path))


def _refuse_if_changed(path: str, target: Path, expected_old: bytes | None) -> None:
    if (target.read_bytes() if expected_old is not None or target.exists() else None) != expected_old:
        raise _changed(path)


def _changed(path: str) -> Refusal:
    return Refusal(
        Diagnostic("MDH507", f"`{path}` changed since it was read", file=path, help="run the command again")
    )


def _may_write(path: Path) -> bool:
    """Asks the mode bits as well: the superuser, too, means a read-only file to stay as it is."""
    return bool(path.stat().st_mode & 0o222) and os.access(path, os.W_OK)
