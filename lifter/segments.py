"""Loop distribution: a nest with several loops side by side becomes nests with one loop each.

before   for i: { for j: X;  S;  for k: Y }
after    for i: { for j: X;  S }      for i: { for k: Y }

Statements on scalars are copied into every part that may need them; a scalar that one part computes
in a loop cannot reach another part (it would need an array) and is marked as unusable there
(``!name``), or, outside of all loops, is read back from memory (``@name``).  A statement that writes
an array goes with the loop before it if it needs that loop's results, otherwise with the loop after.
Distribution is legal if no part reads or writes a cell, at some iteration of the common loops, that
an earlier part touches only at a later iteration.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from lifter.normalise import (
    Axis,
    AxisLoop,
    NormalNest,
    NormalStmt,
    assigned_buffers,
    assigned_scalars,
)
from lifter.polyhedral import Constraint, at_least, equal, rename, satisfiable
from mdh_core.diagnostics import Related, refuse
from mdh_core.expr import (
    Affine,
    Assign,
    Declare,
    Expr,
    If,
    Load,
    Stmt,
    Type,
    Var,
    While,
    as_affine,
    base_of,
    stmt_exprs,
    variables,
    walk,
)
from mdh_core.source import Span


@dataclass(frozen=True, slots=True)
class Segment:
    """A nest of single loops; ``results``: scalars whose value after it is this segment's."""

    body: tuple[NormalStmt, ...]
    results: frozenset[str]
    foreign: frozenset[str]  # scalars that sibling segments change inside common loops


@dataclass(frozen=True, slots=True)
class Reference:
    """``index``: None where it depends on data, so that it may be any cell."""

    buffer: str
    index: tuple[Affine, ...] | None
    axes: tuple[Axis, ...]
    written: bool
    span: Span = field(compare=False)

    def meets(self, other: Reference, primed: dict[str, str]) -> list[Constraint]:
        """Constraints under which both are one cell, the other's axes being renamed."""
        if self.index is None or other.index is None:
            return []
        return [equal(i, rename(j, primed)) for i, j in zip(self.index, other.index, strict=True)]


def segments(normal: NormalNest, types: dict[str, Type], outer: frozenset[str]) -> tuple[Segment, ...]:
    """The parts in execution order; raises MDH213 where they cannot be separated.

    ``outer``: scalars declared before the nest, which have a place in memory.
    """
    parts = _split(normal.body, types, outer, True)
    for a, b in combinations(parts, 2):
        _check(normal, a.body, b.body)
    return tuple(parts)


def _split(
    body: Sequence[NormalStmt], types: dict[str, Type], outer: frozenset[str], top: bool
) -> list[Segment]:
    items: list[NormalStmt] = []
    inner: dict[int, Segment] = {}
    for s in body:
        if isinstance(s, AxisLoop):
            for part in _split(s.body, types, outer, False):
                inner[len(items)] = part
                items.append(AxisLoop(s.axis, part.body))
        else:
            items.append(s)
    if len(inner) <= 1:
        part = next(iter(inner.values()), Segment((), frozenset(), frozenset()))
        own = assigned_scalars([s for s in items if not isinstance(s, AxisLoop)])
        return [Segment(tuple(items), part.results | own, part.foreign)]
    row = _Row(items, inner, types, outer, top)
    out = []
    for n, k in enumerate(row.loops):
        others = frozenset[str]()
        if not top:  # the next iteration sees what other loops and statements behind the part assign
            foreign = [s for m, s in enumerate(items) if m != k and (m in inner or m > row.last(n))]
            others = frozenset(assigned_scalars(foreign))
        out.append(Segment(row.part(n), row.results(n), inner[k].foreign | others))
    return out


