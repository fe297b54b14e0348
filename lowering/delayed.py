"""Updates that wait: in a block of a host loop's iterations, cells that nothing reads are updated at its end.

    before   for k in [0, n): { ...; U: x[c] = x[c] op g(k, c) for the cells c of iteration k; ... }
    after    for b in [0, ceil(n/B)):
               for i in [0, B), k = B*b + i:
                 { ...; what U's g reads and later iterations change is copied;
                        U over the cells of iteration k outside of R(b); ... }
               x[c] = x[c] op (reduction over i of g(B*b + i, c))   for the cells c in R(b), for each such U

Factorisations without pivoting are of this form (``A[i][j] -= A[i][k]*A[k][j]`` for i, j > k), and closures
(``D[i][j] = min(D[i][j], D[i][k] + D[k][j])`` before and behind row and column k): one iteration touches the
whole matrix once per k, a block touches its rows and columns once per k and the rest once in all, in a
program that is a matrix product over the operators.  A cell is combined with the same values as before, in
the order of k.

    R(b)   the cells that U visits in every iteration of the block: lower(b) <= c < upper(b), per dimension.
           A dimension begins and ends at affine functions of k that do not decrease.
    kept   an operand whose cells a later iteration of the block stores: its values are copied, by iteration
           and by those dimensions of the cell that it depends on, which are not all

The cells in R may wait if, in the iterations of the block, nothing else touches them: no other access of U,
no access of another program.  That, and that an operand stays as it is, is shown for all sizes and
parameters (``certainly_empty``); what may not wait stays where it is.

An update of a whole row, in whose middle others read a cell in each iteration, is taken before, at and behind
that place first (``_in_parts``), where nothing may wait without.

    in     a host loop; which operator combines a cell with what (``Combination``; +, - and * are known)
    out    ``Blocks``: the loop of blocks, and the arrays of what is kept

Shown right by tests/test_delayed.py: against the interpreter's meaning of the loop, for random updates.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from lowering.host_tiles import cells_touched
from lowering.inside import evaluated
from lowering.programs import (
    Blocks,
    Rows,
    assumes,
    fresh,
    marked,
    places,
    points,
    same,
    until,
    with_iterators,
    with_values,
)
from mdh_core.combine import CC, CombineFunction, CombineOp, neutral, scalar_operator
from mdh_core.expr import (
    Affine,
    Binary,
    Const,
    Constraint,
    Expr,
    Load,
    Operand,
    Result,
    ScalarType,
    Select,
    Unary,
    Var,
    affine_expr,
    rewrite,
    walk,
)
from mdh_core.guarded import behind_conditions
from mdh_core.ir import (
    Access,
    Buffer,
    Dim,
    HostLoop,
    InputView,
    MdHom,
    MdhProgram,
    OutputView,
    ScalarFunction,
    Size,
    Step,
    Store,
)
from mdh_core.polytope import certainly_empty

# a cell's new value and the operand that is the cell before: ``op`` and ``g``; None if it is no update
Combination = Callable[[MdhProgram, Expr, Operand], tuple[CombineFunction, Expr] | None]


def delayed(
    loop: HostLoop, block: int, taken: Collection[str], combination: Combination | None = None
) -> Blocks | None:
    """The loop in blocks of so many iterations, its updates delayed; None where none may wait.

    ``taken``: names that the new iterators and arrays must not have.  ``combination``: more updates.
    """
    programs = [s for s in loop.body if isinstance(s, MdhProgram)]
    if len(programs) != len(loop.body) or loop.size.step != 1 or block < 2:
        return None
    if assumes(programs, {loop.iterator}):
        return None
    updates = _updates(programs, loop, block, combination)
    if not updates:
        programs = _in_parts(programs, loop, block, combination)
        updates = _updates(programs, loop, block, combination)
    return _Blocked(loop, programs, updates, block, taken).made() if updates else None


def _updates(
    programs: Sequence[MdhProgram], loop: HostLoop, block: int, combination: Combination | None
) -> dict[int, _Waiting]:
    """Those that may wait, by number."""
    found: dict[int, _Waiting] = {}
    for number in range(len(programs)):
        form = _waiting(programs, number, loop, block, combination)
        waiting = None if form is None else form.with_kept()
        if waiting is not None:
            found[number] = waiting
    return found


@dataclass(frozen=True, slots=True)
class _Axis:
    """One dimension of the cells: that of U which runs over it, where it begins and ends."""

    dim: str
    first: Affine  # in terms of the host loop's iterator
    end: Affine

    def in_rest(self, iterator: str, start: Affine, block: int) -> tuple[Affine, Affine]:
        """Where R begins and ends if the block begins at ``start``."""
        return self.first.substitute({iterator: start + (block - 1)}), self.end.substitute({iterator: start})


@dataclass(frozen=True, slots=True)
class _Waiting:
    """An update that may be delayed, as far as its form goes.

    number    of U among the programs of the host loop
    operand   of U: the cell that it updates
    function  that combines the cell
    element   with this
    block     iterations
    condition under which the cell is updated, None: always; it reads no cell that is updated
    kept      numbers of the operands that are copied
    """

    programs: Sequence[MdhProgram]
    number: int
    loop: HostLoop
    axes: tuple[_Axis, ...]
    operand: int
    function: CombineFunction
    element: Expr
    block: int
    condition: Expr | None = None
    kept: tuple[int, ...] = ()

    @property
    def update(self) -> MdhProgram:
        return self.programs[self.number]

    def with_kept(self) -> _Waiting | None:
        """With what is to be kept if the cells of R are updated after the block; None if they may not be."""
        # B*b is just a number here: a block that begins anywhere is looked at
        start = Affine.of("?start")
        if not self._rest_is_a_range(start) or not self._untouched(start):
            return None
        accesses = self.update.inp.accesses
        others = (k for k in range(len(accesses)) if k != self.operand)
        kept = tuple(k for k in others if not self._stays(accesses[k], start))
        if any(self._extents(accesses[k]) is None or not self._may_be_read(k) for k in kept):
            return None
        return replace(self, kept=kept)

    @property
    def asked(self) -> tuple[int, ...]:
        """Numbers of the operands that the condition reads."""
        found = () if self.condition is None else walk(self.condition)
        return tuple(dict.fromkeys(n.access for n in found if isinstance(n, Operand)))

    def _may_be_read(self, number: int) -> bool:
        """Whether the condition tells for each cell of an operand's copy that the operand is there."""
        accesses = self.update.inp.accesses
        if not accesses[number].conditional:
            return True
        own = set(self.axes_of(accesses[number]))
        always = isinstance(self.element, Select) and number in evaluated(self.element.then)
        return always and all(set(self.axes_of(accesses[k])) <= own for k in self.asked)

    def _rest_is_a_range(self, start: Affine) -> bool:
        """Whether R ends behind its beginning, where it does not end with every iteration's cells."""
        for axis in self.axes:
            lower, upper = axis.in_rest(self.loop.iterator, start, self.block)
            if axis.end.coefficient(self.loop.iterator) and not certainly_empty([start, lower - upper - 1]):
                return False
        return True

    def _untouched(self, start: Affine) -> bool:
        """Whether nothing but the update itself touches R in the block."""
        here = Affine.of("?here")
        buffer, own = self.update.out.stores[0].buffer, self.update.inp.accesses[self.operand]
        for k, p in enumerate(self.programs):
            cells = cells_touched(p)
            if cells is None:
                return False
            there = marked(p, "'") | {self.loop.iterator: here}
            for name, index in cells:
                if name != buffer or (k == self.number and index == own.index):
                    continue
                moved = [x.substitute(there) for x in index]
                rows = [start, *self._inside(here, start), *places(p, there, index)]
                if not certainly_empty([*rows, *self._in_rest(moved, start)]):
                    return False
        return True

    def _stays(self, read: Access, start: Affine) -> bool:
        """Whether what the cells of R read of an operand is the same after the block."""
        t, here, later = self.loop.iterator, Affine.of("?here"), Affine.of("?later")
        ends = [start, *self._inside(here, start), *self._inside(later, start)]
        names = marked(self.update, "") | {t: here}
        own = self.update.inp.accesses[self.operand]
        mine = points(self.update, names)
        mine += self._in_rest([x.substitute(names) for x in own.index], start)
        index = [x.substitute(names) for x in read.index]
        for k, p in enumerate(self.programs):
            after = later - here - (0 if k >= self.number else 1)
            there = marked(p, "'") | {t: later}
            for s in p.out.stores:
                if s.buffer != read.buffer:
                    continue
                written = [x.substitute(there) for x in s.index]
                storing = [*places(p, there, s.index), *same(index, written)]
                if not certainly_empty([*ends, *mine, *storing, after]):
                    return False
        return True

    def axes_of(self, read: Access) -> tuple[_Axis, ...]:
        """Those that an operand depends on."""
        names = {n for a in read.index for n in a.names}
        return tuple(a for a in self.axes if a.dim in names)

    def _extents(self, read: Access) -> tuple[Affine, ...] | None:
        """Of a copy of an operand, for one iteration: by the cell's place; None if unknown or all of it.

        A place lies within the extents that the array is declared with, which C does not ask of rows.
        """
        array = self.update.buffer(self.update.out.stores[0].buffer)
        chosen = self.axes_of(read)
        start, cell = Affine.of("?start"), Affine.of("?cell")
        extents: list[Affine] = []
        for axis, extent in zip(self.axes, array.extents, strict=True):
            if axis not in chosen:
                continue
            lower, upper = axis.in_rest(self.loop.iterator, start, self.block)
            rows = [start, self.loop.size.span - 1 - start, cell - lower, upper - 1 - cell]
            rows += self.update.assumptions
            if extent is None or not all(certainly_empty([*rows, x]) for x in (cell - extent, -cell - 1)):
                return None
            extents.append(extent)
        return None if len(chosen) == len(self.axes) else tuple(extents)

    def copy_of(self, number: int, name: str) -> Buffer:
        read = self.update.inp.accesses[number]
        extents = self._extents(read)
        assert extents is not None
        t = self.update.buffer(read.buffer).type
        return Buffer(name, t, (Affine.number(self.block), *extents), distinct=True)

    def _inside(self, now: Affine, start: Affine) -> Rows:
        """An iteration of the loop that lies in the block."""
        return [now - start, start + self.block - 1 - now, self.loop.size.span - 1 - now]

    def _in_rest(self, cell: Sequence[Affine], start: Affine) -> Rows:
        rows: Rows = []
        for c, axis in zip(cell, self.axes, strict=True):
            lower, upper = axis.in_rest(self.loop.iterator, start, self.block)
            rows += [c - lower, upper - 1 - c]
        return rows


