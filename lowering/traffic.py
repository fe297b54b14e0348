"""Bytes that a point of the search space moves between the caches, from the cells its loops touch.

    footprint   lines of a buffer that a group of loops touches, from the coverage of its dimensions
    reach       the largest group of inner loops whose footprints fit in a cache together
    moved       what comes into the cache: the footprint at its reach, once per iteration of the loops around;
                the loop just around it leaves what does not depend on it where it is

Rows at distances that are multiples of a large power of two share the sets of a cache: they count as if they
were as long as the greatest such power that divides all distances, up to the size of a way.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from lowering.facts import Facts, once
from lowering.machine import LINE
from mdh_core.expr import Affine
from mdh_core.ir import Buffer, MdhProgram

WAY = 4096  # bytes of a way of the first cache: lines at this distance share a set
STREAMS = 8, 40  # rows at a time: so few are fetched ahead, with so many nothing is gained by it
USED = 0.75  # of a cache, before what is needed again is thrown out


@dataclass(frozen=True, slots=True)
class Use:
    """A buffer as the loops of a program touch it.

    index    per dimension of the buffer its terms over the program's dimensions, and the span of constants
    pitches  bytes between neighbours in each dimension; 0: not known
    packed   up to this level a copy is used, with the buffer's cells side by side; None: there is none
    """

    index: tuple[tuple[tuple[tuple[str, int], ...], int], ...]
    pitches: tuple[int, ...]
    element: int
    written: bool
    packed: int | None = None

    @property
    def dims(self) -> frozenset[str]:
        return frozenset(n for terms, _ in self.index for n, _ in terms)


Level = tuple[str, float]  # dimension and trips, innermost loop first


@once
def uses(f: Facts) -> Mapping[str, Use]:
    """The buffers of a program, each with what its accesses have in common."""
    return MappingProxyType(dict(_uses(f.program, tuple(f.sizes.items()))))


@functools.lru_cache(maxsize=256)
def _uses(program: MdhProgram, sizes: tuple[tuple[str, int], ...]) -> tuple[tuple[str, Use], ...]:
    known = dict(sizes)
    values: dict[str, Affine] = {}  # parameters that are sizes
    for d in program.hom.dims:
        span = d.size.span
        if d.size.step == 1 and len(span.terms) == 1 and span.terms[0][1] == 1:
            values[span.terms[0][0]] = Affine.number(known[d.name] - span.const)
    indices: dict[str, list[tuple[Affine, ...]]] = {}
    for a in program.inp.accesses:
        indices.setdefault(a.buffer, []).append(a.index)
    for s in program.out.stores:
        indices.setdefault(s.buffer, []).append(s.index)
    written = {s.buffer for s in program.out.stores}
    return tuple(
        (
            name,
            Use(
                tuple(_axis([index[t] for index in found], known) for t in range(len(found[0]))),
                _pitches(program.buffer(name), values),
                program.buffer(name).type.size,
                name in written,
            ),
        )
        for name, found in indices.items()
    )


def _axis(indices: Sequence[Affine], dims: Mapping[str, int]) -> tuple[tuple[tuple[str, int], ...], int]:
    terms: dict[str, int] = {}
    for index in indices:
        for d, c in index.terms:
            if d in dims:
                terms[d] = max(terms.get(d, 0), abs(c))
    constants = [index.const for index in indices]
    return tuple(sorted(terms.items())), max(constants) - min(constants)


def _pitches(b: Buffer, values: Mapping[str, Affine]) -> tuple[int, ...]:
    pitches, stride = [], 0 if b.strides is not None else b.type.size
    for extent in reversed(b.extents):
        pitches.append(stride)
        extent = None if extent is None else extent.substitute(dict(values))
        stride = stride * extent.const if extent is not None and extent.is_constant else 0
    return tuple(reversed(pitches))


@once
def bytes_of(f: Facts) -> Mapping[str, float]:
    """Of every buffer, the bytes of all cells that the program touches, a line for each at most."""
    sizes = {d: float(n) for d, n in f.sizes.items()}
    times = Counter(a.buffer for a in f.program.inp.accesses)
    times.update(s.buffer for s in f.program.out.stores)
    most = f.points * LINE
    found = {
        name: min(footprint(use, sizes, True).lines, float(most * times[name]))
        for name, use in uses(f).items()
    }
    return MappingProxyType(found)


@dataclass(frozen=True, slots=True)
class Touched:
    """Bytes in lines, bytes of the cache that they take up, and how many runs of neighbours they are.

    Runs that are closer than a page count for less: what is fetched ahead and translated serves several.
    """

    lines: float
    taken: float
    runs: float
    rows: float = 1.0
    apart: float = 0.0


def footprint(use: Use, covered: Mapping[str, float], packed: bool) -> Touched:
    lengths = []
    for terms, span in use.index:
        more = 0.0
        for d, c in terms:
            more += c * (covered.get(d, 1) - 1)
        lengths.append(1.0 + span + more)
    if packed or not lengths:
        size = max(math.prod(lengths) * use.element, LINE)
        return Touched(size, size, 1.0)
    run = lengths[-1] * use.element
    rows = share = 1.0
    apart = WAY
    taken = max(run, LINE)
    for length, pitch in zip(reversed(lengths[:-1]), reversed(use.pitches[:-1]), strict=True):
        if pitch and run >= pitch and rows == 1.0:
            run *= length  # whole rows follow each other
            taken = run
            continue
        if rows == 1.0 and pitch:
            share = min(1.0, pitch / WAY)
        rows *= length
        if length > 1:
            apart = math.gcd(apart, pitch) if pitch else LINE
    if rows > 4:
        taken = max(taken, float(apart))
    pieces = max(1.0, rows * share)
    return Touched(rows * max(run, LINE), rows * taken, pieces, rows if run < WAY else 1.0, float(apart))


def aliased(use: Use, tile: Mapping[str, float]) -> float:
    """How many of a tile's rows lie at the same place of a page, within a line."""
    found = 1.0
    for d in use.dims:
        pitch = 0
        for (terms, _), own in zip(use.index, use.pitches, strict=True):
            pitch += own * dict(terms).get(d, 0)
        if pitch >= WAY and min(pitch % WAY, -pitch % WAY) < LINE:
            found *= tile.get(d, 1)
    return found


