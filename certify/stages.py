"""What has to hold for the stages of one program, for all sizes.

    each point once      loop coordinates -> points is a bijection onto the program's index set
    one cell, one owner  parallel points write different cells, or parts that are combined
    ...                  see ``NAMES``

A stage is data: its loops say which points run when and on which thread, ``results`` where a cell waits
between visits.  All questions are about one or two *visits*: unknown loop coordinates and what they obey.

What runs side by side lies between two barriers.  Whether these end regions of their own or shared loops of
one region around a host loop (``region_<n>``) changes neither the phases nor their order: nothing here asks.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from certify.obligations import Obligation, prove
from certify.sets import GaveUp, Point, System, at_least, below, equal, find, missing
from lowering.loops import Loop
from lowering.lower import HistogramNest, Lowered, Nest, ScanNest, Stage
from lowering.packs import Pack
from mdh_core.expr import (
    Affine,
    Binary,
    Constraint,
    Expr,
    Load,
    Operand,
    Result,
    ScalarType,
    as_affine,
    stmt_exprs,
    variables,
    walk,
)
from mdh_core.ir import Access, Dim, MdhProgram, Store, keeps_if_empty

POINTS = "each point once"
INDEX_SET = "index set of the program"
OWNER = "parallel points write different cells"
POSITIONS = "positions store in different cells"
READS = "no point reads what another writes"
BOUNDS = "accesses stay inside the extents"
PACKS = "packs hold what is read"
RESULTS = "unfinished cells are kept"
ORDER = "order of inexact or scanned points"


@dataclass(frozen=True, slots=True)
class Known:
    """Where a program stands: constraints on host iterators, the cells that the source touches.

    own   names of temporaries; these have one element at least
    """

    rows: tuple[Constraint, ...] = ()
    touched: tuple[tuple[str, tuple[tuple[tuple[Constraint, ...], tuple[Affine, ...]], ...]], ...] = ()
    own: frozenset[str] = frozenset()


def size_rows(d: Dim, index: Affine) -> list[Constraint]:
    """``0 <= index < size``."""
    return [at_least(index), at_least(d.size.span - 1 - index * d.size.step)]


def sized(program: MdhProgram) -> list[Constraint]:
    """What ``<dim>_size`` means, the dimension not being empty."""
    out = []
    for d in program.hom.dims:
        n = Affine.of(f"{d.name}_size")
        out += [
            at_least(n, 1),
            at_least(n * d.size.step - d.size.span),
            below((n - 1) * d.size.step, d.size.span),
        ]
    return out


def positional(program: MdhProgram) -> list[Constraint]:
    reduced = {d.name for d in program.hom.dims_of("pw")}
    return [c for c in program.hom.domain if not c.names & reduced]


@dataclass(frozen=True, slots=True)
class Visit:
    """Unknown indices of a program's dimensions, and what they obey; ``coordinates``: of a nest's loops."""

    at: dict[str, Affine]
    rows: tuple[Constraint, ...]
    coordinates: tuple[str, ...] = ()

    def cell(self, index: Iterable[Affine]) -> tuple[Affine, ...]:
        return tuple(a.substitute(self.at) for a in index)


def point(program: MdhProgram, tag: str, domain: Iterable[Constraint] | None = None) -> Visit:
    """Any point of the program (of a part of its domain)."""
    at = {d.name: Affine.of(f"{d.name}{tag}") for d in program.hom.dims}
    rows = [r for d in program.hom.dims for r in size_rows(d, at[d.name])]
    rows += [c.substitute(at) for c in (program.hom.domain if domain is None else domain)]
    return Visit(at, tuple(rows))


def visit(nest: Nest, tag: str, domain: Iterable[Constraint] | None = None) -> Visit:
    """Any trip through a nest's loops, clipped at the sizes."""
    names = tuple(f"{x.dim}.{k}{tag}" for k, x in enumerate(nest.loops))
    at = {d.name: Affine() for d in nest.program.hom.dims}
    rows = []
    for x, name in zip(nest.loops, names, strict=True):
        at[x.dim] = at.get(x.dim, Affine()) + Affine.of(name, x.size)
        rows += loop_rows(x, name)
    for d in nest.program.hom.dims:
        rows += size_rows(d, at[d.name])
    rows += [c.substitute(at) for c in (nest.program.hom.domain if domain is None else domain)]
    return Visit(at, tuple(rows), names)


