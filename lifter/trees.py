"""Statement trees of a nest: leaves, names, substitution, conditions moved inwards.

A *leaf* is a statement without a loop in it; the leaves of a tree are numbered in the order of the text.
``select`` keeps some leaves and the loops around them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from lifter.loop_nest import Loop, NestStmt
from lifter.normalise import assigned_buffers, assigned_scalars
from lifter.places import zero
from mdh_core.expr import (
    INT32,
    INT64,
    Assign,
    Binary,
    Cast,
    Const,
    Declare,
    Expr,
    If,
    Load,
    RecordType,
    ScalarType,
    Select,
    Stmt,
    Unary,
    Var,
    While,
    base_of,
    map_stmts,
    substitute,
    variables,
    walk,
)

Body = tuple[NestStmt, ...]


def map_tree(body: Sequence[NestStmt], f: Callable[[Expr], Expr]) -> Body:
    """``f`` applied to every top-level expression, bounds and targets included."""
    out: list[NestStmt] = []
    for s in body:
        match s:
            case Loop(stride=stride):
                if stride is not None:
                    first, by, limit = f(stride.first), f(stride.by), f(stride.limit)
                    stride = replace(stride, first=first, by=by, limit=limit)
                inner = map_tree(s.body, f)
                out.append(replace(s, lower=f(s.lower), upper=f(s.upper), body=inner, stride=stride))
            case If(cond=cond, then=then, other=other):
                out.append(replace(s, cond=f(cond), then=map_tree(then, f), other=map_tree(other, f)))  # type: ignore[arg-type] # loops in it
            case While(cond=cond, body=inner):
                out.append(replace(s, cond=f(cond), body=map_tree(inner, f)))  # type: ignore[arg-type]
            case _:
                out += map_stmts((s,), f)  # type: ignore[arg-type]
    return tuple(out)


def replaced(body: Sequence[NestStmt], values: dict[str, Expr]) -> Body:
    return map_tree(body, lambda e: substitute(e, values))


def tree_exprs(body: Sequence[NestStmt | Stmt]) -> Iterator[Expr]:
    """All top-level expressions, targets and bounds included."""
    for s in body:
        match s:
            case Loop():
                yield s.lower
                yield s.upper
                yield from tree_exprs(s.body)
            case Declare(value=value):
                if value is not None:
                    yield value
            case Assign(target=target, value=value):
                yield target
                yield value
            case If(cond=cond, then=then, other=other):
                yield cond
                yield from tree_exprs(then)
                yield from tree_exprs(other)
            case While(cond=cond, body=inner):
                yield cond
                yield from tree_exprs(inner)


def mentioned(body: Sequence[NestStmt | Stmt]) -> set[str]:
    """Variables that are read or assigned."""
    return {v for e in tree_exprs(body) for v in variables(e)}


def buffers_in(body: Sequence[NestStmt | Stmt]) -> set[str]:
    return {n.buffer for e in tree_exprs(body) for n in walk(e) if isinstance(n, Load)}


def loops_in(body: Sequence[NestStmt | Stmt]) -> Iterator[Loop]:
    for s in body:
        match s:
            case Loop():
                yield s
                yield from loops_in(s.body)
            case If(then=then, other=other):
                yield from loops_in(then)
                yield from loops_in(other)
            case While(body=inner):
                yield from loops_in(inner)
            case _:
                pass


def ends(body: Sequence[NestStmt | Stmt]) -> set[str]:
    """The parameters that say where loops by other steps than 1 end."""
    strides = [x.stride for x in loops_in(body)]
    return {v for s in strides if s is not None and s.end is not None for v in variables(s.end)}


def reads_memory(e: Expr) -> bool:
    return any(isinstance(n, Load) for n in walk(e))


def is_zero(e: Expr) -> bool:
    return isinstance(e, Const) and e.value == 0


def has_loop(s: NestStmt | Stmt) -> bool:
    return next(loops_in((s,)), None) is not None


def has_while(body: Sequence[NestStmt | Stmt]) -> bool:
    """Outside of counted loops."""
    return any(
        isinstance(s, While) or (isinstance(s, If) and (has_while(s.then) or has_while(s.other)))
        for s in body
    )


def ends_in_memory(x: Loop) -> bool:
    """Whether it is read from memory where the loop begins or ends."""
    return reads_memory(x.lower) or reads_memory(x.upper)


def declarations(body: Sequence[NestStmt | Stmt]) -> Iterator[Declare]:
    """All declarations, nested ones too."""
    for s in body:
        match s:
            case Declare():
                yield s
            case Loop(body=inner):
                yield from declarations(inner)
            case While(body=block):
                yield from declarations(block)
            case If(then=then, other=other):
                yield from declarations(then)
                yield from declarations(other)
            case _:
                pass


# --------------------------------------------------------------------------- leaves


def leaves(body: Sequence[NestStmt]) -> Iterator[NestStmt]:
    for s in body:
        if isinstance(s, Loop):
            yield from leaves(s.body)
        else:
            yield s


def select(body: Sequence[NestStmt], wanted: Collection[int]) -> Body:
    """The tree with the leaves of these numbers alone; loops that become empty are left out."""
    return _select(body, wanted, 0)[0]


def _select(body: Sequence[NestStmt], wanted: Collection[int], first: int) -> tuple[Body, int]:
    out: list[NestStmt] = []
    for s in body:
        if isinstance(s, Loop):
            inner, first = _select(s.body, wanted, first)
            if inner:
                out.append(replace(s, body=inner))
        else:
            if first in wanted:
                out.append(s)
            first += 1
    return tuple(out), first


# --------------------------------------------------------------------------- scalars


def exposed(body: Sequence[NestStmt | Stmt], given: Collection[str] = ()) -> set[str]:
    """Scalars that may be read before the body has given them a value (iterators not counted)."""
    out: set[str] = set()
    _exposed(body, set(given), out)
    return out


def exposed_from(body: Sequence[NestStmt | Stmt]) -> list[set[str]]:
    """``exposed`` of the body from each of its statements on, and of nothing."""
    out: list[set[str]] = [set()]
    for s in reversed(body):
        known: set[str] = set()
        mine: set[str] = set()
        _exposed((s,), known, mine)
        out.append(mine | (out[-1] - known))
    return out[::-1]


def _exposed(body: Sequence[NestStmt | Stmt], known: set[str], out: set[str]) -> None:
    def read(e: Expr | None) -> None:
        if e is not None:
            out.update(variables(e) - known)

    for s in body:
        match s:
            case Loop():
                read(s.lower)
                read(s.upper)
                _exposed(s.body, {*known, s.iterator}, out)
            case Declare(name=name, value=value):
                read(value)
                known.add(name)
            case Assign(target=target, value=value):
                read(value)
                place = base_of(target)
                if isinstance(place, Load):
                    for i in place.index:
                        read(i)
                elif isinstance(target, Var):
                    known.add(target.name)
                else:
                    read(place)  # one field; the others keep their values
            case If(cond=cond, then=then, other=other):
                read(cond)
                a, b = set(known), set(known)
                _exposed(then, a, out)
                _exposed(other, b, out)
                known |= a & b
            case While(cond=cond, body=inner):
                read(cond)
                _exposed(inner, set(known), out)


# --------------------------------------------------------------------------- conditions


@dataclass(slots=True)
class Inwards:
    """Loops under a condition become loops of statements under it.

    before   if (c) { for j: S; }           after    for j: if (c) S;

    A condition that the branch may change is computed first, into a variable of its own.  A variable that is
    declared under one is zero where it does not hold: what becomes an array of it is nowhere undefined.
    """

    count: int = 0

    def body(self, body: Sequence[NestStmt]) -> Body:
        out: list[NestStmt] = []
        for s in body:
            match s:
                case Loop():
                    out.append(replace(s, body=self.body(s.body)))
                case If() if has_loop(s) and not _loads_in_bounds(s):
                    out += self.condition(s)
                case _:
                    out.append(s)
        return tuple(out)

    def condition(self, s: If) -> list[NestStmt]:
        out: list[NestStmt] = []
        cond = _truth(s.cond)
        inner = (*s.then, *s.other)
        names, buffers = variables(cond), {n.buffer for n in walk(cond) if isinstance(n, Load)}
        if names & assigned_scalars(inner) or buffers & assigned_buffers(inner):
            self.count += 1
            name = f"taken_{self.count}"
            out.append(Declare(name, INT32, cond, s.span))
            cond = Binary("!=", Var(name, INT32), Const(0, INT32), INT32)
        for branch, c in ((s.then, cond), (s.other, Unary("!", cond, INT32))):
            out += self.guarded(branch, c)
        return out

    def guarded(self, body: Sequence[NestStmt | Stmt], cond: Expr) -> list[NestStmt]:
        out: list[NestStmt] = []
        for s in body:
            match s:
                case Loop():
                    out.append(replace(s, body=tuple(self.guarded(s.body, cond))))
                case Declare(value=None | Const()):
                    out.append(s)
                case Declare(type=t, value=value) if value is not None:
                    if isinstance(t, ScalarType) and value.type != t:
                        value = Cast(value, t)
                    out.append(replace(s, value=Select(cond, value, zero(t), t)))
                case If() if has_loop(s):
                    for inner in self.condition(s):
                        out += self.guarded((inner,), cond)
                case _:
                    out.append(If(cond, (s,), (), s.span))
        return out


def _truth(e: Expr) -> Expr:
    if isinstance(e, Binary) and e.op in ("<", "<=", ">", ">=", "==", "!=", "&&", "||"):
        return e
    assert isinstance(e.type, ScalarType)
    return Binary("!=", e, Const(0.0 if e.type.is_float else 0, e.type), INT32)


def _loads_in_bounds(s: If) -> bool:
    """Would moving the condition inwards read memory that the source may not read?"""
    return any(map(ends_in_memory, loops_in((s,))))


# --------------------------------------------------------------------------- loops as statements


def without_loops(body: Sequence[NestStmt | Stmt]) -> tuple[Stmt, ...]:
    """Every loop written as a ``while`` over a variable that counts.

    before   for i in [lower, upper) by step: S
    after    i_end = upper;  i = lower;  while (i < i_end) { S;  i = i + step; }
    """
    out: list[Stmt] = []
    for s in body:
        match s:
            case Loop(iterator=name, step=step, lower=lower, upper=upper):
                i = Var(name, INT64)
                end = Var(f"{name}_end", INT64)
                wide: dict[str, Expr] = {name: i if s.type == INT64 else Cast(i, s.type)}
                inner = without_loops(replaced(s.body, wide))
                out.append(Declare(end.name, INT64, widened(upper), s.span))
                out.append(Declare(name, INT64, start_of(lower, s.type), s.span))
                step_on = Assign(i, Binary("+", i, Const(step, INT64), INT64), s.span)
                going = Binary("<" if step > 0 else ">", i, end, INT32)
                out.append(While(going, (*inner, step_on), s.span))
            case If(then=then, other=other):
                out.append(replace(s, then=without_loops(then), other=without_loops(other)))
            case While(body=block):
                out.append(replace(s, body=without_loops(block)))
            case _:
                out.append(s)
    return tuple(out)


def start_of(lower: Expr, t: ScalarType) -> Expr:
    """Where an iterator of this type starts: ``int k = u - 1`` at -1 if ``u`` is an unsigned 0."""
    return widened(lower if isinstance(lower, Const) or lower.type == t else Cast(lower, t))


def widened(e: Expr) -> Expr:
    assert not isinstance(e.type, RecordType)
    return e if e.type == INT64 else Cast(e, INT64)
