"""Parts that threads get of programs in one host loop, so that they find what they wrote.

    in      the programs that a host loop runs one after the other, again and again, and a point for each
    out     points of which some share another dimension, where less goes from core to core then

before   for k: r[j] = sum over i of q[i]*A[i][j]   threads share columns   half of A comes from the other
                A[i][j] -= q[i]*r[j]                threads share rows      core, and goes back
after           both share columns                  each thread has its columns all the time

Each program's own best point may share any dimension; what its threads read is then in the cache of another
core.  How a program's threads divide an array is taken to be: by the axis that the first shared dimension
walks along, in parts of one size or in turn; or all by one of them; or each reads everything.  Two programs
agree where that is the same.  What does not fit into the last cache comes from memory in any case and is not
looked at, nor are other points of programs that one thread runs.

A price per byte stands for machines of both kinds (two cores, measured on Gram-Schmidt: 1.5e-11 s where they
share a cache, 1.5e-10 where they do not), so what it saves has to be more than a little.  Shown right:
tests/test_affinity.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from lowering.choice import sharings
from lowering.cost import cost
from lowering.facts import Facts
from lowering.machine import Machine
from lowering.parameters import reassociates
from lowering.point import Point, Value
from lowering.traffic import bytes_of, uses

_CROSSED = 5e-11  # seconds per byte that goes from core to core
_PAYS = 0.1  # of the time that programs take with what crosses: less than this may be the model's error
_SWEEPS = 3  # over the programs, each time with what was chosen for the others

Division = tuple[int, int] | str  # an axis with the size of parts dealt in turn (0: one after the other)
ONE, ALL = "one thread", "every thread"


def nearest(
    programs: Sequence[Facts], points: Sequence[Point], others: Sequence[Sequence[Point]], machine: Machine
) -> list[Point]:
    """The points of the least cost together, each the one given or one of ``others`` of its program."""

    def seconds(tried: Sequence[Point]) -> float:
        own = sum(cost(f, machine, x) for f, x in zip(programs, tried, strict=True))
        return own + crossing(programs, tried, machine)

    best = list(points)
    for _ in range(_SWEEPS if crossing(programs, points, machine) else 0):
        before = best
        for k, more in enumerate(others):
            best = min((best, *([*best[:k], x, *best[k + 1 :]] for x in more)), key=seconds)
        if best == before:
            break
    return best if seconds(best) < (1.0 - _PAYS) * seconds(points) else list(points)


def shared_otherwise(f: Facts, machine: Machine, usual: Point) -> list[Point]:
    """The cheapest points of which threads share another dimension; none where they share nothing.

    Sums are left out if their order matters: a host loop may make so much of it that the result is refused
    (Gram-Schmidt with more columns than rows).
    """
    summed = set(f.pw) if reassociates(f.program) else set[str]()
    found = map(dict[str, Value], sharings(f.program, machine, tuple(f.sizes.items())))
    fresh = (x for x in found if x.get("threads", "") not in ("", usual.get("threads")))
    points = [x for x in fresh if summed.isdisjoint(str(x["threads"]).split(","))]
    return points if usual.get("threads") else []


def crossing(programs: Sequence[Facts], points: Sequence[Point], machine: Machine) -> float:
    """Seconds of an iteration for what goes from core to core; none where arrays come from memory."""
    if machine.cores < 2 or _reached(programs) > machine.l3:
        return 0.0
    return _CROSSED * crossed(programs, points, machine.cores)


def crossed(programs: Sequence[Facts], points: Sequence[Point], cores: int) -> float:
    """Bytes that go from core to core in an iteration.

    What a program touches comes from those before it, or from the iteration before: as much from each as that
    touched, the nearest first, if one of the two writes.
    """
    total = 0.0
    for buffer in dict.fromkeys(b for f in programs for b in uses(f)):
        touching = [
            (uses(f)[buffer].written, bytes_of(f)[buffer], division(f, p, buffer))
            for f, p in zip(programs, points, strict=True)
            if buffer in uses(f)
        ]
        for n, (writes, left, here) in enumerate(touching):
            for written, size, there in reversed([*touching[n + 1 :], *touching[:n]]):
                if writes or written:
                    met = min(left, size)
                    left -= met
                    if here == ALL or here != there:
                        total += met * (cores - 1) / (1 if here == ALL else cores)
    return total


def division(f: Facts, point: Point, buffer: str) -> Division:
    """How a program's threads divide what they touch of an array."""
    d = next((x for x in str(point.get("threads", "")).split(",") if f.sizes.get(x, 1) > 1), "")
    if not d:
        return ONE
    axes = [k for k, (terms, _) in enumerate(uses(f)[buffer].index) if any(x == d for x, _ in terms)]
    in_turn = any(r.coefficient(d) for r in f.rows)
    return (axes[0], int(point.get(f"block_{d}", 0)) if in_turn else 0) if axes else ALL


def _reached(programs: Sequence[Facts]) -> float:
    found: dict[str, float] = {}
    for f in programs:
        for b, n in bytes_of(f).items():
            found[b] = max(found.get(b, 0.0), n)
    return sum(found.values())