def _waiting(
    programs: Sequence[MdhProgram], number: int, loop: HostLoop, block: int, combination: Combination | None
) -> _Waiting | None:
    """The form of an update: each cell ``x = x op e``, e of other operands."""
    p, t = programs[number], loop.iterator
    scalar = p.hom.scalar
    if (
        p.hom.domain
        or scalar.body
        or len(scalar.results) != 1
        or any(op.kind != "cc" for op in p.hom.combine)
    ):
        return None
    if len(p.out.stores) != 1 or p.out.stores[0].at_last or p.out.stores[0].plain != 0 or p.out.initial[0]:
        return None
    store = p.out.stores[0]
    own = [k for k, a in enumerate(p.inp.accesses) if (a.buffer, a.index) == (store.buffer, store.index)]
    if len(own) != 1:
        return None
    axes = _axes(p, store, t)
    found = _combination(p, own[0], combination)
    if axes is None or found is None:
        return None
    condition, function, element = found
    moving = {t, *(a.dim for a in axes)}
    for n in walk(element):
        if isinstance(n, Load) or n == Operand(own[0], n.type) or (isinstance(n, Var) and n.name in moving):
            return None
    return _Waiting(programs, number, loop, axes, own[0], function, element, block, condition)


def _combination(
    p: MdhProgram, own: int, combination: Combination | None
) -> tuple[Expr | None, CombineFunction, Expr] | None:
    """What the cell, operand number ``own``, is combined with, and the condition under which it is.

    Where the condition does not hold, it is combined with what changes nothing.
    """
    store, e = p.out.stores[0], p.hom.scalar.results[0]
    cell = Operand(own, p.buffer(store.buffer).type)

    def combined(e: Expr) -> tuple[CombineFunction, Expr] | None:
        found = _combined(e, own)
        return found if found is not None or combination is None else combination(p, e, cell)

    if not any(a.conditional for a in p.inp.accesses):
        always = combined(e)
        if always is not None:
            return None, *always
    condition, value = behind_conditions(p, store, e)
    sometimes = None if condition is None else combined(value)
    nothing = None if sometimes is None else neutral(sometimes[0])
    if condition is None or sometimes is None or nothing is None:
        return None
    function, element = sometimes
    asked = {n.access for n in walk(condition) if isinstance(n, Operand)}
    if any(p.inp.accesses[k].conditional for k in asked):
        return None
    return condition, function, Select(condition, element, nothing, element.type)