def loop_rows(x: Loop, name: str) -> list[Constraint]:
    n = Affine.of(name)
    return [at_least(n)] + ([] if x.count is None else [below(n, Affine.number(x.count))])


def same(a: Sequence[Affine], b: Sequence[Affine]) -> list[Constraint]:
    return [equal(x, y) for x, y in zip(a, b, strict=True)]


def differ(a: Affine, b: Affine) -> Iterator[Constraint]:
    yield below(a, b)
    yield below(b, a)


def agree(v: Visit, w: Visit, upto: int) -> list[Constraint]:
    """The coordinates of the outermost loops agree."""
    return [
        equal(Affine.of(a), Affine.of(b))
        for a, b in zip(v.coordinates[:upto], w.coordinates[:upto], strict=True)
    ]


def shown(p: Point) -> str:
    return ", ".join(f"{n} = {v}" for n, v in sorted(p.items()) if not n.endswith("#"))


def any_of(systems: Iterable[Sequence[Constraint]], what: str = "") -> str | None:
    """The first point of any of the systems, as text."""
    gave_up: GaveUp | None = None
    for rows in systems:
        try:
            found = find(rows)
        except GaveUp as e:
            gave_up = e
            continue
        if found is not None:
            return f"{what}{shown(found)}"
    if gave_up is not None:
        raise gave_up
    return None


# --------------------------------------------------------------------------- all stages of a program


def stage_obligations(
    program: MdhProgram, lowered: Lowered, known: Known, subject: str
) -> Iterator[Obligation]:
    for k, stage in enumerate(lowered.stages):
        name = subject if len(lowered.stages) == 1 else f"{subject}, stage {k + 1}"
        yield from _one(program, stage, known, name)


def _one(program: MdhProgram, stage: Stage, known: Known, name: str) -> Iterator[Obligation]:
    context = [*known.rows, *(at_least(a) for a in program.assumptions)]
    yield prove(name, INDEX_SET, lambda: _index_set(program, stage.program, context))
    yield prove(name, POSITIONS, lambda: any_of(_collisions(stage.program, context)))
    yield prove(name, READS, lambda: any_of(_read_elsewhere(stage, context)))
    if isinstance(stage, Nest):
        finest = _in_units(stage)
        yield prove(name, POINTS, lambda: _each_point_once(finest, context))
        if stage.threads[0] < stage.threads[1]:
            yield prove(name, OWNER, lambda: any_of(_shared_cells(finest, context)))
        if stage.packs:
            yield prove(name, PACKS, lambda: _packs(stage, context))
        if stage.keyed is not None:
            yield prove(name, OWNER, lambda: _table(stage))
        if stage.program.hom.function is not None:
            yield prove(name, RESULTS, lambda: _results(stage, context))
            yield prove(name, ORDER, lambda: _nest_order(stage, context))
    elif isinstance(stage, HistogramNest):
        yield prove(name, POINTS, lambda: _every_dimension_once(stage))
        yield prove(name, OWNER, lambda: _own_cells(stage))
        yield prove(name, ORDER, lambda: _histogram_order(stage))
    else:
        yield prove(name, ORDER, lambda: _scan_order(stage))


def program_obligations(program: MdhProgram, known: Known, subject: str) -> Iterator[Obligation]:
    context = [*known.rows, *(at_least(a) for a in program.assumptions)]
    yield prove(subject, BOUNDS, lambda: _bounds(program, known, context))


# --------------------------------------------------------------------------- points


def _index_set(whole: MdhProgram, part: MdhProgram, context: System) -> str | None:
    """The stage's dimensions are the program's, with the same index set.

    Later stages have fewer of them.  Copies of operands, too: what is never used need not be copied.
    """
    dims = {d.name: d for d in whole.hom.dims}
    extra = [d.name for d in part.hom.dims if d.name not in dims]
    if extra:
        return f"{', '.join(extra)} is no dimension of the program"
    if len(part.hom.dims) == len(dims):
        expected = point(whole, "").rows
    else:
        names = {d.name for d in part.hom.dims}
        kept = [c for c in positional(whole) if not c.names & (dims.keys() - names)]
        expected = tuple(r for n in names for r in size_rows(dims[n], Affine.of(n))) + tuple(kept)
    found, needed = point(part, "").rows, expected
    if not {s.buffer for s in part.out.stores} & {s.buffer for s in whole.out.stores}:
        others = (d for n, d in dims.items() if n not in {x.name for x in part.hom.dims})
        needed = (*expected, *(at_least(d.size.span, 1) for d in others))
    keep = {n for r in (*needed, *found, *context) for n in r.names}
    for every, some, what in ((needed, found, "left out"), (found, expected, "beyond it")):
        outside = missing([*context, *every], [[*context, *some]], keep)
        if outside is not None:
            return f"{what}: {shown(outside)}"
    return None


