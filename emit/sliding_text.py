"""Operands of a register tile that depend on the sum of a row and a reduced index: each is loaded once.

before   for r: for p: acc[p] += in[p + r] * w[r]           rows * reduced loads
after    for x: { v = in[x];  for p: if (0 <= x - p < R) acc[p] += v * w[x - p]; }      rows + reduced - 1

with ``w`` in registers, too.  All loops are written out by the compiler, so that the condition costs nothing.
Convolutions and other stencils with a reduced dimension have such operands.  Compilers fold a load into every
multiplication that uses it, and the loads are then what limits the speed; ``MDH_KEEP`` says that the value
is to stay in its register.  Where a window slides along vectors side by side, what one vector loads the other
loads some steps later: gcc 12 keeps such values from step to step, more of them than there are registers (2
to 2.5 times as slow).  It does not where it cannot see how the step's variable changes.

A second reduced dimension along which lanes slide, as the columns of a convolution, is done several columns
at a time, as many as have their ``w`` in registers:

    for x: for s in columns: { v = in[x, lanes + s];  ... acc[p] += v * w[x - p, s]; }

What follows one another lies in one line or in two, and a line is read where it was read just before.  Column
after column, each row's line is asked for again when all other rows' were: rows that lie a multiple of 4 KiB
apart are in the same few places of the first cache, and there are more of them than it has there.
"""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from emit.vector_printer import VectorPrinter
from lowering.held import beside
from lowering.loops import Loop
from mdh_core.expr import Operand, ScalarType, variables
from mdh_core.ir import Access

if TYPE_CHECKING:
    from emit.tile_text import Tile

MIN_BYTES = 16  # of a vector that has a register of its own on every machine


@dataclass(frozen=True, slots=True)
class Sliding:
    """``shared``, ``weights``: numbers of the accesses that depend on the sum, on ``reduced`` alone.

    ``columns``: a loop over neighbours of ``shared``, which are loaded one after the other.
    """

    rows: Loop
    reduced: Loop
    shared: tuple[int, ...]
    weights: tuple[int, ...]
    columns: Loop | None = None


def sliding(tile: Tile, k: int) -> Sliding | None:
    """The loops of ``inner[k:]`` that share operands, or None where none do or the order is to be kept."""
    program, vectors, lanes = tile.n.program, tile.vectors, tile.lanes
    loops = [x for x in tile.inner[k:] if x is not lanes]
    if vectors is None or lanes is None or tile.reduces_lanes or tile.n._keeps_order:
        return None
    if program.hom.scalar.body or any(a.conditional for a in program.inp.accesses):
        return None
    rows = [x for x in loops if x.dim in tile.n.concatenated]
    dims = [x.dim for x in tile.inner[k:]]
    if len(rows) != 1 or len(set(dims)) < len(dims) or any(x.count is None for x in loops):
        return None
    if {n for e in program.hom.scalar.results for n in variables(e)} & set(dims):
        return None
    types = [*tile.types, *(program.buffer(a.buffer).type for a in program.inp.accesses)]
    if any(not isinstance(t, ScalarType) or (lanes.count or 0) * t.size < MIN_BYTES for t in types):
        return None
    pairs = (_pair(program.inp.accesses, rows[0], x, lanes) for x in loops if x is not rows[0])
    found = next((s for s in pairs if s is not None), None)
    return None if found is None else replace(found, columns=_columns(tile, found, loops))


def _columns(tile: Tile, found: Sliding, loops: list[Loop]) -> Loop | None:
    """The innermost of ``loops`` whose iterations read neighbours, written out and with weights to keep."""
    assert tile.lanes is not None
    accesses, lanes = tile.n.program.inp.accesses, tile.lanes.dim
    for x in reversed(loops):
        if x in (found.rows, found.reduced) or x.role != "unrolled" or (x.count or 1) == 1:
            continue
        if found.weights and all(
            tile.context.lane_stride(accesses[k].buffer, accesses[k].index, d) == 1
            for k in found.shared
            for d in (lanes, x.dim)
        ):
            return x
    return None