def _combined(e: Expr, own: int) -> tuple[CombineFunction, Expr] | None:
    """``e`` of ``x + e`` and ``x * e``, or ``-e`` of ``x - e``, where x is operand number ``own``."""
    if not isinstance(e, Binary) or e.op not in ("+", "-", "*") or not isinstance(e.type, ScalarType):
        return None
    function = scalar_operator("+" if e.op == "-" else e.op, e.type)
    sides = ((e.a, e.b),) if e.op == "-" else ((e.a, e.b), (e.b, e.a))
    for x, other in sides:
        if function and isinstance(x, Operand) and x.access == own and x.type == e.type == other.type:
            return function, Unary("-", other, e.type) if e.op == "-" else other
    return None


def _axes(p: MdhProgram, store: Store, t: str) -> tuple[_Axis, ...] | None:
    """Where the cells lie: every index is a dimension of its own and an offset; some begin or end later."""
    found: list[_Axis] = []
    dims = {d.name: d for d in p.hom.dims}
    for a in store.index:
        own = [n for n in a.names if n in dims]
        if len(own) != 1 or a.coefficient(own[0]) != 1 or dims[own[0]].size.step != 1:
            return None
        first = a - Affine.of(own[0])
        end = first + dims[own[0]].size.span
        if first.coefficient(t) < 0 or end.coefficient(t) < 0:
            return None
        found.append(_Axis(own[0], first, end))
    if len({x.dim for x in found}) != len(dims):
        return None
    return tuple(found) if any(x.first.coefficient(t) or x.end.coefficient(t) for x in found) else None


