"""Loops rewritten so that more of them can be lifted: distribution, expansion, wavefronts, splitting.

    distribute   for i: { S; T; }            ->  for i: S;  for i: T;
    expand       for i: { t = e; for j: u(t) } ->  for i: { T[i] = e; for j: u(T[i]) }
    privatise    for i: { for j: t[j] = e; … }  ->  for i: { for j: T[i][j] = e; … };  for j: t[j] = T[n-1][j]
    wavefront    for i: for j: S(i, j)       ->  for w: for i: if (0 <= w - 2*i < m) S(i, w - 2*i)
    split        for i: S(i)                 ->  for i < e: S(i);  S(e);  for i > e: S(i)
    as_scalar    for i: { for k: s += ... }  ->  for i: { while (k < ...) s += ... }

Each function returns None where the rewriting does not apply or would not keep the meaning.  All keep
the order of dependent statements, so that what comes out, run as plain loops, is the nest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product, takewhile

from lifter.loop_nest import Loop, NestStmt
from lifter.normalise import Axis, NormalNest, assigned_buffers, assigned_scalars
from lifter.order import (
    Leaf,
    components,
    depends,
    leaves_of,
    may_conflict,
    same_cell,
    shared,
    why_not_reorder,
)
from lifter.places import zero
from lifter.polyhedral import satisfiable
from lifter.segments import Reference
from lifter.trees import (
    Body,
    Inwards,
    declarations,
    exposed,
    has_loop,
    leaves,
    loops_in,
    map_tree,
    mentioned,
    select,
    without_loops,
)
from mdh_core.expr import (
    INT32,
    INT64,
    Affine,
    Assign,
    Binary,
    Cast,
    Const,
    Constraint,
    Declare,
    Expr,
    If,
    Load,
    Return,
    ScalarType,
    Select,
    Stmt,
    Type,
    Var,
    While,
    affine_expr,
    rewrite,
    variables,
    walk,
)
from mdh_core.ir import Buffer

MAX_BAND = 3  # loops of a wavefront
MAX_WEIGHT = 4  # of a loop; 9-point Gauss-Seidel needs 4*t + 2*i + j
FEW = 16  # elements of an array that a nest may have once per iteration of any loop

# --------------------------------------------------------------------------- distribution


def distribute(loop: Loop, normal: NormalNest) -> list[list[int]] | None:
    """Groups of leaves that may run as loops of their own, in execution order; None for one group."""
    found = leaves_of(normal.body)
    nodes = list(leaves((loop,)))
    edges = {(a.number, b.number) for a, b in may_conflict(found) if depends(normal, a, b)}
    around = list(_paths((loop,), ()))
    names = [
        mentioned((s,)) | {v for x in path for e in (x.lower, x.upper) for v in variables(e)}
        for s, path in zip(nodes, around, strict=True)
    ]
    users: dict[str, list[int]] = {}
    for k, mine in enumerate(names):
        for name in mine:
            users.setdefault(name, []).append(k)
    for p, s in enumerate(nodes):
        for q in {q for name in assigned_scalars((s,)) for q in users.get(name, ())} - {p}:
            edges |= {(p, q), (q, p)}
    groups = components(len(nodes), edges)
    empty = {k for k, s in enumerate(nodes) if isinstance(s, Declare) and s.value is None}
    groups = [g for g in groups if not set(g) <= empty]
    if len(groups) < 2:
        return None
    return [sorted({*g, *(k for k in empty if _declares(nodes[k], names, g))}) for g in groups]


def _declares(s: NestStmt, names: list[set[str]], group: list[int]) -> bool:
    return isinstance(s, Declare) and any(s.name in names[k] for k in group)


def part(loop: Loop, group: Sequence[int]) -> Loop:
    """The loop with these leaves alone."""
    (out,) = select((loop,), set(group))
    assert isinstance(out, Loop)
    return out


# --------------------------------------------------------------------------- expansion


@dataclass(frozen=True, slots=True)
class Expanded:
    """``names``: each scalar and the array that takes its place."""

    loop: Loop
    buffers: tuple[Buffer, ...]
    names: tuple[tuple[str, str], ...]


def expand(
    loop: Loop, normal: NormalNest, types: dict[str, Type], outside: set[str], taken: set[str],
    bound: Expander, only: frozenset[str] | None = None,
) -> Expanded | None:  # fmt: skip
    """Scalars that every iteration sets before it uses them, and that several leaves share, as arrays.

    ``outside``: names whose values are read elsewhere; ``bound``: extents over parameters alone;
    ``only``: those to expand, None for all.
    """
    nodes = list(leaves((loop,)))
    paths = list(_paths(loop.body, (loop,)))
    body: Body = (loop,)
    buffers = []
    names: list[tuple[str, str]] = []
    shared = {n for s in nodes for n in assigned_scalars((s,))}
    shared |= {s.name for s in nodes if isinstance(s, Declare)}
    for name in sorted(shared):
        users = [k for k, s in enumerate(nodes) if name in mentioned((s,)) | _declared_by(s)]
        using = [k for k in users if not _is_bare(nodes[k])]
        if len(using) < 2 or name in outside or (only is not None and name not in only):
            continue
        common = _common([paths[k] for k in users])
        if name in exposed(common[-1].body):
            continue
        t = types.get(name)
        axes = [normal.axes[x.iterator] for x in common]
        extents = [bound.extent(a) for a in axes]
        if t is None or any(e is None for e in extents):
            continue
        new = f"{name}_x"
        while new in taken:
            new += "x"
        names.append((name, new))
        buffers.append(Buffer(new, t, tuple(e for e in extents if e is not None), distinct=True))
        cell = Load(new, tuple(_position(x, a) for x, a in zip(common, axes, strict=True)), t)
        # where conditions decide whether it gets a value, its cells begin with one, so that all are defined
        partly = name in exposed(_as_cell(common[-1].body, name, Var(name, t), None))
        body = _as_cell(body, name, cell, zero(t) if partly else None)
    if not buffers:
        return None
    (out,) = body
    assert isinstance(out, Loop)
    return Expanded(out, tuple(buffers), tuple(names))


@dataclass(frozen=True, slots=True)
class Private:
    """``after``: statements behind the loop that give the arrays what the last iteration left in them."""

    loop: Loop
    buffers: tuple[Buffer, ...]
    after: Body


def privatise(loop: Loop, normal: NormalNest, names: Names, bound: Expander) -> Private | None:
    """Arrays of which every iteration reads only what it wrote itself, with a copy per iteration.

    The copy is indexed by the loops around all uses of the array.  All their iterations write the same cells,
    so that the last one determines what the array holds in the end.  An array is copied only where another
    one has as many dimensions over the same loops: memory stays of the order of what the nest uses anyway.
    """
    nodes, found = list(leaves((loop,))), leaves_of(normal.body)
    paths = list(_paths(loop.body, (loop,)))
    body: Body = (loop,)
    buffers: list[Buffer] = []
    after: list[NestStmt] = []
    for name in sorted(assigned_buffers((loop,))):
        uses = [k for k, leaf in enumerate(found) if any(r.buffer == name for r in leaf.references)]
        common = _common([paths[k] for k in uses])
        copy = _Copy(name, [normal.axes[x.iterator] for x in common], nodes, found, normal)
        extents = copy.extents(bound) if copy.is_local() else None
        if extents is None:
            continue
        new = names.new(name)
        t = normal.buffers[name].type
        buffers.append(Buffer(new, t, extents, distinct=True))
        place = tuple(_position(x, a) for x, a in zip(common, copy.axes, strict=True))
        body = map_tree(body, partial(_in_copy, name=name, new=new, place=place))
        last = tuple(affine_expr(a.size.span - 1) for a in copy.axes)
        some: Expr | None = None
        for a in copy.axes:
            if satisfiable([*normal.context, Constraint(-a.size.span)]):
                test = Binary(">", affine_expr(a.size.span), Const(0, INT64), INT32)
                some = test if some is None else Binary("&&", some, test, INT32)
        for k in copy.final():
            s = nodes[k]
            assert isinstance(s, Assign)
            back: Body = (replace(s, value=_in_copy(s.target, name, new, last)),)
            for x in reversed(paths[k][len(common) :]):
                back = (replace(x, body=back),)
            after += names.fresh(back if some is None else Inwards().guarded(back, some))
    if not buffers:
        return None
    (out,) = body
    assert isinstance(out, Loop)
    return Private(out, tuple(buffers), tuple(after))


def _in_copy(e: Expr, name: str, new: str, place: tuple[Expr, ...]) -> Expr:
    def one(n: Expr) -> Expr | None:
        if isinstance(n, Load) and n.buffer == name:
            return replace(n, buffer=new, index=(*place, *n.index))
        return None

    return rewrite(e, one)


@dataclass(frozen=True, slots=True)
class _Copy:
    """An array, and the axes of the loops around all of its uses."""

    name: str
    axes: list[Axis]
    nodes: list[NestStmt]
    found: list[Leaf]
    normal: NormalNest

    def uses(self, written: bool) -> list[tuple[Leaf, Reference]]:
        return [
            (leaf, r)
            for leaf in self.found
            for r in leaf.references
            if r.buffer == self.name and r.written == written
        ]

    def is_local(self) -> bool:
        """Does every iteration write the same cells, and read only what it has written before?"""
        mine = {a.name for a in self.axes}
        if not self.axes or any(abs(a.step) != 1 or a.constraints for a in self.axes):
            return False
        if any(a.size.span.names & mine for a in self.axes) or not self.is_small():
            return False
        for leaf, r in self.uses(written=True):
            s = self.nodes[leaf.number]
            if r.index is None or not isinstance(s, Assign) or not isinstance(s.target, Load):
                return False
            if len(s.target.index) != len(r.index):
                return False  # a flat array that was taken apart
            inner = leaf.axes[len(self.axes) :]
            names = {n for a in inner for c in a.domain for n in c.names}
            if mine & (names | {n for i in r.index for n in i.names}):
                return False
        reads = self.uses(written=False)
        return bool(reads) and all(any(self.gives(w, r, True) for w in self.uses(True)) for r in reads)

    def is_small(self) -> bool:
        """Does another array have a dimension for each of the axes, and as many beside them?"""
        mine = {a.name for a in self.axes}
        few = [e for e in self.normal.buffers[self.name].extents if e and e.is_constant and e.const <= FEW]
        needed = len(mine) + self.normal.buffers[self.name].rank - len(few)
        return any(
            r.buffer != self.name
            and r.index is not None
            and mine <= {n for i in r.index for n in i.names}
            and len({n for i in r.index for n in i.names} & {a.name for a in r.axes}) >= needed
            for leaf in self.found
            for r in leaf.references
        )

    def gives(self, write: tuple[Leaf, Reference], use: tuple[Leaf, Reference], before: bool) -> bool:
        """Is every cell of a use written in the same iteration (``before``: it reads the cell)?"""
        (a, w), (b, r) = write, use
        if w.index is None or r.index is None:
            return False
        at = {x.name: Affine.of(x.name) for x in self.axes}
        inner = [x.name for x in a.axes[len(self.axes) :]]
        for i, j in zip(w.index, r.index, strict=True):
            own = [n for n in i.names if n in inner]
            if len(own) == 1 and own[0] not in at and abs(i.coefficient(own[0])) == 1:
                c = i.coefficient(own[0])
                at[own[0]] = (j - (i - Affine.of(own[0], c))) * c
        if not set(inner) <= at.keys():
            return False
        there = [*self.normal.context, *(c for x in b.axes for c in x.domain)]
        wrong = [i.substitute(at) - j for i, j in zip(w.index, r.index, strict=True)]
        missed = [Constraint(v - 1) for v in wrong] + [Constraint(-v - 1) for v in wrong]
        for inside in (c.substitute(at) for x in a.axes for c in x.domain):
            missed.append(Constraint(-inside.value - 1))
            if inside.equality:
                missed.append(Constraint(inside.value - 1))
        if any(satisfiable([*there, m]) for m in missed):
            return False
        if not before:
            return True
        same: list[Constraint] = []
        for x in shared(a, b)[len(self.axes) :]:
            ahead = at[x.name] - Affine.of(x.name)
            if satisfiable([*there, *same, Constraint(ahead - 1)]):
                return False
            same.append(Constraint(ahead, equality=True))
        return a.number < b.number or not satisfiable([*there, *same])

    def final(self) -> list[int]:
        """Leaves that write all cells of the array that are written, each cell by one of them."""
        out: list[tuple[Leaf, Reference]] = []
        for use in self.uses(written=True):
            if not any(self.gives(other, use, False) for other in out):
                out.append(use)
        return [leaf.number for leaf, _ in out]

    def extents(self, bound: Expander) -> tuple[Affine, ...] | None:
        """Of the copy.  The first of a parameter is how far it is written: C does not hold it to ``t[n]``."""
        out = [bound.extent(a) for a in self.axes]
        array = self.normal.buffers[self.name]
        for k, declared in enumerate(array.extents):
            if declared is not None and (k or array.distinct):
                out.append(declared)
                continue
            reach: set[Affine | None] = set()
            for leaf, r in self.uses(written=True):
                assert r.index is not None
                if satisfiable([*self.normal.context, *(c for a in leaf.axes for c in a.domain),
                                Constraint(-r.index[k] - 1)]):  # fmt: skip
                    return None
                top: Affine | None = r.index[k] + 1
                for a in leaf.axes:
                    c, size = r.index[k].coefficient(a.name), bound.extent(a)
                    if c and top is not None:
                        end = size - 1 if size is not None and c > 0 and abs(a.step) == 1 else None
                        end = Affine() if c < 0 else end
                        top = None if end is None else top.substitute({a.name: end})
                reach.add(top)
            out.append(reach.pop() if len(reach) == 1 else None)
        hosts = {h.name for h in bound.hosts}  # known before the nest runs: not what changes in a host loop
        known = tuple(e for e in out if e is not None and not e.names & hosts)
        return known if len(known) == len(out) else None


@dataclass(frozen=True, slots=True)
class Unrolled:
    """Statements in place of a loop, and the arrays that take the place of carried scalars."""

    body: Body
    buffers: tuple[Buffer, ...]
    names: tuple[tuple[str, str], ...]


def unrolled(
    loop: Loop, normal: NormalNest, types: dict[str, Type], outside: set[str], taken: set[str],
    bound: Expander,
) -> Unrolled | None:  # fmt: skip
    """Scalars that every iteration updates once, as arrays of their values.

    before   for i: { out[i] = s;  s = s + x[i]; }
    after    S[0] = s;  for i: { out[i] = S[i];  S[i + 1] = S[i] + x[i]; }  s = S[n];
    """
    if abs(loop.step) != 1:
        return None
    axis = normal.axes[loop.iterator]
    extent = bound.extent(axis)
    if extent is None or axis.constraints:
        return None
    body: Body = (loop,)
    before: list[NestStmt] = []
    after: list[NestStmt] = []
    buffers, names = [], []
    local = {d.name for d in declarations(loop.body)}
    for name in sorted((exposed(loop.body) & assigned_scalars(loop.body)) - local):
        at = [k for k, s in enumerate(loop.body) if name in assigned_scalars((s,))]
        t = types.get(name)
        if len(at) != 1 or t is None:
            return None
        update = loop.body[at[0]]
        if not isinstance(update, Assign) or update.target != Var(name, t):
            return None
        new = f"{name}_x"
        while new in taken:
            new += "x"
        buffers.append(Buffer(new, t, (extent + 1,), distinct=True))
        names.append((name, new))
        index = _position(loop, axis)
        old = Load(new, (index,), t)
        following = Load(new, (Binary("+", index, Const(1, INT64), INT64),), t)
        (inner,) = body
        assert isinstance(inner, Loop)
        parts: list[NestStmt] = []
        for k, s in enumerate(inner.body):
            if k < at[0]:
                parts += _with(s, name, old)
            elif k == at[0]:
                assert isinstance(s, Assign)
                (value,) = _with(Assign(following, s.value, s.span), name, old)
                parts.append(value)
            else:
                parts += _with(s, name, following)
        body = (replace(inner, body=tuple(parts)),)
        start = Assign(Load(new, (Const(0, INT64),), t), Var(name, t), update.span)
        if satisfiable([*normal.context, Constraint(-axis.size.span - 1)]):
            there = Binary(">=", affine_expr(axis.size.span), Const(0, INT64), INT32)
            before.append(If(there, (start,), (), update.span))
        else:
            before.append(start)
        if name in outside:
            span = affine_expr(axis.size.span)
            some = Binary(">", span, Const(0, INT64), INT32)
            last = Select(some, Load(new, (span,), t), Var(name, t), t)
            after.append(Assign(Var(name, t), last, update.span))
    if not names:
        return None
    return Unrolled((*before, *body, *after), tuple(buffers), tuple(names))


def _with(s: NestStmt, name: str, cell: Load) -> Body:
    return map_tree(
        (s,), lambda e: rewrite(e, lambda n: cell if isinstance(n, Var) and n.name == name else None)
    )


def read_first(loop: Loop, taken: set[str]) -> Loop | None:
    """Stores of values that are computed from the same array, in two statements.

    before   a[i] = f(a[i + 1]);          after    value = f(a[i + 1]);  a[i] = value;
    """
    count = 0

    def one(body: Sequence[NestStmt]) -> Body:
        nonlocal count
        out: list[NestStmt] = []
        for s in body:
            if isinstance(s, Loop):
                out.append(replace(s, body=one(s.body)))
            elif (
                isinstance(s, Assign)
                and isinstance(s.target, Load)
                and any(
                    isinstance(n, Load) and n.buffer == s.target.buffer and n.index != s.target.index
                    for n in walk(s.value)
                )
            ):
                name = f"value_{count + 1}"
                while name in taken:
                    name += "_"
                count += 1
                taken.add(name)
                out.append(Declare(name, s.target.type, s.value, s.span))
                out.append(replace(s, value=Var(name, s.target.type)))
            else:
                out.append(s)
        return tuple(out)

    (new,) = one((loop,))
    assert isinstance(new, Loop)
    return new if count else None


class Expander:
    """Extents of temporaries: of an axis, over parameters that are known before the nest runs."""

    def __init__(self, hosts: Sequence[Axis]) -> None:
        self.hosts = hosts

    def extent(self, axis: Axis) -> Affine | None:
        span = axis.size.span
        for host in reversed(self.hosts):
            c = span.coefficient(host.name)
            if c:
                if host.size.step != 1:
                    return None
                at = (host.size.span - 1) * c if c > 0 else Affine.number(0)
                span = span.substitute({host.name: Affine.number(0)}) + at
        lower = {n for n in axis.lower.names if n in {h.name for h in self.hosts}}
        return None if lower and axis.constraints else span


def _position(loop: Loop, axis: Axis) -> Expr:
    i: Expr = Var(loop.iterator, loop.type)
    i = i if loop.type == INT64 else Cast(i, INT64)
    low = affine_expr(axis.lower)
    return Binary("-", i, low, INT64) if axis.step > 0 else Binary("-", low, i, INT64)


def _paths(body: Sequence[NestStmt], path: tuple[Loop, ...]) -> Iterator[tuple[Loop, ...]]:
    for s in body:
        if isinstance(s, Loop):
            yield from _paths(s.body, (*path, s))
        else:
            yield path


def _common(paths: list[tuple[Loop, ...]]) -> tuple[Loop, ...]:
    out = paths[0]
    for p in paths[1:]:
        k = 0
        while k < min(len(out), len(p)) and out[k] is p[k]:
            k += 1
        out = out[:k]
    return out


def _is_bare(s: NestStmt) -> bool:
    return isinstance(s, Declare) and s.value is None


def _declared_by(s: NestStmt) -> set[str]:
    return {s.name} if isinstance(s, Declare) else set()


def _as_cell(body: Sequence[NestStmt], name: str, cell: Load | Var, start: Expr | None) -> Body:
    """A variable's place is a cell; ``start``: what this begins with where no value is declared."""

    def one(s: NestStmt | Stmt) -> list[NestStmt]:
        match s:
            case Loop(body=inner):
                return [replace(s, body=tuple(t for x in inner for t in one(x)))]
            case Declare(name=n, value=value, span=span) if n == name:
                first = start if value is None else value
                return [] if first is None else [Assign(cell, first, span)]
            case _:
                return [] if isinstance(s, Return) else [s]

    renamed = tuple(t for s in body for t in one(s))
    return map_tree(
        renamed, lambda e: rewrite(e, lambda n: cell if isinstance(n, Var) and n.name == name else None)
    )


