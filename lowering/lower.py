"""Lowering: a program and a configuration become loop nests that a generator only has to print.

    lowered ::= Lowered(stages: stage+, temporaries: Buffer*)
    stage   ::= Nest | ScanNest | HistogramNest
    nest    ::= Nest(program, loops, threads, tile, accumulate, packs, results)
    scan    ::= ScanNest(program, dim, block, rows, across)
    histo   ::= HistogramNest(program, form, shared, copies)

before   a program with cc, pw and ps dimensions, three phases with an order and assignment each
after    loops in execution order; every program of a stage has either no ps dimension (``Nest``), or one ps
         dimension and else cc (``ScanNest``)

What becomes of the phases of mdh.md 4.3 (``lowering.phases``: those that differ are stages of their own):

* Loops on a ``threads`` layer are bound together, where the outermost of them stands (as the blocks and
  threads of a GPU are); several of one dimension, or ones that cannot be bound, run sequentially.
* The register tile is the longest suffix of loops on ``unrolled`` and ``lanes`` layers.
* An input whose region or layout changes at a level is packed there (D3, D4); results live in a local tile
  from the level on where their region is no longer main memory (R3, S5).

Tags have no semantics (mdh.md 5): where a request cannot be realised (a run-time trip count in
registers, a tile that would not fit) the loop is sequential or the copy is not made.  A partial
part is never an error: every loop is clipped at the dimension's size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from lowering.histogram import OneHot
from lowering.joined import joined_rows
from lowering.keyed import Keyed, keyed
from lowering.loops import Loop
from lowering.machine import Machine
from lowering.packs import Pack, packs_of
from lowering.parameters import Configuration, columns_of, output_buffers, reassociates
from lowering.parts import constant_part, may_be_cut
from lowering.phases import Phase, staged
from mdh_core.combine import linear_operator
from mdh_core.expr import Load, Result, ScalarType, walk
from mdh_core.ir import (
    Buffer,
    Dim,
    MdhProgram,
    read_buffers,
)

TILE_POINTS = 2048  # at most this many points of a register tile are written out
ACCUMULATOR_BYTES = 1 << 15


@dataclass(frozen=True, slots=True)
class Nest:
    """Loops in execution order, outermost first.

    threads     loops[threads[0]:threads[1]] are run by different threads (empty range: none)
    tile        loops[tile:] have constant trip counts and are written out
    accumulate  from loops[accumulate] inwards results live in a local tile
    past_caches outputs that are written past the caches where they are larger than these
    joined      an output whose rows share lines, put together and written past the caches
    fetched     outputs whose cells join a tile's results at its end, and which tile fetches them
    keyed       instead of the loops a table of sums by value, where it pays at run time
    ahead       bytes ahead at which a map's rows, or the first lines of pages, are fetched; 0: they are not
    aligned     whether tiles of a map's row begin with a line of its output, from the second one on
    divided     dimensions whose thread loop has as many parts for every thread, see ``lowering.parts``
    results     "direct": a cell is finished inside the local tile
                "in place": unfinished cells are kept in the output buffer between visits
                "parts": unfinished cells are kept in temporaries, one set per part that threads combine
    """

    program: MdhProgram
    loops: tuple[Loop, ...]
    threads: tuple[int, int]
    tile: int
    accumulate: int
    packs: tuple[Pack, ...]
    results: str
    past_caches: tuple[str, ...] = ()
    fetched: tuple[tuple[str, int], ...] = ()
    keyed: Keyed | None = None
    ahead: int = 0
    joined: tuple[str, ...] = ()
    aligned: bool = False
    divided: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ScanNest:
    """One ps dimension, scanned sequentially for each point of the cc dimensions, or in blocks.

    block  elements of a block if threads share the scanned dimension, else None
    rows   cc dimensions whose points are run by different threads
    across  the cc dimension along which memory is contiguous where it is not along the scanned one: so many
            of its points are scanned together that each row of them is a run of memory
    wave   blocks that are gone through together, twice: their input is still near the second time
    past_caches  output buffers whose vectors go past the caches, where they are larger than these
    """

    program: MdhProgram
    dim: str
    block: int | None
    rows: tuple[str, ...]
    wave: int = 0
    past_caches: tuple[str, ...] = ()
    across: str = ""


WAYS = 4  # of histograms; measured with random cells, and some that come several times in a row


@dataclass(frozen=True, slots=True)
class HistogramNest:
    """Every point visits the one cell that it contributes to; see ``lowering.histogram``.

    dims    the dimensions looped over, outermost first
    shared  whether threads share the first of them
    copies  private copies of the cells, one per part of the first dimension; 0: all parts use the array
    ways    neighbouring points of a part use so many copies in turn, where all of them are near: who reads a
            sum before the last addition to it has arrived in memory has to wait
    ahead   bytes ahead at which ``lowering.histogram.followed`` operands of these points are fetched; 0: not
    """

    program: MdhProgram
    form: OneHot
    dims: tuple[str, ...]
    shared: bool
    copies: int
    ways: int = 1
    ahead: int = 0


Stage = Nest | ScanNest | HistogramNest


def may_join_a_team(stage: Stage) -> bool:
    """Whether threads that run already, those of a region around a host loop, can share the stage's loops.

    Blocks of a scan and copies of a histogram's cells have values that belong to a region of their own.
    """
    match stage:
        case Nest(keyed=form):
            return form is None
        case ScanNest(block=block):
            return block is None
        case HistogramNest(copies=copies):
            return not copies


@dataclass(frozen=True, slots=True)
class Lowered:
    stages: tuple[Stage, ...]
    temporaries: tuple[Buffer, ...] = ()


# --------------------------------------------------------------------------- stages


def lower(program: MdhProgram, c: Configuration, machine: Machine, tag: str = "") -> Lowered:
    """The stages of a program under a legal configuration of ``machine.model``."""
    pieces, temporaries = staged(program, c, machine.model, tag)
    stages: list[Stage] = []
    for piece in pieces:
        p, phase = piece.program, piece.phase
        if piece.form is not None:
            stages.append(_histogram(p, piece.form, phase, c, machine))
        elif scanned := p.hom.dims_of("ps"):
            stages.append(_scan(p, scanned[0], phase, c, machine))
        else:
            stages.append(_nest(p, phase, c, machine))
    return Lowered(tuple(stages), temporaries)


def _threaded(phase: Phase) -> list[tuple[int, str]]:
    """The levels that threads share, in the order of the phase."""
    return [
        (layer, d)
        for layer, d in phase.order
        if phase.roles[layer, d] == "threads" and (layer == 0 or phase.parts[layer, d] > 1)
    ]


def _keeps_order(program: MdhProgram) -> bool:
    return program.fp == "exact" and reassociates(program)


def _histogram(
    program: MdhProgram, form: OneHot, phase: Phase, c: Configuration, machine: Machine
) -> HistogramNest:
    """Threads share a concatenated dimension if the configuration says so, else parts of a reduced one."""
    names = tuple(d.name for d in program.hom.dims if d.name not in form.cells)
    threaded = [d for _, d in _threaded(phase) if d in names]
    rows = [d for d in threaded if program.op(d).kind == "cc"]
    first = next(iter(rows or ([] if _keeps_order(program) else threaded)), None)
    if first is None:
        return HistogramNest(program, form, names, False, 0)
    dims = (first, *(d for d in names if d != first))
    if rows:
        return HistogramNest(program, form, dims, True, 0)
    return HistogramNest(program, form, dims, True, max(machine.cores, 2), WAYS, c.ahead)


def is_linear_recurrence(program: MdhProgram) -> bool:
    """Whether a scan is ``s = factor*s + term`` from a given start, of which only ``s`` is stored."""
    function, t = program.hom.function, program.component_types[-1]
    if not isinstance(t, ScalarType) or function != linear_operator(t) or None in program.out.initial:
        return False
    used = {n.component for s in program.out.stores for n in walk(s.value) if isinstance(n, Result)}
    return used <= {1}


def _scan(program: MdhProgram, dim: Dim, phase: Phase, c: Configuration, machine: Machine) -> ScanNest:
    """Threads share the cc dimensions if the configuration says so, else the scanned one.

    A function that does not commute is scanned in blocks only as a linear recurrence: there the emitted
    code tests whether composed maps do for the iterations, see ``emit.linear_text``.
    """
    threaded = _threaded(phase)
    rows = tuple(d.name for d in program.hom.dims_of("cc") if any(e == d.name for _, e in threaded))
    across = _across(program, dim.name)
    if across:
        shared = tuple(d for d in (*rows, across) if threaded)
        return ScanNest(program, dim.name, None, tuple(dict.fromkeys(shared)), across=across)
    on_dim = [layer for layer, d in threaded if d == dim.name]
    function = program.hom.function
    in_blocks = function is None or function.commutative or is_linear_recurrence(program)
    if rows or not on_dim or _keeps_order(program) or not in_blocks:
        return ScanNest(program, dim.name, None, rows)
    size = math.prod(phase.parts[k, dim.name] for k, d in phase.order if d == dim.name and k > on_dim[0])
    block = max(size, 256)
    point = sum(program.buffer(a.buffer).type.size for a in program.inp.accesses) or 1
    each = max(1, machine.l2 // 4 // (4 * block * point))  # side by side are four blocks
    past = _written_past(program, c)
    return ScanNest(program, dim.name, block, (), 4 * each * machine.cores, past)


def _across(program: MdhProgram, dim: str) -> str:
    """The concatenated dimension along which every point's cells are neighbours, those of ``dim`` are not."""
    if program.hom.domain:
        return ""
    stores = [s for s in program.out.stores if dim not in s.at_last]
    cells = [(s.buffer, s.index) for s in stores] or [(a.buffer, a.index) for a in program.inp.accesses]
    found: set[str] = set()
    for buffer, index in cells:
        if not index or program.buffer(buffer).strides is not None or index[-1].coefficient(dim):
            return ""
        found |= {d.name for d in program.hom.dims_of("cc") if index[-1].coefficient(d.name) == 1}
    return found.pop() if len(found) == 1 else ""


