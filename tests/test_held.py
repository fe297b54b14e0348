"""Operands that the rows of a register tile share: the order of rows, loads in the assembly, results.

A compiler that loads an operand again for every row is not wrong, only slow: the assembly is read.
"""

from __future__ import annotations

import random
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from emit.render import emit_openmp
from emit.request import KernelRequest
from lowering.facts import facts, row_dims
from lowering.held import beside, held
from lowering.machine import GENERIC
from lowering.point import Point, configuration_at
from mdh_core.interpreter import run
from mdh_core.ir import MdhProgram
from tests.catalogue import EVERYTHING
from tests.emitted import FLAGS, Case, check, with_extents
from tests.strategies import buffers_for, copy_of
from tests.test_half_lines import of
from tests.test_register_tiles import innermost_loops, spills

HALVES = replace(GENERIC, cores=2)
AVX2 = ("-O3", "-march=haswell", "-fopenmp")


@pytest.mark.parametrize(
    ("name", "rows", "order", "found"),
    [
        # one row of vectors for two elements, not three rows for one: e outside
        ("ccsdt_abcdef_gdab_efgc", [("d", 2), ("e", 3)], (1, 0), (1, 2, {0, 1})),
        ("ccsdt_abcdef_geab_dfgc", [("d", 3), ("e", 2)], (0, 1), (1, 2, {0, 1})),
        ("ccsdt_abcdef_geab_dfgc", [("d", 6)], (0,), (0, 0, set())),  # the element's own row spreads it once
        ("matmul", [("i", 4)], (0,), (1, 0, {1})),
        ("matmul", [("i", 1)], (0,), (0, 0, set())),
    ],
)
def test_order_of_rows(
    name: str, rows: list[tuple[str, int]], order: tuple[int, ...], found: tuple[int, int, set[int]]
) -> None:
    vector = "j" if name == "matmul" else "f"
    h = held(EVERYTHING[name].inp.accesses, rows, vector)
    assert (h.order, (h.rows, h.singles, h.numbers)) == (order, found)
    assert beside(EVERYTHING[name], h.numbers) == (found[2] != {0, 1})


def test_what_is_not_held_needs_registers_too() -> None:
    """A product of three needs a place for the product of two; a factor that is given has one."""
    assert beside(PRODUCT, {0, 1}) == 0 and beside(PRODUCT, {1}) == 1
    given = of(f"float alpha, {HEAD}", tuple((d, 480) for d in "ijk"), "C[i][j] += alpha * A[i][k] * B[k][j];")
    assert beside(given, {0, 1}) == 1 and beside(given, {0}) == 2
    three = of(f"{HEAD}, float D[480]", tuple((d, 480) for d in "ijk"), "C[i][j] += A[i][k] * B[k][j] * D[k];")
    assert beside(three, {0, 1, 2}) == 1


def _point(p: MdhProgram, sizes: dict[str, int], **rest: int | str) -> Point:
    point: Point = {"threads": "", "order": 0} | {f"rows_{d}": 1 for d in row_dims(facts(p, sizes))}
    point |= {f"block_{d}": 1 << 12 for d in facts(p, sizes).cc}
    return point | {f"unroll_{d}": 1 for d in facts(p, sizes).pw} | rest


# along the window, of an input whose copy is too large for the stack: rows read what others read before
WINDOWS_OF_A_COPY: Point = {"vector": "s", "lanes": 8, "rows_p": 2, "rows_q": 3, "pack_I": "block"}
WINDOWS_OF_A_COPY |= {"block_r": 8, "block_s": 32, "block_p": 512, "block_q": 513}
HEAD = "float C[480][480], float A[480][480], float B[480][480]"
PRODUCT = of(HEAD, tuple((d, 480) for d in "ijk"), "C[i][j] += A[i][k] * B[k][j];")
TRANSPOSED = of(HEAD, tuple((d, 480) for d in "ijk"), "C[i][j] += A[i][k] * B[j][k];")
CONTRACTION = of(
    "float C[24][24][24], float A[24][24], float B[24][24][24]",
    tuple((d, 24) for d in "defg"),
    "C[d][e][f] += A[g][d] * B[g][e][f];",
)