# --------------------------------------------------------------------------- wavefronts


def band_of(loop: Loop) -> list[Loop]:
    """The loops that are nested perfectly, outermost first."""
    out = [loop]
    while len(out[-1].body) == 1 and isinstance(out[-1].body[0], Loop):
        out.append(out[-1].body[0])
    return out


def wavefronts(loop: Loop, normal: NormalNest, name: str, outside: set[str]) -> Iterator[Loop]:
    """Legal orders of the band by a weighted sum of its axes, simplest first; plain order left out."""
    band = list(takewhile(lambda x: abs(x.step) == 1, band_of(loop)))[:MAX_BAND]
    if len(band) < 2:
        return
    inner = band[-1].body
    changed = assigned_scalars(inner) - {d.name for d in declarations(inner)}
    if changed & (exposed(inner) | outside):
        return
    axes = [normal.axes[x.iterator] for x in band]
    rest_names = [a.name for a in axes]
    every = product(range(MAX_WEIGHT + 1), repeat=len(band))
    for weights in sorted(every, key=lambda w: (sum(w), max(w), w)):
        if not any(weights) or weights[0] == 1 == sum(weights):
            continue
        gone = max((k for k, n in enumerate(weights) if n == 1), default=None)
        if gone is None:
            continue
        rest = [n for k, n in enumerate(rest_names) if k != gone]
        if why_not_reorder(normal, axes, weights, rest) is None:
            plain = sum(weights) == 1
            yield _wavefront(band, axes, weights, gone, axes[gone].name if plain else name)