def in_one_way(f: Facts, tile: Mapping[str, float]) -> float:
    """Bytes of a cache that a tile's rows take up, as lines at their distances share few of its sets."""
    return sum(t.rows * t.apart for t in (footprint(use, tile, False) for use in uses(f).values()))


@dataclass(frozen=True, slots=True)
class Moved:
    """What comes into a cache.

    total   bytes
    runs    of neighbours
    copied  bytes of copies, whose cells lie in the order in which they are read
    """

    total: float
    runs: float
    copied: float


def moved(
    found: Sequence[Use],
    tile: Mapping[str, float],
    levels: Sequence[Level],
    caches: Sequence[tuple[int, int]],
    waits: bool = False,
) -> tuple[Moved, ...]:
    """What comes into each cache of one core over all iterations of the levels.

    caches  their bytes, and how many of the levels are inside of a tile: where these read from more rows
            than hardware fetches ahead, bytes count up to twice
    waits   whether a tile's rows that push each other out come again for every step of its innermost loop;
            those of maps are fetched ahead
    """
    groups = _Groups(found, tile, levels)
    return tuple(_moved(groups, cache, ahead, waits) for cache, ahead in caches)


def _moved(groups: _Groups, cache: int, ahead: int, waits: bool) -> Moved:
    found, levels = groups.found, groups.levels
    streams = groups.covered(ahead)
    late = [  # results: tiles fetch them ahead, or only write them
        1.0 if u.written else _late(footprint(u, streams, u.packed is not None or not ahead).rows)
        for u in found
    ]
    reach, inside, around = 0, groups.touched(0), None
    for k in range(1, len(levels) + 1):
        around = groups.touched(k)
        if levels[k - 1][1] > 1 and sum(t.taken for t in around) > USED * cache:
            break
        reach, inside, around = k, around, None
    total = runs = copied = 0.0
    for n, (use, t) in enumerate(zip(found, inside, strict=True)):
        lines, pieces, rest = t.lines, t.runs, levels[reach:]
        stays = not waits or use.written or t.taken <= cache
        if rest and around is not None and stays:
            d, trips = rest[0]  # what one iteration shares with the next is still there
            if d in groups.dims[n]:
                lines, pieces = min(lines * trips, around[n].lines), min(pieces * trips, around[n].runs)
            rest = rest[1:]
        times = math.prod(trips for _, trips in rest) * (2 if use.written else 1) * late[n]
        total += lines * times
        runs += pieces * times
        copied += lines * times if use.packed is not None and use.packed >= reach else 0.0
    return Moved(total, runs, copied)


def _late(rows: float) -> float:
    """How often bytes count that come from so many rows at a time."""
    few, many = STREAMS
    return 1.0 + min(1.0, max(0.0, (rows - few) / (many - few)))


class _Groups:
    """What the innermost ``k`` levels touch together, for every ``k`` that is asked for."""

    def __init__(self, found: Sequence[Use], tile: Mapping[str, float], levels: Sequence[Level]) -> None:
        self.found, self.levels = found, levels
        self.dims = [u.dims for u in found]
        self._covered = [tile]
        self._touched = [[footprint(u, tile, u.packed is not None and u.packed >= 0) for u in found]]

    def covered(self, k: int) -> Mapping[str, float]:
        while len(self._covered) <= k:
            before = self._covered[-1]
            d, trips = self.levels[len(self._covered) - 1]
            self._covered.append({**before, d: before.get(d, 1) * trips})
        return self._covered[k]

    def touched(self, k: int) -> list[Touched]:
        while len(self._touched) <= k:
            level, before = len(self._touched), self._touched[-1]
            d, covered = self.levels[level - 1][0], self.covered(level)
            self._touched.append(
                [
                    footprint(u, covered, u.packed is not None and level <= u.packed)
                    if d in dims or u.packed == level - 1  # else it is what it was
                    else same
                    for u, dims, same in zip(self.found, self.dims, before, strict=True)
                ]
            )
        return self._touched[k]
