"""Loops over tiles, taken away: the nest as it was before somebody tiled it by hand.

    before   for ii in [0, n) by 32: for j: for i in [ii, min(ii + 32, n)): S
    after    for j: for i in [0, n): S

    in       a nest of which some loops count tiles: ``ii`` is used in the bounds of inner loops alone
    out      the nest without them, where that computes the same; lowering makes tiles of its own

A loop over *points* begins where its tile does and ends where the next one begins, or earlier, at bounds that
all tiles have.  So the tiles cut what the points range over into intervals that follow one another, for any
block size, also one that is a variable: then neither loop has affine bounds, and their union has.  A loop
that counts from where its tile begins is one over points once that is added to its iterator.

Why the order may change: let ``x`` come before ``y`` in the new nest, and both touch one cell. If ``x``
is at a higher point than ``y`` in none of the dimensions whose tiles are counted by a loop around both
(that they reach in the same iteration of the loops around it), then ``x`` is in no later tile, and came
first in the old nest, too: the first loop that tells them apart counts tiles, or is still there. That is
the condition under which a band of loops may be tiled (it is fully permutable), asked for in the other
direction; it does not depend on the size of the tiles. Every dependence is kept, so that cells are added
to in the old order, too.  Values that are set between the loops stand in their places first.  Only where
each tile has a sum of its own, which is added to a cell, is that another order of additions, and left
alone under ``fp(exact)``.

Shown right by tests/test_tiles.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import product

from lifter.delinearise import Poly, as_polynomial
from lifter.loop_nest import Loop, LoopNest, NestStmt
from lifter.normalise import (
    Axis,
    NormalNest,
    assigned_buffers,
    assigned_scalars,
    choices,
    normalise,
    unsigned_facts,
)
from lifter.order import Leaf, conflicts, earlier, leaves_of, prime, same_cell, shared
from lifter.polyhedral import Constraint, at_least, equal, satisfiable
from lifter.segments import Reference
from lifter.trees import (
    Body,
    Inwards,
    buffers_in,
    declarations,
    exposed,
    is_zero,
    leaves,
    loops_in,
    map_tree,
    mentioned,
    reads_memory,
    replaced,
    tree_exprs,
    widened,
)
from mdh_core.conditions import assumed
from mdh_core.diagnostics import Refusal
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
    Var,
    While,
    affine_expr,
    map_children,
    rewrite,
    substitute,
    variables,
    walk,
)
from mdh_core.source import NO_SPAN, Span


def untiled(nest: LoopNest, obstacles: list[Span] | None = None) -> LoopNest | None:
    """The nest without its loops over tiles; None where it has none, or needs their order.

    ``obstacles``: takes the places of statements that are done once per tile.
    """
    work = _Untiling(nest, obstacles=[] if obstacles is None else obstacles)
    before = Inwards().body(nest.body)
    body = work.body(before)
    first, left = (Counter(_settings(b)) for b in (before, body))
    if not work.tiled or any(left[name] < first[name] for name in first.keys() & mentioned(body)):
        return None  # something that was set for one tile is used elsewhere
    plain = replace(nest, body=body)
    try:
        normal = normalise(plain)
    except Refusal:
        return None
    return plain if _keeps_order(plain, normal, work.tiled) else None


# --------------------------------------------------------------------------- tiles and their points


@dataclass(frozen=True, slots=True)
class _Tiles:
    """What a loop over tiles counts: ``by`` after ``by`` from ``first`` on, below all ``limits``.

    ``value``: what it counts over its iterator; ``end``: the first value behind, None where nothing says it.
    """

    iterator: str
    type: ScalarType
    value: Poly
    first: Poly
    by: Poly
    limits: tuple[Poly, ...]
    end: Poly | None


def _tiles(t: Loop, counters: Collection[str]) -> _Tiles | None:
    if t.step <= 0:
        return None
    it = Poly.of({(t.iterator,): 1})
    if t.stride is None:
        first, by, limit, value = as_polynomial(t.lower), Poly.number(t.step), t.upper, it
        end = None
    else:
        start, step = as_polynomial(t.stride.first), as_polynomial(t.stride.by)
        if start is None or step is None:
            return None
        first, by, limit, value = start, step, t.stride.limit, it
        if t.lower == Const(0, INT64) and t.step == 1 and by != Poly.number(1):
            value = first + by * it  # the loop counts how often
        end = None if t.stride.end is None else as_polynomial(t.stride.end)
    limits = [as_polynomial(p) for p in choices(limit, "min", counters)]
    if first is None or None in limits:
        return None
    known = tuple(p for p in limits if p is not None)
    return _Tiles(t.iterator, t.type, value, first, by, known, end)


def _constant(p: Poly) -> int | None:
    a = p.affine
    return a.const if a is not None and a.is_constant else None


@dataclass(frozen=True, slots=True)
class _Tiled:
    """A loop over tiles that is gone: the loops around it, and those over its points."""

    around: tuple[str, ...]
    points: tuple[str, ...]


@dataclass(slots=True)
class _Untiling:
    nest: LoopNest
    tiled: list[_Tiled] = field(default_factory=list)
    types: dict[str, ScalarType] = field(default_factory=dict)
    context: tuple[Constraint, ...] = ()  # what is known, of the loops around what is looked at, too
    counters: frozenset[str] = frozenset()  # iterators that are not negative
    around: tuple[Loop, ...] = ()  # the loops around what is looked at
    obstacles: list[Span] = field(default_factory=list)

    def __post_init__(self) -> None:
        nest = self.nest
        known = assumed(nest.directive.assume, nest.params)
        self.context = (*unsigned_facts(nest.params), *known, *map(at_least, nest.facts))
        loops = loops_in(nest.body)
        self.counters = frozenset(x.iterator for x in loops if x.step > 0 and is_zero(x.lower))
        self.types = {p.name: p.type for p in nest.params if isinstance(p.type, ScalarType)}

    @contextmanager
    def inside(self, s: Loop) -> Iterator[None]:
        """What is looked at is in the body of this loop."""
        before = (self.context, self.around)
        it, facts = Affine.of(s.iterator), []
        if s.step > 0:
            lowers = map(as_polynomial, choices(s.lower, "max", self.counters))
            uppers = map(as_polynomial, choices(s.upper, "min", self.counters))
            facts += [at_least(it - p.affine) for p in lowers if p is not None and p.affine is not None]
            facts += [at_least(p.affine - it, 1) for p in uppers if p is not None and p.affine is not None]
        self.types[s.iterator] = s.type
        self.context, self.around = (*self.context, *facts), (*self.around, s)
        yield
        self.context, self.around = before

    def body(self, body: Sequence[NestStmt]) -> Body:
        return tuple(inner for s in body for inner in self.statement(s))

    def statement(self, s: NestStmt) -> Body:
        if not isinstance(s, Loop):
            return (s,)
        with self.inside(s):
            loop = replace(s, body=self.body(s.body))
        tiles = _tiles(loop, self.counters)
        if tiles is None:
            return (loop,)
        for candidate in self.candidates(loop):
            points: list[str] = []
            without = self.without(tiles, candidate, points)
            if without is not None and points:
                self.tiled.append(_Tiled(tuple(x.iterator for x in self.around), tuple(points)))
                return without
        return (loop,)

    def candidates(self, loop: Loop) -> Iterator[Body]:
        """The body of a loop over tiles, and what computes the same with fewer statements between loops."""
        for body in (loop.body, _accumulated(loop.body, self.nest)):
            yield _settled(body, self.nest, loop.iterator)
            yield _settled(body, self.nest)

    def without(self, tiles: _Tiles, body: Sequence[NestStmt], points: list[str]) -> Body | None:
        """The body for all tiles at once; None where something in it is done once per tile."""
        out: list[NestStmt] = []
        for s in body:
            found = self.over_all(tiles, s, points) if isinstance(s, Loop) else None
            if found is None:
                if not isinstance(s, Loop) and any(isinstance(x, Loop) for x in body):
                    self.obstacles.append(s.span)
                return None
            out.append(found)
        return tuple(out)

    def over_all(self, tiles: _Tiles, s: Loop, points: list[str]) -> Loop | None:
        """A loop that is the same in every tile, or is over a tile's points."""
        if tiles.iterator not in variables(s.lower):
            if tiles.iterator not in variables(s.upper):
                before = len(points)
                with self.inside(s):
                    inner = self.without(tiles, s.body, points)
                if inner is not None:
                    return replace(s, body=inner)
                del points[before:]
            start = self.place(tiles, s)
            if s.observed or start is None:
                return None
            s = self.from_its_tile(tiles, s, start)
        whole = self.whole(tiles, s)
        if whole is None or tiles.iterator in mentioned(s.body):
            return None
        points.append(s.iterator)
        return whole

    def place(self, tiles: _Tiles, s: Loop) -> Poly | None:
        """Where the tile begins of which a loop counts the points from its beginning."""
        for e in choices(s.upper, "min", self.counters):
            p = as_polynomial(e)
            if p is not None and tiles.iterator in p.names:  # n - ii
                return -Poly.of({names: c for names, c in p.terms if tiles.iterator in names})
        return None if tiles.by == Poly.number(1) else tiles.value

    def from_its_tile(self, tiles: _Tiles, s: Loop, first: Poly) -> Loop:
        """A loop that counts from where its tile begins, as one over points.

        before   for i in [0, b): S(ii + i)           after    for i in [ii, ii + b): S(i)
        """
        it = Poly.of({(s.iterator,): 1})
        kind = s.type if s.type == tiles.type else INT64
        self.types[s.iterator] = kind

        def moved(e: Expr) -> Expr:
            if s.iterator not in variables(e):
                return e
            p = as_polynomial(e)
            if p is None:
                return map_children(e, moved)
            new = self.expression(_put(p, s.iterator, it - first))
            return new if new.type == e.type or not isinstance(e.type, ScalarType) else Cast(new, e.type)

        start = self.expression(first)
        lower, upper = (Binary("+", widened(e), start, INT64) for e in (s.lower, s.upper))
        return replace(s, type=kind, lower=lower, upper=upper, body=map_tree(s.body, moved), stride=None)

    def whole(self, tiles: _Tiles, s: Loop) -> Loop | None:
        """The loop over the points of one tile, over those of all."""
        lowers: dict[Poly, Expr] = {}
        start: Poly | None = None
        for e in choices(s.lower, "max", self.counters):
            p = as_polynomial(e)
            if p is None:
                return None
            if tiles.iterator not in p.names:
                lowers[p] = self.plain(p, e, tiles)
            elif start is None:
                start = p
            else:
                return None
        split = None if start is None or s.step <= 0 else _linear(start, tiles)
        if start is None or split is None or (lowers and s.step > 1):
            return None
        scale, offset = split
        width = scale * tiles.by
        if not self.never_negative(width) or (s.step > 1 and (_constant(width) or 1) % s.step):
            return None
        parts: dict[Poly, Expr] = {}
        cut = False
        for e in choices(s.upper, "min", self.counters):
            p = as_polynomial(e)
            if p is not None and p == start + width:
                cut = True
            elif p is None or tiles.iterator in p.names:
                return None
            else:
                parts[p] = self.plain(p, e, tiles)
        if not cut:
            return None
        for limit in tiles.limits:  # how far the last tile goes matters, if the points go beyond
            if scale * limit + offset not in parts:
                rest = self.remainder(limit - tiles.first, tiles.by)
                behind = tiles.end if rest is None else limit + Poly.number(rest)
                if behind is None:
                    return None
                end = scale * behind + offset
                parts.setdefault(end, self.expression(end))
        first = scale * tiles.first + offset
        lowers.setdefault(first, self.expression(first))
        lower, upper = self.extremum(lowers, ">"), self.extremum(parts, "<")
        return replace(s, lower=lower, upper=upper, stride=None)

    def plain(self, p: Poly, e: Expr, tiles: _Tiles) -> Expr:
        """A value in which the tile is not named any more: of ``ii + (n - ii)``, ``n``."""
        return self.expression(p) if tiles.iterator in variables(e) else e

    def extremum(self, values: Mapping[Poly, Expr], sign: str) -> Expr:
        """The least (``<``) or greatest of the values, without those that are never it."""
        kept: list[Poly] = []
        for p in values:
            if not any(self.less(*(q, p) if sign == "<" else (p, q)) for q in kept):
                kept = [q for q in kept if not self.less(*(p, q) if sign == "<" else (q, p))]
                kept.append(p)
        first, *others = (values[p] for p in kept)
        for e in others:
            first = Select(Binary(sign, first, e, INT32), first, e, INT64)
        return first

    def remainder(self, p: Poly, by: Poly) -> int | None:
        """What is missing to the next multiple of ``by``, where that is the same for all ``p``."""
        step, total = _constant(by), 0
        if not step:
            return None
        strides = {x.iterator: x for x in self.around if x.step > 0}
        for names, c in p.terms:
            if not names:
                total += c
            elif c % step:
                x = strides.get(names[0]) if len(names) == 1 else None
                first = as_polynomial(x.lower) if x is not None else None
                if x is None or first is None or c * x.step % step:
                    return None
                rest = self.remainder(Poly.number(c) * first, by)
                if rest is None:
                    return None
                total -= rest
        return -total % step

    def never_negative(self, p: Poly) -> bool:
        a = p.affine
        return a is not None and not satisfiable([*self.context, at_least(-a, 1)])

    def less(self, p: Poly, q: Poly) -> bool:
        """Is the first never above the second?"""
        return self.never_negative(q - p)

    def expression(self, p: Poly) -> Expr:
        a = p.affine
        if a is not None:
            return affine_expr(a, self.types)
        total: Expr | None = None
        for names, c in p.terms:
            factors: list[Expr] = [affine_expr(Affine.of(name), self.types) for name in names]
            if c != 1 or not factors:
                factors.insert(0, Const(c, INT64))
            term = factors[0]
            for factor in factors[1:]:
                term = Binary("*", term, factor, INT64)
            total = term if total is None else Binary("+", total, term, INT64)
        assert total is not None
        return total