def _in_units(nest: Nest) -> Nest:
    """The nest in which every unit of a dimension that is divided at run time is a part of its own.

    Wherever parts are cut, each is a run of such units, and what two parts share two units do.
    """
    loops, gone = list(nest.loops), []
    for k in range(*nest.threads):
        if loops[k].dim in nest.divided:
            unit = next(j for j in range(k + 1, len(loops)) if loops[j].dim == loops[k].dim)
            loops[k] = replace(loops[k], size=loops[unit].size)
            gone.append(unit)
    return replace(nest, loops=tuple(x for k, x in enumerate(loops) if k not in gone))


def _each_point_once(nest: Nest, context: System) -> str | None:
    for d in nest.program.hom.dims:
        loops = [x for x in nest.loops if x.dim == d.name]
        index, (once, twice) = Affine.of(d.name), (_coordinates(loops, t) for t in ("", "'"))
        every = [*context, *size_rows(d, index)]
        reached = [*context, *once[1], equal(index, once[2])]
        keep = {n for r in every for n in r.names}
        left = missing(every, [[*reached, *size_rows(d, index)]], keep)
        if left is not None:
            return f"never visited: {shown(left)}"
        rows = [*context, *once[1], *twice[1], equal(once[2], twice[2]), *size_rows(d, once[2])]
        for a, b in zip(once[0], twice[0], strict=True):
            again = find([*rows, below(Affine.of(a), Affine.of(b))])
            if again is not None:
                return f"visited twice: {shown(again)}"
    strange = [x.dim for x in nest.loops if x.dim not in {d.name for d in nest.program.hom.dims}]
    return f"a loop over {strange[0]}, which is no dimension" if strange else None


def _coordinates(loops: Sequence[Loop], tag: str) -> tuple[list[str], list[Constraint], Affine]:
    names = [f"{x.dim}.{k}{tag}" for k, x in enumerate(loops)]
    rows = [r for x, n in zip(loops, names, strict=True) for r in loop_rows(x, n)]
    index = Affine()
    for x, n in zip(loops, names, strict=True):
        index = index + Affine.of(n, x.size)
    return names, rows, index


# --------------------------------------------------------------------------- cells


def _last(program: MdhProgram, store: Store, v: Visit) -> list[Constraint]:
    """The visit stands at the last index of the dimensions of which only that is stored."""
    out = []
    for name in store.at_last:
        d = program.dim(name)
        out.append(at_least((v.at[name] + 1) * d.size.step - d.size.span))
    return out


def _positions(program: MdhProgram) -> list[str]:
    return [d.name for d in program.hom.dims_of("cc", "ps")]


def _collisions(program: MdhProgram, context: System) -> Iterator[System]:
    """Two positions of the result that store in the same cell."""
    names = _positions(program)
    v, w = point(program, "", positional(program)), point(program, "'", positional(program))
    for s, t in itertools.combinations_with_replacement(program.out.stores, 2):
        if s.buffer != t.buffer or len(s.index) != len(t.index):
            continue
        rows = [*context, *v.rows, *w.rows, *same(v.cell(s.index), w.cell(t.index))]
        rows += [*_last(program, s, v), *_last(program, t, w)]
        for n in names:
            for c in differ(v.at[n], w.at[n]):
                yield [*rows, c]
        if s is not t and s.value != t.value:
            yield [*rows, *(equal(v.at[n], w.at[n]) for n in names)]


