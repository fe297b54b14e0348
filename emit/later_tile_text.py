"""Where the tile begins that follows, for cells that are fetched while an earlier one computes.

    const long e_next = e + 8 < e_end ? e + 8 : 0;          the loop's next iteration, or its first one
    const long d_next = e_next > e ? d_start : d + 4;       and then the next one of the loop around it

A tile that is done before memory answers waits for its own cells.  Those of the next iteration of a loop over
tiles arrive in time where that is far enough away: with the innermost loop one tile, with the loop around
it as many as the innermost one has iterations.  Nothing is read there: past the last tile it does no harm.

Memory is fastest where lines are asked for in its order.  Where tiles of the two innermost loops write a
piece of an output as a whole (``lowering.pieces``), each may fetch as many cells of the next piece as it has
itself, one share behind the other:

    const long C_share = (e/6*4 + d/4)*384;                 tiles before this one, of 384 cells
    ... __builtin_prefetch(&C[... + (c + 1)*6144] + C_share + ..., 1, 2);
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from emit.kernel_text import atom
from lowering.loops import Loop
from lowering.pieces import piece_of
from mdh_core.ir import Store

if TYPE_CHECKING:
    from emit.nest_text import NestText


def loops_over_tiles(nest: NestText) -> list[Loop]:
    """Those with more than one iteration over parts of the result, innermost first."""
    found = []
    for loop in reversed(nest.nest.loops[: nest.scope]):
        size = nest.program.dim(loop.dim).size.constant
        once = loop.count == 1 or (size is not None and size <= loop.size)
        if loop.dim in nest.concatenated and not once:
            found.append(loop)
    return found


def later_tile(nest: NestText, number: int) -> dict[str, str]:
    """Indices of the tile at the next iteration of loop ``number`` over tiles, the innermost being 1.

    Writes their definitions.  Empty where there is no such loop, or ``number`` is 0.
    """
    loops = loops_over_tiles(nest)[number - 1 :] if number else []
    if not loops:
        return {}
    loop, around = loops[0], loops[1] if len(loops) > 1 else None
    d = loop.dim
    if loop in nest.next_part:  # cut at run time
        return {d: nest.next_part[loop]}
    start, end = nest.spans[loop]
    own = nest.moved.get(d, nest.context.at[d])
    next_tile = f"{own} + {loop.size}"
    if around is None or around.dim == d:  # blocks follow each other
        return {d: next_tile}
    name = nest.context.names.new(f"{d}_next")
    nest.out.add(f"const long {name} = {next_tile} < {end} ? {next_tile} : {start};")
    other = nest.moved.get(around.dim, nest.context.at[around.dim])
    other_name = nest.context.names.new(f"{around.dim}_next")
    further = nest.next_part.get(around, f"{other} + {around.size}")
    nest.out.add(f"const long {other_name} = {name} > {own} ? {other} : {further};")
    return {d: name, around.dim: other_name}


def share(nest: NestText, store: Store, tile: Mapping[str, int]) -> tuple[dict[str, str], str] | None:
    """A tile's share of the piece of an output that the loop around its two innermost loops comes to next.

    tile   elements of a tile in each dimension of the output

    Indices where the piece begins, and the text of how many of its cells are before the share.  None where
    tiles of the two loops do not write a piece whose cells are neighbours, or are cut at run time.
    """
    loops = loops_over_tiles(nest)
    tiles = [x for x in loops if x.layer == loops[0].layer]
    piece = piece_of(store.index, [x.dim for x in tiles], {d for d, n in tile.items() if n > 1})
    if not piece or nest.next_part.keys() & {*tiles[:2]}:
        return None
    inner, middle, around = tiles[:3]
    at = {d: nest.moved.get(d, nest.context.at[d]) for d in (*piece, around.dim)}
    texts = []
    for loop in (inner, middle):
        start, end = nest.spans[loop]
        texts.append(_quotient(at[loop.dim] if start == "0" else f"{at[loop.dim]} - {start}", loop.size))
        at[loop.dim] = start
    start, end = nest.spans[inner]
    if start == "0" and end.isdigit():
        count = str(-(-int(end) // inner.size))
    else:
        row = end if start == "0" else f"{end} - {start}"
        count = atom(_quotient(f"{row} + {inner.size - 1}" if inner.size > 1 else row, inner.size))
    at[around.dim] = nest.next_part.get(around, f"{at[around.dim]} + {around.size}")
    return at, f"({texts[1]}*{count} + {texts[0]})*{math.prod(tile.values())}"


def _quotient(text: str, size: int) -> str:
    return f"{atom(text)}/{size}" if size > 1 else atom(text)


__all__ = ["later_tile", "loops_over_tiles", "share"]
