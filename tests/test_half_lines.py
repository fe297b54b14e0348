"""Machines whose vectors are half a line (AVX2): what is written past the caches, and which tiles are chosen."""

from __future__ import annotations

from dataclasses import replace

import pytest

from emit.render import emit_openmp
from emit.request import KernelRequest
from lowering.choice import default_point
from lowering.facts import facts
from lowering.machine import GENERIC, Machine
from lowering.point import Point, configuration_at
from lowering.traffic import aliased, moved, uses
from mdh_core.ir import MdhProgram
from tests.lifting import lifted
from tests.test_register_tiles import SERVER

HALVES = replace(GENERIC, cores=2, l3=32 << 20, l3_bandwidth=4e10)
FOR = "for (int {0} = 0; {0} < {1}; {0}++) "


def of(head: str, loops: tuple[tuple[str, int], ...], body: str) -> MdhProgram:
    nest = "".join(FOR.format(d, n) for d, n in loops)
    (p,) = lifted(f"void f({head}) {{\n#pragma mdh\n{nest}{body} }}").program
    assert isinstance(p, MdhProgram)
    return p


def convolution(width: int) -> MdhProgram:
    inner = " { float x = 0; " + "".join(FOR.format(d, 5) for d in "rs") + "x += I[p + r][q + s] * F[r][s]; O[p][q] = x; }"
    return of(f"float O[4096][{width}], float I[4100][{width + 4}], float F[5][5]", (("p", 4096), ("q", width)), inner)


def first_layer(n: int) -> MdhProgram:
    """The first layer of VGG-16: 64 channels of each cell lie side by side."""
    inner = " { float x = 0; " + "".join(FOR.format(d, 3) for d in "rsc")
    head = f"float O[{n}][224][224][64], float I[{n}][226][226][3], float F[64][3][3][3]"
    loops = (("n", n), ("p", 224), ("q", 224), ("k", 64))
    return of(head, loops, inner + "x += I[n][p + r][q + s][c] * F[k][r][s][c]; O[n][p][q][k] = x; }")


def chosen(p: MdhProgram, machine: Machine) -> Point:
    return default_point((p,), machine, (p.sizes({}),))


def rows(p: MdhProgram, point: Point) -> int:
    product = 1
    for d in p.hom.dims:
        product *= int(point.get(f"rows_{d.name}", 1))
    return product


def test_rows_at_one_place_of_their_pages() -> None:
    """Rows of 16 KiB begin at one place of a page each, those of 16 KiB and a line do not."""
    for width, alike in ((4096, 8.0), (4097, 8.0), (4112, 1.0)):
        p = convolution(width)
        use = uses(facts(p, p.sizes({})))["O"]
        assert aliased(use, {"p": 8.0, "q": 16.0}) == alike
    layer = first_layer(2)
    use = uses(facts(layer, layer.sizes({})))["O"]
    assert aliased(use, {"p": 3.0, "q": 2.0, "k": 16.0}) == 3.0  # 256 bytes lie between cells of one row


def test_many_such_rows_stay_in_the_caches() -> None:
    point = chosen(convolution(4096), HALVES)
    assert rows(convolution(4096), point) > 2 and point["past_O"] == 0, point
    wide = chosen(convolution(4096), SERVER)  # a vector is a line
    assert rows(convolution(4096), wide) > 2 and wide["past_O"] == 1, wide


def test_tiles_begin_with_a_line() -> None:
    p, machine = convolution(4096), replace(HALVES, l3=0)
    point = chosen(p, machine) | {"vector": "q", "lanes": 16, "past_O": 1, "rows_p": 1, "rows_q": 1}
    (c,) = configuration_at((p,), machine, (p.sizes({}),), point)
    text = emit_openmp(KernelRequest("k", "conv2d", (p,), (c,), machine)).text
    (step,) = (row for row in text.splitlines() if "long q_step = " in row)
    assert "== MDH_VECTOR_BYTES - 1 ? " in step and " & 63)/sizeof(" in step


def test_loops_of_one_iteration_change_nothing() -> None:
    """What neighbouring tiles share is still there, whichever loops that do not run lie between."""
    p = convolution(4096)
    f = facts(p, p.sizes({}))
    tile, loops = {"p": 8.0, "q": 8.0, "r": 5.0, "s": 5.0}, [("q", 512.0), ("p", 512.0)]
    found = list(uses(f).values())
    once = [("s", 1.0), ("r", 1.0), *loops]
    for cache in (1 << 10, 1 << 15, 1 << 19):
        assert moved(found, tile, once, [(cache, 0)]) == moved(found, tile, loops, [(cache, 0)])


def test_whole_cells_of_large_results() -> None:
    """All channels at once where results go to memory, past the caches; filters wait in the first one meanwhile."""
    large = chosen(first_layer(16), HALVES)
    assert (large["lanes"], rows(first_layer(16), large), large["past_O"], large["fetch_O"]) == (64, 1, 1, 0), large
    small = chosen(first_layer(1), HALVES)
    assert int(small["lanes"]) * rows(first_layer(1), small) >= 64, small


def test_maps_go_through_few_rows_at_once() -> None:
    """Every row of a tile has its planes and rows of them; prefetchers do not follow as many as registers hold."""
    around = "A[i-1][j][k] + A[i+1][j][k] + A[i][j-1][k] + A[i][j+1][k] + A[i][j][k-1] + A[i][j][k+1]"
    loops = "".join(f"for (int {d} = 1; {d} < 119; {d}++) " for d in "ijk")
    heat = of("double A[120][120][120], double B[120][120][120]", (), f"{loops}B[i][j][k] = {around};")
    assert 1 <= rows(heat, chosen(heat, HALVES)) <= 3, chosen(heat, HALVES)
    rank1 = of("double A[2000][2000], double u[2000], double v[2000]", (("i", 2000), ("j", 2000)),
               "A[i][j] += u[i] * v[j];")  # fmt: skip
    assert rows(rank1, chosen(rank1, HALVES)) >= 6, "rows share v, and are few"


@pytest.mark.parametrize(("n", "copied"), [(1000, "block"), (48, "no")])
def test_rows_apart_are_copied(n: int, copied: str) -> None:
    """Where many tiles walk through the rows of an operand: not in a small product."""
    head = f"float C[{n}][{n}], float A[{n}][{n}], float B[{n}][{n}]"
    p = of(head, tuple((d, n) for d in "ijk"), "C[i][j] += A[i][k] * B[k][j];")
    assert chosen(p, HALVES).get("pack_B", "no") == copied


def test_blocks_of_a_triangle_are_not_finer_than_needed() -> None:
    """Where two dimensions have threads, blocks are as many as divide evenly, and else as large as caches hold."""
    inner = " { double x = 0; for (int k = 0; k < 1400; k++) x += A[k][i] * A[k][j]; C[i][j] = x; }"
    loops = "for (int i = 0; i < 1200; i++) for (int j = i; j < 1200; j++)"
    p = of("double A[1400][1200], double C[1200][1200]", (), loops + inner)
    point = chosen(p, HALVES)
    assert set(str(point["threads"]).split(",")) == {"i", "j"}, point
    blocks = -(-1200 // int(point["block_i"])) * -(-1200 // int(point["block_j"]))
    assert 16 * HALVES.cores <= blocks / 2 <= 50 * HALVES.cores, point
    assert int(point["block_k"]) * (int(point["block_i"]) + int(point["block_j"])) * 8 <= HALVES.l2, point
