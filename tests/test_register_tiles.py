"""Register tiles of the default: their shape, that a compiler keeps them in registers, and their borders.

The register tile of a reduction is what its speed hangs on (docs/performance.md): accumulators in memory cost
several times as much.  The assembly of innermost loops is read: every multiply-add of the tile is there, and no
vector goes to the stack or comes from it.
"""

from __future__ import annotations

import random
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from emit.packs_text import room
from emit.render import emit_openmp
from emit.request import KernelRequest
from lowering.choice import default_point
from lowering.copied import copied_value, with_copied_values
from lowering.facts import facts, row_dims, vector_candidates
from lowering.lower import Nest, lower
from lowering.machine import Machine
from lowering.point import TILES as TILE_LOOPS
from lowering.point import Point, configuration_at, dims_around
from lowering.programs import of_known_sizes
from mdh_core.combine import scalar_operator
from mdh_core.evaluate import Value
from mdh_core.expr import (
    DOUBLE,
    FLOAT,
    INT32,
    Binary,
    Const,
    Constraint,
    Operand,
    ScalarType,
    Var,
    walk,
)
from mdh_core.interpreter import run
from mdh_core.ir import MdhProgram, Param
from tests.catalogue import CATALOGUE, EVERYTHING, PLUS, binary, operator, program, small_params, x
from tests.emitted import FLAGS, Case, check, with_constant_sizes, with_extents
from tests.lifting import lifted
from tests.strategies import buffers_for, copy_of

# 32 registers of 64 bytes, caches of a server part
SERVER = Machine("server", 2, 64, 32, 48 << 10, 2 << 20, 32 << 20)
AVX512 = ("-O3", "-march=skylake-avx512", "-mprefer-vector-width=512", "-fopenmp")
PRODUCT = {"i": 1024, "j": 1024, "k": 1024}
IMAGES = {"n": 1, "p": 112, "q": 112, "k": 64, "r": 7, "s": 7, "c": 3}
CONTRACTION = {"a": 24, "b": 16, "c": 16, "d": 24, "e": 16, "f": 16, "g": 24}
# sizes to tune for, and how many vectors of accumulators there should be at least: additions wait for those before
TILES = {
    "matmul": (PRODUCT, 24),
    "matmul_t": (PRODUCT, 24),
    "scaled_matmul": (PRODUCT, 24),
    "mcc": (IMAGES, 24),
    "mcc_strided": (IMAGES, 16),
    "mcc_capsule": ({**IMAGES, "mi": 2, "mj": 2, "mk": 2}, 4),
    "ccsdt_abcdef_gdab_efgc": (CONTRACTION, 12),
    "ccsdt_abcdef_gfac_degb": (CONTRACTION, 12),
    "matvec": ({"i": 4096, "k": 4096}, 12),  # from here on vectors are over the reduced dimension
    "syrk": ({"i": 1000, "j": 1000, "k": 1000}, 20),
}


def _default(p: MdhProgram, sizes: dict[str, int], machine: Machine = SERVER) -> Point:
    return default_point((p,), machine, (sizes,))


def _sized(name: str) -> MdhProgram:
    """The program with extents of its buffers that are known at run time only."""
    p = EVERYTHING[name]
    return with_extents(p, buffers_for(p, small_params(p), random.Random(0)), symbolic=True)[0]


def innermost_loops(assembly: str) -> list[list[str]]:
    """The instructions of the loops that have no other inside: from a label to a jump back to it."""
    rows = [row.strip() for row in assembly.splitlines()]
    at = {row[:-1]: k for k, row in enumerate(rows) if re.fullmatch(r"\.L\w+:", row)}
    back = []
    for k, row in enumerate(rows):
        jump = re.match(r"j\w+\s+(\.L\w+)$", row)
        if jump and at.get(jump[1], k) < k:
            back.append((at[jump[1]], k))
    inner = [(a, b) for a, b in back if not any((c, d) != (a, b) and a <= c and d <= b for c, d in back)]
    return [rows[a : b + 1] for a, b in inner]


def compiled_loops(text: str, directory: Path) -> list[list[str]]:
    """The innermost loops of the kernel ``k``, as gcc compiles it for AVX-512."""
    source, assembly = directory / "k.c", directory / "k.s"
    source.write_text(text.replace("static int k(", "int k("))
    subprocess.run(["gcc", *AVX512, "-w", "-S", str(source), "-o", str(assembly)], check=True)
    return innermost_loops(assembly.read_text())


