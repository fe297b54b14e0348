"""Dependences of a nest, and whether its steps respect them, for all sizes.

    dependence   instances i before j of the loops touch one cell, and one of them writes
    respected    the step of i comes before the step of j, or both are in one program, where
                 reads come before writes (WAR), one position combines its own cells (the accumulator
                 and what it starts from), or a scanned dimension passes its cells on

A statement that stores in a cell is mapped to the program that stores in this cell at the same iteration of
the host loops; as no two positions of a program share a cell, the cell tells the position.  A scalar that
every iteration sets before it uses it is private to the iteration: what computes it belongs to the store
that reads it.  Where a statement has no such program (values in temporaries, wavefronts, conditions on data)
there is no proof: ``NotMapped`` says why.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from certify.sets import GaveUp, System, at_least, below, equal, find, missing
from certify.source import Cell, Instance, instances, turn
from certify.stages import loads, positional, shown, size_rows
from lifter.loop_nest import Loop, LoopNest
from mdh_core.expr import Affine, Constraint, Load
from mdh_core.ir import HostLoop, MdhProgram, Step, Store


class NotMapped(Exception):  # noqa: N818 - an answer
    """The mapping from statements to programs cannot be established."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A store of a program in the tree of steps; ``place``: numbers and host iterators, outermost first."""

    program: MdhProgram
    store: Store
    place: tuple[int | str, ...]
    hosts: tuple[HostLoop, ...]

    def rows(self, tag: str) -> list[Constraint]:
        """What holds for the host iterators and the position."""
        names = self.names(tag)
        out = []
        for h in self.hosts:
            i = names[h.iterator]
            out += [at_least(i), at_least(h.size.span.substitute(names) - 1 - i * h.size.step)]
        for d in self.program.hom.dims_of("cc", "ps"):
            out += [c.substitute(names) for c in size_rows(d, Affine.of(d.name))]
            if d.name in self.store.at_last:
                out.append(at_least((names[d.name] + 1) * d.size.step - d.size.span.substitute(names)))
        return out + [c.substitute(names) for c in positional(self.program)]

    @property
    def keeps(self) -> bool:
        """Where nothing contributes, the cell is stored as it was."""
        c = self.store.plain
        initial = None if c is None else self.program.out.initial[c]
        return isinstance(initial, Load) and loads(initial) == [(self.store.buffer, self.store.index)]

    def contributions(self, tag: str) -> list[Constraint]:
        """Some point contributes to the position."""
        names = self.names(tag)
        rows = [r for d in self.program.hom.dims_of("pw") for r in size_rows(d, Affine.of(d.name))]
        return [c.substitute(names) for c in (*rows, *self.program.hom.domain)]

    def names(self, tag: str) -> dict[str, Affine]:
        """Unknowns for the host iterators and dimensions; these names may be the loops', too."""
        found = [h.iterator for h in self.hosts] + [d.name for d in self.program.hom.dims]
        return {n: Affine.of(f"{n}!{tag}") for n in found}

    def cell(self, tag: str) -> tuple[Affine, ...]:
        return tuple(a.substitute(self.names(tag)) for a in self.store.index)


def violated(nest: LoopNest, steps: Sequence[Step]) -> str | None:
    """A dependence that the steps do not respect, or None; raises ``NotMapped`` and ``GaveUp``."""
    params = {p.name for p in nest.params}
    found = instances(nest)
    stores = list(_stores(steps, (), ()))
    written = {x.write.name for x in found if x.write is not None}
    images: dict[int, Image] = {}
    private = _private(nest, found, {s.store.buffer for s in stores})
    for x in found:
        if x.write is not None and x.write.name not in private:
            images[x.number] = _image(x, stores, params)
    for x in found:
        if x.write is None:
            continue
        if x.write.name in private:
            images[x.number] = _through(x, found, images, private)
    for x in found:
        if x.write is None and any(c.name in written for c in x.reads):
            raise NotMapped("a condition or bound is computed in the nest")
    _all_from_source(found, images, stores, params)
    for s in found:
        for t in found:
            if s.number in images and t.number in images:
                for a, b, kind in _pairs(s, t):
                    bad = _not_respected(
                        images[s.number], images[t.number], a, b, kind, private.get(a.name, 0)
                    )
                    if bad is not None:
                        return bad
    return None


