"""PyTorch, whose convolutions and products are oneDNN's and MKL's."""

from __future__ import annotations

from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]
import torch.nn.functional as functional  # type: ignore[import-not-found,unused-ignore]

from benchmarks.peers.serve import Problem, Run


def prepare(p: Problem) -> Run | None:
    torch.set_num_threads(p.threads)
    torch.set_grad_enabled(False)
    if "->" in p.operation:
        return _einsum(p)
    made = _OPERATIONS.get(p.operation)
    return None if made is None else made(p)


def _role(p: Problem, k: int, *shape: int) -> Any:
    """A tensor on the memory of the array."""
    return torch.from_numpy(p.role(k, *shape))


def _gemm(p: Problem) -> Run:
    m, n, k = p.extents
    c, a, b = _role(p, 0, m, n), _role(p, 1, m, k), _role(p, 2, k, n)
    alpha, beta = p.value("alpha", 1.0), p.value("beta", float(p.adds))

    def run() -> None:
        torch.addmm(c, a, b, beta=beta, alpha=alpha, out=c)

    return run


def _bmm(p: Problem) -> Run:
    b, m, n, k = p.extents
    out, left, right = _role(p, 0, b, m, n), _role(p, 1, b, m, k), _role(p, 2, b, k, n)

    def run() -> None:
        torch.bmm(left, right, out=out)

    return run


def _dot(p: Problem) -> Run:
    total, x, y = p.role(0), _role(p, 1), _role(p, 2)
    return lambda: {p.roles[0]: total + torch.dot(x, y).item()}


def _gemv(p: Problem) -> Run:
    m, n = p.extents
    w, matrix, v = _role(p, 0, m), _role(p, 1, m, n), _role(p, 2, n)

    def run() -> None:
        torch.addmv(w, matrix, v, out=w)

    return run


def _gemv_t(p: Problem) -> Run:
    m, n = p.extents
    w, matrix, v = _role(p, 0, n), _role(p, 1, m, n).T, _role(p, 2, m)

    def run() -> None:
        torch.mv(matrix, v, out=w)

    return run


def _conv2d(p: Problem) -> Run:
    rows, cols, r, s = p.extents
    img, flt = _role(p, 1, 1, 1, rows + r - 1, cols + s - 1), _role(p, 2, 1, 1, r, s)
    return lambda: {p.roles[0]: functional.conv2d(img, flt)}


def _mcc(p: Problem) -> Run:
    """Images and filters keep their order in memory, channels last."""
    n, out_h, out_w, k, r, s, c, height, width, stride_h, stride_w = p.extents
    out = _role(p, 0, n, out_h, out_w, k).clone() if p.adds else None
    img = _role(p, 1, n, height, width, c).permute(0, 3, 1, 2)
    if ((height - r) // stride_h + 1, (width - s) // stride_w + 1) != (out_h, out_w):
        img = img[:, :, : stride_h * (out_h - 1) + r, : stride_w * (out_w - 1) + s]
    flt = _role(p, 2, k, r, s, c).permute(0, 3, 1, 2)

    def run() -> dict[str, Any]:
        found = functional.conv2d(img, flt, stride=(stride_h, stride_w)).permute(0, 2, 3, 1)
        return {p.roles[0]: found if out is None else found.add_(out)}

    return run


def _einsum(p: Problem) -> Run:
    inputs, out = p.operation.split("->")
    left, right = inputs.split(",")
    extent = dict(zip("abcdefg", p.extents, strict=True))
    c = _role(p, 0, *(extent[x] for x in out))
    a, b = _role(p, 1, *(extent[x] for x in left)), _role(p, 2, *(extent[x] for x in right))

    def run() -> None:
        c.add_(torch.einsum(p.operation, a, b))

    return run


def _scan(p: Problem) -> Run:
    """The running sum of what comes before the first element, if anything does, and of all elements."""
    out, a, s = _role(p, 0, *p.extents), _role(p, 1, *p.extents), _role(p, 2)
    start = float(s[0])

    def run() -> dict[str, Any]:
        torch.cumsum(a, 0, out=out)
        if start:
            out.add_(start)
        return {p.roles[2]: out[-1]}

    return run


def _mbbs(p: Problem) -> Run:
    rows, cols = p.extents
    out, a, s = _role(p, 0, rows), _role(p, 1, rows, cols), _role(p, 2)
    start = float(s[0])

    def run() -> None:
        torch.cumsum(a.sum(1), 0, out=out)
        if start:
            out.add_(start)

    return run


def _softmax(p: Problem) -> Run:
    y, x = _role(p, 0, *p.extents), _role(p, 1, *p.extents)

    def run() -> None:
        torch.softmax(x, 1, out=y)

    return run


def _transpose(p: Problem) -> Run:
    m, n = p.extents
    b, a = _role(p, 0, n, m), _role(p, 1, m, n)

    def run() -> None:
        b.copy_(a.t())

    return run


def _halve(p: Problem) -> Run:
    """Sums of squares in 16 bits: its pooling takes no bytes."""
    h, w = p.extents
    out, img = _role(p, 0, h, w), _role(p, 1, h, 2, w, 2)

    def run() -> None:
        out.copy_((img.sum((1, 3), dtype=torch.int16) + 2) >> 2)

    return run


def _histogram(p: Problem) -> Run:
    """``bincount`` of values from zero on, looked up per bin."""
    out, elems, bins = _role(p, 0), _role(p, 1), _role(p, 2)
    first, last = int(bins.min()), int(bins.max())

    def run() -> None:
        inside = elems[(elems >= first) & (elems <= last)] - first
        out.add_(torch.bincount(inside, minlength=last - first + 1)[(bins - first).long()])

    return run


def _bincount(p: Problem) -> Run:
    hist, bins, weight = _role(p, 0), torch.from_numpy(p.role(1).astype("i4")), _role(p, 2)

    def run() -> None:
        hist.add_(torch.bincount(bins, weight, minlength=len(hist)))

    return run


_OPERATIONS = {
    "gemm": _gemm, "bmm": _bmm, "dot": _dot, "gemv": _gemv, "gemv_t": _gemv_t, "conv2d": _conv2d,
    "mcc": _mcc, "scan": _scan, "mbbs": _mbbs, "softmax": _softmax, "histogram": _histogram,
    "transpose": _transpose, "halve": _halve,
    "bincount": _bincount,
}  # fmt: skip
