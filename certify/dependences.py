"""Dependences of a nest, and whether its steps respect them, for all sizes.

    dependence   instances i before j of the loops touch one cell, and one of them writes
    respected    the step of i comes before the step of j, or both are in one program, where
                 reads come before writes (WAR), one position combines its own cells (the accumulator
                 and what it starts from), or a scanned dimension passes its cells on

**Cells.**  A flat position is taken apart by the extents that the programs give its buffer, where it is
shown that the indices stay below them (``flat``).  A scalar that an iteration sets before it uses it is a
cell of the iteration (``webs``), and so is a cell of an array all of whose values are read in the iteration
that writes them.  An index that is computed from data is an unknown of the instance.  What a condition or a
bound reads, the statements read that it decides about.

**Where a statement is done** (``Image``).  One that stores in a cell: in the program that stores in this cell
at the same iteration of the host loops; as no two positions of a program share a cell, the cell tells the
position, and a host loop that is none of the source's loops (a wavefront) has to be told by it, too.  Several
programs may share the instances among them (an index set that was cut).  A value kept in a temporary: in
the program that stores in it at the position of the same iteration.  A value kept nowhere: in the programs
of the statements that read it, and so is one that a program computes again.  Where several programs store
in a cell for several statements, the statements are given to them in the order of the text, in every such
way until one respects everything.

That a program's function computes what its statements compute is not asked here: the comparison of
computations does; but a program may not read a buffer that none of its statements reads.  Where a statement
has no such program there is no proof: ``NotMapped`` says why.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from certify.flat import of_affine, split
from certify.sets import GaveUp, System, at_least, below, equal, find, missing
from certify.source import Cell, Instance, before, instances, rows_of, tagged, turn
from certify.stages import indirect, keeps, loads, positional, shown, size_rows
from certify.webs import private_arrays, renamed
from lifter.loop_nest import LoopNest
from mdh_core.expr import Affine, Constraint, Expr, Load, variables, walk
from mdh_core.ir import Buffer, HostLoop, MdhProgram, Step, Store, programs_of

MAX_WAYS = 64  # of giving statements to programs


@dataclass(frozen=True, slots=True)
class Violation:
    """``at``: unknowns of both instances (those of the later one are marked) and the parameters."""

    text: str
    at: dict[str, int]

    def __str__(self) -> str:
        return f"{self.text}: {shown(self.at)}"


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
    def position(self) -> tuple[str, ...]:
        """What tells one store from another: host iterators and the dimensions that are not reduced."""
        kept = [d.name for d in self.program.hom.dims_of("cc", "ps") if d.name not in self.store.at_last]
        return (*(h.iterator for h in self.hosts), *kept)

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


def violated(nest: LoopNest, steps: Sequence[Step]) -> Violation | None:
    """A dependence that the steps do not respect, or None; raises ``NotMapped`` and ``GaveUp``.

    It is a dependence of cells: where programs compute a value again, or do without one that is never used,
    the computations may agree all the same.
    """
    question = _Question(nest, steps)
    ways = question.ways()
    found: Violation | None = None
    why: NotMapped | None = None
    for images in ways:
        try:
            bad = question.answer(images)
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


# --------------------------------------------------------------------------- mapping


@dataclass(frozen=True, slots=True)
class Image:
    """A statement and a store that does what it does.

    cell    the cell that tells the position; None: the position is the iteration itself (a temporary)
    reader  for a value computed where it is used: the image of the statement that reads it;
            ``shared``: what is equal in both instances
    """

    instance: Instance
    stage: Stage
    cell: tuple[Affine, ...] | None
    reader: Image | None = None
    shared: tuple[tuple[Affine, Affine], ...] = ()

    def link(self, tag: str, at: str | None = None) -> list[Constraint]:
        """The instance (its names carry the tag) and its position (its names carry ``at``)."""
        at = tag if at is None else at
        if self.reader is not None:
            inner = f"{tag}~"
            y = self.reader.instance
            mine = tagged(self.instance, tag, [a for a, _ in self.shared])
            its = tagged(y, inner, [b for _, b in self.shared])
            shared = [equal(a, b) for a, b in zip(mine, its, strict=True)]
            return [*rows_of(y, inner), *shared, *self.reader.link(inner, at)]
        rows = self.stage.rows(at)
        names = self.stage.names(at)
        counted = _counted(self.instance, tag)
        told: Sequence[str] = [h.iterator for h in self.stage.hosts]
        if self.cell is None:
            told = self.stage.position
        else:
            here = tagged(self.instance, tag, self.cell)
            rows += [equal(a, b) for a, b in zip(here, self.stage.cell(at), strict=True)]
        return rows + [equal(names[n], counted[n]) for n in told if n in counted]


def _counted(x: Instance, tag: str) -> dict[str, Affine]:
    """Trips of the loops by both of their names; of two that share one, the inner."""
    out = {loop.source_name: Affine.of(turn(loop.iterator) + tag) for loop in x.loops if loop.source_name}
    return out | {loop.iterator: Affine.of(turn(loop.iterator) + tag) for loop in x.loops}


Images = Mapping[int, tuple[Image, ...]]


class _Question:
    """Of one nest and its steps."""

    def __init__(self, nest: LoopNest, steps: Sequence[Step]) -> None:
        self.params = {p.name for p in nest.params}
        self.stages = list(_stores(steps, (), ()))
        self.temporaries = {s.store.buffer for s in self.stages} - {b.name for b in nest.buffers}
        self.temporaries -= {s.name for s in nest.scalars if s.live_after}
        live = frozenset(s.name for s in nest.scalars if s.live_after)
        whole = _taken_apart(instances(nest), list(programs_of(steps)))
        found, self.webs = renamed(whole, live)
        kept = {n for n in self.temporaries if n not in {s.name for s in nest.scalars}}
        arrays = {b.name for b in nest.buffers if any(_stands_for(n, b.name) for n in kept)}
        found, private = private_arrays(found, arrays)
        self.webs |= private
        self.private = {w.name for w in private.values()}
        self.found = _decided(found)
        self.written = {x.write.name for x in self.found if x.write is not None}
        for x in self.found:
            if x.again and x.write is not None and not x.write.scalar:
                raise NotMapped(f"`{x.write.name}` is stored in a loop whose trips depend on data")

    # ------------------------------------------------------------------ where statements are done

    def ways(self) -> list[Images]:
        """Images of the statements, in every way that is tried."""
        choices: dict[int, list[tuple[Image, ...]]] = {}
        for x in self.found:
            if x.write is not None:
                choices[x.number] = self._candidates(x)
        _settle(choices)
        open_: dict[tuple[Stage, ...], list[int]] = {}
        for number, some in choices.items():
            if len(some) > 1:
                open_.setdefault(tuple(w[0].stage for w in some), []).append(number)
        plans = []
        for stages, numbers in open_.items():
            ordered = sorted(range(len(stages)), key=lambda k: str(stages[k].place))
            plans.append([
                {n: choices[n][ordered[k]] for n, k in zip(numbers, way, strict=True)}
                for way in itertools.islice(_in_order(len(numbers), len(ordered)), MAX_WAYS)
            ])  # fmt: skip
        out: list[Images] = []
        why: NotMapped | None = None
        for chosen in itertools.islice(itertools.product(*plans), MAX_WAYS):
            images = {n: some[0] if some else () for n, some in choices.items()}
            for one in chosen:
                images |= one
            try:
                out.append(self._complete(images))
            except NotMapped as error:
                why = error
        if not out:
            raise why or NotMapped("no statements")
        return out

    def _candidates(self, x: Instance) -> list[tuple[Image, ...]]:
        """Stores that do the whole statement, each alone; else those that share it; none: kept nowhere."""
        assert x.write is not None
        found = [i for s in self.stages if (i := self._stored(x, s)) is not None]
        if not found:
            return []
        loops = {n for loop in x.loops for n in (loop.iterator, loop.source_name)}
        told = {id(i): len(loops & set(i.stage.position)) for i in found}
        if x.write.scalar:
            found = [i for i in found if told[id(i)] == max(told.values())]
        keep = {n for r in x.rows for n in r.names} | set(x.iterators) | self.params
        whole = [i for i in found if missing(x.rows, [[*x.rows, *i.link("")]], keep) is None]
        if whole:
            return [(i,) for i in whole]
        parts = [i for i in found if find([*x.rows, *i.link("")]) is not None]
        if parts and missing(x.rows, [[*x.rows, *i.link("")] for i in parts], keep) is None:
            return [tuple(parts)]
        if x.write.scalar:
            return []
        raise NotMapped(f"no program stores `{x.write.name}` as the statement does")

    def _stored(self, x: Instance, s: Stage) -> Image | None:
        """The image in a stage, if it may store what the statement does."""
        assert x.write is not None
        cell = x.write
        web = self.webs.get(cell.name)
        name = cell.name if web is None else web.name
        counted = _counted(x, "")
        if s.store.buffer == cell.name and cell.name not in self.temporaries:
            if cell.index is None:
                raise NotMapped(f"`{cell.name}` is stored at an index that is not affine")
            if len(cell.index) != len(s.store.index):
                return None
            image = Image(x, s, cell.index)
            return image if all(h.iterator in counted for h in s.hosts) or _functional(image) else None
        if not cell.scalar and web is not None and cell.index is not None:
            hosts = {h.iterator for h in s.hosts}
            expanded = [turn(i) for i in web.loops if i not in hosts]
            index = (*map(Affine.of, expanded), *cell.index[len(web.loops) :])
            image = Image(x, s, index)
            known = all(h in counted for h in hosts)
            fits = s.store.buffer in self.temporaries and _stands_for(s.store.buffer, name)
            return image if fits and known and len(index) == len(s.store.index) else None
        if cell.scalar and s.store.buffer in self.temporaries and _stands_for(s.store.buffer, name):
            own = {loop for loop in x.loops if web is None or loop.iterator in web.loops}
            told = all({o.iterator, o.source_name} & set(s.position) for o in own)
            if told and all(n in counted for n in s.position):
                return Image(x, s, None)
        return None

    def _complete(self, images: dict[int, tuple[Image, ...]]) -> Images:
        """With the images of values that are kept nowhere; raises where stores have no statements."""
        kept = {n for n, some in images.items() if some}
        names = {x.write.name for x in self.found if x.write is not None and x.number in kept}
        for x in self.found:
            if x.write is not None and x.number not in kept:
                if x.write.name in names:
                    raise NotMapped(f"`{x.write.name}` is stored by some programs only")
                images[x.number] = tuple(self._through(x, images, kept, frozenset()))
        for x in self.found:
            if x.write is None and any(c.name in self.written for c in x.reads):
                raise NotMapped("a condition or bound that decides about nothing is computed in the nest")
        self._all_from_source(images)
        self._reads_of_programs(images)
        self._temporaries_of_webs(images)
        return images

    def _through(self, x: Instance, images: Images, kept: set[int], on: frozenset[int]) -> Iterator[Image]:
        """One image for each place where the value is used."""
        assert x.write is not None
        for y in self.found:
            if y.write is None or y.number in on or y.number == x.number:
                continue
            if all(c.name != x.write.name for c in y.reads) or y.write.name == x.write.name:
                continue
            common = tuple(a for a, b in zip(x.iterators, y.iterators, strict=False) if a == b)
            if x.write.index is not None and x.write.name in self.webs:
                common = tuple(i for i in common if i in self.webs[x.write.name].loops)
            if y.number in kept:
                below_: Sequence[Image] = images[y.number]
            else:
                below_ = list(self._through(y, images, kept, on | {x.number}))
            for image in below_:
                both = [Affine.of(n) for i in common for n in (i, turn(i))]
                yield Image(x, image.stage, None, image, tuple(zip(both, both, strict=True)))

    def _all_from_source(self, images: Images) -> None:
        """Every position of every program is some instance's."""
        for s in self.stages:
            mine = [*s.rows(""), *(s.contributions("") if keeps(s.program, s.store) else [])]
            hidden = {f"{d.name}!" for d in s.program.hom.dims_of("pw")}
            kept = {f"{d.name}!" for d in s.program.hom.dims_of("cc", "ps")}
            kept |= {f"{h.iterator}!" for h in s.hosts}
            keep = ({n for r in mine for n in r.names} | self.params | kept) - hidden
            theirs = [
                [*i.instance.rows, *i.link("")]
                for some in images.values() for i in some if i.stage == s and i.reader is None
            ]  # fmt: skip
            if missing(mine, theirs, keep) is None:
                continue
            if self._is_last_value(s):
                continue
            others = [t for t in self.stages if t.store.buffer == s.store.buffer and t != s]
            first = not s.hosts and all(str(s.place) < str(t.place) for t in others)
            if not (s.store.buffer in self.temporaries and first):  # what a temporary starts with
                raise NotMapped(f"a point stores `{s.store.buffer}` where no statement does")

    def _is_last_value(self, s: Stage) -> bool:
        """Is this what a private array is left with, stored when its temporaries have their values?"""
        name = s.store.buffer
        if name not in self.private or s.hosts:
            return False
        others = [t for t in self.stages if t.store.buffer == name and t.program is not s.program]
        kept = {n for n in self.temporaries if _stands_for(n, name)}
        sources = [t.place[0] for t in self.stages if t.store.buffer in kept]
        return not others and all(int(k) < int(s.place[0]) for k in sources)

    def _reads_of_programs(self, images: dict[int, tuple[Image, ...]]) -> None:
        """What a program reads and the nest writes, one of its statements reads, or one computed again."""
        for s in self.stages:
            if self._is_last_value(s):
                continue
            for name in sorted(_loaded(s.program)):
                starts = name not in self.temporaries and s.store.buffer in self.temporaries
                changes = name in self.written or any(t.store.buffer == name for t in self.stages)
                if not changes or (starts and _stands_for(s.store.buffer, name)):
                    continue
                if not self._reads(s, name, images):
                    self._compute_again(s, images)
                if not self._reads(s, name, images):
                    raise NotMapped(f"a program reads `{name}`, which none of its statements does")

    def _reads(self, s: Stage, name: str, images: Images) -> bool:
        """Does a statement that the program does touch the buffer, or what a temporary stands for?"""
        mine = {
            c.name for some in images.values() for i in some if i.stage.program is s.program
            for c in i.instance.cells
        }  # fmt: skip
        mine = {self.webs[n].name if n in self.webs else n for n in mine}
        return any(n == name or (name in self.temporaries and _stands_for(name, n)) for n in mine)

    def _compute_again(self, s: Stage, images: dict[int, tuple[Image, ...]]) -> None:
        """Statements whose stored values the statements of the program read are done there, too."""
        for y in self.found:
            for image in [i for i in images.get(y.number, ()) if i.stage.program is s.program]:
                for x, c in itertools.product(self.found, y.reads):
                    w = x.write
                    if w is None or w.name != c.name or w.index is None or c.index is None:
                        continue
                    if all(i.stage.program is not s.program for i in images[x.number]):
                        shared = tuple(zip(w.index, c.index, strict=True))
                        images[x.number] += (Image(x, image.stage, None, image, shared),)

    def _temporaries_of_webs(self, images: Images) -> None:
        """What one iteration leaves in a temporary is not overwritten by another before it is read."""
        for name, web in self.webs.items():
            stored = [
                i for x in self.found if x.write is not None and x.write.name == name
                for i in images[x.number] if i.reader is None
            ]  # fmt: skip
            near = [x for x in self.found if any(c.name == name for c in x.cells)]
            users = [i for x in near for i in images.get(x.number, ())]
            if not stored:
                continue
            around = [h.iterator for h in stored[0].stage.hosts]
            for i in users:
                here = [h.iterator for h in i.stage.hosts]
                around = [a for a, b in zip(around, here, strict=False) if a == b]
            for p, q in itertools.product(stored, repeat=2):
                if p.stage.store.buffer != q.stage.store.buffer:
                    continue
                rows = [*rows_of(p.instance, ""), *rows_of(q.instance, "'"), *p.link(""), *q.link("'")]
                rows += [equal(a, b) for a, b in zip(p.stage.cell(""), q.stage.cell("'"), strict=True)]
                ps, qs = p.stage.names(""), q.stage.names("'")
                rows += [equal(ps[h], qs[h]) for h in around]
                for k, loop in enumerate(web.loops):
                    gone = [equal(Affine.of(i), Affine.of(f"{i}'")) for i in web.loops[:k]]
                    a, b = Affine.of(loop), Affine.of(f"{loop}'")
                    if find([*rows, *gone, below(a, b)]) or find([*rows, *gone, below(b, a)]):
                        raise NotMapped(f"iterations share cells of `{p.stage.store.buffer}`")

    # ------------------------------------------------------------------ dependences

    def answer(self, images: Images) -> Violation | None:
        """A dependence that is not respected."""
        stored = {i.instance.write.name for some in images.values() for i in some
                  if i.reader is None and i.instance.write is not None}  # fmt: skip
        once = {name for name in stored if self._each_once(name, images)}
        for s in self.found:
            for t in self.found:
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

    def _each_once(self, name: str, images: Images) -> bool:
        """Is this a scalar each of whose values has a cell of a temporary for itself?"""
        if name in self.webs:
            return False
        stored = [
            i for x in self.found if x.write is not None and x.write.name == name for i in images[x.number]
        ]
        if any(i.reader is not None or i.cell is not None for i in stored):
            return False
        for p, q in itertools.product(stored, repeat=2):
            if p.stage.store.buffer != q.stage.store.buffer:
                return False
            rows = [*rows_of(p.instance, ""), *rows_of(q.instance, "'"), *p.link(""), *q.link("'")]
            rows += [equal(a, b) for a, b in zip(p.stage.cell(""), q.stage.cell("'"), strict=True)]
            if any(find([*rows, *order]) is not None for order in before(p.instance, q.instance)):
                return False
        return True


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


