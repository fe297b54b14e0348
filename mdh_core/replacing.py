"""Replacing a file in one step: at every moment it is either the old one or the new one.

Path and bytes in; the file replaced, or an ``OSError`` and the file as it was.  A temporary file beside it is
written, synchronised and renamed.  What killed processes leave is known by its name and removed later.
Shown right by ``campaigns/kills.py`` (killed at each system call) and ``campaigns/failing.py`` (each fails).
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import platform
import re
import secrets
import stat
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

_OURS = re.compile(r"\..*\.mdh-lift-(?P<pid>\d+)-(?P<machine>[0-9a-f]{8})-[0-9a-f]{8}\.tmp", re.DOTALL)
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EINVAL}
_NO_DIRECTORIES = {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EBADF}
_LONGEST = 180  # bytes of a name that a temporary file repeats
_FOREIGN_SECONDS = 86400.0  # after which temporary files of other machines are left over


def replace_file(
    target: Path,
    data: bytes,
    like: os.stat_result | None = None,
    *,
    new: bool = False,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Give the file this content; mode and owner are those of ``like``, or of any new file.

    ``new``: there must be none yet (``FileExistsError``).  ``check`` is called before the name changes hands
    and may raise.  Raises ``OSError``; then the file is as it was, unless only the last step failed, after
    which the new content may not outlast a loss of power.  No temporary file is left.
    """
    temporary = target.with_name(_temporary_name(target.name))
    try:
        _write(temporary, data, like)
        check()
        if new:
            _put_new(temporary, target)
        else:
            temporary.replace(target)
        synchronise_directory(target.parent)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def _put_new(temporary: Path, target: Path) -> None:
    """Fails where somebody else was quicker; only looks first where the file system has no hard links."""
    try:
        os.link(temporary, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if target.exists() or target.is_symlink():
            raise FileExistsError(errno.EEXIST, "file exists") from None
        temporary.replace(target)


def _write(path: Path, data: bytes, like: os.stat_result | None) -> None:
    mode = 0o666 if like is None else 0o600
    with open(path, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
        file.write(data)
        file.flush()
        if like is not None:
            if (like.st_uid, like.st_gid) != (os.geteuid(), os.getegid()):
                with contextlib.suppress(OSError):
                    os.fchown(file.fileno(), like.st_uid, like.st_gid)
            os.fchmod(file.fileno(), stat.S_IMODE(like.st_mode))
        os.fsync(file.fileno())


def synchronise_directory(directory: Path) -> None:
    """Make names outlast a loss of power, where the file system can."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_DIRECTORIES:
            raise
    finally:
        os.close(descriptor)


# --------------------------------------------------------------------------- what is left over


def _temporary_name(name: str) -> str:
    raw = os.fsencode(name)
    short = name if len(raw) <= _LONGEST else hashlib.sha256(raw).hexdigest()
    return f".{short}.mdh-lift-{os.getpid()}-{this_machine()}-{secrets.token_hex(4)}.tmp"


@cache
def this_machine() -> str:
    """This machine since it was started: process numbers mean something here only."""
    boot = b""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    return hashlib.sha256(platform.node().encode("utf-8", "replace") + boot).hexdigest()[:8]


def sweep(directory: Path) -> int:
    """Remove temporary files of dead processes from a directory; how many there were.

    Those of other machines, or of this one before it was started anew, are removed when they are a day old.
    """
    removed = 0
    try:
        names = [entry.name for entry in directory.iterdir()]
    except OSError:
        return 0
    for name in names:
        m = _OURS.fullmatch(name)
        if m is None:
            continue
        with contextlib.suppress(OSError):
            path = directory / name
            age = time.time() - path.lstat().st_mtime
            if age > _FOREIGN_SECONDS if m["machine"] != this_machine() else not alive(int(m["pid"])):
                path.unlink()
                removed += 1
    return removed


def alive(pid: int) -> bool:
    """Does a process of this number exist on this machine?"""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OverflowError:
        return False
    except OSError:
        return True
    return True