# vectors are of 8 floats
@pytest.mark.parametrize(
    ("p", "rest", "multiplied", "loads"),
    [
        (PRODUCT, {"vector": "j", "lanes": 16, "rows_i": 4}, 8, 4 + 2),
        (PRODUCT, {"vector": "j", "lanes": 16, "rows_i": 2}, 4, 2 + 2),
        (TRANSPOSED, {"vector": "k", "lanes": 8, "rows_i": 3, "rows_j": 3}, 9, 3 + 3),
        (CONTRACTION, {"vector": "f", "lanes": 8, "rows_d": 3, "rows_e": 4}, 12, 3 + 4),
        # 16 registers are not enough for what would be held: loads are left to the compiler
        (PRODUCT, {"vector": "j", "lanes": 32, "rows_i": 3}, 12, 3 * 4 + 3),
    ],
)
def test_loads_of_a_step(
    p: MdhProgram, rest: dict[str, int | str], multiplied: int, loads: int, tmp_path: Path
) -> None:
    """Each operand once, and no accumulator in memory."""
    sizes = p.sizes({})
    (c,) = configuration_at((p,), HALVES, (sizes,), _point(p, sizes, **rest))
    text = emit_openmp(KernelRequest("k", "k", (p,), (c,), HALVES)).text
    (tmp_path / "k.c").write_text(text.replace("static int k(", "int k("))
    subprocess.run(["gcc", *AVX2, "-w", "-S", str(tmp_path / "k.c"), "-o", str(tmp_path / "k.s")], check=True)
    steps = [
        loop
        for loop in innermost_loops((tmp_path / "k.s").read_text())
        if sum(bool(re.match(r"vfmadd.*%ymm", row)) for row in loop) == multiplied
    ]
    assert steps
    for loop in steps:
        assert not spills(loop)
        assert sum("(%r" in row and not re.match(r"lea|prefetch", row) for row in loop) <= loads


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("name", "rest"),
    [
        ("matmul", {"vector": "j", "lanes": 16, "rows_i": 4}),
        ("matmul", {"vector": "j", "lanes": 32, "rows_i": 3}),
        ("matmul_t", {"vector": "k", "lanes": 8, "rows_i": 3, "rows_j": 3}),
        ("scaled_matmul", {"vector": "j", "lanes": 16, "rows_i": 4, "pack_A": "panel"}),
        ("ccsdt_abcdef_gdab_efgc", {"vector": "f", "lanes": 16, "rows_d": 2, "rows_e": 3}),
        ("ccsdt_abcdef_gfac_degb", {"vector": "f", "lanes": 16, "rows_e": 4}),
        ("mcc", {"vector": "k", "lanes": 16, "rows_q": 4}),
        ("mcc_strided", {"vector": "k", "lanes": 16, "rows_q": 2, "rows_p": 2}),
        ("conv2d", WINDOWS_OF_A_COPY),
    ],
)
@pytest.mark.parametrize("bytes_", [16, 0])
def test_results(name: str, rest: dict[str, int | str], seed: int, bytes_: int, tmp_path: Path) -> None:
    """Many sizes, with vectors of 16 bytes and with the machine's."""
    p, rng = EVERYTHING[name], random.Random(seed)
    cases = []
    for _ in range(3):
        params = {x.name: rng.choice((1, 2, 3, 5, 16, 17, 33)) for x in p.params if x.name.isupper()}
        if name.startswith(("ccsdt", "mcc")):
            params = {n: min(v, 5) for n, v in params.items()} | dict.fromkeys(("F", "K"), rng.choice((16, 17, 33)))
            params = {n: v for n, v in params.items() if n in {x.name for x in p.params}}
        params |= {x.name: 2 for x in p.params if not x.name.isupper()}
        buffers = buffers_for(p, params, rng)
        extended, extra = with_extents(p, buffers, symbolic=True)
        sizes = p.sizes(params)
        (c,) = configuration_at((extended,), HALVES, (sizes,), _point(p, sizes, **rest))
        expected = copy_of(buffers)
        run(p, params, expected)
        cases.append((Case(extended, c, {**params, **extra}, buffers, HALVES), expected))
    check(cases, tmp_path, flags=(*FLAGS, *((f"-DMDH_VECTOR_BYTES={bytes_}",) if bytes_ else ())))
