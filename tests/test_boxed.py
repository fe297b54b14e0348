"""Wavefronts as boxes: the same points, and nothing where the points are no box."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product

import pytest

from lifter.lift import LiftedNest
from lowering.boxed import boxed
from mdh_core.expr import Affine, Constraint
from mdh_core.ir import HostLoop, MdhProgram, Size, programs_of
from tests.lifting import check_meaning, lifted

# every stretch of a line from shorter ones, as in matrix chain products
STRETCHES = """for (int i = n - 1; i >= 0; i--)
    for (int j = i + 1; j < n; j++) {
        double s = A[i][j];
        for (int k = i; k < j; k++)
            s = fmax(s, A[i][k] + A[k + 1][j]);
        A[i][j] = s;
    }"""
# the same with a gap: some positions combine nothing
GAPS = STRETCHES.replace("k = i;", "k = i + 2;")
BOXES = {"stretches": STRETCHES, "gaps": GAPS}

GUARDED = """for (int i = 1; i < n; i++)
    for (int j = 1; j < n; j++)
        A[i][j] = fabs(A[i - 1][j] - A[i][j - 1]);"""


def nest_of(body: str) -> LiftedNest:
    head = "int n, double A[n][n], double B[n][n]"
    found = lifted(f"#include <math.h>\nvoid f({head})\n{{\n#pragma mdh\n{body}\n}}\n")
    assert found.status == "lifted", found.diagnostics
    return found


def in_boxes(nest: LiftedNest) -> LiftedNest:
    steps = tuple((boxed(s) or s) if isinstance(s, HostLoop) else s for s in nest.program)
    return replace(nest, program=steps)


def test_stretches_are_boxes() -> None:
    (loop,) = in_boxes(nest_of(STRETCHES)).program
    assert isinstance(loop, HostLoop) and str(loop.size) == "n - 1"
    (p,) = loop.body
    assert isinstance(p, MdhProgram) and not p.hom.domain
    assert [str(d.size) for d in p.hom.dims] == [f"n - {loop.iterator} - 1", f"{loop.iterator} + 1"]


@pytest.mark.parametrize("name", BOXES)
def test_boxes_mean_the_same(name: str) -> None:
    nest = nest_of(BOXES[name])
    new = in_boxes(nest)
    assert any(p.hom.domain for p in programs_of(nest.program))
    assert not any(p.hom.domain for p in programs_of(new.program))
    assert check_meaning(new, trials=20) > 5


def test_what_is_no_box_stays() -> None:
    (loop,) = nest_of(GUARDED).program
    assert isinstance(loop, HostLoop) and loop.body[0].hom.domain  # type: ignore[union-attr]
    assert boxed(loop) is None


def test_programs_that_begin_in_different_iterations_stay() -> None:
    (loop,) = nest_of(STRETCHES).program
    assert isinstance(loop, HostLoop) and boxed(loop) is not None
    (p,) = loop.body
    assert isinstance(p, MdhProgram)
    later = Constraint(Affine.of(loop.iterator) - Affine.of("n") - 1)
    late = replace(p, hom=replace(p.hom, domain=(*p.hom.domain, later)))
    assert boxed(replace(loop, body=(late,))) is not None
    assert boxed(replace(loop, body=(p, late))) is None


Points = dict[int, set[tuple[int, ...]]]


def points_of(loop: HostLoop, n: int, index: bool) -> Points:
    """Of the program in each iteration: its points, or the cells that it stores to, where there are some."""
    (p,) = loop.body
    assert isinstance(p, MdhProgram)
    names, found = [d.name for d in p.hom.dims], Points()
    for t in range(loop.size.evaluate({"n": n})):
        env = {"n": n, loop.iterator: t}
        for x in product(*(range(k) for k in p.sizes(env).values())):
            here = env | dict(zip(names, x, strict=True))
            if all(c.holds(here) for c in p.hom.domain):
                cell = tuple(a.evaluate(here) for a in p.out.stores[0].index) if index else x
                found.setdefault(t, set()).add(cell)
    return found


def test_random_domains(trials: int = 400) -> None:
    """Iterations with points come in the same order, with the same cells; none is added."""
    rng = random.Random(11)
    (loop,) = nest_of(
        "for (int t = 0; t < 2*n; t++) for (int i = 0; i < n; i++) for (int j = 0; j < n; j++)"
        " A[i][j] = A[i][j] * B[i][j] + B[j][i];"
    ).program
    assert isinstance(loop, HostLoop)
    (p,) = loop.body
    assert isinstance(p, MdhProgram)
    w, n = Affine.of(loop.iterator), Affine.of("n")
    i, j = (Affine.of(d.name) for d in p.hom.dims)
    changed = 0
    for _ in range(trials):
        domain = []
        for _ in range(rng.randint(1, 4)):
            x = rng.choice((i, j, i + j, i - j, j - i, w, w - n))
            y = rng.choice((w, n, w - n, n - w, i, Affine())) + rng.randint(-2, 2)
            domain.append(Constraint(x - y if rng.random() < 0.5 else y - x))
        cut = replace(p, hom=replace(p.hom, domain=tuple(domain)))
        old = replace(loop, size=Size(n * rng.choice((1, 2)) + rng.randint(-2, 1)), body=(cut,))
        new = boxed(old)
        if new is None:
            continue
        changed += 1
        assert not new.body[0].hom.domain  # type: ignore[union-attr]
        for size in range(7):
            a, b = points_of(old, size, index=True), points_of(new, size, index=True)
            assert [a[t] for t in sorted(a)] == [b[t] for t in sorted(b)], (size, [str(c) for c in domain])
    assert changed > trials // 12