def spills(loop: list[str]) -> list[str]:
    """Instructions that move a vector between a register and a place of the stack that has no index."""
    return [row for row in loop if re.search(r"-?\d*\(%r[sb]p\)", row) and re.search(r"%[xyz]mm", row)]


@pytest.mark.parametrize("name", TILES)
def test_tiles_stay_in_registers(name: str, tmp_path: Path) -> None:
    p, (sizes, least) = _sized(name), TILES[name]
    point = _default(p, sizes)
    (c,) = configuration_at((p,), SERVER, (sizes,), point)
    text = emit_openmp(KernelRequest("k", name, (p,), (c,), SERVER)).text
    loops = compiled_loops(text, tmp_path)
    rows = 1
    for d in row_dims(facts(p, sizes)):
        rows *= int(point[f"rows_{d}"])
    tile = rows * int(point["lanes"]) // 16
    assert tile >= least
    added = [[row for row in loop if re.match(r"vfmadd\w+ps.*%zmm", row)] for loop in loops]
    tiles = [loop for loop, fma in zip(loops, added, strict=True) if len(fma) >= tile]
    assert tiles, [len(x) for x in added]
    for loop in tiles:
        assert spills(loop) == []
        assert not [row for row in loop if re.match(r"vmul|vbroadcast.*%xmm", row)]  # copies hold products


@pytest.mark.parametrize("begins", ["late", "at once"])
@pytest.mark.parametrize("constants", [True, False])
def test_rows_of_a_triangle_stay_in_registers(constants: bool, begins: str, tmp_path: Path) -> None:
    """Rows of a triangular matrix end, or begin, in different steps: by a branch for each of them, where no
    accumulator leaves its register, and in loops before or behind the steps in which all of them are.
    """
    sizes = {"i": 1000, "j": 1200, "k": 1000}
    p = EVERYTHING["trmm"]
    if begins == "at once":  # k < i instead of k > i
        (row,) = p.hom.domain
        p = replace(p, hom=replace(p.hom, domain=(Constraint(-row.value - 2),)))
    p = with_extents(p, buffers_for(p, small_params(p), random.Random(0)), symbolic=True)[0]
    if constants:
        values = {"M": 1000, "N": 1200} | {x.name: 1200 for x in p.params if x.name not in ("M", "N")}
        (known,) = of_known_sizes((p,), values)
        assert isinstance(known, MdhProgram)
        p = known
    point = _default(p, sizes) | {"rows_i": 8, "rows_j": 1, "vector": "j", "lanes": 48}
    (c,) = configuration_at((p,), SERVER, (sizes,), point)
    text = emit_openmp(KernelRequest("k", "trmm", (p,), (c,), SERVER)).text
    loops = compiled_loops(text, tmp_path)
    tiles = [x for x in loops if sum(re.match(r"vfmadd\w+ps.*%zmm", row) is not None for row in x) >= 24]
    assert tiles
    for loop in tiles:
        assert spills(loop) == []
    assert "tail" not in text
    whole = re.search(r"for \(; k(_\d+)? < \w+ && (?!!)", text)
    rows = [m.start() for m in re.finditer(r"for \(; k(_\d+)? < \w+( && !\(.*\))?; k", text)]
    assert whole and rows and (min(rows) < whole.start()) == (begins == "late")


