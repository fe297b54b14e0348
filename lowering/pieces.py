"""Pieces of an output that tiles of the two innermost loops over tiles write as a whole.

    for c, for e by 6, for d by 4    C[a][b][c][d..d+3][e..e+5][f..f+15]

Each tile has four runs of cells that are neighbours, all tiles of ``e`` and ``d`` together the piece
``C[a][b][c]``, whose cells follow each other if blocks are as long as the dimensions are.  What cells hold is
fetched in the order of memory then: a tile fetches its share of the next piece (``Configuration.fetched``).
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from lowering.facts import Facts
from lowering.point import Point, tile_of, tile_order
from mdh_core.expr import Affine


def piece_of(index: Sequence[Affine], tiles: Sequence[str], several: Set[str]) -> tuple[str, ...]:
    """The dimensions of a piece of the output with this index, the last one's cells being neighbours.

    tiles    dimensions of the loops over more than one tile, the innermost first
    several  dimensions of which a tile has more than one element

    The piece is what the third loop goes through, one or several at a time.  Empty where tiles of the first
    two write no such piece, or write to others besides.
    """
    places = [x.terms[0][0] if x.terms[0][1] == 1 == len(x.terms) else "" for x in index if x.terms]
    if len(tiles) < 3 or tiles[2] not in places:
        return ()
    piece = places[places.index(tiles[2]) + 1 :]
    beside = {"", *tiles[2:]}
    whole = set(tiles[:2]) <= set(piece) and several <= {*piece, tiles[2]}
    return tuple(piece) if whole and not beside & set(piece) else ()


def tiled(f: Facts, point: Point) -> list[str]:
    """The dimensions of the loops over more than one tile, the innermost first."""
    order = reversed(tile_order(f, int(point.get("order", 0))))
    return [d for d in order if min(f.sizes[d], int(point[f"block_{d}"])) > tile_of(point, d)]


def may_have_pieces(f: Facts, buffer: str) -> bool:
    """Whether there are loops over tiles enough: two that write a piece, and one around them."""
    indices = (s.index for s in f.program.out.stores if s.buffer == buffer)
    return any(sum(bool(x.terms) for x in index) > 2 for index in indices)