def _pair(accesses: tuple[Access, ...], rows: Loop, reduced: Loop, lanes: Loop) -> Sliding | None:
    shared, weights = [], []
    for number, a in enumerate(accesses):
        uses_rows, uses_reduced, uses_lanes = (
            any(i.coefficient(x.dim) for i in a.index) for x in (rows, reduced, lanes)
        )
        if uses_rows and uses_reduced:
            if not uses_lanes or not all(
                i.coefficient(rows.dim) * rows.size == i.coefficient(reduced.dim) * reduced.size
                for i in a.index
            ):
                return None
            shared.append(number)
        elif uses_reduced:
            if uses_lanes:
                return None
            weights.append(number)
    return Sliding(rows, reduced, tuple(shared), tuple(weights)) if shared else None


def no_values_before(name: str) -> str:
    """What keeps a compiler from holding values that were read at former values of a variable."""
    return f'__asm__("" : "+r"({name})); /* no values from steps before: gcc 12 has too many */'


def write_sliding(tile: Tile, k: int, found: Sliding) -> None:
    """The loops of ``inner[k:]``."""
    step = tile.context.at[tile.inner[k - 1].dim] if k else ""
    if step.isidentifier() and tile.inner[k - 1].dim not in tile.n.concatenated:
        tile.out.add(no_values_before(step))
    others = [x for x in tile.inner[k:] if x not in (found.rows, found.reduced, found.columns, tile.lanes)]
    with ExitStack() as stack:
        stack.callback(tile._restore, dict(tile.context.at), dict(tile.counters))
        for loop in others:
            tile._constant_loop(loop, stack)
        columns = _Columns.open(tile, found, stack) if found.columns is not None else None
        _sum_loop(tile, found, _kept_weights(tile, found, columns), columns)


@dataclass(frozen=True, slots=True)
class _Columns:
    """A loop whose iterations from ``first`` on, ``held`` of them, have their weights in registers."""

    loop: Loop
    first: str
    held: str
    start: str  # the index of its dimension at iteration 0

    @classmethod
    def open(cls, tile: Tile, found: Sliding, stack: ExitStack) -> _Columns:
        """Into the loop over the first ones."""
        loop, names = found.columns, tile.context.names
        assert loop is not None
        room, held, first = (names.new(f"{loop.dim}_{x}") for x in ("room", "held", "first"))
        each = (found.reduced.count or 1) * len(found.weights)
        limited = f"{room} < 1 ? 1 : {room} < {loop.count} ? {room} : {loop.count}"
        tile.out.add(
            f"enum {{ {room} = (MDH_REGISTERS - {_in_use(tile, found)})/{each}, {held} = {limited} }};",
            f"#pragma GCC unroll {loop.count}",
        )
        stack.enter_context(
            tile.out.block(f"for (long {first} = 0; {first} < {loop.count}; {first} += {held})")
        )
        return cls(loop, first, held, tile.context.at[loop.dim])

    def each(self, tile: Tile, stack: ExitStack) -> str:
        """Into the loop over those that are held; the number of one among them."""
        names, out = tile.context.names, tile.out
        v, number = names.new(f"{self.loop.dim}_c"), names.new(f"{self.loop.dim}_r")
        out.add(f"#pragma GCC unroll {self.loop.count}")
        stack.enter_context(out.block(f"for (long {v} = 0; {v} < {self.held}; {v}++)"))
        out.add(f"const long {number} = {self.first} + {v};")
        stack.enter_context(out.block(f"if ({number} < {self.loop.count})"))
        tile.context.at[self.loop.dim] = _index(self.start, self.loop, number)
        return v


def _in_use(tile: Tile, found: Sliding) -> str:
    """Registers that accumulators, what is loaded, and what a point needs besides have."""
    assert tile.vectors is not None
    rows = math.prod(count for _, count in tile.axes if isinstance(count, int)) * len(tile.types)
    others = len(found.shared) + beside(tile.n.program, {*found.shared, *found.weights})
    return f"{others} - {rows}*vectors_{tile.vectors.suffix}"