@pytest.mark.parametrize("t", [FLOAT, DOUBLE], ids=lambda t: t.name)
@pytest.mark.parametrize("dims", [("i:N", "cc", "O[i]"), ("i:N", "pw", "O[]")], ids=["map", "sum"])
def test_what_runs_backwards_is_loaded_as_vectors(
    dims: tuple[str, str, str], t: ScalarType, tmp_path: Path
) -> None:
    """A load and a permutation for each vector; gcc filled lanes one at a time, by masks, when it was asked to."""
    names, kinds, target = dims
    body = (binary("*", x(0, t), x(1, t)),)
    sizes = {"i": 1000}
    for place in ("I[i] J[N - i - 1]", "I[N - i] J[N - i - 1]"):
        ops = {"I": t, "J": t, "O": t}
        p = program("backwards", names, kinds, ops, place, target, body, combine=operator("+", t) if kinds == "pw" else None)
        p = with_extents(p, buffers_for(p, small_params(p), random.Random(0)), symbolic=True)[0]
        (c,) = configuration_at((p,), SERVER, (sizes,), _default(p, sizes))
        text = emit_openmp(KernelRequest("k", "backwards", (p,), (c,), SERVER)).text
        loops = [x for x in compiled_loops(text, tmp_path) if any(re.match(r"v(fmadd|mul).*p.*%zmm", r) for r in x)]
        assert loops
        for loop in loops:
            products = sum(re.match(r"v(fmadd|mul).*p.*%zmm", row) is not None for row in loop)
            turned = [row for row in loop if row.startswith("vperm")]
            assert len(turned) == products * place.count("N - i"), loop
            assert not [row for row in loop if "{%k" in row or row.startswith("vbroadcast")]


def _window(shape: Point, tmp_path: Path) -> list[str]:
    """The loop over steps of a convolution of 5 x 5, all of whose windows are written out."""
    p, sizes = _sized("conv2d"), {"p": 4096, "q": 4096, "r": 5, "s": 5}
    point = _default(p, sizes) | {"unroll_r": 5, "unroll_s": 5} | shape
    (c,) = configuration_at((p,), SERVER, (sizes,), point)
    text = emit_openmp(KernelRequest("k", "conv2d", (p,), (c,), SERVER)).text
    loops = compiled_loops(text, tmp_path)
    (window,) = [x for x in loops if sum("vfmadd" in row for row in x) >= 8 * 25]
    return window


def test_windows_keep_nothing_from_steps_before(tmp_path: Path) -> None:
    """Two vectors side by side, under a window that slides over both: what one loads the other loads later."""
    window = _window({"lanes": 32, "rows_p": 4, "rows_q": 1}, tmp_path)
    assert len(spills(window)) < 2 * 4 * 25 // 10


def test_columns_of_a_window_are_loaded_one_after_the_other(tmp_path: Path) -> None:
    """Twelve rows, each with five columns: the weights of four are in registers beside eight accumulators."""
    window = _window({"lanes": 16, "rows_p": 8, "rows_q": 1}, tmp_path)
    assert [row for row in spills(window) if not row.endswith(")")] == []  # none comes back from the stack
    loads = [re.match(r"vmovu\w+\s+(-?\d*)\((.*)\), %zmm", row) for row in window]
    places = [(m[2], m[1]) for m in loads if m]
    assert len(places) == 12 * 5
    third = [k for k, (base, at) in enumerate(places) if at == "4"]
    assert len(third) == 12
    for k in third:
        assert (places[k][0], "8") in places[k + 1 : k + 3]


def test_spills_are_seen() -> None:
    """The check above sees what it looks for."""
    loop = [".L3:", "vmovaps %zmm1, 64(%rsp)", "vfmadd231ps (%rax){1to16}, %zmm2, %zmm1", "jne .L3"]
    (found,) = innermost_loops("\n".join([".L2:", *loop, "jne .L2"]))
    assert found == loop
    assert spills(found) == ["vmovaps %zmm1, 64(%rsp)"]


def test_two_dimensions_of_rows_share_both_operands() -> None:
    """Of six concatenated dimensions two have rows: each operand is loaded for several of the other's."""
    p = _sized("ccsdt_abcdef_gdab_efgc")
    point = _default(p, CONTRACTION)
    rows = [d for d in row_dims(facts(p, CONTRACTION)) if int(point[f"rows_{d}"]) > 1]
    used = [{n for x in a.index for n in x.names} for a in p.inp.accesses]
    assert len(rows) == 2
    assert all(any(d in u for u in used) and not all(d in u for u in used) for d in rows)


def test_cells_that_are_apart_share_vectors() -> None:
    """4x4 matrices inside of the cells: vectors over what is far apart, the input copied for that."""
    p, (sizes, _) = _sized("mcc_capsule"), TILES["mcc_capsule"]
    assert "k" in vector_candidates(facts(p, sizes))
    point = _default(p, sizes)
    assert point["vector"] == "k"
    assert point["pack_F"] != "no"


