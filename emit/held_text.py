"""Operands of a register tile that several rows share: each is loaded once a step, and held in registers.

before   for r: for v: acc[r][v] += a[r] * b[v]                                rows * vectors loads of b
after    for v: held[v] = b[v];  for r: for v: acc[r][v] += a[r] * held[v]     vectors loads

Where up to four rows use a vector, gcc 12 folds its load into every multiplication, named variable or not; a
core loads two vectors in a cycle and multiplies two, so that loads are then what limits the speed.
``MDH_HELD`` loads it from a volatile place, which compilers do once.  It does so where registers are enough
for the accumulators and what is held; which is known when the kernel is compiled, as vectors are as long as
the target has them.  What more rows use gcc holds by itself.  (Values that an empty ``asm`` keeps in their
registers are copied to others, and stored, by gcc 12.)

The same goes for an element that all lanes share, where rows of another dimension would spread it again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from emit.sliding_text import MIN_BYTES, no_values_before
from emit.vector_printer import VectorPrinter
from lowering.held import beside, depends, held, is_shared
from lowering.loops import Loop
from mdh_core.expr import Operand, ScalarType
from mdh_core.ir import Access

if TYPE_CHECKING:
    from emit.tile_text import Tile

_FEW = 4  # uses of a value for which gcc 12 would rather load it again
_SOON = 8  # steps for which gcc 12 keeps what it has read


def arranged(tile: Tile, k: int) -> tuple[Loop, ...]:
    """The loops of the tile, those from ``inner[k]`` on in the order in which the fewest registers are held.

    Rows of what is read in vectors go outside of the others: one row's vectors are then held, not all.
    """
    loops = tile.inner[k:]
    if not _may_hold(tile, loops):
        return tile.inner
    accesses = [a for a in tile.n.program.inp.accesses if _has_register(tile, a)]
    order = held(accesses, _rows(loops), loops[-1].dim).order
    return (*tile.inner[:k], *(loops[n] for n in order), loops[-1])


def _rows(loops: Sequence[Loop]) -> list[tuple[str, int]]:
    return [(x.dim, x.count or 1) for x in loops[:-1]]


def hold_operands(tile: Tile, k: int) -> None:
    """Load what all iterations of the loop ``inner[k]`` share, before it; ``tile.held`` has the names."""
    loops = tile.inner[k:]
    if not _may_hold(tile, loops):
        return
    shared = [
        number
        for number, access in enumerate(tile.n.program.inp.accesses)
        if number not in tile.held and _has_register(tile, access)
        if is_shared(access, _rows(loops), loops[-1].dim)
    ]
    if shared and not tile.held:
        _forget_steps(tile, k)
    for number in shared:
        _hold(tile, number, loops[1:-1])


def _forget_steps(tile: Tile, k: int) -> None:
    """Keep the compiler from holding what rows read a few steps ago; it has no registers for that."""
    if not k or tile.inner[k - 1].dim in tile.n.concatenated:
        return
    context, step = tile.context, tile.inner[k - 1]
    accesses = tile.n.program.inp.accesses
    for buffer in dict.fromkeys(a.buffer for a in accesses if _slides(tile, a, step, tile.inner[k:-1])):
        place = context.place(buffer)
        name = context.names.new(f"{buffer}_now")
        tile.out.add(f"__typeof__({place.name}[0]) *{name} = {place.name};")
        tile.out.add(no_values_before(name))
        context.places[buffer] = replace(place, name=name)


def _slides(tile: Tile, access: Access, step: Loop, rows: Sequence[Loop]) -> bool:
    """Whether a row reads soon what another one reads now."""
    own = tile.context.lane_stride(access.buffer, access.index, step.dim)
    apart = [tile.context.lane_stride(access.buffer, access.index, x.dim) for x in rows if x.count != 1]
    return any(own and x and x % own == 0 and 0 < x // own <= _SOON for x in apart)


def _may_hold(tile: Tile, loops: Sequence[Loop]) -> bool:
    """Whether all that is left are rows of the tile and their vectors."""
    if tile.vectors is None or tile.function is None or tile.masked or len(loops) < 2:
        return False
    return all(x.count is not None and x.dim in tile.n.concatenated for x in loops[:-1])


def _has_register(tile: Tile, access: Access) -> bool:
    """Whether an operand fills vectors, as they are in memory or one element in all lanes."""
    t, lanes = tile.n.program.buffer(access.buffer).type, tile.lanes
    assert lanes is not None and tile.vectors is not None
    if access.conditional or not isinstance(t, ScalarType) or t.size != tile.n.lane_bytes or t.kind == "bool":
        return False
    if (lanes.count or 0) * t.size < MIN_BYTES:
        return False
    stride = tile.context.lane_stride(access.buffer, access.index, lanes.dim)
    return stride == 1 or not depends(access, lanes.dim)


def _hold(tile: Tile, number: int, rest: Sequence[Loop]) -> None:
    """Declare and load one operand, for all iterations of the loops inside that read different elements."""
    vectors, access = tile.vectors, tile.n.program.inp.accesses[number]
    t = tile.n.program.buffer(access.buffer).type
    assert vectors is not None and tile.lanes is not None and isinstance(t, ScalarType)
    own = [x for x in rest if depends(access, x.dim) and (x.count or 1) > 1]
    several = depends(access, tile.lanes.dim)
    count = f"vectors_{vectors.suffix}"
    name = tile.context.names.new(f"{access.buffer}_held")
    shape = "".join(f"[{x.count}]" for x in own) + (f"[{count}]" if several else "")
    tile.out.add(f"{vectors.type(t)} {name}{shape};")
    tile.held[number] = (name, tuple(own), several)
    with ExitStack() as stack:
        stack.callback(tile._restore, dict(tile.context.at), dict(tile.counters))
        for loop in own:
            tile._counter_loop(loop, stack, (), None)
        if several:
            tile._vector_loop(stack)
        at = "".join(f"[{tile.counters[x]}]" for x in own) + (f"[{tile.vector_counter}]" if several else "")
        if several and _uses(tile, access) <= _FEW:
            cell = tile.context.subscript(access.buffer, access.index)
            text = f"MDH_HELD({vectors.unaligned(t)}, {_registers(tile)}, {cell})"
        else:
            text = VectorPrinter(tile.context, vectors).vector(Operand(number, t))
        tile.out.add(f"{name}{at} = {text};")


def _uses(tile: Tile, access: Access) -> int:
    """Rows that multiply by the same value."""
    return math.prod(x.count or 1 for x, _ in tile.axes if not depends(access, x.dim))


def _registers(tile: Tile) -> str:
    """How many the accumulators, what is held, and what a point needs besides are."""
    rows = math.prod(count for _, count in tile.axes if isinstance(count, int)) * len(tile.types)
    others = 0
    for _, loops, several in tile.held.values():
        own = math.prod(x.count or 1 for x in loops)
        rows, others = (rows + own, others) if several else (rows, others + own)
    others += beside(tile.n.program, tile.held.keys())
    assert tile.vectors is not None
    text = f"{rows}*vectors_{tile.vectors.suffix}"
    return f"{text} + {others}" if others else text
