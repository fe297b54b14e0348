"""Data for random nests: sizes, contents of arrays, and whether values stay small enough."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence

from campaigns.nest_tree import Array, Nest, points
from lifter.lift import LiftedNest
from lifter.loop_nest import Loop, LoopNest, NestStmt
from lifter.run_nest import place
from mdh_core.evaluate import Env, EvaluationError, Value, convert, evaluate_scalar, execute
from mdh_core.expr import If, ScalarType
from mdh_core.interpreter import BufferValue, integers, row_major
from mdh_lift.c_value import value as c_value

Sizes = dict[str, int]
Index = tuple[int, ...]


class Grown(Exception):  # noqa: N818 - an answer
    """A value became so large that another order of a sum could round or overflow."""


def is_undefined(error: Exception) -> bool:
    """Does C leave the meaning undefined: signed overflow, a value converted to an integer it exceeds?"""
    return "overflow" in str(error) or "does not fit" in str(error)


def limit_of(t: object) -> int:
    if not isinstance(t, ScalarType) or t.kind in ("uint", "bool") or t.bits < 32:
        return 1 << 70
    if t.is_float:
        return 1 << (16 if t.bits == 32 else 40)
    return 1 << (24 if t.bits == 32 else 52)


def watched_run(
    nest: LoopNest,
    params: Mapping[str, Value],
    buffers: Mapping[str, BufferValue],
    scalars: Mapping[str, Value],
) -> None:
    """The nest run as loops; raises ``Grown`` for large values, and where C leaves the meaning undefined."""
    limits = {b.name: limit_of(b.type) for b in nest.buffers}
    scalar_limits = {s.name: limit_of(s.type) for s in nest.scalars}

    def small(value: Value, limit: int) -> Value:
        assert not isinstance(value, tuple)
        if not math.isfinite(value) or abs(value) > limit:
            raise Grown
        return value

    class Watched(dict[str, Value | None]):
        def __setitem__(self, name: str, value: Value | None) -> None:
            if value is not None:
                small(value, scalar_limits.get(name, 1 << 70 if isinstance(value, int) else 1 << 16))
            super().__setitem__(name, value)

    def store(name: str, index: tuple[int, ...], value: Value) -> None:
        buffers[name].data[place(buffers[name], index)] = small(value, limits[name])

    env = Env(
        Watched({**params, **scalars}),
        {f.name: f for f in nest.functions},
        load=lambda name, index: buffers[name].data[place(buffers[name], index)],
        store=store,
        trap_overflow=True,
    )

    run_loops(nest.body, env)


def run_loops(body: tuple[NestStmt, ...], env: Env) -> None:
    for s in body:
        if isinstance(s, If):
            run_loops(s.then if evaluate_scalar(s.cond, env) else s.other, env)  # type: ignore[arg-type]
            continue
        if not isinstance(s, Loop):
            execute((s,), env)
            continue
        low, high = int(evaluate_scalar(s.lower, env)), int(evaluate_scalar(s.upper, env))
        low = int(convert(low, s.type))  # `int k = u - 1` of an unsigned 0 starts at -1
        values = range(low, high, s.step)
        for i in values:
            env.variables[s.iterator] = i
            run_loops(s.body, env)
        env.variables[s.iterator] = convert(low + len(values) * s.step, s.type)


def random_number(kind: str, type_name: str, rng: random.Random, reach: int = 1) -> int | float:
    match kind:
        case "index":
            return rng.randrange(max(1, reach))
        case "unit":
            value = rng.choice([-1, 1])
        case "bit":
            value = rng.randint(0, 1)
        case _:
            value = rng.randint(-4, 7)
    if type_name.startswith("uint"):
        return abs(value)
    return float(value) if type_name in ("float", "double") else value


def chosen_sizes(nest: Nest, rng: random.Random, pool: Sequence[int], most: int) -> Sizes:
    """Sizes of the pool, or smaller ones, with at most ``most`` statements."""
    sizes = {n: rng.choice(pool) for n in nest.sizes}
    while sizes and points(nest, sizes, most + 1) > most:
        name = max(sizes, key=lambda n: sizes[n])
        if sizes[name] == 0:
            break
        sizes[name] -= 1
    return sizes


def extents_of(a: Array, sizes: Sizes) -> tuple[int, ...]:
    return tuple(max(0, e.at(sizes)) for e in a.extents)


def random_data(
    nest: Nest, sizes: Sizes, rng: random.Random
) -> tuple[dict[str, list[Value]], dict[str, Value]]:
    """Contents of the arrays (at least one element each) and the values of the scalars that have one."""
    arrays: dict[str, list[Value]] = {}
    for a in nest.arrays:
        count = max(1, math.prod(extents_of(a, sizes)))
        reach = a.reach.at(sizes)
        arrays[a.name] = [random_number(a.data, a.type, rng, reach) for _ in range(count)]
    scalars: dict[str, Value] = {}
    for s in nest.scalars:
        if s.start != "":
            number = random_number("small", s.type, rng) if s.start is None else int(s.start)
            scalars[s.name] = float(number) if s.type in ("float", "double") else number
    return arrays, scalars


def with_derived(source: LoopNest, params: dict[str, Value]) -> dict[str, Value]:
    """Hoisted invariants are values of their own only by name."""
    params = dict(params)
    for p in source.params:
        if p.value not in ("", p.name):
            params[p.name] = c_value(p.value, integers(params))
    return params


class Shifted(BufferValue):
    """An array that begins inside of another one's block."""

    __slots__ = ("offset",)

    def __init__(self, data: list[Value], extents: Index, offset: int) -> None:
        self.data, self.extents, self.offset = data, extents, offset
        self.strides = row_major(extents)

    def position(self, index: Index) -> int:
        return self.offset + sum(i * s for i, s in zip(index, self.strides, strict=True))


def one_block(first: Sequence[Value], second: Sequence[Value], offset: int) -> list[Value]:
    """Contents of a block in which the second array begins ``offset`` elements after the first."""
    missing = max(0, offset + len(second) - len(first))
    return [*first, *(second[-missing:] if missing else [])]


def survives(
    nest: Nest,
    lifted: LiftedNest,
    sizes: Sizes,
    arrays: Mapping[str, list[Value]],
    scalars: Mapping[str, Value],
    shared: tuple[str, str, int] | None = None,
) -> bool:
    """Do all values stay small when the nest runs on these data, two arrays perhaps in one block?"""
    source = lifted.nest
    outer = {s.name for s in source.scalars}
    params: dict[str, Value] = {n: v for n, v in {**sizes, **scalars}.items() if n not in outer}
    buffers: dict[str, BufferValue] = {}
    for a in nest.arrays:
        rows = a.rank > 1 and a.layout == "rows"
        extents = extents_of(a, sizes) if rows else (len(arrays[a.name]),)
        buffers[a.name] = BufferValue(list(arrays[a.name]), extents)
    if shared:
        first, second, offset = shared
        block = one_block(arrays[first], arrays[second], offset)
        buffers[first] = Shifted(block, buffers[first].extents, 0)
        buffers[second] = Shifted(block, buffers[second].extents, offset)
    try:
        watched_run(source, with_derived(source, params), buffers, scalars)
    except Grown:
        return False
    except EvaluationError as error:
        if is_undefined(error):
            return False
        raise
    return True
