"""Lowering for GPUs: a program and a configuration become kernels, each a grid of blocks of threads.

    stage ::= GpuNest(program, blocks, threads, around, inside, tiles) | ScanNest | GpuHistogram

before   three phases with an order and an assignment each, on a model with ``blocks`` (SMX, CU), ``threads``
         (WRP, CC, PE), shared (SM, LM) and private memory (RM, PM)
after    per kernel:  blocks -> sequential loops over tiles of a block (around) -> threads -> loops inside

What becomes of the tuning parameters of mdh.md 4.4:

* Phases that differ are stages of their own (``lowering.phases``).
* Loops on ``blocks`` and ``threads`` layers are bound outermost, whatever their place in the order: a cell
  belongs to one thread, which meets its points in the order of what is left.  Threads have constant
  counts; the outermost layer, whose number of parts is known at run time, goes to blocks instead.  What
  would be more threads than a block may have is sequential.
* The dimension of the abstract machine that a level is assigned to (D2, S2, R2) orders the threads of a
  block: the last one is the fastest, so that neighbours in it are neighbouring threads.
* A reduction whose parts are on different blocks is two programs: one with the parts as a concatenated
  dimension, whose results are temporaries, and one that combines these (``in_parts``).  So the grouping
  belongs to the configuration, and is the same in every run.  On the threads of a block, parts are
  combined through shared memory at the end of the kernel.
* Concatenated loops of constant length inside form the local tile of results, in registers, inside of all
  reduced loops; longer ones run around them.
* An input whose region is shared memory at some loop is copied there by all threads of the block, as far as
  loops around are the same for all of them and the box fits.  Other regions have no effect.

Indices are sums: each loop adds ``number * size``, whatever the order.  So a part is clipped by comparing the
index with the size, and every loop has the same trip count in all threads of a block, as barriers need.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from lowering.device import Device
from lowering.domains import read_in_boxes
from lowering.gpu_histogram import GpuHistogram, gpu_histogram
from lowering.loops import Loop, size_name
from lowering.lower import ScanNest
from lowering.machine import SystemModel
from lowering.packs import box_of, linear_part, scalar_nodes
from lowering.parameters import Configuration, Layout, columns_of, reassociates
from lowering.phases import Phase, staged
from lowering.swizzle import Swizzle
from mdh_core.combine import CC
from mdh_core.expr import (
    INT64,
    Affine,
    Binary,
    Const,
    Constraint,
    Expr,
    Load,
    Operand,
    Result,
    ScalarType,
    Var,
    as_affine,
    map_stmts,
    rewrite,
    walk,
)
from mdh_core.ir import (
    Access,
    Buffer,
    Dim,
    InputView,
    MdHom,
    MdhProgram,
    OutputView,
    Param,
    ScalarFunction,
    Size,
    Store,
)
from mdh_core.polytope import rows_of

INT_MAX = (1 << 31) - 1
TILE_CELLS = 128  # results that one thread keeps at most, times their components
PLAIN_UNIT = 128  # threads of a block where no configuration says
COPIED = 128  # bytes of a copy that a thread keeps in registers at most, on their way to shared memory
VECTOR_BYTES = 16  # of one instruction that reads neighbours, at most


@dataclass(frozen=True, slots=True)
class SharedTile:
    """Before ``inside[at]``, all threads copy what the block reads of ``buffer`` from there on.

    extents   of the copy, in the buffer's order of dimensions
    layout    order of the dimensions in the copy, the last one side by side
    padding   further elements of each row, so that columns lie in different banks
    vector    neighbours that a thread reads with one instruction, where aligned; divides the last extent
    swizzle   which places the cells have, besides
    ahead     whether the next iteration's copy is read, to registers, before the current one is used
    """

    buffer: str
    at: int
    layout: Layout
    extents: tuple[int, ...]
    padding: int = 0
    vector: int = 1
    ahead: bool = False
    swizzle: Swizzle | None = None

    def registers(self, unit: int) -> int:
        """Elements that a thread copies, of a block with so many."""
        return -(-math.prod(self.extents) // (unit * self.vector)) * self.vector

    @property
    def strides(self) -> tuple[int, ...]:
        """Elements of the copy between neighbours, per dimension of the buffer."""
        strides, cells = [0] * len(self.extents), 1
        for k, position in enumerate(reversed(self.layout)):
            strides[position] = cells
            cells *= self.extents[position] + (self.padding if k == 0 and len(self.layout) > 1 else 0)
        return tuple(strides)

    @property
    def cells(self) -> int:
        first = self.layout[0]
        plain = self.strides[first] * self.extents[first]
        return self.swizzle.room(plain) if self.swizzle else plain


@dataclass(frozen=True, slots=True)
class GpuNest:
    """One kernel: see the module docstring.

    blocks   loops whose iterations are blocks, slowest first
    threads  loops whose iterations are the threads of a block, slowest first
    around   sequential loops over concatenated dimensions, outside of everything else
    inside   reduced loops, then those of the local tile
    instruction  name of the row that computes the innermost part; empty: a plain one
    resident blocks that a multiprocessor should have room for: what registers a thread may have
    """

    program: MdhProgram
    blocks: tuple[Loop, ...]
    threads: tuple[Loop, ...]
    around: tuple[Loop, ...] = ()
    inside: tuple[Loop, ...] = ()
    tiles: tuple[SharedTile, ...] = ()
    resident: int = 1
    instruction: str = ""

    @property
    def unit(self) -> int:
        """Threads of a block."""
        return math.prod(x.count or 1 for x in self.threads)

    @property
    def reduced(self) -> int:
        """How many of the loops inside are not those of the local tile."""
        kept = {d.name for d in self.program.hom.dims_of("cc")}
        return sum(x.dim not in kept for x in self.inside)


GpuStage = GpuNest | ScanNest | GpuHistogram


@dataclass(frozen=True, slots=True)
class GpuLowered:
    stages: tuple[GpuStage, ...]
    temporaries: tuple[Buffer, ...] = ()


def lower_gpu(
    program: MdhProgram, c: Configuration, model: SystemModel, device: Device, tag: str = ""
) -> GpuLowered:
    """The kernels of a program under a legal configuration of ``model``."""
    pieces, temporaries = staged(program, c, model, tag)
    stages: list[GpuStage] = []
    more: list[Buffer] = list(temporaries)
    for piece in pieces:
        p = piece.program
        if piece.form is not None:
            stages.append(gpu_histogram(p, piece.form, c, model, device))
        elif scanned := p.hom.dims_of("ps"):
            stages.append(ScanNest(p, scanned[0].name, None, tuple(d.name for d in p.hom.dims_of("cc"))))
        else:
            stages += _nests(p, piece.phase, c, model, device, more)
    return GpuLowered(tuple(stages), tuple(more))


def _nests(
    program: MdhProgram,
    phase: Phase,
    c: Configuration,
    model: SystemModel,
    device: Device,
    temporaries: list[Buffer],
) -> list[GpuNest]:
    loops = _loops_of(program, phase)
    reduced = {d.name for d in program.hom.dims_of("pw")}
    parted = [x for x in loops if x.role == "blocks" and x.dim in reduced and _is_outermost(x, loops)]
    if not parted or not may_split(program):
        return [_nest(program, loops, phase, c, model, device)]
    first, second, names = in_parts(program, {x.dim: x.size for x in parted}, temporaries)
    own = [
        replace(x, dim=names[x.dim][0], size=1)
        if x in parted
        else replace(x, dim=names[x.dim][1])
        if x.dim in names
        else x
        for x in loops
    ]
    return [_nest(first, own, phase, c, model, device), plain_nest(second, device)]


def _loops_of(program: MdhProgram, phase: Phase) -> list[Loop]:
    """The loops of a phase, without those of one part."""
    names = {d.name for d in program.hom.dims}
    order = [(layer, d) for layer, d in phase.order if d in names]
    depth = 1 + max((layer for layer, _ in order), default=0)
    loops = []
    for layer, d in order:
        count = None if layer == 0 else phase.parts[layer, d]
        size = math.prod(phase.parts[k, d] for k in range(layer + 1, depth))
        known = program.dim(d).size.constant
        if layer == 0 and known is not None:
            count = max(1, -(-known // size))
        if count != 1:
            loops.append(Loop(d, layer, size, count, phase.roles[layer, d]))
    return loops


def _is_outermost(loop: Loop, loops: Iterable[Loop]) -> bool:
    return all(x.layer >= loop.layer for x in loops if x.dim == loop.dim)


def _nest(
    program: MdhProgram,
    loops: list[Loop],
    phase: Phase,
    c: Configuration,
    model: SystemModel,
    device: Device,
) -> GpuNest:
    kept = {d.name for d in program.hom.dims_of("cc")}

    def fastest_last(loop: Loop) -> int:
        return phase.places.get((loop.layer, loop.dim), (0, 0))[1]

    on_blocks = [
        x
        for x in loops
        if x.dim in kept and (x.role == "blocks" or (x.role == "threads" and x.count is None))
    ]
    threads: list[Loop] = []
    alone = program.fp == "exact" and reassociates(program)  # who keeps the order of a reduction
    for x in loops:
        room = device.block_threads // math.prod(y.count or 1 for y in threads)
        may_be_shared = x.dim in kept or not alone
        if x.role == "threads" and may_be_shared and x not in on_blocks and 1 < (x.count or 0) <= room:
            threads.append(x)
    rest = [x for x in loops if x not in on_blocks and x not in threads]
    cells: list[Loop] = []
    left = TILE_CELLS // max(1, len(program.component_types))
    for x in reversed([x for x in rest if x.dim in kept]):
        if x.count is None or x.count > left:
            break
        cells.insert(0, x)
        left //= x.count
    around = [x for x in rest if x.dim in kept and x not in cells]
    inside = [x for x in rest if x.dim not in kept] + cells
    nest = GpuNest(
        program,
        tuple(sorted(on_blocks, key=fastest_last)),
        _grouped(sorted(threads, key=fastest_last), kept),
        tuple(around),
        tuple(inside),
        resident=c.resident,
        instruction=c.instruction,
    )
    return replace(nest, tiles=_tiles(nest, c, model, device))


def _grouped(threads: list[Loop], kept: set[str]) -> tuple[Loop, ...]:
    """Loops over reduced dimensions together: the fastest, or the slowest where a kept one is fastest."""
    if not threads:
        return ()
    own = [x for x in threads if x.dim in kept]
    reduced = [x for x in threads if x.dim not in kept]
    return tuple(reduced + own if threads[-1] in own else own + reduced)


def plain_nest(program: MdhProgram, device: Device) -> GpuNest:
    """A kernel that no configuration is about: a thread per cell, or a block for the only one."""
    kept, reduced = program.hom.dims_of("cc"), program.hom.dims_of("pw")
    unit = min(PLAIN_UNIT, device.block_threads)
    if not kept:
        if not reduced:
            return GpuNest(program, (), ())
        *others, last = [d.name for d in reduced]
        outer = tuple(Loop(d, 0, 1, None, "sequential") for d in others)
        outer += (Loop(last, 0, unit, None, "sequential"),)
        alone = program.fp == "exact" and reassociates(program)
        if alone:
            return GpuNest(program, (), (), (), tuple(replace(x, size=1) for x in outer))
        return GpuNest(program, (), (Loop(last, 1, 1, unit, "threads"),), (), outer)
    *first, fastest = [d.name for d in kept]
    blocks = tuple(Loop(d, 0, 1, None, "blocks") for d in first)
    blocks += (Loop(fastest, 0, unit, None, "blocks"),)
    inside = tuple(Loop(d.name, 0, 1, None, "sequential") for d in reduced)
    return GpuNest(program, blocks, (Loop(fastest, 1, 1, unit, "threads"),), (), inside)


# --------------------------------------------------------------------------- reductions in parts


def may_split(program: MdhProgram) -> bool:
    """Whether cells of parts have a value, so that they can be temporaries."""
    function = program.hom.function
    if function is None or (program.fp == "exact" and reassociates(program)):
        return False
    reduced = {d.name for d in program.hom.dims_of("pw")}
    ragged = any(r.names & reduced for r in program.hom.domain)
    # without an initial value, a cell to which nothing contributes is not stored: parts do not tell
    return not ragged or (function.identity is not None and None not in program.out.initial)


def in_parts(
    program: MdhProgram, sizes: dict[str, int], temporaries: list[Buffer]
) -> tuple[MdhProgram, MdhProgram, dict[str, tuple[str, str]]]:
    """A reduction as one of parts and one over the parts; per dimension the names of part and rest.

    before   pw(f) in k
    after    cc in k_part, pw(f) in k_in,  k = 256*k_part + k_in  < k_size,  to a temporary;  pw(f) in k_part

    sizes   elements of a part
    """
    taken = {d.name for d in program.hom.dims} | {q.name for q in program.params}
    taken |= {b.name for b in program.buffers}
    names: dict[str, tuple[str, str]] = {}
    for name in sizes:
        names[name] = _free(f"{name}_part", taken), _free(f"{name}_in", taken)
    dims: list[Dim] = []
    combine = []
    rows: list[Constraint] = []
    index: dict[str, Affine] = {}
    params = list(program.params)
    for dim, op in zip(program.hom.dims, program.hom.combine, strict=True):
        if dim.name not in sizes:
            dims.append(dim)
            combine.append(op)
            continue
        part, rest = names[dim.name]
        n, known, size = sizes[dim.name], dim.size.constant, size_name(dim.name)
        dims += [Dim(part, Size(dim.size.span, dim.size.step * n)), Dim(rest, Size(Affine.number(n)))]
        combine += [CC, op]
        index[dim.name] = Affine.of(part) * n + Affine.of(rest)
        if known is None:
            params.append(Param(size, INT64, size))
            rows.append(Constraint(Affine.of(size) - 1 - index[dim.name]))
        elif known % n:
            rows.append(Constraint(Affine.number(known) - 1 - index[dim.name]))

    def expr(e: Expr) -> Expr:
        def at(node: Expr) -> Expr | None:
            if not isinstance(node, Var) or node.name not in names:
                return None
            assert isinstance(node.type, ScalarType)
            part, rest = names[node.name]
            whole = Binary("*", Var(part, node.type), Const(sizes[node.name], node.type), node.type)
            return Binary("+", whole, Var(rest, node.type), node.type)

        return rewrite(e, at)

    scalar = program.hom.scalar
    every = [d.name for d, op in zip(dims, combine, strict=True) if op.kind != "pw"]
    at = tuple(Affine.of(d) for d in every)
    types = program.component_types
    function = program.hom.function
    assert function is not None
    identity = function.identity
    buffers: list[Buffer] = []
    for k, t in enumerate(types):
        name = _free(f"mdh_parts{len(temporaries)}_{k}", taken)
        buffers.append(Buffer(name, t, tuple(Affine.of(size_name(d)) for d in every)))
    temporaries += buffers
    accesses = tuple(
        replace(a, index=tuple(x.substitute(index) for x in a.index)) for a in program.inp.accesses
    )
    first = replace(
        program,
        params=tuple(params),
        buffers=(*program.buffers, *buffers),
        inp=InputView(accesses),
        hom=MdHom(
            tuple(dims),
            replace(
                scalar, results=tuple(map(expr, scalar.results)), body=map_stmts(scalar.body, expr)
            ),
            tuple(combine),
            (*(r.substitute(index) for r in program.hom.domain), *rows),
        ),
        out=OutputView(
            (None,) * len(types) if identity is None else identity,  # some parts may have no points
            tuple(Store(b.name, at, Result(k, b.type)) for k, b in enumerate(buffers)),
        ),
    )
    parts = {part for part, _ in names.values()}
    op = next(o for o in program.hom.combine if o.kind == "pw")
    reduced = {d.name for d in program.hom.dims_of("pw")}
    kept = [d for d in dims if d.name in every]
    second = replace(
        program,
        params=tuple(params),
        buffers=(*program.buffers, *buffers),
        inp=InputView(tuple(Access(b.name, at) for b in buffers)),
        hom=MdHom(
            tuple(kept),
            ScalarFunction(tuple(Operand(k, t) for k, t in enumerate(types))),
            tuple(op if d.name in parts else CC for d in kept),
            tuple(r for r in program.hom.domain if not r.names & reduced),
        ),
    )
    return first, second, names


def _free(wish: str, taken: set[str]) -> str:
    name, k = wish, 2
    while name in taken or size_name(name) in taken:
        name, k = f"{wish}_{k}", k + 1
    taken.add(name)
    return name


# --------------------------------------------------------------------------- indices


def index_limit(nest: GpuNest) -> int:
    """The largest size of all dimensions for which each index, and each sum of an access, is an ``int``.

    An index is less than its size and what one iteration of the outermost loop has, wherever a thread is.
    Strides of arrays are left out: what is multiplied with them is ``long``.
    """
    program = nest.program
    dims = {d.name for d in program.hom.dims}
    sums = [Affine.of(d) for d in dims] + [x for a in program.inp.accesses for x in a.index]
    sums += [x for s in program.out.stores for x in s.index] + list(rows_of(program.hom.domain))
    others = (e for e in (*program.out.initial, *(s.value for s in program.out.stores)) if e is not None)
    for node in (*scalar_nodes(program), *(n for e in others for n in walk(e))):
        if isinstance(node, Load):
            sums += [x for x in map(as_affine, node.index) if x is not None]
    loops = (*nest.blocks, *nest.threads, *nest.around, *nest.inside)
    beyond = 2 * max((x.size * (x.count or 1) for x in loops), default=1)
    found = INT_MAX
    for a in sums:
        weight = sum(abs(c) for n, c in a.terms if n in dims)
        if weight:
            found = min(found, (INT_MAX - abs(a.const)) // weight - beyond)
    return found


# --------------------------------------------------------------------------- shared memory


def split_of(nest: GpuNest) -> int:
    """How many of the loops inside are begun before parts may be clipped: up to the last run-time one."""
    return max((k for k, x in enumerate(nest.inside[: nest.reduced], 1) if x.count is None), default=0)


def _tiles(nest: GpuNest, c: Configuration, model: SystemModel, device: Device) -> tuple[SharedTile, ...]:
    """Copies in shared memory (D3, D4), as far as they fit."""
    program = nest.program
    columns = columns_of(program, c)
    regions, layouts = dict(c.input_memory), dict(c.input_layout)
    shared = {k for k, m in enumerate(model.memory) if k and m.role == "sequential"}
    nodes = scalar_nodes(program)
    read = {program.inp.accesses[n.access].buffer for n in nodes if isinstance(n, Operand)}
    loaded = {n.buffer for n in nodes if isinstance(n, Load)}  # at computed indices
    left = device.shared
    if any(x.dim not in {d.name for d in program.hom.dims_of("cc")} for x in nest.threads):
        left -= nest.unit * sum(t.size + 1 for t in program.component_types)  # to combine the threads' parts
    tiles: list[SharedTile] = []
    for name in dict.fromkeys(a.buffer for a in program.inp.accesses):
        accesses = [a for a in program.inp.accesses if a.buffer == name]
        if (
            name not in regions
            or name not in read
            or name in loaded
            or not program.buffer(name).rank
            or any(a.conditional or linear_part(a) != linear_part(accesses[0]) for a in accesses)
            or any(s.buffer == name for s in program.out.stores)
            or (program.hom.domain and any(read_in_boxes(program, a) != [] for a in accesses))
        ):
            continue
        split = split_of(nest)
        at = layout = None
        for loop in (*nest.inside, *nest.threads, *nest.around, *nest.blocks):
            d = columns.get(loop.dim)
            if d is not None and regions[name][loop.layer][d] in shared:
                at = min(nest.inside.index(loop), split) if loop in nest.inside else split
                layout = layouts[name][loop.layer][d]
                break
        if at is None or layout is None:
            continue
        extents = box_of(program, accesses, [*nest.threads, *nest.inside[at:]])
        if extents is None:
            continue
        tile = SharedTile(name, at, layout, extents, dict(c.padding).get(name, 0))
        if name in dict(c.swizzle):
            tile = replace(tile, swizzle=Swizzle(*dict(c.swizzle)[name]))
        tile = _through_registers(tile, program, c, nest.unit, split_of(nest))
        size = tile.cells * program.buffer(name).type.size
        if size <= left:
            tiles.append(tile)
            left -= size
    together = all(t.ahead for t in tiles if t.at == split_of(nest))  # one loop has all of them
    return tuple(t if together else replace(t, ahead=False) for t in tiles)


def _through_registers(
    tile: SharedTile, program: MdhProgram, c: Configuration, unit: int, split: int
) -> SharedTile:
    """The copy with the vectors and stages that the configuration asks for, as far as they are possible."""
    b = program.buffer(tile.buffer)
    if not isinstance(b.type, ScalarType) or b.type.size not in (4, 8):
        return tile
    vector = min(dict(c.vectors).get(tile.buffer, 1), VECTOR_BYTES // b.type.size)
    neighbours = b.strides is None or b.strides[-1] == Affine.number(1)
    if vector > 1 and neighbours and tile.extents[-1] % vector == 0:
        wide = replace(tile, vector=vector)
        tile = wide if wide.registers(unit) * b.type.size <= COPIED else tile
    ahead = c.stages > 1 and tile.at == split and split > 0
    return replace(tile, ahead=ahead and tile.registers(unit) * b.type.size <= COPIED)
