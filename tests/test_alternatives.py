"""Where else a search begins: the model's best of other ways to share work, tile registers and copy."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from lowering.choice import alternatives, default_point
from lowering.cost import cost
from lowering.facts import facts
from lowering.machine import GENERIC
from lowering.parameters import why_not_legal
from lowering.point import Point, configuration_of
from lowering.space import tuning_space
from mdh_lift import kernels
from mdh_lift.alternatives import alternatives_in
from tests.lifting import lifted
from tuning import search
from tuning.budget import Budget
from tuning.runner import Outcome
from tuning.search import Evaluation
from tuning.space import is_among

MACHINE = replace(GENERIC, vector_bytes=64, cores=4)
NESTS = {
    "product": (
        "for (int i = 0; i < 700; i++) for (int j = 0; j < 900; j++) for (int k = 0; k < 300; k++)"
        " C[i * 900 + j] += A[i * 300 + k] * B[k * 900 + j];"
    ),
    "map": "for (int i = 0; i < 3000; i++) for (int j = 0; j < 2000; j++) C[i * 2000 + j] = 2 * A[i * 2000 + j];",
    "sums": "for (int i = 0; i < 900; i++) for (int j = 0; j < 800; j++) C[i] += A[i * 800 + j] * B[j];",
    "two": (
        "{ for (int i = 0; i < 900; i++) for (int j = 0; j < 800; j++) B[j] += A[i * 800 + j];"
        " for (int i = 0; i < 900; i++) for (int j = 0; j < 800; j++) C[i] += A[i * 800 + j] * B[j]; }"
    ),
}


def plan_of(name: str) -> kernels.Plan:
    head = "void f(float *restrict C, const float *restrict A, float *restrict B)"
    return replace(kernels.plan(lifted(f"{head} {{\n#pragma mdh\n{NESTS[name]}}}")), machine=MACHINE)


def ways(point: Point) -> dict[str, dict[str, object]]:
    kinds = {"threads": ("threads",), "tile": ("vector", "lanes", "rows_"), "copies": ("pack_",)}
    return {kind: {n: v for n, v in point.items() if n.startswith(heads)} for kind, heads in kinds.items()}


@pytest.mark.parametrize("name", ["product", "map", "sums"])
def test_each_differs_in_a_way(name: str) -> None:
    """From the default and from all before it; legal, not much dearer, the cheapest first, in the space."""
    plan = plan_of(name)
    (program,), (sizes,) = plan.programs, plan.sizes
    f = facts(program, sizes)
    default = default_point((program,), MACHINE, (sizes,))
    found = [dict(x) for x in alternatives(program, MACHINE, tuple(sizes.items()))]
    assert 3 <= len(found) <= 8
    costs = [cost(f, MACHINE, x) for x in found]
    assert costs == sorted(costs) and costs[-1] <= 1.5 * cost(f, MACHINE, default)
    before = [ways(default)]
    for x in found:
        assert any(all(own != other[kind] for other in before) for kind, own in ways(x).items()), x
        before.append(ways(x))
        assert why_not_legal(configuration_of(f, MACHINE, x), program, MACHINE.model) is None
        assert is_among(tuning_space((program,), MACHINE, (sizes,)), x)


def test_blocks_come_with_threads() -> None:
    """Threads over other columns or rows have blocks that give every core as much: half of it would be slow."""
    plan = plan_of("product")
    shared = {str(x["threads"]): x for x in (plan.default, *alternatives_in(plan.space, plan))}
    assert len(shared) >= 2
    for threads, x in shared.items():
        parts = math.prod(math.ceil(plan.sizes[0][d] / int(x[f"block_{d}"])) for d in threads.split(","))
        assert parts % MACHINE.cores == 0, x


def test_one_program_at_a_time() -> None:
    """Points of the space that are as the default but for one program."""
    plan = plan_of("two")
    default, space = plan.default, plan.space
    found = alternatives_in(space, plan)
    assert found and all(is_among(space, x) for x in found)
    assert [plan.estimate(x) for x in found] == sorted(plan.estimate(x) for x in found)
    changed = [{n.endswith("_at1") for n, v in x.items() if default[n] != v} for x in found]
    assert {False} in changed and {True} in changed
    assert all(len(programs) == 1 for programs in changed)


def points_tried(alternatives: list[Point], evaluations: int) -> list[Point]:
    toy = search.Space((("a", tuple(range(40))), ("b", tuple(range(40)))), ())
    tried: list[Point] = []

    def batch(points, cut_off):
        tried.extend(points)
        return [Evaluation(p, Outcome("ok"), 1.0 + int(p["a"]) + int(p["b"])) for p in points]

    search.search(
        toy,
        batch,
        order_hint=lambda p: float(int(p["a"]) + int(p["b"])),
        start=[{"a": 0, "b": 0}],
        alternatives=alternatives,
        budget=Budget(evaluations=evaluations),
    )
    return tried


def test_every_other_favourite_is_an_alternative() -> None:
    """Half of them at most, after what the search starts from."""
    far: list[Point] = [{"a": 30, "b": n} for n in range(20)]
    tried = points_tried(far, 80)
    assert tried[0] == {"a": 0, "b": 0}
    favourites = tried[1:16]  # that of the model which the search started from is not tried again
    assert [p in far for p in favourites] == [True, False] * 7 + [True]
    assert [p for p in favourites if p in far] == far[:8]
    few = points_tried(far, 12)
    assert [p for p in few[1:3] if p in far] == far[:1]


def test_those_that_are_favourites_take_no_place() -> None:
    near: list[Point] = [{"a": 0, "b": 1}, {"a": 1, "b": 0}, {"a": 0, "b": 0}]
    tried = points_tried(near, 80)
    assert len({(p["a"], p["b"]) for p in tried}) == len(tried)
    assert all(int(p["a"]) + int(p["b"]) <= 5 for p in tried[:16])