class _Row:
    """A statement list with several loops, and how it is divided among them."""

    def __init__(
        self,
        items: list[NormalStmt],
        inner: dict[int, Segment],
        types: dict[str, Type],
        outer: frozenset[str],
        top: bool,
    ) -> None:
        self.items, self.inner, self.types, self.outer, self.top = items, inner, types, outer, top
        self.loops = list(inner)
        self.needs = [self.loop_needed(q) for q in range(len(items))]
        self.owners = [self.owner(q) for q in range(len(items))]
        self.keep_order()

    def loop_needed(self, q: int) -> int | None:
        """The number of the last loop before statement ``q`` whose results it uses, if there is one."""
        before = [n for n, k in enumerate(self.loops) if k < q]
        return next((n for n in reversed(before) if _needs(self.items, self.loops[n], q)), None)

    def owner(self, q: int) -> int:
        """The number of the loop that an item goes with."""
        before = [n for n, k in enumerate(self.loops) if k <= q]
        if q in self.loops:
            return self.loops.index(q)
        if not before:
            return 0
        last = before[-1]
        return last if last == len(self.loops) - 1 or self.needs[q] == last else last + 1

    def keep_order(self) -> None:
        """No statement goes to a later loop than one behind it that touches the same array."""
        for q in reversed(range(len(self.items))):
            for later in range(q + 1, len(self.items)):
                if self.owners[q] > self.owners[later] and _share_array(self.items[q], self.items[later]):
                    self.owners[q] = self.owners[later]

    def assigned(self, q: int) -> frozenset[str]:
        """Scalars that have their value from item ``q`` after it."""
        return self.inner[q].results if q in self.inner else frozenset(assigned_scalars((self.items[q],)))

    def results(self, n: int) -> frozenset[str]:
        """Scalars whose value after part ``n`` is its own.

        Outside of all loops a part leaves in memory what its loop computes, for the later parts.
        Plain assignments are copied to where they are needed; the last part has their results.
        """
        out: set[str] = set()
        for v in {v for q in range(len(self.items)) for v in self.assigned(q)}:
            sources = [q for q in range(len(self.items)) if v in self.assigned(q)]
            final = sources[-1]
            if not self.top:
                sources = [final]
            for q in sources:
                computed = q in self.inner or self.needs[q] is not None
                at = self.owners[q] if computed else len(self.loops) - 1
                if at == n and (computed or q == final):
                    out.add(v)
        return frozenset(out)

    def last(self, n: int) -> int:
        """The number of the last item of part ``n``."""
        return max([self.loops[n], *(q for q in range(len(self.items)) if self.owners[q] == n)])

    def part(self, n: int) -> tuple[NormalStmt, ...]:
        """Loop ``n`` with its own statements and copies of what they may use."""
        own = self.loops[n]
        out: list[NormalStmt] = []
        for q, s in enumerate(self.items[: self.last(n) + 1]):
            if q == own:
                out.append(s)
            elif isinstance(s, AxisLoop):
                out.extend(self.marks(s, self.top))
            elif self.owners[q] == n:
                out.append(s)
            elif not assigned_buffers((s,)):
                out.extend(self.copy(q, own))
        return tuple(out)

    def copy(self, q: int, own: int) -> list[NormalStmt]:
        """A statement on scalars of another part, as far as its values are still available."""
        s, between = self.items[q], self.items[q + 1 : own]
        names, buffers = _uses(s)
        if self.top and self.needs[q] is not None and assigned_scalars((s,)) & self.outer:
            return list(self.marks(s, True))
        if self.top and names & self.outer & assigned_scalars(between):
            return list(self.marks(s, False))
        if buffers & assigned_buffers(between):
            return list(self.marks(s, False))
        return [s]

    def marks(self, s: NormalStmt, memory: bool) -> Iterator[Assign]:
        for name in sorted(assigned_scalars((s,))):
            yield _mark(name, self.types, memory)


def _share_array(a: NormalStmt, b: NormalStmt) -> bool:
    """May one of two statements write what the other touches?"""
    (_, first), (_, second) = _uses(a), _uses(b)
    mine, its = assigned_buffers((a,)), assigned_buffers((b,))
    return bool(mine & (second | its) or first & its)


