"""Tiles of a host loop: parts of a dimension of its programs, many iterations of one before the next part.

    before   for t: { P_0 over i in [0, n);  P_1 over i in [0, n); ... }
    after    for blocks of t: threads share the blocks b of i: for t: P_k over [b*W + lower, (b+1)*W - upper)
                             then the borders between: for t: P_k over what was left out

``lower`` and ``upper`` grow with the program's number and with the iteration inside of a block of t, as fast
as values travel from one position to others (``distances``).  So a part of the first kind needs nothing that
the others or the borders compute, and a border needs only itself and what was computed before.  Where nothing
travels, there are no borders, and a part runs through the whole loop.

    distance   i' - i for positions i, i' of two programs that touch one cell, which one of them writes
    skew       lower[k'] - lower[k] + slopes[0]*(t' - t) >= distance,
               upper[k'] - upper[k] + slopes[1]*(t' - t) >= -distance
               if the second one comes later: t' > t, or t' = t and k' > k

A part that is larger than a cache goes through its iterations strip by strip:

    for s in steps of S: for t: P_k over [s, s + S) - upper

By the second inequality, ``i + upper`` never falls from an instance to one that needs it; so what a strip
needs is in it or in strips before it, and what it leaves in the cache is what the next one begins with.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from lowering.cost import cost
from lowering.facts import Facts, row_counts, row_dims
from lowering.histogram import one_hot
from lowering.machine import LINE, Machine
from lowering.point import Point
from lowering.programs import places
from mdh_core.expr import Affine, Expr, Load, ScalarType, as_affine, stmt_exprs, walk
from mdh_core.ir import HostLoop, MdhProgram
from mdh_core.polytope import project

_INDEPENDENT = 64  # positions of a part in which nothing travels: whole lines that stay in the first cache
_APART = 16  # bytes of positions to those of arrays where neighbouring ones share lines, which matter little
_FEWEST = 3  # iterations of a block that are worth two more barriers
_PARTS = 8  # of one thread, where only some of them have something to do at a time
_MANY = 16  # iterations of a block that are worth threads where one iteration is not, or more cache misses
_TILES_OF_PART = 8  # register tiles in the dimension that is cut, of which one may be partial
_SHARES = 4  # of a core's part of the last cache, of which tiles take one
_MUCH = 1 << 17  # positions in all iterations, from which on threads pay
STRIP = 8  # positions of a strip: of as many rows as a register tile has at most
_STRIPS = 0.9  # of the second cache, which a strip uses in all of its iterations
_CHOICES, _PAIRS = 9, 2000  # of dimensions to cut, of cells that two programs touch: the search ends there
FURTHEST = 8  # no tiles where values travel further in one iteration


@dataclass(frozen=True, slots=True)
class Skew:
    """``dims``: per program the number of the dimension that is cut; None: it has one position, 0.

    lower, upper   per program, see above
    slopes         how much they grow per iteration
    """

    dims: tuple[int | None, ...]
    lower: tuple[int, ...]
    upper: tuple[int, ...]
    slopes: tuple[int, int]

    @property
    def independent(self) -> bool:
        """Does nothing travel?"""
        return not (any(self.lower) or any(self.upper) or any(self.slopes))

    def least_width(self, steps: int) -> int:
        """Positions of a block, so that a border meets no other one in so many iterations."""
        grown = sum(self.slopes) * (steps - 1)
        return max(self.lower) + max(self.upper) + grown + 1


@dataclass(frozen=True, slots=True)
class HostTiles:
    """``steps``: iterations of a block of the loop; None: all.

    strip: positions of a strip; None: each part goes through its iterations as a whole
    ahead: whether what the next part reads is fetched while one is computed (``lowering.ahead.read_again``)
    """

    skew: Skew
    width: int
    steps: int | None
    strip: int | None = None
    ahead: bool = False


Cell = tuple[str, tuple[Affine, ...]]


def is_shaped(loop: HostLoop, skew: Skew) -> bool:
    """Whether a domain cuts the positions: in one iteration, there is something to do in some parts only."""
    programs = (p for p in loop.body if isinstance(p, MdhProgram))
    return any(
        k is not None and any(p.hom.dims[k].name in c.names for c in p.hom.domain)
        for p, k in zip(programs, skew.dims, strict=True)
    )


def lie_apart(programs: Sequence[MdhProgram], skew: Skew, touched: Mapping[str, float]) -> bool:
    """Whether what neighbouring positions touch lies in lines of its own, but for little.

    ``touched``: the bytes of each array.
    """
    together = set[str]()
    for p, k in zip(programs, skew.dims, strict=True):
        if k is None:
            return False
        d, types = p.hom.dims[k].name, {b.name: b.type for b in p.buffers}
        places = [(a.buffer, a.index) for a in p.inp.accesses] + [(x.buffer, x.index) for x in p.out.stores]
        for name, index in places:
            t = types[name]
            pitch = abs(index[-1].coefficient(d)) if index else 0
            if pitch and not (isinstance(t, ScalarType) and pitch * t.size >= LINE):
                together.add(name)
    return _APART * sum(touched[b] for b in together) <= sum(touched.values())


def usual_tiles(
    skew: Skew,
    size: int,
    each: float,
    iterations: int,
    machine: Machine,
    shaped: bool = False,
    apart: bool = False,
) -> HostTiles | None:
    """Tiles whose positions stay in a cache, or that spare barriers; None: nothing is gained.

    The second cache, if a block has many iterations there; else strips that stay in it, or a thread's share
    of the last one, which other programs use as well.  (In few iterations, most of what is near was fetched
    for them: parts of 12 rows and 3 iterations in the second cache took 1.3 to 1.9 times as long as 163 rows
    and 20 to 30; measured on jacobi-2d.)

    size   positions;  each   bytes that the programs touch per position;  shaped   see ``is_shaped``: then
    there are several parts for each thread, handed out in turn;  apart   see ``lie_apart``
    """
    if size < 2 * machine.cores or iterations < 2:
        return None
    if skew.independent:
        least = 1 if apart else 8
        return HostTiles(skew, max(least, min(_INDEPENDENT, size // (2 * machine.cores) // 8 * 8)), None)
    fits = size * each <= machine.l2 // 2
    if fits and size * iterations < _MUCH:
        return None
    parts = machine.cores * (_PARTS if shaped else 1)

    def within(widest: float, half: bool = shaped) -> tuple[int, int]:
        """Iterations that fit into so many positions, or into half of them; and the positions."""
        width = int(min(widest, -(-size // parts)))
        most = width // 2 if half else width
        return min(iterations, 1 + (most - skew.least_width(1)) // max(1, sum(skew.slopes))), width

    if fits:
        steps, width = within(-(-size // (2 * machine.cores)))
        return HostTiles(skew, width, steps) if steps >= _MANY else None
    steps, width = within(machine.l2 // 2 // max(each, 1.0))
    if steps >= min(_MANY, iterations):
        return HostTiles(skew, width, steps)
    share = max(1.0, machine.l3 // (_SHARES * machine.cores) // max(each, 1.0))
    share = -(-size // (parts * max(2, math.ceil(size / (parts * share)))))  # as many for each thread
    steps, width = max((steps, width), within(share, half=True), key=lambda found: found[0])
    whole = HostTiles(skew, width, steps)
    most, width = within(size, half=True)
    found = [x for x in (_in_strips(skew, width, most, each, machine), whole) if (x.steps or 0) >= _FEWEST]
    return min(found, key=lambda x: _reading(x, size * each, machine), default=None)


def _in_strips(skew: Skew, width: int, most: int, each: float, machine: Machine) -> HostTiles:
    """Parts in strips that stay in the second cache through all iterations of a block, ``most`` at most."""
    room = int(_STRIPS * machine.l2 / max(each, 1.0))
    strip = max(1, min(STRIP, room * 3 // 8))
    steps = 1 + (room - strip - max(skew.upper)) // max(1, skew.slopes[1])
    return HostTiles(skew, width, min(most, steps), strip)


def _reading(tiles: HostTiles, total: float, machine: Machine) -> float:
    """Seconds for a byte in an iteration: from further away once in a block, from a cache every time."""
    near = machine.l3_bandwidth if tiles.strip is None else machine.l2_bandwidth
    far = machine.l3_bandwidth if total <= machine.l3 else machine.bandwidth_of(machine.cores) / machine.cores
    return 1 / (far * (tiles.steps or 1)) + 1 / near


def usual_rows(f: Facts, machine: Machine, tiles: HostTiles, dim: str, point: Point) -> int:
    """Rows of a program's register tile in the dimension that is cut.

    Parts of it have every length.  What is left of maps is done row by row: as many rows as are best where
    one thread has a part.  Of other programs it would be done without vectors: one row.

    f   of the program in one part;  point   its values of parameters
    """
    if f.pw or f.ps or tiles.skew.independent or dim not in row_dims(f):
        return 1
    alone, own = replace(machine, cores=1), {**point, "threads": ""}
    most, strip = tiles.width // _TILES_OF_PART, tiles.strip or 0
    counts = (1, *(n for n in row_counts(f, dim) if n <= most and not (strip and strip % n)))
    return min(counts, key=lambda n: cost(f, alone, {**own, f"rows_{dim}": n}))


@functools.lru_cache(maxsize=256)
def skew_of(loop: HostLoop) -> Skew | None:
    """How parts of the programs' dimensions may run ahead; None where they may not."""
    found = _cells_of(loop)
    if found is None:
        return None
    programs, cells = found
    outermost = [next((d.name for d in p.hom.dims_of("cc")), None) for p in programs]
    skew = None if None in outermost else _skewed(programs, tuple(outermost), cells, loop)
    if skew is not None and skew.independent:
        return skew
    for dims in itertools.islice(_choices(programs), _CHOICES):
        skew = _skewed(programs, dims, cells, loop)
        if skew is not None:
            return skew
    return None