# --------------------------------------------------------------------------- parts


def _in_parts(
    programs: Sequence[MdhProgram], loop: HostLoop, block: int, combination: Combination | None
) -> list[MdhProgram]:
    """The programs, updates before, at and behind the places that others touch in their range.

    before   x[i] = D[i][k] for all i;  D[i][j] = min(D[i][j], x[i] + D[k][j]) for i > k and all j
    after    ...;  the update for j < k;  for j = k;  for j > k

    An update of cells that it does not read otherwise may run in parts, one after the other.
    """
    out: list[MdhProgram] = []
    for number, p in enumerate(programs):
        waiting = _waiting(programs, number, loop, block, combination)
        parts = [p]
        for k, axis in enumerate(() if waiting is None or not _apart(waiting) else waiting.axes):
            at = _place(programs, p.out.stores[0].buffer, k, axis, loop)
            if at is not None:
                ranges = ((axis.first, at), (at, at + 1), (at + 1, axis.end))
                parts = [_over(x, {axis.dim: axis.first}, {axis.dim: r}) for x in parts for r in ranges]
        out += parts
    return out


def _apart(waiting: _Waiting) -> bool:
    """Whether an update stores no cell that another of its points reads, in one iteration."""
    p = waiting.update
    one, other = marked(p, ""), marked(p, "'")
    written = [x.substitute(other) for x in p.out.stores[0].index]
    return all(
        certainly_empty(
            [*points(p, one), *points(p, other), *same([x.substitute(one) for x in a.index], written)]
        )
        for k, a in enumerate(p.inp.accesses)
        if k != waiting.operand and a.buffer == p.out.stores[0].buffer
    )


def _place(
    programs: Sequence[MdhProgram], buffer: str, k: int, axis: _Axis, loop: HostLoop
) -> Affine | None:
    """A place that moves with the loop, in a range that does not, at which a program touches the cells."""
    t = Affine.of(loop.iterator)
    if loop.iterator in axis.first.names | axis.end.names:
        return None
    for name, index in (c for p in programs for c in cells_touched(p) or ()):
        if name != buffer or index[k].names != {loop.iterator} or index[k].coefficient(loop.iterator) != 1:
            continue
        inside = [t, loop.size.span - 1 - t]
        if all(certainly_empty([*inside, x]) for x in (axis.first - index[k] - 1, index[k] - axis.end)):
            return index[k]
    return None


