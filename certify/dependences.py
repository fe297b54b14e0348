"""Dependences of a nest, and whether its steps respect them, for all sizes.

    dependence   instances i before j of the loops touch one cell, and one of them writes
    respected    the step of i comes before the step of j, or both are in one program, where
                 reads come before writes (WAR), one position combines its own cells (the accumulator
                 and what it starts from), or a scanned dimension passes its cells on

Which statements a program does is established by ``images``.  That its function computes what they compute
is not asked here: the comparison of computations does; but a program may not read a buffer that none of its
statements reads.  Where a statement has no such program there is no proof: ``NotMapped`` says why.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from certify.cells import NotMapped
from certify.images import Image, Images, Stage, Statements, stands_for
from certify.sets import GaveUp, System, below, equal, find
from certify.source import Cell, Instance, before, rows_of, tagged
from certify.stages import shown
from lifter.loop_nest import LoopNest
from mdh_core.expr import Constraint
from mdh_core.ir import Step


@dataclass(frozen=True, slots=True)
class Violation:
    """``at``: unknowns of both instances (those of the later one are marked) and the parameters."""

    text: str
    at: dict[str, int]

    def __str__(self) -> str:
        return f"{self.text}: {shown(self.at)}"


def violated(nest: LoopNest, steps: Sequence[Step]) -> Violation | None:
    """A dependence that the steps do not respect, or None; raises ``NotMapped`` and ``GaveUp``.

    It is a dependence of cells: where programs compute a value again, or do without one that is never used,
    the computations may agree all the same.
    """
    statements = Statements(nest, steps)
    ways = statements.ways()
    found: Violation | None = None
    why: NotMapped | None = None
    for images in ways:
        try:
            bad = _violation(statements, images)
        except NotMapped as error:
            why = error
            continue
        if bad is None:
            return None
        found = found or bad
    if why is not None:
        raise why
    if len(ways) > 1:
        raise NotMapped(f"no way of giving statements to programs respects everything ({found})")
    return found


def _violation(statements: Statements, images: Images) -> Violation | None:
    """A dependence that is not respected."""
    stored = {i.instance.write.name for some in images.values() for i in some
              if i.reader is None and i.instance.write is not None}  # fmt: skip
    once = {name for name in stored if statements.each_once(name, images)}
    for s in statements.found:
        for t in statements.found:
            if s.number not in images or t.number not in images:
                continue
            for a, b, kind in _pairs(s, t):
                if a.name not in stored and a.scalar:
                    continue  # kept in no cell: computed where it is used
                if a.name in once and kind != "RAW":
                    continue
                for p, q in itertools.product(images[s.number], images[t.number]):
                    if (p.reader and kind != "WAR") or (q.reader and kind != "RAW"):
                        continue  # nothing is written there
                    bad = _not_respected(p, q, a, b, kind)
                    if bad is not None and (p.cell is None or q.cell is None):
                        raise NotMapped(f"{bad}, where values are kept elsewhere")
                    if bad is not None and any(n.startswith("?") for c in (a, b) for n in c.names):
                        raise NotMapped(f"{bad}, where positions are computed")
                    if bad is not None:
                        return bad
    return None


def _pairs(s: Instance, t: Instance) -> Iterator[tuple[Cell, Cell, str]]:
    sources = [(c, False) for c in s.reads] + [(s.write, True)]
    sinks = [(c, False) for c in t.reads] + [(t.write, True)]
    for a, first in sources:
        for b, second in sinks:
            if (
                a is not None
                and b is not None
                and (first or second)
                and (a.name, a.scalar) == (b.name, b.scalar)
            ):
                yield a, b, "WAW" if first and second else "RAW" if first else "WAR"


def _not_respected(p: Image, q: Image, a: Cell, b: Cell, kind: str) -> Violation | None:
    """Two instances that depend on one another and whose steps do not come in this order."""
    s, t = p.instance, q.instance
    if a.index is not None and b.index is not None and len(a.index) == len(b.index):
        left = tagged(s, "", a.index)
        same = [equal(i, j) for i, j in zip(left, tagged(t, "'", b.index), strict=True)]
    else:
        same = []  # any cell
    tested = [*p.stage.tested, *q.stage.tested]
    base = [*tested, *rows_of(s, ""), *rows_of(t, "'"), *same]
    for order in before(s, t):
        if find([*base, *order]) is None:
            continue
        linked = [*base, *order, *p.link(""), *q.link("'")]
        for bad in _not_ordered(p.stage, q.stage, a, kind):
            witness = find([*linked, *bad])
            if witness is not None:
                plain = {n: v for n, v in witness.items() if "!" not in n and "~" not in n}
                return Violation(f"{kind} on `{a.name}`", plain)
    return None


def _not_ordered(p: Stage, q: Stage, a: Cell, kind: str) -> Iterator[System]:
    """Systems under which the step of the later instance does not come after the other's."""
    equalities: list[Constraint] = []
    for x, y in zip(p.place, q.place, strict=False):
        if isinstance(x, str) and x == y:
            i, j = p.names("")[x], q.names("'")[x]
            yield [*equalities, below(j, i)]
            equalities.append(equal(i, j))
        elif x != y:
            if isinstance(x, int) and isinstance(y, int) and x > y:
                yield equalities
            return
    # one program, one iteration of the host loops
    if kind == "WAR":
        return
    name = a.name.split("@")[0]  # of a web
    own = [s for s in p.program.out.stores if s.buffer == name or (a.scalar and stands_for(s.buffer, name))]
    free = {n for s in own for n in s.at_last}
    if own:
        free |= {d.name for d in p.program.hom.dims_of("ps")}
    for d in p.program.hom.dims_of("cc", "ps"):
        if d.name not in free:
            i, j = p.names("")[d.name], q.names("'")[d.name]
            yield [*equalities, below(i, j)]
            yield [*equalities, below(j, i)]


__all__ = ["GaveUp", "NotMapped", "Violation", "violated"]
