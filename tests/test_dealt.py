"""Parts of wavefronts, see ``lowering.dealt``: counted point by point, and as few as keep threads at work."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from lowering.choice import default_point
from lowering.dealt import PARTS, at_work, busy, fewest_parts
from lowering.facts import Facts, facts
from lowering.machine import GENERIC
from mdh_core.ir import HostLoop, MdhProgram, programs_of
from tests.lifting import lifted
from tests.test_skewed import SEIDEL, in_lines, nest_of

TWO = replace(GENERIC, cores=2)


def wavefront(n: int, m: int) -> Facts:
    """The program of a Gauss-Seidel loop in lines of wavefronts: ``m`` sweeps over ``n`` rows of ``n``."""
    nest = in_lines(nest_of(SEIDEL))
    assert nest is not None
    (loop,) = (s for s in nest.program if isinstance(s, HostLoop))
    (program,) = programs_of((loop,))
    return facts(program, program.sizes({"n": n, "m": m}))


def counted(f: Facts, d: str, w: str, at: int) -> Counter[int]:
    """Points of one iteration by their index in ``d``."""
    found: Counter[int] = Counter()
    (other,) = (x for x in f.sizes if x != d)
    for x in range(f.sizes[d]):
        for y in range(f.sizes[other]):
            found[x] += all(r.evaluate({d: x, other: y, w: at}) >= 0 for r in f.rows)
    return +found


@pytest.mark.parametrize("n, m", [(3, 1), (3, 9), (8, 3), (7, 20), (12, 12)])
def test_what_is_at_work_is_what_has_points(n: int, m: int) -> None:
    f = wavefront(n, m)
    (w,) = {x for r in f.rows for x in r.names} - f.sizes.keys()
    for d in f.sizes:
        found = at_work(f, d)
        last = 4 * (m - 1) + 3 * (n - 3)  # w = 4*t + 2*i + j
        assert {0, last} <= found.keys() or last > 48
        assert all(0 <= at <= last for at in found)
        points = {at: counted(f, d, w, at) for at in found}
        assert all(found[at] == (min(p), max(p)) for at, p in points.items() if p)
        assert all(points.values()) or n == 3  # of one row there are points in every fourth iteration


def test_threads_get_parts_in_turn() -> None:
    def slowly(ranges: list[tuple[int, int]], part: int, cores: int) -> float:
        work = time = 0
        for first, last in ranges:
            of_thread = Counter((x // part - first // part) % cores for x in range(first, last + 1))
            work, time = work + of_thread.total(), time + max(of_thread.values())
        return work / time

    ranges = [(0, 99), (30, 71), (5, 5), (90, 99), (49, 50)]
    for parts, cores in [(1, 2), (2, 2), (16, 2), (1, 3), (5, 3), (1, 1), (4, 64)]:
        part = max(1, -(-100 // (parts * cores)))
        assert busy(ranges, 100, parts, cores) == slowly(ranges, part, cores)
    assert busy([(0, 99)], 100, 1, 2) == 2.0 and busy([(0, 9)], 100, 1, 2) == 1.0


@pytest.mark.parametrize("n, m, most", [(2000, 100, 1), (400, 400, 4), (100, 2000, PARTS)])
def test_as_few_parts_as_keep_threads_at_work(n: int, m: int, most: int) -> None:
    f = wavefront(n, m)
    (t,) = (d for d, size in f.sizes.items() if d.startswith("t"))
    parts = fewest_parts(f, t, 2)
    assert most / 2 <= parts <= most
    ranges = list(at_work(f, t).values())
    assert busy(ranges, m, parts, 2) >= 0.9 * busy(ranges, m, PARTS, 2)


def test_a_default_has_as_few() -> None:
    f = wavefront(2000, 100)
    point = default_point((f.program,), TWO, (f.sizes,))
    (t,) = (d for d in f.sizes if d.startswith("t"))
    assert point["threads"] == t and point[f"block_{t}"] == 50
    assert fewest_parts(f, t, 1) == PARTS  # nobody to hand a row to


def test_triangles_and_boxes_have_what_they_had() -> None:
    def program(body: str) -> MdhProgram:
        found = lifted(f"void f(int n, double A[n][n])\n{{\n#pragma mdh\n{body}\n}}\n")
        return next(programs_of(found.program))

    triangle = program("for (int k = 0; k < n; k++) for (int i = k + 1; i < n; i++) A[i][k] /= A[k][k];")
    box = program("for (int i = 0; i < n; i++) for (int j = 0; j < n; j++) A[i][j] *= 2;")
    for p in (triangle, box):
        f = facts(p, p.sizes({"n": 500}))
        assert all(at_work(f, d) == {} and fewest_parts(f, d, 2) == PARTS for d in f.sizes)
