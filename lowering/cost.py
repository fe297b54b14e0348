"""The cost model: what a point of the search space should take.

Seconds are the longer of computing (``lowering.arithmetic``) and memory: bytes of all buffers over the
bandwidth of each cache; copies and strided reads are added.  Good for ordering points, not for reporting.
``lowering.choice`` makes the default of it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from lowering.ahead import first_rows
from lowering.arithmetic import arithmetic, is_sorted_out, operations, rows_of, shared_by_rows, turned_at
from lowering.facts import (
    Facts,
    bytes_read_once,
    facts,
    has_border,
    late_bytes,
    may_be_aligned,
    once,
    packable,
    stored_bytes,
    stores_in_vectors,
    strides,
    vector_length,
)
from lowering.histogram import OneHot, one_hot
from lowering.machine import LINE, Machine
from lowering.parameters import output_buffers
from lowering.point import Point, Value, blocks_of, dims_around, own_values, steps_of, tile_of, tile_order
from lowering.traffic import USED, WAY, Moved, aliased, bytes_of, footprint, moved, uses
from mdh_core.ir import MdhProgram, read_buffers

_NEAR_RUN, _FAR_RUN = 1e-9, 1e-8  # seconds per run of neighbours that comes into a first or second cache
_MEMORY_RUN = 1e-7  # the same for a run that comes from memory: a page to open, and to look up
_SORTED = 5e-11  # seconds per element of those that compilers sort into vectors; measured on pixels
_TURNED = 5e-11  # seconds per element that is turned in registers; measured on transpositions
_SIDE_BY_SIDE = 3  # rows of a map whose reads of one line cost as one; measured on transpositions
_BESIDE = 0.25  # of the other times is not hidden behind the longest
_STREAMED = 0.8  # of the time that copies take from the last cache is hidden by itself; measured on products
_PIECE = 4e-9  # seconds per run of neighbours that a tile's results are in memory
_ASKED, _SCALAR = 1.5e-9, 4e-10  # seconds per tile, and per point on a border; measured on a map
_VISIT = 5e-10  # seconds per vector that a visit of a tile begins and ends with
_APART = 4  # neighbouring lines with which it is harmless that rows are at one place of their pages
_FEW_ROWS, _ROW = 12, 1e-10  # seconds for each row of more that a tile walks through; measured on products
_HALVED = 1.2  # what is written past the caches costs where two lines are at one place; measured, AVX2
_FOLLOWED, _STREAM = 16, 0.015  # rows that maps go through at once; of memory's time for each more, AVX2
_WIDE_STREAM = 0.0075  # the same with vectors of a line, of rows that are touched; measured on two stencils
_FETCHED = 0.87  # what is left of memory's time where rows of maps are fetched ahead; measured on stencils
_PLACES = {1: 1.12, 2: 1.03}  # memory's time where a thread reads at so few places at once; measured on sums
_LONGER = 0.05  # of memory's time for each line of more that a tile reads of a row at once: more than was
# measured on sums (0.02), as runs into the first cache, which short ones are more of, count for themselves
_WALKED = 0.02  # the same where a thread's tiles follow each other along whole rows
_ACROSS = 1e-10  # seconds for a vector across two lines; measured on stencils with vectors of a line
_SEAM = 3e-8  # seconds per line that two threads write, each a part; measured on stencils with 16 cores
_TURN = 3e-7  # seconds where the parts of two threads meet in results that come from memory: hardware fetches
# on into the other's; measured on an array that two threads update in turns of 8 and of 24 KiB
_LATE = 5e-10  # seconds for a line of a histogram's operands that was not fetched; measured with weights
_FEW_STEPS = 600  # points of reduced dimensions up to which constants for the sizes pay


def estimate(
    programs: tuple[MdhProgram, ...],
    machine: Machine,
    sizes: tuple[dict[str, int], ...],
    point: Point,
) -> float:
    """Seconds, roughly: good for ordering points, not for reporting."""
    return sum(
        _seconds(facts(p, n), machine, tuple(own_values(point, k).items()))
        for k, (p, n) in enumerate(zip(programs, sizes, strict=True))
    )


@once
def _seconds(f: Facts, machine: Machine, values: tuple[tuple[str, Value], ...]) -> float:
    """Of one program; most points that are asked for differ in another one of their nest."""
    return cost(f, machine, dict(values))


def cost(f: Facts, machine: Machine, point: Point, even: bool = False) -> float:
    """Seconds of one program at a point: the slower of computing and memory, and what they add.

    ``even``: as if all parts that threads get were equal.
    """
    form = one_hot(f.program)
    if form is not None:
        return _histogram_cost(f, form, machine, point)
    made = arithmetic(f, machine, point, even)
    packs, copied, balance, works = made.packs, made.copied, made.balance, made.works
    vector, lanes, v = str(point.get("vector", "-")), int(point.get("lanes", 1)), vector_length(f, machine)
    rows = rows_of(f, point)
    live = rows * max(1, lanes // v)
    (near, far, whole_arrays), past = _moved(f, machine, point, packs)
    blocked = any(0 < int(point.get(f"block_{d}", 0)) < f.sizes[d] for d in f.pw)
    if blocked and f.cc and None in f.program.out.initial:  # unfinished cells are kept elsewhere
        copied += 2e-6 + math.prod(f.sizes[x] for x in f.cc) * 2e-9
    for d in set(str(point.get("threads", "")).split(",")) & set(f.pw):
        slots = -(-f.sizes[d] // max(1, int(point.get(f"block_{d}", 0))))
        cells = math.prod(f.sizes[x] for x in f.cc)
        copied += 2e-6 + slots * cells * 2e-9 if f.cc else 0.0  # every part has results of its own
    memory = max(footprint_of(f), whole_arrays.total * made.busy + past)
    memory /= machine.bandwidth_of(balance)
    if footprint_of(f) > machine.last:
        memory += whole_arrays.runs * _MEMORY_RUN
    if point.get("ahead") and not f.pw and works:
        memory *= _FETCHED
    if f.pw and footprint_of(f) > machine.last and not machine.huge_pages:
        memory *= _PLACES.get(round(_rows_at_once(f, point)), 1.0)
    passes = vector in f.cc and bytes_read_once(f, vector) > machine.l3 and stored_bytes(f) <= machine.l2
    visited = any(steps_of(point, d) < int(point.get(f"block_{d}", 0)) for d in f.pw)
    if f.pw and passes:  # all but results, which stay near, comes from memory in runs
        lines = tile_of(point, vector) * f.lane_bytes / LINE
        memory *= 1.0 + (_WALKED if visited else _LONGER) * max(0.0, lines - 1.0)
    if any(alike(f, machine, b, point) > 1 for b in past_caches(f, point)):
        memory *= _HALVED
    strided, sorted_out = 0.0, is_sorted_out(f, point)
    inner = vector if vector != "-" else (f.pw or f.cc or f.ps or ("-",))[-1]
    turns = turned_at(f, point)
    strided += len(turns) * f.points * _TURNED
    for k, (a, s) in enumerate(strides(f, inner)):
        if s not in (0, 1) and packs[a.buffer] is None and k not in turns:
            reversed_too = works and s == -1  # a vector, and two instructions that turn it around
            each = 0.6e-9 / v if reversed_too else 1e-9
            if sorted_out:  # best of all in loops of any length
                each = _SORTED * (1.0 if vector == "-" else 1.1)
            shared = shared_by_rows(f, a, point)
            if not (f.pw or f.ps):  # in a loop over lanes that compilers do not make vectors of
                shared = min(shared, _SIDE_BY_SIDE) if works or vector == "-" else 1
            strided += f.points / shared * each
    region = 5e-6 if point.get("threads") and f.points > 1 << 15 else 0.0
    last = far.total / machine.l3_bandwidth + far.runs * _FAR_RUN
    if not f.pw:  # nothing to do meanwhile: a core waits for lines of both kinds; measured on stencils
        followed, many = far.total, 0.0
        apart = not (past or f.ps) and read_buffers(f.program).isdisjoint(output_buffers(f.program))
        if apart and footprint_of(f) > machine.l2 * made.busy:  # what comes again is waited for in turn
            beside, followed = _followed(f, machine, point)
            followed, many = max(followed, far.total), _WIDE_STREAM * max(0, beside - _FOLLOWED)
            last += (followed - far.total) / machine.l3_bandwidth
            copied += _broken_rows(f, point) * _FAR_RUN
        memory += max(0.0, followed - whole_arrays.total) / machine.l3_bandwidth
        if machine.vector_bytes < LINE:
            many = _STREAM * max(0.0, _rows_at_once(f, point) - _FOLLOWED)
        memory, last = memory * (1.0 + many), last * (1.0 + many)
    times = (made.seconds, near.total / machine.l2_bandwidth, max(memory, last))
    slowest = max(times)
    if works and has_border(f):  # every tile is asked, and at both ends of a row is one in scalars
        copied += f.points / (rows * lanes) * _ASKED
        copied += f.points * min(1.0, 2 * lanes / max(1, f.sizes[vector])) * _SCALAR
    if f.pw:
        blocks = ((max(1, f.sizes[d]), steps_of(point, d)) for d in f.pw)
        visits = math.prod(max(1.0, n / (block or n)) for n, block in blocks)
        visits *= math.prod(max(1, f.sizes[d]) / tile_of(point, d) for d in f.cc)
        visits *= f.points / max(1, math.prod(f.sizes.values()))  # of a box, those that have points
        copied += visits * (live if works else rows) * _VISIT
        if vector in f.cc and not passes and footprint_of(f) > machine.last:
            copied += visits * _pieces(f, machine, point) * _PIECE
        if works and vector in f.pw:  # the lanes of every cell are combined
            copied += visits * rows * v * 1e-9
        if works and vector in f.cc and _is_apart(f, vector):  # results are written lane by lane
            copied += visits * rows * lanes * 1e-9
        if f.cc:
            copied += _rows_walked(f, point, packs) * _ROW
    copied += _seams(f, machine, point) * _SEAM
    if stored_bytes(f) > machine.last:
        copied += _turns(f, machine, point) * _TURN
    if works and may_be_aligned(f):
        copied += _across_lines(f, machine, point) * _ACROSS
    added = near.runs * _NEAR_RUN + (strided + copied) / balance + region
    others = sum(times) - slowest
    if f.pw:  # the lines of copies follow each other
        others -= _STREAMED * min(far.copied / machine.l3_bandwidth, last, made.seconds)
    return slowest + _BESIDE * others + added


def _across_lines(f: Facts, machine: Machine, point: Point) -> float:
    """Vectors across two lines that begin where those of the first store do; aligned, what is computed twice.

    How rows lie is not known: they may begin anywhere in a line.
    """
    vector, v = str(point["vector"]), vector_length(f, machine)
    indices = [*(s.index for s in f.program.out.stores), *(a.index for a in f.program.inp.accesses)]
    columns = [index[-1].const for index in indices if index]
    same = columns.count(columns[0])
    if point.get("aligned"):
        blocks = max(1.0, f.sizes[vector] / max(1, int(point.get(f"block_{vector}", 0))))
        return f.points / f.sizes[vector] * blocks * int(point["lanes"]) / v * same
    return f.points / v * same * (machine.vector_bytes - f.lane_bytes) / LINE


def _seams(f: Facts, machine: Machine, point: Point) -> int:
    """Lines of results of which two threads write a part each: where they share a row of unaligned parts."""
    total = 0
    shared = [d for d in str(point.get("threads", "")).split(",") if d in f.cc]
    for s in f.program.out.stores:
        size, pitches = f.program.buffer(s.buffer).type.size, uses(f)[s.buffer].pitches
        for d in (x for x in shared if s.index and abs(s.index[-1].coefficient(x)) == 1):
            parts, elements = blocks_of(f, point, d, machine.cores)
            if any(n % LINE for n in (elements * size, s.index[-1].const * size, *pitches[-2:-1])):
                total += (parts - 1) * math.prod(f.sizes[x] for x in f.cc if x != d)
    return total


def _turns(f: Facts, machine: Machine, point: Point) -> int:
    """How often another thread's results follow in memory: in every row, plane and so on around a dimension
    that threads share, as each has a part that lies together.
    """
    total = 0
    for s in f.program.out.stores:
        axes = enumerate(s.index)  # the outermost of the array first
        places = {d: (axis, -abs(n)) for axis, index in axes for d, n in index.terms}
        cores = machine.cores
        for d in str(point.get("threads", "")).split(","):
            if d not in f.cc or d not in places:
                continue
            parts = min(cores, blocks_of(f, point, d, machine.cores)[0])
            around = (f.sizes[x] for x in f.cc if x in places and places[x] < places[d])
            total += (parts - 1) * math.prod(around)
            cores //= parts
    return total


def has_lines(f: Facts, point: Point) -> bool:
    """Whether a tile's results are stored as whole lines; else nothing goes past the caches."""
    vector = str(point.get("vector", "-"))
    if f.ps or vector == "-":
        return bool(f.ps)
    return not _is_apart(f, vector) and tile_of(point, vector) * f.lane_bytes % LINE == 0


