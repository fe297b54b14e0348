"""Tiles of a host loop: parts of a dimension of its programs, many iterations of one before the next part.

    before   for t: { P_0 over i in [0, n);  P_1 over i in [0, n); ... }
    after    for blocks of t: threads share the blocks b of i: for t: P_k over [b*W + lower, (b+1)*W - upper)
                             then the borders between: for t: P_k over what was left out

``lower`` and ``upper`` grow with the program's number and with the iteration inside of a block of t, as fast
as values travel from one position to others (``distances``).  So a part of the first kind needs nothing that
the others or the borders compute, and a border needs only itself and what was computed before.  Where nothing
travels, there are no borders, and a part runs through the whole loop.

    distance   i' - i for positions i, i' of two programs that touch one cell, which one of them writes
    skew       lower[k'] - lower[k] >= distance >= upper[k] - upper[k'], the loop's slope added if the second
               one comes in a later iteration
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lowering.histogram import one_hot
from lowering.machine import Machine
from mdh_core.expr import Affine, Expr, Load, as_affine, stmt_exprs, walk
from mdh_core.ir import HostLoop, MdhProgram
from mdh_core.polytope import project, rows_of

_INDEPENDENT = 64  # positions of a part in which nothing travels: whole lines that stay in the first cache
_FEWEST = 3  # iterations of a block that are worth two more barriers
FURTHEST = 64  # no tiles where values travel further in one iteration


@dataclass(frozen=True, slots=True)
class Skew:
    """``dims``: per program the number of the dimension that is cut; None: it has one position, 0.

    lower, upper   per program, see above
    slopes         how much they grow per iteration
    furthest       greatest distance between positions that depend on one another
    """

    dims: tuple[int | None, ...]
    lower: tuple[int, ...]
    upper: tuple[int, ...]
    slopes: tuple[int, int]
    furthest: int

    @property
    def independent(self) -> bool:
        """Does nothing travel?"""
        return not (any(self.lower) or any(self.upper) or any(self.slopes))

    def least_width(self, steps: int) -> int:
        """Positions of a block, so that a border meets no other one in so many iterations."""
        grown = sum(self.slopes) * (steps - 1)
        return max(self.lower) + max(self.upper) + grown + self.furthest + 1


@dataclass(frozen=True, slots=True)
class HostTiles:
    """``steps``: iterations of a block of the loop; None: all."""

    skew: Skew
    width: int
    steps: int | None


Cell = tuple[str, tuple[Affine, ...]]


def usual_tiles(skew: Skew, size: int, each: float, iterations: int, machine: Machine) -> HostTiles | None:
    """Tiles whose positions stay in the second cache; None where that gains nothing.

    size   positions;  each   bytes that the programs touch per position
    """
    if size < 2 * machine.cores or iterations < 2:
        return None
    if skew.independent:
        return HostTiles(skew, max(8, min(_INDEPENDENT, size // (2 * machine.cores) // 8 * 8)), None)
    if size * each <= machine.l2 // 2:
        return None
    width = int(min(machine.l2 // 2 // max(each, 1.0), -(-size // machine.cores)))
    steps = min(iterations, 1 + (width - skew.least_width(1)) // sum(skew.slopes))
    return HostTiles(skew, width, steps) if steps >= _FEWEST else None


@functools.lru_cache(maxsize=256)
def skew_of(loop: HostLoop) -> Skew | None:
    """How parts of the programs' dimensions may run ahead; None where they may not."""
    programs = [p for p in loop.body if isinstance(p, MdhProgram)]
    if len(programs) != len(loop.body) or not programs:
        return None
    if any(p.hom.dims_of("ps") or any(s.at_last for s in p.out.stores) or one_hot(p) for p in programs):
        return None
    if any(loop.iterator in d.size.span.names for p in programs for d in p.hom.dims):
        return None
    touched = [_touched(p) for p in programs]
    if any(t is None for t in touched):
        return None
    written = {s.buffer for p in programs for s in p.out.stores}
    cells = [[x for x in t or () if x[0] in written] for t in touched]
    for dims in itertools.islice(_choices(programs), 81):
        found = _skewed(programs, dims, cells, loop)
        if found is not None:
            return found
    return None


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