def skew_in(loop: HostLoop, dims: Sequence[str]) -> Skew | None:
    """The same with the dimension that is cut in each of the programs."""
    found = _cells_of(loop)
    return None if found is None else _skewed(found[0], tuple(dims), found[1], loop)


def _cells_of(loop: HostLoop) -> tuple[list[MdhProgram], list[list[Cell]]] | None:
    """The programs, and what each touches of what any of them writes; None: they have no tiles."""
    programs = [p for p in loop.body if isinstance(p, MdhProgram)]
    if len(programs) != len(loop.body) or not programs:
        return None
    if any(p.hom.dims_of("ps") or any(s.at_last for s in p.out.stores) or one_hot(p) for p in programs):
        return None
    if any(loop.iterator in d.size.span.names for p in programs for d in p.hom.dims):
        return None
    touched = [cells_touched(p) for p in programs]
    if any(t is None for t in touched):
        return None
    written = {s.buffer for p in programs for s in p.out.stores}
    return programs, [[x for x in t or () if x[0] in written] for t in touched]


def _choices(programs: Sequence[MdhProgram]) -> Iterator[tuple[str | None, ...]]:
    """Outer dimensions first; a program without concatenated dimensions has one position."""
    own = [[d.name for d in p.hom.dims_of("cc") if d.size.step == 1] for p in programs]
    rank = max(map(len, own))
    for number in range(rank):
        # programs of one rank alike, those of a lower rank may lie at one position of the dimension
        options = [
            [names[number]] if len(names) == rank else [None, *names[:2]] for names in own
        ]
        yield from itertools.product(*options)


