"""Which scalar functions with branches and loops several neighbouring points may run together.

Every lane runs every statement, and keeps what it has where its condition fails (``emit.masked_text``); so
nothing in such a body may fail or have another effect than to set the body's own scalars.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mdh_core.expr import (
    COMPARISONS,
    LOGICAL,
    Assign,
    Binary,
    Call,
    Const,
    Declare,
    Expr,
    Function,
    If,
    Load,
    Operand,
    Return,
    ScalarType,
    Stmt,
    Unary,
    Var,
    While,
    children,
    map_stmts,
    rewrite,
    stmt_exprs,
    straight_line,
    substitute,
    variables,
    walk,
)
from mdh_core.ir import MdhProgram
from mdh_core.narrow import narrowed


@dataclass(frozen=True, slots=True)
class LaneFunction:
    """A scalar function as several neighbouring points compute it together.

    body      declarations with values, or what has a masked form
    results   one expression per component
    size      bytes of the widest scalar that differs from point to point: lanes are counted by it
    """

    body: tuple[Stmt, ...]
    results: tuple[Expr, ...]
    size: int


@functools.lru_cache(maxsize=256)
def lane_function(program: MdhProgram) -> LaneFunction:
    """The form of a program's scalar function for vectors; whether it has any is for the caller to see."""
    scalar = program.hom.scalar
    functions = {f.name: f for f in program.functions}

    def inlined(e: Expr) -> Expr:
        return rewrite(e, lambda n: _in_place(n, functions) if isinstance(n, Call) else None)

    body, results = map_stmts(scalar.body, inlined), tuple(map(inlined, scalar.results))
    size = max(t.size for t in program.component_types)
    if not straight_line(body):
        return LaneFunction(body, results, max(size, widest(body)))
    body, results = narrowed(body, results)
    dims = {d.name for d in program.hom.dims}
    return LaneFunction(body, results, max(size, _widest_varying(body, results, dims)))


_MOST = 200  # nodes of an expression that stands in the place of a call


def _in_place(call: Call, functions: dict[str, Function]) -> Expr | None:
    """A call's value without the call, if its function is declarations and one expression."""
    f = functions.get(call.function)
    if f is None or f.out_param or not f.body or not isinstance(f.body[-1], Return):
        return None
    values: dict[str, Expr] = dict(zip((name for name, _ in f.params), call.args, strict=True))
    for s in f.body[:-1]:
        if not isinstance(s, Declare) or s.value is None:
            return None
        values[s.name] = substitute(s.value, values)
    others = {name: g for name, g in functions.items() if g is not f}  # a function may call itself
    inner = rewrite(f.body[-1].value, lambda n: _in_place(n, others) if isinstance(n, Call) else None)
    e = substitute(inner, values)
    known = set().union(*(variables(a) for a in call.args))
    small = sum(1 for _ in walk(e)) <= _MOST
    return e if small and variables(e) <= known and e.type == call.type else None


def _widest_varying(body: Sequence[Stmt], results: Sequence[Expr], dims: set[str]) -> int:
    """Bytes of the largest scalar that is computed from an operand or an index."""
    varying = set(dims)
    largest = 1

    def varies(e: Expr) -> bool:
        nonlocal largest
        match e:
            case Const():
                return False
            case Var(name=name):
                found = name in varying
            case Operand() | Load():
                found = True  # its indices are the loop's business
            case _:
                found = sum(map(varies, children(e))) > 0  # all are looked at
        truth = is_truth(e)  # masks are as wide as what is compared
        if found and isinstance(e.type, ScalarType) and not truth:
            largest = max(largest, e.type.size)
        return found

    for s in body:
        if isinstance(s, Declare) and s.value is not None and varies(s.value):
            varying.add(s.name)
    for e in results:
        varies(e)
    return largest


def declared_in(body: Sequence[Stmt]) -> Iterator[Declare]:
    """All declarations, those in branches and loops too."""
    for s in body:
        match s:
            case Declare():
                yield s
            case If(then=then, other=other):
                yield from declared_in((*then, *other))
            case While(body=inner):
                yield from declared_in(inner)
            case _:
                pass


def has_masked_form(body: Sequence[Stmt]) -> bool:
    """Whether a body consists of assignments to its own scalars, branches and loops, and cannot fail."""
    own = {d.name: d.type for d in declared_in(body)}

    def plain(s: Stmt) -> bool:
        match s:
            case Declare(type=t):
                return isinstance(t, ScalarType) and t.kind != "bool"
            case Assign(target=Var(name=name)):
                return name in own
            case If(then=then, other=other):
                return all(map(plain, then)) and all(map(plain, other))
            case While(body=inner):
                return all(map(plain, inner))
            case _:
                return False

    return all(map(plain, body)) and not any(
        isinstance(n, Call | Load)
        or (isinstance(n, Binary) and n.op in "/%" and _is_integer(n) and not steady_divisor(n))
        for e in stmt_exprs(tuple(body))
        for n in walk(e)
    )


def widest(body: Sequence[Stmt]) -> int:
    """Bytes of the largest scalar of a body; lanes are counted by it."""
    types = [n.type for e in stmt_exprs(tuple(body)) for n in walk(e)]
    types += [d.type for d in declared_in(body)]
    return max((t.size for t in types if isinstance(t, ScalarType)), default=1)


def is_truth(e: Expr) -> bool:
    """Is the value of an expression 0 or 1 by its form?"""
    match e:
        case Binary(op=op):
            return op in COMPARISONS | LOGICAL
        case Unary(op=op):
            return op == "!"
        case _:
            return False


def steady_divisor(e: Binary) -> bool:
    """Whether an integer division cannot fail: by a constant other than 0 and -1."""
    return isinstance(e.b, Const) and e.b.value not in (0, -1)


def _is_integer(e: Expr) -> bool:
    return isinstance(e.type, ScalarType) and e.type.is_integer