def _wavefront(band: list[Loop], axes: list[Axis], weights: Sequence[int], gone: int, name: str) -> Loop:
    w = Affine.of(name)
    others = [k for k in range(len(band)) if k != gone]
    eliminated = w
    for k in others:
        eliminated = eliminated - Affine.of(axes[k].name, weights[k])
    points = {a.name: Affine.of(a.name) for a in axes}
    points[axes[gone].name] = eliminated
    facts = [c for a in axes for c in a.constraints]
    size = axes[gone].size.span
    facts += [Constraint(Affine.of(axes[gone].name)), Constraint(size - 1 - Affine.of(axes[gone].name))]
    guard: Expr | None = None
    for c in facts:
        test = Binary(">=", affine_expr(c.value.substitute(points)), Const(0, INT64), INT32)
        guard = test if guard is None else Binary("&&", guard, test, INT32)
    assert guard is not None
    values: dict[str, Expr] = {}
    for x, a in zip(band, axes, strict=True):
        value = affine_expr((a.lower + Affine.of(a.name, a.step)).substitute(points))
        values[x.iterator] = value if x.type == INT64 else Cast(value, x.type)
    # axes keep their names: replace all at once
    inner = map_tree(band[-1].body, lambda e: _at_once(e, values))
    body: Body = tuple(Inwards().guarded(inner, guard))
    for k in reversed(others):
        body = (
            Loop(axes[k].name, INT64, Const(0, INT64), affine_expr(axes[k].size.span), 1, body,
                 band[k].source_name, span=band[k].span),
        )  # fmt: skip
    top = Affine.number(1)
    for a, weight in zip(axes, weights, strict=True):
        top = top + (a.size.span - 1) * weight
    shown = band[gone].source_name if name == axes[gone].name else "w"
    return Loop(name, INT64, Const(0, INT64), affine_expr(top), 1, body, shown, span=band[gone].span)