def _put(p: Poly, name: str, value: Poly) -> Poly:
    """The polynomial with a value in the place of a variable."""
    total = Poly()
    for names, c in p.terms:
        term = Poly.of({tuple(n for n in names if n != name): c})
        for _ in range(names.count(name)):
            term = term * value
        total = total + term
    return total


def _linear(lower: Poly, tiles: _Tiles) -> tuple[Poly, Poly] | None:
    """Factor and rest of a value that is linear in what counts the tiles."""
    shifted = lower - tiles.value
    if tiles.iterator not in shifted.names:
        return Poly.number(1), shifted
    if tiles.value != Poly.of({(tiles.iterator,): 1}):
        return None
    factor: dict[tuple[str, ...], int] = {}
    rest: dict[tuple[str, ...], int] = {}
    for names, c in lower.terms:
        others = tuple(n for n in names if n != tiles.iterator)
        if len(names) - len(others) > 1:
            return None
        (rest if len(others) == len(names) else factor)[others] = c
    return Poly.of(factor), Poly.of(rest)


# --------------------------------------------------------------------------- statements between the loops


def _settled(body: Sequence[NestStmt], nest: LoopNest, iterator: str = "") -> Body:
    """The body with what is computed between its loops in its places; only from the iterator if one is given.

    before   int end = ii + b;  if (end > n) end = n;  for i in [ii, end): S
    after    for i in [ii, ii + b > n ? n : ii + b): S
    """
    out: list[NestStmt] = []
    rest = list(body)
    while rest:
        found = _setting(rest, nest, iterator) if any(isinstance(s, Loop) for s in rest) else None
        if found is not None:
            name, value, count = found
            rest = list(replaced(rest[count:], {name: value}))
            continue
        s = rest.pop(0)
        out.append(replace(s, body=_settled(s.body, nest, iterator)) if isinstance(s, Loop) else s)
    return tuple(s for s in out if not _is_unused(s, out))


