"""Operands of a register tile that depend on the sum of a row and a reduced index: each is loaded once.

before   for r: for p: acc[p] += in[p + r] * w[r]           rows * reduced loads
after    for x: { v = in[x];  for p: if (0 <= x - p < R) acc[p] += v * w[x - p]; }      rows + reduced - 1

with ``w`` in registers, too.  All loops are written out by the compiler, so that the condition costs nothing.
Convolutions and other stencils with a reduced dimension have such operands.  Compilers fold a load into every
multiplication that uses it, and the loads are then what limits the speed; ``MDH_KEEP`` says that the value
is to stay in its register.  Where a window slides along vectors side by side, what one vector loads the other
loads some steps later: gcc 12 keeps such values from step to step, more of them than there are registers (2
to 2.5 times as slow).  It does not where it cannot see how the step's variable changes.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from emit.vector_printer import VectorPrinter
from lowering.loops import Loop
from mdh_core.expr import Operand, ScalarType, variables
from mdh_core.ir import Access

if TYPE_CHECKING:
    from emit.tile_text import Tile

MIN_BYTES = 16  # of a vector that has a register of its own on every machine


@dataclass(frozen=True, slots=True)
class Sliding:
    """``shared``, ``weights``: numbers of the accesses that depend on the sum, on ``reduced`` alone."""

    rows: Loop
    reduced: Loop
    shared: tuple[int, ...]
    weights: tuple[int, ...]


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
    found = (_pair(program.inp.accesses, rows[0], x, lanes) for x in loops if x is not rows[0])
    return next((s for s in found if s is not None), None)


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
    others = [x for x in tile.inner[k:] if x not in (found.rows, found.reduced, tile.lanes)]
    with ExitStack() as stack:
        stack.callback(tile._restore, dict(tile.context.at), dict(tile.counters))
        for loop in others:
            tile._constant_loop(loop, stack)
        _sum_loop(tile, found, _kept_weights(tile, found))


def _kept_weights(tile: Tile, found: Sliding) -> dict[int, str]:
    """Arrays of vectors with what depends on the reduced index alone, all lanes being equal."""
    if not found.weights:
        return {}
    names = {}
    for number in found.weights:
        t = _type(tile, number)
        names[number] = tile.context.names.new("weight")
        assert tile.vectors is not None
        tile.out.add(f"{tile.vectors.type(t)} {names[number]}[{found.reduced.count}];")
    with ExitStack() as stack:
        stack.callback(tile._restore, dict(tile.context.at), dict(tile.counters))
        v = tile._constant_loop(found.reduced, stack)
        for number, name in names.items():
            access = tile.n.program.inp.accesses[number]
            cell = tile.context.subscript(access.buffer, access.index)
            assert tile.vectors is not None
            zero = f"({tile.vectors.type(_type(tile, number))}){{0}}"
            tile.out.add(f"{name}[{v}] = {cell} - {zero};", f"MDH_KEEP({name}[{v}]);")
    return names


def _sum_loop(tile: Tile, found: Sliding, weights: dict[int, str]) -> None:
    rows, reduced, out = found.rows, found.reduced, tile.out
    assert rows.count is not None and reduced.count is not None and tile.vectors is not None
    count = rows.count + reduced.count - 1
    before, x = dict(tile.context.at), tile.context.names.new(f"{rows.dim}{reduced.dim}")
    with ExitStack() as stack:
        stack.callback(tile._restore, before, dict(tile.counters))
        out.add(f"#pragma GCC unroll {count}")
        stack.enter_context(out.block(f"for (long {x} = 0; {x} < {count}; {x}++)"))
        tile._vector_loop(stack)
        operands = {number: f"{name}[%s]" for number, name in weights.items()}
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
        tile._vector_point({k: text.replace("%s", r) for k, text in operands.items()})


def _index(start: str, loop: Loop, number: str) -> str:
    offset = number if loop.size == 1 else f"{loop.size}*{number}"
    return offset if start == "0" else f"{start} + {offset}"


def _type(tile: Tile, number: int) -> ScalarType:
    t = tile.n.program.buffer(tile.n.program.inp.accesses[number].buffer).type
    assert isinstance(t, ScalarType)
    return t
