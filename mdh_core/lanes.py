"""Which scalar functions with branches and loops several neighbouring points may run together.

Every lane runs every statement, and keeps what it has where its condition fails (``emit.masked_text``); so
nothing in such a body may fail or have another effect than to set the body's own scalars.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mdh_core.expr import (
    Assign,
    Binary,
    Call,
    Declare,
    Expr,
    If,
    Load,
    ScalarType,
    Stmt,
    Var,
    While,
    stmt_exprs,
    walk,
)


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
        isinstance(n, Call | Load) or (isinstance(n, Binary) and n.op in "/%" and _is_integer(n))
        for e in stmt_exprs(tuple(body))
        for n in walk(e)
    )


def widest(body: Sequence[Stmt]) -> int:
    """Bytes of the largest scalar of a body; lanes are counted by it."""
    types = [n.type for e in stmt_exprs(tuple(body)) for n in walk(e)]
    types += [d.type for d in declared_in(body)]
    return max((t.size for t in types if isinstance(t, ScalarType)), default=1)


def _is_integer(e: Expr) -> bool:
    return isinstance(e.type, ScalarType) and e.type.is_integer
