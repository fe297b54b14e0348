"""Copies of the inputs' parts that a tile reads: at which loop, in which layout, and where they are kept."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from lowering.domains import read_in_boxes
from lowering.loops import Loop, loop_range
from lowering.machine import Machine
from lowering.parameters import Configuration, Layout, columns_of
from mdh_core.expr import Expr, Load, Operand, stmt_exprs, walk
from mdh_core.ir import Access, MdhProgram
from mdh_core.polytope import rows_of

PACK_BYTES = 1 << 26  # of a copy that threads share
PRIVATE_BYTES = 1 << 23  # of the copies of one thread


@dataclass(frozen=True, slots=True)
class Pack:
    """Before ``loops[at]``, copy what the accesses of ``buffer`` read inside, with this layout.

    extents   of the copy, in the buffer's order of dimensions (constant upper bounds)
    strip     (t, width): coordinate t, the last of the layout, is cut into strips as wide as a tile of
              vectors, one after the other, so that a tile reads its part from front to back; None: one tile
    heap      a private copy is too large for a thread's stack
    """

    buffer: str
    at: int
    layout: Layout
    extents: tuple[int, ...]
    strip: tuple[int, int] | None = None
    heap: bool = False

    @property
    def cells(self) -> int:
        """Elements of the copy, strips being whole."""
        total = math.prod(self.extents)
        if self.strip is None:
            return total
        t, width = self.strip
        return total // self.extents[t] * (-(-self.extents[t] // width) * width)


def packs_of(
    program: MdhProgram,
    loops: list[Loop],
    threads: tuple[int, int],
    scope: int,
    c: Configuration,
    machine: Machine,
) -> tuple[Pack, ...]:
    """Where inputs are copied: the outermost level of a region or layout of their own (D3, D4)."""
    columns = columns_of(program, c)
    regions, layouts = dict(c.input_memory), dict(c.input_layout)
    registers = {k for k, m in enumerate(machine.model.memory) if m.role == "unrolled"}
    private = stack = 0
    packs = []
    nodes = scalar_nodes(program)
    read = {program.inp.accesses[n.access].buffer for n in nodes if isinstance(n, Operand)}
    loaded = {n.buffer for n in nodes if isinstance(n, Load)}  # at computed indices
    for name in dict.fromkeys(a.buffer for a in program.inp.accesses):
        accesses = [a for a in program.inp.accesses if a.buffer == name]
        buffer = program.buffer(name)
        if (
            name not in regions
            or name not in read
            or not buffer.rank
            or any(a.conditional or linear_part(a) != linear_part(accesses[0]) for a in accesses)
            or any(s.buffer == name for s in program.out.stores)
            or name in loaded
            or (program.hom.domain and any(read_in_boxes(program, a) != [] for a in accesses))
        ):
            continue
        plain = tuple(range(buffer.rank))
        for at, loop in enumerate(loops):
            d = columns.get(loop.dim)
            if d is None or threads[0] < at < threads[1]:
                continue
            region, layout = regions[name][loop.layer][d], layouts[name][loop.layer][d]
            if (region == 0 or region in registers) and layout == plain:
                continue
            extents = box_of(program, accesses, loops[at:])
            if extents is None:
                continue
            pack = Pack(name, at, layout, extents, _strip(program, accesses, layout, loops, at, scope))
            size = pack.cells * buffer.type.size
            if at < threads[1]:  # shared
                if size > PACK_BYTES:
                    continue
            else:
                if private + size > PRIVATE_BYTES:
                    continue
                pack = replace(pack, heap=stack + size > machine.stack)
                private += size
                stack += 0 if pack.heap else size
            packs.append(pack)
            break
    return _agreeing(program, packs, loops)


def _agreeing(program: MdhProgram, packs: list[Pack], loops: list[Loop]) -> tuple[Pack, ...]:
    """The copies, with strips only where all copies of the dimension have them.

    Tiles on the border are moved back, but not to before what a copy that is not cut holds.
    """
    d = loops[-1].dim if loops else ""
    for pack in packs:
        accesses = [a for a in program.inp.accesses if a.buffer == pack.buffer]
        if pack.strip is None and any(x.coefficient(d) for a in accesses for x in a.index):
            return tuple(replace(p, strip=None) for p in packs)
    return tuple(packs)


def _strip(
    program: MdhProgram, accesses: list[Access], layout: Layout, loops: list[Loop], at: int, scope: int
) -> tuple[int, int] | None:
    """The coordinate along which the vectors of several tiles lie, and the elements of a tile in it.

    Tiles must begin at multiples of their width behind the beginning of the copy; the ends of a domain's
    rows, which tiles may follow, do not.
    """
    vectors = loops[-1] if loops else None
    d = vectors.dim if vectors is not None and vectors.role == "lanes" and scope < len(loops) else None
    if d is None or program.op(d).kind != "cc" or any(d in r.names for r in rows_of(program.hom.domain)):
        return None
    own = [t for t, a in enumerate(accesses[0].index) if a.coefficient(d)]
    if own != [layout[-1]]:
        return None
    index = accesses[0].index[own[0]]
    if index.coefficient(d) != 1 or any(a.index[own[0]] != index for a in accesses):
        return None
    dims = {x.name for x in program.hom.dims}
    of_dim = [x for x in loops if x.dim == d]
    inner, outer = ([x for x in part if x.dim == d] for part in (loops[scope:], loops[at:scope]))
    width = math.prod(x.count or 0 for x in inner)
    if (
        len(index.names & dims) > 1
        or at > scope
        or width != loop_range(inner, d)
        or not outer
        or any(x.size % width for x in outer)
        or [x.layer for x in of_dim] != sorted(x.layer for x in of_dim)
    ):
        return None
    return own[0], width


def scalar_nodes(program: MdhProgram) -> list[Expr]:
    scalar = program.hom.scalar
    return [n for e in (*scalar.results, *stmt_exprs(scalar.body)) for n in walk(e)]


def box_of(program: MdhProgram, accesses: list[Access], inner: list[Loop]) -> tuple[int, ...] | None:
    """Constant extents of the cells that the accesses touch inside ``inner``, or None."""
    extents = []
    dims = {d.name for d in program.hom.dims}
    for t in range(len(accesses[0].index)):
        constants = [a.index[t].const for a in accesses]
        extent = max(constants) - min(constants) + 1
        for name, coefficient in accesses[0].index[t].terms:
            if name not in dims:
                continue  # a parameter
            span = loop_range(inner, name, program.dim(name).size.constant)
            if span is None:
                return None
            extent += abs(coefficient) * (span - 1)
        extents.append(extent)
    return tuple(extents)


def linear_part(access: Access) -> tuple[tuple[tuple[str, int], ...], ...]:
    return tuple(a.terms for a in access.index)
