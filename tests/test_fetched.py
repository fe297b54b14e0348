"""Cells that are fetched while a tile computes: they join at the end, at all sizes, and only where they may."""

from __future__ import annotations

import random
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from emit.render import emit_openmp
from emit.request import KernelRequest
from lowering.choice import default_point
from lowering.facts import facts, fetchable
from lowering.machine import GENERIC
from lowering.point import Point, configuration_at
from lowering.space import tuning_space
from mdh_core.evaluate import Value
from mdh_core.expr import FLOAT, INT32, Result
from mdh_core.interpreter import integers, run
from mdh_core.ir import MdhProgram
from tests.catalogue import EVERYTHING, PLUS, binary, load, number, operator, program, x
from tests.emitted import FLAGS, Case, check, with_extents
from tests.lifting import lifted
from tests.strategies import buffers_for, copy_of

FETCHED = "__builtin_prefetch(&C["
WIDE = (*FLAGS, "-O2", "-march=native")
SANITIZERS = ("-O0", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fopenmp")


def _matrices(name: str, t, f, combine, initial) -> MdhProgram:  # type: ignore[no-untyped-def]
    return program(name, "i:I j:J k:K", "cc cc pw", dict.fromkeys("ABC", t), "A[i, k] B[k, j]", "C[i, j]",
                   (f,), combine=combine, initial=(initial,))  # fmt: skip


ADDED = _matrices("added", FLOAT, binary("*", x(0), x(1)), PLUS, load("C[i, j]", FLOAT))
SCALED = _matrices(
    "scaled", FLOAT, binary("*", x(0), x(1)), PLUS, binary("*", number(0.5, FLOAT), load("C[i, j]", FLOAT))
)
LEAST = _matrices("least", INT32, x(1, INT32), operator("min", INT32), load("C[i, j]", INT32))
# as C source has it whose sum is a scalar that is added to the cell behind the loop
BEHIND = program(
    "behind", "i:I j:J k:K", "cc cc pw", dict.fromkeys("ABC", FLOAT), "A[i, k] B[k, j]", "C[i, j]",
    (binary("*", x(0), x(1)),), combine=PLUS, initial=(number(0, FLOAT),),
    values=(binary("+", load("C[i, j]", FLOAT), binary("*", number(0.5, FLOAT), Result(0, FLOAT))),),
)  # fmt: skip
FRESH = _matrices("fresh", FLOAT, binary("*", x(0), x(1)), PLUS, number(0, FLOAT))
POINT: Point = {
    "threads": "i", "vector": "j", "lanes": 16, "rows_i": 3, "rows_j": 1, "block_i": 9, "block_j": 32, "block_k": 8,
    "unroll_k": 1, "order": 0, "pack_A": "no", "pack_B": "no", "fetch_C": 1,
}  # fmt: skip


def _text(p: MdhProgram, point: Point, n: int = 100) -> str:
    sizes = {"i": n, "j": n, "k": n}
    p = with_extents(p, buffers_for(p, {"I": 3, "J": 3, "K": 3}, random.Random(0)), symbolic=True)[0]
    (c,) = configuration_at((p,), GENERIC, (sizes,), point)
    return emit_openmp(KernelRequest("kernel", "n", (p,), (c,), GENERIC)).text


@pytest.mark.parametrize("p", [ADDED, SCALED, LEAST, FRESH, BEHIND], ids=lambda p: p.name)
def test_at_all_sizes(p: MdhProgram, tmp_path: Path) -> None:
    """Tiles that are whole, moved back, clipped; reductions of one visit, of several, of none."""
    cases, rng = [], random.Random(p.name)
    for block, tile in ((8, 1), (0, 2), (8, 3), (0, 4), (8, 5)):
        for i, j, k in ((0, 3, 4), (1, 1, 1), (3, 16, 8), (4, 17, 7), (7, 15, 9), (10, 33, 17), (19, 47, 0), (9, 32, 16)):
            params: dict[str, Value] = {"I": i, "J": j, "K": k}
            buffers = buffers_for(p, params, rng)
            sized, extra = with_extents(p, buffers, symbolic=True)
            expected = copy_of(buffers)
            run(p, params, expected)
            values = {**params, **extra}
            sizes = (sized.sizes(integers(values)),)
            (c,) = configuration_at((sized,), GENERIC, sizes, POINT | {"block_k": block, "fetch_C": tile})
            cases.append((Case(sized, c, values, buffers), expected))
    check(cases, tmp_path, flags=WIDE)
    check(cases, tmp_path, flags=SANITIZERS)


@pytest.mark.parametrize("p", [ADDED, SCALED, LEAST], ids=lambda p: p.name)
def test_what_cells_hold_is_read_behind_the_loop(p: MdhProgram) -> None:
    text = _text(p, POINT)
    tile = text[text.index(FETCHED) :]
    assert tile.index("for (long k = ") < tile.index("held = ")
    assert FETCHED not in _text(p, POINT | {"fetch_C": 0})


def test_cells_of_a_later_tile() -> None:
    """Of the next one in the row, and behind its end of the first one in the next row; or a row further."""
    own, inner, around = (_text(ADDED, POINT | {"fetch_C": n}) for n in (1, 2, 3))
    assert "_next" not in own
    assert "const long j_next = j_2 + 16 < j_2_end ? j_2 + 16 : j_1;" in inner
    assert "const long i_next = j_next > j_2 ? i_2 : i_2 + 3;" in inner
    assert FETCHED + "(i_next + i_r" in inner and " + j_next + j_v" in inner
    assert "const long i_next = i_2 + 3 < i_part_end ? i_2 + 3 : i_1;" in around
    assert "const long j_next = i_next > i_2 ? j_2 : j_2 + 32;" in around  # the next block
    assert around.count(FETCHED) == inner.count(FETCHED) == own.count(FETCHED)


def test_cells_of_a_later_tile_row_by_row() -> None:
    """One row before each part of the steps, of the same tile as all at once; the parts are all steps."""
    for at_once, by_rows in ((2, 4), (3, 5)):
        text, before = (_text(ADDED, POINT | {"fetch_C": n}) for n in (by_rows, at_once))
        next_tile = [line for line in before.splitlines() if "_next = " in line]
        assert next_tile and all(line in text.splitlines() for line in next_tile)
        assert text.count(FETCHED) == before.count(FETCHED)
        rows = text[text.index("long k = k_1;") :].splitlines()[1:8]
        assert rows[0].strip() == "for (long i_r_2 = 0; i_r_2 < 3; i_r_2++) {"
        assert FETCHED in rows[3] and "(i_next + i_r_2)" in rows[3] and "j_v_2*lanes" in rows[3]
        assert rows[5].strip() == "const long k_part = k_1 + (k_end - k_1)*(i_r_2 + 1)/3;"
        assert rows[6].strip() == "for (; k < k_part; k++) {"
    # where steps are written out, or in two loops, all at once
    assert _text(ADDED, POINT | {"fetch_C": 5, "unroll_k": 2}) == _text(ADDED, POINT | {"fetch_C": 3, "unroll_k": 2})


# what is fetched is counted by lines
COUNTED = """#include <stdio.h>
#include <stdlib.h>
static char *first;
static unsigned char *fetched;
static long beyond;
#define __builtin_prefetch(p, ...) count((char *)(p))
static void count(char *place)
{{
  long line = (place - first) / 64;
  if (line < {lines}) fetched[line]++;
  else beyond++;
}}
#define MDH_VECTOR_BYTES 64
{kernel}
int main(void)
{{
  float *C = aligned_alloc(64, {lines} * 64), *A = calloc({operands}, 4);
  first = (char *)C, fetched = calloc({lines}, 1);
  for (long k = 0; k < {lines} * 16; k++) C[k] = 0;
  if (!{call}) return 1;
  long seldom = 0, often = 0;
  for (long k = {piece}; k < {lines}; k++) seldom += fetched[k] == 0, often += fetched[k] > 1;
  printf("%ld %ld %ld", seldom, often, beyond);
}}
"""


def _batch(p: int, i: int, j: int) -> tuple[MdhProgram, dict[str, int]]:
    """``C[p, i, j]``: matrices whose rows both operands are read for, of so many elements."""
    text = """void f(int np, int ni, int nj, int nk, float C[np][ni][nj], float A[np][ni][nk], float B[nk][nj]) {
#pragma mdh
    for (int p = 0; p < np; p++) for (int i = 0; i < ni; i++) for (int j = 0; j < nj; j++)
        for (int k = 0; k < nk; k++) C[p][i][j] += A[p][i][k] * B[k][j]; }"""
    (found,) = lifted(text).program
    assert isinstance(found, MdhProgram)
    return found, found.sizes({"np": p, "ni": i, "nj": j, "nk": 16})


def _in_order(rows: int, order: int) -> Point:
    return {
        "threads": "", "vector": "j", "lanes": 16, "rows_i": rows, "block_p": 64, "block_i": 64, "block_j": 64,
        "block_k": 16, "unroll_k": 1, "order": order, "pack_A": "no", "pack_B": "no", "fetch_C": 6,
    }  # fmt: skip


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize(("i", "rows"), [(12, 4), (16, 2), (13, 4), (5, 1), (3, 3)])
def test_pieces_are_fetched_in_the_order_of_memory(order: int, i: int, rows: int, tmp_path: Path) -> None:
    """All lines of every piece but the first, each once where tiles divide it; then what follows the last."""
    p, sizes = _batch(5, i, 48)
    (c,) = configuration_at((p,), GENERIC, (sizes,), _in_order(rows, order))
    kernel = emit_openmp(KernelRequest("k", "f", (p,), (c,), GENERIC)).text
    lines, piece = 5 * i * 3, i * 3
    call = f"k(5, {i}, 48, 16, A, A, C)"
    text = COUNTED.format(kernel=kernel, lines=lines, piece=piece, operands=5 * i * 16 + 16 * 48, call=call)
    (tmp_path / "k.c").write_text(text)
    command = ["gcc", "-O1", "-fopenmp", "-o", str(tmp_path / "k"), str(tmp_path / "k.c")]
    subprocess.run(command, check=True, capture_output=True)
    seldom, often, beyond = map(int, subprocess.check_output([str(tmp_path / "k")], text=True).split())
    assert seldom == 0
    assert i % rows or (often == 0 and beyond == piece), (often, beyond)


BATCH = program(
    "batch", "p:P i:I j:J k:K", "cc cc cc pw", dict.fromkeys("ABC", FLOAT), "A[p, i, k] B[k, j]", "C[p, i, j]",
    (binary("*", x(0), x(1)),), combine=PLUS, initial=(load("C[p, i, j]", FLOAT),),
)  # fmt: skip


def test_pieces_at_all_sizes(tmp_path: Path) -> None:
    """Tiles that are whole, moved back and clipped, in blocks that are shorter than the sizes, too."""
    cases, rng = [], random.Random(21)
    for p, i, j, k in ((0, 3, 4, 5), (1, 1, 1, 1), (2, 9, 33, 16), (3, 4, 16, 17), (5, 13, 47, 8), (4, 8, 32, 0)):
        params: dict[str, Value] = {"P": p, "I": i, "J": j, "K": k}
        buffers = buffers_for(BATCH, params, rng)
        sized, extra = with_extents(BATCH, buffers, symbolic=True)
        expected = copy_of(buffers)
        run(BATCH, params, expected)
        values = {**params, **extra}
        for threads, block in (("", 64), ("p", 8), ("p,i", 4)):
            point = _in_order(4, 0) | {"threads": threads, "block_i": block, "block_p": 2}
            (c,) = configuration_at((sized,), GENERIC, (sized.sizes(integers(values)),), point)
            cases.append((Case(sized, c, values, buffers), expected))
    check(cases, tmp_path, flags=WIDE)
    check(cases, tmp_path, flags=SANITIZERS)


def test_a_tile_with_rows_of_other_pieces_fetches_no_share() -> None:
    """Of the loop around the pieces it may have several: these follow each other; of those further out not."""
    text = """void f(int n, float C[n][n][n][n], float A[n][n][n], float B[n][n]) {
#pragma mdh
    for (int q = 0; q < n; q++) for (int p = 0; p < n; p++) for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) for (int k = 0; k < n; k++) C[q][p][i][j] += A[q][i][k] * B[k][j]; }"""
    (found,) = lifted(text).program
    assert isinstance(found, MdhProgram)
    sizes = found.sizes({"n": 32})
    for rows, shared in (("i", True), ("p", True), ("q", False)):
        own = {"rows_q": 1, "rows_p": 1, "rows_i": 1, f"rows_{rows}": 4, "block_q": 32, "block_i": 32, "block_p": 32}
        kernels = []
        for kind in (5, 6):
            point = _in_order(1, 0) | own | {"fetch_C": kind, "block_j": 32}
            (c,) = configuration_at((found,), GENERIC, (sizes,), point)
            kernels.append(emit_openmp(KernelRequest("k", "f", (found,), (c,), GENERIC)).text)
        assert ("C_share" in kernels[1]) == shared and (kernels[0] == kernels[1]) != shared, rows


def test_what_tiles_do_not_write_as_a_whole_is_fetched_as_a_later_tile() -> None:
    """The two innermost loops must be those of the last dimensions, and one be around them."""
    p, sizes = _batch(5, 16, 48)
    texts = []
    for order, kind in ((2, 5), (2, 6), (3, 5), (3, 6), (0, 5), (0, 6)):  # 2: i, p, j; 3: i, j, p
        (c,) = configuration_at((p,), GENERIC, (sizes,), _in_order(4, order) | {"fetch_C": kind})
        texts.append(emit_openmp(KernelRequest("k", "f", (p,), (c,), GENERIC)).text)
    assert texts[0] == texts[1] and texts[2] == texts[3] and texts[4] != texts[5]
    assert _text(ADDED, POINT | {"fetch_C": 6}) == _text(ADDED, POINT | {"fetch_C": 5})
    (six,) = (values for name, values in tuning_space((p,), GENERIC, (sizes,)).parameters if name == "fetch_C")
    assert six == (0, 1, 2, 3, 4, 5, 6)


def test_results_that_start_from_a_constant_wait_for_nothing() -> None:
    """One visit: there is nothing to read.  Several: from the second on there is."""
    assert FETCHED not in _text(FRESH, POINT | {"block_k": 0})
    assert FETCHED in _text(FRESH, POINT)


def test_the_first_visit_of_a_neutral_start_adds_nothing() -> None:
    """Cells that begin with 0 are what the tile has found, the first time; with another start they are not."""
    text = _text(FRESH, POINT)
    found, middle, held, added = text[text.index("if (k_1 == 0) {") :].splitlines()[1:5]
    assert found.strip().startswith("held = acc[") and middle.strip() == "} else {"
    assert held.strip().startswith("held = *(const float_vu *)&C[") and added.strip().startswith("held += acc[")
    for p in (_matrices("one", FLOAT, binary("*", x(0), x(1)), PLUS, number(1, FLOAT)), LEAST):
        assert "held = acc[" not in _text(p, POINT)


def test_what_the_epilogue_reads_is_fetched() -> None:
    """Before the loop, also where sums keep their order; not where another cell is read, or none."""
    for fp in ("default", "exact"):
        p = replace(BEHIND, fp=fp)
        point = POINT | {"block_k": 0}
        text = _text(p, point)
        assert text.count(FETCHED) == 1
        assert text.index(FETCHED) < text.index("for (long k = ")
        assert FETCHED not in _text(p, point | {"fetch_C": 0})
    (store,) = BEHIND.out.stores
    other = binary("+", load("C[j, i]", FLOAT), Result(0, FLOAT))
    p = replace(BEHIND, out=replace(BEHIND.out, stores=(replace(store, value=other),)))
    assert fetchable(facts(p, {"i": 9, "j": 9, "k": 99})) == ()
    assert fetchable(facts(BEHIND, {"i": 99, "j": 99, "k": 99})) == ("C",)


def test_exact_sums_keep_their_order() -> None:
    """The value before the nest is the first operand of an exact sum; integers are free."""
    for p, free in ((ADDED, False), (LEAST, True)):
        exact = replace(p, fp="exact")
        sizes = {"i": 100, "j": 100, "k": 100}
        assert fetchable(facts(exact, sizes)) == (("C",) if free else ())
        assert (FETCHED in _text(exact, POINT)) == free


def test_it_is_a_parameter() -> None:
    """Of reductions of vectors of cells; by default for a later tile where its own come too late, or not at all."""
    for n, chosen in ((200, 1), (24, 5), (8, 0)):
        sizes = {"i": 200, "j": 200, "k": n}
        assert ("fetch_C", (0, 1, 2, 3, 4, 5)) in tuning_space((ADDED,), GENERIC, (sizes,)).parameters
        assert default_point((ADDED,), GENERIC, (sizes,))["fetch_C"] == chosen
    for name, sizes in (("dot", {"k": 1000}), ("jacobi1d", {"i": 1000})):
        p = EVERYTHING[name]
        assert not any(x.startswith("fetch") for x in tuning_space((p,), GENERIC, (sizes,)).names)
