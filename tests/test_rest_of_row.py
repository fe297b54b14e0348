"""Rests of rows whose points have loops of their own: in shorter vectors, at all lengths."""

from __future__ import annotations

import random

import pytest

from lowering.machine import GENERIC
from lowering.point import Point, configuration_at
from mdh_core.interpreter import BufferValue, run_steps
from mdh_core.ir import MdhProgram
from tests.emitted import FLAGS, _value
from tests.lifting import lifted
from tests.test_steps import Case, kernel_of, run_kernel

HEAD = "void f(int n, int m, int r, int p[n + 1], int col[r], {t} v[r], {t} x[5][m], {t} y[n][m], {t} z[n][m])"
ROWS = "for (int i = 0; i < n; i++) "
SPARSE = "for (int k = p[i]; k < p[i + 1]; k++) "
NESTS = {  # the second kind may be computed twice
    "added to": ROWS + SPARSE + "for (int j = 0; j < m; j++) y[i][j] += v[k] * x[col[k]][j];",
    "new": ROWS + "for (int j = 0; j < m; j++) { {t} s = 0; " + SPARSE + "s += v[k] * x[col[k]][j]; y[i][j] = s; }",
    "down a half": ROWS + "for (int j = 0; j < m / 2; j++) { {t} s = 0; " + SPARSE + "s += v[k] * x[col[k]][j]; y[i][j] -= s; }",
}


def of(name: str, t: str) -> MdhProgram:
    text = f"{HEAD} {{\n#pragma mdh\n{NESTS[name]} }}".replace("{t}", t).replace("{{", "{").replace("}}", "}")
    (p,) = lifted(text).programs
    return p


def data_of(p: MdhProgram, n: int, m: int, t: str, rng: random.Random) -> tuple[dict[str, BufferValue], int]:
    begins = [0]
    for _ in range(n):
        begins.append(begins[-1] + rng.choice((0, 0, 1, 3, 7)))
    r = begins[-1]

    def some(count: int) -> list[float] | list[int]:
        cells = [rng.randint(-4, 4) for _ in range(count)]
        return [float(c) for c in cells] if t in ("float", "double") else cells

    contents = {
        "p": BufferValue(begins, (n + 1,)),
        "col": BufferValue([rng.randrange(5) for _ in range(r)], (r,)),
        "v": BufferValue(some(r), (r,)),
        "x": BufferValue(some(5 * m), (5, m)),
        "y": BufferValue(some(n * m), (n, m)),
    }
    return {b.name: contents[b.name] for b in p.buffers}, r


@pytest.mark.parametrize("name", NESTS)
@pytest.mark.parametrize("t", ["float", "double", "int"])
def test_at_all_lengths(name: str, t: str) -> None:
    """With the address sanitizer: no piece reads or writes beyond its row's end."""
    p, rng = of(name, t), random.Random(name + t)
    size = 8 if t == "double" else 4
    lanes = 128 // size
    point: Point = {"threads": "i", "vector": "j", "lanes": lanes, "block_j": 4 * lanes, "block_i": 2}
    for m in (0, 1, 3, 4, 7, 10, 16, 21, lanes - 1, lanes, lanes + 13, 2 * lanes + 31, 4 * lanes + 1):
        data, r = data_of(p, 3, m, t, rng)
        values = {x.name: {"n": 3, "m": m, "r": r}.get(x.value, m // 2) for x in p.params}
        case = Case((p,), values, data)
        expected = {b: v.copy() for b, v in case.data.items()}
        run_steps(case.steps, case.params, expected)
        (c,) = configuration_at((p,), GENERIC, (p.sizes(dict(values)),), point)
        kernel = kernel_of(case, (c,), GENERIC)
        for piece in (64, 32, 16):
            if m > lanes:
                assert f"j_2 += {piece // size})" in kernel.text, kernel.text
        answer = run_kernel(case, kernel, (*FLAGS, "-O1", "-fsanitize=address,undefined"))
        assert answer["returned"] and "outside" not in answer
        for b in p.buffers:
            found = [_value(x, b.type) for x in answer[b.name]]  # type: ignore[attr-defined, arg-type]
            assert found == expected[b.name].data, (m, b.name, kernel.text)


def test_points_without_loops_are_left_to_the_compiler() -> None:
    (p,) = lifted("void f(int n, float y[n], float x[n]) {\n#pragma mdh\nfor (int i = 0; i < n; i++) y[i] += x[i]; }").programs
    params = {"n": 100}
    data = {b: BufferValue([0.0] * 100, (100,)) for b in ("x", "y")}
    point: Point = {"threads": "i", "vector": "i", "lanes": 32, "block_i": 64}
    (c,) = configuration_at((p,), GENERIC, (p.sizes(params),), point)
    text = kernel_of(Case((p,), params, data), (c,), GENERIC).text
    assert "+= 32)" in text and "+= 16)" not in text and "+= 8)" not in text
