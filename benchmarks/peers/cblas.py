"""Cases as calls of a library with the CBLAS interface; ``openblas.py`` and ``mkl.py`` name the library."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.peers.serve import Problem, Run

ROW, COLUMN = 101, 102
NO, YES = 111, 112  # transposed?
UPPER, LOWER, NON_UNIT, LEFT = 121, 122, 131, 141


@dataclass
class Blas:
    """``integer``: the library's type of sizes; names are ``prefix + cblas_sgemm + suffix``."""

    library: Any
    integer: Any
    prefix: str = ""
    suffix: str = ""

    def function(self, name: str, dtype: Any, result: bool = False) -> Callable[..., Any] | None:
        """For float32 or float64; numbers of Python become sizes or scalars, arrays their addresses."""
        letter, real = ("s", ctypes.c_float) if dtype == np.float32 else ("d", ctypes.c_double)
        found = getattr(self.library, f"{self.prefix}cblas_{letter}{name}{self.suffix}", None)
        if found is None:
            return None
        found.restype = real if result else None

        def converted(value: Any) -> Any:
            if isinstance(value, Option):
                return ctypes.c_int(value.value)
            if isinstance(value, float):
                return real(value)
            if isinstance(value, int):
                return self.integer(value)
            return ctypes.c_void_p(value.ctypes.data)

        def bound(*arguments: Any) -> Callable[[], Any]:
            made = tuple(converted(a) for a in arguments)
            return lambda: found(*made)

        return bound

    def gemm(self, c: Any, a: Any, b: Any, alpha: float, beta: float) -> Any:
        """A call of C = alpha A B + beta C, matrices by rows."""
        (m, n), k = c.shape, a.shape[1]
        call = self.function("gemm", c.dtype)
        assert call is not None
        return call(Option(ROW), Option(NO), Option(NO), m, n, k,
                    float(alpha), a, k, b, n, float(beta), c, n)  # fmt: skip

    def gemv(self, y: Any, a: Any, x: Any, alpha: float, beta: float, transposed: bool = False) -> Any:
        call = self.function("gemv", y.dtype)
        assert call is not None
        m, n = a.shape
        return call(Option(ROW), Option(YES if transposed else NO), m, n, float(alpha), a, n, x, 1,
                    float(beta), y, 1)  # fmt: skip


@dataclass(frozen=True)
class Option:
    """A value of one of the interface's enumerations."""

    value: int


def prepare(blas: Blas, p: Problem) -> Run | None:
    made = _OPERATIONS.get(p.operation)
    return None if made is None else made(blas, p)


def _all(*calls: Callable[[], Any]) -> Run:
    def run() -> None:
        for call in calls:
            call()

    return run


def _gemm(blas: Blas, p: Problem) -> Run:
    m, n, k = p.extents
    alpha, beta = p.value("alpha", 1.0), p.value("beta", float(p.adds))
    return _all(blas.gemm(p.role(0, m, n), p.role(1, m, k), p.role(2, k, n), alpha, beta))


def _bmm(blas: Blas, p: Problem) -> Run:
    b, m, n, k = p.extents
    c, left, right = p.role(0, b, m, n), p.role(1, b, m, k), p.role(2, b, k, n)
    batched = blas.function("gemm_batch_strided", c.dtype)
    if batched is None:
        return _all(*(blas.gemm(c[x], left[x], right[x], 1.0, 0.0) for x in range(b)))
    return _all(batched(Option(ROW), Option(NO), Option(NO), m, n, k, 1.0, left, k, m * k, right, n, k * n,
                        0.0, c, n, m * n, b))  # fmt: skip


def _dot(blas: Blas, p: Problem) -> Run:
    total, x, y = p.role(0), p.role(1), p.role(2)
    call = blas.function("dot", x.dtype, result=True)
    assert call is not None
    dot = call(p.extents[0], x, 1, y, 1)

    def run() -> None:
        total[0] += dot()

    return run


def _gemv(blas: Blas, p: Problem) -> Run:
    m, n = p.extents
    return _all(blas.gemv(p.role(0, m), p.role(1, m, n), p.role(2, n), 1.0, float(p.adds)))


def _gemv_t(blas: Blas, p: Problem) -> Run:
    m, n = p.extents
    return _all(blas.gemv(p.role(0, n), p.role(1, m, n), p.role(2, m), 1.0, 0.0, transposed=True))


# --------------------------------------------------------------------------- polyhedral


def _mm2(blas: Blas, p: Problem) -> Run:
    m, n, q_in, q = p.extents
    d, a, b = p.role(0, m, q), p.role(1, m, q_in), p.role(2, q_in, n)
    c, t = p.role(3, n, q), p.role(4, m, n)
    return _all(
        blas.gemm(t, a, b, p.value("alpha", 1), 0.0),
        blas.gemm(d, t, c, 1.0, p.value("beta", 1)),
    )