def _is_unused(s: NestStmt, body: Sequence[NestStmt]) -> bool:
    return isinstance(s, Declare) and s.value is None and s.name not in mentioned(body)


def _setting(body: Sequence[NestStmt], nest: LoopNest, iterator: str) -> tuple[str, Expr, int] | None:
    """The variable that the first statements set once and for all, its value, how many they are."""
    found = _set_by(body[0])
    if found is None:
        return None
    (name, value), count = found, 1
    while count < len(body):
        s = body[count]
        if not isinstance(s, If) or len(s.then) != 1 or s.other or (again := _set_by(s.then[0])) is None:
            break
        if again[0] != name:
            break
        first = {name: value}
        value = Select(substitute(s.cond, first), substitute(again[1], first), value, value.type)
        count += 1
    rest = body[count:]
    if iterator and iterator not in variables(value):
        return None
    if (variables(value) | {name}) & (assigned_scalars(rest) | {x.iterator for x in loops_in(rest)}):
        return None
    if any(x.name == name and x.live_after for x in nest.scalars) or name in variables(value):
        return None
    if {n.buffer for n in walk(value) if isinstance(n, Load)} & assigned_buffers(rest):
        return None
    return (name, value, count)


def _set_by(s: NestStmt | Stmt) -> tuple[str, Expr] | None:
    """The variable that a statement sets, and its value, if it keeps that."""
    match s:
        case Declare(name=name, type=t, value=value) if value is not None:
            pass
        case Assign(target=Var(name=name, type=t), value=value):
            pass
        case If(cond=cond, then=(then,), other=(other,)):
            one, two = _set_by(then), _set_by(other)
            if one is None or two is None or one[0] != two[0] or one[1].type != two[1].type:
                return None
            return one[0], Select(cond, one[1], two[1], one[1].type)
        case _:
            return None
    if value.type != t or not isinstance(t, ScalarType) or (t.is_integer and t.bits < 32):
        return None
    return None if any(map(_is_dear, walk(value))) else (name, value)


