"""Rows that are fetched ahead in maps: those that a tile is the first to touch, and only where it pays."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from pathlib import Path

import pytest

from emit.render import emit_openmp
from emit.request import KernelRequest
from lowering.ahead import first_rows
from lowering.choice import default_point
from lowering.facts import is_screened
from lowering.machine import GENERIC, Machine
from lowering.point import Point, configuration_at
from lowering.space import tuning_space
from mdh_core.evaluate import Value
from mdh_core.expr import FLOAT
from mdh_core.interpreter import BufferValue, integers, run
from mdh_core.ir import MdhProgram
from tests.catalogue import EVERYTHING, PLUS, binary, product, program, x
from tests.emitted import FLAGS, Case, check, with_extents
from tests.strategies import buffers_for, copy_of

FETCH = "__builtin_prefetch(&"
WIDE = (*FLAGS, "-O2", "-march=native")
SANITIZERS = ("-O0", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fopenmp")
JACOBI2D, JACOBI3D = EVERYTHING["jacobi2d"], EVERYTHING["jacobi3d"]
# several inputs, of which one does not move along the rows
MIXED = program(
    "mixed", "i:I j:J", "cc cc", dict.fromkeys(("A", "B", "v", "O"), FLOAT),
    "A[i, j] A[i + 2, j + 1] B[i + 1, j] v[i]", "O[i, j]", (binary("+", binary("*", x(0), x(3)), binary("+", x(1), x(2))),),
)  # fmt: skip
POINT: Point = {
    "threads": "i", "lanes": 16, "order": 0, "block_i": 12, "block_j": 32, "block_k": 48, "ahead": 128,
}  # fmt: skip


@pytest.mark.parametrize(
    "p, rows, order",
    [
        (JACOBI3D, {"i": 4}, "ij"),
        (JACOBI3D, {"i": 4}, "ji"),
        (JACOBI3D, {"i": 2, "j": 3}, "ij"),
        (JACOBI3D, {"j": 2}, "ij"),
        (JACOBI3D, {}, "ij"),
        (JACOBI2D, {"i": 8}, "i"),
        (JACOBI2D, {}, "i"),
        (MIXED, {"i": 3}, "i"),
        (MIXED, {"i": 1}, "i"),
    ],
)  # fmt: skip
def test_rows_that_no_earlier_tile_touched(p: MdhProgram, rows: dict[str, int], order: str) -> None:
    """Against tiles that are gone through one by one."""
    dims = [d.name for d in p.hom.dims]
    vector = dims[-1]
    (found,) = (r for r in first_rows(p, vector, order, rows) if r.buffer == p.inp.accesses[0].buffer)
    size = {d: rows.get(d, 1) for d in order}
    before: set[tuple[int, ...]] = set()
    for tile in itertools.product(*(range(5) for _ in order)):
        start = {d: n * size[d] for d, n in zip(order, tile, strict=True)}
        touched = set()
        for point in itertools.product(*(range(size[d]) for d in order)):
            at = {vector: 0} | {d: start[d] + n for d, n in zip(order, point, strict=True)}
            for a in p.inp.accesses:
                if a.buffer == found.buffer:
                    touched.add(tuple(e.evaluate(at) for e in a.index)[:-1])
        if all(n == 2 for n in tile):  # in the middle, with tiles on all sides
            break
        before |= touched
    expected = {tuple(v - start[d] for v, d in zip(place, dims, strict=False)) for place in touched - before}
    assert {o[:-1] for o in found.offsets} == expected
    assert all(o[-1] == 0 for o in found.offsets) and len(found.offsets) == len(expected)


def test_what_does_not_move_along_a_row_is_left_out() -> None:
    assert [r.buffer for r in first_rows(MIXED, "j", "i", {})] == ["A", "B"]
    turned = program("turned", "i:I j:J", "cc cc", dict.fromkeys("AO", FLOAT), "A[j, i]", "O[i, j]", (x(0),))
    assert first_rows(turned, "j", "i", {}) == []
    both = program("both", "i:I j:J", "cc cc", dict.fromkeys("AO", FLOAT), "A[i + j] A[j*2]", "O[i, j]",
                   (binary("+", x(0), x(1)),))  # fmt: skip
    assert first_rows(both, "j", "i", {}) == []


def _params(p: MdhProgram, sizes: tuple[int, ...]) -> dict[str, Value]:
    sized = iter(sizes)
    return {q.name: next(sized) if not q.type.is_float else 0.5 for q in p.params}


def _text(p: MdhProgram, point: Point, machine: Machine = GENERIC) -> str:
    sizes = {d.name: 200 for d in p.hom.dims}
    p = with_extents(p, buffers_for(p, _params(p, (3, 3, 3)), random.Random(0)), symbolic=True)[0]
    (c,) = configuration_at((p,), machine, (sizes,), point)
    return emit_openmp(KernelRequest("kernel", "n", (p,), (c,), machine)).text


def _case(
    p: MdhProgram, params: dict[str, Value], point: Point, rng: random.Random, fetch: str
) -> tuple[Case, dict[str, BufferValue]]:
    """A kernel that has the text ``fetch``, with its inputs; and what the interpreter makes of these."""
    buffers = buffers_for(p, params, rng)
    sized, extra = with_extents(p, buffers, symbolic=True)
    expected = copy_of(buffers)
    run(p, params, expected)
    values = {**params, **extra}
    (c,) = configuration_at((sized,), GENERIC, (sized.sizes(integers(values)),), point)
    assert fetch in emit_openmp(KernelRequest("k", "n", (sized,), (c,), GENERIC)).text
    return Case(sized, c, values, buffers), expected


@pytest.mark.parametrize("p", [JACOBI2D, JACOBI3D, MIXED], ids=lambda p: p.name)
def test_at_all_sizes(p: MdhProgram, tmp_path: Path) -> None:
    """Whole tiles, rests moved back and clipped; to the end of the arrays, behind which nothing is read."""
    rng, cases = random.Random(p.name), []
    dims = [d.name for d in p.hom.dims]
    rows = {"rows_i": 4} if len(dims) < 3 else {"rows_i": 2, "rows_j": 2}
    for sizes in ((1, 1, 1), (4, 16, 16), (5, 33, 40), (13, 31, 17), (8, 3, 70), (0, 5, 16)):
        params = _params(p, sizes if len(dims) == 3 else (sizes[0], sizes[2]))
        cases.append(_case(p, params, POINT | rows | {"vector": dims[-1]}, rng, FETCH))
    check(cases, tmp_path, flags=WIDE)
    check(cases, tmp_path, flags=SANITIZERS)


def test_lines_of_inputs_and_outputs() -> None:
    """128 bytes on, every line of a tile of 32 lanes once; outputs that may go past the caches are left alone."""
    point = POINT | {"vector": "k", "lanes": 32, "rows_i": 2}
    text = _text(JACOBI3D, point)
    fetched = [row.strip() for row in text.splitlines() if FETCH in row]
    read = [row for row in fetched if row.startswith(FETCH + "I[")]
    written = [row for row in fetched if row.startswith(FETCH + "O[")]
    assert len(fetched) == len(set(fetched)) == len(read) + len(written)
    assert len(read) == 2 * 2 and len(written) == 2 * 2
    assert all(row.endswith(", 1);") for row in written)
    assert any("(i_2 + 2)" in row and "(j + 2)" in row and "k_2 + 32]" in row for row in read)
    assert any("(i_2 + 3)" in row and "(j + 1)" in row and "k_2 + 48]" in row for row in read)
    assert FETCH not in _text(JACOBI3D, point | {"ahead": 0})
    past = _text(JACOBI3D, point | {"past_O": 1}, replace(GENERIC, l3=0))
    assert "MDH_STORE(" in past and FETCH + "I[" in past and FETCH + "O[" not in past


def test_it_is_a_parameter() -> None:
    """Of maps of several rows that the last cache does not hold; the default where a tile has not too many."""
    large = {"i": 4000, "j": 4000}
    assert ("ahead", (0, 512, 1024, 2048)) in tuning_space((JACOBI2D,), GENERIC, (large,)).parameters
    wide = replace(GENERIC, cores=2, vector_bytes=64, registers=32, l1=49152, l2=1 << 20, l3=1 << 25)
    for p, sizes, rows, ahead in (
        (JACOBI3D, (254, 254, 254), (4, 1), 1024),  # four planes of two arrays
        (JACOBI2D, (4096, 4096), (8,), 1024),  # of one, as the other is written past the caches
        (JACOBI2D, (9000, 999), (3,), 1024),  # rows that share lines are written past them as well
        (MIXED, (4000, 4000), (10,), 0),  # three arrays
    ):
        dims = [d.name for d in p.hom.dims]
        chosen = default_point((p,), wide, (dict(zip(dims, sizes, strict=True)),))
        assert tuple(chosen[f"rows_{d}"] for d in dims[:-1]) == rows
        assert chosen["vector"] == dims[-1] and chosen["ahead"] == ahead
    for name, sizes in (
        ("jacobi2d", {"i": 200, "j": 200}),
        ("jacobi1d", {"i": 1 << 26}),
        ("matvec", {"i": 900, "k": 900}),
        ("matmul", {"i": 4000, "j": 4000, "k": 4000}),
    ):
        p = EVERYTHING[name]
        assert "ahead" not in tuning_space((p,), GENERIC, (sizes,)).names
        assert "ahead" not in default_point((p,), GENERIC, (sizes,))


def test_short_rows_stay_in_the_caches() -> None:
    """Rows of 254 elements meet in the middle of lines: by default they stay near; of 256, or long ones, do not."""
    for n, past in ((254, 0), (256, 1), (2001, 1)):
        sizes = {"i": 300, "j": 300, "k": n}
        assert default_point((JACOBI3D,), GENERIC, (sizes,))["past_O"] == past


# --------------------------------------------------------------------------- pages of what is reduced

PAGE_OF = "MDH_PAGE(&"
DOT, MATVEC = EVERYTHING["dot"], EVERYTHING["matvec"]


def test_pages_are_a_parameter_of_sums_along_rows() -> None:
    """Of more than the last cache; the default for single rows, where a system gives arrays small pages."""
    long, rows = {"k": 1 << 26}, {"i": 9000, "k": 9000}
    for p, sizes, ahead in ((DOT, long, 8192), (MATVEC, rows, 0)):
        assert ("ahead", (0, 4096, 8192, 12288)) in tuning_space((p,), GENERIC, (sizes,)).parameters
        assert default_point((p,), GENERIC, (sizes,))["ahead"] == ahead
        assert default_point((p,), replace(GENERIC, huge_pages=True), (sizes,))["ahead"] == 0
    windows = product("windows", "i:I k:K", "cc pw", "A[i + k]", "B[k]", "C[i]")  # read again and again
    assert "ahead" not in tuning_space((windows,), GENERIC, ({"i": 1 << 16, "k": 1 << 10},)).names
    best, sizes = EVERYTHING["argmax_payload"], {"r": 9000, "c": 9000}
    assert is_screened(best) and "ahead" not in tuning_space((best,), GENERIC, (sizes,)).names
    restricted = tuning_space((MATVEC,), GENERIC, (rows,)).restrictions
    assert "vector == 'k' or ahead == 0" in restricted


def test_each_row_that_nothing_else_reads() -> None:
    """Once per row of a tile and step; not the vector, which all rows read."""
    point: Point = {
        "threads": "i", "vector": "k", "lanes": 16, "rows_i": 3, "order": 0, "block_i": 12, "block_k": 0, "ahead": 8192,
    }  # fmt: skip
    matrix = MATVEC.inp.accesses[0].buffer
    fetched = [row.strip() for row in _text(MATVEC, point).splitlines() if PAGE_OF in row]
    tile = (f"{i}*M_n1 + k_1" for i in ("i_start", "(i_start + 1)", "(i_start + 2)"))
    single = ("i_2_2*M_n1 + k_1_2",)  # where a part has fewer than three rows
    assert fetched == [f"{PAGE_OF}{matrix}[{at}], 64, 8192);" for at in (*tile, *single)]  # two pages on
    assert PAGE_OF not in _text(MATVEC, point | {"ahead": 0})
    copied: Point = {"threads": "", "vector": "k", "lanes": 16, "block_k": 512, "pack_A": "block", "ahead": 8192}
    text = _text(DOT, copied)
    assert "A_tile" in text and f"{PAGE_OF}B[" in text and f"{PAGE_OF}A_tile" not in text
    assert PAGE_OF not in _text(MATVEC, point | {"vector": "i", "rows_i": 1, "threads": "i"})


@pytest.mark.parametrize("p", [DOT, MATVEC], ids=lambda p: p.name)
def test_pages_at_all_sizes(p: MdhProgram, tmp_path: Path) -> None:
    """The results, of rows of several pages and of none, whose beginnings lie anywhere."""
    rng, cases = random.Random(p.name), []
    vector = p.hom.dims[-1].name
    for n in (0, 1, 31, 1024, 3001, 4099):
        params: dict[str, Value] = {q.name: (3 if q.name == "I" and p is MATVEC else n) for q in p.params}
        point: Point = {"threads": p.hom.dims[0].name, "vector": vector, "lanes": 16, "order": 0, "ahead": 4096}
        point |= {f"block_{d.name}": 2048 if d.name == vector else 2 for d in p.hom.dims}
        cases.append(_case(p, params, point, rng, PAGE_OF))
    check(cases, tmp_path, flags=WIDE)
    check(cases, tmp_path, flags=SANITIZERS)


def test_sums_of_columns_read_each_row_in_short_runs() -> None:
    """One or two lines of a row at once where the matrix comes from memory, more where a cache has it."""
    p = program("turned", "k:K i:I", "cc pw", dict.fromkeys("Auz", FLOAT), "A[i, k] u[i]", "z[k]",
                (binary("*", x(0), x(1)),), combine=PLUS)  # fmt: skip
    wide = replace(GENERIC, cores=2, vector_bytes=64, registers=32, l2=1 << 20, l3=1 << 25)
    lanes = {}
    for n in (1024, 8192):
        chosen = default_point((p,), wide, ({"k": n, "i": n},))
        assert chosen["vector"] == "k"
        lanes[n] = int(chosen["lanes"])
    assert lanes[8192] <= 32 < lanes[1024]


def test_scalars_have_no_rows() -> None:
    """A sum along a row of differences from one value."""
    p = program("spread", "k:K", "pw", dict.fromkeys("Amz", FLOAT), "A[k] m[]", "z[]",
                (binary("-", x(0), x(1)),), combine=PLUS)  # fmt: skip
    assert [r.buffer for r in first_rows(p, "k", (), {})] == ["A"]
    point: Point = {"threads": "", "vector": "k", "lanes": 16, "block_k": 512, "ahead": 8192}
    text = _text(p, point)
    assert f"{PAGE_OF}A[" in text and f"{PAGE_OF}m" not in text
