"""OpenBLAS as it comes with NumPy's wheel.  ``OPENBLAS_CORETYPE`` of the process chooses its kernels."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.peers.cblas import Blas
from benchmarks.peers.cblas import prepare as prepare_calls
from benchmarks.peers.serve import Problem, Run


def library() -> Blas:
    """The one that NumPy has loaded.  Raises ImportError where that is another library."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.split()[-1]
        if "openblas" in path.rpartition("/")[2]:
            loaded = ctypes.CDLL(path)
            for prefix, suffix, integer in (
                ("scipy_", "64_", ctypes.c_int64),
                ("scipy_", "", ctypes.c_int32),
                ("", "64_", ctypes.c_int64),
                ("", "", ctypes.c_int32),
            ):
                if hasattr(loaded, f"{prefix}cblas_sgemm{suffix}"):
                    return Blas(loaded, integer, prefix, suffix)
    raise ImportError("this NumPy has no OpenBLAS")


def prepare(p: Problem) -> Run | None:
    np.dot(np.ones(2), np.ones(2))  # loads the library
    blas = library()
    contraction = _contraction(p)
    return contraction or prepare_calls(blas, p)


def _contraction(p: Problem) -> Run | None:
    """A product of matrices between transpositions, as NumPy's ``tensordot`` has it."""
    if "->" not in p.operation:
        return None
    inputs, out = p.operation.split("->")
    left, right = inputs.split(",")
    extent = dict(zip("abcdefg", p.extents, strict=True))

    def array(k: int, letters: str) -> np.ndarray:
        return p.role(k, *(extent[x] for x in letters))  # type: ignore[no-any-return]

    c, a, b = array(0, out), array(1, left), array(2, right)
    summed = [x for x in left if x in right]
    order = [x for x in left + right if x not in summed]
    axes = ([left.index(x) for x in summed], [right.index(x) for x in summed])
    back = [order.index(x) for x in out]
    add: Callable[..., object] = np.add

    def run() -> None:
        add(c, np.tensordot(a, b, axes).transpose(back), out=c)

    return run
