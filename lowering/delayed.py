"""Updates that wait: in a block of a host loop's iterations, cells that nothing reads are updated at its end.

    before   for k in [0, n): { ...; U: x[c] = x[c] + g(k, c) for the cells c of iteration k; ... }
    after    for b in [0, ceil(n/B)):
               for i in [0, B), k = B*b + i: { ...; U over the cells of iteration k outside of R(b); ... }
               x[c] = x[c] + sum over i of g(B*b + i, c)   for the cells c in R(b)

Factorisations without pivoting are of this form (``A[i][j] -= A[i][k]*A[k][j]`` for i, j > k): one iteration
touches the whole matrix once per k, a block touches its rows and columns once per k and the rest once in all,
in a program that is a matrix product.  Contributions to a cell are added in the order of k, as before.

    R(b)   the cells that U visits in every iteration of the block: lower(b) <= c < upper, per dimension.
           A dimension begins at an affine function of k that does not decrease, and ends at one place.

The cells in R may wait if, in the iterations of the block,

    nothing else touches them     no other access of U, no access of another program;
    what g reads stays            no store of the block, after g was read, touches an operand of theirs.

Both are shown for all sizes and parameters (``certainly_empty``), or nothing is delayed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from lowering.host_tiles import cells_touched
from lowering.programs import (
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
from mdh_core.combine import CC, CombineOp, scalar_operator
from mdh_core.expr import (
    Affine,
    Binary,
    Constraint,
    Expr,
    Load,
    Operand,
    Result,
    ScalarType,
    Unary,
    Var,
    affine_expr,
    rewrite,
    walk,
)
from mdh_core.ir import (
    Dim,
    HostLoop,
    MdhProgram,
    ScalarFunction,
    Size,
    Step,
    Store,
)
from mdh_core.polytope import certainly_empty


def delayed(loop: HostLoop, block: int, taken: Collection[str]) -> HostLoop | None:
    """The loop in blocks of so many iterations, one of its updates delayed; None where none may wait.

    ``taken``: names that the new iterators must not have.
    """
    programs = [s for s in loop.body if isinstance(s, MdhProgram)]
    if len(programs) != len(loop.body) or loop.size.step != 1 or block < 2:
        return None
    if assumes(programs, {loop.iterator}):
        return None
    for number in range(len(programs)):
        waiting = _waiting(programs, number, loop)
        if waiting is not None and waiting.may_wait(block):
            return _Blocked(waiting, block, taken).loop()
    return None


@dataclass(frozen=True, slots=True)
class _Axis:
    """One dimension of the cells: that of U which runs over it, where it begins and ends."""

    dim: str
    first: Affine  # in terms of the host loop's iterator
    end: Affine

    def lower(self, last: Affine, iterator: str) -> Affine:
        """Where R begins if ``last`` is the last iteration of the block."""
        return self.first.substitute({iterator: last})


@dataclass(frozen=True, slots=True)
class _Waiting:
    """An update that may be delayed, as far as its form goes.

    number    of U among the programs of the host loop
    operand   of U: the cell that it updates
    element   what is added to it
    """

    programs: Sequence[MdhProgram]
    number: int
    loop: HostLoop
    axes: tuple[_Axis, ...]
    operand: int
    element: Expr

    @property
    def update(self) -> MdhProgram:
        return self.programs[self.number]

    def may_wait(self, block: int) -> bool:
        """Whether the cells of R may be updated after the block."""
        touched = [cells_touched(p) for p in self.programs]
        t, buffer = self.loop.iterator, self.update.out.stores[0].buffer
        # B*b is just a number here: a block that begins anywhere is looked at
        start, here, later = Affine.of("?start"), Affine.of("?here"), Affine.of("?later")
        ends = [start, *self._inside(here, start, block), *self._inside(later, start, block)]
        own = self.update.inp.accesses[self.operand]
        for k, (p, cells) in enumerate(zip(self.programs, touched, strict=True)):
            if cells is None:
                return False
            there = marked(p, "'") | {t: here}
            for name, index in cells:
                if name != buffer or (k == self.number and index == own.index):
                    continue
                moved = [x.substitute(there) for x in index]
                if not certainly_empty(
                    [*ends, *places(p, there, index), *self._in_rest(moved, start + block - 1)]
                ):
                    return False
        names = marked(self.update, "") | {t: here}
        mine = points(self.update, names)
        mine += self._in_rest([x.substitute(names) for x in own.index], start + block - 1)
        for name, index in cells_touched(self.update) or []:
            if (name, index) == (own.buffer, own.index):
                continue
            read = [x.substitute(names) for x in index]
            for k, p in enumerate(self.programs):
                after = later - here - (0 if k >= self.number else 1)
                there = marked(p, "'") | {t: later}
                for s in p.out.stores:
                    if s.buffer != name:
                        continue
                    written = [x.substitute(there) for x in s.index]
                    storing = [*places(p, there, s.index), *same(read, written)]
                    if not certainly_empty([*ends, *mine, *storing, after]):
                        return False
        return True

    def _inside(self, now: Affine, start: Affine, block: int) -> Rows:
        """An iteration of the loop that lies in the block."""
        return [now - start, start + block - 1 - now, self.loop.size.span - 1 - now]

    def _in_rest(self, cell: Sequence[Affine], last: Affine) -> Rows:
        rows: Rows = []
        for c, axis in zip(cell, self.axes, strict=True):
            rows += [c - axis.lower(last, self.loop.iterator), axis.end - 1 - c]
        return rows


def _waiting(programs: Sequence[MdhProgram], number: int, loop: HostLoop) -> _Waiting | None:
    """The form of an update: each cell ``x = x + e`` or ``x = x - e``, e of other operands."""
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
    if len(own) != 1 or any(a.conditional for a in p.inp.accesses):
        return None
    element = _added(scalar.results[0], own[0])
    axes = _axes(p, store, t)
    if element is None or axes is None:
        return None
    moving = {t, *(a.dim for a in axes)}
    if any(isinstance(n, Load) or (isinstance(n, Var) and n.name in moving) for n in walk(element)):
        return None
    return _Waiting(programs, number, loop, axes, own[0], element)


def _added(e: Expr, own: int) -> Expr | None:
    """``e`` of ``x + e``, or ``-e`` of ``x - e``, where x is operand number ``own``."""
    if not isinstance(e, Binary) or e.op not in ("+", "-") or not isinstance(e.type, ScalarType):
        return None
    sides = ((e.a, e.b),) if e.op == "-" else ((e.a, e.b), (e.b, e.a))
    for x, other in sides:
        if isinstance(x, Operand) and x.access == own and x.type == e.type and other.type == e.type:
            if any(isinstance(n, Operand) and n.access == own for n in walk(other)):
                return None
            return Unary("-", other, e.type) if e.op == "-" else other
    return None


def _axes(p: MdhProgram, store: Store, t: str) -> tuple[_Axis, ...] | None:
    """Where the cells lie: every index is a dimension of its own and an offset; some offset grows."""
    found: list[_Axis] = []
    dims = {d.name: d for d in p.hom.dims}
    for a in store.index:
        own = [n for n in a.names if n in dims]
        if len(own) != 1 or a.coefficient(own[0]) != 1 or dims[own[0]].size.step != 1:
            return None
        first = a - Affine.of(own[0])
        end = first + dims[own[0]].size.span
        if first.coefficient(t) < 0 or end.coefficient(t):
            return None
        found.append(_Axis(own[0], first, end))
    if len({x.dim for x in found}) != len(dims) or all(not x.first.coefficient(t) for x in found):
        return None
    return tuple(found)


class _Blocked:
    """The new loop."""

    def __init__(self, waiting: _Waiting, block: int, taken: Collection[str]) -> None:
        self.w, self.size = waiting, block
        t, used = waiting.loop.iterator, {waiting.loop.iterator, *taken}
        for p in waiting.programs:
            used |= {d.name for d in p.hom.dims} | {x.name for x in p.params} | {b.name for b in p.buffers}
        self.outer, self.inner, self.reduced = (fresh(f"{t}_{x}", used) for x in ("block", "step", "part"))
        self.start = Affine.of(self.outer, block)
        self.now = self.start + Affine.of(self.inner)
        self.known = [Affine.of(self.outer), Affine.of(self.inner), Affine.of(self.inner, -1) + (block - 1)]

    def loop(self) -> HostLoop | None:
        loop = self.w.loop
        body: list[Step] = []
        for k, p in enumerate(self.w.programs):
            parts = self._outside() if k == self.w.number else [with_values(p, {loop.iterator: self.now})]
            for part in parts:
                step = self._until_the_end(part)
                if step is None:
                    return None
                body.append(step)
        inner = replace(loop, iterator=self.inner, size=Size(Affine.number(self.size)), body=tuple(body))
        return replace(
            loop,
            iterator=self.outer,
            size=Size(loop.size.span, self.size),
            body=(inner, self._rest()),
        )

    def _until_the_end(self, p: MdhProgram) -> MdhProgram | None:
        """The program, doing nothing in iterations after the loop's last; None where that cannot be said."""
        p = replace(p, params=with_iterators(p, self.w.loop.iterator, (self.outer, self.inner)))
        return until(p, self.now, self.w.loop.size.span, self.known)

    def _bounds(self) -> list[tuple[Affine, Affine]]:
        """Of R, per axis."""
        t, last = self.w.loop.iterator, self.start + (self.size - 1)
        return [(a.lower(last, t), a.end.substitute({t: last})) for a in self.w.axes]

    def _outside(self) -> Iterator[MdhProgram]:
        """U over the cells of one iteration outside of R: below R in an axis, within R in all before it."""
        u, t = self.w.update, self.w.loop.iterator
        here = with_values(u, {t: self.now})
        for k, axis in enumerate(self.w.axes):
            moved: dict[str, Affine] = {}
            sizes = {d.name: d.size for d in here.hom.dims}
            domain = list(here.hom.domain)
            for j, other in enumerate(self.w.axes[: k + 1]):
                (lower, end), first = self._bounds()[j], other.first.substitute({t: self.now})
                if j < k:
                    moved[other.dim] = Affine.of(other.dim) + lower - first
                    sizes[other.dim] = Size(end - lower)
                    continue
                whole = sizes[other.dim].span
                sizes[other.dim] = Size(lower - first)
                over = [Affine.of(other.dim) - whole, lower - first - 1 - Affine.of(other.dim)]
                if not certainly_empty([*self.known, *over, self.w.loop.size.span - 1 - self.now]):
                    domain.append(Constraint(whole - 1 - Affine.of(other.dim)))
            if sizes[axis.dim].constant == 0:
                continue
            dims = tuple(Dim(d.name, sizes[d.name]) for d in here.hom.dims)
            part = replace(here, hom=replace(here.hom, dims=dims, domain=tuple(domain)))
            yield with_values(part, moved)

    def _rest(self) -> MdhProgram:
        """U over R, all iterations of the block at once: a reduction that begins with what the cells hold."""
        u, t = self.w.update, self.w.loop.iterator
        now = self.start + Affine.of(self.reduced)
        here = with_values(u, {t: now})
        moved, sizes = {}, {}
        for axis, (lower, end) in zip(self.w.axes, self._bounds(), strict=True):
            moved[axis.dim] = Affine.of(axis.dim) + lower - axis.first.substitute({t: now})
            sizes[axis.dim] = Size(end - lower)
        here = with_values(here, moved)
        store, (value,) = here.out.stores[0], here.hom.scalar.results
        assert isinstance(value.type, ScalarType)
        function = scalar_operator("+", value.type)
        assert function is not None
        element = rewrite(self.w.element, self._renumbered)
        types = {x.name: x.type for x in u.params if isinstance(x.type, ScalarType)}
        dims = (
            *(Dim(d.name, sizes[d.name]) for d in here.hom.dims),
            Dim(self.reduced, Size(Affine.number(self.size))),
        )
        program = replace(
            here,
            params=with_iterators(here, self.w.loop.iterator, (self.outer,)),
            inp=replace(
                here.inp, accesses=tuple(a for k, a in enumerate(here.inp.accesses) if k != self.w.operand)
            ),
            hom=replace(
                here.hom,
                dims=dims,
                scalar=ScalarFunction((element,)),
                combine=(*(CC for _ in here.hom.dims), CombineOp("pw", function)),
            ),
            out=replace(
                here.out,
                initial=(Load(store.buffer, tuple(affine_expr(x, types) for x in store.index), value.type),),
                stores=(replace(store, value=Result(0, value.type)),),
            ),
        )
        beyond = now - self.w.loop.size.span
        if certainly_empty([*self.known, Affine.of(self.reduced), *points(program, {}), beyond]):
            return program
        return replace(program, hom=replace(program.hom, domain=(Constraint(-beyond - 1),)))

    def _renumbered(self, e: Expr) -> Expr | None:
        if isinstance(e, Operand) and e.access > self.w.operand:
            return replace(e, access=e.access - 1)
        return None
