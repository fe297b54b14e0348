"""Helpers of the lifter's tests: C text to nests, and nests against lifted programs on random values."""

from __future__ import annotations

import random
from collections.abc import Mapping

from frontend_c.read import CompileCommand, read
from lifter.lift import LiftedNest, lift
from lifter.loop_nest import LoopNest
from lifter.run_nest import run_nest
from mdh_core.evaluate import Value
from mdh_core.expr import RecordType, ScalarType, Type
from mdh_core.interpreter import BufferValue, integers, required_extents, row_major, run
from mdh_core.rules import verify
from mdh_core.source import SourceFile

Contents = dict[str, list[Value]]


def nests(text: str) -> tuple[LoopNest, ...]:
    result = read(SourceFile("t.c", text.encode()), CompileCommand())
    problems = [d for r in result.refused for d in r.diagnostics if d.severity == "error"]
    problems += [d for d in result.diagnostics if d.severity == "error"]
    assert not problems, problems
    return result.nests


def lifted(text: str) -> LiftedNest:
    (nest,) = nests(text)
    return lift(nest)


def operators(nest: LiftedNest) -> str:
    """``i:cc k:pw(+)``, programs separated by ``;``, or the code of the refusal."""
    if nest.status == "refused":
        return nest.diagnostics[0].code
    return "; ".join(
        " ".join(f"{d.name}:{op}" for d, op in zip(p.hom.dims, p.hom.combine, strict=True))
        for p in nest.program
    )


def random_value(t: Type, rng: random.Random) -> Value:
    if isinstance(t, RecordType):
        return tuple(random_value(u, rng) for _, u in t.fields)  # type: ignore[return-value]
    assert isinstance(t, ScalarType)
    if t.is_float:
        return float(rng.randint(-4, 4))
    if t.kind == "bool":
        return rng.randint(0, 1)
    return rng.randint(0 if t.kind == "uint" else -5, 9)


def check_meaning(nest: LiftedNest, trials: int = 12, seed: int = 1) -> int:
    """The nest run as loops and the programs give the same; returns how often no dimension was empty."""
    assert nest.status == "lifted", nest.diagnostics
    for p in nest.program:
        assert verify(p) == []
    rng = random.Random(seed)
    return sum(one_trial(nest, rng, splits=trial % 2 == 1) for trial in range(trials * 2))


def one_trial(nest: LiftedNest, rng: random.Random, splits: bool) -> bool:
    source = nest.nest
    params: dict[str, Value] = {}
    for x in source.params:
        integer = isinstance(x.type, ScalarType) and x.type.is_integer
        params[x.name] = rng.randint(0, 5) if integer else random_value(x.type, rng)
    for x in source.params:  # hoisted invariants are values of their own only by name
        if x.value not in ("", x.name):
            params[x.name] = eval(x.value.replace("/", "//"), {}, dict(params))
    if any(a.evaluate(integers(params)) < 0 for p in nest.program for a in p.assumptions):
        return False
    extents: dict[str, tuple[int, ...]] = {}
    for p in nest.program:
        needed, problems = required_extents(p, params)
        if problems:
            return False
        for name, e in needed.items():
            old = extents.get(name, (0,) * len(e))
            extents[name] = tuple(max(a, b) for a, b in zip(old, e, strict=True))
    types: dict[str, Type] = {b.name: b.type for b in source.buffers}
    types |= {s.name: s.type for s in source.scalars}
    for b in source.buffers:
        declared = (0 if e is None else max(0, e.evaluate(integers(params))) for e in b.extents)
        extents.setdefault(b.name, tuple(declared))
    start: dict[str, BufferValue] = {}
    for name, e in extents.items():
        size = max(1, row_major((*e, 1))[0] * (e[0] if e else 1)) if e else 1
        start[name] = BufferValue([random_value(types[name], rng) for _ in range(size)], e)
    scalars: dict[str, Value] = {s.name: random_value(s.type, rng) for s in source.scalars}
    for name, value in scalars.items():
        start[name] = BufferValue([value], ())

    expected = {b.name: start[b.name].copy() for b in source.buffers}
    after = dict(scalars)
    run_nest(source, params, expected, after)
    got = {name: b.copy() for name, b in start.items()}
    for p in nest.program:
        run(p, params, got, split=random.Random(rng.random()) if splits else None)
    for b in source.buffers:
        assert got[b.name].data == expected[b.name].data, (b.name, show(params), start)
    for s in source.scalars:
        if s.live_after:
            assert got[s.name].data[0] == after[s.name], (s.name, show(params), start)
    return all(n > 0 for p in nest.program for n in p.sizes(integers(params)).values())


def show(params: Mapping[str, Value]) -> str:
    return ", ".join(f"{n}={v}" for n, v in params.items())