def _read_elsewhere(stage: Stage, context: System) -> Iterator[System]:
    """A point reads a cell of another position."""
    program = stage.program
    ordered = {stage.dim} if isinstance(stage, ScanNest) and stage.block is None else set()
    ordered |= {d.name for d in program.hom.dims_of("pw")}
    v, w = point(program, ""), point(program, "'", positional(program))
    u = point(program, "", positional(program))
    before = {d.name for d in program.hom.dims_of("ps")}  # initial values are read before anything is stored
    reads = [(a.buffer, v, a.index, ordered) for a in program.inp.accesses]
    reads += [(b, u, i, ordered | before) for e in program.out.initial for b, i in loads(e)]
    reads += [(b, u, i, ordered) for s in program.out.stores for b, i in loads(s.value)]
    for buffer, reader, index, early in reads:
        for s in program.out.stores:
            if s.buffer != buffer or len(s.index) != len(index):
                continue
            rows = [
                *context,
                *reader.rows,
                *w.rows,
                *same(reader.cell(index), w.cell(s.index)),
                *_last(program, s, w),
            ]
            for n in _positions(program):
                if n in early and n in s.at_last:
                    continue  # read before the last point is reached
                for c in differ(reader.at[n], w.at[n]):
                    yield [*rows, c]


def loads(e: Expr | None) -> list[tuple[str, tuple[Affine, ...]]]:
    """Cells that an initial value or an epilogue reads."""
    out = []
    for n in () if e is None else walk(e):
        if isinstance(n, Load):
            index = [as_affine(i) for i in n.index]
            if None not in index:
                out.append((n.buffer, tuple(i for i in index if i is not None)))
    return out


_Use = tuple[str, Visit, tuple[Affine, ...], tuple[Constraint, ...]]


def _bounds(program: MdhProgram, known: Known, context: System) -> str | None:
    """Every cell is inside of the extents, as far as these are known, or the source touches it."""
    touched = dict(known.touched)
    here, there = point(program, ""), point(program, "", positional(program))
    uses: list[_Use] = [(a.buffer, here, a.index, ()) for a in program.inp.accesses if not a.conditional]
    always: set[int] = set()  # components that are stored even where nothing contributes
    for s in program.out.stores:
        at = here if keeps_if_empty(s, program.out.initial) else there
        last = tuple(_last(program, s, at))
        uses.append((s.buffer, at, s.index, last))
        uses += [(b, at, i, last) for b, i in loads(s.value)]
        if at is there:
            always |= {n.component for n in walk(s.value) if isinstance(n, Result)}
    for k, e in enumerate(program.out.initial):
        uses += [(b, there if k in always else here, i, ()) for b, i in loads(e)]
    for buffer, v, index, last in dict.fromkeys((b, id(v), i, r) for b, v, i, r in uses):
        where = here if v == id(here) else there
        rows = [*context, *where.rows, *last]
        b = program.buffer(buffer)
        cell = where.cell(index)
        for k, (i, extent) in enumerate(zip(cell, b.extents, strict=True)):
            # a pointer may be used below its start; where the extent is known, index 0 is the first
            outside = [below(i, Affine())] if extent is not None or k > 0 or b.distinct else []
            outside += [at_least(i - extent)] if extent is not None else []
            for c in outside:
                least = [at_least(i, 1)] if buffer in known.own and b.rank == 1 and extent is not None else []
                bad = find([*rows, c, *(least if c is outside[-1] else [])])
                if bad is not None and not _touched_by_source(touched.get(buffer, ()), rows, cell):
                    return f"`{buffer}`, index {k + 1} is {i} of {extent}: {shown(bad)}"
    return None


def _touched_by_source(
    uses: Sequence[tuple[tuple[Constraint, ...], tuple[Affine, ...]]], rows: System, cell: tuple[Affine, ...]
) -> bool:
    """Every cell that is reached is one that the source reaches for the same parameters."""
    names = [f"@{k}" for k in range(len(cell))]
    mine = [*rows, *(equal(Affine.of(n), i) for n, i in zip(names, cell, strict=True))]
    some = []
    for theirs, index in uses:
        if len(index) == len(cell):
            some.append([*theirs, *(equal(Affine.of(n), i) for n, i in zip(names, index, strict=True))])
    inner = {n for r in rows for n in r.names}
    outer = {n for r in (c for s in some for c in s) for n in r.names}
    keep = {n for n in inner & outer if "#" not in n and "'" not in n and "." not in n} | set(names)
    iterators = {n.removesuffix("#") for n in outer if n.endswith("#")}
    try:
        return bool(some) and missing(mine, some, keep - iterators) is None
    except GaveUp:
        return False


