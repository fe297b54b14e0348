"""Questions about, and rewriting of, the statements of a nest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from frontend_c.statements import Out
from lifter.loop_nest import Loop, NestStmt
from lifter.trees import map_tree
from mdh_core.expr import (
    Assign,
    Binary,
    Cast,
    Declare,
    Expr,
    Field,
    If,
    Load,
    Return,
    Unary,
    Var,
    While,
    as_affine,
    base_of,
    walk,
)
from mdh_core.ir import Buffer


def walks_memory(body: Sequence[Out]) -> bool:
    """Does a loop read memory at places that it computes itself?"""
    for s in body:
        if isinstance(s, While):
            changed = {n.name for n in targets(s.body) if isinstance(n, Var)}
            for e in expressions(s.body):
                for n in walk(e):
                    if isinstance(n, Load) and any(
                        isinstance(v, Var) and v.name in changed for i in n.index for v in walk(i)
                    ):
                        return True
    return False


def targets(body: Sequence[Out]) -> list[Expr]:
    """Variables and places that statements assign."""
    out: list[Expr] = []
    for s in body:
        match s:
            case Assign(target=target):
                out.append(base_of(target))
            case Declare(name=name, type=t):
                out.append(Var(name, t))
            case If(then=then, other=other):
                out += [*targets(then), *targets(other)]
            case While(body=inner) | Loop(body=inner):
                out += targets(inner)
    return out


def may_be_same(a: Expr, b: Expr) -> bool:
    """May the place ``a`` and what ``b`` reads (a place or a constant) be the same memory?"""
    a = base_of(a)
    while isinstance(b, Field | Cast | Unary | Binary):
        b = b.a
    if isinstance(a, Load) and isinstance(b, Load):
        return True
    return isinstance(a, Var) and isinstance(b, Var) and a.name == b.name


def changes_memory_of(e: Expr, body: Sequence[Out]) -> bool:
    """May statements store in a cell that an expression reads?  Arrays of other names: tested at run time."""
    stored = targets(body)
    moving = {t.name for t in stored if isinstance(t, Var)}

    def apart(a: Expr, b: Expr) -> bool:
        here, there = as_affine(a), as_affine(b)
        if here is None or there is None or here.names & moving:
            return False
        return here != there and (here - there).is_constant

    cells = [t for t in stored if isinstance(t, Load)]
    return any(
        n.buffer == t.buffer and not any(map(apart, n.index, t.index))
        for n in walk(e) if isinstance(n, Load) for t in cells
    )  # fmt: skip


def as_scalar(n: Expr, ranks: set[str]) -> Expr | None:
    return replace(n, index=()) if isinstance(n, Load) and n.buffer in ranks else None


def map_nest(body: Sequence[NestStmt], f: Callable[[Expr], Expr]) -> tuple[NestStmt, ...]:
    """The nest with ``f`` applied to every top-level expression."""
    return map_tree(body, f)


def expressions(body: Sequence[Out]) -> list[Expr]:
    out: list[Expr] = []

    def note(e: Expr) -> Expr:
        out.append(e)
        return e

    map_nest([s for s in body if not isinstance(s, Return)], note)
    return out


def drop_unused(body: Sequence[NestStmt]) -> tuple[NestStmt, ...]:
    """Without declarations of variables that nothing mentions, such as iterators declared early."""
    mentioned = {n.name for e in expressions(body) for n in walk(e) if isinstance(n, Var)}

    def keep(s: NestStmt) -> bool:
        return not (isinstance(s, Declare) and s.value is None and s.name not in mentioned)

    def inner(body: Sequence[NestStmt]) -> tuple[NestStmt, ...]:
        return tuple(replace(s, body=inner(s.body)) if isinstance(s, Loop) else s for s in body if keep(s))

    return inner(body)


def used_names(body: Sequence[NestStmt], buffers: Sequence[Buffer]) -> set[str]:
    """Names of variables that the nest or an extent mentions."""
    out = {n.name for e in expressions(body) for n in walk(e) if isinstance(n, Var)}
    for buffer in buffers:
        for extent in buffer.extents:
            out |= extent.names if extent is not None else set()
    return out