# --------------------------------------------------------------------------- one nest


def _nest(program: MdhProgram, phase: Phase, c: Configuration, machine: Machine) -> Nest:
    names = {d.name for d in program.hom.dims}
    order = [(layer, d) for layer, d in phase.order if d in names]
    depth = 1 + max((layer for layer, _ in order), default=0)
    asked = {n for row in program.hom.domain for n in row.names}  # some loop of these obeys the domain
    even = machine.cores > 1 and may_be_cut(program)
    loops = []
    for layer, d in order:
        count = None if layer == 0 else phase.parts[layer, d]
        size = math.prod(phase.parts[k, d] for k in range(layer + 1, depth))
        known = program.dim(d).size.constant
        fits = layer == 0 and known is not None and known <= size and (size > 1 or d not in asked)
        role = phase.roles[layer, d]
        shared = even and role == "threads" and program.op(d).kind == "cc"
        shared = shared and _has_units(phase, layer, d, known, depth)
        if count == 1 or (fits and not shared):
            continue  # one part, or none
        if layer == 0 and role in ("unrolled", "lanes"):
            role = "sequential"  # its trip count is known at run time only
        loops.append(Loop(d, layer, size, count, role))
    loops, threads = _bind_threads(loops)
    tile = _register_tile(loops, threads[1])
    loops = [
        replace(loop, role="sequential")
        if k < tile and loop.role in ("unrolled", "lanes")
        else loop
        for k, loop in enumerate(loops)
    ]
    accumulate = _accumulate_from(program, loops, threads[1], c)
    whole = _in_equal_parts(Nest(program, tuple(loops), threads, tile, accumulate, (), ""), machine.cores)
    loops, threads, tile, accumulate = list(whole.loops), whole.threads, whole.tile, whole.accumulate
    scope = tile if program.hom.function is None else accumulate
    packs = packs_of(program, loops, threads, scope, c, machine)
    nest = Nest(program, tuple(loops), threads, tile, accumulate, packs, "direct")
    nest = replace(nest, results=_results(nest))
    by_value = keyed(program) if c.table else None
    past = _written_past(program, c)
    joined = tuple(b for b in c.joined if joined_rows(program, b) and b not in read_buffers(program))
    return replace(
        nest,
        past_caches=past,
        fetched=c.fetched,
        keyed=by_value,
        ahead=c.ahead,
        joined=joined,
        aligned=c.aligned,
        divided=whole.divided,
    )