def _settle(choices: dict[int, list[tuple[Image, ...]]]) -> None:
    """A store that could be one statement's only, is this statement's."""
    while True:
        users: dict[Stage, list[int]] = {}
        for number, some in choices.items():
            for way in some:
                for image in way:
                    users.setdefault(image.stage, []).append(number)
        for stage, numbers in users.items():
            if len(numbers) == 1 and len(choices[numbers[0]]) > 1:
                mine = choices[numbers[0]]
                choices[numbers[0]] = [way for way in mine if any(i.stage == stage for i in way)]
                break
        else:
            return


def _in_order(statements: int, stages: int) -> Iterator[tuple[int, ...]]:
    """Each statement's stage: never an earlier one than the statement's before, and every one is used."""
    if statements < stages:
        yield from itertools.combinations(range(stages), statements)
        return
    for cuts in itertools.combinations(range(1, statements), stages - 1):
        ends = (*cuts, statements)
        yield tuple(next(k for k, e in enumerate(ends) if n < e) for n in range(statements))


def _stands_for(temporary: str, name: str) -> bool:
    """Temporaries carry the name of what they keep."""
    return temporary == name or temporary.startswith(f"{name}_")


def _functional(image: Image) -> bool:
    """Has each instance one position at most?"""
    rows = [*image.instance.rows, *image.link("", ""), *image.link("", "'")]
    a, b = image.stage.names(""), image.stage.names("'")
    return all(find([*rows, below(a[n], b[n])]) is None for n in image.stage.position)


