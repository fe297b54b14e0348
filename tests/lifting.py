"""Helpers of the lifter's tests: C text to nests, and nests against lifted programs on random values."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

from frontend_c.read import CompileCommand, read
from lifter.lift import LiftedNest, lift
from lifter.loop_nest import LoopNest
from lifter.run_nest import run_nest
from mdh_core.evaluate import EvaluationError, Value
from mdh_core.expr import RecordType, ScalarType, Type
from mdh_core.interpreter import BufferValue, integers, required_extents, row_major, run_steps
from mdh_core.ir import HostLoop, MdhProgram, Step
from mdh_core.rules import verify
from mdh_core.source import SourceFile
from mdh_lift.c_value import names_in
from mdh_lift.c_value import value as c_value

Contents = dict[str, list[Value]]


def nests(text: str) -> tuple[LoopNest, ...]:
    result = read(SourceFile("t.c", text.encode()), CompileCommand())
    problems = [d for r in result.refused for d in r.diagnostics if d.severity == "error"]
    problems += [d for d in result.diagnostics if d.severity == "error"]
    assert not problems, problems
    return result.nests


def check_refused_loop(text: str, loop: str, code: str, said: str) -> None:
    """One error, of this code, which says this with a help, and shows a part of the loop."""
    result = read(SourceFile("t.c", text.encode()), CompileCommand())
    found = [d for r in result.refused for d in r.diagnostics if d.severity == "error"]
    assert [d.code for d in found] == [code] and said in found[0].message and found[0].help
    assert text.encode()[found[0].span.start : found[0].span.end] in loop.encode()


def lifted(text: str) -> LiftedNest:
    (nest,) = nests(text)
    return lift(nest)


def operators(nest: LiftedNest) -> str:
    """``i:cc k:pw(+)``, programs separated by ``;``, or the code of the refusal."""
    if nest.status == "refused":
        return nest.diagnostics[0].code
    return "; ".join(
        " ".join(f"{d.name}:{op}" for d, op in zip(p.hom.dims, p.hom.combine, strict=True))
        for p in nest.programs
    )


def step_lines(steps: Sequence[Step], depth: int = 0) -> list[str]:
    """The steps as the corpus's manifest writes them: ``> i: cc, k: pw(+)`` inside of a host loop."""
    out = []
    for s in steps:
        match s:
            case MdhProgram(hom=hom):
                ops = [str(op).replace("((", "(").replace("))", ")") for op in hom.combine]
                dims = (f"{d.name}: {op}" for d, op in zip(hom.dims, ops, strict=True))
                out.append("> " * depth + (", ".join(dims) or "scalar"))
            case HostLoop(source_name=name, body=body):
                out.append("> " * depth + f"{name or 'w'}: host_loop")
                out += step_lines(body, depth + 1)
            case _:
                out.append("> " * depth + "sequential")
    return out


def wanted_steps(entry: Mapping[str, Any]) -> list[str]:
    """``step_lines`` of a program of the manifest."""
    if "steps" in entry:
        return list(entry["steps"])
    return [", ".join(f"{d}: {op}" for d, op in zip(entry["dims"], entry["combine_ops"], strict=True))]


def random_value(t: Type, rng: random.Random) -> Value:
    if isinstance(t, RecordType):
        return tuple(random_value(u, rng) for _, u in t.fields)  # type: ignore[return-value]
    assert isinstance(t, ScalarType)
    if t.is_float:
        return float(rng.randint(-4, 4))
    if t.kind == "bool":
        return rng.randint(0, 1)
    return rng.randint(0 if t.kind == "uint" else -5, 9)


def check_meaning(nest: LiftedNest, trials: int = 12, seed: int = 1, well_formed: bool = True) -> int:
    """The nest run as loops and the programs give the same; returns how often no dimension was empty."""
    assert nest.status in ("lifted", "partial"), nest.diagnostics
    assert not well_formed or all(verify(p) == [] for p in nest.programs)
    rng = random.Random(seed)
    return sum(one_trial(nest, rng, splits=trial % 2 == 1) for trial in range(trials * 2))


