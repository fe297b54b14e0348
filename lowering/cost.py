"""The cost model: what a point of the search space should take, and which one to begin with.

Seconds are the longer of computing and memory: operations over what the vectors and the register tile can do,
bytes of all buffers over the bandwidth; copies and strided reads are added.  Good for ordering points.
``default_point`` is the cheapest legal one of a few kinds of points (``_ranked``).
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from lowering.facts import (
    IN_VECTORS,
    Facts,
    computed_copies,
    facts,
    fetchable,
    follows_rows,
    has_whole_lines,
    histogram_threads,
    in_vectors,
    is_readable_beyond,
    is_screened,
    lane_counts,
    longest_row,
    once,
    packable,
    read_dims,
    row_counts,
    row_dims,
    store_strides,
    strides,
    thread_choices,
    vector_candidates,
    vector_length,
    written_past,
)
from lowering.held import held
from lowering.histogram import OneHot, one_hot
from lowering.joined import joined_rows
from lowering.keyed import CELLS, keyed
from lowering.machine import LINE, Machine
from lowering.packs import PRIVATE_BYTES
from lowering.parameters import input_buffers, output_buffers, why_not_legal
from lowering.point import (
    Point,
    Value,
    configuration_of,
    dims_around,
    own_values,
    round_up,
    tile_of,
    tile_order,
)
from lowering.traffic import Moved, aliased, bytes_of, footprint, in_one_way, moved, uses
from mdh_core.expr import Affine, Binary, Call, ScalarType, Select, stmt_exprs, straight_line, walk
from mdh_core.ir import MdhProgram
from mdh_core.lanes import LANES, lane_function, scalar_calls

_NEAR_RUN, _FAR_RUN = 1e-9, 1e-8  # seconds per run of neighbours that comes into a first or second cache
_MEMORY_RUN = 1e-7  # the same for a run that comes from memory: a page to open, and to look up
_BESIDE = 0.25  # of the other times is not hidden behind the longest
_PIECE = 4e-9  # seconds per run of neighbours that a tile's results are in memory
_MOVED = 0.5  # of the points of a tile's second time is not hidden behind memory
_CROSSING = 2.0  # further loads that a vector across two lines costs; measured on convolutions
_HALF_CROSSING = 3.0  # the same for vectors of half a line
_CHAINS = 8  # additions that a core has under way at once
_VISIT = 5e-10  # seconds per vector that a visit of a tile begins and ends with
_ALIKE, _APART = 2, 4  # lines at one place of a page; neighbours with which that is harmless, see ``_past``
_FEW_ROWS, _ROW = 12, 1e-10  # seconds for each row of more that a tile walks through; measured on products
_HALVED = 1.2  # what such lines cost where they are two; measured on stencils, AVX2
_FETCHED = 0.87  # what is left of memory's time where rows of maps are fetched ahead; measured on stencils
_ADDRESSES = 9  # that registers hold beside counters and sizes; measured on convolutions
_WHILE = 16  # steps of a tile that are long enough for its cells to be fetched meanwhile
_AHEAD = 1024  # bytes ahead at which rows of maps are fetched: of tiles of at least so many in each array,
_FEWEST, _MOST = 3, 8  # and at most so many in all; 12 of three arrays took longer, measured on stencils
_FEW_STEPS = 600  # points of reduced dimensions up to which constants for the sizes pay
_OWN = 1000.0  # vector operations of a tile that is long enough to fetch its own cells, not a later one's
_WINDOW = 16  # elements: reductions this short are windows of stencils, which slide over rows

Rows = tuple[tuple[str, int], ...]  # dimensions with their elements in the register tile


def default_point(
    programs: tuple[MdhProgram, ...], machine: Machine, sizes: tuple[dict[str, int], ...]
) -> Point:
    """The cost model's first choice: the cheapest of a few hand-picked kinds of points."""
    out: Point = {}
    for k, (p, n) in enumerate(zip(programs, sizes, strict=True)):
        suffix = "" if k == 0 else f"_at{k}"
        out |= {name + suffix: value for name, value in _first_choice(p, machine, tuple(n.items()))}
    return out


@functools.lru_cache(maxsize=256)
def _first_choice(
    program: MdhProgram, machine: Machine, sizes: tuple[tuple[str, int], ...]
) -> tuple[tuple[str, int | str], ...]:
    f = facts(program, dict(sizes))
    return tuple(next((x for x in _ranked(f, machine) if _is_legal(f, machine, x)), {}).items())