def _kept_weights(tile: Tile, found: Sliding, columns: _Columns | None) -> dict[int, str]:
    """Vectors with what does not depend on rows, all lanes being equal: ``%s`` is the reduced index.

    Where there are ``columns``, a second ``%s`` before it is the number of one among those that are held.
    """
    if not found.weights:
        return {}
    vectors, names = tile.vectors, {}
    assert vectors is not None
    for number in found.weights:
        name = tile.context.names.new("weight")
        shape = f"[{columns.held}]" if columns else ""
        tile.out.add(f"{vectors.type(_type(tile, number))} {name}{shape}[{found.reduced.count}];")
        names[number] = f"{name}[%s][%s]" if columns else f"{name}[%s]"
    with ExitStack() as stack:
        stack.callback(tile._restore, dict(tile.context.at), dict(tile.counters))
        at = (columns.each(tile, stack),) if columns else ()
        at = (*at, tile._constant_loop(found.reduced, stack))
        for number, name in names.items():
            access = tile.n.program.inp.accesses[number]
            cell, place = tile.context.subscript(access.buffer, access.index), name % at
            zero = f"({vectors.type(_type(tile, number))}){{0}}"
            tile.out.add(f"{place} = {cell} - {zero};", f"MDH_KEEP({place});")
    return names


def _sum_loop(tile: Tile, found: Sliding, weights: dict[int, str], columns: _Columns | None) -> None:
    rows, reduced, out = found.rows, found.reduced, tile.out
    assert rows.count is not None and reduced.count is not None and tile.vectors is not None
    count, period = rows.count + reduced.count - 1, max(rows.count, reduced.count)
    before, x = dict(tile.context.at), tile.context.names.new(f"{rows.dim}{reduced.dim}")
    with ExitStack() as stack:
        stack.callback(tile._restore, before, dict(tile.counters))
        first, turn = (tile.context.names.new(f"{x}_{end}") for end in ("first", "turn"))
        out.add(f"#pragma GCC unroll {period}")
        stack.enter_context(out.block(f"for (long {first} = 0; {first} < {period}; {first}++)"))
        out.add("#pragma GCC unroll 2")
        stack.enter_context(out.block(f"for (long {turn} = 0; {turn} < 2; {turn}++)"))
        out.add(f"const long {x} = {first} + {period}*{turn};")
        stack.enter_context(out.block(f"if ({x} < {count})"))
        tile._vector_loop(stack)
        column = (columns.each(tile, stack),) if columns else ()
        operands = {}
        tile.context.at[reduced.dim] = _index(before[reduced.dim], reduced, x)
        printer = VectorPrinter(tile.context, tile.vectors)
        for number in found.shared:
            access, t = tile.n.program.inp.accesses[number], _type(tile, number)
            name = operands[number] = tile.context.names.new("in")
            text = printer._load(Operand(number, t), access.buffer, access.index)
            out.add(f"{tile.vectors.type(t)} {name} = {text};", f"MDH_KEEP({name});")
        tile._counter_loop(rows, stack, (), None)
        r = tile.context.names.new(f"{reduced.dim}_r")
        out.add(f"const long {r} = {x} - {tile.counters[rows]};")
        stack.enter_context(out.block(f"if ({r} >= 0 && {r} < {reduced.count})"))
        tile.context.at[reduced.dim] = _index(before[reduced.dim], reduced, r)
        tile._vector_point(operands | {k: name % (*column, r) for k, name in weights.items()})


def _index(start: str, loop: Loop, number: str) -> str:
    offset = number if loop.size == 1 else f"{loop.size}*{number}"
    return offset if start == "0" else f"{start} + {offset}"


def _type(tile: Tile, number: int) -> ScalarType:
    t = tile.n.program.buffer(tile.n.program.inp.accesses[number].buffer).type
    assert isinstance(t, ScalarType)
    return t