# --------------------------------------------------------------------------- threads


def _shared_cells(nest: Nest, context: System) -> Iterator[System]:
    """Two points of different threads, between two barriers, that write one cell (or one part of it)."""
    program, (first, last) = nest.program, nest.threads
    domain = positional(program) if nest.results == "direct" else program.hom.domain
    v, w = visit(nest, "", domain), visit(nest, "'", domain)
    reduced = {d.name for d in program.hom.dims_of("pw")}
    common = [*context, *v.rows, *w.rows, *agree(v, w, first)]
    others = [
        (k, c)
        for k in range(first, last)
        for c in differ(Affine.of(v.coordinates[k]), Affine.of(w.coordinates[k]))
    ]
    if nest.results == "parts":
        rows = [*common, *(equal(v.at[n], w.at[n]) for n in _positions(program))]
        parts = [k for k in range(first, last) if nest.loops[k].dim in reduced]
        rows += [equal(Affine.of(v.coordinates[k]), Affine.of(w.coordinates[k])) for k in parts]
        for k, c in others:
            if k not in parts:
                yield [*rows, c]
        return
    for s, t in itertools.combinations_with_replacement(program.out.stores, 2):
        if s.buffer != t.buffer or len(s.index) != len(t.index):
            continue
        rows = [*common, *same(v.cell(s.index), w.cell(t.index))]
        rows += [*_last(program, s, v), *_last(program, t, w)]
        for _, c in others:
            yield [*rows, c]


# --------------------------------------------------------------------------- packs


def _packs(nest: Nest, context: System) -> str | None:
    program = nest.program
    for pack in nest.packs:
        accesses = [a for a in program.inp.accesses if a.buffer == pack.buffer]
        if any(s.buffer == pack.buffer for s in program.out.stores):
            return f"`{pack.buffer}` is written while its copy is read"
        if sorted(pack.layout) != list(range(len(pack.extents))) or not accesses:
            return f"the layout {pack.layout} of `{pack.buffer}` is no permutation"
        if nest.threads[0] < pack.at < nest.threads[1]:
            return f"`{pack.buffer}` is copied between the loops of threads"
        v, w = visit(nest, "", ()), visit(nest, "'", ())
        rows = [*context, *v.rows, *w.rows, *agree(v, w, pack.at)]
        for t, extent in enumerate(pack.extents):
            for a, b in itertools.product(accesses, repeat=2):
                apart = v.cell(a.index)[t] - w.cell(b.index)[t]
                bad = find([*rows, at_least(apart, extent)])
                if bad is not None:
                    return f"index {t + 1} of `{pack.buffer}` spans more than {extent}: {shown(bad)}"
        if pack.strip is not None and (wrong := _strip(nest, pack, accesses, [*context, *v.rows], v)):
            return wrong
        if program.hom.domain:
            for a in accesses:  # a copy fills boxes: what the domain leaves out is read, too
                names = [f"@{t}" for t in range(len(a.index))]
                box, inside = point(program, "", ()), point(program, "")
                systems = [
                    [
                        *context,
                        *p.rows,
                        *(equal(Affine.of(n), i) for n, i in zip(names, p.cell(a.index), strict=True)),
                    ]
                    for p in (box, inside)
                ]
                params = {n for r in context for n in r.names} | {
                    n for d in program.hom.dims for n in d.size.span.names
                }
                params |= {n for c in program.hom.domain for n in c.names} - {
                    d.name for d in program.hom.dims
                }
                nonempty = point(program, "*")
                bad = missing([*systems[0], *nonempty.rows], [systems[1]], params | set(names))
                if bad is not None:
                    return f"a copy reads a cell of `{pack.buffer}` that no point reads: {shown(bad)}"
    return None


