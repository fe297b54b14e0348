"""The cases as Triton kernels written by hand, single precision without TF32.

The usual schemes: reductions in two kernels, tiles of products with a few configurations to choose from, the
convolution as a product over windows, a scan in three kernels, histograms of blocks that are added up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import triton
import triton.language as tl

Runs = list[Callable[[], Any]]
Arrays = dict[str, Any]
MANY = 1056  # programs that fill a large device


def prepare(operation: str, extents: Sequence[int], x: Arrays) -> Runs:
    """As in ``torch_calls``; several are configurations of one kernel."""
    if operation == "gdab,efgc->abcdef":
        return _contraction(extents, x)
    known: dict[str, Callable[[Sequence[int], Arrays], Runs]] = {
        "dot": _dot, "gemv": _gemv, "gemm": _gemm, "bmm": _bmm, "conv2d": _conv2d, "jacobi3d": _jacobi3d,
        "mcc": _mcc, "scan": _scan, "bincount": _bincount,
    }  # fmt: skip
    return known[operation](extents, x) if operation in known else []


def _up(n: int) -> int:
    return triton.next_power_of_2(n)


# --------------------------------------------------------------------------- reductions


@triton.jit
def _dot_parts(x, y, parts, n, per, block: tl.constexpr):
    first = tl.program_id(0) * per
    total = tl.zeros([block], tl.float32)
    for k in range(0, per, block):
        at = first + k + tl.arange(0, block)
        inside = at < n
        total += tl.load(x + at, mask=inside, other=0.0) * tl.load(y + at, mask=inside, other=0.0)
    tl.store(parts + tl.program_id(0), tl.sum(total, axis=0))


@triton.jit
def _sum_of_parts(parts, out, count, block: tl.constexpr):
    at = tl.arange(0, block)
    tl.store(out, tl.sum(tl.load(parts + at, mask=at < count, other=0.0), axis=0))


def _dot(e: Sequence[int], x: Arrays) -> Runs:
    n, device = e[0], x["x"].device
    parts, out = torch.empty(MANY, device=device), torch.empty((), device=device)

    def with_block(block: int) -> Callable[[], Any]:
        per = triton.cdiv(triton.cdiv(n, MANY), block) * block

        def run() -> Any:
            _dot_parts[(MANY,)](x["x"], x["y"], parts, n, per, block=block)
            _sum_of_parts[(1,)](parts, out, MANY, block=_up(MANY))
            return out

        return run

    return [with_block(2048), with_block(4096)]


@triton.jit
def _gemv_rows(w, a, v, n, depth, rows: tl.constexpr, block: tl.constexpr):
    row = tl.program_id(0) * rows + tl.arange(0, rows)
    total = tl.zeros([rows, block], tl.float32)
    for k in range(0, depth, block):
        at = k + tl.arange(0, block)
        values = tl.load(v + at, mask=at < depth, other=0.0)
        inside = (row[:, None] < n) & (at[None, :] < depth)
        total += tl.load(a + row[:, None] * depth + at[None, :], mask=inside, other=0.0) * values[None, :]
    before = tl.load(w + row, mask=row < n, other=0.0)
    tl.store(w + row, before + tl.sum(total, axis=1), mask=row < n)


def _gemv(e: Sequence[int], x: Arrays) -> Runs:
    def shaped(rows: int, block: int) -> Callable[[], Any]:
        def run() -> Any:
            _gemv_rows[(triton.cdiv(e[0], rows),)](x["w"], x["a"], x["v"], e[0], e[1], rows=rows, block=block)
            return x["w"]

        return run

    return [shaped(1, 2048), shaped(4, 1024)]


# --------------------------------------------------------------------------- products


@triton.jit
def _product(
    c, a, b, m, n, depth, adds: tl.constexpr, rows: tl.constexpr, cols: tl.constexpr, block: tl.constexpr
):
    batch = tl.program_id(1)
    a += batch * m * depth
    b += batch * depth * n
    c += batch * m * n
    # programs that run together share rows and columns of both operands
    across, down = tl.cdiv(n, cols), tl.cdiv(m, rows)
    group = tl.program_id(0) // (8 * across)
    height = min(down - group * 8, 8)
    inner = tl.program_id(0) % (8 * across)
    i = (group * 8 + inner % height) * rows + tl.arange(0, rows)
    j = inner // height * cols + tl.arange(0, cols)
    total = tl.zeros([rows, cols], tl.float32)
    for k in range(0, depth, block):
        p = k + tl.arange(0, block)
        left = tl.load(
            a + i[:, None] * depth + p[None, :], mask=(i[:, None] < m) & (p[None, :] < depth), other=0.0
        )
        right = tl.load(
            b + p[:, None] * n + j[None, :], mask=(p[:, None] < depth) & (j[None, :] < n), other=0.0
        )
        total = tl.dot(left, right, total, input_precision="ieee")
    at, inside = c + i[:, None] * n + j[None, :], (i[:, None] < m) & (j[None, :] < n)
    if adds:
        total += tl.load(at, mask=inside, other=0.0)
    tl.store(at, total, mask=inside)


def _products(batches: int, m: int, n: int, depth: int, x: Arrays, adds: bool) -> Runs:
    def shaped(rows: int, cols: int, block: int, warps: int, stages: int) -> Callable[[], Any]:
        grid = (triton.cdiv(m, rows) * triton.cdiv(n, cols), batches)

        def run() -> Any:
            _product[grid](x["c"], x["a"], x["b"], m, n, depth, adds=adds, rows=rows, cols=cols, block=block,
                           num_warps=warps, num_stages=stages)  # fmt: skip
            return x["c"]

        return run

    if m <= 16:
        return [shaped(16, 32, 64, 2, 4), shaped(16, 64, 32, 4, 4)]
    return [shaped(128, 128, 16, 8, 3), shaped(64, 128, 16, 4, 4), shaped(64, 64, 32, 4, 3)]


def _gemm(e: Sequence[int], x: Arrays) -> Runs:
    return _products(1, e[0], e[1], e[2], x, True)


def _bmm(e: Sequence[int], x: Arrays) -> Runs:
    return _products(e[0], e[1], e[2], e[3], x, False)


@triton.jit
def _contract(
    out, a, b, na, nb, nc, nd, ne, nf, ng, rows: tl.constexpr, cols: tl.constexpr, block: tl.constexpr
):
    m, n = nd * na * nb, nc * ne * nf
    i = tl.program_id(1) * rows + tl.arange(0, rows)  # d, a, b
    j = tl.program_id(0) * cols + tl.arange(0, cols)  # c, e, f
    row = (j % (ne * nf)) * ng * nc + j // (ne * nf)  # of the right operand, where g is 0
    total = tl.zeros([rows, cols], tl.float32)
    for k in range(0, ng, block):
        g = k + tl.arange(0, block)
        left = tl.load(a + g[None, :] * m + i[:, None], mask=(i[:, None] < m) & (g[None, :] < ng), other=0.0)
        right = tl.load(
            b + row[None, :] + g[:, None] * nc, mask=(g[:, None] < ng) & (j[None, :] < n), other=0.0
        )
        total = tl.dot(left, right, total, input_precision="ieee")
    d, ab = i // (na * nb), i % (na * nb)
    c, ef = j // (ne * nf), j % (ne * nf)
    at = out + (ab * nc * nd + d)[:, None] * (ne * nf) + (c * nd * ne * nf + ef)[None, :]
    inside = (i[:, None] < m) & (j[None, :] < n)
    tl.store(at, total + tl.load(at, mask=inside, other=0.0), mask=inside)


def _contraction(e: Sequence[int], x: Arrays) -> Runs:
    na, nb, nc, nd, ne, nf, ng = e

    def shaped(rows: int, cols: int, block: int, warps: int) -> Callable[[], Any]:
        grid = (triton.cdiv(nc * ne * nf, cols), triton.cdiv(nd * na * nb, rows))

        def run() -> Any:
            _contract[grid](x["c"], x["a"], x["b"], *e, rows=rows, cols=cols, block=block, num_warps=warps)
            return x["c"]

        return run

    depth = min(32, max(16, _up(ng)))
    return [shaped(64, 128, depth, 4), shaped(64, 64, depth, 4)]


# --------------------------------------------------------------------------- stencils and convolutions


@triton.jit
def _conv2d_tile(
    out, img, flt, height, width, r: tl.constexpr, s: tl.constexpr, rows: tl.constexpr, cols: tl.constexpr
):
    p = tl.program_id(1) * rows + tl.arange(0, rows)
    q = tl.program_id(0) * cols + tl.arange(0, cols)
    inside = (p[:, None] < height) & (q[None, :] < width)
    total = tl.zeros([rows, cols], tl.float32)
    for u in tl.static_range(r):
        for v in tl.static_range(s):
            at = img + (p + u)[:, None] * (width + s - 1) + (q + v)[None, :]
            total += tl.load(at, mask=inside, other=0.0) * tl.load(flt + u * s + v)
    tl.store(out + p[:, None] * width + q[None, :], total, mask=inside)


def _conv2d(e: Sequence[int], x: Arrays) -> Runs:
    height, width, r, s = e
    out = torch.empty((height, width), device=x["img"].device)

    def shaped(rows: int, cols: int) -> Callable[[], Any]:
        grid = (triton.cdiv(width, cols), triton.cdiv(height, rows))

        def run() -> Any:
            _conv2d_tile[grid](out, x["img"], x["flt"], height, width, r=r, s=s, rows=rows, cols=cols)
            return out

        return run

    return [shaped(8, 128), shaped(16, 64)]


@triton.jit
def _jacobi3d_tile(out, box, n1, n2, n3, rows: tl.constexpr, cols: tl.constexpr):
    i = tl.program_id(2).to(tl.int64)
    j = tl.program_id(1) * rows + tl.arange(0, rows)
    k = tl.program_id(0) * cols + tl.arange(0, cols)
    inside = (j[:, None] < n2) & (k[None, :] < n3)
    line, plane = n3 + 2, (n2 + 2) * (n3 + 2)
    at = box + (i + 1) * plane + (j + 1)[:, None] * line + (k + 1)[None, :]
    total = tl.load(at, mask=inside, other=0.0)
    total += tl.load(at - plane, mask=inside, other=0.0) + tl.load(at + plane, mask=inside, other=0.0)
    total += tl.load(at - line, mask=inside, other=0.0) + tl.load(at + line, mask=inside, other=0.0)
    total += tl.load(at - 1, mask=inside, other=0.0) + tl.load(at + 1, mask=inside, other=0.0)
    tl.store(out + i * n2 * n3 + j[:, None] * n3 + k[None, :], 0.125 * total, mask=inside)


def _jacobi3d(e: Sequence[int], x: Arrays) -> Runs:
    n1, n2, n3 = e
    out = torch.empty((n1, n2, n3), device=x["box"].device)

    def shaped(rows: int, cols: int) -> Callable[[], Any]:
        grid = (triton.cdiv(n3, cols), triton.cdiv(n2, rows), n1)

        def run() -> Any:
            _jacobi3d_tile[grid](out, x["box"], n1, n2, n3, rows=rows, cols=cols)
            return out

        return run

    return [shaped(8, 128), shaped(4, 256)]


@triton.jit
def _mcc_tile(
    out, img, flt, n, p, q, k, height, width, r: tl.constexpr, s: tl.constexpr, c: tl.constexpr,
    down: tl.constexpr, across: tl.constexpr, rows: tl.constexpr, cols: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0) * rows + tl.arange(0, rows)  # image, row, column of the result
    j = tl.program_id(1) * cols + tl.arange(0, cols)  # channel of the result
    window = (i // (p * q) * height + i // q % p * down) * width + i % q * across
    total = tl.zeros([rows, cols], tl.float32)
    for first in range(0, r * s * c, block):
        d = first + tl.arange(0, block)  # row, column, channel of the window
        inside = (i[:, None] < n * p * q) & (d[None, :] < r * s * c)
        at = (window[:, None] + (d // (s * c) * width + d // c % s)[None, :]) * c + (d % c)[None, :]
        left = tl.load(img + at, mask=inside, other=0.0)
        known = (d[:, None] < r * s * c) & (j[None, :] < k)
        right = tl.load(flt + j[None, :] * (r * s * c) + d[:, None], mask=known, other=0.0)
        total = tl.dot(left, right, total, input_precision="ieee")
    tl.store(out + i[:, None] * k + j[None, :], total, mask=(i[:, None] < n * p * q) & (j[None, :] < k))


def _mcc(e: Sequence[int], x: Arrays) -> Runs:
    n, p, q, k, r, s, c, height, width, down, across = e
    out = torch.empty((n, p, q, k), device=x["img"].device)

    def shaped(rows: int, cols: int, block: int, warps: int) -> Callable[[], Any]:
        grid = (triton.cdiv(n * p * q, rows), triton.cdiv(k, cols))

        def run() -> Any:
            _mcc_tile[grid](out, x["img"], x["flt"], n, p, q, k, height, width, r=r, s=s, c=c, down=down,
                            across=across, rows=rows, cols=cols, block=block, num_warps=warps)  # fmt: skip
            return out

        return run

    return [shaped(64, 64, 32, 4), shaped(128, 64, 16, 4)]


# --------------------------------------------------------------------------- scans and histograms


@triton.jit
def _chunk_sums(x, sums, n, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(sums + tl.program_id(0), tl.sum(tl.load(x + at, mask=at < n, other=0.0), axis=0))


@triton.jit
def _before_chunks(sums, count, block: tl.constexpr):
    total = 0.0
    for k in range(0, count, block):
        at = k + tl.arange(0, block)
        values = tl.load(sums + at, mask=at < count, other=0.0)
        tl.store(sums + at, total + tl.cumsum(values, axis=0) - values, mask=at < count)
        total += tl.sum(values, axis=0)


@triton.jit
def _scan_chunks(x, sums, out, n, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    values = tl.cumsum(tl.load(x + at, mask=at < n, other=0.0), axis=0)
    tl.store(out + at, values + tl.load(sums + tl.program_id(0)), mask=at < n)


def _scan(e: Sequence[int], x: Arrays) -> Runs:
    n, out = e[0], torch.empty_like(x["x"])

    def in_chunks(block: int) -> Callable[[], Any]:
        count = triton.cdiv(n, block)
        sums = torch.empty(count, device=out.device)

        def run() -> Any:
            _chunk_sums[(count,)](x["x"], sums, n, block=block)
            _before_chunks[(1,)](sums, count, block=4096, num_warps=8)
            _scan_chunks[(count,)](x["x"], sums, out, n, block=block)
            return out

        return run

    return [in_chunks(2048), in_chunks(8192)]


@triton.jit
def _count_blocks(count, at_bin, n, per, bins: tl.constexpr, block: tl.constexpr):
    total = tl.zeros([bins], tl.int32)
    first = tl.program_id(0) * per
    for k in range(0, per, block):
        at = first + k + tl.arange(0, block)
        total += tl.histogram(tl.load(at_bin + at, mask=at < n, other=0), bins)
        # what is behind the end was counted in the first bin
        total -= tl.where(tl.arange(0, bins) == 0, tl.sum((at >= n).to(tl.int32), axis=0), 0)
    tl.atomic_add(count + tl.arange(0, bins), total)


def _bincount(e: Sequence[int], x: Arrays) -> Runs:
    n, bins = e
    if bins != _up(bins):
        return []
    block = 2048
    per = triton.cdiv(triton.cdiv(n, MANY), block) * block

    def run() -> Any:
        _count_blocks[(MANY,)](x["count"], x["bin"], n, per, bins=bins, block=block)
        return x["count"]

    return [run]
