"""What a domain means for tiles: which are full, and what may be read around the domain's points.

    full     every point of the tile's box is in the domain (and inside the sizes)
    empty    some constraint fails on the whole box, or the box lies outside
    partial  the others

The tests are those of the emitted code: a constraint's smallest and largest value over a box.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from mdh_core.expr import Affine, Constraint
from mdh_core.ir import Access, Dim, MdhProgram, Size
from mdh_core.polytope import Box, certainly_empty, project, rows_of

Rows = Sequence[Affine]  # >= 0 at every point


def kind(rows: Rows, tile: Box, sizes: Mapping[str, int]) -> str:
    """``full``, ``partial`` or ``empty``: a tile given by its first and last indices."""
    clipped = {d: (low, min(high, sizes[d] - 1)) for d, (low, high) in tile.items()}
    if any(low > high for low, high in clipped.values()):
        return "empty"
    if any(_end(r, clipped, largest=True) < 0 for r in rows):
        return "empty"
    whole = clipped == dict(tile) and all(_end(r, tile, largest=False) >= 0 for r in rows)
    return "full" if whole else "partial"


def _end(a: Affine, box: Box, largest: bool) -> int:
    return a.evaluate({n: box[n][(c > 0) == largest] for n, c in a.terms})


def classify(program: MdhProgram, params: Mapping[str, int], tile: Mapping[str, int]) -> Counter[str]:
    """How many tiles of a size (1 where none is given) are full, partial and empty."""
    sizes = program.sizes(dict(params))
    known = {n: Affine.number(v) for n, v in params.items()}
    rows = rows_of(c.substitute(known) for c in program.hom.domain)
    counts: Counter[str] = Counter(full=0, partial=0, empty=0)
    for start in itertools.product(*(range(0, n, tile.get(d, 1)) for d, n in sizes.items())):
        box = {d: (s, s + tile.get(d, 1) - 1) for d, s in zip(sizes, start, strict=True)}
        counts[kind(rows, box, sizes)] += 1
    return counts


# --------------------------------------------------------------------------- shares


SAMPLES = 300
TILES = 60  # of them at most whose tiles are looked at


def shares(rows: Rows, sizes: Mapping[str, int], tile: Mapping[str, int]) -> tuple[float, float]:
    """Share of the box's points that are in the domain, and share of these in tiles that are full.

    Estimated from the same scattered points each time.  Rows that mention anything but dimensions are
    left out.
    """
    rows = tuple(r for r in rows if r.names <= sizes.keys())
    unclipped = math.prod(n // tile.get(d, 1) * tile.get(d, 1) / n for d, n in sizes.items() if n)
    if not rows or 0 in sizes.values():
        return 1.0, unclipped
    inside = _inside_domain(rows, tuple(sizes.items()))
    full, looked_at = 0, inside[:TILES]
    for point in looked_at:
        starts = {d: i - i % tile.get(d, 1) for d, i in point.items()}
        box = {d: (s, s + tile.get(d, 1) - 1) for d, s in starts.items()}
        full += all(_end(r, box, largest=False) >= 0 for r in rows)
    return max(len(inside), 1) / SAMPLES, unclipped * full / max(len(looked_at), 1)


@functools.lru_cache(maxsize=256)
def _inside_domain(rows: tuple[Affine, ...], sizes: tuple[tuple[str, int], ...]) -> list[dict[str, int]]:
    return [p for p in _scattered(dict(sizes)) if all(r.evaluate(p) >= 0 for r in rows)]


def _scattered(sizes: Mapping[str, int]) -> Iterable[dict[str, int]]:
    """Points that fill a box evenly: multiples of irrational steps."""
    root = 1.0
    for _ in range(40):  # of x**(k + 1) = x + 1
        root = (1 + root) ** (1 / (len(sizes) + 1))
    for k in range(1, SAMPLES + 1):
        yield {d: int((0.5 + k / root ** (e + 1)) % 1.0 * n) for e, (d, n) in enumerate(sizes.items())}


# --------------------------------------------------------------------------- reading around the domain


def read_in_boxes(program: MdhProgram, access: Access) -> Rows | None:
    """Rows of the boxes in which every cell of an access is read by some point of the domain, too.

    A box in which they hold may be read as a whole; no rows: every box inside the sizes.  None where
    that cannot be told: what is read there may not exist.
    """
    used = frozenset(n for a in access.index for n in a.names)
    return _covered(program.hom.dims, program.hom.domain, used)


@functools.lru_cache(maxsize=256)
def _covered(dims: tuple[Dim, ...], domain: tuple[Constraint, ...], used: frozenset[str]) -> Rows | None:
    """What a box in the used dimensions needs so that each of its points is that of a point of the domain."""
    box = {d.name: _inside(d.name, d.size) for d in dims}
    within = rows_of(domain)
    rows, exact = project([*within, *(r for inside in box.values() for r in inside)], box.keys() - used)
    if not exact:
        return None
    # where code runs at all, no dimension is empty and the parameters are as the domain asks
    known = [r for name in used & box.keys() for r in box[name]]
    known += [d.size.span - 1 for d in dims]
    known += [r for r in within if not r.names & box.keys()]
    return [r for r in rows if not certainly_empty([*known, -r - 1])]


def _inside(name: str, size: Size) -> Rows:
    index = Affine.of(name)
    return [index, size.span - 1 - index * size.step]
