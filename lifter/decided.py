"""Conditions that the ranges of loops decide, in trees of statements and in expressions.

    in     statements of a nest (or an expression), what is known about its iterators and parameters
    out    the same without choices that are always taken, or never, and without loops that never run

    before   for i < k: if (i != k) S;   if (k != k) S;   for i > k: if (i != k) S;
    after    for i < k: S;                                for i > k: S;

A loop that was split at an iteration (``reorder.split``) leaves such conditions behind where the source
had one that names it.  What is decided is true for all sizes, shown by isl; where it gave up, nothing is.

Shown right by tests/test_decided.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lifter.loop_nest import Loop, NestStmt
from lifter.normalise import exact_facts, is_condition, strictly_affine
from lifter.polyhedral import Constraint, at_least, less, satisfiable
from lifter.trees import Body, mentioned
from mdh_core.expr import (
    INT32,
    Affine,
    Binary,
    Cast,
    Const,
    Declare,
    Expr,
    If,
    ScalarType,
    Select,
    Unary,
    While,
    map_stmts,
    rewrite,
)

Facts = Sequence[Constraint]


def decided(body: Sequence[NestStmt], facts: Facts) -> Body:
    """The statements without what never runs.  ``facts``: about iterators around them and parameters."""
    left = _decided(body, facts)
    used = mentioned(left)
    return tuple(s for s in left if not (isinstance(s, Declare) and s.value is None and s.name not in used))


def _decided(body: Sequence[NestStmt], facts: Facts) -> Body:
    out: list[NestStmt] = []
    for s in body:
        match s:
            case Loop():
                inside = [*facts, *_range(s, facts)]
                inner = _decided(s.body, inside) if satisfiable(inside) else ()
                out += [replace(s, body=inner)] if inner else []
            case If(cond=cond, then=then, other=other):
                taken = decision(cond, facts)
                yes = _decided(then, facts) if taken is not False else ()  # type: ignore[arg-type] # loops in it
                no = _decided(other, facts) if taken is not True else ()  # type: ignore[arg-type]
                if taken is not None:
                    out += yes if taken else no
                elif yes or no:
                    out.append(replace(s, cond=simplified(cond, facts), then=yes, other=no))  # type: ignore[arg-type]
            case While(body=inner):
                out.append(replace(s, body=_decided(inner, facts)))  # type: ignore[arg-type]
            case _:
                out += map_stmts((s,), lambda e: simplified(e, facts))  # type: ignore[arg-type]
    return tuple(out)


def _range(s: Loop, facts: Facts) -> list[Constraint]:
    """What the bounds say about an iterator, as far as they are affine."""
    i, out = Affine.of(s.iterator), list[Constraint]()
    first, end = (_value(e, s.type, facts) for e in (s.lower, s.upper))
    if first is not None:
        out.append(at_least(i - first if s.step > 0 else first - i))
    if end is not None:
        out.append(less(i, end) if s.step > 0 else less(end, i))
    return out


def _value(e: Expr, t: ScalarType, facts: Facts) -> Affine | None:
    return strictly_affine(e if e.type == t else Cast(e, t), lambda a: _holds(at_least(a), facts))


def decision(cond: Expr, facts: Facts) -> bool | None:
    """Whether a condition always holds (True) or never (False) where the facts do; None: neither is shown.

    >>> i, k = (Var(name, INT32) for name in "ik")
    >>> before = [less(Affine.of("i"), Affine.of("k"))]
    >>> decision(Binary("!=", i, k, INT32), before), decision(Binary("<", k, i, INT32), before)
    (True, False)
    """
    match cond:
        case Binary(op="&&", a=a, b=b):
            return _both(decision(a, facts), decision(b, facts))
        case Binary(op="||", a=a, b=b):
            return _not(_both(_not(decision(a, facts)), _not(decision(b, facts))))
        case Unary(op="!", a=a) if _is_truth(a):
            return _not(decision(a, facts))
        case Cast(a=a, type=ScalarType() as t) if t.is_integer and _is_truth(a):
            return decision(a, facts)
        case Binary(op="!=", a=a, b=Const(value=0)) if _is_truth(a):
            return decision(a, facts)
        case Binary(op="!=", a=a, b=b):
            return _not(decision(Binary("==", a, b, INT32), facts))
    exact = exact_facts(cond, lambda a: _holds(at_least(a), facts))
    if exact is None:
        return None
    if not satisfiable([*facts, *exact]):
        return False
    return True if all(_holds(c, facts) for c in exact) else None


def _is_truth(e: Expr) -> bool:
    """Is the value 0 or 1?"""
    return is_condition(e) or (isinstance(e, Unary) and e.op == "!")


def _both(a: bool | None, b: bool | None) -> bool | None:
    if a is False or b is False:
        return False
    return True if a and b else None


def _not(a: bool | None) -> bool | None:
    return None if a is None else not a


def _holds(c: Constraint, facts: Facts) -> bool:
    below, above = Constraint(-c.value - 1), Constraint(c.value - 1)
    violations = (below, above) if c.equality else (below,)
    return not any(satisfiable([*facts, v]) for v in violations)


def simplified(e: Expr, facts: Facts) -> Expr:
    """Without choices that the facts about iterators and parameters decide, and decided parts of others."""

    def one(n: Expr) -> Expr | None:
        match n:
            case Select(cond=cond, then=then, other=other):
                taken = decision(cond, facts)
                return None if taken is None else then if taken else other
            case Binary(op="&&" | "||" as op, a=a, b=b) if _is_truth(a) and _is_truth(b):
                plain = op == "&&"  # what leaves the other operand's value
                for mine, other in ((a, b), (b, a)):
                    if decision(mine, facts) is plain:
                        return other
        return None

    return rewrite(e, one)