def _mm3(blas: Blas, p: Problem) -> Run:
    m, n, q_in, q, r = p.extents
    g, a, b, c, d = p.role(0, m, q), p.role(1, m, q_in), p.role(2, q_in, n), p.role(3, n, r), p.role(4, r, q)
    e, f = p.role(5, m, n), p.role(6, n, q)
    return _all(blas.gemm(e, a, b, 1.0, 0.0), blas.gemm(f, c, d, 1.0, 0.0), blas.gemm(g, e, f, 1.0, 0.0))


def _atax(blas: Blas, p: Problem) -> Run:
    m, n = p.extents
    y, a, x = p.role(0, n), p.role(1, m, n), p.role(2, n)
    t = np.empty(m, y.dtype)
    return _all(blas.gemv(t, a, x, 1.0, 0.0), blas.gemv(y, a, t, 1.0, 0.0, transposed=True))


def _bicg(blas: Blas, p: Problem) -> Run:
    n, m = p.extents
    s, q, a, right, left = p.role(0, m), p.role(1, n), p.role(2, n, m), p.role(3, m), p.role(4, n)
    return _all(blas.gemv(s, a, left, 1.0, 0.0, transposed=True), blas.gemv(q, a, right, 1.0, 0.0))


def _gesummv(blas: Blas, p: Problem) -> Run:
    (n,) = p.extents
    y, a, b, x = p.role(0, n), p.role(1, n, n), p.role(2, n, n), p.role(3, n)
    return _all(
        blas.gemv(y, a, x, p.value("alpha", 1), 0.0),
        blas.gemv(y, b, x, p.value("beta", 1), 1.0),
    )


def _mvt(blas: Blas, p: Problem) -> Run:
    (n,) = p.extents
    x1, x2, a, y1, y2 = p.role(0, n), p.role(1, n), p.role(2, n, n), p.role(3, n), p.role(4, n)
    return _all(blas.gemv(x1, a, y1, 1.0, 1.0), blas.gemv(x2, a, y2, 1.0, 1.0, transposed=True))


def _symm(blas: Blas, p: Problem) -> Run:
    m, n = p.extents
    c, a, b = p.role(0), p.role(1), p.role(2)
    call = blas.function("symm", c.dtype)
    assert call is not None
    return _all(call(Option(COLUMN), Option(LEFT), Option(LOWER), m, n, p.value("alpha", 1), a, m, b, m,
                     p.value("beta", 1), c, m))  # fmt: skip


def _syrk(blas: Blas, p: Problem) -> Run:
    n, k = p.extents
    call = blas.function("syrk", p.role(0).dtype)
    assert call is not None
    return _all(call(Option(ROW), Option(LOWER), Option(NO), n, k, p.value("alpha", 1), p.role(1), k,
                     p.value("beta", 1), p.role(0), n))  # fmt: skip


def _syr2k(blas: Blas, p: Problem) -> Run:
    n, k = p.extents
    call = blas.function("syr2k", p.role(0).dtype)
    assert call is not None
    return _all(call(Option(ROW), Option(LOWER), Option(NO), n, k, p.value("alpha", 1), p.role(1), k,
                     p.role(2), k, p.value("beta", 1), p.role(0), n))  # fmt: skip


def _trmm(blas: Blas, p: Problem) -> Run:
    m, n = p.extents
    call = blas.function("trmm", p.role(0).dtype)
    assert call is not None
    return _all(call(Option(ROW), Option(LEFT), Option(LOWER), Option(NO), Option(NON_UNIT), m, n,
                     p.value("alpha", 1), p.role(1), m, p.role(0), n))  # fmt: skip


def _trisolv(blas: Blas, p: Problem) -> Run:
    (n,) = p.extents
    x, matrix, b = p.role(0, n), p.role(1), p.role(2, n)
    call = blas.function("trsv", x.dtype)
    assert call is not None
    solve = call(Option(ROW), Option(LOWER), Option(NO), Option(NON_UNIT), n, matrix, n, x, 1)

    def run() -> None:
        x[:] = b
        solve()

    return run


_OPERATIONS: dict[str, Callable[[Blas, Problem], Run]] = {
    "gemm": _gemm, "bmm": _bmm, "dot": _dot, "gemv": _gemv, "gemv_t": _gemv_t,
    "mm2": _mm2, "mm3": _mm3, "atax": _atax, "bicg": _bicg, "gesummv": _gesummv, "mvt": _mvt,
    "symm": _symm, "syrk": _syrk, "syr2k": _syr2k, "trmm": _trmm, "trisolv": _trisolv,
}  # fmt: skip
