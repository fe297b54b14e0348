"""Which point of the search space to begin with: the default without tuning.

``default_point`` is the cheapest legal one, by the cost model (``lowering.cost``), of a few kinds of points:
register tiles first, then what is copied, orders of the loops over tiles, and last threads and blocks.
``alternatives`` are the cheapest that share work, tile registers or copy in another way: a search that
changes one parameter at a time would pass through slow points on its way to them.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from lowering.across import IN_VECTORS, turned
from lowering.ahead import PAGE
from lowering.arithmetic import accumulated, arithmetic, box_bytes, packed_elements, rows_of, turned_at
from lowering.cost import alike, cost, footprint_of, has_lines, past_caches
from lowering.dealt import PARTS, fewest_parts
from lowering.facts import (
    FEWEST_SHARED,
    Facts,
    computed_copies,
    crossed,
    facts,
    fetchable,
    follows_pages,
    follows_points,
    follows_rows,
    has_records,
    has_whole_lines,
    histogram_threads,
    is_screened,
    keeps_to_reads,
    lane_counts,
    longest_row,
    may_be_aligned,
    once,
    packable,
    read_dims,
    row_counts,
    row_dims,
    shares_rows,
    strides,
    thread_choices,
    vector_candidates,
    vector_length,
    written_past,
)
from lowering.histogram import POINTS_AHEAD, one_hot
from lowering.joined import joined_rows
from lowering.keyed import CELLS, keyed
from lowering.machine import Machine
from lowering.parameters import input_buffers, output_buffers, why_not_legal
from lowering.pieces import piece_of, tiled
from lowering.point import Point, configuration_of, is_divided, round_up, suffix_of, tile_of, tile_order
from lowering.traffic import footprint, uses
from mdh_core.expr import straight_line
from mdh_core.ir import MdhProgram
from mdh_core.lanes import lane_function, scalar_calls

_ALIKE = 2  # lines at one place of a page that may be written past the caches, see ``_past``
_WHILE = 16  # steps of a tile that are long enough for its cells to be fetched meanwhile
_TILES_OF_ROW = 4  # so many or more begin with lines: it costs one more; measured on rows of seven
_AHEAD = 1024  # bytes ahead at which rows of maps are fetched: of tiles of at least so many in each array,
_PAGES = 2 * PAGE  # bytes ahead at which pages of a row that is reduced are fetched; measured on sums
_FEWEST, _MOST = 3, 8  # and at most so many in all; 12 of three arrays took longer, measured on stencils
_OWN = 1000.0  # vector operations of a tile that is long enough to fetch its own cells, not a later one's
_PIECE = 1 / 16  # of the second cache, at most, where pieces of an output are fetched in order
_VISITS = 4, 8  # rows that a thread goes through at a time; measured on a transposed matrix-vector product
_MOST_OTHERS = 8  # alternatives to the default
_DEARER = 1.5  # times the default's cost, of alternatives
_ROWS, _TALL = 512, 4096  # of a block; of one for which another input is copied
_WHOLE_ROW = 1 << 20
_WINDOW = 16  # elements: reductions this short are windows of stencils, which slide over rows

Rows = tuple[tuple[str, int], ...]  # dimensions with their elements in the register tile
Shape = tuple[str, int, Rows, tuple[tuple[str, str], ...], int]


def default_point(
    programs: tuple[MdhProgram, ...], machine: Machine, sizes: tuple[dict[str, int], ...]
) -> Point:
    """The cost model's first choice: the cheapest of a few hand-picked kinds of points."""
    out: Point = {}
    for k, (p, n) in enumerate(zip(programs, sizes, strict=True)):
        out |= {name + suffix_of(k): value for name, value in _first_choice(p, machine, tuple(n.items()))}
    return out


@functools.lru_cache(maxsize=256)
def _first_choice(
    program: MdhProgram, machine: Machine, sizes: tuple[tuple[str, int], ...]
) -> tuple[tuple[str, int | str], ...]:
    f = facts(program, dict(sizes))
    return tuple(next((x for x in _ranked(f, machine) if _is_legal(f, machine, x)), {}).items())