class _Blocked:
    """The new loop."""

    def __init__(
        self,
        loop: HostLoop,
        programs: Sequence[MdhProgram],
        updates: Mapping[int, _Waiting],
        block: int,
        taken: Collection[str],
    ) -> None:
        self.old, self.programs, self.updates, self.size = loop, programs, updates, block
        t, used = loop.iterator, {loop.iterator, *taken}
        for p in programs:
            used |= {d.name for d in p.hom.dims} | {x.name for x in p.params} | {b.name for b in p.buffers}
        self.outer, self.inner, self.reduced = (fresh(f"{t}_{x}", used) for x in ("block", "step", "part"))
        self.used = used | {self.outer, self.inner, self.reduced}
        self.start = Affine.of(self.outer, block)
        self.now = self.start + Affine.of(self.inner)
        self.known = [Affine.of(self.outer), Affine.of(self.inner), Affine.of(self.inner, -1) + (block - 1)]

    def made(self) -> Blocks | None:
        inner: list[Step] = []
        behind: list[Step] = []
        arrays: list[Buffer] = []
        for k, p in enumerate(self.programs):
            w = self.updates.get(k)
            parts = [with_values(p, {self.old.iterator: self.now})]
            if w is not None:
                own, copies = _Parts(self, w), self._copies(w)
                arrays += copies.values()
                parts = [*(own.copying(n, c) for n, c in copies.items()), *own]
                behind.append(own.rest(copies))
            for part in parts:
                step = self._until_the_end(part)
                if step is None:
                    return None
                inner.append(step)
        loop = replace(
            self.old, iterator=self.inner, size=Size(Affine.number(self.size)), body=tuple(inner)
        )
        return Blocks(
            replace(
                self.old,
                iterator=self.outer,
                size=Size(self.old.size.span, self.size),
                body=(loop, *behind),
            ),
            tuple(arrays),
        )

    def _copies(self, w: _Waiting) -> dict[int, Buffer]:
        """Arrays for the operands that are kept, by number."""
        copies: dict[int, Buffer] = {}
        for number in w.kept:
            name = fresh(f"{w.update.inp.accesses[number].buffer}_{self.old.iterator}", self.used)
            self.used.add(name)
            copies[number] = w.copy_of(number, name)
        return copies

    def _until_the_end(self, p: MdhProgram) -> MdhProgram | None:
        """The program, doing nothing in iterations after the loop's last; None where that cannot be said."""
        p = replace(p, params=with_iterators(p, self.old.iterator, (self.outer, self.inner)))
        return until(p, self.now, self.old.size.span, self.known)


def _over(
    p: MdhProgram, firsts: Mapping[str, Affine], ranges: Mapping[str, tuple[Affine, Affine]]
) -> MdhProgram:
    """An update over other ranges of cells in some dimensions; ``firsts``: where they begin in it."""
    moved, sizes = {}, {d.name: d.size for d in p.hom.dims}
    for dim, (begins, ends) in ranges.items():
        if begins != firsts[dim]:
            moved[dim] = Affine.of(dim) + begins - firsts[dim]
        sizes[dim] = Size(ends - begins)
    dims = tuple(Dim(d.name, sizes[d.name]) for d in p.hom.dims)
    return with_values(replace(p, hom=replace(p.hom, dims=dims)), moved)


