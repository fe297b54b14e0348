"""Which statements of a nest must run before which others: dependences between its leaves.

The references of a leaf are taken from the normal form, where axes count forward.  One instance *precedes*
another where the loops that both share put it first, or, at the same iteration of all of them, where
its leaf stands first in the text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lifter.normalise import Axis, AxisLoop, NormalNest, NormalStmt
from lifter.polyhedral import Constraint, at_least, equal, satisfiable
from lifter.segments import Reference, references
from mdh_core.expr import Affine

Rows = list[Constraint]


@dataclass(frozen=True, slots=True)
class Leaf:
    """A statement without loops: its axes, outermost first, and what it reads and writes."""

    number: int
    axes: tuple[Axis, ...]
    references: tuple[Reference, ...]


def leaves_of(body: Sequence[NormalStmt]) -> list[Leaf]:
    """The leaves in the order of the text, as ``trees.leaves`` numbers them."""
    out: list[Leaf] = []

    def visit(inner: Sequence[NormalStmt], axes: tuple[Axis, ...]) -> None:
        for s in inner:
            if isinstance(s, AxisLoop):
                visit(s.body, (*axes, s.axis))
            else:
                found = tuple(dict.fromkeys(references((s,), axes)))
                out.append(Leaf(len(out), axes, found))

    visit(body, ())
    return out


def conflicts(a: Leaf, b: Leaf) -> Iterator[tuple[Reference, Reference]]:
    """Pairs of references of which one writes."""
    for x in a.references:
        for y in b.references:
            if x.buffer == y.buffer and (x.written or y.written):
                yield x, y


def may_conflict(leaves: Sequence[Leaf]) -> Iterator[tuple[Leaf, Leaf]]:
    """Ordered pairs of different leaves that use one buffer, at least one of them to write it."""
    users: dict[str, tuple[set[int], set[int]]] = {}
    for leaf in leaves:
        for r in leaf.references:
            everyone, writers = users.setdefault(r.buffer, (set(), set()))
            everyone.add(leaf.number)
            if r.written:
                writers.add(leaf.number)
    one_way = {(w, x) for everyone, writers in users.values() for w in writers for x in everyone - {w}}
    for a, b in sorted(one_way | {(x, w) for w, x in one_way}):
        yield leaves[a], leaves[b]


def shared(a: Leaf, b: Leaf) -> tuple[Axis, ...]:
    """The loops around both leaves."""
    out = []
    for x, y in zip(a.axes, b.axes, strict=False):
        if x.name != y.name:
            break
        out.append(x)
    return tuple(out)


def prime(name: str) -> str:
    return f"{name}'"


def same_cell(x: Reference, y: Reference, context: Sequence[Constraint]) -> Rows:
    """An instance of ``x`` and one of ``y`` (primed axes) at one cell."""
    primed = {a.name: prime(a.name) for a in y.axes}
    rows = [*context, *(c for a in x.axes for c in a.domain)]
    rows += [c.renamed(primed) for a in y.axes for c in a.domain]
    return rows + x.meets(y, primed)


def earlier(a: Leaf, b: Leaf) -> Iterator[Rows]:
    """Cases in which an instance of ``a`` precedes one of ``b`` (primed)."""
    common = [x.name for x in shared(a, b)]
    for level, name in enumerate(common):
        yield [*_equal(common[:level]), at_least(Affine.of(prime(name)) - Affine.of(name), 1)]
    if a.number < b.number:
        yield _equal(common)


def _equal(names: Sequence[str]) -> Rows:
    return [equal(Affine.of(n), Affine.of(prime(n))) for n in names]


def depends(normal: NormalNest, a: Leaf, b: Leaf) -> bool:
    """Must an instance of ``b`` wait for one of ``a``?"""
    for x, y in conflicts(a, b):
        base = same_cell(x, y, normal.context)
        if any(satisfiable([*base, *rows]) for rows in earlier(a, b)):
            return True
    return False


# --------------------------------------------------------------------------- components


def components(count: int, edges: set[tuple[int, int]]) -> list[list[int]]:
    """Strongly connected components in topological order, the text's order deciding among free ones."""
    reach = {k: {k} for k in range(count)}
    changed = True
    while changed:
        changed = False
        for a, b in edges:
            new = reach[b] - reach[a]
            if new:
                reach[a] |= new
                changed = True
    groups: list[list[int]] = []
    seen: set[int] = set()
    for k in range(count):
        if k not in seen:
            group = [m for m in range(count) if m in reach[k] and k in reach[m]]
            groups.append(group)
            seen |= set(group)
    out: list[list[int]] = []
    left = list(groups)
    while left:
        ready = next(
            g for g in left
            if not any((a, b) in edges for h in left if h is not g for a in h for b in g)
        )  # fmt: skip
        left.remove(ready)
        out.append(ready)
    return out


# --------------------------------------------------------------------------- other orders


def why_not_reorder(
    normal: NormalNest, band: Sequence[Axis], weights: Sequence[int], rest: Sequence[str]
) -> tuple[Reference, Reference] | None:
    """A dependence that is violated if the band's iterations are ordered by a weighted sum of its axes, then
    by ``rest`` (all axes but one, outermost first); None where the order is legal.
    """
    found = leaves_of(normal.body)
    w = Affine()
    for axis, c in zip(band, weights, strict=True):
        w = w + Affine.of(axis.name, c)
    w_primed = w.substitute({a.name: Affine.of(prime(a.name)) for a in band})
    names = [a.name for a in band]
    for a in found:
        for b in found:
            for x, y in conflicts(a, b):
                base = same_cell(x, y, normal.context)
                for level, name in enumerate(names):
                    first = [*base, *_equal(names[:level])]
                    first.append(at_least(Affine.of(prime(name)) - Affine.of(name), 1))
                    if satisfiable([*first, at_least(w - w_primed, 1)]):
                        return x, y
                    tied = [*first, equal(w, w_primed)]
                    for k, other in enumerate(rest):
                        rows = [*_equal(rest[:k]), at_least(Affine.of(other) - Affine.of(prime(other)), 1)]
                        if satisfiable([*tied, *rows]):
                            return x, y
    return None