@functools.lru_cache(maxsize=64)
def alternatives(
    program: MdhProgram, machine: Machine, sizes: tuple[tuple[str, int], ...]
) -> tuple[tuple[tuple[str, int | str], ...], ...]:
    """Of other ways to share work, to tile registers and to copy the cheapest each, the cheapest first.

    At most ``_MOST_OTHERS``, as items of points; none that takes ``_DEARER`` times as long by the model.
    """
    f, default = facts(program, dict(sizes)), dict(_first_choice(program, machine, sizes))
    found: list[Point] = []
    seen: set[tuple[object, ...]] = set()
    limit = _DEARER * cost(f, machine, default) if default else 0.0
    for x in (default, *_ranked(f, machine)) if default else ():
        new = _ways(x) - seen
        if len(found) > _MOST_OTHERS or cost(f, machine, x) > limit:
            break
        if new and _is_legal(f, machine, x):
            seen |= new
            found.append(x)
    return tuple(tuple(x.items()) for x in found[1:])


@functools.lru_cache(maxsize=64)
def sharings(
    program: MdhProgram, machine: Machine, sizes: tuple[tuple[str, int], ...]
) -> tuple[tuple[tuple[str, int | str], ...], ...]:
    """The cheapest point of each choice of dimensions for threads, as items, the cheapest first.

    None that takes ``_DEARER`` times as long as the default by the model.
    """
    f, found = facts(program, dict(sizes)), dict[object, Point]()
    for x in _ranked(f, machine):
        if x.get("threads") not in found and _is_legal(f, machine, x):
            found[x.get("threads")] = x
    limit = _DEARER * min((cost(f, machine, x) for x in found.values()), default=0.0)
    return tuple(tuple(x.items()) for x in found.values() if cost(f, machine, x) <= limit)


def _ways(point: Point) -> set[tuple[object, ...]]:
    """How a point shares work, tiles registers, and copies."""
    tile = (n for n in point if n in ("vector", "lanes") or n.startswith("rows_"))
    packs = (n for n in point if n.startswith("pack_"))
    return {tuple((n, point[n]) for n in names) for names in (("threads",), tile, packs)}


def _is_legal(f: Facts, machine: Machine, point: Point) -> bool:
    return why_not_legal(configuration_of(f, machine, point), f.program, machine.model) is None


@once
def _ranked(f: Facts, machine: Machine) -> list[Point]:
    """Points worth comparing, the cheapest first: register tiles, then orders, then threads and blocks."""
    form = one_hot(f.program)
    if form is not None:
        shared = follows_points(f, form, machine)
        points: list[Point] = []
        for d in histogram_threads(f, form):
            for ahead in POINTS_AHEAD if d == shared else (0,):
                points.append({"threads": d} | ({"ahead": ahead} if shared else {}))
        return sorted(points, key=lambda x: cost(f, machine, x))

    @functools.cache
    def made(seed: _Seed) -> Point:
        return _seed(f, machine, seed)

    first, *others = (threads[:8] if (threads := thread_choices(f)) else ("",))
    begun = (_WHOLE_ROW, 128) if crossed(f) else (256,)  # of what is turned, blocks may be short or long
    found = [_Seed(first, *shape, longest=n) for shape in _shapes(f, machine) for n in begun]

    def quickly(seed: _Seed) -> float:
        found = arithmetic(f, machine, made(seed), even=True)
        return found.seconds + found.copied / found.balance

    found = sorted(dict.fromkeys(found), key=quickly)[:192]
    likely = found[:48]  # whose memory may be slow only as what is read one by one is not copied yet

    @functools.cache
    def cost_of(values: tuple[tuple[str, int | str], ...], even: bool) -> float:
        return cost(f, machine, dict(values), even)

    def best(seeds: Sequence[_Seed], count: int, even: bool = True) -> list[_Seed]:
        """Seeds differ more often than the points that are made from them."""
        found = dict.fromkeys(seeds)
        return sorted(found, key=lambda x: cost_of(tuple(made(x).items()), even))[:count]

    found = best(found, 24)
    orders = range(min(math.factorial(len(f.cc)), 6))
    found = list(dict.fromkeys((*found, *likely)))
    found = best([replace(x, packed=packed) for x in found for packed in _with_singles(f, x)], 24)
    ordered = (best([replace(x, order=n) for n in (orders if x.packed else (0,))], 2) for x in found)
    found = best([x for seeds in ordered for x in seeds], 12)
    longest: tuple[int, ...] = (256,)
    if f.cc and any(f.sizes[d] > 256 for d in f.pw):
        longest = (8, 32, 64, 128, 256, 512, 1024)
    elif not f.pw:
        longest = (512, 128, 64) if len(f.cc) > 2 or crossed(f) else (512,)
        longest += (_WHOLE_ROW,) if crossed(f) else ()
    found = [
        replace(y, widest=w, tallest=tall, parts=parts, visit=visit)
        for x, t, n in itertools.product(found, (first, *others), longest)
        if not (has_records(f) and x.vector != "-" and t in f.pw)
        for y in (replace(x, threads=t, longest=n),)
        for (w, visit), tall, parts in itertools.product(
            (*((n, 0) for n in _widest(f, y)), *_visits(f, machine, y)), _tallest(f, y), _parts(f, t)
        )
    ]
    return [made(x) for x in best(found, len(found), even=False)] or [{}]


