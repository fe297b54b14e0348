"""Are the results of a peer those of the original?

Integers must be equal.  A floating-point value may differ by a small share of the largest value that the
original wrote into the same array; cells that the original did not write must be as they were.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.compiled import Argument

TOLERANCE = {"f4": 2e-4, "f8": 1e-9}


def difference(
    arguments: Sequence[Argument], inputs: Path, original: Path, other: Path, loose: float = 0.0
) -> str:
    """Where the results differ first; empty where they do not.  ``loose``: the share that may differ."""
    for a in (a for a in arguments if a.compared):
        before, want, have = (_values(directory / a.name, a) for directory in (inputs, original, other))
        if want is None or have is None or before is None:
            return f"{a.name} is missing"
        wrong = _wrong(a, before, want, have)
        if wrong.sum() > loose * len(want):
            at = int(np.argmax(wrong))
            return f"{a.name}[{at}] is {have[at]}, not {want[at]}; {int(wrong.sum())} of {len(want)}"
    return ""


def _values(path: Path, a: Argument) -> np.ndarray | None:
    return np.fromfile(path, _dtype(a), a.count) if path.exists() else None


def _dtype(a: Argument) -> np.dtype:
    """Records by their fields: what is between these has no value."""
    if not a.fields:
        return np.dtype(a.dtype)
    return np.dtype(
        {
            "names": [f"f{k}" for k in range(len(a.fields))],
            "formats": [kind for kind, _ in a.fields],
            "offsets": [at for _, at in a.fields],
            "itemsize": int(a.dtype[1:]),
        }
    )


def _wrong(a: Argument, before: np.ndarray, want: np.ndarray, have: np.ndarray) -> np.ndarray:
    if a.dtype not in TOLERANCE:
        return np.asarray(want != have)
    written = want.view(f"u{want.itemsize}") != before.view(f"u{want.itemsize}")
    known = written & np.isfinite(want)
    scale = float(np.abs(want[known]).max()) if known.any() else 0.0
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.abs(have.astype("f8") - want.astype("f8"))
    same = (have == want) | (np.isnan(have) & np.isnan(want))
    return np.asarray(~same & ~(apart <= TOLERANCE[a.dtype] * scale))
