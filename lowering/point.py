"""A point of the search space as a configuration: the fifteen tuning parameters.

A *point* gives values to the parameters below; ``configuration_at`` turns it into the fifteen tuning
parameters.  The reductions of mdh.md 7 (D1 = S1 = R1, D2 = S2 = R2, whole tiles are copied) are built
in; everything else is a choice.

    threads       dimensions whose blocks are shared among threads, e.g. "i,j"
    vector        dimension whose neighbours share a vector, or "-"
    lanes         elements of that dimension computed together (a multiple of the vector length)
    rows_<d>      elements of a further cc dimension in the register tile
    unroll_<d>    elements of a reduced dimension written out
    block_<d>     elements of a block; 0 for a reduced dimension that is not blocked; at most so many where
                  threads share a concatenated one: they get equal parts (``lowering.parts``)
    visit_<d>     elements of a reduced dimension that threads share which each goes through at a time, with
                  all cells of a block, whose unfinished results are kept meanwhile; 0: all of its part
    order         number of the order of the tile loops
    pack_<b>      whether an input is copied, and how much at once: "no"; what a "block" reads; what a "row"
                  of tiles reads, along the last of its dimensions in the order of the tile loops; or what
                  one tile reads: "panel"
    past_<b>      1: an output that is larger than the last cache is written past it; 2: so are rows that
                  share lines, which are put together first
    table         1: points are summed by value, and cells look theirs up (``lowering.keyed``)
    fetch_<b>     1: what cells of an output hold is fetched while a tile computes, and joins at the end;
                  2, 3: for the next tile of the innermost loop over tiles, or of the loop around it;
                  4, 5: as 2 and 3, row by row between the steps of a tile where one loop has them;
                  6: a share of what the third loop over tiles comes to, in its order (``lowering.pieces``)
    ahead         bytes ahead at which rows that a map's tile is the first to touch are fetched, or the first
                  lines of pages of what is reduced along its rows, or operands of a histogram's
                  points; 0: not at all
    aligned       1: tiles of a map's row begin where a line of its output does, from the second one on

Layers of the model OpenMP+REG+SIMD: 0 blocks, 1 visits of a block, 2 tiles inside a block, 3 points of a
reduced dimension inside a block or a visit, 4 the register tile, 5 lanes.

Parameters of the k-th program of a nest (k > 0) have the suffix ``_atk``.
"""

from __future__ import annotations

import itertools

from lowering.facts import Facts, facts, once, read_dims
from lowering.machine import Machine
from lowering.parameters import (
    Configuration,
    Layout,
    Level,
    input_buffers,
    make,
    output_buffers,
)
from lowering.parts import constant_part, equal_parts, may_be_cut
from mdh_core.ir import Access, MdhProgram

Value = int | str
Point = dict[str, Value]
BLOCKS, VISITS, TILES, POINTS, ROWS, LANES = range(6)


def suffix_of(k: int) -> str:
    """What the names of the k-th program's parameters end in."""
    return f"_at{k}" if k else ""


def own_values(point: Point, k: int) -> Point:
    """The parameters of the k-th program, without suffix."""
    suffix = suffix_of(k)
    if suffix:
        return {n[: -len(suffix)]: v for n, v in point.items() if n.endswith(suffix)}
    return {n: v for n, v in point.items() if not _has_suffix(n)}


def _has_suffix(name: str) -> bool:
    head, _, tail = name.rpartition("_at")
    return bool(head) and tail.isdigit()


def configuration_at(
    programs: tuple[MdhProgram, ...],
    machine: Machine,
    sizes: tuple[dict[str, int], ...],
    point: Point,
) -> tuple[Configuration, ...]:
    """One configuration per program.  Parameters that a point lacks have their plainest value."""
    return tuple(
        configuration_of(facts(p, n), machine, own_values(point, k))
        for k, (p, n) in enumerate(zip(programs, sizes, strict=True))
    )