def test_a_block_that_holds_all_is_no_loop() -> None:
    """Where a reduction's size is known to be one block, results are finished at one visit."""
    p = with_constant_sizes(CATALOGUE["matmul"], {"I": 64, "J": 64, "K": 48})
    sizes = {"i": 64, "j": 64, "k": 48}
    for block, results, loops in ((48, "direct", 1), (64, "direct", 1), (16, "parts", 2)):
        point = _default(p, sizes) | {"block_k": block, "unroll_k": 1, "pack_B": "no"}
        (c,) = configuration_at((p,), SERVER, (sizes,), point)
        (nest,) = lower(p, c, SERVER).stages
        assert nest.results == results
        assert len([x for x in nest.loops if x.dim == "k"]) == loops


ALPHA, ROW = Var("alpha", FLOAT), Var("i", FLOAT)
SCALED = binary("*", ALPHA, x(0))
COPIED = {
    "the product": ((binary("*", SCALED, x(1)),), SCALED),
    "a larger expression": ((binary("*", binary("-", SCALED, ALPHA), x(1)),), binary("-", SCALED, ALPHA)),
    "at every place": ((binary("+", SCALED, binary("*", SCALED, x(1))),), SCALED),
    "nothing where the element is used, too": ((binary("*", SCALED, binary("+", x(0), x(1))),), None),
    "nothing where there is the element alone": ((binary("*", x(0), x(1)),), None),
    "nothing that depends on the point": ((binary("*", binary("*", ROW, x(0)), x(1)),), None),
}


@pytest.mark.parametrize("name", COPIED)
def test_what_copies_hold(name: str) -> None:
    f, value = COPIED[name]
    types = {"A": FLOAT, "B": FLOAT, "C": FLOAT}
    p = program("p", "i:I j:J k:K", "cc cc pw", types, "A[i, k] B[k, j]", "C[i, j]", f, combine=PLUS,
                params=(Param("alpha", FLOAT, "alpha", "float"),))  # fmt: skip
    assert copied_value(p, "A") == value
    assert copied_value(p, "B") is None
    (result,) = with_copied_values(p, ["A", "B"]).hom.scalar.results
    assert (result == f[0]) == (value is None)
    assert ALPHA not in walk(result) or value is None


def test_copies_of_integers_hold_elements() -> None:
    """Sums of integers may overflow where the function does not meet them."""
    a, b = Operand(0, INT32), Operand(1, INT32)
    f = (Binary("*", Binary("+", a, Const(7, INT32), INT32), b, INT32),)
    types = {"A": INT32, "B": INT32, "C": INT32}
    p = program("p", "i:I j:J k:K", "cc cc pw", types, "A[i, k] B[k, j]", "C[i, j]", f,
                combine=scalar_operator("+", INT32))  # fmt: skip
    assert copied_value(p, "A") is None


@pytest.mark.parametrize(
    "name", ["scaled_matmul", "mcc_strided", "mcc_capsule", "ccsdt_abcdef_gdab_efgc"]
)
def test_borders_of_copied_tiles(name: str, tmp_path: Path) -> None:
    """Tiles that are moved back on a border read copies of inputs; sizes around tiles and vectors."""
    p, cases = EVERYTHING[name], []
    rng = random.Random(7)
    sizes, _ = TILES[name]
    small = {d: min(n, 3) for d, n in sizes.items()}
    vector = str(_default(p, sizes)["vector"])
    for n, rows in ((15, 7), (17, 1), (33, 7)):
        near = {**small, vector: n}
        for d in row_dims(facts(p, sizes)):
            near[d] = rows if d != vector else near[d]
        by_size = {n: near[d.name] for d in p.hom.dims for n in d.size.span.names}
        params: dict[str, Value] = {q.name: by_size.get(q.name, 0.5) for q in p.params}
        buffers = buffers_for(p, params, rng)
        sized, extra = with_extents(p, buffers, symbolic=True)
        (c,) = configuration_at((sized,), SERVER, (sizes,), _default(sized, sizes))
        expected = copy_of(buffers)
        run(p, params, expected)
        cases.append((Case(sized, c, {**params, **extra}, buffers, SERVER), expected))
    check(cases, tmp_path, flags=(*FLAGS, "-O2", "-march=native"))


