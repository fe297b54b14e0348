"""How long the operations of a point take where all operands are near: vectors, register tile, loads, copies.

in     facts, a machine, a point of the search space
out    ``Arithmetic``: seconds of computing and of copying, and how many cores work

Seconds are operations over what the vectors and the register tile can do.  What limits a tile: additions that
wait for those before (chains), loads that its rows do not share, and registers that are not enough.  Part of
the cost model (``lowering.cost``); constants were measured, see docs/performance.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lowering.across import turned
from lowering.facts import (
    Facts,
    computed_copies,
    has_border,
    has_records,
    in_vectors,
    interleaved,
    is_readable_beyond,
    once,
    read_dims,
    strides,
    vector_length,
)
from lowering.held import beside, held
from lowering.machine import LINE, Machine
from lowering.packs import PRIVATE_BYTES
from lowering.parameters import input_buffers
from lowering.parts import has_even_work
from lowering.point import Point, blocks_of, dims_around, round_up, steps_of, tile_of
from lowering.traffic import in_one_way
from mdh_core.combine import choice_of
from mdh_core.expr import Affine, Binary, Call, ScalarType, Select, stmt_exprs, straight_line, walk
from mdh_core.ir import Access
from mdh_core.lanes import LANES, lane_function

_MOVED = 0.5  # of the points of a tile's second time is not hidden behind memory
_CROSSING = 2.0  # further loads that a vector across two lines costs; measured on convolutions
_HALF_CROSSING = 3.0  # the same for vectors of half a line
_COPIED = 7.5e-11  # seconds per byte that is copied; measured on products
_MASKED = 0.8  # of the speed of vectors
_SHUFFLED = 0.25  # of the speed of vectors: compilers sort elements that are some apart; measured on pixels
_CHOSEN = 4  # registers that hold a choice's condition, its constants and both values; measured on moments
_CHAINS = 8  # additions that a core has under way at once
_ADDRESSES = 9  # that registers hold beside counters and sizes; measured on convolutions
_COUNTED = (Binary, Select, Call)
_IN_LANES = 12  # operations of a function of math.h that vectors have, on the average


@once
def operations(f: Facts) -> int:
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
def is_long(f: Facts) -> bool:
    """Whether a point calls functions of the program that are more than an expression."""
    scalar, own = lane_function(f.program), {g.name for g in f.program.functions}
    exprs = (*scalar.results, *stmt_exprs(scalar.body))
    return any(isinstance(n, Call) and n.function in own for e in exprs for n in walk(e))


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """How long the operations take where all operands are near.

    copied    seconds of copying inputs, on one core
    packs     per input the elements that are copied, None where it is not packed
    balance   cores that work on average
    busy      cores that have something to do
    works     whether vectors are used
    """

    seconds: float
    copied: float
    packs: dict[str, float | None]
    balance: float
    busy: int
    works: bool


def rows_of(f: Facts, point: Point) -> int:
    return math.prod(int(point.get(f"rows_{d}", 1)) for d in f.cc)


def turned_at(f: Facts, point: Point) -> tuple[int, ...]:
    """Operands that the register tile turns, by their numbers (``lowering.across``)."""
    vector, lanes = str(point.get("vector", "-")), int(point.get("lanes", 1))
    if vector not in f.cc or f.pw or f.ps:
        return ()
    return _turned(f, vector, lanes, tuple((d, int(point.get(f"rows_{d}", 1))) for d in f.cc))


@once
def _turned(f: Facts, vector: str, lanes: int, rows: tuple[tuple[str, int], ...]) -> tuple[int, ...]:
    return turned(f.program, vector, lanes, dict(rows), f.lane_bytes)


def is_sorted_out(f: Facts, point: Point) -> bool:
    """Whether compilers make vectors of a plain loop over elements that are some apart (``interleaved``)."""
    vector = str(point.get("vector", "-"))
    inner = vector if vector != "-" else (f.cc or ("-",))[-1]
    return rows_of(f, point) == 1 and inner in f.cc and interleaved(f, inner)


def shared_by_rows(f: Facts, a: Access, point: Point) -> int:
    """Rows of a tile that use the same element, or of a map its neighbours."""
    if f.pw or f.ps:
        return max(1, rows_of(f, point))
    near = (d for d in f.cc if any(s in (0, 1) for b, s in strides(f, d) if b is a))
    return math.prod(int(point.get(f"rows_{d}", 1)) for d in near)


def arithmetic(f: Facts, machine: Machine, point: Point, even: bool = False) -> Arithmetic:
    """``even``: as if all parts were equal, before it is known which dimensions threads share."""
    v = vector_length(f, machine)
    vector, lanes = str(point.get("vector", "-")), int(point.get("lanes", 1))
    vectors = max(1, lanes // v)
    packs = packed_elements(f, point, machine.cores)
    copied = 0.0
    for b, pack in packs.items():
        if pack is not None:
            gathers = any(s not in (0, 1) for a, s in strides(f, vector) if a.buffer == b)
            copied += pack * max(1e-9 if gathers else 0.0, f.program.buffer(b).type.size * _COPIED)
    turns = turned_at(f, point)
    inputs = [s for k, (a, s) in enumerate(strides(f, vector)) if packs[a.buffer] is None and k not in turns]
    works = vector != "-" and in_vectors(f, inputs)
    speed = float(min(v, lanes)) if works else 0.7
    if is_sorted_out(f, point):
        speed = max(speed, _SHUFFLED * v)
    if has_border(f) and not works and machine.vector_bytes == LINE:
        speed = _MASKED * v  # compilers read under masks there
    if works and not straight_line(lane_function(f.in_lanes).body):
        # vectors side by side hide how long each value takes; more lanes wait longer for the last one
        speed *= vectors / (vectors + 1) if vectors <= 4 else 0.75
    if f.pw:
        speed *= _reducing(f, machine, point, packs, works)
    elif rows_of(f, point) > 1 and not works:
        speed *= 0.5  # compilers have vectors for the plain loop only
    elif rows_of(f, point) > 1 and in_one_way(f, {d: float(tile_of(point, d)) for d in f.cc}) > machine.l1:
        speed *= 0.25  # rows push each other out of the first cache; measured on maps of stencils
    balance, busy = _balance(f, machine, point, even)
    if f.pw and works and not f.program.hom.domain:  # tiles on the border are moved back to be whole
        tiles = ((max(1, f.sizes[d]), tile_of(point, d)) for d in f.cc)
        twice = math.prod(round_up(n, tile) / n for n, tile in tiles)
        points = f.points * twice
        copied += _MOVED * (twice - 1) * f.points * operations(f) / (machine.rate * speed)
    else:
        whole = _whole_share(f, point)
        # tiles on a domain's border are computed as a whole, half of them in vain, or clipped: as scalar code
        border = 2.0 if f.pw and works and is_readable_beyond(f) else max(1.0, 0.6 * speed)
        points = f.points * (whole + (1 - whole) * border)
    seconds = points * operations(f) / (machine.rate * speed * balance)
    return Arithmetic(seconds, copied, packs, balance, busy, works)


def _reducing(
    f: Facts, machine: Machine, point: Point, packs: Mapping[str, float | None], works: bool
) -> float:
    """Share of what its vectors, or scalars, could do that the register tile of a reduction reaches."""
    vectors = max(1, int(point.get("lanes", 1)) // vector_length(f, machine))
    rows = rows_of(f, point)
    components = accumulated(f)
    chains = rows * vectors * components if works else rows
    if works and has_records(f):
        chains = _CHAINS * rows  # what is combined is long enough by itself
    written_out = max((int(point.get(f"unroll_{d}", 1)) for d in f.pw), default=1)
    short = works and machine.vector_bytes < LINE
    share = 1.0
    if works and written_out > 1 and rows > 1:  # a window that slides over rows; measured on convolutions
        share = min(chains, 8) / (min(chains, 8) + 2) * (1.0 - 0.02 * max(0, chains - 8))
    elif short:  # measured on tiles of operands in the first cache
        share = min(1.0, chains / _CHAINS) * chains / (chains + 0.5)
    elif works or not is_long(f):
        share = chains / (chains + 4)  # additions wait for those before; measured on matrix products
    elif rows > 1:
        share = 0.85  # as much code for every row, and nothing is shared; measured on record linkage
    vector = str(point.get("vector", "-"))
    if works:
        whole_vectors, single = _loads(f, machine, point, vector, rows, vectors)
        computed = _computed(f, point, packs, vector, rows, vectors)
        held_there = written_out > 1 or _holds(f, machine, point, rows * vectors * components, vectors)
        if (short or rows > 1) and not held_there:
            whole_vectors = max(whole_vectors, float(sum(bool(s) for _, s in strides(f, vector))))
        if short:
            loaded = whole_vectors if rows > 1 else 0.0  # by itself: one row's multiplications load theirs
            share /= max(0.9 + 0.5 * loaded + computed, whole_vectors + 1.2 * single)
        else:
            share /= max(1.0 + whole_vectors + 0.5 * single + computed, 0.9 * (whole_vectors + single))
    operands = 2 if rows == 1 and vector in f.cc else vectors + 2  # what one row uses stays in memory
    kept = operands + (written_out if written_out > 1 else 0)  # operands of a row, weights of a column
    kept += _CHOSEN * _choices(f) if components > 1 else 0
    if rows * vectors * components + kept > machine.registers:
        share *= 0.25
    if works and _addresses(f, point, packs) > _ADDRESSES:
        share *= 0.7
    return share


@once
def _choices(f: Facts) -> int:
    """Results of which lanes take one of two values."""
    return sum(any(isinstance(n, Select) for n in walk(e)) for e in f.program.hom.scalar.results)


@once
def accumulated(f: Facts) -> int:
    """Vectors that hold the results of one vector of lanes: several where several results are found at once.

    A position is found beside its value, which alone is compared (``lowering.facts.is_screened``).
    """
    function = f.program.hom.function
    if function is not None and choice_of(function) is not None:
        return 1
    sizes = (t.size for t in f.in_lanes.component_types if isinstance(t, ScalarType))
    return max(1, sum(max(1, n // f.lane_bytes) for n in sizes))


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
    """Whether registers are enough for the accumulators and what a step holds or needs besides."""
    vector = str(point["vector"])
    rows = [(d, n) for d in f.cc if d != vector and (n := int(point.get(f"rows_{d}", 1))) > 1]
    h = held(f.program.inp.accesses, rows, vector)
    return live + h.rows * vectors + h.singles + beside(f.program, h.numbers) <= machine.registers


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


def packed_elements(f: Facts, point: Point, cores: int = 1) -> dict[str, float | None]:
    """Per input the elements that are copied in all; None where it is not packed (or does not fit).

    ``cores``: threads of which each copies for its own parts.
    """
    copied = [b for b in input_buffers(f.program) if point.get(f"pack_{b}", "no") != "no"]
    fits = sum(box_bytes(f, point, b) for b in copied) <= PRIVATE_BYTES
    copies = {b: _copied(f, point, b, cores) for b in copied if fits}
    return {b: copies.get(b) for b in input_buffers(f.program)}


def _copied(f: Facts, point: Point, buffer: str, cores: int) -> float | None:
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
            block = min(blocks_of(f, point, d, cores)[1], max(n, 1))
            elements *= -(-n // max(1, tile if d in around else block))
    return elements


def box_bytes(f: Facts, point: Point, buffer: str) -> int:
    """Bytes of a copy of an input."""
    size, around = f.program.buffer(buffer).type.size, dims_around(f, point, buffer)
    for d in read_dims(f, buffer):
        n, tile = f.sizes[d], tile_of(point, d) if d in f.cc else 1
        block = steps_of(point, d) or n
        size *= min(n, tile) if d in around else min(max(block, tile), max(n, 1))
    return size


def _unblocked_run_time(f: Facts, point: Point, used: frozenset[str]) -> bool:
    """Whether a used reduced dimension has no constant extent inside a block: then no copy is made."""
    return any(
        d in used and f.program.dim(d).size.constant is None and not int(point.get(f"block_{d}", 0))
        for d in f.pw
    )


def _balance(f: Facts, machine: Machine, point: Point, even: bool) -> tuple[float, int]:
    """Cores that work on average, all tiles and parts over those that the busiest one has; cores with any."""
    shared: list[tuple[int, int, int]] = []  # parts, tiles, those of the largest; the last dimension first
    for d in reversed(str(point.get("threads", "")).split(",")):
        if d in f.cc:
            tile = tile_of(point, d)
            parts, largest = blocks_of(f, point, d, machine.cores)
            shared.append((parts, -(-max(1, f.sizes[d]) // tile), largest // tile))
        elif d in f.sizes:
            block = 4096 if d in f.ps else int(point.get(f"block_{d}", 0)) or 1
            parts = max(1, -(-f.sizes[d] // block))
            shared.append((parts, parts, 1))
    count = math.prod(parts for parts, _, _ in shared)
    rounds, busy = -(-count // machine.cores), min(machine.cores, count)
    if count > 1 and is_long(f):  # threads end while others are in the middle of a block
        return min(machine.cores, count / (rounds + 0.5)), busy
    if even or not has_even_work(f.program):  # uneven work is handed out as threads get free
        return min(machine.cores, count / rounds), busy
    busiest = 1
    for parts, units, largest in shared:  # a thread has parts that follow each other
        here = min(rounds, parts)
        busiest *= largest if here == 1 else -(-here * units // parts)
        rounds = -(-rounds // parts)
    return min(machine.cores, math.prod(units for _, units, _ in shared) / busiest), busy