def round_up(n: int, unit: int) -> int:
    return -(-n // unit) * unit


def tile_of(point: Point, d: str) -> int:
    """Elements of a cc dimension in the register tile."""
    return int(point["lanes"] if d == point.get("vector") else point.get(f"rows_{d}", 1))


def steps_of(point: Point, d: str) -> int:
    """Elements of a reduced dimension that a tile goes through at a time; 0: all that there are."""
    block, visit = int(point.get(f"block_{d}", 0)), int(point.get(f"visit_{d}", 0))
    return visit if 0 < visit < block and d in str(point.get("threads", "")).split(",") else block


@once
def _may_be_cut(f: Facts) -> bool:
    return may_be_cut(f.program)


def blocks_of(f: Facts, point: Point, d: str, cores: int) -> tuple[int, int]:
    """How many blocks of a cc dimension there are at the sizes to tune for, and elements of the largest.

    Equal ones where threads share the dimension (``lowering.parts``).
    """
    tile, n = tile_of(point, d), max(1, f.sizes[d])
    units, most = -(-n // tile), max(1, int(point.get(f"block_{d}", 1)) // tile)
    shared = str(point.get("threads", "")).split(",")
    if d not in shared or not _may_be_cut(f):
        largest = min(max(int(point.get(f"block_{d}", 1)), tile), units * tile)
        return -(-n // largest), largest
    others = 1  # of those before
    for x in f.cc[: f.cc.index(d)]:
        others *= blocks_of(f, point, x, cores)[0] if x in shared else 1
    constant = f.program.dim(d).size.constant is not None
    each = constant_part(units, most, others, cores) if constant else None
    if each is not None:
        return -(-units // each), each * tile
    parts = equal_parts(units, most, others, cores)
    return parts, -(-units // parts) * tile


@once
def is_divided(f: Facts, d: str) -> bool:
    """Whether a block is the most that threads get at once of a dimension whose size is not known yet."""
    return d in f.cc and f.program.dim(d).size.constant is None and _may_be_cut(f)


def configuration_of(f: Facts, machine: Machine, point: Point) -> Configuration:
    model = machine.model
    names = [d.name for d in f.program.hom.dims]
    threads = set(str(point.get("threads", "")).split(","))
    vector, lanes = str(point.get("vector", "-")), int(point.get("lanes", 1))
    parts = [[1] * len(names) for _ in range(model.depth)]
    blocked: set[str] = set()
    for k, d in enumerate(names):
        if d == vector:
            parts[LANES][k] = lanes
        if d in f.cc:
            parts[ROWS][k] = int(point.get(f"rows_{d}", 1)) if d != vector else 1
            tile = parts[ROWS][k] * parts[LANES][k]
            parts[TILES][k] = round_up(int(point.get(f"block_{d}", 1)), tile) // tile
        else:
            parts[ROWS][k] = int(point.get(f"unroll_{d}", 1)) if d in f.pw else 1
            tile = parts[ROWS][k] * parts[LANES][k]
            block, visit = int(point.get(f"block_{d}", 0)), steps_of(point, d)
            if block > tile:
                parts[POINTS][k] = -(-visit // tile)
                parts[VISITS][k] = -(-block // (parts[POINTS][k] * tile))
                blocked.add(d)
            elif d in f.ps:
                parts[POINTS][k] = 4096
    order = _order(f, names, threads, blocked, vector, int(point.get("order", 0)))
    assign = []
    for layer in range(model.depth):
        row = []
        for k, d in enumerate(names):
            place = {0: model.layer("COR"), 1: 0, 2: 1, 3: 2, 4: 3, 5: 5}
            if d not in threads:
                place |= {0: 0, 1: model.layer("COR")}
            row.append((place[layer], k))
        assign.append(tuple(row))
    column = {d: k for k, d in enumerate(names)}
    start = next((lv for lv in order if _begins_accumulation(f, names, lv, threads, blocked)), None)
    memory = _memory(f, order, point, vector, machine)
    return make(
        f.program,
        model,
        tuple(tuple(row) for row in parts),
        order,
        tuple(assign),
        memory,
        start if column else None,
        tuple(b for b in output_buffers(f.program) if point.get(f"past_{b}", 0) == 1),
        tuple((b, n) for b in output_buffers(f.program) if (n := int(point.get(f"fetch_{b}", 0)))),
        bool(point.get("table", 0)),
        ahead=int(point.get("ahead", 0)),
        joined=tuple(b for b in output_buffers(f.program) if point.get(f"past_{b}", 0) == 2),
        aligned=bool(point.get("aligned", 0)),
    )


def _begins_accumulation(
    f: Facts, names: list[str], level: Level, threads: set[str], blocked: set[str]
) -> bool:
    """Results live in registers inside the tile loops: from the first innermost reduced loop on."""
    layer, k = level
    d = names[k]
    if layer == BLOCKS:
        return d in f.pw and d not in threads and d not in blocked
    return layer in (POINTS, ROWS, LANES)


def _order(
    f: Facts, names: list[str], threads: set[str], blocked: set[str], vector: str, number: int
) -> tuple[Level, ...]:
    """Blocks on threads, other blocks, tiles, reduced points, the register tile, lanes.

    Steps along lanes that are reduced come last, so that a thread's share of another reduced dimension is
    gone through row by row.
    """
    column = {d: k for k, d in enumerate(names)}
    cc = [d for d in names if d in f.cc]
    reduced = [d for d in names if d not in f.cc]
    unblocked = [d for d in reduced if d not in blocked and d not in threads and d in f.pw]
    first = [d for d in (*cc, *reduced) if d in threads]
    rest = [d for d in (*cc, *reduced) if d not in threads and d not in unblocked]
    tiles = [*tile_order(f, number), *reduced]
    order: list[Level] = [(BLOCKS, column[d]) for d in (*first, *rest)]
    order += [(VISITS, column[d]) for d in names]
    order += [(TILES, column[d]) for d in tiles]
    along = [d for d in unblocked if d == vector]
    order += [(BLOCKS, column[d]) for d in unblocked if d not in along]
    order += [(POINTS, column[d]) for d in reduced if d not in along]
    order += [(BLOCKS, column[d]) for d in along]
    order += [(POINTS, column[d]) for d in (*along, *cc)]
    order += [(ROWS, column[d]) for d in (*reduced, *cc)]
    lanes = [d for d in names if d != vector] + [d for d in names if d == vector]
    order += [(LANES, column[d]) for d in lanes]
    return tuple(order)


@once
def tile_order(f: Facts, number: int) -> tuple[str, ...]:
    """The cc dimensions in one of the orders of the tile loops."""
    inner = [d for d in f.cc if f.sizes[d] > 1]
    orders = list(itertools.islice(itertools.permutations(inner), 6)) or [()]
    return (*(d for d in f.cc if d not in inner), *orders[number % len(orders)])


def dims_around(f: Facts, point: Point, buffer: str) -> tuple[str, ...]:
    """The dimensions whose tile loops are around the copy of an input."""
    used = read_dims(f, buffer)
    tiles = tile_order(f, int(point.get("order", 0)))
    several = {d for d in used & set(tiles) if int(point.get(f"block_{d}", 1)) > tile_of(point, d)}
    own = [k for k, d in enumerate(tiles) if d in several]
    inside = {"panel": 0, "row": 1, "block": len(own)}[str(point[f"pack_{buffer}"])]  # of its own
    return tiles[: own[-1 - inside] + 1] if len(own) > inside else ()


def _memory(
    f: Facts, order: tuple[Level, ...], point: Point, vector: str, machine: Machine
) -> dict[str, tuple[int, Level, Layout]]:
    """Which inputs are packed, from which level on, in which layout."""
    out: dict[str, tuple[int, Level, Layout]] = {}
    for b in input_buffers(f.program):
        choice = point.get(f"pack_{b}", "no")
        if choice == "no":
            continue
        access = next(a for a in f.program.inp.accesses if a.buffer == b)
        region = machine.model.layer("L2" if choice == "block" else "L1")
        tiles = next(k for k, (layer, _) in enumerate(order) if layer == TILES)
        at = order[tiles + len(dims_around(f, point, b))]
        out[b] = (region, at, _layout(f, access, vector, point, choice == "panel"))
    return out


def _layout(f: Facts, access: Access, vector: str, point: Point, panel: bool) -> Layout:
    """What the steps of one tile read side by side: coordinates of other tiles first, the vectors' last.

    As they are where a copy serves one tile that reads no vectors: rows at constant distances are as good,
    and cheaper to copy.
    """
    if panel and not any(vector in x.names for x in access.index):
        return tuple(range(len(access.index)))

    def rank(t: int) -> tuple[int, int]:
        names = access.index[t].names
        if vector in names:
            return (3, t)
        if any(tile_of(point, n) > 1 for n in names if n in f.cc):
            return (2, t)
        return (1 if any(n in f.pw for n in names) else 0, t)

    return tuple(sorted(range(len(access.index)), key=rank))