def _has_units(phase: Phase, layer: int, d: str, size: int | None, depth: int) -> bool:
    """Whether threads that share a part as large as a dimension may get less than all of it."""
    if size is None:
        return True
    inner = next((k for k in range(layer + 1, depth) if phase.parts[k, d] > 1), depth)
    return size > math.prod(phase.parts[k, d] for k in range(inner + 1, depth))


def _in_equal_parts(nest: Nest, cores: int) -> Nest:
    """The nest with equal parts for threads where sizes are constants, and which dimensions are divided.

    A thread loop that has one part all the same is left out.
    """
    loops, divided, gone, others = list(nest.loops), [], [], 1
    if not may_be_cut(nest.program):
        return nest
    concatenated = {d.name for d in nest.program.hom.dims_of("cc")}
    for k in range(*nest.threads):
        part, unit = loops[k], unit_of(nest, loops[k].dim)
        n = nest.program.dim(part.dim).size.constant
        if part.dim in concatenated and unit is not None and unit.count is not None:
            units = 0 if n is None else -(-n // unit.size)
            each = constant_part(units, unit.count, others, cores) if units else None
            if each is None:
                divided.append(part.dim)
            else:
                loops[loops.index(unit)] = replace(unit, count=each)
                loops[k] = part = replace(part, size=each * unit.size)
        if n is not None and n <= part.size and part.dim in concatenated and part.dim not in divided:
            gone.append(k)
        others *= 1 if n is None else max(1, -(-n // part.size))
    first, last = nest.threads
    return replace(
        nest,
        loops=tuple(x for k, x in enumerate(loops) if k not in gone),
        threads=(first, last - len(gone)) if last - len(gone) > first else (0, 0),
        tile=nest.tile - len(gone),
        accumulate=nest.accumulate - len(gone),
        divided=tuple(divided),
    )


def unit_of(nest: Nest, dim: str) -> Loop | None:
    """The loop whose parts make up those of the thread loop over ``dim``; None: these cannot be cut."""
    own = [k for k, x in enumerate(nest.loops) if x.dim == dim]
    first, scope = nest.threads[0], min(nest.tile, nest.accumulate)
    if len(own) < 2 or not first <= own[0] < nest.threads[1] or own[1] >= scope:
        return None
    part, unit = nest.loops[own[0]], nest.loops[own[1]]
    if part.count is not None or unit.count is None or unit.count * unit.size != part.size:
        return None
    return unit


def _written_past(program: MdhProgram, c: Configuration) -> tuple[str, ...]:
    """Outputs of this stage that may go past the caches: those that are not read."""
    written = {s.buffer for s in program.out.stores} - read_buffers(program)
    return tuple(b for b in c.past_caches if b in written)


def _bind_threads(loops: list[Loop]) -> tuple[list[Loop], tuple[int, int]]:
    """Thread loops together at the place of the first; one per dimension, the others sequential."""
    bound: list[Loop] = []
    rest: list[Loop] = []
    at: int | None = None
    for loop in loops:
        if loop.role == "threads" and all(b.dim != loop.dim for b in bound):
            # an inner layer may be hoisted over an outer one of its dimension: parts are strided then
            bound.append(loop)
            at = len(rest) if at is None else at
        else:
            rest.append(replace(loop, role="sequential") if loop.role == "threads" else loop)
    if at is None:
        return rest, (0, 0)
    return [*rest[:at], *bound, *rest[at:]], (at, at + len(bound))


def _register_tile(loops: list[Loop], after: int) -> int:
    """Where the register tile begins; lanes only as the very last loop."""
    start, points = len(loops), 1
    while start > after:
        loop = loops[start - 1]
        if loop.count is None or loop.role not in ("unrolled", "lanes"):
            break
        if loop.role == "lanes" and start != len(loops):
            break
        if loop.role == "unrolled" and points * loop.count > TILE_POINTS:
            break
        points *= loop.count if loop.role == "unrolled" else 1
        start -= 1
    return start


def _accumulate_from(
    program: MdhProgram, loops: list[Loop], after: int, c: Configuration
) -> int:
    """Where the local tile of results begins (R3, S5)."""
    if program.hom.function is None:
        return len(loops)
    outs = [b for b in output_buffers(program) if b in dict(c.output_memory)]
    columns = columns_of(program, c)
    start = len(loops)
    if all(dict(c.scalar_output_memory)[b] for b in outs):
        while start > after:
            loop = loops[start - 1]
            d = columns.get(loop.dim)
            if d is not None and not all(dict(c.output_memory)[b][loop.layer][d] for b in outs):
                break
            start -= 1
    concatenated = {d.name for d in program.hom.dims_of("cc")}
    cell = sum(t.size for t in program.component_types)
    while start < len(loops):
        inside = [loop for loop in loops[start:] if loop.dim in concatenated]
        counts = [loop.count for loop in inside]
        if None not in counts and math.prod(n or 1 for n in counts) * cell <= ACCUMULATOR_BYTES:
            break
        start += 1
    return start


# --------------------------------------------------------------------------- results


def _results(nest: Nest) -> str:
    program = nest.program
    reduced = {d.name for d in program.hom.dims_of("pw")}
    shared = any(x.dim in reduced for x in nest.loops[nest.threads[0] : nest.threads[1]])
    revisited = any(x.dim in reduced for x in nest.loops[: nest.accumulate])
    if shared:
        return "parts"
    if not revisited:
        return "direct"
    return "in place" if can_stay_in_place(program) else "parts"


def can_stay_in_place(program: MdhProgram) -> bool:
    """Whether every component is stored as it is in a cell of its own that nothing else reads."""
    written = {s.buffer for s in program.out.stores}
    stored = [s.plain for s in program.out.stores]
    if sorted(x for x in stored if x is not None) != list(range(len(program.component_types))):
        return False
    if len(stored) != len(program.component_types) or len(written) != len(stored):
        return False
    if any(a.buffer in written for a in program.inp.accesses):
        return False
    for s in program.out.stores:
        assert s.plain is not None
        if s.at_last or program.buffer(s.buffer).type != program.component_types[s.plain]:
            return False
        initial = program.out.initial[s.plain]
        if initial is None:
            return False
        for n in walk(initial):
            if isinstance(n, Load) and n.buffer in written and n.buffer != s.buffer:
                return False
    return True