def _at_once(e: Expr, values: dict[str, Expr]) -> Expr:
    return rewrite(e, lambda n: values.get(n.name) if isinstance(n, Var) else None)


# --------------------------------------------------------------------------- splitting


def split(loop: Loop, normal: NormalNest, names: Names) -> Body | None:
    """Loops split where a cell that one iteration writes is read by the others of the same loop.

    before   for j: P[j] = f(P[j], P[k])
    after    for j: if (j < k) …;   if (0 <= k < n) P[k] = …;   for j: if (j > k) …

    Conditions that hold everywhere in a piece, or nowhere, are still there.
    """
    at: dict[str, Affine] = {}
    found = leaves_of(normal.body)
    for a in found:
        for b in found:
            for x in a.references:
                for y in b.references:
                    if x.buffer != y.buffer or not x.written or x.index is None or y.index is None:
                        continue
                    if x.index == y.index or not satisfiable(same_cell(x, y, normal.context)):
                        continue
                    for i, j in zip(x.index, y.index, strict=True):
                        plane = _plane(i, j, x.axes)
                        if plane is not None:
                            at.setdefault(*plane)
    if not at:
        return None
    types = {x.iterator: x.type for x in loops_in((loop,))}
    out = _split((loop,), at, normal, names, types)
    return None if out == (loop,) else out


