"""Operands that lie across the vectors of a map, turned in registers: all lengths, types and vectors; the default."""

from __future__ import annotations

import math
import random
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from emit.turned_text import turn_macros
from lowering.across import across, turned
from lowering.choice import default_point
from lowering.machine import GENERIC
from lowering.point import Point, configuration_at
from mdh_core.interpreter import BufferValue, run_steps
from mdh_core.ir import MdhProgram
from tests.compilers import COMPILERS
from tests.emitted import FLAGS, _value
from tests.lifting import lifted
from tests.test_steps import Case, kernel_of, run_kernel

HEAD = (
    "void f(int h, int w, {t} s[restrict w + 1][h + 2], {t} z[restrict w][h], {t} a[restrict h][w],"
    " {t} b[restrict 2][w][h], {t} y[restrict h][w], {t} x[restrict 2][h][w])"
)
LOOPS = "for (int r = 0; r < h; r++) for (int i = 0; i < w; i++) "
NESTS = {
    "turned": LOOPS + "y[r][i] = 3 * s[i][r];",
    "shifted": LOOPS + "y[r][i] = s[i + 1][r + 2];",
    "beside": LOOPS + "y[r][i] = a[r][i] - s[i][r];",
    "two": LOOPS + "y[r][i] = z[i][r] - s[i][r];",
    "twice": LOOPS + "y[r][i] = s[i][r + 1] - s[i][r];",
    "stacked": "for (int k = 0; k < 2; k++) " + LOOPS + "x[k][r][i] = b[k][i][r];",
    "stored across": "for (int i = 0; i < w; i++) for (int r = 0; r < h; r++) y[r][i] = s[i][r] + 1;",
}


def of(name: str, t: str) -> MdhProgram:
    (p,) = lifted(f"{HEAD} {{\n#pragma mdh\n{NESTS[name]} }}".replace("{t}", t).replace("{{", "{").replace("}}", "}")).programs
    return p


def case_of(p: MdhProgram, h: int, w: int, t: str, rng: random.Random) -> Case:
    shapes = {"m": (h,), "s": (w + 1, h + 2), "z": (w, h), "a": (h, w), "b": (2, w, h), "y": (h, w), "x": (2, h, w)}
    data = {}
    for b in p.buffers:
        shape = shapes[b.name]
        cells: list[float] | list[int] = [rng.randint(-99, 99) for _ in range(math.prod(shape))]
        data[b.name] = BufferValue([float(c) for c in cells] if t in ("float", "double") else cells, shape)
    return Case((p,), {x.name: {"h": h, "w": w}[x.value] for x in p.params}, data)


def check(p: MdhProgram, t: str, sizes: tuple[tuple[int, int], ...], flags: tuple[str, ...]) -> None:
    lanes, rng = 64 // (8 if t in ("double", "long") else 4), random.Random(p.name + t)
    point: Point = {"threads": "r", "vector": "i", "lanes": lanes, "rows_r": lanes, "block_r": 2 * lanes, "block_i": 3 * lanes}
    for h, w in sizes:
        case = case_of(p, h, w, t, rng)
        expected = {b: v.copy() for b, v in case.data.items()}
        run_steps(case.steps, case.params, expected)
        (c,) = configuration_at((p,), GENERIC, (p.sizes(case.params),), point)
        kernel = kernel_of(case, (c,), GENERIC)
        assert f"MDH_TURN_{64 // lanes}(" in kernel.text, kernel.text
        answer = run_kernel(case, kernel, flags)
        assert answer["returned"] and "outside" not in answer
        for b in p.buffers:
            found = [_value(x, b.type) for x in answer[b.name]]  # type: ignore[attr-defined, arg-type]
            assert found == expected[b.name].data, (b.name, h, w, kernel.text)


@pytest.mark.parametrize("name", NESTS)
@pytest.mark.parametrize("t", ["float", "double", "int", "long"])
def test_at_all_lengths(name: str, t: str) -> None:
    """With the address sanitizer: no tile reads or writes beyond the arrays."""
    n = 8 if t in ("double", "long") else 16
    sizes = ((1, 1), (n, n), (n - 1, n), (n, n - 1), (n + 3, 2 * n + 5), (4 * n + 1, 3 * n - 1))
    few = sizes if name in ("turned", "stacked") else sizes[-2:]
    check(of(name, t), t, few, (*FLAGS, "-O1", "-fsanitize=address,undefined"))


