"""What a loop nest touches by its own text, for given sizes.

The steps of a nest (``uses.py``) read where a value is needed: ``int w = weight[v];`` beside a loop that
uses ``w`` becomes a read inside of that loop.  Where the loop has no iterations, the steps touch nothing
and the source still reads.  Arrays that a nest is run on must be large enough for both, so this module
walks the nest itself:

    (LoopNest, numbers of the parameters) -> Use(buffer, index: Affine*, points: Constraint*)*

Only affine indices are told, over loops and comparisons; all else is left to the uses of the steps.  Every
use is ``conditional``: conditions that are not affine and early exits are not seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lifter.loop_nest import Loop, LoopNest, NestStmt
from lifter.normalise import affine_facts, choices
from lifter.polyhedral import less
from mdh_core.expr import (
    INT64,
    Affine,
    Assign,
    Binary,
    Const,
    Constraint,
    Declare,
    Expr,
    If,
    Load,
    Return,
    ScalarType,
    Select,
    Var,
    While,
    affine_expr,
    as_affine,
    children,
    substitute,
)
from mdh_lift.uses import Points, Use

Statements = Sequence[NestStmt | Return]


def source_uses(nest: LoopNest, numbers: Mapping[str, int]) -> Iterator[Use]:
    """Uses of the source; ``numbers``: the value of each integer parameter."""
    values: dict[str, Expr] = {name: Const(n, INT64) for name, n in numbers.items()}
    yield from _Walk(frozenset(_assigned(nest.body))).statements(nest.body, values, ())


class _Walk:
    """``values`` are of names that keep their value: parameters, iterators, local integer variables.

    An iterator is ``lower + step * its name``: its name counts iterations from 0.
    """

    def __init__(self, assigned: frozenset[str]) -> None:
        self.assigned = assigned  # variables with more than one value
        self.counters: frozenset[str] = frozenset()  # iterators of loops with affine bounds

    def statements(self, body: Statements, values: dict[str, Expr], points: Points) -> Iterator[Use]:
        values = dict(values)
        for s in body:
            match s:
                case Declare(name=name, type=t, value=value):
                    if value is None:
                        continue
                    yield from self.expression(value, values, points)
                    if isinstance(t, ScalarType) and t.is_integer and not self.assigned & {name}:
                        values[name] = substitute(value, values)
                case Assign(target=target, value=value):
                    yield from self.expression(target, values, points)
                    yield from self.expression(value, values, points)
                case If(cond=cond, then=then, other=other):
                    yield from self.expression(cond, values, points)
                    for wanted, branch in ((True, then), (False, other)):
                        yield from self.statements(branch, values, self.where(cond, wanted, values, points))
                case While(cond=cond, body=inner):
                    yield from self.expression(cond, values, points)
                    yield from self.statements(inner, values, points)
                case Loop():
                    yield from self.loop(s, values, points)
                case _:
                    pass

    def loop(self, s: Loop, values: dict[str, Expr], points: Points) -> Iterator[Use]:
        for bound in (s.lower, s.upper):
            yield from self.expression(bound, values, points)
        up = s.step > 0
        lowers, uppers = self.ends(s.lower, up, values), self.ends(s.upper, not up, values)
        if uppers and (len(lowers) == 1 or (lowers and abs(s.step) == 1)):
            self.counters |= {s.iterator}
            count = Affine.of(s.iterator)
            i = lowers[0] + count * s.step
            values = values | {s.iterator: affine_expr(i)}
            points = (*points, Constraint(count), *(Constraint(i - x if up else x - i) for x in lowers[1:]))
            points = (*points, *(less(i, x) if up else less(x, i) for x in uppers))
        yield from self.statements(s.body, values, points)

    def ends(self, e: Expr, largest: bool, values: Mapping[str, Expr]) -> list[Affine]:
        """What a bound is the largest (smallest) of; nothing where that is not known of all of them."""
        found = [as_affine(x) for x in choices(substitute(e, dict(values)), "max" if largest else "min")]
        known = [a for a in found if a is not None and a.names <= self.counters]
        return known if len(known) == len(found) else []

    def expression(self, e: Expr, values: dict[str, Expr], points: Points) -> Iterator[Use]:
        match e:
            case Binary(op="&&" | "||" as op, a=a, b=b):
                yield from self.expression(a, values, points)
                yield from self.expression(b, values, self.where(a, op == "&&", values, points))
            case Select(cond=cond, then=then, other=other):
                yield from self.expression(cond, values, points)
                yield from self.expression(then, values, self.where(cond, True, values, points))
                yield from self.expression(other, values, self.where(cond, False, values, points))
            case _:
                for child in children(e):
                    yield from self.expression(child, values, points)
        if isinstance(e, Load):
            index = [self.affine(i, values) for i in e.index]
            known = tuple(i for i in index if i is not None)
            if len(known) == len(index):
                yield Use(e.buffer, known, points, True)

    def affine(self, e: Expr, values: Mapping[str, Expr]) -> Affine | None:
        """The value over counters of loops; None where it depends on anything else."""
        found = as_affine(substitute(e, dict(values)))
        return found if found is not None and found.names <= self.counters else None

    def where(self, cond: Expr, wanted: bool, values: dict[str, Expr], points: Points) -> Points:
        facts = affine_facts(substitute(cond, values), wanted, lambda a: False)
        return (*points, *(c for c in facts if c.value.names <= self.counters))


def _assigned(body: Statements) -> Iterator[str]:
    """Variables that get another value than that of their declaration."""
    for s in body:
        match s:
            case Assign(target=Var(name=name)):
                yield name
            case If(then=then, other=other):
                yield from _assigned((*then, *other))
            case While(body=inner) | Loop(body=inner):
                yield from _assigned(inner)
            case _:
                pass


__all__ = ["source_uses"]
