"""Scans of which not the scanned dimension is contiguous: neighbours in memory together, row after row."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from emit.render import emit_openmp
from emit.request import KernelRequest
from lowering.choice import default_point
from lowering.lower import ScanNest, lower
from lowering.machine import GENERIC
from lowering.point import Point, configuration_at
from mdh_core.expr import Affine, Constraint, Type
from mdh_core.interpreter import BufferValue, run_steps
from mdh_core.ir import MdhProgram
from tests.emitted import FLAGS, _value
from tests.test_joined import FOR, of
from tests.test_steps import Case, kernel_of, run_kernel

I, J, K = (FOR.format(d, n) for d, n in (("i", "n"), ("j", "m"), ("k", "l")))
NESTS = {
    "columns": ("int n, int l, double O[n + 1][l], double I[n][l]", I + K + "O[i + 1][k] = O[i][k] + I[i][k];"),
    "outside": (
        "int n, int l, float O[n][l], float I[n][l]",
        K + "{ float s = 0; " + I + "{ s = fmaxf(s, I[i][k]); O[i][k] = s - k; } }",
    ),
    "planes": (
        "int n, int m, int l, double O[n][m + 1][l], double I[n][m][l], double J[l]",
        I + J + K + "O[i][j + 1][k] = O[i][j][k] + I[i][j][k] * J[k];",
    ),
    "both": ("int n, int l, int O[n + 1][l], int I[n][l]",
             I + "{ int s = 0; " + K + "{ s += I[i][k]; O[i + 1][k] = O[i][k] + s; } }"),
    "last": ("int n, int l, int O[n][l], int T[l], int I[n][l]", K + I + "{ T[k] += I[i][k]; O[i][k] = T[k]; }"),
    "chosen": ("int n, int l, double O[n][l], double I[n][l]",
               K + "{ double s = -1; " + I + "{ if (I[i][k] > 0) s += I[i][k]; else s += 2; O[i][k] = s; } }"),
    "bytes": ("int n, int l, unsigned char O[n + 1][l], unsigned char I[n][l]",
              I + K + "O[i + 1][k] = O[i][k] + I[i][k];"),
}  # fmt: skip
SANITIZED = (*FLAGS, "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def scans(p: MdhProgram, point: Point) -> list[ScanNest]:
    (c,) = configuration_at((p,), GENERIC, ({d.name: 90 for d in p.hom.dims},), point)
    return [s for s in lower(p, c, GENERIC).stages if isinstance(s, ScanNest)]


def text(p: MdhProgram, point: Point) -> str:
    (c,) = configuration_at((p,), GENERIC, ({d.name: 90 for d in p.hom.dims},), point)
    return emit_openmp(KernelRequest("kernel", "n", (p,), (c,), GENERIC)).text


def some(t: Type, rng: random.Random, count: int) -> list[float | int]:
    return [float(rng.randint(-3, 3)) if t.is_float else rng.randint(0, 9) for _ in range(count)]


@pytest.mark.parametrize("name", NESTS)
def test_at_all_sizes(name: str) -> None:
    """Fewer points than a line, more than a part, and one more; no row, one, several; threads everywhere."""
    p, rng = of(NESTS[name]), random.Random(name)
    dims = [d.name for d in p.hom.dims]
    assert [s.across for s in scans(p, {"threads": "k"})][-1] == "k"
    assert {s.block for s in scans(p, {"threads": "i"}) if s.across} == {None}
    sizes = [(0, 5), (1, 1), (3, 15), (2, 16), (5, 17), (1, 1024), (2, 2049), (3, 4100)]
    for n, length in sizes[:5] if name == "both" else sizes:  # the interpreter takes long for two scans
        params = {"n": n, "m": rng.randint(1, 4), "l": length}
        data = {}
        for b in p.buffers:
            extents = tuple(e.evaluate(params) for e in b.extents if e is not None)
            data[b.name] = BufferValue(some(b.type, rng, math.prod(extents)), extents)
        case = Case((p,), {x.name: params[x.name] for x in p.params}, data)
        expected = {b: v.copy() for b, v in data.items()}
        run_steps(case.steps, case.params, expected)
        for threads in {"", "k", "i", rng.choice(dims), ",".join(dims)}:
            (c,) = configuration_at((p,), GENERIC, (p.sizes(dict(case.params)),), {"threads": threads})
            kernel = kernel_of(case, (c,), GENERIC)
            answer = run_kernel(case, kernel, SANITIZED)
            assert answer["returned"] == 1 and "outside" not in answer
            for b in {s.buffer for s in p.out.stores}:
                t = p.buffer(b).type
                found = [_value(x, t) for x in answer[b]]  # type: ignore[attr-defined]
                assert found == expected[b].data, (case.params, threads, kernel.text)


def test_the_text() -> None:
    kernel = text(of(NESTS["columns"]), {"threads": "k"})
    _, rows, inside = kernel.partition("for (long i = 0; i < i_size; i++) {\n#pragma omp simd\n")
    assert rows and inside.lstrip().startswith("for (long k = k_start; k < k_part_end; k++) {")
    assert "double carry[1024];" in kernel and "#pragma omp parallel for schedule(static) if (" in kernel
    planes = text(of(NESTS["planes"]), {"threads": "i,k"})
    assert "#pragma omp parallel for collapse(2)" in planes and planes.count("for (long j = ") == 1
    assert "#pragma omp parallel" not in text(of(NESTS["columns"]), {"threads": ""})


def test_a_scan_along_rows_stays_one() -> None:
    p = of(("int n, int l, double O[n][l], double I[n][l]", I + "{ double s = 0; " + K + "{ s += I[i][k]; O[i][k] = s; } }"))
    assert [s.across for s in scans(p, default_point((p,), GENERIC, ({"i": 90, "k": 90},)))] == [""]
    assert "carry[" not in text(p, {"threads": "i"})


def test_bounds_that_depend_on_the_row_are_left_alone() -> None:
    p = of(NESTS["columns"])
    below = replace(p, hom=replace(p.hom, domain=(Constraint(Affine.of("i") - Affine.of("k")),)))
    assert [[s.across for s in scans(q, {"threads": "k"})] for q in (p, below)] == [["k"], [""]]