def _product(block: int, threads: str = "i") -> tuple[MdhProgram, Point]:
    """A matrix product whose right operand is copied ``block`` columns at a time, in tiles of 48."""
    p = _sized("matmul")
    point: Point = {
        "threads": threads, "vector": "j", "lanes": 48, "rows_i": 4, "rows_j": 1, "block_i": 16, "block_j": block,
        "block_k": 700, "unroll_k": 1, "order": 0, "pack_A": "panel", "pack_B": "block",
    }  # fmt: skip
    return p, point


def _nest(p: MdhProgram, point: Point) -> Nest:
    (c,) = configuration_at((p,), SERVER, (PRODUCT,), point)
    (nest,) = lower(p, c, SERVER).stages
    assert isinstance(nest, Nest)
    return nest


def test_copies_of_several_tiles_are_cut_into_strips() -> None:
    packs = {pack.buffer: pack for pack in _nest(*_product(96)).packs}
    assert packs["B"].strip == (1, 48)
    assert packs["B"].cells == 700 * 96
    assert packs["A"].strip is None  # its elements are read one by one
    assert {pack.buffer: pack for pack in _nest(*_product(48)).packs}["B"].strip is None


def test_copies_too_large_for_a_stack_are_on_the_heap() -> None:
    for block, heap in ((96, False), (240, True)):
        p, point = _product(block)
        packs = {pack.buffer: pack for pack in _nest(p, point).packs}
        assert packs["B"].heap == heap == (packs["B"].cells * 4 > SERVER.stack)
        (c,) = configuration_at((p,), SERVER, (PRODUCT,), point)
        text = emit_openmp(KernelRequest("k", "k", (p,), (c,), SERVER)).text
        assert ("L*MDH_THREADS" in text) == heap
    p, point = _product(48 * 64)  # more than any thread may have
    assert "B" not in {pack.buffer for pack in _nest(p, point).packs if pack.extents[1] > 48}


def test_copies_have_room_to_begin_at_a_line() -> None:
    """Elements of any size, records too: up to 63 bytes are left out before the first."""
    for size in (1, 2, 4, 8, 12, 16, 24, 48, 64, 80, 200):
        for cells in (1, 5, 63, 64, 1000):
            assert cells * size + 63 <= room(cells, size) * size
            assert 64 % size or room(cells, size) * size % 64 == 0  # the next thread's begins at a line


def test_one_thread_has_one_copy() -> None:
    """Known sizes that are too little work for threads: nobody asks OpenMP for a number, which may be any."""
    p = with_constant_sizes(CATALOGUE["matmul"], sizes := {"I": 20, "J": 300, "K": 5})
    p = with_extents(p, buffers_for(p, dict(sizes), random.Random(0)), symbolic=False)[0]
    _, point = _product(240)
    (c,) = configuration_at((p,), SERVER, (PRODUCT,), point)
    (nest,) = lower(p, c, SERVER).stages
    assert isinstance(nest, Nest)
    assert nest.threads == (0, 1)
    assert any(pack.heap and pack.at > 0 for pack in nest.packs)
    text = emit_openmp(KernelRequest("k", "k", (p,), (c,), SERVER)).text
    assert "MDH_THREAD" not in text
    assert "_memory" in text


@pytest.mark.parametrize("threads", ["i", "i,j", "k"])
def test_strips_at_all_sizes(threads: str, tmp_path: Path) -> None:
    """Fewer columns than a tile, whole and cut tiles, several blocks; copies of a thread and shared ones."""
    cases, rng = [], random.Random(3)
    for block in (96, 240):
        for n in (1, 47, 48, 49, 95, 97, 241, 300):
            p, point = EVERYTHING["matmul"], _product(block, threads)[1]
            params: dict[str, Value] = {"I": 9, "J": n, "K": 5}
            buffers = buffers_for(p, params, rng)
            sized, extra = with_extents(p, buffers, symbolic=True)
            (c,) = configuration_at((sized,), SERVER, (PRODUCT,), point)
            expected = copy_of(buffers)
            run(p, params, expected)
            cases.append((Case(sized, c, {**params, **extra}, buffers, SERVER), expected))
    check(cases, tmp_path, flags=(*FLAGS, "-O2", "-march=native"))