def past_caches(f: Facts, point: Point) -> set[str]:
    """Outputs that a point has written past the caches."""
    return {b for b in output_buffers(f.program) if point.get(f"past_{b}", 0) and has_lines(f, point)}


def alike(f: Facts, machine: Machine, buffer: str, point: Point) -> float:
    """How many lines of a tile, each of more than one vector, lie at the same place of a page."""
    use, tile = uses(f)[buffer], {d: float(tile_of(point, d)) for d in f.cc}
    piece = footprint(use, tile, False)
    short = piece.lines < _APART * LINE * piece.rows
    return aliased(use, tile) if machine.vector_bytes < LINE and short else 1.0


def gains_by_constants(f: Facts, point: Point) -> bool:
    """Whether constants for the sizes make code faster (docs/performance.md has the measurements).

    With them, loops of one iteration, tests of what a tile touches, and products of strides are gone, and the
    rows of a tile are at constant distances.  That takes time around reductions of few steps (1.05 to 1.9
    times as fast), of which few are whole in a triangle (1.0 to 1.1), and in stencils and recurrences over
    arrays of several dimensions (1.0 to 1.14); not around many steps, nor in maps that read each cell once.
    Maps that fetch ahead were faster on one machine and slower on another.
    """
    if not f.pw:
        times = Counter(a.buffer for a in f.program.inp.accesses)
        neighbours = any(n > 1 and f.program.buffer(b).rank > 1 for b, n in times.items())
        recurrent = f.program.hom.dims_of("ps") and any(b.rank > 1 for b in f.program.buffers)
        return not point.get("ahead") and bool(neighbours or recurrent)
    if point.get("vector", "-") == "-":
        return False
    bounded = any(r.names & f.sizes.keys() for r in f.program.hom.domain)
    return bounded or math.prod(f.sizes[d] for d in f.pw) <= _FEW_STEPS


