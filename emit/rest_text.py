"""What remains of a row of tiles: a piece that is shorter than a tile, at the row's end or all of it.

    for (; j + 64 <= end; j += 64) { tile }
    if (j < end) {                              what is written here
      for (; j + 16 <= end; j += 16) { tile of one vector }
      for (; j + 8 <= end; j += 8) { half of one }
      ... point by point
    }

Where points may be computed twice the tile is moved back instead, to end with the row, if this is as long.
Points with loops of their own (sums over sparse rows) are left in shorter and shorter vectors: point by
point they would take as long as so many vectors.  Compilers make vectors of other points themselves.

Shown right by tests/test_rest_of_row.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from emit.vector_printer import Vectors
from lowering.loops import Loop
from mdh_core.expr import straight_line

if TYPE_CHECKING:
    from emit.nest_text import NestText

_PIECES = (64, 32, 16)  # bytes


def write_rest(
    n: NestText, inner: tuple[Loop, ...], vectors: Vectors | None, bounds: tuple[str, str], size: int
) -> None:
    """What is left of a row, from ``n.context.at`` on, behind tiles of ``size``; ``bounds``: of the row."""
    start, end = bounds
    if not n._may_repeat_points():
        _in_pieces(n, inner, vectors, end)
        return
    dim = n.nest.loops[n.scope - 1].dim
    clipped = n.context.at[dim]
    last = n.context.names.new(f"{dim}_last")
    n.out.add(f"const long {last} = {end} - {size};")
    with n.out.block(f"if ({last} >= {start})"):
        n.context.at[dim] = last
        n._version(inner, full=True, vectors=vectors)
        n.context.at[dim] = clipped
        n.out.middle("} else {")
        _in_pieces(n, inner, vectors, end)


def _in_pieces(n: NestText, inner: tuple[Loop, ...], vectors: Vectors | None, end: str) -> None:
    """What is shorter than a tile: in shorter vectors where that pays, then point by point."""
    dim = n.nest.loops[n.scope - 1].dim
    if vectors is not None and not straight_line(n.lane_function.body) and _is_lanes_only(inner, dim):
        at, *_, lanes = n.context.at[dim], *inner
        masks, n.masks = n.masks, {}  # only whole vectors of the machine are written past the caches
        try:
            for size in _PIECES:
                count = size // n.lane_bytes
                if not 1 < count < (lanes.count or 0):
                    continue
                piece = (*inner[:-1], replace(lanes, count=count))
                narrow = n._vectors(piece)
                if narrow is not None:
                    with n.out.block(f"for (; {at} + {count} <= {end}; {at} += {count})"):
                        n._version(piece, full=True, vectors=narrow)
        finally:
            n.masks = masks
    n._version(inner, full=False, vectors=None)


def _is_lanes_only(inner: tuple[Loop, ...], dim: str) -> bool:
    """Whether the lanes are all that a tile has of a dimension."""
    return inner[-1].dim == dim and all(x.dim != dim for x in inner[:-1])