def cells_touched(p: MdhProgram) -> list[Cell] | None:
    """Cells that a program reads or writes; None where an index is computed from data."""
    found: list[Cell] = [(a.buffer, a.index) for a in p.inp.accesses]
    found += [(s.buffer, s.index) for s in p.out.stores]
    for n in (n for e in _expressions(p) for n in walk(e)):
        if isinstance(n, Load):
            index = [as_affine(i) for i in n.index]
            if None in index:
                return None
            found.append((n.buffer, tuple(a for a in index if a is not None)))
    return list(dict.fromkeys(found))


def _expressions(p: MdhProgram) -> Iterator[Expr]:
    yield from stmt_exprs(p.hom.scalar.body)
    yield from p.hom.scalar.results
    yield from (e for e in p.out.initial if e is not None)
    yield from (s.value for s in p.out.stores)


def _skewed(
    programs: Sequence[MdhProgram],
    dims: tuple[str | None, ...],
    cells: Sequence[Sequence[Cell]],
    loop: HostLoop,
) -> Skew | None:
    if all(d is None for d in dims):
        return None
    pairs = [
        _Pair(a, b, _names(programs[a], loop, ""), _names(programs[b], loop, "'"), x[1], y[1])
        for a, b in itertools.product(range(len(programs)), repeat=2)
        for x, y in itertools.product(cells[a], cells[b])
        if x[0] == y[0] and any(s.buffer == x[0] for k in (a, b) for s in programs[k].out.stores)
    ]
    if len(pairs) > _PAIRS:
        return None
    lower, upper = [0] * len(programs), [0] * len(programs)
    for pair in sorted(pairs, key=lambda x: x.b):
        if pair.a < pair.b:
            ends = [pair.furthest(programs, dims, loop.iterator, sign, None) for sign in (1, -1)]
            if ends[0] is None or ends[1] is None:
                return None
            lower[pair.b] = max(lower[pair.b], lower[pair.a] + ends[0])
            upper[pair.b] = max(upper[pair.b], upper[pair.a] + ends[1])
    slopes = [
        _slope([(x, known[x.b] - known[x.a]) for x in pairs], programs, dims, loop.iterator, sign)
        for known, sign in ((lower, 1), (upper, -1))
    ]
    if slopes[0] is None or slopes[1] is None or max(*lower, *upper) > FURTHEST * len(programs):
        return None
    numbers = tuple(
        None if d is None else [x.name for x in p.hom.dims].index(d)
        for p, d in zip(programs, dims, strict=True)
    )
    return Skew(numbers, tuple(lower), tuple(upper), (slopes[0], slopes[1]))