def _widest(f: Facts, seed: _Seed) -> tuple[int, ...]:
    """Blocks of the vector dimension: long ones where what is read along it is read where it is.

    The longest first: the model sees no more than the sizes to tune for, those at run time may be longer.
    """
    copied = any(seed.vector in read_dims(f, b) for b, choice in seed.packed if choice != "no")
    if not f.pw or copied:
        return (512,)
    return tuple(n for n in (4096, 2048, 512) if n == 512 or n // 4 < f.sizes.get(seed.vector, 0))


def _tallest(f: Facts, seed: _Seed) -> tuple[int, ...]:
    """Blocks of dimensions of rows: long ones, too, where another input is copied once for each of them.

    Panels and rows are copied once per tile, however long blocks are.
    """
    copied = [(choice, read_dims(f, b)) for b, choice in seed.packed if choice != "no"]
    shared = seed.threads.split(",")
    for d in f.cc if f.pw else ():
        if d == seed.vector or d in shared or f.sizes[d] <= _ROWS:
            continue
        if any(d not in own for _, own in copied) and all(d not in own or c != "block" for c, own in copied):
            return (_ROWS, _TALL)
    return (_ROWS,)


def _parts(f: Facts, threads: str) -> tuple[int, ...]:
    """Of a core's share of uneven work, per dimension that threads share: with two, a few are many enough."""
    uneven = any(_is_uneven(f, d) for d in threads.split(",") if d in f.cc)
    return (PARTS, PARTS // 2) if uneven and "," in threads else (PARTS,)


def _visits(f: Facts, machine: Machine, seed: _Seed) -> list[tuple[int, int]]:
    """Blocks of the vector dimension, and rows with all their cells: what comes from memory is in long runs.

    A thread's cells stay in a quarter of its second cache meanwhile.
    """
    if seed.threads not in f.pw or seed.vector not in f.cc or footprint_of(f) <= machine.last:
        return []
    cell = sum(t.size for t in f.program.component_types)
    return [(max(*_widest(f, seed), machine.l2 // (4 * cell)), n) for n in _VISITS]


@dataclass(frozen=True, slots=True)
class _Seed:
    """What a point is made from.

    rows      elements of the register tile in dimensions of rows
    packed    inputs that are copied, and how much at once (see ``lowering.point``)
    unrolled  how many of the innermost short reduced dimensions are written out
    longest   elements of a block of a reduced dimension, or of one of a map's between threads and vectors
    widest    elements of a block of the vector dimension
    tallest   elements of a block of a reduction's dimension of rows
    parts     of a core's share of work that blocks may divide unevenly
    visit     elements that a thread goes through at a time of a reduced dimension that threads share; 0: all
    """

    threads: str
    vector: str
    lanes: int
    rows: Rows
    packed: tuple[tuple[str, str], ...]
    unrolled: int
    order: int = 0
    longest: int = 256
    widest: int = 512
    tallest: int = _ROWS
    parts: int = PARTS
    visit: int = 0


def _shapes(f: Facts, machine: Machine) -> Iterator[Shape]:
    """Every vector dimension with usual register tiles, inputs copied or not."""
    v = vector_length(f, machine)
    small = [d for d in f.pw if 1 < f.sizes[d] <= 8 and not keeps_to_reads(f)]
    unrolled = min(len(small), 2) if math.prod(f.sizes[d] for d in small[-2:]) <= 64 else min(len(small), 1)
    for vector in vector_candidates(f):
        lanes = [1] if vector == "-" else [n for n in lane_counts(f, v) if n <= max(f.sizes[vector], 4)]
        packs = _packs(f, vector) if vector != "-" and f.pw and not has_records(f) else [()]
        for width, rows, names in itertools.product(lanes or [v], _row_shapes(f, machine, vector), packs):
            held = math.prod(n for _, n in rows) * max(1, width // v) * accumulated(f)
            turns = turned(f.program, vector, width, dict(rows), f.lane_bytes)
            if rows and held > machine.registers - 4 and not turns:  # these are stored one after the other
                continue
            single = {a.buffer for a, s in strides(f, vector) if s == 0}  # read one by one, not in vectors
            for choice in ("block", "panel") if names else ("no",):
                packed = tuple((b, "panel" if b in single else choice) for b in names)
                yield from ((vector, width, rows, packed, n) for n in range(unrolled + 1))


def _row_shapes(f: Facts, machine: Machine, vector: str) -> Iterator[Rows]:
    """Rows in one dimension or in two, whose operands are then shared in both.

    Rows that share nothing are read side by side where a core waits at the end of each small page.
    """
    beside = vector in f.pw and not machine.huge_pages
    dims = [d for d in reversed(row_dims(f)) if d != vector and (beside or shares_rows(f, d))]
    yield ()
    if vector in f.pw and is_screened(f.program):
        return  # row by row
    for d in dims:
        yield from (((d, n),) for n in row_counts(f, d))
    for a, b in itertools.combinations(dims, 2):
        yield from (((a, n), (b, m)) for n in row_counts(f, a) for m in row_counts(f, b) if max(n, m) < 8)


def _packs(f: Facts, vector: str) -> list[tuple[str, ...]]:
    """Inputs to copy: those that are strided in the vector dimension; of those whose vectors are used again
    none, one or all.
    """
    strided, again = [], []
    for a, s in strides(f, vector):
        if packable(f, a.buffer):
            if s not in IN_VECTORS:
                strided.append(a.buffer)
            elif s and any(f.sizes[d] > 1 and not any(x.coefficient(d) for x in a.index) for d in f.cc):
                again.append(a.buffer)
    choices = [tuple(strided), tuple(dict.fromkeys((*strided, *again)))]
    choices += [(*strided, b) for b in dict.fromkeys(again) if b not in strided]
    choices += [tuple(dict.fromkeys((*names, *computed_copies(f)))) for names in choices]
    return list(dict.fromkeys(choices))


def _with_singles(f: Facts, seed: _Seed) -> list[tuple[tuple[str, str], ...]]:
    """Its copies; and with them those of inputs that are read one by one, of as much as pays."""
    found = [seed.packed]
    if seed.vector == "-" or not f.pw or has_records(f):
        return found
    single = {a.buffer: a.index for a, s in strides(f, seed.vector) if s == 0 and packable(f, a.buffer)}
    for choice in ("panel", "block", "row"):
        copied = dict(seed.packed)
        for b, index in sorted(single.items()):
            several = len({n for x in index for n in x.names} & set(f.cc)) > 1
            copied[b] = choice if several else "panel"
        found.append(tuple(copied.items()))
    return list(dict.fromkeys(found))


def _seed(f: Facts, machine: Machine, seed: _Seed) -> Point:
    threads, vector, lanes, rows = seed.threads, seed.vector, seed.lanes, dict(seed.rows)
    packed, order, unrolled = dict(seed.packed), seed.order, seed.unrolled
    longest, widest = seed.longest, seed.widest
    point: Point = {
        "threads": threads,
        "vector": vector,
        "lanes": 1 if vector == "-" else lanes,
        "order": order,
    }
    point |= {f"rows_{d}": rows.get(d, 1) for d in reversed(row_dims(f))}
    shared = threads.split(",")
    # blocks of what is turned are short: all of their rows are found again, pages too
    turns = bool(turned_at(f, point))
    slides = all(f.sizes[d] <= _WINDOW for d in f.pw) and not turns
    for d in f.cc:
        n, tile = f.sizes[d], tile_of(point, d)
        if d in shared:
            per_core = -(-n // machine.cores) if len(shared) == 1 or d == shared[0] else n
            longest_part = (widest if d == vector else 512) if f.pw else max(64, per_core)
            target = min(per_core, longest_part)
            if _is_uneven(f, d):
                target = max(1, per_core // _dealt(f, machine, d, seed.parts))
            pieces = max(1, round(per_core / max(target, 1)))
            block = round_up(-(-per_core // pieces), tile) if per_core >= tile else tile
            if is_divided(f, d):  # threads get equal parts, no longer than that
                block = longest_part // tile * tile if f.pw else round_up(longest_part, tile)
            point[f"block_{d}"] = max(tile, block)
        else:
            row = widest if d == vector and not turns else seed.tallest if f.pw else longest
            if slides and (d == vector or len(f.cc) < 3 or f.pw):
                row = longest_row(f, machine.l2, d)
            block = round_up(min(n, row), tile) if seed.visit else row // tile * tile
            point[f"block_{d}"] = max(tile, min(round_up(n, tile), block))
    for d in f.pw:
        n = f.sizes[d]
        written_out = unrolled > 0 and 1 < n <= 8 and d in f.pw[-unrolled:] and not packed
        point[f"unroll_{d}"] = n if written_out else 1
        point[f"block_{d}"] = 0
        if f.cc and n > FEWEST_SHARED:
            point[f"visit_{d}"] = 0
        if has_records(f) and vector != "-":
            continue
        if d in shared:
            point[f"block_{d}"] = max(1, min(65536, -(-n // (4 * machine.cores))))
            if f"visit_{d}" in point and seed.visit < int(point[f"block_{d}"]):
                point[f"visit_{d}"] = seed.visit
        elif f.cc and n > 512 and len(f.pw) == 1 and len(f.cc) > 1:
            point[f"block_{d}"] = -(-n // -(-n // longest))  # equal blocks
        elif packed and n > 1:
            point[f"block_{d}"] = min(n, longest)  # a constant extent for the copies
    for b in input_buffers(f.program):
        if f.pw and packable(f, b):
            point[f"pack_{b}"] = packed.get(b, "no")
    point |= {f"past_{b}": _past(f, machine, b, point) for b in written_past(f, machine)}
    if follows_rows(f, machine):
        several = vector != "-" and rows_of(f, point) >= _FEWEST and _streams(f, point) <= _MOST
        point["ahead"] = _AHEAD if several else 0
    elif follows_pages(f, machine):
        waits = vector in f.pw and rows_of(f, point) == 1 and not machine.huge_pages
        point["ahead"] = _PAGES if waits else 0
    if may_be_aligned(f):
        tiles = int(point.get(f"block_{vector}", 0)) / tile_of(point, vector) if vector != "-" else 0
        point["aligned"] = int(tiles >= _TILES_OF_ROW)
    if keyed(f.program) is not None:
        point["table"] = int(math.prod(f.sizes[d] for d in f.cc) >= CELLS)
    steps = math.prod(int(point[f"block_{d}"]) or f.sizes[d] for d in f.pw)
    operations = steps * rows_of(f, point) * max(1.0, lanes / vector_length(f, machine))
    fetched = 0 if steps < _WHILE or set(shared) & set(f.pw) else 1 if operations >= _OWN else 5
    past = past_caches(f, point)  # whose cells need not be near
    point |= {f"fetch_{b}": 0 if b in past else fetched for b in fetchable(f)}
    for b in fetchable(f):
        if point[f"fetch_{b}"] == 5 and _has_pieces(f, machine, b, point):
            point[f"fetch_{b}"] = 6
    return _fitting(f, point) if packed else point


def _has_pieces(f: Facts, machine: Machine, buffer: str, point: Point) -> bool:
    """Whether results of a tile lie apart, but pieces of several tiles are cells that follow each other.

    Two pieces, what is there and what comes, then are near.
    """
    index, *others = (s.index for s in f.program.out.stores if s.buffer == buffer)
    tiles, tile = tiled(f, point), {d: float(tile_of(point, d)) for d in f.cc}
    piece = () if others else piece_of(index, tiles, {d for d, n in tile.items() if n > 1})
    if not piece or any(int(point[f"block_{d}"]) < f.sizes[d] for d in piece):
        return False
    at_once = math.prod(f.sizes[d] for d in piece) * tile[tiles[2]]
    if f.program.buffer(buffer).type.size * at_once > _PIECE * machine.l2:
        return False
    return footprint(uses(f)[buffer], tile, False).rows > 1


def _past(f: Facts, machine: Machine, buffer: str, point: Point) -> int:
    """Whether an output is written past the caches; 2: a map's rows that share lines, where a tile has whole
    rows, one after the other.

    Lines that are put together from two vectors stay whole where few of them lie at the same place of a page:
    with three, such stores took three times as long as others (measured on a copy, AMD, AVX2).
    """
    vector = str(point["vector"])
    if not has_lines(f, point) or alike(f, machine, buffer, point) > _ALIKE:
        return 0
    if has_whole_lines(f, buffer, vector):
        return 1
    row, after = joined_rows(f.program, buffer) or ("", "")
    if row != vector or tile_of(point, after) > 1:
        return 0
    if int(point[f"block_{row}"]) < f.sizes[row]:
        return 0
    inner = tile_order(f, int(point.get("order", 0)))
    return 2 if inner[-2:] == (after, row) else 0


def _dealt(f: Facts, machine: Machine, d: str, most: int) -> int:
    """Parts of a core's share of uneven work: so many that threads end at about the same time."""
    if _takes_its_time(f):
        return most
    return min(most, fewest_parts(f, d, machine.cores))


@once
def _is_uneven(f: Facts, d: str) -> bool:
    """Whether equal blocks of a dimension may cost very different times.

    The domain's border depends on it, or the scalar function loops or calls.
    """
    return any(c.value.coefficient(d) for c in f.program.hom.domain) or _takes_its_time(f)


@once
def _takes_its_time(f: Facts) -> bool:
    """Whether the scalar function loops or calls; a call of what is one expression costs what that does."""
    return scalar_calls(f.program) or not straight_line(lane_function(f.program).body)


def _fitting(f: Facts, point: Point) -> Point:
    """Blocks halved until the packed tiles fit where they are kept."""
    copied = [b for b in input_buffers(f.program) if point.get(f"pack_{b}", "no") != "no"]
    for b in sorted(copied, key=lambda b: -box_bytes(f, point, b)):
        used = [d for d in f.cc if d in read_dims(f, b)]
        for _ in range(12):
            if point.get(f"pack_{b}", "no") == "no" or packed_elements(f, point)[b] is not None or not used:
                break
            widest = max(used, key=lambda d: int(point[f"block_{d}"]) / tile_of(point, d))
            half = round_up(-(-int(point[f"block_{widest}"]) // 2), tile_of(point, widest))
            if half >= int(point[f"block_{widest}"]):
                break
            point[f"block_{widest}"] = half
    return point


def _streams(f: Facts, point: Point) -> int:
    """Rows that a map's tile goes through side by side, but for those that are written past the caches."""
    near = [b for b in output_buffers(f.program) if not point.get(f"past_{b}", 0)]
    return rows_of(f, point) * (len(input_buffers(f.program)) + len(near))
