"""Programs with other values for names, and their points as rows: for host loops and known sizes."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from mdh_core.combine import CC
from mdh_core.expr import INT64, Affine, Constraint, Expr, Var, affine_expr, rewrite
from mdh_core.ir import (
    Buffer,
    Dim,
    HostLoop,
    MdhProgram,
    Param,
    Sequential,
    Size,
    Step,
    programs_of,
    with_expressions,
)
from mdh_core.polytope import certainly_empty, rows_of

Rows = list[Affine]


@dataclass(frozen=True, slots=True)
class Blocks:
    """A host loop in blocks; ``arrays``: its temporaries."""

    loop: HostLoop
    arrays: tuple[Buffer, ...] = ()


def marked(p: MdhProgram, mark: str) -> dict[str, Affine]:
    return {d.name: Affine.of(f"{d.name}:{mark}") for d in p.hom.dims}


def points(p: MdhProgram, names: Mapping[str, Affine], dims: Collection[str] | None = None) -> Rows:
    """The program's points, as rows over the new names; ``dims``: only what these dimensions tell."""
    chosen = [d for d in p.hom.dims if dims is None or d.name in dims]
    others = {d.name for d in p.hom.dims} - {d.name for d in chosen}
    rows = [r for r in rows_of(p.hom.domain) if not r.names & others]
    for d in chosen:
        i = Affine.of(d.name)
        rows += [i, d.size.span - 1 - i * d.size.step]
    return [r.substitute(dict(names)) for r in rows]


def places(p: MdhProgram, names: Mapping[str, Affine], index: Sequence[Affine]) -> Rows:
    """The points at which a cell with this index is read or written, at most.

    Where a reduction is empty, its cells are stored all the same, and what these begin with is read: reduced
    dimensions that the index does not mention say nothing.
    """
    used = {n for a in index for n in a.names}
    reduced = {d.name for d in p.hom.dims_of("pw")} - used
    return points(p, names, {d.name for d in p.hom.dims} - reduced)


def same(a: Sequence[Affine], b: Sequence[Affine]) -> Rows:
    """Two indices are equal."""
    return [r for x, y in zip(a, b, strict=True) for r in (x - y, y - x)]


def fresh(wish: str, used: Collection[str]) -> str:
    """A name like the one wished for that is not used."""
    more = (f"{wish}_{k}" for k in itertools.count(2))
    return next(n for n in itertools.chain([wish], more) if n not in used)


def assumes(steps: Iterable[Step], names: Collection[str]) -> bool:
    """Whether what is assumed at run time depends on one of the iterators: then they must stay."""
    return any(a.names & set(names) for p in programs_of(steps) for a in p.assumptions)


def until(p: MdhProgram, now: Affine, end: Affine, known: Rows, once: str = "") -> MdhProgram | None:
    """The program, doing nothing in iterations ``now >= end``; None where that cannot be said.

    ``known``: of the iterators in ``now``.  ``once``: a new name for a dimension of one point.  Cells of a
    reduction are stored wherever concatenated dimensions have points, so what says when must mention one.
    """
    beyond = now - end
    cells = {d.name for d in p.hom.dims_of("cc")}
    if certainly_empty([*known, *points(p, {}, cells), beyond]):
        return p
    domain, kinds = p.hom.domain, {op.kind for op in p.hom.combine}
    if kinds <= {"cc"}:
        return replace(p, hom=replace(p.hom, domain=(*domain, Constraint(-beyond - 1))))
    if not once or kinds & {"ps"}:
        return None
    hom = replace(
        p.hom,
        dims=(Dim(once, Size(Affine.number(1))), *p.hom.dims),
        combine=(CC, *p.hom.combine),
        domain=(*domain, Constraint(-beyond - 1 - Affine.of(once))),
    )
    return replace(p, hom=hom)


def with_iterators(p: MdhProgram, old: str, new: Sequence[str]) -> tuple[Param, ...]:
    """The program's parameters with other iterators of host loops for one."""
    others = tuple(x for x in p.params if x.name not in (old, *new))
    return (*others, *(Param(n, INT64) for n in new))