def _slope(
    pairs: Sequence[tuple[_Pair, int]],
    programs: Sequence[MdhProgram],
    dims: tuple[str | None, ...],
    iterator: str,
    sign: int,
) -> int | None:
    """The least slope with which no pair travels further than what is allowed for it beside the slope."""

    def enough(slope: int) -> bool:
        ends = ((x.furthest(programs, dims, iterator, sign, slope), allowed) for x, allowed in pairs)
        return all(end is not None and end <= allowed for end, allowed in ends)

    if not enough(FURTHEST):
        return None
    return next(n for n in range(FURTHEST + 1) if enough(n))


_NOWHERE = -(1 << 20)  # less than every distance: there is no common cell


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two cells, ``x`` of program a and ``y`` of program b, of which one is written; new names for both."""

    a: int
    b: int
    left: dict[str, Affine]
    right: dict[str, Affine]
    x: tuple[Affine, ...]
    y: tuple[Affine, ...]

    def furthest(
        self,
        programs: Sequence[MdhProgram],
        dims: tuple[str | None, ...],
        iterator: str,
        sign: int,
        slope: int | None,
    ) -> int | None:
        """The greatest ``sign*(i' - i)`` in one iteration, or of this less ``slope*(t' - t)`` in later ones.

        None: there is no bound.
        """
        t, u = self.left[iterator], self.right[iterator]
        rows = places(programs[self.a], self.left, self.x) + places(programs[self.b], self.right, self.y)
        for i, j in zip(self.x, self.y, strict=True):
            distance = i.substitute(self.left) - j.substitute(self.right)
            rows += [distance, -distance]
        d, e = dims[self.a], dims[self.b]
        here = self.left[d] if d is not None else Affine()
        there = self.right[e] if e is not None else Affine()
        travelled = (there - here) * sign
        if slope is None:
            rows += [t - u, u - t]
        else:
            rows.append(u - t - 1)
            travelled = travelled - (u - t) * slope
        end = Affine.of("?") - travelled
        rows += [end, -end]
        left_over, _ = project(rows, {n for r in rows for n in r.names} - {"?"})
        found: list[int] = []
        for r in left_over:
            c = r.coefficient("?")
            if c == 0:
                return _NOWHERE  # a constant that is negative
            if c < 0:
                found.append(r.const // -c)
        return min(found, default=None)


def _names(p: MdhProgram, loop: HostLoop, mark: str) -> dict[str, Affine]:
    own = [d.name for d in p.hom.dims] + [loop.iterator]
    return {n: Affine.of(f"{n}:{mark}") for n in own}