def _strip(
    nest: Nest, pack: Pack, accesses: Sequence[Access], rows: Sequence[Constraint], v: Visit
) -> str | None:
    """Every tile lies in one strip, and the last coordinate of the copy is the place in it."""
    assert pack.strip is not None
    t, width = pack.strip
    d = nest.loops[-1].dim
    dims = {x.name for x in nest.program.hom.dims}
    for a in accesses:
        ones = [k for k, i in enumerate(a.index) if i.coefficient(d)]
        if ones != [t] or a.index[t].coefficient(d) != 1 or a.index[t] != accesses[0].index[t]:
            return f"`{pack.buffer}` has no strips along {d}"
        if a.index[t].names & dims != {d} or pack.layout[-1] != t:
            return f"strips of `{pack.buffer}` are not along {d} alone"
    scope = nest.tile if nest.program.hom.function is None else nest.accumulate
    offset = {False: Affine(), True: Affine()}  # of the tile in the copy, and in the tile
    for k, x in enumerate(nest.loops):
        if x.dim == d and k >= pack.at:
            offset[k >= scope] += Affine.of(v.coordinates[k], x.size)
    whole, rest = Affine.of("*strip", width), Affine.of("*rest")
    between = [at_least(rest, 1), below(rest, Affine.number(width)), equal(offset[False], whole + rest)]
    bad = find([*rows, *between]) or find([*rows, at_least(offset[True], width)])
    return None if bad is None else f"a tile reads two strips of `{pack.buffer}`: {shown(bad)}"


# --------------------------------------------------------------------------- results


def _results(nest: Nest, context: System) -> str | None:
    program = nest.program
    reduced = {d.name for d in program.hom.dims_of("pw")}
    if nest.accumulate < nest.threads[1]:
        return "the local tile holds loops of threads"
    if any(x.count is None and x.dim not in reduced for x in nest.loops[nest.accumulate :]):
        return "the local tile has no constant number of cells"
    if nest.results == "parts":
        return None
    if nest.results == "direct":
        v, w = visit(nest, ""), visit(nest, "'")
        rows = [*context, *v.rows, *w.rows, *(equal(v.at[n], w.at[n]) for n in _positions(program))]
        before = zip(v.coordinates[: nest.accumulate], w.coordinates[: nest.accumulate], strict=True)
        return any_of(
            ([*rows, below(Affine.of(a), Affine.of(b))] for a, b in before),
            "a finished cell is visited again: ",
        )
    if nest.results != "in place":
        return f"no such results: {nest.results}"
    return _not_in_place(program)


def _not_in_place(program: MdhProgram) -> str | None:
    """Why the output buffers cannot keep the components of unfinished cells."""
    kept = {s.plain: s for s in program.out.stores if s.plain is not None}
    buffers = {s.buffer for s in program.out.stores}
    if set(kept) != set(range(len(program.component_types))) or len(buffers) != len(program.out.stores):
        return "not every component has a cell of its own in the output"
    if len(kept) != len(program.out.stores):
        return "an epilogue needs the finished result"
    if any(a.buffer in buffers for a in program.inp.accesses):
        return "an unfinished cell is read"
    for c, s in kept.items():
        initial = program.out.initial[c]
        if s.at_last:
            return f"`{s.buffer}` keeps the last point only"
        if program.buffer(s.buffer).type != program.component_types[c]:
            return f"`{s.buffer}` has not the type of the component"
        if initial is None:
            return "there is no initial value to begin with"
        for buffer, index in loads(initial):
            if buffer in buffers and (buffer, index) != (s.buffer, s.index):
                return f"the initial value reads `{buffer}`, which is unfinished"
    return None


def _nest_order(nest: Nest, context: System) -> str | None:
    """Without a word that sums may be reordered, contributions come in the order of the text."""
    program = nest.program
    if program.hom.dims_of("ps"):
        return "a scanned dimension has no order among loops"
    function = program.hom.function
    assert function is not None
    reduced = [d.name for d in program.hom.dims_of("pw")]
    if program.fp != "exact" or function.exact or not reduced:
        return None
    if any(nest.loops[k].dim in reduced for k in range(*nest.threads)):
        return "threads share an inexact reduction under fp(exact)"
    v, w = visit(nest, ""), visit(nest, "'")
    rows = [*context, *v.rows, *w.rows, *(equal(v.at[n], w.at[n]) for n in _positions(program))]

    def turned() -> Iterator[System]:
        for k, n in enumerate(reduced):
            earlier = [*(equal(v.at[m], w.at[m]) for m in reduced[:k]), below(v.at[n], w.at[n])]
            for j in range(len(nest.loops)):
                later = below(Affine.of(w.coordinates[j]), Affine.of(v.coordinates[j]))
                yield [*rows, *earlier, *agree(v, w, j), later]

    return any_of(turned(), "combined in another order: ")