def _loaded(p: MdhProgram) -> set[str]:
    out = {a.buffer for a in p.inp.accesses} | set(indirect(p))
    for e in (*p.out.initial, *(s.value for s in p.out.stores)):
        if e is not None:
            out |= {b for b, _ in loads(e)}
    return out


def _taken_apart(found: Sequence[Instance], programs: Sequence[MdhProgram]) -> list[Instance]:
    """Flat positions as cells of the buffers that the programs know; computed indices as unknowns."""
    shapes: dict[str, Buffer] = {}
    for b in (b for p in programs for b in p.buffers):
        other = shapes.setdefault(b.name, b)
        if b.rank > other.rank:
            shapes[b.name] = b
        elif b.rank == other.rank and b.extents != other.extents:
            raise NotMapped(f"`{b.name}` has several shapes")
    known = [at_least(a) for p in programs for a in p.assumptions]
    inside: dict[int, list[Constraint]] = {x.number: [] for x in found}

    written = {x.write.name for x in found if x.write is not None}
    steady: dict[tuple[Expr, ...], int] = {}

    def name(x: Instance, c: Cell, number: int) -> str:
        """One expression has one value in an instance; in all with its iterators if it reads nothing new."""
        used = {n for e in c.computed for n in variables(e)}
        used |= {n.buffer for e in c.computed for n in walk(e) if isinstance(n, Load)}
        if not c.computed or used & written:
            return f"?{x.number}.{number}"
        return f"?e{steady.setdefault(c.computed, len(steady))}"

    def cell(x: Instance, c: Cell, number: int) -> Cell:
        b = shapes.get(c.name)
        if b is None or c.scalar:
            return c
        index: tuple[Affine, ...] | None = None
        if c.index is not None and len(c.index) == b.rank:
            return c
        position = dict(c.flat)
        if c.index is not None and len(c.index) == 1:
            position = of_affine(c.index[0])
        if position and b.strides is None:
            index = split(position, b.extents)
        rows = [*x.rows, *(k for k in known if not k.names & set(x.iterators))]
        for a, e in zip(index[1:] if index else (), b.extents[1:], strict=False):
            assert e is not None
            if find([*rows, below(a, Affine())]) is not None or find([*rows, at_least(a - e)]) is not None:
                index = None
        return Cell(c.name, unknown(x, b, name(x, c, number)) if index is None else index)

    def unknown(x: Instance, b: Buffer, name: str) -> tuple[Affine, ...]:
        """A computed position; it is one of the buffer's."""
        index = tuple(Affine.of(f"{name}.{k}") for k in range(b.rank))
        if None not in b.extents:
            for a, e in zip(index, b.extents, strict=True):
                assert e is not None
                inside[x.number] += [at_least(a), below(a, e)]
        return index

    out = []
    for x in found:
        numbers = {c: k for k, c in enumerate(dict.fromkeys(x.cells))}  # one expression has one value
        cells = {c: cell(x, c, k) for c, k in numbers.items()}
        write = None if x.write is None else cells[x.write]
        rows = (*x.rows, *inside[x.number])
        out.append(replace(x, rows=rows, reads=tuple(cells[c] for c in x.reads), write=write))
    return out


