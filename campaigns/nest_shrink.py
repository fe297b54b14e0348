"""A failing nest made smaller, as long as it keeps failing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from campaigns.nest_maker import finished
from campaigns.nest_tree import (
    At,
    Call,
    Expr,
    For,
    Lin,
    Local,
    Name,
    Neg,
    Nest,
    Num,
    Op,
    Pick,
    Put,
    Stmt,
    Unbounded,
    Via,
    When,
    blocks_of,
    exprs_of,
    map_stmts,
    parts,
    walk,
    walk_expr,
)

Body = tuple[Stmt, ...]


def shrunk(nest: Nest, fails: Callable[[Nest], bool], seconds: float = 60.0) -> Nest:
    """The smallest nest found; ``fails`` tells whether a candidate still fails in the same way."""
    end = time.monotonic() + seconds
    smaller = True
    while smaller:
        smaller = False
        for candidate in candidates(nest):
            if time.monotonic() > end:
                return nest
            try:
                candidate = finished(candidate)
            except Unbounded:
                continue
            if weight(candidate) < weight(nest) and well_formed(candidate) and fails(candidate):
                nest, smaller = candidate, True
                break
    return nest


def weight(nest: Nest) -> int:
    total = 3 * len(nest.sizes) + 2 * len(nest.scalars) + 2 * len(nest.arrays) + bool(nest.clauses)
    for a in nest.arrays:
        total += len(a.extents) + (a.layout != "rows") + (a.type != "int32") + a.restrict
    total += sum((s.type != "int32") + s.live + (s.start is not None) for s in nest.scalars)
    for s in walk(nest.body):
        total += 6
        if isinstance(s, For):
            total += 4 + _lin(s.low) + 2 * _lin(s.high) + 3 * (s.step != 1) + (s.sign != "<")
            total += (s.type != "int") + s.outside + (s.low != Lin(0))
        if isinstance(s, Put):
            total += bool(s.op)
        if isinstance(s, Local):
            total += s.type != "int32"
        for e in exprs_of(s):
            for x in walk_expr(e):
                total += 2 if not isinstance(x, Num) else abs(x.value) > 0
                if isinstance(x, At):
                    total += sum(_lin(i) if isinstance(i, Lin) else 6 for i in x.index) + 1
    return total


def _lin(a: Lin) -> int:
    return 2 * len(a.terms) + sum(abs(c) - 1 for _, c in a.terms) + abs(a.const)


def well_formed(nest: Nest) -> bool:
    """Is every name declared where it is used?"""
    if not any(isinstance(s, For) for s in nest.body) or any(isinstance(s, Local) for s in nest.body[:0]):
        return False
    known = {*nest.sizes, *(s.name for s in nest.scalars)}

    def fits(body: Body, names: set[str]) -> bool:
        names = set(names)
        for s in body:
            used: set[str] = set()
            for e in exprs_of(s):
                for x in walk_expr(e):
                    if isinstance(x, Name):
                        used.add(x.name)
                    if isinstance(x, At):
                        for i in x.index:
                            used |= {n for a in ((i,) if isinstance(i, Lin) else i.index) for n, _ in a.terms}
            if isinstance(s, For):
                used |= {n for a in (s.low, s.high) for n, _ in a.terms}
            if not used <= names:
                return False
            if isinstance(s, Local):
                names.add(s.name)
            inner = names | {s.name} if isinstance(s, For) else names
            if not all(fits(block, inner) for block in blocks_of(s)):
                return False
        return True

    return fits(nest.body, known)


# --------------------------------------------------------------------------- smaller nests


def candidates(nest: Nest) -> Iterator[Nest]:
    for body in bodies(nest.body):
        yield replace(nest, body=body)
    if nest.clauses:
        yield replace(nest, clauses="")
    for n in nest.sizes:
        if n != nest.sizes[0]:
            yield _renamed(nest, n, nest.sizes[0])
    for k, a in enumerate(nest.arrays):
        rest = (nest.arrays[:k], nest.arrays[k + 1 :])
        for changed in (
            replace(a, layout="rows"),
            replace(a, restrict=False),
            replace(a, type="int32") if a.data != "index" else a,
        ):
            if changed != a:
                yield replace(nest, arrays=(*rest[0], changed, *rest[1]))
        for other in nest.arrays[:k]:
            if other.rank == a.rank and "index" not in (a.data, other.data):
                yield replace(nest, body=_one_array(nest.body, a.name, other.name))
        if a.rank > 1:
            for d in range(a.rank):
                arrays = (*rest[0], replace(a, rank=a.rank - 1), *rest[1])
                yield replace(nest, arrays=arrays, body=_without_subscript(nest.body, a.name, d))
    if any(t != "int32" for t in (*(a.type for a in nest.arrays), *(s.type for s in nest.scalars))):
        arrays = tuple(replace(a, type="int32") for a in nest.arrays)
        scalars = tuple(replace(s, type="int32") for s in nest.scalars)
        yield replace(nest, arrays=arrays, scalars=scalars, body=_int_locals(nest.body))
    for k, s in enumerate(nest.scalars):
        for changed_scalar in (replace(s, live=False), replace(s, start=None), replace(s, type="int32")):
            if changed_scalar != s:
                yield replace(nest, scalars=(*nest.scalars[:k], changed_scalar, *nest.scalars[k + 1 :]))
        for earlier in nest.scalars[:k]:
            yield replace(nest, body=_renamed_body(nest.body, s.name, earlier.name))


def bodies(body: Body) -> Iterator[Body]:
    """A block with one thing less."""
    for k, s in enumerate(body):
        before, after = body[:k], body[k + 1 :]
        yield (*before, *after)
        for block in blocks_of(s):  # a loop or guard replaced by what is inside
            if isinstance(s, When):
                yield (*before, *block, *after)
            else:
                assert isinstance(s, For)
                for constant in (s.low, s.high - 1):
                    yield (*before, *_fixed(block, s.name, constant), *after)
                yield (*before, *_fixed(block, s.name, Lin(0)), *after)
    for k, s in enumerate(body):
        before, after = body[:k], body[k + 1 :]
        for smaller in smaller_stmts(s):
            yield (*before, smaller, *after)


def smaller_stmts(s: Stmt) -> Iterator[Stmt]:
    match s:
        case For():
            for body in bodies(s.body):
                yield replace(s, body=body)
            for change in (
                replace(s, low=Lin(0)),
                replace(s, low=Lin(s.low.const)),
                replace(s, high=Lin(0, s.high.terms)),
                replace(s, high=Lin(s.high.const, s.high.terms[:1])),
                replace(s, step=1, sign="<") if s.step < 0 else replace(s, step=1),
                replace(s, sign="<" if s.step > 0 else ">="),
                replace(s, type="int"),
                replace(s, outside=False),
                *(replace(s, high=Lin.of(n)) for n in ("n", "m", "r")),
            ):
                if change != s:
                    yield change
        case When():
            if s.other:
                yield replace(s, other=())
            for then in bodies(s.then):
                yield replace(s, then=then)
            for other in bodies(s.other):
                yield replace(s, other=other)
            for condition in smaller_exprs(s.condition):
                yield replace(s, condition=condition)
        case Put():
            for value in smaller_exprs(s.value):
                yield replace(s, value=value)
            if s.op:
                yield replace(s, op="")
            for place in smaller_places(s.place):
                yield replace(s, place=place)
        case Local():
            if s.value is not None:
                for value in smaller_exprs(s.value):
                    yield replace(s, value=value)
            if s.type != "int32":
                yield replace(s, type="int32")


def smaller_places(e: Name | At) -> Iterator[At]:
    if isinstance(e, At):
        for d, i in enumerate(e.index):
            for smaller in smaller_subscripts(i):
                yield replace(e, index=(*e.index[:d], smaller, *e.index[d + 1 :]))


def smaller_subscripts(i: Lin | Via) -> Iterator[Lin | Via]:
    if isinstance(i, Via):
        for d, a in enumerate(i.index):
            yield a
            for smaller in smaller_subscripts(a):
                if isinstance(smaller, Lin):
                    yield replace(i, index=(*i.index[:d], smaller, *i.index[d + 1 :]))
        return
    for k, (name, c) in enumerate(i.terms):
        yield Lin(i.const, (*i.terms[:k], *i.terms[k + 1 :]))
        if c not in (1, -1):
            yield Lin(i.const, (*i.terms[:k], (name, 1), *i.terms[k + 1 :]))
    if i.const:
        yield Lin(0, i.terms)
        yield Lin(i.const - (1 if i.const > 0 else -1), i.terms)


def smaller_exprs(e: Expr) -> Iterator[Expr]:
    yield from parts(e)
    if not isinstance(e, Num):
        yield Num(1)
    elif e.value:
        yield Num(0)
    match e:
        case At():
            yield from smaller_places(e)
        case Op():
            for a in smaller_exprs(e.a):
                yield replace(e, a=a)
            for b in smaller_exprs(e.b):
                yield replace(e, b=b)
        case Call():
            for a in smaller_exprs(e.a):
                yield replace(e, a=a)
            for b in smaller_exprs(e.b):
                yield replace(e, b=b)
        case Neg():
            for a in smaller_exprs(e.a):
                yield replace(e, a=a)
        case Pick():
            for c in smaller_exprs(e.condition):
                yield replace(e, condition=c)
            for a in smaller_exprs(e.a):
                yield replace(e, a=a)
            for b in smaller_exprs(e.b):
                yield replace(e, b=b)
        case _:
            pass


# --------------------------------------------------------------------------- substitutions


def _subscripts(body: Body, change: Callable[[Lin], Lin], names: Callable[[str], Expr | None]) -> Body:
    def expr(e: Expr) -> Expr:
        if isinstance(e, Name):
            return names(e.name) or e
        if isinstance(e, At):
            index = tuple(
                change(i) if isinstance(i, Lin) else replace(i, index=tuple(map(change, i.index)))
                for i in e.index
            )
            return replace(e, index=index)
        return e

    def bounds(body: Body) -> Body:
        out: list[Stmt] = []
        for s in body:
            match s:
                case For():
                    out.append(replace(s, low=change(s.low), high=change(s.high), body=bounds(s.body)))
                case When():
                    out.append(replace(s, then=bounds(s.then), other=bounds(s.other)))
                case _:
                    out.append(s)
        return tuple(out)

    return bounds(map_stmts(body, expr))


def _fixed(body: Body, name: str, value: Lin) -> Body:
    """The iterator replaced by a value."""
    number: Expr = Num(value.const)
    for n, _ in value.terms:
        number = Name(n) if not value.const else Op("+", Name(n), Num(value.const))
    return _subscripts(body, lambda a: a.put(name, value), lambda n: number if n == name else None)


def _renamed(nest: Nest, old: str, new: str) -> Nest:
    value = Lin.of(new)
    body = _subscripts(nest.body, lambda a: a.put(old, value), lambda n: Name(new) if n == old else None)
    arrays = tuple(replace(a, reach=a.reach.put(old, value)) for a in nest.arrays)
    return replace(nest, body=_reaches(body, old, value), arrays=arrays)


def _reaches(body: Body, old: str, value: Lin) -> Body:
    def expr(e: Expr) -> Expr:
        if not isinstance(e, At):
            return e
        index = tuple(replace(i, reach=i.reach.put(old, value)) if isinstance(i, Via) else i for i in e.index)
        return replace(e, index=index)

    return map_stmts(body, expr)


def _renamed_body(body: Body, old: str, new: str) -> Body:
    return map_stmts(body, lambda e: Name(new) if e == Name(old) else e)


def _one_array(body: Body, old: str, new: str) -> Body:
    return map_stmts(body, lambda e: replace(e, array=new) if isinstance(e, At) and e.array == old else e)


def _without_subscript(body: Body, name: str, d: int) -> Body:
    def expr(e: Expr) -> Expr:
        if isinstance(e, At) and e.array == name:
            return replace(e, index=(*e.index[:d], *e.index[d + 1 :]))
        return e

    return map_stmts(body, expr)


def _int_locals(body: Body) -> Body:
    out: list[Stmt] = []
    for s in body:
        match s:
            case For():
                out.append(replace(s, body=_int_locals(s.body)))
            case When():
                out.append(replace(s, then=_int_locals(s.then), other=_int_locals(s.other)))
            case Local():
                out.append(replace(s, type="int32"))
            case _:
                out.append(s)
    return tuple(out)