def _is_legal(f: Facts, machine: Machine, point: Point) -> bool:
    return why_not_legal(configuration_of(f, machine, point), f.program, machine.model) is None


def _ranked(f: Facts, machine: Machine) -> list[Point]:
    """Points worth comparing, the cheapest first: register tiles, then orders, then threads and blocks."""
    form = one_hot(f.program)
    if form is not None:
        points: list[Point] = [{"threads": d} for d in histogram_threads(f, form)]
        return sorted(points, key=lambda x: _cost(f, machine, x))

    @functools.cache
    def made(seed: _Seed) -> Point:
        return _seed(f, machine, seed)

    first, *others = (threads[:8] if (threads := thread_choices(f)) else ("",))
    found = [_Seed(first, *shape) for shape in _shapes(f, machine)]

    def quickly(seed: _Seed) -> float:
        found = _arithmetic(f, machine, made(seed))
        return found.seconds + found.copied / found.balance

    found = sorted(dict.fromkeys(found), key=quickly)[:192]
    likely = found[:48]  # whose memory may be slow only as what is read one by one is not copied yet

    def best(seeds: Sequence[_Seed], count: int) -> list[_Seed]:
        return sorted(dict.fromkeys(seeds), key=lambda x: _cost(f, machine, made(x)))[:count]

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
        longest = (512, 128, 64) if len(f.cc) > 2 else (512,)
    found = [
        replace(x, threads=t, longest=n, widest=w)
        for x, t, n in itertools.product(found, (first, *others), longest)
        for w in _widest(f, x)
    ]
    return [made(x) for x in best(found, len(found))] or [{}]