def _stores(
    steps: Sequence[Step], place: tuple[int | str, ...], hosts: tuple[HostLoop, ...]
) -> Iterator[Stage]:
    for k, s in enumerate(steps):
        if isinstance(s, MdhProgram):
            yield from (Stage(s, store, (*place, k), hosts) for store in s.out.stores)
        elif isinstance(s, HostLoop):
            yield from _stores(s.body, (*place, k, s.iterator), (*hosts, s))
        else:
            raise NotMapped("statements that were not lifted")


# --------------------------------------------------------------------------- mapping


@dataclass(frozen=True, slots=True)
class Image:
    """A statement, the store that does what it does, and the cell that tells the position."""

    instance: Instance
    stage: Stage
    cell: tuple[Affine, ...]

    def link(self, tag: str) -> list[Constraint]:
        """The instance (its names carry the tag) and its position."""
        rows = self.stage.rows(tag)
        rows += [
            equal(a, b)
            for a, b in zip(_tagged(self.instance, tag, self.cell), self.stage.cell(tag), strict=True)
        ]
        names = self.stage.names(tag)
        counted = {spelled(x): Affine.of(turn(x.iterator) + tag) for x in self.instance.loops}
        rows += [equal(names[h.iterator], counted[h.iterator]) for h in self.stage.hosts]
        return rows


def spelled(x: Loop) -> str:
    """Programs name dimensions as the source does."""
    return x.source_name or x.iterator


def _image(x: Instance, stores: Sequence[Stage], params: set[str]) -> Image:
    """The store that does what a statement does."""
    assert x.write is not None
    if x.write.index is None:
        raise NotMapped(f"`{x.write.name}` is stored at an index that is not affine")
    same = [s for s in stores if s.store.buffer == x.write.name and len(s.store.index) == len(x.write.index)]
    names = {spelled(loop) for loop in x.loops}
    reach = [({h.iterator for h in s.hosts} | {d.name for d in s.program.hom.dims}, s) for s in same]
    chosen = [s for n, s in reach if n == names] or [s for n, s in reach if n > names]
    whole = [
        Image(x, s, x.write.index)
        for s in chosen
        if {h.iterator for h in s.hosts} <= names and _is_total(Image(x, s, x.write.index), params)
    ]
    if len(whole) != 1:
        how = "several programs store" if whole else "no program stores"
        raise NotMapped(f"{how} `{x.write.name}` as the statement does")
    return whole[0]


def _is_total(image: Image, params: set[str]) -> bool:
    """Does every instance have a position?"""
    rows = image.instance.rows
    keep = {n for r in rows for n in r.names} | set(image.instance.iterators) | params
    return missing(rows, [[*rows, *image.link("")]], keep) is None


def _private(nest: LoopNest, found: Sequence[Instance], stored: set[str]) -> dict[str, int]:
    """Scalars of an iteration, and how many loops they have around them."""
    out = {}
    live = {s.name for s in nest.scalars if s.live_after}
    names = {x.write.name for x in found if x.write is not None and x.write.scalar} - live - stored
    for name in names:
        users = [
            x for x in found if (x.write and x.write.name == name) or any(c.name == name for c in x.reads)
        ]
        common = users[0].place
        for x in users[1:]:
            k = 0
            while k < min(len(common), len(x.place)) and common[k] == x.place[k]:
                k += 1
            common = common[:k]
        loops = sum(isinstance(p, str) for p in common)
        first = users[0]
        sets = (
            first.write is not None and first.write.name == name and all(c.name != name for c in first.reads)
        )
        if sets and len(first.place) == len(common) + 1 and len(first.loops) == loops:
            out[name] = loops
    return out


def _through(
    x: Instance, found: Sequence[Instance], images: dict[int, Image], private: dict[str, int]
) -> Image:
    """The image of the store that reads, in the same iteration, what the statement computes."""
    assert x.write is not None
    depth = private[x.write.name]
    readers = [
        y for y in found if y.write is not None and y.number != x.number and y.write.name != x.write.name
        and any(c.name == x.write.name for c in y.reads)
    ]  # fmt: skip
    if len(readers) != 1:
        raise NotMapped(f"`{x.write.name}` is read by {len(readers)} statements")
    (y,) = readers
    if y.write is not None and y.write.name in private:
        target = _through(y, found, images, private)
    else:
        target = images[y.number]
    common = {n for i in x.iterators[:depth] for n in (i, turn(i))}
    inner = {n for i in y.iterators for n in (i, turn(i))} - common
    hosts = {h.iterator for h in target.stage.hosts}
    if {n for a in target.cell for n in a.names} & inner or not hosts <= {
        spelled(l) for l in x.loops[:depth]
    }:
        raise NotMapped(f"`{x.write.name}` is used in several iterations")
    return Image(x, target.stage, target.cell)


