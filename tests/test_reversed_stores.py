"""Maps that store vectors in reverse: arrays turned round, in place and not, for types of all widths."""

from __future__ import annotations

import random

import pytest

from lowering.cost import _is_apart
from lowering.facts import facts, vector_candidates
from lowering.machine import GENERIC, Machine
from lowering.point import Point, configuration_at
from mdh_core.interpreter import BufferValue, run_steps
from mdh_core.ir import MdhProgram
from tests.emitted import FLAGS, _value
from tests.lifting import lifted
from tests.test_steps import Case, kernel_of, run_kernel

HALF = "for (int i = 0; i < n / 2; i++) "
NESTS = {
    "in place": HALF + "{ T t = a[i]; a[i] = a[n - 1 - i]; a[n - 1 - i] = t; }",
    "two counters": "for (int i = 0, j = n - 1; i < j; i++, j--) { T t = a[i]; a[i] = 2 * a[j]; a[j] = t + i; }",
    "the other half": HALF + "a[n - 1 - i] = a[i] + 1;",
    "a copy": "for (int i = 0; i < n; i++) b[n - 1 - i] = a[i];",
    "both in reverse": "for (int i = 0; i < n; i++) b[n - 1 - i] = a[n - 1 - i] * 2;",
    "three stores": HALF + "{ T t = a[i]; a[i] = a[n - 1 - i]; a[n - 1 - i] = t; b[i] = t; }",
    "rows": "for (int k = 0; k < m; k++) " + HALF + "{ T t = c[k][i]; c[k][i] = c[k][n - 1 - i]; c[k][n - 1 - i] = t; }",
}
TYPES = ("float", "double", "unsigned char", "short", "long")


def of(name: str, t: str) -> MdhProgram:
    nest = NESTS[name].replace("T ", f"{t} ")
    head = f"void f(int n, int m, {t} *restrict a, {t} *restrict b, {t} c[m][n])"
    (p,) = lifted(f"{head} {{\n#pragma mdh\n{nest} }}").programs
    return p


def data_of(p: MdhProgram, n: int, m: int, rng: random.Random) -> dict[str, BufferValue]:
    extents = {"a": (n,), "b": (n,), "c": (m, n)}

    def value(name: str) -> BufferValue:
        real = p.buffer(name).type.name in ("float", "double")  # type: ignore[union-attr]
        cells = [rng.randint(0, 50) for _ in range(n * (m if name == "c" else 1))]
        return BufferValue([float(x) for x in cells] if real else list(cells), extents[name])

    return {b.name: value(b.name) for b in p.buffers}


@pytest.mark.parametrize("name", NESTS)
@pytest.mark.parametrize("t", TYPES)
def test_at_all_sizes(name: str, t: str) -> None:
    p, rng = of(name, t), random.Random(name + t)
    f = facts(p, {d.name: 4096 for d in p.hom.dims})
    assert vector_candidates(f)[0] == "i" and not _is_apart(f, "i")
    machine: Machine = GENERIC
    lanes = machine.vector_bytes // f.lane_bytes
    for n in (0, 1, 2, lanes, 2 * lanes - 1, 2 * lanes, 2 * lanes + 1, 97, 1000):
        values = {x.name: (n if x.value == "n" else 3 if x.value == "m" else n // 2) for x in p.params}
        case = Case((p,), values, data_of(p, n, 3, rng))
        expected = {b: v.copy() for b, v in case.data.items()}
        run_steps(case.steps, case.params, expected)
        for several in (1, 4):
            point: Point = {"threads": "i", "vector": "i", "lanes": several * lanes, "block_i": 8 * lanes}
            (c,) = configuration_at((p,), machine, (p.sizes(dict(values)),), point)
            kernel = kernel_of(case, (c,), machine)
            assert "(lanes - 1)" in kernel.text, kernel.text
            answer = run_kernel(case, kernel, (*FLAGS, "-O1", "-fsanitize=address,undefined"))
            assert answer["returned"] and "outside" not in answer
            for b in p.buffers:
                found = [_value(x, b.type) for x in answer[b.name]]  # type: ignore[attr-defined, arg-type]
                assert found == expected[b.name].data, (n, several, b.name, kernel.text)


def test_what_is_reduced_is_stored_lane_by_lane_in_reverse() -> None:
    """Accumulators are written as they lie."""
    head = "void f(int n, int m, float *restrict y, float A[restrict n][m])"
    nest = "for (int k = 0; k < m; k++) for (int i = 0; i < n; i++) y[n - 1 - i] += A[k][i];"
    (p,) = lifted(f"{head} {{\n#pragma mdh\n{nest} }}").programs
    assert _is_apart(facts(p, {"i": 4096, "k": 4096}), "i")
