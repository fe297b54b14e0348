"""What the cost model knows of products: how often operands are copied, where copies lie, what registers hold."""

from __future__ import annotations

from dataclasses import replace

from lowering.arithmetic import arithmetic, packed_elements
from lowering.choice import default_point
from lowering.cost import cost
from lowering.facts import Facts, facts
from lowering.machine import GENERIC
from lowering.point import Point, blocks_of
from mdh_core.ir import MdhProgram
from tests.lifting import lifted
from tests.test_register_tiles import SERVER

WIDE = replace(SERVER, l1=32 << 10, l2=1 << 20, l3_bandwidth=4e10)
SIZE = 1024


def product(t: str, width: int = SIZE, factor: str = "") -> MdhProgram:
    loops = "".join(f"for (int {d} = 0; {d} < {SIZE}; {d}++) " for d in "ijk")
    head = f"{t} g, {t} C[{SIZE}][{SIZE}], {t} A[{SIZE}][{width}], {t} B[{SIZE}][{SIZE}]"
    (p,) = lifted(f"void f({head}) {{\n#pragma mdh\n{loops}C[i][j] += {factor}A[i][k] * B[k][j]; }}").program
    assert isinstance(p, MdhProgram)
    return p


def known(p: MdhProgram) -> Facts:
    return facts(p, p.sizes({}))


def chosen(p: MdhProgram) -> Point:
    return default_point((p,), WIDE, (p.sizes({}),))


def test_copies_come_from_the_last_cache_while_a_core_computes() -> None:
    """So each thread copies its own columns once, all steps of them: no cell is added to twice."""
    p = product("double", factor="g * ")
    point = chosen(p)
    assert (point["threads"], point["vector"], point["pack_B"]) == ("j", "j", "block"), point
    assert packed_elements(known(p), point, WIDE.cores)["B"] == SIZE * SIZE, point
    assert int(point["block_k"]) == SIZE, point
    slow = replace(WIDE, l3_bandwidth=2e9)  # there it is no longer hidden
    assert cost(known(p), slow, point) > 2 * cost(known(p), WIDE, point)
    near = default_point((p,), slow, (p.sizes({}),))
    assert cost(known(p), slow, near) < cost(known(p), slow, point), near


def test_copies_cost_by_their_bytes() -> None:
    points = []
    for t in ("float", "double"):
        f = known(product(t))
        point = chosen(f.program) | {"lanes": 16, "rows_i": 1, "block_j": 512, "pack_A": "no", "pack_B": "block"}
        points.append(arithmetic(f, WIDE, point).copied)
    assert 0 < points[0] < points[1] <= 2 * points[0] * 1.001, points


def test_rows_at_one_place_of_their_pages_push_each_other_out() -> None:
    """Twelve rows do, of eight places in the first cache; six do not, nor those that lie elsewhere."""
    times = {}
    for width in (SIZE, SIZE + 16):
        f = known(product("float", width))
        point = chosen(f.program) | {"lanes": 16, "pack_A": "no", "pack_B": "block", "order": 0}
        for rows in (6, 12):
            times[width, rows] = cost(f, WIDE, point | {"rows_i": rows, "block_i": 96 * rows})
    assert times[SIZE, 12] > 2 * times[SIZE + 16, 12], times
    assert times[SIZE, 6] < 1.2 * times[SIZE + 16, 6], times


def test_what_registers_do_not_hold_is_loaded_for_every_operation() -> None:
    """Of 32 registers, 28 sums leave four, for four operands that rows share and one of their own."""
    loops = "".join(f"for (int {d} = 0; {d} < 512; {d}++) " for d in "ijk")
    head = "float C[512][512], float A[512][512], float B[512][512]"
    (p,) = lifted(f"void f({head}) {{\n#pragma mdh\n{loops}C[i][j] += A[i][k] * B[j][k]; }}").program
    assert isinstance(p, MdhProgram)
    point = chosen(p) | {"vector": "k", "lanes": 16, "unroll_k": 1, "pack_A": "no", "pack_B": "no"}
    point |= {"threads": "i", "block_i": 256, "block_j": 512, "block_k": 0}

    def speed(i: int, j: int) -> float:
        own: Point = {"rows_i": i, "rows_j": j, "block_i": 84, "block_j": 84}
        return arithmetic(known(p), WIDE, point | own, even=True).seconds

    assert speed(3, 7) < speed(4, 7), "eleven loads for 21 multiply-adds, or 32 for 28"
    assert speed(4, 6) < speed(4, 7)


