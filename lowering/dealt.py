"""In how many parts work is dealt out to threads that a wavefront passes through.

    in      a program that a host loop repeats, in the iterator of which its domain moves; a shared dimension
    out     parts for each thread: as few as keep the threads at work

before   for w: for t in w/4 - 1497 .. w/4 of 0 .. 99     the row of t reads what that of t - 1 wrote before
after    16 parts each, or in tiles of ten rows 5    every tenth row is read by another core than wrote it
         1 part each                                 one row is, and threads are as busy: all of 0 .. 99 are
                                                     at work in most iterations

Lines that go from core to core cost little where cores share a cache and much where they do not (seidel-2d,
two cores: 165 and 163 ms, and 487 and 211).  Where few rows are at work at a time, or each row for a short
time only, threads with one part each would wait for each other: that is counted here, iteration by iteration,
for the part of the dimension that the domain leaves.  What other dimensions have there is taken to be even.
Triangles, of which one side moves only, are not looked at.  Shown right: tests/test_dealt.py counts point by
point.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lowering.facts import Facts, once
from mdh_core.expr import Affine

PARTS = 16  # for each thread, where work is uneven
_FEWER = (1, 2, 4, 8)
_AS_BUSY = 0.9  # of what threads do with many parts
_ITERATIONS = 48  # of the host loop that are looked at


@once
def fewest_parts(f: Facts, d: str, cores: int) -> int:
    """Parts for each thread of the dimension ``d``."""
    ranges = list(at_work(f, d).values()) if cores > 1 else []
    if not ranges:
        return PARTS
    most = busy(ranges, f.sizes[d], PARTS, cores)
    return next((n for n in _FEWER if busy(ranges, f.sizes[d], n, cores) >= _AS_BUSY * most), PARTS)


def busy(ranges: Sequence[tuple[int, int]], size: int, parts: int, cores: int) -> float:
    """Cores at work on the average, where each has so many parts and gets what is left of them in turn.

    ``ranges``: first and last element at work, of some iterations.
    """
    part, work, time = max(1, -(-size // (cores * parts))), 0, 0
    for first, last in ranges:
        begin = first // part
        loads = [0] * cores
        for k in range(begin, last // part + 1):
            loads[(k - begin) % cores] += min(last + 1, (k + 1) * part) - max(first, k * part)
        work, time = work + sum(loads), time + max(loads)
    return work / time


def _iterator(f: Facts) -> str | None:
    """The one name in the domain's rows that is neither a dimension nor known."""
    names = {n for r in f.rows for n in r.names if n not in f.sizes}
    return names.pop() if len(names) == 1 else None


def at_work(f: Facts, d: str) -> dict[int, tuple[int, int]]:
    """First and last element of ``d`` with points, of iterations spread over those that have any.

    Nothing where the domain does not move with a host loop, or not from beginning to end.
    """
    moving, box = _iterator(f), {x: (0, n - 1) for x, n in f.sizes.items()}
    least, most = (None, None) if moving is None else _between(f.rows, moving, box)
    if moving is None or least is None or most is None:
        return {}
    found = {}
    for at in range(least, most + 1, max(1, (most + 1 - least) // _ITERATIONS)):
        others = {x: ends for x, ends in box.items() if x != d} | {moving: (at, at)}
        low, high = _between(f.rows, d, others)
        first = 0 if low is None else max(0, low)
        last = f.sizes[d] - 1 if high is None else min(f.sizes[d] - 1, high)
        if first <= last:
            found[at] = first, last
    return found


def _between(
    rows: tuple[Affine, ...], name: str, box: Mapping[str, tuple[int, int]]
) -> tuple[int | None, int | None]:
    """What rows leave to a name while the others are anywhere in their ranges; None: they do not bound it."""
    low: int | None = None
    high: int | None = None
    for row in rows:
        c = row.coefficient(name)
        if not c or not row.names - {name} <= box.keys():
            continue
        rest = row.const + sum(n * box[x][n > 0] for x, n in row.terms if x != name)
        if c > 0:
            bound = -(rest // c)
            low = bound if low is None else max(low, bound)
        else:
            bound = rest // -c
            high = bound if high is None else min(high, bound)
    return low, high