def _tagged(x: Instance, tag: str, index: Sequence[Affine]) -> tuple[Affine, ...]:
    names = {n: Affine.of(m + tag) for i in x.iterators for n, m in ((i, i), (turn(i), turn(i)))}
    return tuple(a.substitute(names) for a in index)


def _rows(x: Instance, tag: str) -> list[Constraint]:
    names = {n: Affine.of(n + tag) for i in x.iterators for n in (i, turn(i))}
    return [c.substitute(names) for c in x.rows]


def _all_from_source(
    found: Sequence[Instance], images: dict[int, Image], stores: Sequence[Stage], params: set[str]
) -> None:
    """Every position of every program is some instance's."""
    for s in stores:
        mine = [*s.rows(""), *(s.contributions("") if s.keeps else [])]
        hidden = {f"{d.name}!" for d in s.program.hom.dims_of("pw")}
        keep = ({n for r in mine for n in r.names} | {f"{h.iterator}!" for h in s.hosts} | params) - hidden
        keep |= {f"{d.name}!" for d in s.program.hom.dims_of("cc", "ps")}
        theirs = [
            [*x.rows, *images[x.number].link("")]
            for x in found
            if x.number in images and images[x.number].stage == s
        ]
        if missing(mine, theirs, keep) is not None:
            raise NotMapped(f"a point stores `{s.store.buffer}` where no statement does")


# --------------------------------------------------------------------------- dependences


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


def _before(s: Instance, t: Instance) -> Iterator[list[Constraint]]:
    """Systems under which an instance of ``s`` runs before one of ``t``, whose names are marked."""
    equalities: list[Constraint] = []
    steps = {x.iterator: 1 if x.step > 0 else -1 for x in s.loops}
    for a, b in zip(s.place, t.place, strict=False):
        if isinstance(a, str) and a == b:
            i, j = Affine.of(a) * steps[a], Affine.of(f"{a}'") * steps[a]
            yield [*equalities, below(i, j)]
            equalities.append(equal(i, j))
        elif isinstance(a, int) and isinstance(b, int) and a != b:
            if a < b:
                yield equalities
            return
        elif a != b:
            return


def _not_respected(p: Image, q: Image, a: Cell, b: Cell, kind: str, private: int) -> str | None:
    """Two instances that depend on one another and whose steps do not come in this order.

    ``private``: of so many loops each iteration has the cell for itself.
    """
    s, t = p.instance, q.instance
    if a.index is not None and b.index is not None and len(a.index) == len(b.index):
        same = [equal(i, j) for i, j in zip(a.index, _tagged(t, "'", b.index), strict=True)]
    else:
        same = []  # any cell
    base = [*_rows(s, ""), *_rows(t, "'"), *same]
    base += [equal(Affine.of(i), Affine.of(f"{i}'")) for i in s.iterators[:private]]
    for order in _before(s, t):
        if find([*base, *order]) is None:
            continue
        linked = [*base, *order, *p.link(""), *q.link("'")]
        for bad in _not_ordered(p.stage, q.stage, a, kind):
            witness = find([*linked, *bad])
            if witness is not None:
                plain = {n: v for n, v in witness.items() if "!" not in n}
                return f"{kind} on `{a.name}`: {shown(plain)}"
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
    own = [s for s in p.program.out.stores if s.buffer == a.name]
    free = {n for s in own for n in s.at_last}
    if own:
        free |= {d.name for d in p.program.hom.dims_of("ps")}
    for d in p.program.hom.dims_of("cc", "ps"):
        if d.name not in free:
            i, j = p.names("")[d.name], q.names("'")[d.name]
            yield [*equalities, below(i, j)]
            yield [*equalities, below(j, i)]


__all__ = ["GaveUp", "NotMapped", "violated"]
