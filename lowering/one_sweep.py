"""Neighbours that read the same rows, some of which sum over the rows: one sweep over them.

    before   for i, j: s[j] += r[i]*A[i][j]            i is reduced
             for i, j: q[i] += A[i][j]*p[j]            i is concatenated
    after    parts[w][j] = 0                                                   for w in [0, W)
             for t in order, threads share w: the rows i = B*(W*t + w) + k, k in [0, B):
                 parts[w][j] = parts[w][j] + sum over k of r[i]*A[i][j]
                 q[i] = sum over j of A[i][j]*p[j]
             s[j] = sum over w of parts[w][j]

A block of ``B`` rows is in a cache when the second program reads it.  One program of two concatenates rows
already: then they have one outer loop (``outer_loop``); where one reduces them, every way ``w`` of the sweep
has its own partial results (rfactor), and the loop over blocks is a host loop whose programs need of one
another nothing but what the same way computed, so that threads share the ways for all of its iterations
(``host_tiles``, independent parts of one position).  Ways and rows of a block are constants: all indices stay
affine.

What must be shown for all sizes: rows of two programs that touch one cell, of which one is written, are the
same row (``skew_in``, of programs that store what each row contributes); what a reduction stores no other
program touches, and what it reads when it stores no other one writes.  The operator is commutative: blocks
come in another order.

    sweeps_of   steps -> runs of neighbours that may be one sweep
    one_sweep   a run, ways, rows of a block -> its steps and arrays

Shown right by tests/test_one_sweep.py; by the certificate, of each kernel.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from lowering.host_tiles import skew_in
from lowering.lower import can_stay_in_place
from lowering.programs import fresh, with_iterators, with_values
from mdh_core.combine import CC, CombineFunction
from mdh_core.expr import Affine, Constraint, Load, Operand, Result, ScalarType, affine_expr, walk
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
    keeps_if_empty,
    read_buffers,
)


@dataclass(frozen=True, slots=True)
class Sweep:
    """Neighbours ``steps[first : first + len(programs)]``; ``dims``: of each, the one that counts the rows.

    shared   the array whose rows all of them touch
    """

    first: int
    programs: tuple[MdhProgram, ...]
    dims: tuple[str, ...]
    shared: str


@dataclass(frozen=True, slots=True)
class Swept:
    """What replaces the programs of a sweep, and the arrays of partial results."""

    steps: tuple[Step, ...]
    arrays: tuple[Buffer, ...]


def sweeps_of(steps: Sequence[Step]) -> Iterator[Sweep]:
    """Of at least two programs each, as long as they can be, outside of host loops; none overlap."""
    first = 0
    while first < len(steps):
        found = max(_from(steps, first), key=lambda s: len(s.programs), default=None)
        if found is not None:
            yield found
        first += 1 if found is None else len(found.programs)


def _from(steps: Sequence[Step], first: int) -> Iterator[Sweep]:
    start = steps[first]
    if not isinstance(start, MdhProgram):
        return
    for shared in dict.fromkeys(name for name, index in _touched(start) if index):
        programs, dims = list[MdhProgram](), list[str]()
        for p in steps[first:]:
            d = _rows(p, shared) if isinstance(p, MdhProgram) else None
            if not isinstance(p, MdhProgram) or d is None:
                break
            if not _independent([*programs, p], [*dims, d]):
                break
            programs.append(p)
            dims.append(d)
        if len(programs) > 1 and any(p.op(d).kind == "pw" for p, d in zip(programs, dims, strict=True)):
            yield Sweep(first, tuple(programs), tuple(dims), shared)


def _touched(p: MdhProgram) -> list[tuple[str, tuple[Affine, ...]]]:
    found = [(a.buffer, a.index) for a in p.inp.accesses]
    return found + [(s.buffer, s.index) for s in p.out.stores]


def _rows(p: MdhProgram, shared: str) -> str | None:
    """The dimension that counts an array's rows, wherever the program touches it; None: there is none."""
    first = {index[0] for name, index in _touched(p) if name == shared and index}
    if len(first) != 1 or p.hom.dims_of("ps") or any(s.at_last for s in p.out.stores):
        return None
    (row,) = first
    d = next((d for d in p.hom.dims if Affine.of(d.name) == row and d.size.step == 1), None)
    if d is None or any(d.name in x.size.span.names for x in p.hom.dims):
        return None
    if p.op(d.name).kind == "pw" and not _may_be_parted(p):
        return None
    if p.hom.function is not None and len(p.component_types) > 1 and p.op(d.name).kind == "cc":
        return d.name if can_stay_in_place(p) else None  # ways would need memory of their own for it
    return d.name


