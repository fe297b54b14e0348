"""How much work a nest is and what memory it must touch: counted exactly from its polyhedra.

    LiftedNest, values of its parameters  ->  Counts      (iterations, operations by kind, cells, bytes)

Iterations are integer points of the programs' domains together with the host loops around them.  The cells of
a buffer are the union of the images of its index functions, each cell once.  ``moved`` bytes are what a cache
that never throws anything out would have to read and write: cells that are read before the nest wrote
them, and cells that it writes.  Their ratio to the operations is the arithmetic intensity of a roofline.

Where a number is not exact (an index that depends on data, a read under a condition, a loop that depends on
data), it is a bound or an estimate, ``exact`` is false, and ``notes`` say why.
Shown right by counting one by one at small sizes (tests/test_counts.py).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from emit.host_text import Loops, leaves
from lifter.lift import LiftedNest
from lifter.polyhedral import Image, Part, Rows, apart
from lowering.facts import facts
from lowering.traffic import footprint, uses
from mdh_core.counting import NotCountedError, Piece, count, number
from mdh_core.expr import (
    Affine,
    Call,
    Function,
    If,
    Load,
    Stmt,
    While,
    as_affine,
    stmt_exprs,
    walk,
)
from mdh_core.ir import Buffer, MdhProgram, Sequential, Store, keeps_if_empty
from mdh_core.polytope import rows_of
from mdh_lift import nest_sizes
from mdh_lift.c_value import NotAnInteger
from mdh_lift.operations import FLOATING, of_body, operations
from mdh_lift.subject import fitting, repaired

_CONDITION = "reads under a condition are counted as if all took place"
_DATA = "indices that depend on data: at most so many cells"
_BRANCH = "both sides of branches are counted"
_LOOP = "loops of the scalar function whose length depends on data are counted as one iteration"
_PARTS = "statements that stay as they were are not counted"
_ESTIMATE = "some sets were too intricate to count: estimated"


@dataclass(frozen=True, slots=True)
class BufferCount:
    """Cells of one buffer that the nest reads and writes, each counted once.

    ``first``: cells that are read before the nest wrote them; they come from outside.
    """

    name: str
    type: str
    element: int  # bytes
    read: int
    written: int
    first: int
    exact: bool = True

    @property
    def moved(self) -> int:
        """Bytes that are read from memory and written to it at least."""
        return (self.first + self.written) * self.element


@dataclass(frozen=True, slots=True)
class Counts:
    """What a nest does at given sizes.

    iterations   points of all programs, over all iterations of host loops
    formula      the same as a polynomial of the parameters, empty where that is no single one
    operations   (kind, "float" or "int", number) of scalar functions, combine functions and epilogues;
                 index arithmetic is not counted
    temporaries  bytes of arrays that only the generated kernel has; not part of ``moved``
    exact        false where anything is a bound or an estimate; ``notes`` tell what
    """

    iterations: int
    formula: str
    operations: tuple[tuple[str, str, int], ...]
    buffers: tuple[BufferCount, ...]
    temporaries: int = 0
    exact: bool = True
    notes: tuple[str, ...] = ()

    @property
    def flops(self) -> int:
        """Floating-point operations, each of ``FLOATING`` as one."""
        return sum(n for kind, of, n in self.operations if of == "float" and kind in FLOATING)

    @property
    def moved(self) -> int:
        """Bytes between memory and a cache that holds everything."""
        return sum(b.moved for b in self.buffers)

    @property
    def intensity(self) -> float | None:
        """Floating-point operations per byte; None where nothing is moved or nothing computed."""
        return self.flops / self.moved if self.moved and self.flops else None

    def as_json(self) -> dict[str, object]:
        """Plain values; ``intensity`` is null where there is none."""
        kinds = [{"kind": kind, "type": of, "count": n} for kind, of, n in self.operations]
        return {
            "iterations": self.iterations, "formula": self.formula, "operations": kinds,
            "flops": self.flops, "bytes": self.moved, "intensity": self.intensity,
            "buffers": [asdict(b) | {"moved": b.moved} for b in self.buffers],
            "temporaries": self.temporaries, "exact": self.exact, "notes": list(self.notes),
        }  # fmt: skip


def usual_counts(
    lifted: LiftedNest, sizes: Mapping[str, int] | None = None
) -> tuple[dict[str, int], Counts] | None:
    """Sizes and counts at the sizes that are tuned for: of the directive, or those that ``tune`` would take.

    ``sizes``: others of the nest's integer variables.  None where nothing was
    lifted, where sizes make no sense, or where one cannot be told from the source.
    """
    if not lifted.programs:
        return None
    try:
        wanted = {**nest_sizes.sizes_of(lifted), **(sizes or {})}
        variables = (repaired if sizes or lifted.nest.directive.sizes else fitting)(lifted, wanted)
        params = None if variables is None else nest_sizes.parameter_values(lifted, variables)
    except NotAnInteger:  # the length of a row that only a compiler knows
        return None
    return None if variables is None or params is None else (variables, counts(lifted, params))


def counts(lifted: LiftedNest, params: Mapping[str, int]) -> Counts:
    """The counts at values of the integer parameters (as ``nest_sizes.parameter_values`` gives them).

    Raises ``KeyError`` where a parameter that matters has no value.
    """
    work = _Work(dict(params))
    for leaf, loops in leaves(lifted.program):
        if isinstance(leaf, Sequential):
            work.note(_PARTS)
        else:
            work.program(leaf, loops)
    hidden = {b.name for b in lifted.temporaries}
    buffers = work.buffers()
    return Counts(
        work.iterations,
        _formula(lifted),
        tuple((kind, of, n) for (kind, of), n in sorted(work.operations.items())),
        tuple(b for b in buffers if b.name not in hidden),
        sum(max(b.read, b.written) * b.element for b in buffers if b.name in hidden),
        work.exact,
        tuple(work.notes),
    )


# --------------------------------------------------------------------------- domains


def _loop_rows(loops: Loops) -> list[Affine]:
    rows = []
    for x in loops:
        t = Affine.of(x.iterator)
        rows += [t, x.size.span - 1 - t * x.size.step]
    return rows


def _domain(p: MdhProgram, loops: Loops, dims: Iterable[str] | None = None) -> list[Affine]:
    """Rows of the points; with ``dims``, of the positions that these dimensions make up."""
    kept = {d.name for d in p.hom.dims} if dims is None else set(dims)
    other = {d.name for d in p.hom.dims} - kept
    rows = _loop_rows(loops)
    for d in p.hom.dims:
        if d.name in kept:
            i = Affine.of(d.name)
            rows += [i, d.size.span - 1 - i * d.size.step]
    return rows + rows_of(c for c in p.hom.domain if not c.names & other)


def _names(p: MdhProgram, loops: Loops) -> list[str]:
    return [*(x.iterator for x in loops), *(d.name for d in p.hom.dims)]


def _formula(lifted: LiftedNest) -> str:
    """The iterations as one polynomial, for parameters that make no loop empty."""
    pieces: list[Piece] = []
    for p, loops in leaves(lifted.program):
        if not isinstance(p, MdhProgram):
            continue
        context = [d.size.span - 1 for d in p.hom.dims] + [x.size.span - 1 for x in loops]
        inner = set(_names(p, loops))
        context = [r for r in context if not r.names & inner]
        try:
            found = count(_domain(p, loops), inner, context)
        except NotCountedError:
            return ""
        if len(found) != 1:
            return ""
        pieces += found
    if not pieces:
        return ""
    whole = pieces[0].polynomial
    for piece in pieces[1:]:
        whole = whole + piece.polynomial
    return str(whole)


# --------------------------------------------------------------------------- counting


def _statements(body: Sequence[Stmt], functions: Mapping[str, Function]) -> Iterator[Stmt]:
    """All statements, those of called functions too."""
    for s in body:
        yield s
        if isinstance(s, If):
            yield from _statements((*s.then, *s.other), functions)
        elif isinstance(s, While):
            yield from _statements(s.body, functions)
        for e in stmt_exprs((s,)):
            for n in walk(e):
                if isinstance(n, Call) and n.function in functions:
                    yield from _statements(functions[n.function].body, functions)


@dataclass(frozen=True, slots=True)
class _Use:
    """Cells that a program reads or writes: its place in the text, the host loops around it, the image."""

    place: int
    loops: Loops
    image: Image


@dataclass
class _Cells:
    """What is known of one buffer so far; bounds where there is no image."""

    buffer: Buffer
    reads: list[_Use] = field(default_factory=list)
    writes: list[_Use] = field(default_factory=list)
    at_most: int = 0  # cells that are read at indices which depend on data
    fallback: int = 0  # an estimate for sets that are too intricate


@dataclass
class _Work:
    params: dict[str, int]
    iterations: int = 0
    programs: int = 0  # so many were looked at
    operations: Counter[tuple[str, str]] = field(default_factory=Counter)
    cells: dict[str, _Cells] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    exact: bool = True

    def note(self, text: str) -> None:
        self.exact = False
        if text not in self.notes:
            self.notes.append(text)

    def _at(self, rows: Iterable[Affine]) -> Rows:
        known = {n: Affine.number(v) for n, v in self.params.items()}
        return tuple(r.substitute(known) for r in rows)

    def program(self, p: MdhProgram, loops: Loops) -> None:
        functions = {f.name: f for f in p.functions}
        domain, names = self._at(_domain(p, loops)), _names(p, loops)
        kept = [d.name for d in p.hom.dims_of("cc", "ps")]
        points = self._number(domain, names, p)
        self.iterations += points
        scalar = p.hom.scalar
        per_point = of_body(scalar.body, functions)
        for e in scalar.results:
            per_point += operations(e, functions)
        self._add(per_point, points)
        branches = list(_statements(scalar.body, functions))
        if any(isinstance(s, If) for s in branches):
            self.note(_BRANCH)
        if any(isinstance(s, While) for s in branches):
            self.note(_LOOP)
        f = p.hom.function
        if f is not None:
            per_pair = sum((operations(v, functions) for v in f.values), Counter[tuple[str, str]]())
            lines = [x.iterator for x in loops] + [d.name for d in p.hom.dims_of("cc")]
            begun = all(e is not None for e in p.out.initial)
            first = 0 if begun else self._images([(domain, tuple(map(Affine.of, lines)))], p)
            self._add(per_pair, max(0, points - first))
        for e in (e for e in p.out.initial if e is not None):
            self._add(operations(e, functions), self._positions(p, loops, kept))
        for store in p.out.stores:
            if store.plain is None:
                self._add(operations(store.value, functions), self._positions(p, loops, kept, store))
        self._touch(p, loops, domain, points)

    def _add(self, per: Counter[tuple[str, str]], times: int) -> None:
        for key, n in per.items():
            self.operations[key] += n * times

    def _positions(self, p: MdhProgram, loops: Loops, kept: Sequence[str], store: Store | None = None) -> int:
        rows = self._stored(p, loops, kept, store)
        return self._number(rows, [*(x.iterator for x in loops), *kept], p)

    def _stored(self, p: MdhProgram, loops: Loops, kept: Sequence[str], store: Store | None) -> Rows:
        rows = _domain(p, loops, kept)
        for name in store.at_last if store is not None else ():
            size = p.dim(name).size
            last = Affine.of(name) * size.step - size.span + size.step  # only the last index is stored
            rows.append(last)
        return self._at(rows)

    def _touch(self, p: MdhProgram, loops: Loops, domain: Rows, points: int) -> None:
        kept = [d.name for d in p.hom.dims_of("cc", "ps")]
        read: list[tuple[str, Image]] = []
        for a in p.inp.accesses:
            if a.conditional:
                self.note(_CONDITION)
            read.append((a.buffer, (domain, self._at(a.index))))
        out = self._stored(p, loops, kept, None)
        updated = any(keeps_if_empty(s, p.out.initial) for s in p.out.stores)
        at_output = [(e, domain if updated else out) for e in p.out.initial if e is not None]
        at_output += [(s.value, out) for s in p.out.stores]
        for load, rows in ((n, rows) for e, rows in at_output for n in walk(e) if isinstance(n, Load)):
            index = tuple(as_affine(i) for i in load.index)
            if any(i is None for i in index):
                self._by_data(p, load.buffer, points)
            else:
                read.append((load.buffer, (rows, self._at(i for i in index if i is not None))))
        for e in (*p.hom.scalar.results, *stmt_exprs(p.hom.scalar.body)):
            for n in walk(e):
                if isinstance(n, Load):
                    self._by_data(p, n.buffer, points)
        for name, image in read:
            self._of(p, name).reads.append(_Use(self.programs, loops, image))
        for s in p.out.stores:
            rows = domain if keeps_if_empty(s, p.out.initial) else self._stored(p, loops, kept, s)
            image = (rows, self._at(s.index))
            self._of(p, s.buffer).writes.append(_Use(self.programs, loops, image))
        self.programs += 1
        for name, use in uses(facts(p, self._sizes(p, loops))).items():
            covered = {d: float(v) for d, v in self._sizes(p, loops).items()}
            cells = self._of(p, name)
            cells.fallback = max(cells.fallback, round(footprint(use, covered, True).lines / use.element))

    def _sizes(self, p: MdhProgram, loops: Loops) -> dict[str, int]:
        env = dict(self.params)
        for x in loops:  # in the middle of the host loops
            env[x.iterator] = max(0, x.size.evaluate(env) // 2)
        return p.sizes(env)

    def _by_data(self, p: MdhProgram, name: str, points: int) -> None:
        self.note(_DATA)
        cells = self._of(p, name)
        extents = self._at(e for e in cells.buffer.extents if e is not None)
        whole = len(extents) == cells.buffer.rank and all(e.is_constant for e in extents)
        most = math.prod(e.const for e in extents) if whole else points
        cells.at_most = max(cells.at_most, min(points, most))

    def _of(self, p: MdhProgram, name: str) -> _Cells:
        return self.cells.setdefault(name, _Cells(p.buffer(name)))

    def _number(self, rows: Rows, names: Sequence[str], p: MdhProgram) -> int:
        try:
            return number(rows, names)
        except NotCountedError:
            found = self._counted([Part(((rows, tuple(map(Affine.of, names))),))])
            if found is not None:
                return found
            self.note(_ESTIMATE)
            return facts(p, p.sizes(self.params)).points

    def _images(self, images: Sequence[Image], p: MdhProgram) -> int:
        found = self._counted([Part(tuple(images))])
        if found is None:
            self.note(_ESTIMATE)
            return math.prod(p.sizes(self.params)[d.name] for d in p.hom.dims_of("cc"))
        return found

    def _counted(self, parts: Sequence[Part]) -> int | None:
        """Values in any of the parts, each counted once; None: not known."""
        pieces = apart(parts)
        if pieces is None:
            return None
        axes = {n for x in pieces if not isinstance(x, int) for r in x for n in r.names}
        try:
            return sum(x if isinstance(x, int) else number(x, axes) for x in pieces)
        except NotCountedError:
            return None

    def buffers(self) -> list[BufferCount]:
        out = []
        for name, cells in self.cells.items():
            reads, writes = (
                [Part(tuple(dict.fromkeys(u.image for u in uses)))] if uses else []
                for uses in (cells.reads, cells.writes)
            )
            first = [self._first(read, cells.writes) for read in cells.reads]
            read, written, before = self._counted(reads), self._counted(writes), self._counted(first)
            exact = not cells.at_most
            if read is None or written is None or before is None:
                self.note(_ESTIMATE)
                exact = False
                read = cells.fallback if reads and read is None else read or 0
                written = cells.fallback if writes and written is None else written or 0
                before = read if before is None else before
            b = cells.buffer
            before = max(before, 0 if cells.writes else cells.at_most)
            read = max(read, cells.at_most)
            out.append(BufferCount(name, str(b.type), b.type.size, read, written, before, exact))
        return out

    def _first(self, read: _Use, writes: Sequence[_Use]) -> Part:
        """Cells of a read that no write came before: the iterators of the host loops are coordinates, too."""
        times = tuple(Affine.of(x.iterator) for x in read.loops)
        rows, index = read.image
        around = self._at(_loop_rows(read.loops))
        earlier: list[Image] = []
        for write in writes:
            primed = {x.iterator: Affine.of(f"{x.iterator}'") for x in write.loops}
            their_rows, their_index = (tuple(a.substitute(primed) for a in part) for part in write.image)
            common = [x.iterator for x, y in zip(read.loops, write.loops, strict=False) if x is y]
            for case in _earlier(common, write.place < read.place):
                earlier.append(((*around, *their_rows, *case), (*times, *their_index)))
        return Part(((rows, (*times, *index)),), tuple(dict.fromkeys(earlier)), len(times))


def _earlier(common: Sequence[str], stands_first: bool) -> Iterator[Rows]:
    """Cases in which primed iterators of common loops are before the others, or the same where the text
    decides."""
    for level in range(len(common) + (1 if stands_first else 0)):
        case: list[Affine] = []
        for name in common[:level]:
            gap = Affine.of(name) - Affine.of(f"{name}'")
            case += [gap, -gap]
        if level < len(common):
            case.append(Affine.of(common[level]) - Affine.of(f"{common[level]}'") - 1)
        yield tuple(case)
