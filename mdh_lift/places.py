"""Names of files as other programs want them: from the root of the repository, and as URIs.

    sub/a b.c  (working directory: repo/sub)   ->   relative  sub/sub/a b.c     uri  sub/sub/a%20b.c

The root is the nearest directory above the working directory that holds ``.git``, else the working directory.
"""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path

_UNRESERVED = re.compile(rb"[^A-Za-z0-9._~/-]")


def root() -> Path:
    """What names of files count from."""
    return _root(Path.cwd())


@cache
def _root(here: Path) -> Path:
    return next((d for d in (here, *here.parents) if (d / ".git").exists()), here)


def relative(path: str) -> str:
    """From the root; absolute for what is outside; what is no file (``<stdin>``) as it is."""
    if path.startswith("<"):
        return path
    whole = os.path.abspath(path)  # noqa: PTH100 - Path.absolute keeps `..`
    base = str(root())
    if whole.startswith(base.rstrip("/") + "/"):
        return whole[len(base.rstrip("/")) + 1 :]
    return whole


def readable(text: str) -> str:
    """Without the surrogates that stand for bytes that are no UTF-8."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def quoted(path: str) -> str:
    """A path as a part of a URI: every byte that has a meaning there as ``%XX``."""
    return _UNRESERVED.sub(lambda m: b"%%%02X" % m[0][0], os.fsencode(path)).decode("ascii")

