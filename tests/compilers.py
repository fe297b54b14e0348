"""The compilers of the tests: gcc, without which no test runs, and clang where it is installed."""

from __future__ import annotations

import shutil

NEEDED = "gcc"
COMPILERS = (NEEDED, *(c for c in ("clang",) if shutil.which(c)))
