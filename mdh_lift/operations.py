"""What an operation is: the one definition behind exact counts, rooflines and the ranking of loops.

    expression or statements  ->  Counter of (kind, "float" or "int")

Every operator and every call of a function without a body counts as one; so does ``sqrt``.  What computes an
index is no work of the nest, logical connectives and negations of truth values are none either.
Shown right by nests that were counted by hand, and by both users agreeing (tests/test_counts.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from mdh_core.expr import (
    COMPARISONS,
    LOGICAL,
    Assign,
    Binary,
    Call,
    Cast,
    Declare,
    Expr,
    Function,
    If,
    Load,
    Return,
    ScalarType,
    Select,
    Stmt,
    Unary,
    While,
    children,
)

FLOATING = ("add", "multiply", "divide", "compare", "function")  # kinds of floating-point operations
_KINDS = {"+": "add", "-": "add", "*": "multiply", "/": "divide", "%": "divide"}


def operations(e: Expr, functions: Mapping[str, Function]) -> Counter[tuple[str, str]]:
    """Operations of an expression by kind and type, those of called functions of the source included."""
    found: Counter[tuple[str, str]] = Counter()
    match e:
        case Load():
            return found  # what its index needs is no work of the nest
        case Call(function=name, type=t):
            if name in functions:
                found += of_body(functions[name].body, functions)
            else:
                found["function", _class(t)] += 1
        case Binary(op=op, a=a):
            if op in COMPARISONS:
                found["compare", _class(a.type)] += 1
            elif op not in LOGICAL:
                found[_KINDS.get(op, "bitwise"), _class(a.type)] += 1
        case Unary(op="-", type=t):
            found["negate", _class(t)] += 1
        case Select(type=t):
            found["select", _class(t)] += 1
        case Cast(a=a, type=t) if t != a.type:
            found["convert", _class(t)] += 1
        case _:
            pass
    for child in children(e):
        found += operations(child, functions)
    return found


def _class(t: object) -> str:
    return "float" if isinstance(t, ScalarType) and t.is_float else "int"


def of_body(body: Sequence[Stmt], functions: Mapping[str, Function]) -> Counter[tuple[str, str]]:
    """Operations of statements that each run once: both sides of an ``If``, one iteration of a ``While``."""
    found: Counter[tuple[str, str]] = Counter()
    for s in body:
        match s:
            case Declare(value=value):
                found += operations(value, functions) if value is not None else Counter()
            case Assign(value=value) | Return(value=value):
                found += operations(value, functions)
            case If(cond=cond, then=then, other=other):
                found += operations(cond, functions) + of_body(then, functions) + of_body(other, functions)
            case While(cond=cond, body=inner):
                found += operations(cond, functions) + of_body(inner, functions)
    return found
