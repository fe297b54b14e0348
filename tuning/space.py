"""A search space as data, and walking it without any search library.

A point is a dict from parameter name to value.  A restriction is a Python expression over parameter names,
tested as soon as all of its names have values.
"""

from __future__ import annotations

import ast
import heapq
import itertools
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import CodeType

from lowering.point import Point, Value
from lowering.space import Space

Estimate = Callable[[Point], float]  # of a point's time, any unit; lower is better

ENUMERATION_LIMIT = 20_000
_FUNCTIONS = {"min": min, "max": max, "abs": abs}
_GLOBALS = {"__builtins__": {}, **_FUNCTIONS}


def allows(space: Space, point: Mapping[str, Value]) -> bool:
    """Whether a point obeys all restrictions."""
    return all(eval(code, _GLOBALS, dict(point)) for code, _ in _compiled(space))


@lru_cache(maxsize=64)
def _compiled(space: Space) -> list[tuple[CodeType, int]]:
    """Each restriction with the number of leading parameters that it needs."""
    position = {name: k + 1 for k, name in enumerate(space.names)}
    result: list[tuple[CodeType, int]] = []
    for text in space.restrictions:
        tree = ast.parse(text, mode="eval")
        used = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} - set(_FUNCTIONS)
        if not used <= set(position):
            raise ValueError(f"restriction {text!r} uses unknown names {sorted(used - set(position))}")
        result.append((compile(tree, "<restriction>", "eval"), max((position[n] for n in used), default=0)))
    return result


def is_among(space: Space, point: Mapping[str, Value]) -> bool:
    """Whether a point is one of the space: the same names, listed values, no restriction broken."""
    listed = point.keys() == set(space.names) and all(point[n] in values for n, values in space.parameters)
    return listed and allows(space, point)


def valid_points(space: Space, shuffle: random.Random | None = None) -> Iterator[Point]:
    """All points that the restrictions allow; in order of the values, or (depth first) in random order."""
    needed: list[list[CodeType]] = [[] for _ in range(len(space.parameters) + 1)]
    for code, depth in _compiled(space):
        needed[depth].append(code)

    def allowed(point: Point, depth: int) -> bool:
        return all(eval(code, _GLOBALS, point) for code in needed[depth])

    def walk(point: Point, depth: int) -> Iterator[Point]:
        if depth == len(space.parameters):
            yield dict(point)
            return
        name, values = space.parameters[depth]
        order = shuffle.sample(values, len(values)) if shuffle else values
        for value in order:
            extended = {**point, name: value}
            if allowed(extended, depth + 1):
                yield from walk(extended, depth + 1)

    if allowed({}, 0):
        yield from walk({}, 0)


def sample_points(space: Space, seed: int, limit: int = ENUMERATION_LIMIT) -> list[Point]:
    """All valid points of a small space, in order; otherwise ``limit`` different ones drawn at random."""
    points = list(itertools.islice(valid_points(space), limit + 1))
    if len(points) <= limit:
        return points
    return _random_points(space, random.Random(seed), limit)


def _random_points(space: Space, rng: random.Random, limit: int) -> list[Point]:
    found: dict[tuple[Value, ...], Point] = {}
    for _ in range(2 * limit):
        point = next(valid_points(space, rng), None)
        if point is None or len(found) >= limit:
            break
        found.setdefault(space.key(point), point)
    return list(found.values())


def variations(space: Space, point: Point) -> Iterator[Point]:
    """Valid points that differ from ``point`` in exactly one parameter."""
    for name, values in space.parameters:
        for value in values:
            if value != point[name]:
                other = {**point, name: value}
                if allows(space, other):
                    yield other


def best_estimated(
    space: Space,
    estimate: Estimate | None,
    count: int,
    seed: int = 0,
    estimates: int = 3000,
    near: Sequence[Point] = (),
) -> list[Point]:
    """The points that the cost model likes best, best first; at most ``estimates`` calls of it.

    Half of the calls go to a sample (all of a small space), the rest to variations of the best found so far.
    ``near``: points of the space that belong to the sample.
    """
    if estimate is None:
        return sample_points(space, seed, max(count, 1))[:count]
    sampled = sample_points(space, seed, estimates // 2)
    points = list({space.key(p): p for p in (*near, *sampled)}.values())
    heap = [(_finite(estimate(p)), k, p) for k, p in enumerate(points)]
    heapq.heapify(heap)
    seen = {space.key(p): e for e, _, p in heap}
    best: list[tuple[float, int, Point]] = []
    while heap and len(best) < count:
        cost, number, point = heapq.heappop(heap)
        best.append((cost, number, point))
        for other in variations(space, point):
            if len(seen) >= estimates:
                break
            if space.key(other) not in seen:
                seen[space.key(other)] = value = _finite(estimate(other))
                heapq.heappush(heap, (value, len(seen) + len(points), other))
    return [p for _, _, p in sorted(best, key=lambda b: b[:2])]


def _finite(value: float) -> float:
    return value if value == value else math.inf


def working_set(
    space: Space, centres: Iterable[Point], seed: int, limit: int = ENUMERATION_LIMIT
) -> list[Point]:
    """What a strategy walks on: a small space as a whole, else a sample and all variations of the centres."""
    points = list(itertools.islice(valid_points(space), limit + 1))
    if len(points) <= limit:
        return points
    found = {space.key(p): p for centre in centres for p in (centre, *variations(space, centre))}
    for point in _random_points(space, random.Random(seed), max(1000, limit // 10)):
        found.setdefault(space.key(point), point)
    return list(found.values())
