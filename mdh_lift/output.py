"""Results into a file: all of it in one step, or what stood there before."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path


def write_output(path: str, data: bytes) -> None:
    """Replace or make a file; pipes and devices are written as they are.  Raises ``OSError``.

    A temporary file beside it is written, synchronised and renamed; the mode of a file that is there is
    kept, and a symbolic link stays one.
    """
    target = Path(path)
    mode = None
    with contextlib.suppress(FileNotFoundError):
        status = target.stat()
        if not stat.S_ISREG(status.st_mode):
            target.write_bytes(data)
            return
        mode = stat.S_IMODE(status.st_mode)
        if not mode & 0o222:  # the superuser, too, means a read-only file to stay as it is
            raise PermissionError(13, "permission denied")
    target = target.resolve()
    temporary = target.with_name(f".{target.name[:80]}.{os.getpid()}-{os.urandom(4).hex()}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
