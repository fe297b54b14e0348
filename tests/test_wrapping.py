"""What the original does not compute, emitted code does not compute in signed integers.

Every nest runs with the sanitizer for undefined behaviour, on values with which the original's own order
overflows nowhere, but sums of every other element, of half of them, or what is dropped in the end, do.
"""

from __future__ import annotations

import pytest

from emit.c_text import wrapping
from lowering.machine import GENERIC
from lowering.point import Point, configuration_at
from mdh_core.expr import INT8, INT16, INT32, INT64, UINT16, UINT32, UINT64, ScalarType
from mdh_core.interpreter import BufferValue
from mdh_core.ir import MdhProgram
from tests.lifting import lifted
from tests.test_steps import Case, check, kernel_of

HALF = 1 << 30
N, M = 96, 40
FLAT = [HALF if i % 2 == 0 else -HALF for i in range(N)]  # every other one overflows after two
STEPS = [1 << 26] * 60 + [0] * (N - 60)  # from the least integer on, no sum overflows; from 0 on, it does


def rows(value: list[int]) -> BufferValue:
    """M columns of these."""
    return BufferValue([x for x in value for _ in range(M)], (N, M))


def vector(value: list[int]) -> BufferValue:
    return BufferValue(list(value), (len(value),))


ONES = vector([1] * N)
NESTS: dict[str, tuple[str, str, dict[str, BufferValue]]] = {
    "sum": (
        "int a[n], int s[1]", "for (int i = 0; i < n; i++) s[0] += a[i];",
        {"a": vector(FLAT), "s": vector([0])},
    ),
    "sum that begins far below": (
        "int a[n], int s[1]", "for (int i = 0; i < n; i++) s[0] += a[i];",
        {"a": vector(STEPS), "s": vector([-(1 << 31)])},
    ),
    "long sum": (
        "long a[n], long s[1]", "for (int i = 0; i < n; i++) s[0] += a[i];",
        {"a": vector([x << 32 for x in FLAT]), "s": vector([0])},
    ),
    "short sum": (
        "short a[n], short b[n], short s[1]", "for (int i = 0; i < n; i++) s[0] += a[i] * b[i];",
        {"a": vector([x >> 16 for x in FLAT]), "b": ONES, "s": vector([0])},
    ),
    "product": (
        "int a[n], int s[1]", "for (int i = 0; i < n; i++) s[0] *= a[i];",
        {"a": vector([1 << 11, 1 << 13, *[1] * 14, 1 << 12, *[1] * 15, 0, *[7] * (N - 33)]), "s": vector([0])},
    ),
    "differences": (
        "int a[n], int s[1]", "for (int i = 0; i < n; i++) s[0] -= a[i];",
        {"a": vector(FLAT), "s": vector([0])},
    ),
    "rows": (
        "int A[n][m], int x[n], int y[m]",
        "for (int j = 0; j < m; j++) for (int i = 0; i < n; i++) y[j] += A[i][j] * x[i];",
        {"A": rows(STEPS), "x": ONES, "y": vector([-(1 << 31)] * M)},
    ),
    "prefix sums": (
        "int a[n], int s[1], int y[n]", "for (int i = 0; i < n; i++) { s[0] += a[i]; y[i] = s[0]; }",
        {"a": vector(STEPS), "s": vector([-(1 << 31)]), "y": vector([0] * N)},
    ),
    "chosen": (
        "int a[n], int b[n], int s[1]",
        "for (int i = 0; i < n; i++) s[0] += b[i] > 0 ? -(a[i] * b[i] - n) : a[i];",
        {"a": vector([HALF, HALF, -HALF, -HALF] * (N // 4)), "b": vector([1, -3] * (N // 2)), "s": vector([0])},
    ),
    "chosen, the same for all": (
        "int b[n], int p, int y[n]", "for (int i = 0; i < n; i++) y[i] = b[i] > 0 ? p * p * p : b[i];",
        {"b": vector([0, -3] * (N // 2)), "y": vector([0] * N)},
    ),
    "asked in turn": (
        "int a[n], int b[n], int s[1]", "for (int i = 0; i < n; i++) s[0] += b[i] > 0 && a[i] * b[i] > 0;",
        {"a": vector(FLAT), "b": vector([1, -3] * (N // 2)), "s": vector([0])},
    ),
    "added under a condition": (
        "int a[n], int b[n], int s[1]", "for (int i = 0; i < n; i++) if (b[i] > 0) s[0] += a[i] * b[i];",
        {"a": vector(FLAT), "b": vector([1, 1, -3, -3] * (N // 4)), "s": vector([0])},
    ),
    "branches": (
        "int a[n], int b[n], int s[1]",
        "for (int i = 0; i < n; i++) { int t = a[i]; if (b[i] > 0) { t = t - 5; t = t * b[i]; } s[0] += t; }",
        {"a": vector([x // 4 for x in FLAT]), "b": vector([1, -9] * (N // 2)), "s": vector([0])},
    ),
    "steps": (
        "int a[n], int y[n]",
        "for (int i = 0; i < n; i++) { int t = a[i], k = 0;"
        " while (k < 30 && t < 10000) { t = t * t + 1; k++; } y[i] = t + k; }",
        {"a": vector([i % 5 for i in range(N)]), "y": vector([0] * N)},
    ),
    "triangle": (
        "int a[n], int b[n], int C[n][n]",
        "for (int i = 0; i < n; i++) for (int j = 0; j <= i; j++) C[i][j] = a[i] * b[j];",
        {
            "a": vector([1 << (22 - i // 5) for i in range(N)]), "b": vector([1 << (i // 5) for i in range(N)]),
            "C": BufferValue([0] * (N * N), (N, N)),
        },
    ),
}  # fmt: skip


def programs(name: str) -> Case:
    arguments, nest, data = NESTS[name]
    result = lifted(f"void f(int n, int m, {arguments}) {{\n#pragma mdh\n{nest} }}")
    (p,) = result.program
    assert isinstance(p, MdhProgram)
    params = {"n": N, "m": M, "p": 1 << 14}
    used = {x.name for x in p.params}
    return Case((p,), {k: v for k, v in params.items() if k in used}, {k: v.copy() for k, v in data.items()})


@pytest.mark.parametrize("threads", [False, True], ids=["one", "two"])
@pytest.mark.parametrize("lanes", [8, 16])
@pytest.mark.parametrize("name", NESTS)
def test_nothing_undefined(name: str, lanes: int, threads: bool) -> None:
    case = programs(name)
    (p,) = case.programs
    sizes = (p.sizes(dict(case.params)),)
    dims = [d.name for d in p.hom.dims]
    point: Point = {"vector": "j" if "j" in dims else "i", "lanes": lanes}
    if threads:
        point |= {"threads": dims[0], f"block_{point['vector']}": 3 * lanes}
    found = configuration_at((p,), GENERIC, sizes, point)
    assert "vector_size" in kernel_of(case, found).text, name
    check(case, found, GENERIC)


def test_values_overflow_where_the_original_computes_nothing() -> None:
    """Else the tests above would find nothing: sums of lanes of their values overflow."""
    for lanes in (8, 16):
        sums = [sum(FLAT[k::lanes]) for k in range(lanes)]
        assert max(sums) > (1 << 31) - 1
    assert sum(STEPS) > (1 << 31) - 1 >= sum(STEPS) - (1 << 31)
    assert all(0 <= sum(FLAT[:k]) <= HALF for k in range(N))


@pytest.mark.parametrize("t", [INT8, INT16, INT32, INT64, UINT16, UINT32, UINT64], ids=str)
@pytest.mark.parametrize("op", "+-*")
def test_which_type_c_computes_in(op: str, t: ScalarType) -> None:
    """No signed type that has to hold more than it can; no unsigned one that ``int`` takes the place of."""
    low = -(1 << t.bits - 1) if t.kind == "int" else 0
    ends = (low, low + (1 << t.bits) - 1)
    most = max(abs({"+": a + b, "-": a - b, "*": a * b}[op]) for a in ends for b in ends)
    found = wrapping(op, t)
    if found is not None:
        assert found.kind == "uint" and found.bits == max(t.bits, 32)
    elif t.bits < 32:
        assert most < 1 << 31
    else:
        assert t.kind == "uint"