def _is_apart(f: Facts, vector: str) -> bool:
    return not stores_in_vectors(f, vector)


@once
def footprint_of(f: Facts) -> int:
    """Bytes of all buffers that are touched, each once."""
    total = 0
    cells: dict[str, int] = {}
    indices = [(a.buffer, a.index) for a in f.program.inp.accesses]
    indices += [(s.buffer, s.index) for s in f.program.out.stores]
    for buffer, index in indices:
        n = 1
        for a in index:
            n *= 1 + sum(abs(c) * (f.sizes.get(d, 1) - 1) for d, c in a.terms)
        cells[buffer] = max(cells.get(buffer, 0), n)
    for buffer, n in cells.items():
        total += n * f.program.buffer(buffer).type.size
    return total


def _histogram_cost(f: Facts, form: OneHot, machine: Machine, point: Point) -> float:
    """Every point finds its cell; private copies are filled and combined besides."""
    d = str(point["threads"])
    points = math.prod(n for x, n in f.sizes.items() if x not in form.cells)
    cells = math.prod(f.sizes[x] for x in f.cc)
    cores = 1 if not d else min(machine.cores, max(1, f.sizes[d]))
    copies = 2e-9 * cells * cores if d in f.pw else 0.0
    strided = 1e-9 * points if d in f.cc and f.pw else 0.0  # the reduced data are read once per thread
    late = 0.0 if point.get("ahead", 1) else _LATE * late_bytes(f, form) / LINE / cores
    return points * (1e-9 + operations(f) * 1e-10) / cores + copies + strided + late + (5e-6 if d else 0.0)


