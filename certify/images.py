"""Where the statements of a nest are done in its steps.

``Image``: one that stores in a cell: in the program that stores in this cell
at the same iteration of the host loops; as no two positions of a program share a cell, the cell tells the
position, and a host loop that is none of the source's loops (a wavefront) has to be told by it, too.  Several
programs may share the instances among them (an index set that was cut).  A value kept in a temporary: in
the program that stores in it at the position of the same iteration.  A value kept nowhere: in the programs
of the statements that read it, and so is one that a program computes again.  Where several programs store
in a cell for several statements, the statements are given to them in the order of the text, in every such
way until one respects everything.

A scalar that an iteration sets before it uses it is a cell of the iteration (``webs``), and so is a cell of
an array all of whose values are read in the iteration that writes them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from certify.cells import NotMapped, taken_apart, with_conditions
from certify.sets import at_least, below, equal, find, missing
from certify.source import Instance, before, instances, rows_of, tagged, turn
from certify.stages import positional, size_rows
from certify.webs import private_arrays, renamed
from lifter.loop_nest import LoopNest
from mdh_core.expr import Affine, Constraint
from mdh_core.ir import HostLoop, MdhProgram, Step, Store, keeps_if_empty, programs_of, read_buffers

MAX_WAYS = 64  # of giving statements to programs


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
    def tested(self) -> list[Constraint]:
        """What the generated code tests of parameters before the program runs."""
        hosts = {h.iterator for h in self.hosts}
        return [at_least(a) for a in self.program.assumptions if not a.names & hosts]

    @property
    def position(self) -> tuple[str, ...]:
        """What tells one store from another: host iterators and the dimensions that are not reduced."""
        kept = [d.name for d in self.program.hom.dims_of("cc", "ps") if d.name not in self.store.at_last]
        return (*(h.iterator for h in self.hosts), *kept)

    @property
    def keeps(self) -> bool:
        return keeps_if_empty(self.store, self.program.out.initial)

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


class Statements:
    """Those of one nest, beside the stores of its steps."""

    def __init__(self, nest: LoopNest, steps: Sequence[Step]) -> None:
        self.params = {p.name for p in nest.params}
        self.stages = list(_stores(steps, (), ()))  # in the order of the steps
        self.temporaries = {s.store.buffer for s in self.stages} - {b.name for b in nest.buffers}
        self.temporaries -= {s.name for s in nest.scalars if s.live_after}
        live = frozenset(s.name for s in nest.scalars if s.live_after)
        whole = taken_apart(instances(nest), list(programs_of(steps)))
        found, self.webs = renamed(whole, live)
        kept = {n for n in self.temporaries if n not in {s.name for s in nest.scalars}}
        arrays = {b.name for b in nest.buffers if any(stands_for(n, b.name) for n in kept)}
        found, private = private_arrays(found, arrays)
        self.webs |= private
        self.private = {w.name for w in private.values()}
        self.found = with_conditions(found)
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
            ordered = sorted(range(len(stages)), key=lambda k: self.stages.index(stages[k]))
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
        if x.write.scalar:  # the store that has most of the statement's loops
            told = [len(loops & set(i.stage.position)) for i in found]
            found = [i for i, n in zip(found, told, strict=True) if n == max(told)]
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
            fits = s.store.buffer in self.temporaries and stands_for(s.store.buffer, name)
            return image if fits and known and len(index) == len(s.store.index) else None
        if cell.scalar and s.store.buffer in self.temporaries and stands_for(s.store.buffer, name):
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
        """One image for each place where the value is used.

        Statements of the same iteration that hand it on, kept nowhere themselves, are passed by: there are as
        many ways through them as branches may take, and all end at the same statements.
        """
        waiting, met = [x], {x.number}
        found: dict[tuple[int, tuple[tuple[Affine, Affine], ...]], Image] = {}  # by what reads it, and how
        while waiting:
            now = waiting.pop()
            for y, common in self._users(now, on):
                shared = tuple((a, a) for i in common for a in (Affine.of(i), Affine.of(turn(i))))
                used: Sequence[Image] = ()
                if y.number in kept:
                    used = images[y.number]
                elif common == x.iterators == y.iterators and set(y.rows) <= set(x.rows):
                    waiting += [y] if y.number not in met else []
                    met.add(y.number)
                else:
                    used = tuple(self._through(y, images, kept, on | {x.number, now.number}))
                for i in used:
                    found[id(i), shared] = Image(x, i.stage, None, i, shared)
        yield from found.values()

    def _users(self, x: Instance, on: frozenset[int]) -> Iterator[tuple[Instance, tuple[str, ...]]]:
        """Statements that read what one writes, and the iterators that both share."""
        assert x.write is not None
        for y in self.found:
            if y.write is None or y.number in on or y.number == x.number:
                continue
            if all(c.name != x.write.name for c in y.reads) or y.write.name == x.write.name:
                continue
            common = tuple(a for a, b in zip(x.iterators, y.iterators, strict=False) if a == b)
            if x.write.index is not None and x.write.name in self.webs:
                common = tuple(i for i in common if i in self.webs[x.write.name].loops)
            yield y, common

    def _all_from_source(self, images: Images) -> None:
        """Every position of every program is some instance's."""
        for s in self.stages:
            mine = [*s.rows(""), *(s.contributions("") if s.keeps else [])]
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
            first = next(t for t in self.stages if t.store.buffer == s.store.buffer)
            starts = s.store.buffer in self.temporaries and s == first and not s.hosts
            if not starts:
                raise NotMapped(f"a point stores `{s.store.buffer}` where no statement does")

    def _is_last_value(self, s: Stage) -> bool:
        """Is this what a private array is left with, stored when its temporaries have their values?"""
        name = s.store.buffer
        if name not in self.private or s.hosts:
            return False
        others = [t for t in self.stages if t.store.buffer == name and t.program is not s.program]
        kept = {n for n in self.temporaries if stands_for(n, name)}
        sources = [t.place[0] for t in self.stages if t.store.buffer in kept]
        return not others and all(int(k) < int(s.place[0]) for k in sources)

    def _reads_of_programs(self, images: dict[int, tuple[Image, ...]]) -> None:
        """What a program reads and the nest writes, one of its statements reads, or one computed again."""
        for s in self.stages:
            if self._is_last_value(s):
                continue
            for name in sorted(read_buffers(s.program)):
                starts = name not in self.temporaries and s.store.buffer in self.temporaries
                changes = name in self.written or any(t.store.buffer == name for t in self.stages)
                if not changes or (starts and stands_for(s.store.buffer, name)):
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
        return any(n == name or (name in self.temporaries and stands_for(name, n)) for n in mine)

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
                    if any(find([*rows, *gone, c]) is not None for c in (below(a, b), below(b, a))):
                        raise NotMapped(f"iterations share cells of `{p.stage.store.buffer}`")

    def each_once(self, name: str, images: Images) -> bool:
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


def stands_for(temporary: str, name: str) -> bool:
    """Temporaries carry the name of what they keep."""
    return temporary == name or temporary.startswith(f"{name}_")


def _functional(image: Image) -> bool:
    """Has each instance one position at most?"""
    rows = [*image.instance.rows, *image.link("", ""), *image.link("", "'")]
    a, b = image.stage.names(""), image.stage.names("'")
    return all(find([*rows, below(a[n], b[n])]) is None for n in image.stage.position)