def _is_dear(e: Expr) -> bool:
    """Would it matter that a value is computed for every point?"""
    if isinstance(e, Binary):
        return e.op in ("/", "%") and not isinstance(e.b, Const)
    return isinstance(e, Call)


def _settings(body: Sequence[NestStmt]) -> Iterator[str]:
    """The scalar variables that statements set, once for each."""
    yield from (d.name for d in declarations(body))
    yield from (s.target.name for s in _assignments(body) if isinstance(s.target, Var))


def _assignments(body: Sequence[NestStmt | Stmt]) -> Iterator[Assign]:
    for s in body:
        match s:
            case Assign():
                yield s
            case If(then=then, other=other):
                yield from _assignments(then)
                yield from _assignments(other)
            case Loop(body=inner) | While(body=inner):
                yield from _assignments(inner)


def _accumulated(body: Sequence[NestStmt], nest: LoopNest) -> Body:
    """The body with cells in the place of the variables in which a loop adds to them.

    before   s = C[i][j];  for k: s = s + a[k];  C[i][j] = s         or   s = 0;  ...  C[i][j] = C[i][j] + s
    after    for k: C[i][j] = C[i][j] + a[k]
    """
    out: list[NestStmt] = []
    rest = list(body)
    while rest:
        found = _accumulation(rest[0], rest[1], rest[2], nest) if len(rest) > 2 else None
        s = rest.pop(0) if found is None else found
        if found is not None:
            del rest[:3]
        out.append(replace(s, body=_accumulated(s.body, nest)) if isinstance(s, Loop) else s)
    return tuple(out)