def _plane(written: Affine, read: Affine, axes: Sequence[Axis]) -> tuple[str, Affine] | None:
    """Where an axis of the write has the value of an index without axes."""
    mine = [a.name for a in axes]
    if any(n in mine for n in read.names):
        return None
    used = [n for n in written.names if n in mine]
    if len(used) != 1 or abs(written.coefficient(used[0])) != 1:
        return None
    c = written.coefficient(used[0])
    rest = written - Affine.of(used[0], c)
    return used[0], (read - rest) * c


def _split(
    body: Sequence[NestStmt],
    at: dict[str, Affine],
    normal: NormalNest,
    names: Names,
    types: dict[str, ScalarType],
) -> Body:
    """``types``: of the iterators."""
    out: list[NestStmt] = []
    for s in body:
        if not isinstance(s, Loop):
            out.append(s)
            continue
        inner = _split(s.body, at, normal, names, types)
        place = at.get(s.iterator)
        pieces = None
        if place is not None and abs(s.step) == 1:
            pieces = _three(s, inner, place, normal, names, types)
        out += [replace(s, body=inner)] if pieces is None else pieces
    return tuple(out)


def _of_iterators(a: Affine, axes: Mapping[str, Axis]) -> Affine | None:
    """A value over axes, which count from 0, as one over the iterators, which have the same names."""
    for name in a.names & axes.keys():
        if abs(axes[name].step) != 1:
            return None
    values: dict[str, Affine] = {}
    for name in a.names & axes.keys():
        lower = _of_iterators(axes[name].lower, axes)
        if lower is None:
            return None
        values[name] = (Affine.of(name) - lower) * axes[name].step
    return a.substitute(values)


