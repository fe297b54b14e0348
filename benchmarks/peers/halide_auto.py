"""Halide: plain algorithms, scheduled by ``Adams2019``; by ``Mullapudi2016`` where that one fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import halide as hl  # type: ignore[import-not-found,unused-ignore]

from benchmarks.peers.serve import Problem, Run

SCHEDULERS = ("Adams2019", "Mullapudi2016")


class Algorithm:
    """A function, its extents (innermost first) and its inputs; arrays as NumPy has them."""

    def __init__(self, out: Any) -> None:
        self.out = out
        self.function = hl.Func("out")
        self.inputs: list[tuple[Any, Any]] = []

    def input(self, array: Any) -> Any:
        """A parameter; its coordinates are innermost first."""
        make = hl.UInt if array.dtype.kind == "u" else hl.Float
        kind = make(array.dtype.itemsize * 8)
        found = hl.ImageParam(kind, array.ndim, f"in{len(self.inputs)}")
        self.inputs.append((found, array))
        return found

    def scheduled(self, scheduler: str, threads: int) -> Run:
        self.function.set_estimates([(0, n) for n in reversed(self.out.shape)])
        for parameter, array in self.inputs:
            parameter.set_estimates([(0, n) for n in reversed(array.shape)])
        pipeline, target = hl.Pipeline(self.function), hl.get_host_target()
        options = {"parallelism": str(threads)}
        pipeline.apply_autoscheduler(target, hl.AutoschedulerParams(scheduler, options))
        pipeline.compile_jit(target)
        buffers = [hl.Buffer(array) for _, array in self.inputs]
        for (parameter, _), buffer in zip(self.inputs, buffers, strict=True):
            parameter.set(buffer)
        result = hl.Buffer(self.out)

        def run() -> None:
            pipeline.realize(result, target)

        run.kept = (self, buffers)  # type: ignore[attr-defined] # parameters do not keep their memory alive
        return run


def prepare(p: Problem) -> Run | None:
    plugins = Path(hl.__file__).parent / "lib64"
    for scheduler in SCHEDULERS:
        found = plugins / f"libautoschedule_{scheduler.lower()}.so"
        hl.load_plugin(str(found) if found.exists() else f"autoschedule_{scheduler.lower()}")
    problem = None
    for scheduler in SCHEDULERS:
        algorithm = _algorithm(p)
        if algorithm is None:
            return None
        try:
            return algorithm.scheduled(scheduler, p.threads)
        except RuntimeError as error:
            problem = error
    raise RuntimeError(problem)


def _algorithm(p: Problem) -> Algorithm | None:
    if "->" in p.operation:
        return _contraction(p)
    made = _OPERATIONS.get(p.operation)
    return None if made is None else made(p)


def _zero(a: Algorithm) -> Any:
    return hl.f32(0.0) if a.out.dtype.itemsize == 4 else hl.f64(0.0)


def _scaled(a: Algorithm, factor: float, value: Any) -> Any:
    if factor == 1.0:
        return value
    return (hl.f32(factor) if a.out.dtype.itemsize == 4 else hl.f64(factor)) * value


def _before(a: Algorithm, coordinates: list[Any], factor: float) -> Any:
    """What the result is added to: a copy of the result's first values, an input of its own."""
    if factor == 0.0:
        return _zero(a)
    return _scaled(a, factor, a.input(a.out.copy())[tuple(coordinates)])


def _gemm(p: Problem) -> Algorithm:
    m, n, k = p.extents
    a = Algorithm(p.role(0, m, n))
    left, right = a.input(p.role(1, m, k)), a.input(p.role(2, k, n))
    i, j, r = hl.Var("i"), hl.Var("j"), hl.RDom([(0, k)])
    sum_ = hl.Func("sum")
    sum_[j, i] = _zero(a)
    sum_[j, i] += left[r.x, i] * right[j, r.x]
    before = _before(a, [j, i], p.value("beta", float(p.adds)))
    a.function[j, i] = before + _scaled(a, p.value("alpha", 1.0), sum_[j, i])
    return a


def _bmm(p: Problem) -> Algorithm:
    b, m, n, k = p.extents
    a = Algorithm(p.role(0, b, m, n))
    left, right = a.input(p.role(1, b, m, k)), a.input(p.role(2, b, k, n))
    x, i, j, r = hl.Var("x"), hl.Var("i"), hl.Var("j"), hl.RDom([(0, k)])
    a.function[j, i, x] = _zero(a)
    a.function[j, i, x] += left[r.x, i, x] * right[j, r.x, x]
    return a


def _gemv(p: Problem) -> Algorithm:
    m, k = p.extents
    a = Algorithm(p.role(0, m))
    matrix, vector = a.input(p.role(1, m, k)), a.input(p.role(2, k))
    i, r = hl.Var("i"), hl.RDom([(0, k)])
    sum_ = hl.Func("sum")
    sum_[i] = _zero(a)
    sum_[i] += matrix[r.x, i] * vector[r.x]
    a.function[i] = _before(a, [i], float(p.adds)) + sum_[i]
    return a