def _touched(p: MdhProgram) -> list[Cell] | None:
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
    count = len(programs)
    between: dict[tuple[int, int], tuple[int, int]] = {}
    for a, b in itertools.product(range(count), repeat=2):
        stored = [{s.buffer for s in programs[k].out.stores} for k in (a, b)]
        pairs = [
            (x, y) for x in cells[a] for y in cells[b]
            if x[0] == y[0] and (x[0] in stored[0] or x[0] in stored[1])
        ]  # fmt: skip
        for x, y in pairs:
            ends = distances(programs[a], dims[a], x[1], programs[b], dims[b], y[1], loop.iterator)
            if ends is None:
                return None
            if ends[0] <= ends[1]:
                low, high = between.get((a, b), ends)
                between[a, b] = min(low, ends[0]), max(high, ends[1])
    lower, upper = [0] * count, [0] * count
    for b in range(count):
        for a in range(b):
            if (a, b) in between:
                low, high = between[a, b]
                lower[b] = max(lower[b], lower[a] + high)
                upper[b] = max(upper[b], upper[a] - low)
    slopes = [0, 0]
    for (a, b), (low, high) in between.items():
        slopes[0] = max(slopes[0], high + lower[a] - lower[b])
        slopes[1] = max(slopes[1], -low + upper[a] - upper[b])
    furthest = max((max(abs(low), abs(high)) for low, high in between.values()), default=0)
    if max(*slopes, furthest) > FURTHEST:
        return None
    numbers = tuple(
        None if d is None else [x.name for x in p.hom.dims].index(d)
        for p, d in zip(programs, dims, strict=True)
    )
    return Skew(numbers, tuple(lower), tuple(upper), (slopes[0], slopes[1]), furthest)


def distances(
    p: MdhProgram,
    d: str | None,
    x: tuple[Affine, ...],
    q: MdhProgram,
    e: str | None,
    y: tuple[Affine, ...],
    iterator: str,
) -> tuple[int, int] | None:
    """The least and greatest distance of positions whose cells x and y are one; None: there is no bound.

    The iterations are any two: ``iterator`` has a value for each.  No common cell: the first is greater.
    """
    left, right = _renamed(p, iterator, ""), _renamed(q, iterator, "'")
    rows = [*_space(p, left), *_space(q, right)]
    for a, b in zip(x, y, strict=True):
        same = a.substitute(left) - b.substitute(right)
        rows += [same, -same]
    there, here = (right[e] if e is not None else Affine()), (left[d] if d is not None else Affine())
    apart = Affine.of("?") - there + here
    rows += [apart, -apart]
    names = {n for r in rows for n in r.names} - {"?"}
    left_over, _ = project(rows, names)
    low: int | None = None
    high: int | None = None
    for r in left_over:
        c = r.coefficient("?")
        if c == 0:
            return 1, 0  # a constant that is negative: no common cell
        if c > 0:
            end = -(r.const // c)
            low = end if low is None else max(low, end)
        else:
            end = r.const // -c
            high = end if high is None else min(high, end)
    return None if low is None or high is None else (low, high)


def _renamed(p: MdhProgram, iterator: str, mark: str) -> dict[str, Affine]:
    own = [d.name for d in p.hom.dims] + [iterator]
    return {n: Affine.of(f"{n}:{mark}") for n in own}


def _space(p: MdhProgram, names: dict[str, Affine]) -> list[Affine]:
    """The program's points, as rows over the new names."""
    rows = rows_of(p.hom.domain)
    for d in p.hom.dims:
        i = Affine.of(d.name)
        rows += [i, d.size.span - 1 - i * d.size.step]
    return [r.substitute(names) for r in rows]