def _moved(
    f: Facts, machine: Machine, point: Point, packs: Mapping[str, float | None]
) -> tuple[tuple[Moved, ...], float]:
    """What one core brings into its first and its second cache, and into its share of the last; and the bytes
    that all cores write past them."""
    levels, panels = _levels(f, machine, point)
    inside = panels[0] if panels else 0
    tile = {d: float(tile_of(point, d)) for d in f.cc} | {d: float(point.get(f"unroll_{d}", 1)) for d in f.pw}
    found = []
    past = past_caches(f, point)
    for b, use in uses(f).items():
        if b in past:
            continue
        if packs.get(b) is not None:
            use = replace(use, packed=max(panels, default=0) + 1 - len(dims_around(f, point, b)))
        found.append(use)
    from_memory = inside if footprint_of(f) > machine.last else 0
    share = max(machine.l2, machine.last // machine.cores)
    copied = f.pw and any(packable(f, b) for b in uses(f))  # here or at points that this one is compared with
    second = int(machine.l2 * machine.own_l2) if copied else machine.l2
    caches = ((machine.l1, 0), (second, inside), (share, from_memory))
    return moved(found, tile, levels, caches, bool(f.pw)), sum(bytes_of(f)[b] for b in past)


def _rows_at_once(f: Facts, point: Point) -> float:
    """Rows that a tile goes through at once, read or written, but for those that are past the caches.

    Results of reductions are not gone through.
    """
    tile, past = {d: float(tile_of(point, d)) for d in f.cc}, past_caches(f, point)
    followed = [use for b, use in uses(f).items() if b not in past and not (f.pw and use.written)]
    return sum(footprint(use, tile, False).rows for use in followed)


def _rows_walked(f: Facts, point: Point, packs: Mapping[str, float | None]) -> float:
    """Rows apart from one another through which all tiles walk, step by step; a copy's are not apart."""
    walk = {d: float(tile_of(point, d)) for d in f.cc}
    walk |= {d: float(steps_of(point, d) or max(1, f.sizes[d])) for d in f.pw}
    walked = (use for b, use in uses(f).items() if packs.get(b) is None and use.dims & set(f.pw))
    rows = sum(n for use in walked if (n := footprint(use, walk, False).runs) > _FEW_ROWS)
    return rows * math.prod(max(1.0, f.sizes[d] / n) for d, n in walk.items())


def _followed(f: Facts, machine: Machine, point: Point) -> tuple[int, float]:
    """Rows that a map's tile goes through, and the bytes that they bring to and from one core's first cache.

    What the next tile of the innermost loop but one touches again is still there, if a tile's rows fit.
    """
    *_, along = loops = tile_order(f, int(point.get("order", 0)))
    if point.get("vector", "-") not in ("-", along):
        return 0, 0.0
    tile = {d: tile_of(point, d) for d in f.cc if d != along}
    own = math.prod(tile.values())
    results = own * len(output_buffers(f.program))
    touched = first_rows(f.program, along, (), tile)
    rows = sum(len(x.offsets) for x in touched) + results
    length = min(int(point.get(f"block_{along}", 0)) or f.sizes[along], f.sizes[along]) * f.lane_bytes
    if rows * length <= USED * machine.l1 and len(loops) > 1:
        touched = first_rows(f.program, along, loops[-2:-1], tile)
        touched = [x for x in touched if any(loops[-2] in a.names for a in x.index)]
    brought = sum(len(x.offsets) for x in touched) + 2 * results  # these are fetched before they are written
    return rows, brought / own * f.points * f.lane_bytes / machine.cores


def _broken_rows(f: Facts, point: Point) -> float:
    """Rows, shorter than a page, behind which a map does not go on with the next row of the same array.

    With several neighbouring rows in a tile, the next one comes later; hardware that follows what is read
    next to each other has to begin again.
    """
    vector, total = str(point.get("vector", "-")), 0.0
    several = [d for d in f.cc if d != vector and int(point.get(f"rows_{d}", 1)) > 1]
    for use in uses(f).values() if several and vector in f.cc else ():
        pitches = dict(zip((terms for terms, _ in use.index), use.pitches, strict=True))
        own = [p for terms, p in pitches.items() if any(d in several for d, _ in terms)]
        if any(0 < p < WAY for p in own):
            total += f.points / f.sizes[vector]
    return total


def _pieces(f: Facts, machine: Machine, point: Point) -> float:
    """In how many runs of neighbours a tile's results lie, but for those past the caches by whole lines.

    Runs shorter than a line count in parts: other tiles find the line near.
    """
    tile = {d: float(tile_of(point, d)) for d in f.cc}
    past = past_caches(f, point) if machine.vector_bytes == LINE else set()
    written = {b: use for b, use in uses(f).items() if use.written and b not in past}
    vector = str(point.get("vector", "-"))
    length = tile_of(point, vector) * f.lane_bytes if vector in f.cc else LINE
    return sum(footprint(use, tile, False).rows for use in written.values()) * min(1.0, length / LINE)


def _levels(f: Facts, machine: Machine, point: Point) -> tuple[list[tuple[str, float]], list[int]]:
    """Loops with their trips on one core, innermost first, and which of them go over the tiles of a block."""
    levels: list[tuple[str, float]] = []
    visits: list[tuple[str, float]] = []
    outer: list[tuple[str, float]] = []
    shared = str(point.get("threads", "")).split(",")
    for d in reversed(f.pw):
        n, unroll, block = f.sizes[d], int(point.get(f"unroll_{d}", 1)), int(point.get(f"block_{d}", 0))
        if 0 < block < n or d in shared:
            block, steps = block or n, steps_of(point, d) or n
            levels.append((d, max(1.0, steps / unroll)))
            visits += [(d, block / steps)] if steps < block else []
            outer.append((d, max(1.0, n / block)))
        else:
            levels.append((d, max(1.0, n / unroll)))
    first = len(levels)
    for d in reversed(tile_order(f, int(point.get("order", 0)))):
        n, tile = max(f.sizes[d], 1), tile_of(point, d)
        block = min(blocks_of(f, point, d, machine.cores)[1], max(n, tile))
        levels.append((d, max(1.0, block / tile)))
    panels = list(range(first, len(levels)))
    for d in reversed(f.cc):
        outer.append((d, max(1.0, f.sizes[d] / blocks_of(f, point, d, machine.cores)[1])))
    outer.sort(key=lambda x: x[0] in shared)
    cores = float(machine.cores)
    for k in reversed(range(len(outer))):
        d, trips = outer[k]
        if d in shared:
            outer[k] = d, max(1.0, trips / cores)
            cores = max(1.0, cores / trips)
    return [*levels, *visits, *outer], panels
