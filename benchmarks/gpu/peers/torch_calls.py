"""The cases in PyTorch: what one would call there.  Products and contractions are cuBLAS, convolutions cuDNN.

``arrays`` makes the inputs of an operation, the same ones each time; ``prepare`` gives functions that
compute it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional

Runs = list[Callable[[], Any]]
Arrays = dict[str, Any]


def arrays(operation: str, extents: Sequence[int], device: str) -> Arrays:
    """Inputs between -1 and 1, and results that are added to; none for an operation that is not known."""
    shapes, bins = _shapes(operation, extents)
    made: Arrays = {}
    for k, (name, shape) in enumerate(shapes.items()):
        if device == "meta":
            made[name] = torch.empty(shape, device=device)
            continue
        source = torch.Generator(device=device).manual_seed(k + 1)
        made[name] = torch.rand(shape, generator=source, device=device) * 2 - 1
    if bins:
        made["bin"] = ((made["bin"] + 1) * (bins / 2)).clamp(0, bins - 1).to(torch.int32)
        made["count"] = made["count"].mul(0).to(torch.int32)
    return made


def _shapes(operation: str, e: Sequence[int]) -> tuple[dict[str, tuple[int, ...]], int]:
    """By name, results first; the number of bins of a histogram."""
    match operation:
        case "dot":
            return {"x": (e[0],), "y": (e[0],)}, 0
        case "gemv":
            return {"w": (e[0],), "a": (e[0], e[1]), "v": (e[1],)}, 0
        case "gemm":
            return {"c": (e[0], e[1]), "a": (e[0], e[2]), "b": (e[2], e[1])}, 0
        case "bmm":
            return {"c": (e[0], e[1], e[2]), "a": (e[0], e[1], e[3]), "b": (e[0], e[3], e[2])}, 0
        case "conv2d":
            return {"img": (e[0] + e[2] - 1, e[1] + e[3] - 1), "flt": (e[2], e[3])}, 0
        case "jacobi3d":
            return {"box": (e[0] + 2, e[1] + 2, e[2] + 2)}, 0
        case "mcc":
            n, _, _, k, r, s, c, height, width, _, _ = e
            return {"img": (n, height, width, c), "flt": (k, r, s, c)}, 0
        case "scan":
            return {"x": (e[0],)}, 0
        case "bincount":
            return {"count": (e[1],), "bin": (e[0],)}, e[1]
    if "->" in operation:
        extent = dict(zip("abcdefg", e, strict=True))
        inputs, out = operation.split("->")
        names = zip("cab", (out, *inputs.split(",")), strict=True)
        return {name: tuple(extent[x] for x in letters) for name, letters in names}, 0
    return {}, 0


def prepare(operation: str, extents: Sequence[int], x: Arrays) -> Runs:
    """Functions that compute the operation on ``x`` and return the result; none where there are none."""
    if "->" in operation:
        return [lambda: x["c"].add_(torch.einsum(operation.split("->")[0] + "->abcdef", x["a"], x["b"]))]
    known: dict[str, Callable[[Sequence[int], Arrays], Runs]] = {
        "dot": lambda _, x: [lambda: torch.dot(x["x"], x["y"])],
        "gemv": lambda _, x: [lambda: torch.addmv(x["w"], x["a"], x["v"], out=x["w"])],
        "gemm": lambda _, x: [lambda: torch.addmm(x["c"], x["a"], x["b"], out=x["c"])],
        "bmm": lambda _, x: [lambda: torch.bmm(x["a"], x["b"], out=x["c"])],
        "scan": lambda _, x: [lambda: torch.cumsum(x["x"], 0)],
        "bincount": lambda e, x: [lambda: torch.bincount(x["bin"], minlength=e[1])],
        "conv2d": _conv2d,
        "jacobi3d": _jacobi3d,
        "mcc": _mcc,
    }
    return known[operation](extents, x) if operation in known else []


def _conv2d(_: Sequence[int], x: Arrays) -> Runs:
    img, flt = x["img"][None, None], x["flt"][None, None]
    return [lambda: functional.conv2d(img, flt)[0, 0]]


def _jacobi3d(_: Sequence[int], x: Arrays) -> Runs:
    """By slices, and as a convolution."""
    box = x["box"]

    def slices() -> Any:
        sums = box[1:-1, 1:-1, 1:-1] + box[:-2, 1:-1, 1:-1]
        sums += box[2:, 1:-1, 1:-1]
        sums += box[1:-1, :-2, 1:-1]
        sums += box[1:-1, 2:, 1:-1]
        sums += box[1:-1, 1:-1, :-2]
        sums += box[1:-1, 1:-1, 2:]
        return sums.mul_(0.125)

    weights = torch.zeros(3, 3, 3)
    for at in ((1, 1, 1), (0, 1, 1), (2, 1, 1), (1, 0, 1), (1, 2, 1), (1, 1, 0), (1, 1, 2)):
        weights[at] = 0.125
    weights = weights.to(box.device)[None, None]
    return [slices, lambda: functional.conv3d(box[None, None], weights)[0, 0]]


def _mcc(e: Sequence[int], x: Arrays) -> Runs:
    """Channels last, as the nest has them, and in PyTorch's usual order."""
    _, out_h, out_w, _, r, s, _, _, _, *strides = e
    rows, cols = strides[0] * (out_h - 1) + r, strides[1] * (out_w - 1) + s
    img, flt = x["img"][:, :rows, :cols].permute(0, 3, 1, 2), x["flt"].permute(0, 3, 1, 2)
    usual = (img.contiguous(), flt.contiguous())

    def last() -> Any:
        return functional.conv2d(img, flt, stride=tuple(strides)).permute(0, 2, 3, 1)

    return [last, lambda: functional.conv2d(*usual, stride=tuple(strides)).permute(0, 2, 3, 1)]