def _may_be_parted(p: MdhProgram) -> bool:
    """Whether partial results of a reduction may be combined in any order, each an array of its own."""
    f = p.hom.function
    if f is None or f.identity is None or not f.commutative or not (f.exact or p.fp != "exact"):
        return False
    own, reduced = {s.buffer for s in p.out.stores}, {x.name for x in p.hom.dims_of("pw")}
    if any(c.names & reduced for c in p.hom.domain) and any(
        keeps_if_empty(s, p.out.initial) for s in p.out.stores
    ):
        return False  # cells without a row are not touched
    operands = {a.buffer for a in p.inp.accesses}
    operands |= {n.buffer for e in p.hom.scalar.results for n in walk(e) if isinstance(n, Load)}
    return (
        all(isinstance(t, ScalarType) for t in p.component_types)
        and not p.hom.scalar.body
        and not own & operands
    )


def _independent(programs: Sequence[MdhProgram], dims: Sequence[str]) -> bool:
    """Does every row need of the others nothing but sums over all of them, behind the sweep?"""
    if any(p.dim(d).size != programs[0].dim(dims[0]).size for p, d in zip(programs, dims, strict=True)):
        return False
    used = {b.name for p in programs for b in p.buffers} | {d.name for p in programs for d in p.hom.dims}
    used |= {q.name for p in programs for q in p.params}
    apart = list[MdhProgram]()
    for p, d in zip(programs, dims, strict=True):
        if p.op(d).kind == "pw":
            at_end = {s.buffer for s in p.out.stores} | _read_at_end(p)
            others = [q for q in programs if q is not p]
            written = {s.buffer for q in others for s in q.out.stores}
            if at_end & written or {s.buffer for s in p.out.stores} & set().union(*map(read_buffers, others)):
                return False
            p = _contributions(p, d, used)
        apart.append(p)
    loop = HostLoop(fresh("once", used), Size(Affine.number(1)), tuple(apart))
    skew = skew_in(loop, dims)
    return skew is not None and skew.independent


def _read_at_end(p: MdhProgram) -> set[str]:
    """Buffers that a reduction reads when it stores."""
    exprs = [*(e for e in p.out.initial if e is not None), *(s.value for s in p.out.stores)]
    return {n.buffer for e in exprs for n in walk(e) if isinstance(n, Load)}


def _contributions(p: MdhProgram, d: str, used: set[str]) -> MdhProgram:
    """The reduction over the other dimensions alone: one result for each row."""
    arrays = _arrays(p, d, p.dim(d).size.span, used)
    index = tuple(Affine.of(x) for x in (d, *_cells(p)))
    combine = tuple(CC if x.name == d else op for x, op in zip(p.hom.dims, p.hom.combine, strict=True))
    out = OutputView(tuple(None for _ in arrays), _results(p, arrays, index))
    return replace(
        p, buffers=(*p.buffers, *arrays), hom=replace(p.hom, combine=combine), out=out
    )


def _results(p: MdhProgram, arrays: Sequence[Buffer], index: tuple[Affine, ...]) -> tuple[Store, ...]:
    """Each component of a reduction in a cell of its own array."""
    pairs = enumerate(zip(arrays, p.component_types, strict=True))
    return tuple(Store(b.name, index, Result(c, t)) for c, (b, t) in pairs)


def _cells(p: MdhProgram) -> list[str]:
    return [d.name for d in p.hom.dims_of("cc")]


def _arrays(p: MdhProgram, d: str, size: Affine, used: set[str]) -> tuple[Buffer, ...]:
    """For each component of a reduction, one array of its cells for each of so many positions."""
    found = []
    for store_to, t in enumerate(p.component_types):
        wish = p.out.stores[min(store_to, len(p.out.stores) - 1)].buffer
        name = fresh(f"{wish}_{d}", used)
        used.add(name)
        extents = (size, *(p.dim(x).size.span for x in _cells(p)))
        found.append(Buffer(name, t, extents, distinct=True))
    return tuple(found)