def _table(nest: Nest) -> str | None:
    """What a point adds, and where, depends on no cell; the key of a cell depends on no point."""
    assert nest.keyed is not None
    program, form = nest.program, nest.keyed
    cells = {d.name for d in program.hom.dims_of("cc")}
    points = {d.name for d in program.hom.dims} - cells
    of_points = (form.value, form.element, *(t.value for t in form.tests))
    if any(_depends_on(e, program) & cells for e in of_points):
        return "what a point adds to a table depends on the cell"
    return "the key of a cell depends on the point" if _depends_on(form.key, program) & points else None


def _depends_on(e: Expr, program: MdhProgram) -> set[str]:
    accesses = [program.inp.accesses[n.access] for n in walk(e) if isinstance(n, Operand)]
    return {n for a in accesses for i in a.index for n in i.names} | set(variables(e))


def _every_dimension_once(nest: HistogramNest) -> str | None:
    """Each dimension is looped over or computed, and only concatenated ones are computed."""
    met = [*nest.dims, *nest.form.cells]
    if sorted(met) != sorted(d.name for d in nest.program.hom.dims):
        return f"the dimensions met are {', '.join(met)}"
    reduced = [d for d in nest.form.cells if nest.program.op(d).kind != "cc"]
    return f"`{reduced[0]}` is computed, and not concatenated" if reduced else None


def _own_cells(nest: HistogramNest) -> str | None:
    """Threads that share a reduced dimension have private cells; others differ in their positions."""
    if not nest.shared or nest.copies or nest.program.op(nest.dims[0]).kind == "cc":
        return None
    return f"threads that share `{nest.dims[0]}` store in the same cells"


def _histogram_order(nest: HistogramNest) -> str | None:
    """``fp(exact)``: the points of a cell are met in the order of the program."""
    function = nest.program.hom.function
    if nest.program.fp != "exact" or function is None or function.exact:
        return None
    reduced = [d.name for d in nest.program.hom.dims_of("pw")]
    if nest.copies or [d for d in nest.dims if d in reduced] != reduced:
        return "inexact values are combined in another order"
    return None


def _scan_order(scan: ScanNest) -> str | None:
    program = scan.program
    kinds = {d.name: op.kind for d, op in zip(program.hom.dims, program.hom.combine, strict=True)}
    function = program.hom.function
    if kinds.get(scan.dim) != "ps" or any(k != "cc" for d, k in kinds.items() if d != scan.dim):
        return f"{scan.dim} is not the one scanned dimension beside concatenated ones"
    if any(kinds.get(d) != "cc" for d in scan.rows):
        return "threads share a dimension that is not concatenated"
    if scan.across and (kinds.get(scan.across) != "cc" or scan.block is not None or program.hom.domain):
        return f"points of {scan.across} cannot be scanned together"
    if scan.block is not None:
        if scan.block < 1 or scan.rows:
            return f"blocks of {scan.block} elements, rows {', '.join(scan.rows)}"
        if program.fp == "exact" and function is not None and not function.exact:
            return "an inexact scan in blocks under fp(exact)"
    return None


def indirect(program: MdhProgram) -> set[str]:
    """Buffers that the scalar function reads at computed indices."""
    exprs = (*program.hom.scalar.results, *stmt_exprs(program.hom.scalar.body))
    return {n.buffer for e in exprs for n in walk(e) if isinstance(n, Load)}


def _are_partners(n: Binary, program: MdhProgram) -> bool:
    a, b = _depends_on(n.a, program), _depends_on(n.b, program)
    return bool(a) and bool(b) and a != b and isinstance(n.a.type, ScalarType) and n.a.type.is_integer


def indices_of(program: MdhProgram) -> set[str]:
    """Integer buffers, if the scalar function reads at computed indices, or compares an index, or elements
    of different points: else no two of them would be equal.
    """
    dims = {d.name for d in program.hom.dims}
    compared = any(
        isinstance(n, Binary) and n.op == "==" and (variables(n) & dims or _are_partners(n, program))
        for e in program.hom.scalar.results
        for n in walk(e)
    )
    if not indirect(program) and not compared:
        return set()
    return {b.name for b in program.buffers if isinstance(b.type, ScalarType) and b.type.is_integer}