def _three(
    s: Loop, inner: Body, place: Affine, normal: NormalNest, names: Names, types: dict[str, ScalarType]
) -> list[NestStmt] | None:
    """The iterations before ``place`` (of the axis), at it, and behind it."""
    axis = normal.axes[s.iterator]
    value = _of_iterators(axis.lower + place * axis.step, normal.axes)  # of the iterator, at the plane
    if value is None:
        return None
    e = affine_expr(value, types)
    i: Expr = Var(s.iterator, s.type)
    i = i if s.type == INT64 else Cast(i, INT64)
    point = e if s.type == INT64 else Cast(e, s.type)
    begun, left = Constraint(place), Constraint(axis.size.span - 1 - place)
    within = [begun, left, *(c.substitute({axis.name: place}) for c in axis.constraints)]
    open_ = [c for c in within if satisfiable([*normal.context, Constraint(-c.value - 1)])]
    tests = [t for c in open_ if (t := _of_iterators(c.value, normal.axes)) is not None]
    if len(tests) < len(open_):
        return None
    whole = replace(s, body=inner)
    before, behind = ("<", ">") if s.step > 0 else (">", "<")
    first, last = replace(whole, upper=point), replace(whole, lower=_offset(point, s.step, s.type))
    # the loop may end before the place, or begin behind it; the size alone is that of a box
    bounds = [c for c in axis.constraints if c.substitute({axis.name: place}) in open_]
    ways = [c.value.coefficient(axis.name) for c in bounds]
    wraps = bool(open_) and not s.type.is_signed  # a place outside of the range may be below zero
    if wraps or left in open_ or any(way <= 0 for way in ways):
        first = replace(whole, body=tuple(Inwards().guarded(inner, Binary(before, i, e, INT32))))
    if wraps or begun in open_ or any(way >= 0 for way in ways):
        last = replace(whole, body=tuple(Inwards().guarded(inner, Binary(behind, i, e, INT32))))
    middle: Sequence[NestStmt] = map_tree(inner, lambda x: _at_once(x, {s.iterator: point}))
    for value in tests:
        middle = Inwards().guarded(middle, Binary(">=", affine_expr(value, types), Const(0, INT64), INT32))
    return [*names.fresh((first,)), *names.fresh(middle), *names.fresh((last,))]


