"""Smallest and largest values over points, against all points one by one; boxes spare isl the question."""

from __future__ import annotations

import itertools
import random

import pytest

from lifter import polyhedral
from lifter.polyhedral import bounds
from mdh_core.expr import Affine, Constraint


def _value(rng: random.Random, names: str) -> Affine:
    return sum((Affine.of(n, rng.randint(-3, 3)) for n in names), Affine.number(rng.randint(-5, 5)))


@pytest.mark.parametrize("joined", [False, True], ids=["box", "joined"])
def test_bounds_of_random_points(joined: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, found = random.Random(7), 0
    if not joined:
        monkeypatch.setattr(polyhedral, "_points", None)  # of a box isl is not asked
    for _ in range(300):
        names = "ijk"[: rng.randint(1, 3)]
        rows = [Constraint(Affine.of(n, s) + 6) for n in names for s in (1, -1)]  # -6 <= n <= 6
        for _ in range(rng.randint(0, 3)):
            one = Affine.of(rng.choice(names), rng.choice((-3, -2, -1, 1, 2, 3))) + rng.randint(-9, 9)
            rows.append(Constraint(one, equality=rng.random() < 0.15))
        if joined:
            rows.append(Constraint(_value(rng, names)))
        values = (_value(rng, names), _value(rng, names))
        points = [
            dict(zip(names, x, strict=True))
            for x in itertools.product(range(-6, 7), repeat=len(names))
        ]
        inside = [p for p in points if all(_is_met(c, p) for c in rows)]
        taken = [[v.evaluate(p) for p in inside] for v in values]
        want = tuple((min(x), max(x)) for x in taken) if inside else None
        assert bounds(rows, values) == want, (rows, values)
        found += bool(inside)
    assert 100 < found < 300


def test_a_value_without_end() -> None:
    rows = [Constraint(Affine.of("i")), Constraint(Affine.of("i", -1) + 5), Constraint(Affine.of("j"))]
    assert bounds(rows, (Affine.of("i", -2),)) == ((-10, 0),)
    with pytest.raises(ArithmeticError):
        bounds(rows, (Affine.of("j"),))
    with pytest.raises(ArithmeticError):
        bounds(rows[:2], (Affine.of("k"),))
    for some in ([], [Constraint(Affine.number(1))]):  # no constraint is no missing point
        with pytest.raises(ArithmeticError):
            bounds(some, (Affine.of("k"),))
    assert bounds([*rows, Constraint(Affine.number(-1))], (Affine.of("i"),)) is None


def _is_met(c: Constraint, point: dict[str, int]) -> bool:
    value = c.value.evaluate(point)
    return value == 0 if c.equality else value >= 0