def _gemv_t(p: Problem) -> Algorithm:
    k, n = p.extents
    a = Algorithm(p.role(0, n))
    matrix, vector = a.input(p.role(1, k, n)), a.input(p.role(2, k))
    i, r = hl.Var("i"), hl.RDom([(0, k)])
    a.function[i] = _zero(a)
    a.function[i] += matrix[i, r.x] * vector[r.x]
    return a


def _jacobi3d(p: Problem) -> Algorithm:
    a = Algorithm(p.role(0, *p.extents))
    x = a.input(p.role(1, *(n + 2 for n in p.extents)))
    i, j, k = hl.Var("i"), hl.Var("j"), hl.Var("k")
    near = x[k + 1, j + 1, i] + x[k + 1, j + 1, i + 2] + x[k + 1, j, i + 1]
    near += x[k + 1, j + 2, i + 1] + x[k, j + 1, i + 1] + x[k + 2, j + 1, i + 1]
    a.function[k, j, i] = _scaled(a, p.value("c", 0.0), x[k + 1, j + 1, i + 1] + near)
    return a


def _transpose(p: Problem) -> Algorithm:
    m, n = p.extents
    a = Algorithm(p.role(0, n, m))
    x, i, j = a.input(p.role(1, m, n)), hl.Var("i"), hl.Var("j")
    a.function[i, j] = x[j, i]
    return a


def _halve(p: Problem) -> Algorithm:
    h, w = p.extents
    a = Algorithm(p.role(0, h, w))
    img, y, x = a.input(p.role(1, 2 * h, 2 * w)), hl.Var("y"), hl.Var("x")
    square = [hl.cast(hl.UInt(16), img[2 * x + dx, 2 * y + dy]) for dy in (0, 1) for dx in (0, 1)]
    a.function[x, y] = hl.cast(hl.UInt(8), (square[0] + square[1] + square[2] + square[3] + 2) >> 2)
    return a


def _conv2d(p: Problem) -> Algorithm:
    rows, cols, height, width = p.extents
    a = Algorithm(p.role(0, rows, cols))
    img = a.input(p.role(1, rows + height - 1, cols + width - 1))
    flt = a.input(p.role(2, height, width))
    y, x, r = hl.Var("y"), hl.Var("x"), hl.RDom([(0, width), (0, height)])
    a.function[x, y] = _zero(a)
    a.function[x, y] += img[x + r.x, y + r.y] * flt[r.x, r.y]
    return a


def _mcc(p: Problem) -> Algorithm:
    n, out_h, out_w, k, r, s, c, height, width, stride_h, stride_w = p.extents
    a = Algorithm(p.role(0, n, out_h, out_w, k))
    img, flt = a.input(p.role(1, n, height, width, c)), a.input(p.role(2, k, r, s, c))
    image, y, x, f = hl.Var("image"), hl.Var("y"), hl.Var("x"), hl.Var("f")
    at = hl.RDom([(0, c), (0, s), (0, r)])
    sum_ = hl.Func("sum")
    sum_[f, x, y, image] = _zero(a)
    value = img[at.x, stride_w * x + at.y, stride_h * y + at.z, image] * flt[at.x, at.y, at.z, f]
    sum_[f, x, y, image] += value
    a.function[f, x, y, image] = _before(a, [f, x, y, image], float(p.adds)) + sum_[f, x, y, image]
    return a


def _contraction(p: Problem) -> Algorithm:
    inputs, letters = p.operation.split("->")
    left, right = inputs.split(",")
    extent = dict(zip("abcdefg", p.extents, strict=True))
    a = Algorithm(p.role(0, *(extent[x] for x in letters)))
    lhs, rhs = (a.input(p.role(k, *(extent[x] for x in names))) for k, names in enumerate((left, right), 1))
    summed = [x for x in left if x in right]
    domain = hl.RDom([(0, extent[x]) for x in summed])
    variables: dict[str, Any] = {x: hl.Var(x) for x in letters}
    variables |= {x: domain[k] for k, x in enumerate(summed)}
    at = tuple(variables[x] for x in reversed(letters))
    sum_ = hl.Func("sum")
    sum_[at] = _zero(a)
    where = [tuple(variables[x] for x in reversed(names)) for names in (left, right)]
    sum_[at] += lhs[where[0]] * rhs[where[1]]
    a.function[at] = _before(a, list(at), float(p.adds)) + sum_[at]
    return a


_OPERATIONS = {
    "gemm": _gemm, "bmm": _bmm, "gemv": _gemv, "gemv_t": _gemv_t, "jacobi3d": _jacobi3d,
    "conv2d": _conv2d, "mcc": _mcc, "transpose": _transpose, "halve": _halve,
}  # fmt: skip
