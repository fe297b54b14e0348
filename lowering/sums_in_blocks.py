"""Sums over what earlier iterations of a host loop computed, a block of these at a time.

before   for t in [0, n):
           x[c] = g(x[c] + sum over k < t of f(k, c))                        for the cells c of iteration t
after    for b in [0, ceil(n/B)):
           for i in [0, B), t = B*b + i:
             x[c] = g(x[c] + sum over B*b <= k < t of f(k, c))               for the cells c of iteration t
           x[c] = x[c] + sum over B*b <= k < B*(b + 1) of f(k, c)            for the cells c of later ones

Left-looking factorisations are of this form (Cholesky: ``A[i][j] = (A[i][j] - sum over k < j of
A[i][k]*A[j][k]) / A[j][j]`` for i > j), column by column; row by row, ``for i: for j < i``, they are brought
into it (``right_looking.interchanged``).  One iteration reads the columns of the block only, and what all
blocks before have to say has been added by one program each, which is a matrix product.

What must be shown for all sizes is that term k may be added before iteration t, at the end of iteration k or
later (``right_looking.may_come_early``); contributions to a cell are added in the order of k, as before.

Cells may become fewer by one with every iteration, ``i > j``: of the later iterations, they are a triangle.
An operand that lies across the cells, ``A[j][k]``, is copied before the product: ``B`` rows along which the
copy and the cells agree.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from lowering.domains import read_in_boxes
from lowering.programs import Blocks, assumes, fresh, until, with_iterators, with_values
from lowering.right_looking import Sum, interchanged, may_come_early, names_in, sum_of
from mdh_core.combine import CC
from mdh_core.expr import (
    Affine,
    Constraint,
    Load,
    Operand,
    Result,
    ScalarType,
    affine_expr,
)
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


def sums_in_blocks(loop: HostLoop, block: int, taken: Collection[str]) -> Blocks | None:
    """The loop in blocks of so many iterations; None where none of its sums may be cut.

    ``taken``: names that the new iterators and arrays must not have.
    """
    used = {*taken, loop.iterator, *names_in(loop)}
    columns = _in_columns(loop, used)
    if columns is None or columns.size.step != 1 or block < 2 or assumes(columns.body, {columns.iterator}):
        return None
    programs = [p for p in columns.body if isinstance(p, MdhProgram)]
    if len(programs) != len(columns.body):
        return None
    cut = {}
    for number, p in enumerate(programs):
        s = sum_of(p, {columns.iterator}) if p.hom.dims_of("cc") else None  # alone, a sum is as good as it is
        if s is not None and _may_be_cut(s, programs, number, columns):
            cut[number] = s
    return _Blocked(columns, programs, cut, block, used).made() if cut else None


def _in_columns(loop: HostLoop, used: Collection[str]) -> HostLoop | None:
    inner, *heads = loop.body or (None,)
    if not isinstance(inner, HostLoop):
        return loop
    own = [p for p in heads if isinstance(p, MdhProgram)]
    if len(own) != len(heads) or assumes(loop.body, {loop.iterator, inner.iterator}):
        return None
    return interchanged(loop, inner, own, used)


def _may_be_cut(s: Sum, programs: Sequence[MdhProgram], number: int, loop: HostLoop) -> bool:
    t = loop.iterator
    fits = s.count == Affine.of(t) and all(d.size.span.coefficient(t) in (0, -1) for d in s.others)
    return fits and may_come_early(s, programs, number, loop)


@dataclass(frozen=True, slots=True)
class _Later:
    """A sum over a block for the cells of all iterations behind it, and the copies that it reads."""

    copies: tuple[MdhProgram, ...]
    program: MdhProgram


class _Blocked:
    """The new loop.  ``cut``: the sums among its programs, by their numbers."""

    def __init__(
        self,
        loop: HostLoop,
        programs: Sequence[MdhProgram],
        cut: dict[int, Sum],
        block: int,
        used: set[str],
    ) -> None:
        self.source, self.programs, self.cut, self.size, self.used = loop, programs, cut, block, used
        t = loop.iterator
        self.outer, self.inner, self.part, self.ahead, self.once = (
            self._fresh(f"{t}_{x}") for x in ("block", "step", "part", "later", "once")
        )
        self.start = Affine.of(self.outer, block)
        self.now = self.start + Affine.of(self.inner)
        self.inside = [Affine.of(self.outer), Affine.of(self.inner), Affine.of(self.inner, -1) + (block - 1)]

    def _fresh(self, wish: str) -> str:
        name = fresh(wish, self.used)
        self.used.add(name)
        return name

    def made(self) -> Blocks | None:
        loop = self.source
        body: list[Step] = []
        for number, p in enumerate(self.programs):
            s = self.cut.get(number)
            here = self._of_iteration(p if s is None else self._from_the_start(s))
            if here is None:
                return None
            body.append(here)
        later = [self._later(s) for s in self.cut.values()]
        inner = replace(loop, iterator=self.inner, size=Size(Affine.number(self.size)), body=tuple(body))
        steps: list[Step] = [inner]
        for x in later:
            steps += [*x.copies, x.program]
        outer = replace(loop, iterator=self.outer, size=Size(loop.size.span, self.size), body=tuple(steps))
        copies = (p for x in later for p in x.copies)
        return Blocks(outer, tuple(p.buffer(p.out.stores[0].buffer) for p in copies))

    def _from_the_start(self, s: Sum) -> MdhProgram:
        """The sum over the terms of its block only; ``t`` is the iteration still."""
        p, k = s.program, s.reduced
        moved = with_values(p, {k: Affine.of(k) + self.start})
        size = Size(Affine.of(self.source.iterator) - self.start)
        dims = tuple(replace(d, size=size) if d.name == k else d for d in moved.hom.dims)
        return replace(moved, hom=replace(moved.hom, dims=dims))

    def _of_iteration(self, p: MdhProgram) -> MdhProgram | None:
        """A program in the block's loop: it does nothing behind the last iteration; None: it would."""
        t = self.source.iterator
        here = replace(
            with_values(p, {t: self.now}), params=with_iterators(p, t, (self.outer, self.inner))
        )
        return until(here, self.now, self.source.size.span, self.inside, self.once)

    def _later(self, s: Sum) -> _Later:
        """All terms of the block, for cells of iterations ``B*(b + 1) + ahead``."""
        p, t = s.program, self.source.iterator
        first = self.start + self.size
        ahead = Affine.of(self.ahead)
        values = {s.reduced: self.start + Affine.of(self.part), t: first + ahead}
        dims, domain = [Dim(self.ahead, Size(self.source.size.span - first))], list[Constraint]()
        for d in s.others:
            dims.append(Dim(d.name, Size(d.size.span.substitute({t: first}))))
            if d.size.span.coefficient(t):  # counted from where those of the first of them begin
                values[d.name] = Affine.of(d.name) - ahead
                domain.append(Constraint(Affine.of(d.name) - ahead))
        dims.append(Dim(self.part, Size(Affine.number(self.size))))
        (value,) = p.hom.scalar.results
        assert isinstance(value.type, ScalarType)
        added = with_values(p, values)
        store = replace(added.out.stores[0], value=Result(0, value.type))
        types = {x.name: x.type for x in p.params if isinstance(x.type, ScalarType)}
        start = Load(store.buffer, tuple(affine_expr(x, types) for x in store.index), value.type)
        combine = (*(CC for _ in dims[:-1]), next(op for op in p.hom.combine if op.kind == "pw"))
        program = replace(
            added,
            params=with_iterators(p, t, (self.outer,)),
            hom=MdHom(tuple(dims), added.hom.scalar, combine, tuple(domain)),
            out=OutputView((start,), (store,)),
        )
        return self._with_copies(program, store)

    def _with_copies(self, p: MdhProgram, store: Store) -> _Later:
        """Operands that lie across the cells, along the dimension that these lie along, from copies."""
        dims = {d.name: d for d in p.hom.dims}
        along = [n for n in store.index[-1].names if n in dims] if store.index else []
        copies: list[MdhProgram] = []
        if along != [self.ahead]:  # of other dimensions, the copy's extents would change from block to block
            return _Later((), p)
        for k, a in enumerate(p.inp.accesses):
            last, t = a.index[-1] if a.index else Affine(), p.buffer(a.buffer).type
            used = {n for x in a.index for n in x.names if n in dims}
            rows = read_in_boxes(p, a)
            across = used == {self.ahead, self.part} and not last.coefficient(self.ahead)
            if not across or rows is None or not isinstance(t, ScalarType):
                continue
            name = self._fresh(f"{a.buffer}_{self.source.iterator}")
            copy = Buffer(name, t, (Affine.number(self.size), self.source.size.span), distinct=True)
            place = (Affine.of(self.part), Affine.of(self.ahead))
            # where the product has no points, nothing is read
            rows = [*rows, *(d.size.span - 1 for d in p.hom.dims if d.name not in used)]
            p = replace(p, buffers=(*p.buffers, copy))
            copies.append(
                replace(
                    p,
                    inp=InputView((a,)),
                    hom=MdHom(
                        (dims[self.part], dims[self.ahead]),
                        ScalarFunction((Operand(0, t),)),
                        (CC, CC),
                        tuple(map(Constraint, rows)),
                    ),
                    out=OutputView((None,), (Store(name, place, Result(0, t)),)),
                )
            )
            accesses = [*p.inp.accesses]
            accesses[k] = Access(name, place)
            p = replace(p, inp=InputView(tuple(accesses)))
        return _Later(tuple(copies), p)