def test_only_dimensions_of_the_border_have_small_blocks() -> None:
    """Columns of a triangular product are all as long, and threads get half of them each; its rows are not."""
    text = """void f(double C[1000][1200], double A[1000][1000], double B[1000][1200]) {
#pragma mdh
    for (int i = 0; i < 1000; i++) for (int j = 0; j < 1200; j++) { double x = 0;
        for (int k = 0; k < i; k++) x += A[i][k] * B[k][j]; C[i][j] = x; } }"""
    blocks: dict[str, set[int]] = {"i": set(), "j": set()}
    for machine in (WIDE, GENERIC):
        (p,) = lifted(text).program
        assert isinstance(p, MdhProgram)
        point = default_point((p,), machine, (p.sizes({}),))
        for d in str(point["threads"]).split(","):
            share = p.sizes({})[d] // machine.cores
            assert (int(point[f"block_{d}"]) >= share // 2) == (d == "j"), (machine.name, point)
            blocks[d].add(int(point[f"block_{d}"]))
    assert blocks["j"], blocks


def contraction(own: str, other: str) -> MdhProgram:
    """Cells of six dimensions, 24 steps for each: more than the last cache holds."""
    extents = {"a": 24, "b": 16, "c": 16, "d": 24, "e": 16, "f": 16, "g": 24}
    c, x, y = ("".join(f"[{extents[d]}]" for d in dims) for dims in ("abcdef", own, other))
    loops = "".join(f"for (int {d} = 0; {d} < {n}; {d}++) " for d, n in extents.items())
    cells, a, b = ("".join(f"[{d}]" for d in dims) for dims in ("abcdef", own, other))
    text = f"void k(float C{c}, float A{x}, float B{y}) {{\n#pragma mdh\n{loops}C{cells} += A{a} * B{b}; }}"
    (p,) = lifted(text).program
    assert isinstance(p, MdhProgram)
    return p


def test_results_that_come_from_memory_lie_in_long_runs() -> None:
    """A tile of neighbouring rows where an operand is shared by all; else what comes is fetched in order."""
    along = chosen(contraction("gfab", "degc"))
    assert (along["vector"], along["rows_e"], along["rows_d"], along["fetch_C"]) == ("f", 16, 1, 5), along
    apart = chosen(contraction("gdab", "efgc"))
    assert (apart["vector"], apart["fetch_C"]) == ("f", 6), apart
    assert int(apart["rows_e"]) > 1 < int(apart["rows_d"]), apart
    far = replace(WIDE, l2=256 << 10)  # where two pieces do not fit beside what is copied
    p = contraction("gdab", "efgc")
    assert default_point((p,), far, (p.sizes({}),))["fetch_C"] == 5


def test_copied_blocks_leave_room_where_others_use_the_second_cache_too() -> None:
    """A block of the right operand is read again for every tile; half of the cache is what is surely there."""
    p = product("double")
    f, alone = known(p), replace(SERVER, l1=48 << 10, l2=2 << 20, l3_bandwidth=1.5e10, l2_bandwidth=1.2e11)
    bytes_of_blocks = []
    for machine in (alone, replace(alone, own_l2=2 / 3)):
        point = default_point((p,), machine, (p.sizes({}),))
        columns = blocks_of(f, point, "j", machine.cores)[1]
        bytes_of_blocks.append(8 * int(point["block_k"]) * columns)
    large, small = bytes_of_blocks
    assert small <= (1 << 20) < large <= (2 << 20), bytes_of_blocks