def one_trial(nest: LiftedNest, rng: random.Random, splits: bool) -> bool:
    source = nest.nest
    params: dict[str, Value] = {}
    for x in source.params:
        integer = isinstance(x.type, ScalarType) and x.type.is_integer
        params[x.name] = rng.randint(0, 5) if integer else random_value(x.type, rng)
    outside: dict[str, int] = {}
    for x in source.params:  # hoisted invariants are values of their own only by name
        if x.value not in ("", x.name):
            unknown = [name for name in names_in(x.value) if name not in params and name not in outside]
            outside |= {name: rng.randint(0, 9) for name in unknown}
            params[x.name] = c_value(x.value, integers(params) | outside)
    if any(a.evaluate(integers(params)) < 0 for p in nest.programs for a in p.assumptions):
        return False
    extents = needed_extents(nest.touching or nest.program, params)
    if extents is None:
        return False
    types: dict[str, Type] = {b.name: b.type for b in source.buffers}
    types |= {s.name: s.type for s in source.scalars}
    types |= {b.name: b.type for b in nest.temporaries}
    extents = {name: e for name, e in extents.items() if name in types}
    for b in source.buffers:
        declared = (0 if e is None else max(0, e.evaluate(integers(params))) for e in b.extents)
        extents.setdefault(b.name, tuple(declared) if b.extents != (None,) else (12,))
    start: dict[str, BufferValue] = {}
    for name, e in extents.items():
        size = max(1, row_major((*e, 1))[0] * (e[0] if e else 1)) if e else 1
        start[name] = BufferValue([random_value(types[name], rng) for _ in range(size)], e)
    scalars: dict[str, Value] = {s.name: random_value(s.type, rng) for s in source.scalars}
    for name, value in scalars.items():
        start[name] = BufferValue([value], ())
    for b in nest.temporaries:
        size = tuple(max(0, e.evaluate(integers(params))) for e in b.extents if e is not None)
        start[b.name] = BufferValue([random_value(b.type, rng) for _ in range(math.prod(size))], size)

    expected = {b.name: start[b.name].copy() for b in source.buffers}
    after = dict(scalars)
    try:
        run_nest(source, params, expected, after)
    except EvaluationError as error:
        if "outside" not in str(error):
            raise
        return False  # the data lead outside of an array
    got = {name: b.copy() for name, b in start.items()}
    run_steps(nest.program, params, got, split=random.Random(rng.random()) if splits else None)
    for b in source.buffers:
        pairs = zip(got[b.name].data, expected[b.name].data, strict=True)
        assert all(alike(x, y) for x, y in pairs), (b.name, show(params), start)
    for s in source.scalars:
        if s.live_after:
            assert alike(got[s.name].data[0], after[s.name]), (s.name, show(params), start)
    return all(n > 0 for n in integers(params).values())