class _Parts:
    """What becomes of one update: its cells outside of R, iterated over; copies; the cells in R."""

    def __init__(self, blocked: _Blocked, waiting: _Waiting) -> None:
        self.b, self.w = blocked, waiting
        self.bounds = [a.in_rest(blocked.old.iterator, blocked.start, blocked.size) for a in waiting.axes]

    def __iter__(self) -> Iterator[MdhProgram]:
        """U over the cells of one iteration outside of R: beside R in an axis, within R in all before it."""
        t, now = self.b.old.iterator, self.b.now
        here = with_values(self.w.update, {t: now})
        for k, axis in enumerate(self.w.axes):
            lower, upper = self.bounds[k]
            end = axis.end.substitute({t: now})
            for begins, ends in ((axis.first.substitute({t: now}), lower), (upper, end)):
                if begins == ends:
                    continue
                ranges = {a.dim: bounds for a, bounds in zip(self.w.axes[:k], self.bounds[:k], strict=True)}
                part = _over(here, self._firsts(now), ranges | {axis.dim: (begins, ends)})
                over = [Affine.of(axis.dim) + begins - end, ends - begins - 1 - Affine.of(axis.dim)]
                if not certainly_empty([*self.b.known, *over, self.b.old.size.span - 1 - now]):
                    inside = Constraint(end - begins - 1 - Affine.of(axis.dim))
                    part = replace(part, hom=replace(part.hom, domain=(*part.hom.domain, inside)))
                yield part

    def _in_rest(self, now: Affine) -> MdhProgram:
        """The update, of iteration ``now``, over the cells in R."""
        here = with_values(self.w.update, {self.b.old.iterator: now})
        ranges = {a.dim: x for a, x in zip(self.w.axes, self.bounds, strict=True)}
        return _over(here, self._firsts(now), ranges)

    def _firsts(self, now: Affine) -> dict[str, Affine]:
        return {a.dim: a.first.substitute({self.b.old.iterator: now}) for a in self.w.axes}

    def _place(self, read: Access, iteration: str) -> tuple[Affine, ...]:
        """In the copy of an operand of a cell in R."""
        chosen = self.w.axes_of(read)
        cells = [
            Affine.of(a.dim) + lower
            for a, (lower, _) in zip(self.w.axes, self.bounds, strict=True)
            if a in chosen
        ]
        return (Affine.of(iteration), *cells)

    def copying(self, number: int, copy: Buffer) -> MdhProgram:
        """What the cells in R read of an operand in this iteration, into its copy."""
        here = self._in_rest(self.b.now)
        read = self.w.update.inp.accesses[number]
        chosen = {a.dim for a in self.w.axes_of(read)}
        t = copy.type
        # where another dimension has no cells, nothing is read
        some = tuple(Constraint(d.size.span - 1) for d in here.hom.dims if d.name not in chosen)
        dims = tuple(d for d in here.hom.dims if d.name in chosen)
        numbers = [number, *(k for k in self.w.asked if k != number)] if read.conditional else [number]
        value: Expr = Operand(0, t)
        if read.conditional and self.w.condition is not None and isinstance(t, ScalarType):
            new = {k: n for n, k in enumerate(numbers)}
            condition = rewrite(
                self.w.condition,
                lambda e: replace(e, access=new[e.access]) if isinstance(e, Operand) else None,
            )
            value = Select(condition, value, Const(0.0 if t.is_float else 0, t), t)
        accesses = tuple(here.inp.accesses[k] for k in numbers)
        return replace(
            here,
            buffers=(*(here.buffer(b) for b in dict.fromkeys(a.buffer for a in accesses)), copy),
            inp=InputView(accesses),
            hom=MdHom(dims, ScalarFunction((value,)), tuple(CC for _ in dims), some),
            out=OutputView((None,), (Store(copy.name, self._place(read, self.b.inner), Result(0, t)),)),
            functions=(),
        )

    def rest(self, copies: Mapping[int, Buffer]) -> MdhProgram:
        """U over R, all iterations of the block at once: a reduction that begins with what the cells hold."""
        u, b = self.w.update, self.b
        now = b.start + Affine.of(b.reduced)
        here = self._in_rest(now)
        store, (value,) = here.out.stores[0], here.hom.scalar.results
        types = {x.name: x.type for x in u.params if isinstance(x.type, ScalarType)}
        accesses = [
            Access(copies[k].name, self._place(u.inp.accesses[k], b.reduced)) if k in copies else a
            for k, a in enumerate(here.inp.accesses)
            if k != self.w.operand
        ]
        element = rewrite(self.w.element, self._renumbered)
        program = replace(
            here,
            params=with_iterators(here, b.old.iterator, (b.outer,)),
            buffers=(*here.buffers, *copies.values()),
            inp=replace(here.inp, accesses=tuple(accesses)),
            hom=replace(
                here.hom,
                dims=(*here.hom.dims, Dim(b.reduced, Size(Affine.number(b.size)))),
                scalar=ScalarFunction((element,)),
                combine=(*(CC for _ in here.hom.dims), CombineOp("pw", self.w.function)),
            ),
            out=replace(
                here.out,
                initial=(Load(store.buffer, tuple(affine_expr(x, types) for x in store.index), value.type),),
                stores=(replace(store, value=Result(0, value.type)),),
            ),
        )
        beyond = now - b.old.size.span
        if certainly_empty([*b.known, Affine.of(b.reduced), *points(program, {}), beyond]):
            return program
        return replace(program, hom=replace(program.hom, domain=(Constraint(-beyond - 1),)))

    def _renumbered(self, e: Expr) -> Expr | None:
        if isinstance(e, Operand) and e.access > self.w.operand:
            return replace(e, access=e.access - 1)
        return None
