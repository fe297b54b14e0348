"""What is computed from iterators alone, without terms that cancel.

before   (int32)(n - i - 1) - (int32)(n - i - w - 2) > 3     (an ``int j - i > 3`` in a wavefront)
after    (int32)(w + 1) > 3

Signed arithmetic does not overflow in a program that has a meaning, so the value is the affine one; its type
stays, on which the width of vectors depends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lifter.normalise import strictly_affine
from mdh_core.expr import (
    INT64,
    Binary,
    Cast,
    Const,
    Expr,
    ScalarType,
    Unary,
    Var,
    affine_expr,
    map_children,
    walk,
)
from mdh_core.ir import HostLoop, MdhProgram, Step, with_expressions


def with_index_values(steps: Sequence[Step]) -> tuple[Step, ...]:
    """The steps, with such values in programs written as one affine expression each."""

    def step(s: Step) -> Step:
        match s:
            case HostLoop():
                return replace(s, body=with_index_values(s.body))
            case MdhProgram():
                return with_expressions(s, _shorter)
        return s

    return tuple(map(step, steps))


def _shorter(e: Expr) -> Expr:
    return _value(e) or map_children(e, _shorter)


def _value(e: Expr) -> Expr | None:
    """One affine value for an expression over iterators some of which cancel, of its type; else None."""
    if not isinstance(e, Binary | Unary) or not isinstance(e.type, ScalarType) or not e.type.is_signed:
        return None
    names = [n for n in walk(e) if isinstance(n, Var)]
    a = strictly_affine(e, lambda _: False)
    if a is None or len(a.terms) >= len(names) or any(v.type != INT64 for v in names):
        return None
    if a.is_constant:
        return Const(a.const, e.type)
    return affine_expr(a) if e.type == INT64 else Cast(affine_expr(a), e.type)
