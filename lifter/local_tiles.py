"""Local arrays that hold a tile, taken away: what they hold is read and added to where it comes from.

    copy     tb[k - kk][j] = b[k][j] for all of the tile;  ... tb[e][f] ...       ->  ... b[kk + e][f] ...
    sums     acc[u][v] = 0;  acc[u][v] += s;  c[i + u][j + v] = acc[u][v]         ->  c[i + u][j + v] += s ...

    in       statements, and an array that they declare
    out      the statements without it, None where what follows does not hold

Somebody who makes tiles by hand copies them into arrays of their own, for the caches, and sums up in others,
for the registers.  Both are decisions of lowering here, and loops over tiles can be taken away only without
such arrays (``lifter.tiles``).

A copy is one assignment, each element once, of a value that does not change until it is read; and what is
read is what was written.  In sums, one assignment in loops of its own takes the elements to cells: each to
another, and nothing else touches these until then.  That all elements are meant is plain where the
loops run over all of the array, or where they have the same bounds.

Shown right by tests/test_local_arrays.py: against the original, run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from lifter.delinearise import Poly, as_polynomial
from lifter.loop_nest import Loop, NestStmt
from lifter.normalise import assigned_buffers, assigned_scalars, choices
from lifter.trees import (
    Body,
    buffers_in,
    is_zero,
    loops_in,
    map_tree,
    reads_memory,
    tree_exprs,
    widened,
)
from mdh_core.expr import (
    INT32,
    INT64,
    Affine,
    Assign,
    Binary,
    Call,
    Cast,
    Const,
    Declare,
    Expr,
    If,
    Load,
    ScalarType,
    Select,
    Stmt,
    Type,
    Var,
    affine_expr,
    rewrite,
    substitute,
    variables,
    walk,
)
from mdh_core.source import NO_SPAN, Span


@dataclass(frozen=True, slots=True)
class LocalArray:
    """An array that a nest declares; ``extents``: elements per dimension, outermost first."""

    name: str
    type: Type
    extents: tuple[int, ...]
    source: str  # as it is called in the source
    span: Span = field(default=NO_SPAN, compare=False)

    @property
    def elements(self) -> Iterator[tuple[int, ...]]:
        return product(*map(range, self.extents))


@dataclass(frozen=True, slots=True)
class Around:
    """What the frontend knows.

    ``unique``: a name that nothing has yet, made from another; ``holds``: is a value over parameters, and
    iterators around, never negative (it may be tested at run time)? ``exact``: sums stay in their order.
    """

    unique: Callable[[str], str]
    holds: Callable[[Affine], bool]
    exact: bool


def without_tile(body: Sequence[NestStmt], array: LocalArray, around: Around) -> Body | None:
    """The statements without a local array."""
    out: list[NestStmt] = []
    for k, s in enumerate(body):
        if isinstance(s, Declare) and s.name == array.name:
            work = _Tile(array, tuple(body[:k]), tuple(body[k + 1 :]), around)
            copied = work.copied()
            return work.summed() if copied is None else copied
        if isinstance(s, Loop) and array.name in buffers_in((s,)):
            inner = without_tile(s.body, array, around)
            return None if inner is None else (*out, replace(s, body=inner), *body[k + 1 :])
        out.append(s)
    return None


# --------------------------------------------------------------------------- what runs over the array


@dataclass(frozen=True, slots=True)
class _Range:
    """What a subscript ranges over: an iterator between bounds, moved by an offset."""

    lower: Expr
    upper: Expr
    offset: Poly

    def same(self, other: _Range) -> bool:
        if (self.lower, self.upper, self.offset) == (other.lower, other.upper, other.offset):
            return True
        mine, theirs = self.ends(), other.ends()
        return None not in mine and mine == theirs

    def ends(self) -> tuple[frozenset[Poly] | None, frozenset[Poly] | None]:
        return self.values(self.lower, "max"), self.values(self.upper, "min")

    def values(self, e: Expr, name: str) -> frozenset[Poly] | None:
        found = [as_polynomial(x) for x in choices(e, name)]
        return None if None in found else frozenset(p + self.offset for p in found if p is not None)


@dataclass(frozen=True, slots=True)
class _Sweep:
    """A loop nest around one assignment that uses the array once (``place``), each element once."""

    loops: tuple[Loop, ...]
    iterators: tuple[str, ...]  # that count the subscripts
    ranges: tuple[_Range, ...]
    place: Load
    target: Expr
    value: Expr
    cond: Expr | None = None  # for which elements

    @property
    def fixed(self) -> set[str]:
        """Variables that it depends on beside its iterators."""
        used = {v for r in self.ranges for e in (r.lower, r.upper) for v in variables(e)}
        used |= {v for r in self.ranges for v in r.offset.names}
        used |= set() if self.cond is None else variables(self.cond)
        return (used | variables(self.target) | variables(self.value)) - set(self.iterators)

    def at(self, index: Sequence[Expr]) -> dict[str, Expr]:
        """The iterators where the subscripts are these."""
        types = {x.iterator: x.type for x in self.loops}
        known = {n: t for i in self.place.index for n, t in _types(i).items()}
        out: dict[str, Expr] = {}
        for name, r, e in zip(self.iterators, self.ranges, index, strict=True):
            value = _minus(e, r.offset, known | _types(e))
            out[name] = value if value.type == types[name] else Cast(value, types[name])
        return out


def _minus(e: Expr, offset: Poly, types: dict[str, ScalarType]) -> Expr:
    """``types``: of the variables; offsets are affine."""
    if not offset.terms:
        return e
    p = as_polynomial(e)
    if p is not None and (a := (p - offset).affine) is not None:
        return affine_expr(a, types)
    moved = (-offset).affine
    assert moved is not None
    return Binary("+", widened(e), affine_expr(moved, types), INT64)


def _types(e: Expr) -> dict[str, ScalarType]:
    return {n.name: n.type for n in walk(e) if isinstance(n, Var) and isinstance(n.type, ScalarType)}


@dataclass(frozen=True, slots=True)
class _Tile:
    """An array, what stands before its declaration, and what behind it."""

    array: LocalArray
    before: Body
    rest: Body
    around: Around

    def uses(self, e: Expr) -> list[Load]:
        return [n for n in walk(e) if isinstance(n, Load) and n.buffer == self.array.name]

    def is_used(self, s: NestStmt | Stmt) -> bool:
        return self.array.name in buffers_in((s,))

    def sweep(self, s: NestStmt | Stmt) -> _Sweep | None:
        loops: list[Loop] = []
        while isinstance(s, Loop) and len(s.body) == 1 and s.step == 1 and not s.observed:
            loops.append(s)
            s = s.body[0]
        cond: Expr | None = None
        while isinstance(s, If) and len(s.then) == 1 and not s.other:
            cond = s.cond if cond is None else Binary("&&", cond, s.cond, INT32)
            s = s.then[0]
        assigned = _assigned(s)
        if assigned is None:
            return None
        target, value = assigned
        found = [*self.uses(target), *self.uses(value)]
        if len(found) != 1 or not loops or (cond is not None and (reads_memory(cond) or self.uses(cond))):
            return None
        names = {x.iterator: x for x in loops}
        iterators: list[str] = []
        ranges: list[_Range] = []
        for e in found[0].index:
            p = as_polynomial(e)
            mine = [] if p is None else [n for n in p.names if n in names]
            if p is None or len(mine) != 1:
                return None
            offset = p - Poly.of({(mine[0],): 1})
            if offset.names & names.keys() or offset.affine is None:
                return None
            loop = names[mine[0]]
            iterators.append(mine[0])
            ranges.append(_Range(loop.lower, loop.upper, offset))
        bounds = [e for r in ranges for e in (r.lower, r.upper)]
        if sorted(iterators) != sorted(names) or any(variables(e) & names.keys() for e in bounds):
            return None
        if any(map(reads_memory, bounds)):
            return None
        return _Sweep(tuple(loops), tuple(iterators), tuple(ranges), found[0], target, value, cond)

    def whole(self, k: int, r: _Range) -> bool:
        """Is the dimension swept from its first element to its last?"""
        zero, end = Poly.number(0), Poly.number(self.array.extents[k])
        return r.ends() == (frozenset({zero}), frozenset({end}))

    def within(self, s: NestStmt, sweep: _Sweep) -> bool:
        """Is every element that a statement uses one of those that are swept?"""
        loops = {x.iterator: x for x in loops_in((s,))}
        for e in tree_exprs((s,)):
            for n in self.uses(e):
                for k, (i, r) in enumerate(zip(n.index, sweep.ranges, strict=True)):
                    if not self.whole(k, r) and not _has_range(i, r, loops):
                        return False
        return True

    # ----------------------------------------------------------------- copies

    def copied(self) -> Body | None:
        """What reads the array reads what was copied into it."""
        users = [k for k, s in enumerate(self.rest) if self.is_used(s)]
        sweep = self.sweep(self.rest[users[0]]) if users else None
        if sweep is None or sweep.target != sweep.place or sweep.cond is not None:
            return None
        later = self.rest[users[0] + 1 :]
        if any(isinstance(n, Call) for n in walk(sweep.value)) or self.array.name in assigned_buffers(later):
            return None
        read = {n.buffer for n in walk(sweep.value) if isinstance(n, Load)}
        if read & assigned_buffers(later) or sweep.fixed & _changed(later):
            return None
        if not all(self.within(s, sweep) for s in later):
            return None

        def original(e: Expr) -> Expr | None:
            if not isinstance(e, Load) or e.buffer != self.array.name:
                return None
            index = [rewrite(i, original) for i in e.index]
            return substitute(sweep.value, sweep.at(index))

        rest = (*self.rest[: users[0]], *later)
        return (*self.before, *map_tree(rest, lambda e: rewrite(e, original)))

    # ----------------------------------------------------------------- sums

    def summed(self) -> Body | None:
        """What is done to the elements is done to the cells that get them in the end."""
        users = [k for k, s in enumerate(self.rest) if self.is_used(s)]
        sweep = self.sweep(self.rest[users[-1]]) if users else None
        if sweep is None or not isinstance(cell := sweep.target, Load) or cell.type != self.array.type:
            return None
        adds = False
        if isinstance(cell.type, ScalarType):
            sums = [Binary("+", a, b, cell.type) for a, b in ((cell, sweep.place), (sweep.place, cell))]
            adds = sweep.value in sums
        if not adds and sweep.value != sweep.place:
            return None
        if any(map(reads_memory, cell.index)):
            return None
        doing = self.rest[users[0] : users[-1]]
        if sweep.fixed & _changed(doing):
            return None

        def moved(e: Expr) -> Expr | None:
            if not isinstance(e, Load) or e.buffer != self.array.name:
                return None
            return substitute(cell, sweep.at([rewrite(i, moved) for i in e.index]))

        out: list[NestStmt] = []
        for s in doing:
            start = self.filling(s)
            if adds and s is doing[0]:
                if start is None or not is_zero(start.value):
                    return None
                swept = enumerate(zip(start.ranges, sweep.ranges, strict=True))
                if not all(self.whole(k, r) or r.same(q) for k, (r, q) in swept):
                    return None
                continue
            if start is not None and not adds and all(self.whole(k, r) for k, r in enumerate(start.ranges)):
                out.append(self.in_loops(sweep, _under(sweep.cond, Assign(cell, start.value, s.span))))
                continue
            if not self.within(s, sweep) or (adds and not self.only_adds(s)):
                return None
            mine: Body | None = (s,)
            if sweep.cond is not None:
                mine = self.under_condition((s,), sweep)
            if mine is None:
                return None
            new = map_tree(mine, lambda e: rewrite(e, moved))
            touched = cell.buffer in buffers_in((s,))
            if touched and s is doing[0] and not adds and _is_copy_of_itself(new[0]):
                continue  # the elements begin with what the cells hold
            if touched:
                return None
            out += new
        if (adds and (self.around.exact or not doing)) or not self.distinct(sweep, cell):
            return None
        return (*self.before, *self.rest[: users[0]], *out, *self.rest[users[-1] + 1 :])

    def filling(self, s: NestStmt) -> _Sweep | None:
        """Statements that set elements to a constant."""
        found = self.sweep(s)
        if found is None or found.target != found.place or found.cond is not None:
            return None
        return found if isinstance(found.value, Const) else None

    def under_condition(self, body: Sequence[NestStmt | Stmt], sweep: _Sweep) -> Body | None:
        """The statements for those elements alone that go to a cell; others are not used in the end."""
        out: list[NestStmt] = []
        for s in body:
            match s:
                case Loop(body=inner):
                    found = self.under_condition(inner, sweep)
                    if found is None or self.uses(s.lower) or self.uses(s.upper):
                        return None
                    s = replace(s, body=found)
                case Assign(target=Load() as place) if place.buffer == self.array.name:
                    if any(n != place for n in self.uses(s.value)) or any(map(self.uses, place.index)):
                        return None
                    assert sweep.cond is not None
                    s = _under(substitute(sweep.cond, sweep.at(place.index)), s)
                case _ if self.is_used(s):
                    return None
            out.append(s)  # type: ignore[arg-type] # no return: loops have none
        return tuple(out)

    def in_loops(self, sweep: _Sweep, s: Stmt) -> NestStmt:
        """A statement for each of the elements that are swept."""
        values: dict[str, Expr] = {}
        loops = []
        for x in sweep.loops:
            new = self.around.unique(x.iterator)
            values[x.iterator] = Var(new, x.type)
            loops.append(replace(x, iterator=new, source_name=x.source_name or x.iterator))
        out: Body = map_tree((s,), lambda e: substitute(e, values))  # type: ignore[arg-type] # no return
        for x in reversed(loops):
            out = (replace(x, body=out),)
        return out[0]

    def only_adds(self, s: NestStmt) -> bool:
        """Are elements used in sums alone that they are set to?"""
        for x in _statements(s):
            match x:
                case If(cond=cond):
                    own: Iterable[Expr] = [cond]
                case Loop(lower=lower, upper=upper):
                    own = [lower, upper]
                case _:
                    own = tree_exprs((x,))
            used = [n for e in own for n in self.uses(e)]
            if not used:
                continue
            if not isinstance(x, Assign) or len(used) != 2 or x.target not in used:
                return False
            if not isinstance(x.value, Binary) or x.value.op != "+" or x.target not in (x.value.a, x.value.b):
                return False
        return True

    def distinct(self, sweep: _Sweep, cell: Load) -> bool:
        """Do no two elements go to the same cell?  Asked last, as a test at run time may come of it."""
        left = set(sweep.iterators)
        most = {name: self.array.extents[k] for k, name in enumerate(sweep.iterators)}
        for e in cell.index:
            p = as_polynomial(e)
            if p is None:
                if variables(e) & set(sweep.iterators):
                    return False
                continue
            strides: list[tuple[Affine, str]] = []
            for name in set(sweep.iterators) & p.names:
                terms = {tuple(n for n in m if n != name): c for m, c in p.terms if name in m}
                stride = Poly.of(terms)
                if any(m.count(name) > 1 for m, _ in p.terms) or stride.names & set(sweep.iterators):
                    return False
                if (a := stride.affine) is None:
                    return False
                strides.append((a, name))
            reach = Affine.number(0)  # how far the iterators of smaller strides go
            for step, name in sorted(strides, key=lambda s: (not s[0].is_constant, s[0].const, str(s[0]))):
                if not self.never_negative(step - reach - 1):
                    return False
                reach = reach + step * (most[name] - 1)
            left -= {name for _, name in strides}
        return not left

    def never_negative(self, a: Affine) -> bool:
        return a.const >= 0 if a.is_constant else self.around.holds(a)


def _has_range(e: Expr, r: _Range, loops: dict[str, Loop]) -> bool:
    p = as_polynomial(e)
    mine = [] if p is None else [n for n in p.names if n in loops]
    if p is None or len(mine) != 1 or loops[mine[0]].step != 1:
        return False
    x = loops[mine[0]]
    return _Range(x.lower, x.upper, p - Poly.of({(mine[0],): 1})).same(r)


def _assigned(s: NestStmt | Stmt) -> tuple[Expr, Expr] | None:
    """The place and the value of an assignment, of which a condition may choose the value."""
    match s:
        case Assign(target=target, value=value):
            return target, value
        case If(cond=cond, then=(then,), other=(other,)):
            one, two = _assigned(then), _assigned(other)
            if one is None or two is None or one[0] != two[0]:
                return None
            return one[0], Select(cond, one[1], two[1], one[1].type)
    return None


def _changed(body: Sequence[NestStmt]) -> set[str]:
    """Variables that have other values in the course of the statements."""
    return assigned_scalars(body) | {x.iterator for x in loops_in(body)}


def _under(cond: Expr | None, s: Stmt) -> Stmt:
    return s if cond is None else If(cond, (s,), (), s.span)


def _is_copy_of_itself(s: NestStmt | Stmt) -> bool:
    while isinstance(s, Loop) and len(s.body) == 1:
        s = s.body[0]
    if not isinstance(s, Assign) or not isinstance(s.target, Load) or not isinstance(s.value, Load):
        return False
    here, there = ([as_polynomial(i) for i in e.index] for e in (s.target, s.value))
    return s.target.buffer == s.value.buffer and None not in here and here == there


def _statements(s: NestStmt | Stmt) -> Iterator[NestStmt | Stmt]:
    match s:
        case Loop(body=inner):
            yield s  # nor is what its bounds use
            for x in inner:
                yield from _statements(x)
        case If(then=then, other=other):
            yield s  # what the condition uses is no sum
            for y in (*then, *other):
                yield from _statements(y)
        case _:
            yield s