def one_sweep(sweep: Sweep, ways: int, rows: int, taken: Collection[str]) -> Swept:
    """``rows``: of a block.  ``taken``: names that the new iterators and arrays must not have."""
    used = set(taken) | {b.name for p in sweep.programs for b in p.buffers}
    used |= {d.name for p in sweep.programs for d in p.hom.dims}
    used |= {q.name for p in sweep.programs for q in p.params}
    d = sweep.dims[0]

    def name(wish: str) -> str:
        found = fresh(wish, used)
        used.add(found)
        return found

    names = _Names(name(f"{d}_block"), name(f"{d}_way"), name(f"{d}_row"), ways, rows)
    before: list[Step] = []
    body: list[Step] = []
    behind: list[Step] = []
    arrays: list[Buffer] = []
    for p, own in zip(sweep.programs, sweep.dims, strict=True):
        here = names.inside(p, own)
        if p.op(own).kind == "pw":
            parts = _arrays(p, own, Affine.number(ways), used)
            arrays += parts
            before.append(_starts(p, parts, names))
            here = _partial(here, p, parts, names)
            behind.append(_joined(p, own, parts, names))
        body.append(here)
    size = sweep.programs[0].dim(d).size
    loop = HostLoop(
        names.block, Size(size.span, ways * rows), tuple(body), span=sweep.programs[0].span
    )
    return Swept((*before, loop, *behind), tuple(arrays))


@dataclass(frozen=True, slots=True)
class _Names:
    """``row = rows*(ways*block + way) + row_of_block``."""

    block: str
    way: str
    row: str
    ways: int
    rows: int

    def inside(self, p: MdhProgram, d: str) -> MdhProgram:
        """The program for the rows of the blocks of an iteration."""
        here = Affine.of(self.block, self.ways * self.rows) + Affine.of(self.way, self.rows)
        here = here + Affine.of(self.row)
        moved = with_values(p, {d: here})
        dims = tuple(
            Dim(self.row, Size(Affine.number(self.rows))) if x.name == d else x for x in moved.hom.dims
        )
        domain = (*moved.hom.domain, Constraint(p.dim(d).size.span - 1 - here))
        hom = MdHom(
            (Dim(self.way, Size(Affine.number(self.ways))), *dims),
            moved.hom.scalar,
            (CC, *moved.hom.combine),
            domain,
        )
        return replace(moved, params=with_iterators(p, self.block, (self.block,)), hom=hom)


def _function(p: MdhProgram) -> CombineFunction:
    f = p.hom.function
    assert f is not None and f.identity is not None
    return f


def _of_cells(p: MdhProgram, names: _Names) -> tuple[tuple[Dim, ...], tuple[Affine, ...]]:
    """The cells of a reduction, once for each way."""
    dims = (Dim(names.way, Size(Affine.number(names.ways))), *p.hom.dims_of("cc"))
    return dims, tuple(Affine.of(d.name) for d in dims)


def _starts(p: MdhProgram, parts: Sequence[Buffer], names: _Names) -> MdhProgram:
    dims, index = _of_cells(p, names)
    identity = _function(p).identity or ()
    return replace(
        p,
        buffers=tuple(parts),
        inp=InputView(()),
        hom=MdHom(dims, ScalarFunction(tuple(identity)), tuple(CC for _ in dims)),
        out=OutputView(tuple(None for _ in parts), _results(p, parts, index)),
        functions=(),
    )


def _partial(here: MdhProgram, p: MdhProgram, parts: Sequence[Buffer], names: _Names) -> MdhProgram:
    _, index = _of_cells(p, names)
    places = tuple(affine_expr(x) for x in index)
    types = [t for t in p.component_types if isinstance(t, ScalarType)]
    initial = tuple(Load(b.name, places, t) for b, t in zip(parts, types, strict=True))
    out = OutputView(initial, _results(p, parts, index))
    return replace(here, buffers=(*here.buffers, *parts), out=out)


def _joined(p: MdhProgram, d: str, parts: Sequence[Buffer], names: _Names) -> MdhProgram:
    """Of ways that have rows: cells that keep what they hold where there are none are not touched then."""
    cells, index = _of_cells(p, names)
    op = next(op for op in p.hom.combine if op.kind == "pw")
    reduced = {x.name for x in p.hom.dims_of("pw")}
    some = [p.dim(d).size.span - 1 - Affine.of(names.way, names.rows)]
    some += [p.dim(x).size.span - 1 for x in sorted(reduced - {d})]
    accesses = tuple(Access(b.name, index) for b in parts)
    results = tuple(Operand(c, t) for c, t in enumerate(p.component_types))
    return replace(
        p,
        buffers=(*p.buffers, *parts),
        inp=InputView(accesses),
        hom=MdHom(
            cells,
            ScalarFunction(results),
            (op, *(CC for _ in cells[1:])),
            (*(c for c in p.hom.domain if not c.names & reduced), *map(Constraint, some)),
        ),
    )
