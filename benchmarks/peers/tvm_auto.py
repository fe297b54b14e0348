"""TVM: plain tensor expressions, scheduled by MetaSchedule after a number of trials."""

from __future__ import annotations

import tempfile
from typing import Any

import tvm  # type: ignore[import-not-found,unused-ignore]
from tvm import te  # type: ignore[import-not-found,unused-ignore]

try:
    from tvm.s_tir import meta_schedule  # type: ignore[import-not-found,unused-ignore]
except ImportError:
    from tvm import meta_schedule  # type: ignore[import-not-found,unused-ignore]

from benchmarks.peers.serve import Problem, Run


def prepare(p: Problem) -> Run | None:
    made = _contraction if "->" in p.operation else _OPERATIONS.get(p.operation)
    if made is None:
        return None
    out, inputs, arrays = made(p)
    if p.adds:
        total, before = out, te.placeholder(out.shape, out.dtype, "before")
        out = te.compute(out.shape, lambda *at: before[at] + total[at], "out")
        inputs, arrays = [*inputs, before], [*arrays, p.role(0, *map(int, out.shape)).copy()]
    function = te.create_prim_func([*inputs, out]).with_attr("global_symbol", "main")
    kernel = _tuned(tvm.IRModule({"main": function}), p)
    result = p.role(0, *map(int, out.shape))
    given = [tvm.runtime.tensor(x, tvm.cpu()) for x in arrays]
    room = tvm.runtime.tensor(result, tvm.cpu())

    def run() -> dict[str, Any]:
        kernel(*given, room)
        return {}

    # the results are taken after the first call, outside of its time
    def first() -> dict[str, Any]:
        run()
        return {p.roles[0]: room.numpy()}

    calls = iter((first,))
    return lambda: next(calls, run)()


def _tuned(module: Any, p: Problem) -> Any:
    cpu = tvm.target.codegen.llvm_get_system_cpu()
    target = tvm.target.Target({"kind": "llvm", "mcpu": cpu, "num-cores": p.threads})
    with tempfile.TemporaryDirectory() as directory:
        database = meta_schedule.tune_tir(
            module, target, directory, p.trials, num_trials_per_iter=min(16, p.trials), database="memory"
        )
        schedule = meta_schedule.tir_integration.compile_tir(database, module, target)
    return tvm.compile(schedule.mod, target)["main"]


def _input(array: Any, name: str) -> Any:
    return te.placeholder(array.shape, str(array.dtype), name)


def _gemm(p: Problem) -> Any:
    m, n, k = p.extents
    if p.value("alpha", 1.0) != 1.0 or p.value("beta", float(p.adds)) != float(p.adds):
        return _scaled_gemm(p)
    left, right = p.role(1, m, k), p.role(2, k, n)
    a, b, r = _input(left, "a"), _input(right, "b"), te.reduce_axis((0, k), "k")
    out = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), "product")
    return out, [a, b], [left, right]


def _scaled_gemm(p: Problem) -> Any:
    """beta C + alpha A B, where what is added here is beta C - C."""
    m, n, k = p.extents
    old, left, right = p.role(0, m, n).copy(), p.role(1, m, k), p.role(2, k, n)
    a, b, c, r = _input(left, "a"), _input(right, "b"), _input(old, "c"), te.reduce_axis((0, k), "k")
    alpha = te.const(p.value("alpha", 1.0), a.dtype)
    rest = te.const(p.value("beta", 1.0) - float(p.adds), a.dtype)
    product = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), "product")
    out = te.compute((m, n), lambda i, j: alpha * product[i, j] + rest * c[i, j], "scaled")
    return out, [a, b, c], [left, right, old]


def _bmm(p: Problem) -> Any:
    n, rows, cols, k = p.extents
    left, right = p.role(1, n, rows, k), p.role(2, n, k, cols)
    a, b, r = _input(left, "a"), _input(right, "b"), te.reduce_axis((0, k), "k")
    out = te.compute((n, rows, cols), lambda x, i, j: te.sum(a[x, i, r] * b[x, r, j], axis=r), "product")
    return out, [a, b], [left, right]


def _gemv(p: Problem) -> Any:
    m, k = p.extents
    left, right = p.role(1, m, k), p.role(2, k)
    a, b, r = _input(left, "a"), _input(right, "b"), te.reduce_axis((0, k), "k")
    return te.compute((m,), lambda i: te.sum(a[i, r] * b[r], axis=r), "product"), [a, b], [left, right]


def _jacobi3d(p: Problem) -> Any:
    box = p.role(1, *(n + 2 for n in p.extents))
    x, c = _input(box, "x"), te.const(p.value("c", 0.0), str(box.dtype))

    def point(i: Any, j: Any, k: Any) -> Any:
        near = x[i, j + 1, k + 1] + x[i + 2, j + 1, k + 1] + x[i + 1, j, k + 1]
        near += x[i + 1, j + 2, k + 1] + x[i + 1, j + 1, k] + x[i + 1, j + 1, k + 2]
        return c * (x[i + 1, j + 1, k + 1] + near)

    return te.compute(p.extents, point, "step"), [x], [box]


def _conv2d(p: Problem) -> Any:
    rows, cols, height, width = p.extents
    image, weights = p.role(1, rows + height - 1, cols + width - 1), p.role(2, height, width)
    x, w = _input(image, "x"), _input(weights, "w")
    r, s = te.reduce_axis((0, height), "r"), te.reduce_axis((0, width), "s")
    out = te.compute((rows, cols), lambda i, j: te.sum(x[i + r, j + s] * w[r, s], axis=[r, s]), "conv")
    return out, [x, w], [image, weights]


def _mcc(p: Problem) -> Any:
    n, out_h, out_w, k, height, width, depth, rows, cols, stride_h, stride_w = p.extents
    image, weights = p.role(1, n, rows, cols, depth), p.role(2, k, height, width, depth)
    x, w = _input(image, "x"), _input(weights, "w")
    r, s, c = (te.reduce_axis((0, e), name) for e, name in ((height, "r"), (width, "s"), (depth, "c")))
    out = te.compute(
        (n, out_h, out_w, k),
        lambda b, i, j, f: te.sum(
            x[b, stride_h * i + r, stride_w * j + s, c] * w[f, r, s, c], axis=[r, s, c]
        ),
        "conv",
    )
    return out, [x, w], [image, weights]


def _contraction(p: Problem) -> Any:
    names, letters = p.operation.split("->")
    left, right = names.split(",")
    extent = dict(zip("abcdefg", p.extents, strict=True))
    lhs, rhs = (p.role(k, *(extent[x] for x in of)) for k, of in ((1, left), (2, right)))
    a, b = _input(lhs, "a"), _input(rhs, "b")
    summed = {x: te.reduce_axis((0, extent[x]), x) for x in left if x in right}

    def point(*at: Any) -> Any:
        where = {**dict(zip(letters, at, strict=True)), **summed}
        product = a[tuple(where[x] for x in left)] * b[tuple(where[x] for x in right)]
        return te.sum(product, axis=list(summed.values()))

    return te.compute(tuple(extent[x] for x in letters), point, "contraction"), [a, b], [lhs, rhs]


_OPERATIONS = {
    "gemm": _gemm, "bmm": _bmm, "gemv": _gemv, "jacobi3d": _jacobi3d, "conv2d": _conv2d, "mcc": _mcc,
}  # fmt: skip