def _accumulation(first: NestStmt, loop: NestStmt, last: NestStmt, nest: LoopNest) -> Loop | None:
    match first, last:
        case (
            Declare(name=name, type=t, value=start) | Assign(target=Var(name=name, type=t), value=start),
            Assign(target=(Load() | Var()) as cell, value=end),
        ) if isinstance(loop, Loop) and start is not None and cell.type == t and isinstance(t, ScalarType):
            pass
        case _:
            return None
    own = Var(name, t)
    if any(x.name == name and x.live_after for x in nest.scalars):
        return None
    used, moving = buffers_in((loop,)), assigned_scalars(loop.body) | {x.iterator for x in loops_in((loop,))}
    if isinstance(cell, Var):
        if cell == own or cell.name in mentioned((loop,)):
            return None
    elif cell.buffer in used or any(reads_memory(i) or variables(i) & moving for i in cell.index):
        return None
    kept = start == cell and end == own
    sums = is_zero(start) and end in (Binary("+", cell, own, t), Binary("+", own, cell, t))
    exact = t.is_float and nest.directive.fp == "exact"
    if not kept and (not sums or exact or not _only_adds(loop.body, own)):
        return None

    def inside(e: Expr) -> Expr:
        return rewrite(e, lambda n: cell if n == own else None)

    return replace(loop, body=map_tree(loop.body, inside))