def _decided(found: Sequence[Instance]) -> list[Instance]:
    """What decides whether a statement runs, it reads; the deciding instances themselves are gone."""
    deciding = [x for x in found if x.write is None]
    decided: set[int] = set()
    out = []
    for x in found:
        if x.write is None:
            continue
        mine = [d for d in deciding if len(d.place) < len(x.place) and x.place[: len(d.place)] == d.place]
        decided |= {d.number for d in mine}
        reads = dict.fromkeys((*x.reads, *(c for d in mine for c in d.reads)))
        out.append(replace(x, reads=tuple(reads)))
    return [*out, *(d for d in deciding if d.number not in decided)]


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


def _not_respected(p: Image, q: Image, a: Cell, b: Cell, kind: str) -> Violation | None:
    """Two instances that depend on one another and whose steps do not come in this order."""
    s, t = p.instance, q.instance
    if a.index is not None and b.index is not None and len(a.index) == len(b.index):
        left = tagged(s, "", a.index)
        same = [equal(i, j) for i, j in zip(left, tagged(t, "'", b.index), strict=True)]
    else:
        same = []  # any cell
    base = [*rows_of(s, ""), *rows_of(t, "'"), *same]
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
    own = [s for s in p.program.out.stores if s.buffer == name or (a.scalar and _stands_for(s.buffer, name))]
    free = {n for s in own for n in s.at_last}
    if own:
        free |= {d.name for d in p.program.hom.dims_of("ps")}
    for d in p.program.hom.dims_of("cc", "ps"):
        if d.name not in free:
            i, j = p.names("")[d.name], q.names("'")[d.name]
            yield [*equalities, below(i, j)]
            yield [*equalities, below(j, i)]


__all__ = ["GaveUp", "NotMapped", "violated"]
