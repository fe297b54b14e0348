"""How much a loop nest computes, about: iterations times operations per iteration.

    for (i < N) for (k < 100) s += a[i][k] * x[k];     N = 1000: 10^5 iterations, 2 * 10^5 operations

Sizes are constants, values of a ``sizes`` clause, or an assumption, which the estimate names.  A loop whose
bounds depend on an outer iterator is taken at the middle of that one.  Operations are those of the module
``operations``, as in exact counts; an assignment without any is one.  For ranking only: caches do not count.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lifter.loop_nest import Loop, LoopNest, NestStmt
from mdh_core.expr import (
    Assign,
    Binary,
    Cast,
    Const,
    Declare,
    Expr,
    Function,
    If,
    Return,
    Unary,
    Var,
    While,
)
from mdh_lift.c_value import NotAnInteger, names_in, value
from mdh_lift.operations import operations

ASSUMED = 1000  # of a size that nobody states
_MOST = 1e300


@dataclass(frozen=True, slots=True)
class Estimate:
    """``iterations`` of the innermost loops and ``operations`` in all of them, at least 0.

    ``assumed``: names of the sizes that were assumed, sorted; "?" stands for one that has no name.
    """

    iterations: float
    operations: float
    assumed: tuple[str, ...] = ()


def estimated(nest: LoopNest, assumed: int = ASSUMED) -> Estimate:
    """Of a nest as it was read, at the first of its ``sizes`` clauses."""
    stated = dict(nest.directive.sizes[0]) if nest.directive.sizes else {}
    count = _Count(assumed, stated, {f.name: f for f in nest.functions})
    env: dict[str, float] = {}
    for p in nest.params:
        if p.value and p.value != p.name:
            env[p.name] = count.derived(p.value)
        elif p.name in stated:
            env[p.name] = stated[p.name]
    iterations, operations = count.body(nest.body, env, 1.0)
    return Estimate(min(iterations, _MOST), min(operations, _MOST), tuple(sorted(count.used)))


def estimated_by_look(depth: int, operators: int, assumed: int = ASSUMED) -> Estimate:
    """Of loops that could not be read: every extent is assumed, all operators stand in the innermost loop."""
    iterations = float(assumed) ** min(depth, 50)
    return Estimate(iterations, iterations * max(1, operators), ("?",))


@dataclass
class _Count:
    assumed: int
    stated: Mapping[str, int]
    functions: Mapping[str, Function]
    used: set[str] = field(default_factory=set)

    def unknown(self, name: str) -> float:
        self.used.add(name)
        return float(self.assumed)

    def derived(self, text: str) -> float:
        """The value of C text over variables."""
        names = names_in(text)
        if names == [text]:
            return float(self.stated[text]) if text in self.stated else self.unknown(text)
        known = {n: self.stated.get(n, self.assumed) for n in names}
        try:
            found = float(value(text, known))
        except (NotAnInteger, ArithmeticError, KeyError, ValueError, RecursionError):
            return self.unknown("?")
        self.used.update(n for n in names if n not in self.stated)
        return found

    def body(
        self, stmts: Sequence[NestStmt | Return], env: Mapping[str, float], runs: float
    ) -> tuple[float, float]:
        """Iterations of innermost loops and operations of statements that run ``runs`` times."""
        iterations = operations = 0.0
        for s in stmts:
            match s:
                case Loop(iterator=i, lower=lower, upper=upper, step=step, body=inside):
                    low, high = self.number(lower, env), self.number(upper, env)
                    if math.isnan(high - low):  # data decides
                        low, high = 0.0, self.unknown("?") * step
                    n = max(0.0, math.ceil((high - low) / step)) if math.isfinite(high - low) else 0.0
                    inner = self.body(inside, {**env, i: (low + high) / 2}, runs * n)
                    iterations += inner[0] or runs * n
                    operations += inner[1]
                case While(cond=cond, body=inside):
                    n = runs * self.unknown("?")
                    inner = self.body(inside, env, n)
                    iterations += inner[0] or n
                    operations += inner[1] + n * self.cost(cond)
                case If(cond=cond, then=then, other=other):
                    for branch in (then, other):
                        inner = self.body(branch, env, runs)
                        iterations += inner[0]
                        operations += inner[1]
                    operations += runs * self.cost(cond)
                case Assign(value=e):
                    operations += runs * max(1, self.cost(e))
                case Declare(value=e) if e is not None:
                    operations += runs * self.cost(e)
                case _:
                    pass
        return min(iterations, _MOST), min(operations, _MOST)

    def cost(self, e: Expr) -> int:
        return sum(operations(e, self.functions).values())

    def number(self, e: Expr, env: Mapping[str, float]) -> float:
        """The value of a bound; NaN where it depends on data."""
        match e:
            case Const(value=v):
                return float(v)
            case Var(name=name):
                return env[name] if name in env else self.unknown(name)
            case Cast(a=a):
                return self.number(a, env)
            case Unary(op="-", a=a):
                return -self.number(a, env)
            case Binary(op=op, a=a, b=b) if op in _ARITHMETIC:
                x, y = self.number(a, env), self.number(b, env)
                if op in "/%" and y == 0:
                    return math.nan
                return {"+": x + y, "-": x - y, "*": x * y, "/": x / (y or 1), "%": x % (y or 1)}[op]
            case _:
                return math.nan


_ARITHMETIC = frozenset("+-*/%")