def _widest(f: Facts, seed: _Seed) -> tuple[int, ...]:
    """Blocks of the vector dimension: long ones where what is read along it is read where it is."""
    copied = any(seed.vector in read_dims(f, b) for b, choice in seed.packed if choice != "no")
    if not f.pw or copied:
        return (512,)
    return tuple(n for n in (512, 2048, 4096) if n == 512 or n // 4 < f.sizes.get(seed.vector, 0))


@dataclass(frozen=True, slots=True)
class _Seed:
    """What a point is made from.

    rows      elements of the register tile in dimensions of rows
    packed    inputs that are copied, and how much at once (see ``lowering.point``)
    unrolled  how many of the innermost short reduced dimensions are written out
    longest   elements of a block of a reduced dimension, or of one of a map's between threads and vectors
    widest    elements of a block of the vector dimension
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


Shape = tuple[str, int, Rows, tuple[tuple[str, str], ...], int]


def _shapes(f: Facts, machine: Machine) -> Iterator[Shape]:
    """Every vector dimension with usual register tiles, inputs copied or not."""
    v = vector_length(f, machine)
    small = [d for d in f.pw if 1 < f.sizes[d] <= 8]
    unrolled = min(len(small), 2) if math.prod(f.sizes[d] for d in small[-2:]) <= 64 else min(len(small), 1)
    for vector in vector_candidates(f):
        lanes = [1] if vector == "-" else [n for n in lane_counts(f, v) if n <= max(f.sizes[vector], 4)]
        packs = _packs(f, vector) if vector != "-" and f.pw else [()]
        for width, rows, names in itertools.product(lanes or [v], _row_shapes(f, vector), packs):
            if rows and math.prod(n for _, n in rows) * max(1, width // v) > machine.registers - 4:
                continue
            single = {a.buffer for a, s in strides(f, vector) if s == 0}  # read one by one, not in vectors
            for choice in ("block", "panel") if names else ("no",):
                packed = tuple((b, "panel" if b in single else choice) for b in names)
                yield from ((vector, width, rows, packed, n) for n in range(unrolled + 1))


def _row_shapes(f: Facts, vector: str) -> Iterator[Rows]:
    """Rows in one dimension or in two, whose operands are then shared in both."""
    dims = [d for d in reversed(row_dims(f)) if d != vector]
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
    if seed.vector == "-" or not f.pw:
        return found
    single = {a.buffer: a.index for a, s in strides(f, seed.vector) if s == 0 and packable(f, a.buffer)}
    for choice in ("panel", "row", "block"):
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
    slides = all(f.sizes[d] <= _WINDOW for d in f.pw)
    for d in f.cc:
        n, tile = f.sizes[d], tile_of(point, d)
        if d in shared:
            per_core = -(-n // machine.cores) if len(shared) == 1 or d == shared[0] else n
            target = min(per_core, (widest if d == vector else 512) if f.pw else max(64, per_core))
            if _is_uneven(f):
                target = max(1, per_core // 16)
            pieces = max(1, round(per_core / max(target, 1)))
            block = round_up(-(-per_core // pieces), tile) if per_core >= tile else tile
            point[f"block_{d}"] = max(tile, block)
        else:
            row = widest if d == vector else 512 if f.pw else longest
            if slides and (d == vector or len(f.cc) < 3 or f.pw):
                row = longest_row(f, machine.l2, d)
            point[f"block_{d}"] = max(tile, min(round_up(n, tile), row // tile * tile))
    for d in f.pw:
        n = f.sizes[d]
        written_out = unrolled > 0 and 1 < n <= 8 and d in f.pw[-unrolled:] and not packed
        point[f"unroll_{d}"] = n if written_out else 1
        point[f"block_{d}"] = 0
        if d in shared:
            point[f"block_{d}"] = max(1, min(65536, -(-n // (4 * machine.cores))))
        elif f.cc and n > 512 and len(f.pw) == 1 and len(f.cc) > 1:
            point[f"block_{d}"] = -(-n // -(-n // longest))  # equal blocks
        elif packed and n > 1:
            point[f"block_{d}"] = min(n, longest)  # a constant extent for the copies
    for b in input_buffers(f.program):
        if f.pw and packable(f, b):
            point[f"pack_{b}"] = packed.get(b, "no")
    point |= {f"past_{b}": _past(f, machine, b, point) for b in written_past(f, machine)}
    if follows_rows(f, machine):
        several = vector != "-" and _rows(f, point) >= _FEWEST and _streams(f, point) <= _MOST
        point["ahead"] = _AHEAD if several else 0
    if keyed(f.program) is not None:
        point["table"] = int(math.prod(f.sizes[d] for d in f.cc) >= CELLS)
    steps = math.prod(int(point[f"block_{d}"]) or f.sizes[d] for d in f.pw)
    operations = steps * _rows(f, point) * max(1.0, lanes / vector_length(f, machine))
    fetched = 0 if steps < _WHILE else 1 if operations >= _OWN else 5
    past = _written_past(f, point)  # whose cells need not be near
    point |= {f"fetch_{b}": 0 if b in past else fetched for b in fetchable(f)}
    return _fitting(f, point) if packed else point


def _past(f: Facts, machine: Machine, buffer: str, point: Point) -> int:
    """Whether an output is written past the caches; 2: a map's rows that share lines, where a tile has whole
    rows, one after the other.

    Lines that are put together from two vectors stay whole where few of them lie at the same place of a page:
    with three, such stores took three times as long as others (measured on a copy, AMD, AVX2).
    """
    vector = str(point["vector"])
    if not _has_lines(f, point) or _alike(f, machine, buffer, point) > _ALIKE:
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


def _has_lines(f: Facts, point: Point) -> bool:
    """Whether a tile's results are stored as whole lines; else nothing goes past the caches."""
    vector = str(point.get("vector", "-"))
    if f.ps or vector == "-":
        return bool(f.ps)
    return not _is_apart(f, vector) and tile_of(point, vector) * f.lane_bytes % LINE == 0


def _written_past(f: Facts, point: Point) -> set[str]:
    """Outputs that a point has written past the caches."""
    return {b for b in output_buffers(f.program) if point.get(f"past_{b}", 0) and _has_lines(f, point)}


def _alike(f: Facts, machine: Machine, buffer: str, point: Point) -> float:
    """How many lines of a tile, each of more than one vector, lie at the same place of a page."""
    use, tile = uses(f)[buffer], {d: float(tile_of(point, d)) for d in f.cc}
    piece = footprint(use, tile, False)
    short = piece.lines < _APART * LINE * piece.rows
    return aliased(use, tile) if machine.vector_bytes < LINE and short else 1.0


def has_short_tiles(f: Facts, point: Point) -> bool:
    """Whether vectors are reduced in so few steps that what stands around a tile's loops takes time, too.

    With constants for the sizes, loops of one iteration, tests of what a tile touches, and products of
    strides are gone from there (measured: 1.05 to 1.9 times as fast; nothing where steps are many).
    """
    if not f.pw or point.get("vector", "-") == "-":
        return False
    return math.prod(f.sizes[d] for d in f.pw) <= _FEW_STEPS


@once
def _is_uneven(f: Facts) -> bool:
    """Whether equal blocks may cost very different times: domains, loops and calls in the scalar function."""
    scalar = lane_function(f.program)  # a call of what is one expression costs what that does
    if f.program.hom.domain:
        return True
    return scalar_calls(f.program) or not straight_line(scalar.body)


def _fitting(f: Facts, point: Point) -> Point:
    """Blocks halved until the packed tiles fit where they are kept."""
    copied = [b for b in input_buffers(f.program) if point.get(f"pack_{b}", "no") != "no"]
    for b in sorted(copied, key=lambda b: -_box(f, point, b)):
        used = [d for d in f.cc if d in read_dims(f, b)]
        for _ in range(12):
            if point.get(f"pack_{b}", "no") == "no" or _packed(f, point)[b] is not None or not used:
                break
            widest = max(used, key=lambda d: int(point[f"block_{d}"]) / tile_of(point, d))
            half = round_up(-(-int(point[f"block_{widest}"]) // 2), tile_of(point, widest))
            if half >= int(point[f"block_{widest}"]):
                break
            point[f"block_{widest}"] = half
    return point


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
    return _cost(f, machine, dict(values))


def _is_apart(f: Facts, vector: str) -> bool:
    return any(s != 1 for s in store_strides(f, vector))


_COUNTED = (Binary, Select, Call)
_IN_LANES = 12  # operations of a function of math.h that vectors have, on the average


@once
def _operations(f: Facts) -> int:
    scalar = lane_function(f.program)
    own = {g.name: g for g in f.program.functions}
    exprs = [*scalar.results, *stmt_exprs(scalar.body)]
    count = 0
    while exprs:
        for n in walk(exprs.pop()):
            count += _IN_LANES if isinstance(n, Call) and n.function in LANES else isinstance(n, _COUNTED)
            if isinstance(n, Call) and n.function in own:
                exprs += stmt_exprs(own.pop(n.function).body)  # once: functions may call themselves
    return max(1, count + (len(f.program.component_types) if f.pw or f.ps else 0))


@once
def _is_long(f: Facts) -> bool:
    """Whether a point calls functions of the program that are more than an expression."""
    scalar, own = lane_function(f.program), {g.name for g in f.program.functions}
    exprs = (*scalar.results, *stmt_exprs(scalar.body))
    return any(isinstance(n, Call) and n.function in own for e in exprs for n in walk(e))


@once
def _footprint(f: Facts) -> int:
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
    return points * (1e-9 + _operations(f) * 1e-10) / cores + copies + strided + (5e-6 if d else 0.0)


@dataclass(frozen=True, slots=True)
class _Arithmetic:
    """How long the operations take where all operands are near.

    copied    seconds of copying inputs, on one core
    packs     per input the elements that are copied, None where it is not packed
    balance   cores that work on average
    works     whether vectors are used
    """

    seconds: float
    copied: float
    packs: dict[str, float | None]
    balance: float
    works: bool


def _rows(f: Facts, point: Point) -> int:
    return math.prod(int(point.get(f"rows_{d}", 1)) for d in f.cc)


def _streams(f: Facts, point: Point) -> int:
    """Rows that a map's tile goes through side by side, but for those that are written past the caches."""
    near = [b for b in output_buffers(f.program) if not point.get(f"past_{b}", 0)]
    return _rows(f, point) * (len(input_buffers(f.program)) + len(near))


def _arithmetic(f: Facts, machine: Machine, point: Point) -> _Arithmetic:
    v = vector_length(f, machine)
    vector, lanes = str(point.get("vector", "-")), int(point.get("lanes", 1))
    rows = _rows(f, point)
    vectors = max(1, lanes // v)
    live = rows * vectors
    packs = _packed(f, point)
    copied = 0.0
    for b, pack in packs.items():
        if pack is not None:
            gathers = any(s not in (0, 1) for a, s in strides(f, vector) if a.buffer == b)
            copied += pack * (1e-9 if gathers else 3e-10)
    works = vector != "-" and in_vectors(f, [s for a, s in strides(f, vector) if packs[a.buffer] is None])
    speed = float(min(v, lanes)) if works else 0.7
    if works and not straight_line(f.program.hom.scalar.body):
        # vectors side by side hide how long each value takes; more lanes wait longer for the last one
        speed *= vectors / (vectors + 1) if vectors <= 4 else 0.75
    if f.pw:
        chains = live if works else rows
        written_out = max((int(point.get(f"unroll_{d}", 1)) for d in f.pw), default=1)
        short = works and machine.vector_bytes < LINE
        if works and written_out > 1 and rows > 1:  # a window that slides over rows; measured on convolutions
            speed *= min(chains, 8) / (min(chains, 8) + 2) * (1.0 - 0.02 * max(0, chains - 8))
        elif short:  # measured on tiles of operands in the first cache
            speed *= min(1.0, chains / _CHAINS) * chains / (chains + 0.5)
        elif works or not _is_long(f):
            speed *= chains / (chains + 4)  # additions wait for those before; measured on matrix products
        elif rows > 1:
            speed *= 0.85  # as much code for every row, and nothing is shared; measured on record linkage
        if works:
            whole_vectors, single = _loads(f, machine, point, vector, rows, vectors)
            if short and written_out == 1 and not _holds(f, machine, point, live, vectors):
                whole_vectors = max(whole_vectors, float(sum(bool(s) for _, s in strides(f, vector))))
            computed = _computed(f, point, packs, vector, rows, vectors)
            if short:
                speed /= max(0.9 + 0.5 * whole_vectors + computed, whole_vectors + 1.2 * single)
            else:
                speed /= max(1.0 + whole_vectors + 0.5 * single + computed, 0.9 * (whole_vectors + single))
        operands = 2 if rows == 1 and vector in f.cc else vectors + 2  # what one row uses stays in memory
        kept = operands + (written_out if written_out > 1 else 0)  # operands of a row, weights of a column
        if live + kept > machine.registers:
            speed *= 0.25
        if works and _addresses(f, point, packs) > _ADDRESSES:
            speed *= 0.7
    elif rows > 1 and not works:
        speed *= 0.5  # compilers have vectors for the plain loop only
    elif rows > 1 and in_one_way(f, {d: float(tile_of(point, d)) for d in f.cc}) > machine.l1:
        speed *= 0.25  # rows push each other out of the first cache; measured on maps of stencils
    balance = _balance(f, machine, point)
    if f.pw and works and not f.program.hom.domain:  # tiles on the border are moved back to be whole
        tiles = ((max(1, f.sizes[d]), tile_of(point, d)) for d in f.cc)
        twice = math.prod(round_up(n, tile) / n for n, tile in tiles)
        points = f.points * twice
        copied += _MOVED * (twice - 1) * f.points * _operations(f) / (machine.rate * speed)
    else:
        whole = _whole_share(f, point)
        # tiles on a domain's border are computed as a whole, half of them in vain, or clipped: as scalar code
        border = 2.0 if f.pw and works and is_readable_beyond(f) else max(1.0, 0.6 * speed)
        points = f.points * (whole + (1 - whole) * border)
    seconds = points * _operations(f) / (machine.rate * speed * balance)
    return _Arithmetic(seconds, copied, packs, balance, works)


def _cost(f: Facts, machine: Machine, point: Point) -> float:
    """Seconds of one program at a point: the slower of computing and memory, and what they add."""
    form = one_hot(f.program)
    if form is not None:
        return _histogram_cost(f, form, machine, point)
    made = _arithmetic(f, machine, point)
    packs, copied, balance, works = made.packs, made.copied, made.balance, made.works
    vector, lanes, v = str(point.get("vector", "-")), int(point.get("lanes", 1)), vector_length(f, machine)
    rows = _rows(f, point)
    live = rows * max(1, lanes // v)
    (near, far, whole_arrays), past = _moved(f, machine, point, packs)
    blocked = any(0 < int(point.get(f"block_{d}", 0)) < f.sizes[d] for d in f.pw)
    if blocked and f.cc and None in f.program.out.initial:  # unfinished cells are kept elsewhere
        copied += 2e-6 + math.prod(f.sizes[x] for x in f.cc) * 2e-9
    for d in set(str(point.get("threads", "")).split(",")) & set(f.pw):
        slots = -(-f.sizes[d] // max(1, int(point.get(f"block_{d}", 0))))
        cells = math.prod(f.sizes[x] for x in f.cc)
        copied += 2e-6 + slots * cells * 2e-9 if f.cc else 0.0  # every part has results of its own
    memory = max(_footprint(f), whole_arrays[0] * balance + past)
    memory = memory / machine.bandwidth * (1.4 if balance < 1.1 else 1.0)
    if _footprint(f) > machine.last:
        memory += whole_arrays[1] * _MEMORY_RUN
    if point.get("ahead"):
        memory *= _FETCHED
    if any(_alike(f, machine, b, point) > 1 for b in _written_past(f, point)):
        memory *= _HALVED
    strided = 0.0
    inner = vector if vector != "-" else (f.pw or f.cc or f.ps or ("-",))[-1]
    for a, s in strides(f, inner):
        if s not in (0, 1) and packs[a.buffer] is None:
            reversed_too = works and s == -1  # a vector, and two instructions that turn it around
            strided += f.points / max(1, rows) * (0.6e-9 / v if reversed_too else 1e-9)
    region = 5e-6 if point.get("threads") and f.points > 1 << 15 else 0.0
    last = far[0] / machine.l3_bandwidth + far[1] * _FAR_RUN
    if not f.pw:  # nothing to do meanwhile: a core waits for lines of both kinds; measured on stencils
        memory += max(0.0, far[0] - whole_arrays[0]) / machine.l3_bandwidth
    times = (made.seconds, near[0] / machine.l2_bandwidth, max(memory, last))
    slowest = max(times)
    if f.pw:
        blocks = ((max(1, f.sizes[d]), int(point.get(f"block_{d}", 0))) for d in f.pw)
        visits = math.prod(max(1.0, n / (block or n)) for n, block in blocks)
        visits *= math.prod(max(1, f.sizes[d]) / tile_of(point, d) for d in f.cc)
        visits *= f.points / max(1, math.prod(f.sizes.values()))  # of a box, those that have points
        copied += visits * (live if works else rows) * _VISIT
        if vector in f.cc and _footprint(f) > machine.last:
            copied += visits * _pieces(f, machine, point) * _PIECE
        if works and vector in f.pw:  # the lanes of every cell are combined
            copied += visits * rows * v * 1e-9
        if works and vector in f.cc and _is_apart(f, vector):  # results are written lane by lane
            copied += visits * rows * lanes * 1e-9
        if f.cc:
            copied += _rows_walked(f, point, packs) * _ROW
    added = near[1] * _NEAR_RUN + (strided + copied) / balance + region
    return slowest + _BESIDE * (sum(times) - slowest) + added


def _moved(
    f: Facts, machine: Machine, point: Point, packs: Mapping[str, float | None]
) -> tuple[tuple[Moved, ...], float]:
    """What one core brings into its first and its second cache, and into its share of the last; and the bytes
    that all cores write past them."""
    levels, panels = _levels(f, machine, point)
    inside = panels[0] if panels else 0
    tile = {d: float(tile_of(point, d)) for d in f.cc} | {d: float(point.get(f"unroll_{d}", 1)) for d in f.pw}
    found = []
    past = _written_past(f, point)
    for b, use in uses(f).items():
        if b in past:
            continue
        if packs.get(b) is not None:
            use = replace(use, packed=max(panels, default=0) + 1 - len(dims_around(f, point, b)))
        found.append(use)
    from_memory = inside if _footprint(f) > machine.last else 0
    share = max(machine.l2, machine.last // machine.cores)
    caches = ((machine.l1, 0), (machine.l2, inside), (share, from_memory))
    return moved(found, tile, levels, caches), sum(bytes_of(f)[b] for b in past)


def _rows_walked(f: Facts, point: Point, packs: Mapping[str, float | None]) -> float:
    """Rows apart from one another through which all tiles walk, step by step; a copy's are not apart."""
    walk = {d: float(tile_of(point, d)) for d in f.cc}
    walk |= {d: float(int(point.get(f"block_{d}", 0)) or max(1, f.sizes[d])) for d in f.pw}
    walked = (use for b, use in uses(f).items() if packs.get(b) is None and use.dims & set(f.pw))
    rows = sum(n for use in walked if (n := footprint(use, walk, False).runs) > _FEW_ROWS)
    return rows * math.prod(max(1.0, f.sizes[d] / n) for d, n in walk.items())


def _pieces(f: Facts, machine: Machine, point: Point) -> float:
    """In how many runs of neighbours a tile's results lie, but for those past the caches by whole lines.

    Runs shorter than a line count in parts: other tiles find the line near.
    """
    tile = {d: float(tile_of(point, d)) for d in f.cc}
    past = _written_past(f, point) if machine.vector_bytes == LINE else set()
    written = {b: use for b, use in uses(f).items() if use.written and b not in past}
    vector = str(point.get("vector", "-"))
    length = tile_of(point, vector) * f.lane_bytes if vector in f.cc else LINE
    return sum(footprint(use, tile, False).rows for use in written.values()) * min(1.0, length / LINE)


def _levels(f: Facts, machine: Machine, point: Point) -> tuple[list[tuple[str, float]], list[int]]:
    """Loops with their trips on one core, innermost first, and which of them go over the tiles of a block."""
    levels: list[tuple[str, float]] = []
    outer: list[tuple[str, float]] = []
    shared = str(point.get("threads", "")).split(",")
    for d in reversed(f.pw):
        n, unroll, block = f.sizes[d], int(point.get(f"unroll_{d}", 1)), int(point.get(f"block_{d}", 0))
        if 0 < block < n or d in shared:
            block = block or n
            levels.append((d, max(1.0, block / unroll)))
            outer.append((d, max(1.0, n / block)))
        else:
            levels.append((d, max(1.0, n / unroll)))
    first = len(levels)
    for d in reversed(tile_order(f, int(point.get("order", 0)))):
        n, tile = max(f.sizes[d], 1), tile_of(point, d)
        block = min(max(int(point.get(f"block_{d}", 1)), tile), max(n, tile))
        levels.append((d, max(1.0, block / tile)))
    panels = list(range(first, len(levels)))
    for d in reversed(f.cc):
        n = max(f.sizes[d], 1)
        outer.append((d, max(1.0, n / max(int(point.get(f"block_{d}", 1)), tile_of(point, d)))))
    outer.sort(key=lambda x: x[0] in shared)
    cores = float(machine.cores)
    for k in reversed(range(len(outer))):
        d, trips = outer[k]
        if d in shared:
            outer[k] = d, max(1.0, trips / cores)
            cores = max(1.0, cores / trips)
    return [*levels, *outer], panels


def _addresses(f: Facts, point: Point, packs: Mapping[str, float | None]) -> int:
    """Addresses that a step of the register tile needs at once: rows at distances known at run time only.

    Rows of a copy are at constant distances.
    """
    rows = {d: int(point.get(f"rows_{d}", 1)) for d in f.cc}
    return sum(
        math.prod(n for d, n in rows.items() for b, s in strides(f, d) if b is a and s is None)
        for a in f.program.inp.accesses
        if packs[a.buffer] is None
    )


def _holds(f: Facts, machine: Machine, point: Point, live: int, vectors: int) -> bool:
    """Whether registers are enough for the accumulators, a step's operands, and numbers that are given."""
    vector, params = str(point["vector"]), f.program.params
    rows = [(d, n) for d in f.cc if d != vector and (n := int(point.get(f"rows_{d}", 1))) > 1]
    given = any(isinstance(x.type, ScalarType) and x.type.is_float for x in params)
    need = held(f.program.inp.accesses, rows, vector).registers(vectors)
    return live + need + given <= machine.registers


def _loads(
    f: Facts, machine: Machine, point: Point, vector: str, rows: int, vectors: int
) -> tuple[float, float]:
    """Vectors and single elements to load per vector operation, shared over the register tile."""
    whole_vectors = single = 0.0
    for a, _ in strides(f, vector):
        own_rows: float = math.prod(
            int(point.get(f"rows_{d}", 1)) for d in f.cc if any(x.coefficient(d) for x in a.index)
        )
        for x in a.index:  # rows of a stencil overlap when the reduced dimension is written out
            u = math.prod(int(point.get(f"unroll_{d}", 1)) for d in f.pw if x.coefficient(d))
            r = math.prod(int(point.get(f"rows_{d}", 1)) for d in f.cc if x.coefficient(d))
            if u > 1 and r > 1:
                own_rows *= (r + u - 1) / (r * u)
        if any(x.coefficient(vector) for x in a.index):
            crossing = _crossing(f, a.index, vector, machine)
            further = _CROSSING if machine.vector_bytes == LINE else _HALF_CROSSING
            whole_vectors += own_rows / rows * (1.0 + further * crossing)
        else:
            single += own_rows / (rows * vectors)
    return whole_vectors, single


def _crossing(f: Facts, index: Sequence[Affine], vector: str, machine: Machine) -> float:
    """Share of the vectors that two lines hold: those of a window begin anywhere."""
    for x in index:
        if x.coefficient(vector) and any(x.coefficient(d) for d in f.pw if d != vector):
            return (machine.vector_bytes - f.lane_bytes) / LINE
    return 0.0


def _computed(
    f: Facts, point: Point, packs: Mapping[str, float | None], vector: str, rows: int, vectors: int
) -> float:
    """Operations per vector operation that copies would have done: the value, and its spread to all lanes."""
    total = 0.0
    for a, s in strides(f, vector):
        if a.buffer in computed_copies(f) and packs[a.buffer] is None:
            used = (int(point.get(f"rows_{d}", 1)) for d in f.cc if any(x.coefficient(d) for x in a.index))
            total += math.prod(used) / rows * (1.0 if s else 1.5 / vectors)
    return total


def _whole_share(f: Facts, point: Point) -> float:
    """Share of the points that lie in register tiles that are not clipped."""
    tile = {
        d: int(point.get(f"rows_{d}", 1))
        * int(point.get(f"unroll_{d}", 1))
        * (int(point["lanes"]) if d == point.get("vector") else 1)
        for d in f.sizes
    }
    return f.shares(tile)[1]


def _packed(f: Facts, point: Point) -> dict[str, float | None]:
    """Per input the elements that are copied in all; None where it is not packed (or does not fit)."""
    copied = [b for b in input_buffers(f.program) if point.get(f"pack_{b}", "no") != "no"]
    fits = sum(_box(f, point, b) for b in copied) <= PRIVATE_BYTES
    return {b: _copied(f, point, b) if fits and b in copied else None for b in input_buffers(f.program)}


def _copied(f: Facts, point: Point, buffer: str) -> float | None:
    """Elements of a packed input that are copied in all; None where its copy has no constant extent."""
    used = read_dims(f, buffer)
    if _unblocked_run_time(f, point, used):
        return None
    around = dims_around(f, point, buffer)
    elements = 1.0
    for d, n in f.sizes.items():
        if d in used:
            elements *= n
        elif d in f.cc:
            tile = tile_of(point, d)
            block = min(max(int(point.get(f"block_{d}", 1)), tile), max(n, 1))
            elements *= -(-n // max(1, tile if d in around else block))
    return elements


def _box(f: Facts, point: Point, buffer: str) -> int:
    """Bytes of a copy of an input."""
    size, around = f.program.buffer(buffer).type.size, dims_around(f, point, buffer)
    for d in read_dims(f, buffer):
        n, tile = f.sizes[d], tile_of(point, d) if d in f.cc else 1
        block = int(point.get(f"block_{d}", 0)) or n
        size *= min(n, tile) if d in around else min(max(block, tile), max(n, 1))
    return size


def _unblocked_run_time(f: Facts, point: Point, used: frozenset[str]) -> bool:
    """Whether a used reduced dimension has no constant extent inside a block: then no copy is made."""
    return any(
        d in used and f.program.dim(d).size.constant is None and not int(point.get(f"block_{d}", 0))
        for d in f.pw
    )


def _balance(f: Facts, machine: Machine, point: Point) -> float:
    """Cores that work on average."""
    count = 1
    for d in str(point.get("threads", "")).split(","):
        if d in f.sizes:
            block = int(point.get(f"block_{d}", 0)) or 1
            if d in f.ps:
                block = 4096
            count *= max(1, -(-f.sizes[d] // block))
    rounds: float = -(-count // machine.cores)
    if count > 1 and _is_long(f):
        rounds += 0.5  # threads end while others are in the middle of a block
    return min(machine.cores, count / rounds)
