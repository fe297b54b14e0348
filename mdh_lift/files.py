"""Reading and replacing source files, and finding them below a directory."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mdh_core.diagnostics import Diagnostic, Refusal
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

    None: there is no such file yet; its mode is that of the file ``like``.  A temporary file beside it is
    written, synchronised and renamed; mode and owner are kept, a symbolic link stays a link.  Raises
    ``Refusal`` MDH507 (changed meanwhile) or MDH803 (not writable); then the file is as it was and no
    temporary file is left.
    """
    target = Path(path).resolve()
    temporary = target.with_name(f".{target.name}.mdh-lift-{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        _sweep(target)
        status = target.stat() if expected_old is not None else Path(like).stat()
        if not ((expected_old is None or _may_write(target)) and _may_write(target.parent)):
            raise PermissionError(errno.EACCES, "permission denied")
        _refuse_if_changed(path, target, expected_old)
        _write_synchronised(temporary, data, status)
        _refuse_if_changed(path, target, expected_old)
        if expected_old is None:
            os.link(temporary, target)  # fails where somebody else was quicker
        else:
            temporary.replace(target)
        _synchronise_directory(target.parent)
    except FileExistsError:
        raise _changed(path) from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise Refusal(Diagnostic("MDH803", f"`{path}` cannot be written: {reason}", file=path)) from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def remove(path: str, expected_old: bytes) -> None:
    """Remove a file that still is ``expected_old``.  Raises ``Refusal`` MDH507 or MDH803."""
    target = Path(path)
    try:
        _refuse_if_changed(path, target, expected_old)
        if not _may_write(target.parent):
            raise PermissionError(errno.EACCES, "permission denied")
        target.unlink()
        _synchronise_directory(target.parent)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise Refusal(Diagnostic("MDH803", f"`{path}` cannot be removed: {reason}", file=path)) from None


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


def _write_synchronised(path: Path, data: bytes, like: os.stat_result) -> None:
    with open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(data)
        file.flush()
        if (like.st_uid, like.st_gid) != (os.geteuid(), os.getegid()):
            with contextlib.suppress(PermissionError):
                os.fchown(file.fileno(), like.st_uid, like.st_gid)
        os.fchmod(file.fileno(), stat.S_IMODE(like.st_mode))
        os.fsync(file.fileno())


def _synchronise_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sweep(target: Path) -> None:
    """Remove temporary files of this target that dead processes left."""
    pattern = re.compile(rf"\.{re.escape(target.name)}\.mdh-lift-(\d+)-[0-9a-f]+\.tmp")
    for entry in target.parent.iterdir():
        if (m := pattern.fullmatch(entry.name)) and not _alive(int(m[1])):
            with contextlib.suppress(OSError):
                entry.unlink()


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