def _offset(e: Expr, by: int, t: ScalarType) -> Expr:
    return Binary("+", e, Const(by, t), t)


@dataclass(slots=True)
class Names:
    """Iterators and local variables of copied statements get names of their own."""

    taken: set[str]

    def fresh(self, body: Sequence[NestStmt]) -> Body:
        local = {d.name: Var(self.new(d.name), d.type) for d in declarations(body)}
        return self._loops(_renamed(body, local) if local else tuple(body))

    def new(self, name: str) -> str:
        k = 2
        while f"{name}_{k}" in self.taken:
            k += 1
        self.taken.add(f"{name}_{k}")
        return f"{name}_{k}"

    def _loops(self, body: Sequence[NestStmt]) -> Body:
        out: list[NestStmt] = []
        for s in body:
            if not isinstance(s, Loop):
                out.append(s)
                continue
            base = s.source_name or s.iterator
            name = self.new(base)
            values: dict[str, Expr] = {s.iterator: Var(name, s.type)}
            inner = map_tree(self._loops(s.body), partial(_at_once, values=values))
            out.append(replace(s, iterator=name, body=inner, source_name=base))
        return tuple(out)


def _renamed(body: Sequence[NestStmt], names: dict[str, Var]) -> Body:
    """Variables with other names, where they are declared too."""

    def one(s: NestStmt | Stmt) -> NestStmt | Stmt:
        match s:
            case Declare(name=name) if name in names:
                return replace(s, name=names[name].name)
            case Loop(body=inner):
                return replace(s, body=tuple(map(one, inner)))  # type: ignore[arg-type]
            case If(then=then, other=other):
                yes, no = tuple(map(one, then)), tuple(map(one, other))
                return replace(s, then=yes, other=no)  # type: ignore[arg-type]
            case While(body=block):
                return replace(s, body=tuple(map(one, block)))  # type: ignore[arg-type]
        return s

    declared = tuple(t for s in body if not isinstance(t := one(s), Return))
    values: dict[str, Expr] = dict(names)
    return map_tree(declared, partial(_at_once, values=values))


# --------------------------------------------------------------------------- loops in the scalar function


def as_scalar(loop: Loop, innermost: bool) -> Loop | None:
    """Inner loops that store in no array become statements of the scalar function.

    ``innermost``: only those that hold no further loop.
    """

    changed = False

    def one(body: Sequence[NestStmt | Stmt], top: bool) -> Body:
        nonlocal changed
        out: list[NestStmt] = []
        for s in body:
            if isinstance(s, If):
                out.append(replace(s, then=one(s.then, False), other=one(s.other, False)))  # type: ignore[arg-type] # loops in it
            elif not isinstance(s, Loop):
                out.append(s)  # type: ignore[arg-type] # no return: loops have none
            elif not top and not assigned_buffers(s.body) and not (innermost and any(map(has_loop, s.body))):
                out += [t for t in without_loops((s,)) if not isinstance(t, Return)]
                changed = True
            else:
                out.append(replace(s, body=one(s.body, False)))
        return tuple(out)

    new = one((loop,), True)
    if not changed:
        return None
    (out,) = new
    assert isinstance(out, Loop)
    return out


