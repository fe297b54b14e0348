"""How many operations a run takes at least, so that one that cannot end within its budget is not begun.

    of_statements(body, ints)   a nest's loops and statements as ``traces.run_source`` runs them
    of_program(program, ints)   a program as ``traces.run_program`` runs it

A lower bound: loops whose bounds are not known before, branches and what a condition may skip count as
little as they may.  Counted is what ``values.Env`` and ``traces`` spend of a ``Budget``; the tests compare.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from lifter.loop_nest import Loop, NestStmt
from mdh_core.expr import (
    LOGICAL,
    Assign,
    Binary,
    Call,
    Cast,
    Declare,
    Expr,
    Field,
    If,
    Load,
    MakeRecord,
    Return,
    Select,
    Stmt,
    Unary,
    While,
    as_affine,
)
from mdh_core.ir import MdhProgram


def of_expression(e: Expr) -> int:
    match e:
        case Binary(op=op, a=a, b=b):
            return 1 + of_expression(a) + (0 if op in LOGICAL else of_expression(b))
        case Select(cond=cond, then=then, other=other):
            return 1 + of_expression(cond) + min(of_expression(then), of_expression(other))
        case Load(index=index):
            return 1 + sum(map(of_expression, index))
        case Cast(a=a) | Unary(a=a) | Field(a=a):
            return 1 + of_expression(a)
        case Call(args=args):
            return 1 + sum(map(of_expression, args))
        case MakeRecord(values=values):
            return 1 + sum(map(of_expression, values))
        case _:
            return 1


def of_statements(body: Sequence[NestStmt | Stmt], ints: dict[str, int]) -> int:
    return sum(_of_statement(s, ints) for s in body)


def _of_statement(s: NestStmt | Stmt, ints: dict[str, int]) -> int:
    match s:
        case Loop():
            return _trips(s, ints) * of_statements(s.body, ints)
        case Declare(value=value):
            return 1 + (0 if value is None else of_expression(value))
        case Assign(value=value):
            return 1 + of_expression(value)
        case If(cond=cond, then=then, other=other):
            return 1 + of_expression(cond) + min(of_statements(then, ints), of_statements(other, ints))
        case While(cond=cond):
            return 1 + of_expression(cond)
        case Return(value=value):
            return 1 + of_expression(value)
    return 1


def _trips(s: Loop, ints: dict[str, int]) -> int:
    low, high = as_affine(s.lower), as_affine(s.upper)
    if low is None or high is None or not (low.names | high.names) <= ints.keys():
        return 0
    first = low.evaluate(ints)
    if first < 0 and s.type.kind == "uint":  # it wraps
        return 0
    return len(range(first, high.evaluate(ints), s.step))


def of_program(program: MdhProgram, ints: dict[str, int]) -> int:
    hom = program.hom
    sizes = {d.name: max(0, d.size.evaluate(ints)) for d in hom.dims}
    points = math.prod(sizes.values())
    if hom.domain:  # how many points are inside of it is not counted
        return points
    reduced = {d.name for d in hom.dims_of("pw")}
    positions = math.prod(n for name, n in sizes.items() if name not in reduced)
    at_each = of_statements(hom.scalar.body, ints) + sum(map(of_expression, hom.scalar.results))
    combining = 0 if hom.function is None else sum(map(of_expression, hom.function.values))
    return points * (1 + at_each) + max(0, points - positions) * combining