def alike(a: Value, b: Value) -> bool:
    """Equal; quotients and roots are rounded, so that sums of them depend on their order."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        return all(alike(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, float) and isinstance(b, float) and not (a.is_integer() and b.is_integer()):
        if not (math.isfinite(a) and math.isfinite(b)):
            return not math.isfinite(a) and not math.isfinite(b)
        return math.isclose(a, b, rel_tol=1e-3, abs_tol=1e-3)
    return a == b


def needed_extents(
    steps: Sequence[Step], params: Mapping[str, Value]
) -> dict[str, tuple[int, ...]] | None:
    """Extents that hold every access of the steps; None where one is out of bounds."""
    extents: dict[str, tuple[int, ...]] = {}

    def add(needed: Mapping[str, tuple[int, ...]]) -> None:
        for name, e in needed.items():
            old = extents.get(name, (0,) * len(e))
            extents[name] = tuple(max(a, b) for a, b in zip(old, e, strict=True))

    def visit(body: Sequence[Step], known: dict[str, Value]) -> bool:
        for s in body:
            match s:
                case MdhProgram():
                    needed, problems = required_extents(s, known)
                    if problems:
                        return False
                    add(needed)
                case HostLoop(iterator=iterator, size=size, body=inner):
                    for k in range(size.evaluate(integers(known))):
                        if not visit(inner, {**known, iterator: k}):
                            return False
        return True

    return extents if visit(steps, dict(params)) else None


def show(params: Mapping[str, Value]) -> str:
    return ", ".join(f"{n}={v}" for n, v in params.items())


# --------------------------------------------------------------------------- random nests


class RandomNest:
    """C text of a nest over ``a b c f M`` (written), ``x y`` (read) and the scalars ``s u``."""

    PARAMETERS = (
        "int n, int m, int s, int u, int *a, int *b, int *c, int *f, int *x, int *y, int M[n][m], int *r"
    )
    HEADS = (
        *("for (int {0} = 0; {0} < n; {0}++)",) * 4,
        "for (int {0} = 1; {0} < m; {0}++)",
        "for (int {0} = 0; {0} < m; {0}++)",
        "for (int {0} = n - 1; {0} >= 0; {0}--)",
        "for (int {0} = 1; {0} < n; {0} += 2)",
        "for (int {0} = 0; {0} < 3; {0}++)",
    )

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.locals = 0

    def text(self) -> str:
        scalars = self.rng.choice([["s"], ["s", "u"], ["s", "u"], []])
        depth = self.rng.choice([0, 1, 1, 2])
        if self.rng.random() < 0.7:
            return self.loop([], scalars, depth)
        return self.block([], scalars, depth + 1)

    def one_of(self, **weights: int) -> str:
        return self.rng.choices(list(weights), list(weights.values()))[0]

    def loop(self, iterators: list[str], scalars: list[str], depth: int) -> str:
        i = "ijk"[len(iterators)]
        return f"{self.rng.choice(self.HEADS).format(i)} {self.block([*iterators, i], scalars, depth)}"

    def block(self, iterators: list[str], scalars: list[str], depth: int) -> str:
        out, scalars = [], list(scalars)
        if self.rng.random() < 0.4:
            start = self.rng.choice(
                ["0", "1", f"x[{self.index(iterators)}]", self.value(iterators, scalars, 1)]
            )
            out.append(f"int t{self.locals} = {start};")
            scalars.append(f"t{self.locals}")
            self.locals += 1
        if depth > 0 and (not iterators or self.rng.random() < 0.7):
            for _ in range(self.rng.choice([1, 1, 2])):
                if self.rng.random() < 0.3:
                    out.append(self.statement(iterators, scalars))
                out.append(self.loop(iterators, scalars, depth - 1))
                if self.rng.random() < 0.4:
                    out.append(self.statement(iterators, scalars))
        else:
            out += [self.statement(iterators, scalars) for _ in range(self.rng.choice([1, 1, 2]))]
        return "{ " + " ".join(out) + " }"

    def statement(self, iterators: list[str], scalars: list[str]) -> str:
        kind = self.one_of(update=5, store=3, guard=1)
        if kind == "update" and scalars:
            s = self.rng.choice(scalars)
            e = self.value(iterators, [], 1)
            compared = self.rng.choice(["<", ">", "<=", ">="])
            match self.one_of(combine=5, extremum=2, guarded=1, any=1, position=2):
                case "combine":
                    return f"{s} {self.rng.choice(['+=', '-=', '*=', '^='])} {e};"
                case "extremum":
                    return f"if ({e} {compared} {s}) {s} = {e};"
                case "guarded":
                    return f"if (x[{self.index(iterators)}] > 0) {s} += {e};"
                case "any":
                    return f"{s} = {self.value(iterators, scalars, 2)};"
                case _:
                    at = self.rng.choice([*iterators, "1"])
                    return f"if ({e} {compared} {s}) {{ {s} = {e}; {self.rng.choice(scalars)} = {at}; }}"
        if kind == "guard":
            then, other = self.statement(iterators, scalars), self.statement(iterators, scalars)
            return f"if ({self.condition(iterators, scalars)}) {{ {then} }} else {{ {other} }}"
        place = self.cell(iterators, written=True)
        e = self.rng.choice([self.value(iterators, scalars, 2), *scalars])
        guard = f"if ({self.condition(iterators, scalars)}) " if self.rng.random() < 0.1 else ""
        return f"{guard}{place} {self.rng.choice(['=', '=', '+='])} {e};"

    def value(self, iterators: list[str], scalars: list[str], depth: int) -> str:
        kind = self.one_of(leaf=3, infix=5, select=1) if depth else "leaf"
        if kind == "leaf":
            return self.rng.choice(
                [
                    self.cell(iterators),
                    self.cell(iterators),
                    *scalars,
                    *iterators,
                    str(self.rng.randint(0, 3)),
                ]
            )
        x, y = (self.value(iterators, scalars, depth - 1) for _ in range(2))
        if kind == "infix":
            return f"({x} {self.rng.choice('+-*+')} {y})"
        return f"({self.condition(iterators, scalars)} ? {x} : {y})"

    def condition(self, iterators: list[str], scalars: list[str]) -> str:
        x, y = (self.value(iterators, scalars, 0) for _ in range(2))
        return f"{x} {self.rng.choice(['<', '<=', '>', '==', '!='])} {y}"

    def cell(self, iterators: list[str], written: bool = False) -> str:
        buffer = self.rng.choice("abcMf" if written or self.rng.random() < 0.2 else "xxyM")
        if buffer == "M":
            return f"M[{self.index(iterators)}][{self.index(iterators)}]"
        if buffer == "f":
            return f"f[({self.index(iterators)}) * m + {self.rng.choice(iterators or ['0'])}]"
        return f"{buffer}[{self.index(iterators)}]"

    def index(self, iterators: list[str]) -> str:
        if not iterators:
            return str(self.rng.randint(0, 2))
        i, j = self.rng.choice(iterators), self.rng.choice(iterators)
        kinds = [
            i,
            i,
            i,
            f"{i} + {self.rng.randint(0, 2)}",
            f"{i} - 1",
            str(self.rng.randint(0, 2)),
            f"{i} + {j}",
        ]
        return self.rng.choice(kinds)