@pytest.mark.parametrize("bytes_", [16, 32, 64])
@pytest.mark.parametrize("t", ["float", "double"])
def test_vectors_of_each_length(bytes_: int, t: str) -> None:
    """Squares of fewer lanes than the tile has, several of them."""
    check(of("beside", t), t, ((35, 53),), (*FLAGS, "-O2", f"-DMDH_VECTOR_BYTES={bytes_}"))


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("size", [4, 8])
@pytest.mark.parametrize("bytes_", [16, 32, 64])
def test_rows_become_columns(compiler: str, size: int, bytes_: int, tmp_path: Path) -> None:
    n, word = bytes_ // size, "int" if size == 4 else "long long"
    text = "\n".join(
        [
            f"#define MDH_VECTOR_BYTES {bytes_}", *turn_macros(size), "#include <stdio.h>",
            f"typedef {word} F __attribute__((vector_size({bytes_})));", "int main(void) {", f"F x[{n}];",
            f"for (int k = 0; k < {n}; k++) for (int l = 0; l < {n}; l++) x[k][l] = 100 * k + l;",
            f"MDH_TURN_{size}(F, x);",
            f'for (int k = 0; k < {n}; k++) for (int l = 0; l < {n}; l++) printf("%d\\n", (int)x[k][l]);',
            "return 0; }",
        ]
    )  # fmt: skip
    source, program = tmp_path / "t.c", tmp_path / "t"
    source.write_text(text + "\n")
    subprocess.run([compiler, "-O1", "-w", str(source), "-o", str(program)], check=True)
    found = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout.split()
    assert [int(x) for x in found] == [100 * l + k for k in range(n) for l in range(n)]


REFUSED = {
    "below the diagonal only": "for (int r = 0; r < h; r++) for (int i = 0; i < r; i++) y[r][i] = s[i][r];",
    "bytes": LOOPS + "c[r][i] = d[i][r];",
    "only where asked": LOOPS + "y[r][i] = a[r][i] > 0 ? s[i][r] : 0;",
    "along two dimensions": "for (int k = 0; k < w; k++) " + LOOPS + "t[k][r][i] = s[i][r] + s[i][k];",
}


def test_what_is_turned() -> None:
    p = of("two", "float")
    assert across(p, "i") == ("r", (0, 1)) and across(p, "r") is None
    assert turned(p, "i", 16, {"r": 16, "i": 1}, 4) == (0, 1)
    for lanes, rows in ((16, 8), (8, 8), (16, 1), (24, 24)):
        assert turned(p, "i", lanes, {"r": rows, "i": 1}, 4) == ()
    assert turned(p, "i", 16, {"r": 16, "i": 2}, 4) == () and turned(p, "i", 16, {"r": 16}, 8) == ()


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not(name: str) -> None:
    head = HEAD.replace("{t}", "float").replace(")", ", char c[restrict h][w], char d[restrict w][h], float t[restrict w][h][w])")
    (p,) = lifted(f"{head} {{\n#pragma mdh\n{REFUSED[name]} }}").programs
    assert across(p, "i") is None


def test_rows_that_a_condition_leaves_out_are_not_read() -> None:
    """Vectors ask once for all lanes; of what is turned, rows that were not asked for would be read, too."""
    head = HEAD.replace("{t}", "float").replace(")", ", float m[restrict h])")
    (p,) = lifted(f"{head} {{\n#pragma mdh\n{LOOPS} if (m[r] > 0) y[r][i] = s[i][r]; }}").programs
    case = case_of(p, 40, 50, "float", random.Random(3))
    expected = {b: v.copy() for b, v in case.data.items()}
    run_steps(case.steps, case.params, expected)
    point: Point = {"threads": "r", "vector": "i", "lanes": 16, "rows_r": 16, "block_r": 32, "block_i": 48}
    (c,) = configuration_at((p,), GENERIC, (p.sizes(case.params),), point)
    kernel = kernel_of(case, (c,), GENERIC)
    assert across(p, "i") is None and "MDH_TURN" not in kernel.text
    answer = run_kernel(case, kernel, (*FLAGS, "-O1"))
    assert [_value(x, p.buffer("y").type) for x in answer["y"]] == expected["y"].data  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["turned", "beside", "two", "stacked", "stored across"])
def test_the_default_turns(name: str) -> None:
    """Read lane by lane, the nest takes several times as long; so do tiles of scalars."""
    p, machine = of(name, "float"), replace(GENERIC, vector_bytes=64, registers=32)
    sizes = p.sizes({x.name: 2048 for x in p.params})
    point = default_point((p,), machine, (sizes,))
    rows = {d.name: int(point.get(f"rows_{d.name}", 1)) for d in p.hom.dims}
    assert turned(p, str(point["vector"]), int(point["lanes"]), rows, 4), point
