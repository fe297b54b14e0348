"""Numba: the loops as one writes them, ``@njit(parallel=True, fastmath=True)``."""

# ruff: noqa: N803 - matrices have capital letters
# mypy: disable-error-code="no-untyped-def,untyped-decorator"
from __future__ import annotations

import numba  # type: ignore[import-not-found,unused-ignore]
import numpy as np
from numba import prange  # type: ignore[import-not-found,unused-ignore]

from benchmarks.peers.serve import Problem, Run

loops = numba.njit(parallel=True, fastmath=True)


@loops
def _gemm(C, A, B, alpha, beta):
    for i in prange(C.shape[0]):
        for j in range(C.shape[1]):
            C[i, j] *= beta
        for k in range(A.shape[1]):
            for j in range(C.shape[1]):
                C[i, j] += alpha * A[i, k] * B[k, j]


@loops
def _bmm(C, A, B):
    for b in prange(C.shape[0]):
        for i in range(C.shape[1]):
            for j in range(C.shape[2]):
                C[b, i, j] = 0
            for k in range(A.shape[2]):
                for j in range(C.shape[2]):
                    C[b, i, j] += A[b, i, k] * B[b, k, j]


@loops
def _dot(x, y):
    s = x.dtype.type(0)
    for i in prange(len(x)):
        s += x[i] * y[i]
    return s


@loops
def _gemv(w, M, v):
    for i in prange(len(w)):
        s = w[i]
        for k in range(len(v)):
            s += M[i, k] * v[k]
        w[i] = s


@loops
def _jacobi3d(out, x, c):
    for i in prange(out.shape[0]):
        for j in range(out.shape[1]):
            for k in range(out.shape[2]):
                near = x[i, j + 1, k + 1] + x[i + 2, j + 1, k + 1] + x[i + 1, j, k + 1]
                near += x[i + 1, j + 2, k + 1] + x[i + 1, j + 1, k] + x[i + 1, j + 1, k + 2]
                out[i, j, k] = c * (x[i + 1, j + 1, k + 1] + near)


@loops
def _conv2d(out, img, flt):
    for p in prange(out.shape[0]):
        for q in range(out.shape[1]):
            s = np.float32(0)
            for r in range(flt.shape[0]):
                for t in range(flt.shape[1]):
                    s += img[p + r, q + t] * flt[r, t]
            out[p, q] = s


@numba.njit(fastmath=True)
def _scan(out, a, s):
    for i in range(len(a)):
        s += a[i]
        out[i] = s
    return s


@loops
def _histogram(out, elems, first, parts):
    own = np.zeros((parts, len(out)), np.int64)
    for p in prange(parts):
        for i in range(len(elems) * p // parts, len(elems) * (p + 1) // parts):
            b = elems[i] - first
            if 0 <= b < len(out):
                own[p, b] += 1
    for p in range(parts):
        for b in range(len(out)):
            out[b] += own[p, b]


@loops
def _mandelbrot(count, limit):
    height, width = count.shape
    for y in prange(height):
        for x in range(width):
            cr = -2.0 + 3.0 * x / width
            ci = -1.25 + 2.5 * y / height
            zr = 0.0
            zi = 0.0
            n = 0
            while n < limit and zr * zr + zi * zi <= 4.0:
                zr, zi = zr * zr - zi * zi + cr, 2.0 * zr * zi + ci
                n += 1
            count[y, x] = n


@loops
def _softmax(y, x):
    for i in prange(x.shape[0]):
        top = x[i, 0]
        for j in range(x.shape[1]):
            top = max(top, x[i, j])
        s = np.float32(0)
        for j in range(x.shape[1]):
            y[i, j] = np.exp(x[i, j] - top)
            s += y[i, j]
        for j in range(x.shape[1]):
            y[i, j] /= s


@loops
def _transpose(b, a):
    for j in prange(b.shape[0]):
        for i in range(b.shape[1]):
            b[j, i] = a[i, j]


@loops
def _halve(out, img):
    for y in prange(out.shape[0]):
        for x in range(out.shape[1]):
            s = np.int32(img[2 * y, 2 * x]) + img[2 * y, 2 * x + 1]
            s += np.int32(img[2 * y + 1, 2 * x]) + img[2 * y + 1, 2 * x + 1]
            out[y, x] = (s + 2) >> 2


@loops
def _mbbs(out, a, s):
    for i in prange(a.shape[0]):
        row = np.float32(0)
        for j in range(a.shape[1]):
            row += a[i, j]
        out[i] = row
    for i in range(a.shape[0]):
        s += out[i]
        out[i] = s


def prepare(p: Problem) -> Run | None:
    e = p.extents
    if p.operation == "gemm":
        c, a, b = p.role(0, e[0], e[1]), p.role(1, e[0], e[2]), p.role(2, e[2], e[1])
        alpha, beta = c.dtype.type(p.value("alpha", 1)), c.dtype.type(p.value("beta", float(p.adds)))
        return lambda: _gemm(c, a, b, alpha, beta)
    if p.operation == "bmm":
        c, a, b = p.role(0, e[0], e[1], e[2]), p.role(1, e[0], e[1], e[3]), p.role(2, e[0], e[3], e[2])
        return lambda: _bmm(c, a, b)
    if p.operation == "dot":
        total, x, y = p.role(0), p.role(1), p.role(2)
        return lambda: {p.roles[0]: total + _dot(x, y)}
    if p.operation == "gemv":
        w, m, v = p.role(0, e[0]), p.role(1, *e), p.role(2, e[1])
        return lambda: _gemv(w, m, v)
    if p.operation == "jacobi3d":
        out, x = p.role(0, *e), p.role(1, *(n + 2 for n in e))
        c = out.dtype.type(p.value("c", 0))
        return lambda: _jacobi3d(out, x, c)
    if p.operation == "conv2d":
        rows, cols, r, s = e
        out, flt = p.role(0, rows, cols), p.role(2, r, s)
        img = p.role(1, rows + r - 1, cols + s - 1)
        return lambda: _conv2d(out, img, flt)
    if p.operation == "scan":
        out, a, s0 = p.role(0, *e), p.role(1, *e), p.role(2)
        return lambda: {p.roles[2]: _scan(out, a, s0[0])}
    if p.operation == "histogram":
        return _prepare_histogram(p)
    if p.operation == "mandelbrot":
        count = p.role(0, e[0], e[1])
        return lambda: _mandelbrot(count, e[2])
    if p.operation == "softmax":
        y, x = p.role(0, *e), p.role(1, *e)
        return lambda: _softmax(y, x)
    if p.operation == "transpose":
        b, a = p.role(0, e[1], e[0]), p.role(1, *e)
        return lambda: _transpose(b, a)
    if p.operation == "halve":
        out, img = p.role(0, *e), p.role(1, 2 * e[0], 2 * e[1])
        return lambda: _halve(out, img)
    if p.operation == "mbbs":
        out, a, s0 = p.role(0, e[0]), p.role(1, *e), p.role(2)
        return lambda: _mbbs(out, a, s0[0])
    return None


def _prepare_histogram(p: Problem) -> Run:
    """Bins are any values, and may repeat: their elements are counted by value, and looked up."""
    out, elems, bins = p.role(0), p.role(1), p.role(2)
    first, last = int(bins.min()), int(bins.max())

    def run() -> None:
        counted = np.zeros(last - first + 1, np.int64)
        _histogram(counted, elems, first, p.threads)
        np.add(out, counted[bins - first], out=out, casting="unsafe")

    return run