def test_how_much_is_copied_at_once() -> None:
    """``lhs[g][d][a][b]`` for one tile of four ``d``, for all its tiles at one ``a`` and ``b``, for the block."""
    p = _sized("ccsdt_abcdef_gdab_efgc")
    lhs = p.inp.accesses[0].buffer
    base: Point = {
        "threads": "c", "vector": "f", "lanes": 16, "rows_d": 4, "rows_e": 4, "unroll_g": 1, "block_g": 24,
        "order": 0, **{f"block_{d}": CONTRACTION[d] for d in "abdef"}, "block_c": 8,
    }  # fmt: skip
    expected = {
        "panel": ((24, 4, 1, 1), ("a", "b", "c", "d")),
        "row": ((24, 24, 1, 1), ("a", "b")),
        "block": ((24, 24, 24, 16), ()),
    }
    for choice, (extents, around) in expected.items():
        point = base | {f"pack_{lhs}": choice}
        (c,) = configuration_at((p,), SERVER, (CONTRACTION,), point)
        (nest,) = lower(p, c, SERVER).stages
        assert isinstance(nest, Nest)
        (pack,) = (x for x in nest.packs if x.buffer == lhs)
        assert pack.extents == extents
        tiles = [x.dim for x in nest.loops[: pack.at] if x.layer == TILE_LOOPS]
        assert tuple(tiles) == around == dims_around(facts(p, CONTRACTION), point, lhs)


def test_copies_have_other_tiles_outermost() -> None:
    """What one tile reads side by side: ``rhs[e][f][g][c]`` as c, g, e, f; one tile's broadcasts as they are."""
    p = _sized("ccsdt_abcdef_gdab_efgc")
    lhs, rhs = (a.buffer for a in p.inp.accesses)
    point: Point = {"threads": "b", "vector": "f", "lanes": 16, "rows_d": 4, "rows_e": 4, "block_g": 24, "order": 0}
    point |= {f"block_{d}": CONTRACTION[d] for d in "abcdef"} | {"unroll_g": 1, f"pack_{rhs}": "block"}
    for choice, layout in (("panel", (0, 1, 2, 3)), ("block", (2, 3, 0, 1))):
        (c,) = configuration_at((p,), SERVER, (CONTRACTION,), point | {f"pack_{lhs}": choice})
        (nest,) = lower(p, c, SERVER).stages
        assert isinstance(nest, Nest)
        assert {x.buffer: x.layout for x in nest.packs} == {lhs: layout, rhs: (3, 2, 0, 1)}


SEVERAL = {
    "of all": "s += x[i][j]; q += x[i][j] * x[i][j]; if (x[i][j] > t) t = x[i][j];",
    "of some": "if (!(f[i][j] & 3)) { s += x[i][j]; q += x[i][j] * x[i][j]; if (x[i][j] > t) t = x[i][j]; }",
}


@pytest.mark.parametrize("name", SEVERAL)
def test_several_results_share_the_registers(name: str, tmp_path: Path) -> None:
    """A sum, one of squares and a maximum for each row: three accumulators for every vector of the tile."""
    arrays = "const unsigned char f[restrict n][m], const float x[restrict n][m], float y[restrict n][3]"
    nest = f"""void k(int n, int m, {arrays}) {{
#pragma mdh
        for (int i = 0; i < n; i++) {{
            float s = 0, q = 0, t = -1e30f;
            for (int j = 0; j < m; j++) {{ {SEVERAL[name]} }}
            y[i][0] = s; y[i][1] = q; y[i][2] = t;
        }}
    }}"""
    (p,) = lifted(nest).programs
    sizes = {"i": 2048, "j": 2048}
    point = _default(p, sizes)
    assert point["vector"] == "j"
    tile = int(point["rows_i"]) * int(point["lanes"]) // 16
    assert 4 <= tile <= 10
    (c,) = configuration_at((p,), SERVER, (sizes,), point)
    loops = compiled_loops(emit_openmp(KernelRequest("k", name, (p,), (c,), SERVER)).text, tmp_path)
    tiles = [x for x in loops if len([row for row in x if re.match(r"v(add|fmadd\d+)ps.*%zmm", row)]) >= tile]
    assert tiles
    for loop in tiles:
        assert spills(loop) == []