def _named(e: Expr, name: str) -> list[Expr]:
    return [n for n in walk(e) if isinstance(n, Var) and n.name == name]


def _only_adds(body: Sequence[NestStmt], own: Var) -> bool:
    """Is the variable used in sums alone that it is set to?"""
    for s in _assignments(body):
        if s.target == own:
            match s.value:
                case Binary(op="+", a=a, b=b) if (a == own) != (b == own):
                    if _named(b if a == own else a, own.name):
                        return False
                case _:
                    return False
    sums = 2 * sum(s.target == own for s in _assignments(body))
    return sums == sum(len(_named(e, own.name)) for e in tree_exprs(body))


# --------------------------------------------------------------------------- order


def _keeps_order(nest: LoopNest, normal: NormalNest, tiled: Sequence[_Tiled]) -> bool:
    """Is no dependence of the nest at a lower point where it ends than where it begins, along tiled loops?

    Loops around a loop over tiles decide before it.
    """
    found = _leaves(nest, normal)
    for a, b in product(found, repeat=2):
        along = []
        for t in tiled:
            x = next((x for x in a.axes if x.name in t.points), None)
            y = next((y for y in b.axes if y.name in t.points), None)
            if x is not None and y is not None:
                outer = [z.name for z in shared(a, b) if z.name in t.around]
                along.append((x, y, [equal(Affine.of(n), Affine.of(prime(n))) for n in outer]))
        for one, other in conflicts(a, b) if along else ():
            base = same_cell(one, other, normal.context)
            for rows in earlier(a, b):
                for x, y, same in along:
                    back = _point(x) - _point(y).substitute(
                        {n: Affine.of(prime(n)) for n in _point(y).names & {z.name for z in b.axes}}
                    )
                    if satisfiable([*base, *rows, *same, at_least(back, 1)]):
                        return False
    return True


def _point(axis: Axis) -> Affine:
    return axis.lower + Affine.of(axis.name, axis.step)


def _leaves(nest: LoopNest, normal: NormalNest) -> list[Leaf]:
    """The leaves of the nest, scalars being cells of the loops in which they are set before they are used."""
    plain = leaves_of(normal.body)
    statements = list(leaves(nest.body))
    homes = _homes(nest)
    out = []
    for leaf, s in zip(plain, statements, strict=True):
        read = {v for e in tree_exprs((s,)) for v in variables(e)} & homes.keys()
        written = assigned_scalars((s,)) & homes.keys()
        more = []
        for name in sorted(read | written):
            index = tuple(Affine.of(x.name) for x in leaf.axes if x.name in homes[name])
            more += [Reference(name, index, leaf.axes, w, NO_SPAN) for w in {name in written, False}]
        out.append(replace(leaf, references=(*leaf.references, *more)))
    return out


def _homes(nest: LoopNest) -> dict[str, frozenset[str]]:
    """For every scalar that the nest sets, the loops of which each iteration has one of its own."""
    out: dict[str, frozenset[str]] = {}
    live = {s.name for s in nest.scalars if s.live_after}
    for name in assigned_scalars(nest.body) | {d.name for d in declarations(nest.body)}:
        around: list[str] = []
        body: Sequence[NestStmt] = nest.body
        out[name] = frozenset()
        while name not in live:
            using = [s for s in body if name in mentioned((s,))]
            if len(using) != 1 or not isinstance(using[0], Loop):
                break
            around, body = [*around, using[0].iterator], using[0].body
            if name not in exposed(body):
                out[name] = frozenset(around)
    return out
