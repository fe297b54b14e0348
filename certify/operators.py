"""Is what an operator calls its identity neutral?  By algebra where the operator has a known form.

    x + 0   x * 1   x | 0   x ^ 0   x & ~0   x < top ? x : top   fmin(x, NaN)   x && 1   x || 0

An operator of another form is tried out on values, which can refute and not prove.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence

from certify.obligations import CHECKED, PROVED, REFUTED, Obligation
from mdh_core.combine import CombineFunction
from mdh_core.evaluate import Env, EvaluationError, Value, convert, evaluate
from mdh_core.expr import Binary, Call, Const, Expr, Function, RecordType, ScalarType, Select, Type, Var

IDENTITY = "the identity is neutral"


def identity(f: CombineFunction, functions: Sequence[Function], subject: str) -> Obligation | None:
    """None where there is no identity to be shown."""
    if f.identity is None:
        return None
    where = f"{subject}, {f.name}"
    if len(f.identity) != f.arity or len(f.values) != f.arity:
        return Obligation(where, IDENTITY, REFUTED, "algebra", "it has not one value per component")
    wrong = _counterexample(f, functions)
    if wrong is not None:
        return Obligation(where, IDENTITY, REFUTED, "algebra", wrong)
    known = [
        _neutral(e, c, k.value, t)
        for c, (e, k, t) in enumerate(zip(f.values, f.identity, f.types, strict=True))
    ]
    if all(known):
        return Obligation(where, IDENTITY, PROVED, "algebra")
    return Obligation(where, IDENTITY, CHECKED, "values", "an operator of no known form")


def _counterexample(f: CombineFunction, functions: Sequence[Function]) -> str | None:
    assert f.identity is not None
    e = tuple(convert(k.value, k.type) for k in f.identity)
    table = {g.name: g for g in functions}
    truths = [_truth(v) for v in f.values]
    for values in _samples(f.types, truths):
        for left, right in ((e, values), (values, e)):
            named: dict[str, Value | None] = {f"l{c}": v for c, v in enumerate(left)}
            named |= {f"r{c}": v for c, v in enumerate(right)}
            try:
                found = tuple(evaluate(v, Env(named, table)) for v in f.values)
            except EvaluationError:
                continue
            if found != values:
                return f"{_text(left)} and {_text(right)} give {_text(found)}"
    return None


def _text(v: Sequence[Value]) -> str:
    return str(v[0]) if len(v) == 1 else str(tuple(v))


def _samples(types: Sequence[Type], truths: Sequence[bool]) -> list[tuple[Value, ...]]:
    rng = random.Random(1)
    columns = [_column(t, truth, rng) for t, truth in zip(types, truths, strict=True)]
    if len(columns) == 1:
        return [(v,) for v in columns[0]]
    few = list(itertools.islice(itertools.product(*(c[:4] for c in columns)), 64))
    return few + [tuple(rng.choice(c) for c in columns) for _ in range(60)]


def _column(t: Type, truth: bool, rng: random.Random) -> list[Value]:
    if isinstance(t, RecordType):
        return [tuple(rng.choice(_column(u, False, rng)) for _, u in t.fields) for _ in range(20)]  # type: ignore[misc]
    if truth or t.kind == "bool":
        return [0, 1]
    if t.is_float:
        return [
            0.0,
            1.0,
            -1.0,
            2.5,
            -7.0,
            math.inf,
            -math.inf,
            2.0**60,
            -(2.0**60),
            *(rng.randint(-999, 999) / 8 for _ in range(8)),
        ]
    low = -(1 << (t.bits - 1)) if t.kind == "int" else 0
    high = (1 << (t.bits - 1)) - 1 if t.kind == "int" else (1 << t.bits) - 1
    return [convert(v, t) for v in (low, high, 0, 1, 2, -1, 7, *(rng.randint(low, high) for _ in range(12)))]


def _truth(e: Expr) -> bool:
    return isinstance(e, Select) and isinstance(e.cond, Binary) and e.cond.op in ("&&", "||")


def _neutral(e: Expr, c: int, k: int | float, t: Type) -> bool:
    """A theorem says that ``k`` is neutral for this component on both sides."""
    if not isinstance(t, ScalarType):
        return False
    low: float = -math.inf if t.is_float else -(1 << (t.bits - 1)) if t.kind == "int" else 0
    high: float = (
        math.inf if t.is_float else (1 << (t.bits - 1)) - 1 if t.kind == "int" else (1 << t.bits) - 1
    )
    l, r = Var(f"l{c}", t), Var(f"r{c}", t)
    match e:
        case Binary(op=op, a=a, b=b) if {a, b} == {l, r}:
            if op == "&":
                return convert(k, t) == convert(-1, t)
            return {"+": 0, "*": 1, "|": 0, "^": 0}.get(op) == k
        case Select(cond=Binary(op=op, a=a, b=b), then=then, other=other) if (a, b) == (then, other) and {
            a,
            b,
        } == {l, r}:
            return (op in ("<", "<=") and k == high) or (op in (">", ">=") and k == low)
        case Select(cond=Binary(op="&&" | "||" as op, a=a, b=b), then=Const(value=1), other=Const(value=0)):
            return k == (1 if op == "&&" else 0) and all(_is_test(x, (l, r)) for x in (a, b))
        case Call(function=name, args=args) if set(args) == {l, r}:
            return name.startswith(("fmin", "fmax")) and k != k
        case _:
            return False


def _is_test(e: Expr, operands: tuple[Var, Var]) -> bool:
    return (
        isinstance(e, Binary)
        and e.op == "!="
        and e.a in operands
        and isinstance(e.b, Const)
        and e.b.value == 0
    )