def with_params(loop: HostLoop, params: Iterable[Param]) -> HostLoop:
    """The loop, whose programs have all parameters of a nest that their sizes, domains and indices mention.

    Programs have those that they need; brought from one form into another, they need those of their loops.
    """
    known = {x.name: x for x in params}

    def complete(s: Step) -> Step:
        if isinstance(s, HostLoop):
            return replace(s, body=tuple(map(complete, s.body)))
        if not isinstance(s, MdhProgram):
            return s
        affine = [d.size.span for d in s.hom.dims] + [c.value for c in s.hom.domain]
        affine += [x for a in s.inp.accesses for x in a.index] + [x for o in s.out.stores for x in o.index]
        own = {x.name for x in s.params}
        more = dict.fromkeys(n for a in affine for n in sorted(a.names) if n in known and n not in own)
        return replace(s, params=(*s.params, *(known[n] for n in more)))

    return replace(loop, body=tuple(map(complete, loop.body)))


def _in_affine(p: MdhProgram, known: dict[str, Affine]) -> MdhProgram:
    """The program with affine values for names in its sizes, index functions and domain."""

    def index(a: tuple[Affine, ...]) -> tuple[Affine, ...]:
        return tuple(x.substitute(known) for x in a)

    return replace(
        p,
        inp=replace(p.inp, accesses=tuple(replace(a, index=index(a.index)) for a in p.inp.accesses)),
        hom=replace(
            p.hom,
            dims=tuple(Dim(d.name, Size(d.size.span.substitute(known), d.size.step)) for d in p.hom.dims),
            domain=tuple(c.substitute(known) for c in p.hom.domain),
        ),
        out=replace(p.out, stores=tuple(replace(s, index=index(s.index)) for s in p.out.stores)),
    )


def with_values(p: MdhProgram, values: Mapping[str, Affine]) -> MdhProgram:
    """The program with affine values for names, everywhere but in the dimensions' names."""
    known = dict(values)

    def expr(e: Expr) -> Expr:
        return rewrite(
            e, lambda n: affine_expr(known[n.name]) if isinstance(n, Var) and n.name in known else None
        )

    return with_expressions(_in_affine(p, known), expr)


def of_known_sizes(steps: Iterable[Step], values: Mapping[str, int]) -> tuple[Step, ...]:
    """The steps where integer parameters have these values, with constants for them in all that is affine.

    Extents, strides, index functions, domains and assumptions; what functions compute keeps its parameters,
    whose types matter there.
    """
    known = {name: Affine.number(n) for name, n in values.items()}

    def step(s: Step) -> Step:
        match s:
            case HostLoop():
                size = Size(s.size.span.substitute(known), s.size.step)
                return replace(s, size=size, body=tuple(map(step, s.body)))
            case Sequential():
                return replace(s, buffers=with_known_extents(s.buffers, values))
        p = _in_affine(s, known)
        left = tuple(c for c in p.hom.domain if c.names or not c.holds({}))
        return replace(
            p,
            buffers=with_known_extents(p.buffers, values),
            hom=replace(p.hom, domain=left),
            assumptions=tuple(a.substitute(known) for a in p.assumptions),
        )

    return tuple(map(step, steps))


def with_known_extents(buffers: Iterable[Buffer], values: Mapping[str, int]) -> tuple[Buffer, ...]:
    """Buffers with constants for parameters in their extents and strides."""
    known = {name: Affine.number(n) for name, n in values.items()}
    return tuple(
        replace(
            b,
            extents=tuple(None if e is None else e.substitute(known) for e in b.extents),
            strides=None if b.strides is None else tuple(e.substitute(known) for e in b.strides),
        )
        for b in buffers
    )


def renamed(p: MdhProgram, dim: str, name: str) -> MdhProgram:
    """The program with another name, which nothing has, for a dimension that no ``at_last`` mentions."""
    dims = tuple(replace(d, name=name) if d.name == dim else d for d in p.hom.dims)
    return with_values(replace(p, hom=replace(p.hom, dims=dims)), {dim: Affine.of(name)})