def _needs(items: list[NormalStmt], loop: int, q: int) -> bool:
    """Does statement ``q`` use what an earlier loop computes, directly or through others?"""
    names = assigned_scalars((items[loop],))
    buffers = assigned_buffers((items[loop],))
    for k in range(loop + 1, q + 1):
        s = items[k]
        if isinstance(s, AxisLoop):
            names -= assigned_scalars((s,))
            continue
        used, arrays = _uses(s)
        if used & names or arrays & buffers or assigned_buffers((s,)) & buffers:
            names |= assigned_scalars((s,))
            if k == q:
                return True
        else:
            names -= assigned_scalars((s,))
    return False


def _mark(name: str, types: dict[str, Type], memory: bool) -> Assign:
    t = types[name]
    return Assign(Var(name, t), Var(f"@{name}" if memory else f"!{name}", t))


def _uses(s: NormalStmt) -> tuple[set[str], set[str]]:
    names: set[str] = set()
    buffers: set[str] = set()
    for e in expressions((s,)):
        names |= variables(e)
        buffers |= {n.buffer for n in walk(e) if isinstance(n, Load)}
    return names, buffers


def expressions(body: Sequence[NormalStmt]) -> Iterator[Expr]:
    for s in body:
        if isinstance(s, AxisLoop):
            yield from expressions(s.body)
        else:
            yield from stmt_exprs((s,))


# --------------------------------------------------------------------------- legality


def references(body: Sequence[NormalStmt | Stmt], axes: tuple[Axis, ...] = ()) -> Iterator[Reference]:
    for s in body:
        match s:
            case AxisLoop(axis=axis, body=inner):
                yield from references(inner, (*axes, axis))
            case Assign(target=target, value=value, span=span):
                place = base_of(target)
                if isinstance(place, Load):
                    yield _reference(place, axes, True, span)
                    for i in place.index:
                        yield from _loads(i, axes, span)
                    if place is not target:
                        yield _reference(place, axes, False, span)
                yield from _loads(value, axes, span)
            case Declare(value=value, span=span):
                if value is not None:
                    yield from _loads(value, axes, span)
            case If(cond=cond, then=then, other=other, span=span):
                yield from _loads(cond, axes, span)
                yield from references(then, axes)
                yield from references(other, axes)
            case While(cond=cond, body=loop_body, span=span):
                yield from _loads(cond, axes, span)
                yield from references(loop_body, axes)


def _loads(e: Expr, axes: tuple[Axis, ...], span: Span) -> Iterator[Reference]:
    for n in walk(e):
        if isinstance(n, Load):
            yield _reference(n, axes, False, span)


def _reference(n: Load, axes: tuple[Axis, ...], written: bool, span: Span) -> Reference:
    index = [as_affine(i) for i in n.index]
    whole = None if None in index else tuple(a for a in index if a is not None)
    return Reference(n.buffer, whole, axes, written, n.span or span)


def _check(normal: NormalNest, first: Sequence[NormalStmt], second: Sequence[NormalStmt]) -> None:
    """Raises MDH213 if the second part, at an earlier iteration, meets the first at a later one."""
    for a in dict.fromkeys(references(first)):
        for b in dict.fromkeys(references(second)):
            if a.buffer != b.buffer or not (a.written or b.written):
                continue
            common = [x.name for x, y in zip(a.axes, b.axes, strict=False) if x.name == y.name]
            if not common:
                continue
            primed = {x.name: f"{x.name}'" for x in b.axes}
            base = [*normal.context, *(c for x in a.axes for c in x.domain)]
            base += [c.renamed(primed) for x in b.axes for c in x.domain]
            base += a.meets(b, primed)
            for level, name in enumerate(common):
                rows: list[Constraint] = [
                    equal(Affine.of(outer), Affine.of(f"{outer}'")) for outer in common[:level]
                ]
                rows.append(at_least(Affine.of(name) - Affine.of(f"{name}'"), 1))
                if satisfiable([*base, *rows]):
                    axis = next(x for x in a.axes if x.name == name)
                    raise refuse(
                        "MDH213",
                        f"the parts of this nest depend on one another through `{a.buffer}` from one "
                        f"iteration of `{axis.source_name}` to the next",
                        a.span,
                        label="touches a cell that the other part touched in an earlier iteration",
                        related=(Related(b.span, "the other part"),) if b.span else (),
                        help="put the directive before the inner loops, or write to a second buffer",
                    )
