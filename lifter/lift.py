"""``LoopNest`` -> ``MdhProgram``s: the recipe of mdh.md 9.2 and its refusals.

    flat_programs  a nest without loops that must run in order
    stepped        any other: loops distributed, reordered, or run in order around programs
    check_*        the directive's clauses against what was found

``lift`` never raises for a user's nest: what is not liftable is a diagnostic.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from lifter.absorb import absorbed
from lifter.clauses import check_names, check_programs, fusion_note, steps_note
from lifter.flat import flat_programs
from lifter.forward import forwarded, without_unread
from lifter.fusion import Fusion, fusions
from lifter.index_values import with_index_values
from lifter.loop_nest import Loop, LoopNest, NestStmt, names_in_text
from lifter.normalise import UNTILE, Axis, NormalNest, normalise, touched_anyway
from lifter.polyhedral import Constraint, satisfiable
from lifter.reductions import choice
from lifter.reread import reread
from lifter.scatter import accumulates, over_cells
from lifter.steps import Stepped, check_overlap, every_step, stepped
from lifter.tiles import untiled
from lifter.trees import Body, Inwards, ends, loops_in, mentioned
from mdh_core.diagnostics import Diagnostic, Refusal, Related, refuse
from mdh_core.expr import Affine, Assign, Call, Declare, Expr, Function, If, ScalarType, Stmt, rewrite
from mdh_core.ir import Buffer, HostLoop, MdhProgram, Sequential, Size, Step, programs_of
from mdh_core.source import Span

LIFTED, PARTIAL, REFUSED = "lifted", "partial", "refused"


@dataclass(frozen=True, slots=True)
class FinalIterator:
    """What a loop leaves in an iterator that was declared before the nest.

    If all sizes in ``outer`` (the enclosing loops') are positive, ``name`` ends as
    ``lower + step * size``; otherwise it is unchanged.  Later entries override earlier ones.
    """

    name: str  # as in the source
    type: ScalarType
    lower: Affine
    size: Size
    step: int
    outer: tuple[Size, ...]


@dataclass(frozen=True, slots=True)
class LiftedNest:
    """``program``: the nest as steps in execution order, empty where it is refused.

    ``temporaries``: buffers of the emitted kernel alone, with extents that are known before the steps
    run (scalars have none); without a value at first.  ``fusions``: neighbours in ``program`` that could
    be one; they do not overlap.  ``touching``: steps that touch all that the source does, where ``program``
    leaves out some of it; else empty.
    """

    nest: LoopNest
    status: str  # "lifted" | "partial" | "refused"
    program: tuple[Step, ...]
    diagnostics: tuple[Diagnostic, ...]
    iterators_final: tuple[FinalIterator, ...] = ()
    temporaries: tuple[Buffer, ...] = ()
    fusions: tuple[Fusion, ...] = ()
    touching: tuple[Step, ...] = ()

    @property
    def programs(self) -> tuple[MdhProgram, ...]:
        """All ``MdhProgram``s, those inside of host loops too, in the order of the text."""
        return tuple(programs_of(self.program))


def lift(nest: LoopNest) -> LiftedNest:
    """The steps of a nest, or the reasons why it has none."""
    try:
        check_names(nest)
        return _without_unused_ends(_lifted_over_cells(nest))
    except Refusal as refusal:
        return LiftedNest(nest, REFUSED, (), (replace(refusal.diagnostic, file=nest.file),))
    except RecursionError:
        deep = Diagnostic("MDH211", "an expression of the nest is nested too deeply", nest.file, nest.span)
        return LiftedNest(nest, REFUSED, (), (deep,))


def _without_unused_ends(lifted: LiftedNest) -> LiftedNest:
    """The nest without the parameters that were there for ``tiles`` and were not needed."""
    nest = lifted.nest
    elsewhere = mentioned(nest.body) | {n for fact in nest.facts for n in fact.names}
    elsewhere |= {x.name for p in lifted.programs for x in p.params}
    elsewhere |= {n for b in nest.buffers for e in b.extents if e is not None for n in e.names}
    unused = ends(nest.body) - elsewhere
    kept = tuple(p for p in nest.params if p.name not in unused)
    return replace(lifted, nest=replace(nest, params=kept)) if unused else lifted


def _lifted_over_cells(nest: LoopNest) -> LiftedNest:
    """The nest as it is, or else with accumulations at computed positions as loops over the cells."""
    read = replace(nest, body=_with_plain_bounds(nest.body, {f.name: f for f in nest.functions}))
    obstacles: list[Span] = []
    plain = untiled(read, obstacles)
    if plain is not None:
        with contextlib.suppress(Refusal):
            return _lifted(nest, plain.body)
    try:
        return _lifted(nest, read.body)
    except Refusal as refusal:
        why = refusal.diagnostic
        if why.code == "MDH202" and why.help.endswith(UNTILE) and obstacles and not why.related:
            once = Related(obstacles[-1], "this is done once per tile")
            raise Refusal(replace(why, related=(once,))) from None
        if why.code not in ("MDH201", "MDH214"):
            raise
        spread = over_cells(nest)
        if spread is None:
            raise
        body, cells = spread
        found = _lifted(nest, body)
        if not accumulates(found.programs, cells):
            raise
        return found


def _with_plain_bounds(body: Body, functions: Mapping[str, Function]) -> Body:
    """The statements with what functions of the source give in bounds of loops: ``i < min(ii + b, n)``.

    And in integers that are set beside loops: ``end = min(ii + b, n);``.
    """

    def value(e: Expr) -> Expr | None:
        if not isinstance(e, Call) or e.function not in functions:
            return None
        return choice(e, functions[e.function])

    out: list[NestStmt] = []
    beside = any(isinstance(s, Loop) for s in body)
    for s in body:
        if isinstance(s, Loop):
            inner = _with_plain_bounds(s.body, functions)
            s = replace(s, lower=rewrite(s.lower, value), upper=rewrite(s.upper, value), body=inner)
        elif isinstance(s, Declare | Assign) and s.value is not None and beside and _is_integer(s.value):
            s = replace(s, value=rewrite(s.value, value))
        out.append(s)
    return tuple(out)


def _is_integer(e: Expr) -> bool:
    return isinstance(e.type, ScalarType) and e.type.is_integer


def _lifted(source: LoopNest, body: Body) -> LiftedNest:
    nest = replace(source, body=Inwards().body(body))
    found: Stepped | None
    try:
        normal = normalise(nest)
        nest = replace(nest, touched=touched_anyway(normal))
        found = Stepped(flat_programs(nest, normal), (), ())
        if not found.steps:
            raise refuse(
                "MDH211",
                "the nest computes nothing that is used after it",
                nest.span,
                help="remove the directive",
            )
    except Refusal as refusal:
        found = stepped(nest)
        if found is None or _claims(nest, found):
            raise refusal from None
    else:
        check_overlap(nest, tuple(programs_of(found.steps)))
    steps = without_unread(forwarded(found.steps, found.temporaries), found.temporaries)
    touching = () if steps == tuple(found.steps) else tuple(found.steps)
    found = replace(found, steps=with_index_values(reread(absorbed(steps))))
    every = tuple(programs_of(found.steps))
    check_programs(nest, every)
    partial = any(isinstance(s, Sequential) for s in every_step(found.steps))
    final = _final_iterators(source)
    extents: tuple[Diagnostic, ...] = ()
    with contextlib.suppress(Refusal):  # what is lifted in parts was checked in parts
        extents = tuple(_extents(nest, normalise(nest)))
    flat = (s for s in every_step(found.steps) if not isinstance(s, HostLoop))
    used = {b.name for s in flat for b in s.buffers}
    temporaries = tuple(b for b in found.temporaries if b.name in used)
    choices = fusions(found.steps, temporaries)
    told = (fusion_note(found.steps, f, nest.span) for f in choices)
    notes = (*_information(nest, found), *told, *extents)
    return LiftedNest(
        source,
        PARTIAL if partial else LIFTED,
        found.steps,
        tuple(replace(d, file=nest.file) for d in notes),
        final,
        temporaries,
        choices,
        touching,
    )


def _claims(nest: LoopNest, found: Stepped) -> bool:
    """Does a clause give an operator to a loop that runs in order?"""
    clauses = nest.directive.combine_ops
    if not clauses:
        return False
    if any(not c.iterator for c in clauses):
        return any(not isinstance(s, MdhProgram) for s in found.steps)
    named = {c.iterator for c in clauses}
    kept = {s.source_name for s in every_step(found.steps) if isinstance(s, HostLoop)}
    partial = any(isinstance(s, Sequential) for s in every_step(found.steps))
    dims = {d.name for p in programs_of(found.steps) for d in p.hom.dims}
    return bool(named & kept) or (partial and not named <= dims)


# --------------------------------------------------------------------------- what there is to say


def _information(nest: LoopNest, stepped: Stepped) -> Iterator[Diagnostic]:
    found = tuple(programs_of(stepped.steps))
    yield Diagnostic("MDH101", f"lifted to {steps_note(stepped.steps)}", span=nest.span)
    for step, why in stepped.reasons:
        related = (Related(why.span, why.label or why.message),) if why.span else ()
        if isinstance(step, HostLoop):
            yield Diagnostic(
                "MDH102", f"`{step.source_name}` runs in order: {why.message}", span=step.span,
                related=related, help=why.help,
            )  # fmt: skip
        else:
            yield Diagnostic(
                "MDH103", f"left as it was: {why.message}", span=step.span, related=related, help=why.help
            )
    yield from _overlaps(nest, found)
    inexact = [op for p in found for op in p.hom.combine if op.function is not None and not op.function.exact]
    if not inexact:
        return
    listed = ", ".join(f"`{op}`" for op in dict.fromkeys(inexact))
    if nest.directive.fp == "exact":
        yield Diagnostic("MDH304", f"`fp(exact)` keeps {listed} sequential", span=nest.span)
    else:
        yield Diagnostic("MDH301", f"{listed} may be computed in another order than written", span=nest.span)


def _overlaps(nest: LoopNest, found: tuple[MdhProgram, ...]) -> Iterator[Diagnostic]:
    """MDH203: pairs of buffers that nothing keeps from sharing memory, one of them written."""
    written = {s.buffer for p in found for s in p.out.stores}
    used = {b.name for p in found for b in p.buffers}
    open_ = [b for b in nest.buffers if b.name in used and not (b.restrict or b.distinct)]
    pairs = [
        f"`{a.name}` and `{b.name}`"
        for a, b in combinations(open_, 2)
        if {a.name, b.name} & written
        and not any({a.name, b.name} <= set(group) for group in nest.directive.noalias)
    ]
    if pairs:
        yield Diagnostic(
            "MDH203",
            f"{', '.join(pairs)} may overlap; this is tested at run time",
            span=nest.span,
            help="`restrict` or a `noalias` clause promises that they do not",
        )


def _extents(nest: LoopNest, normal: NormalNest) -> Iterator[Diagnostic]:
    """MDH303 where constant loops leave constant extents."""
    seen = set()
    for use in normal.accesses:
        buffer = normal.buffers[use.buffer]
        for k, (p, extent) in enumerate(zip(use.index, buffer.extents, strict=True)):
            a = p.affine
            if a is None or use.conditional or (use.buffer, k, a) in seen:
                continue
            seen.add((use.buffer, k, a))
            axes = {x.name: x for x in use.axes}
            if not a.names <= set(axes) or any(axes[n].size.constant is None for n in a.names):
                continue
            low = (buffer.distinct or k > 0) and satisfiable([*use.facts, Constraint(-a - 1)])
            bounded = extent is not None and extent.is_constant
            high = bounded and satisfiable([*use.facts, Constraint(a - (extent or a))])
            if low or high:
                shown = {x.name: x.source_name for x in use.axes}
                size = f" of {extent} elements" if extent is not None else ""
                yield Diagnostic(
                    "MDH303",
                    f"index {k + 1} of `{use.buffer}` leaves its dimension{size}",
                    span=use.span,
                    label="below 0" if low else f"reaches {_greatest(a, axes)}",
                    notes=(f"over the range of {', '.join(f'`{shown[n]}`' for n in sorted(a.names))}",)
                    if a.names
                    else (),
                )


def _greatest(a: Affine, axes: dict[str, Axis]) -> int:
    return a.const + sum(c * ((axes[n].size.constant or 1) - 1) for n, c in a.terms if c > 0)


def _final_iterators(nest: LoopNest) -> tuple[FinalIterator, ...]:
    """Raises MDH202 where a value depends on how far outer loops of steps > 1 went, or on a condition."""
    out: list[FinalIterator] = []
    if not any(x.observed for x in loops_in(nest.body)):
        return ()
    normal = normalise(replace(nest, body=_loops_only(nest.body)))
    known = {p.name for p in nest.params} | set(normal.axes)

    perhaps: dict[str, tuple[Loop, tuple[Axis, ...]]] = {}  # iterators whose last loop is under a condition

    def visit(body: Sequence[NestStmt | Stmt], outer: tuple[Axis, ...]) -> None:
        for s in body:
            if isinstance(s, If):
                found = [x for x in loops_in((s,)) if x.observed]
                perhaps.update((x.source_name or x.iterator, (x, outer)) for x in found)
            if not isinstance(s, Loop):
                continue
            axis = normal.axes[s.iterator]
            visit(s.body, (*outer, axis))
            if s.observed:
                name = s.source_name or s.iterator
                if name in perhaps and perhaps[name][1][: len(outer)] == outer:
                    del perhaps[name]  # this one runs wherever that one may have
                if not axis.single or not (axis.first.names | axis.span.names) <= known:
                    raise _unknown_end(s, axis)
                lower, span = _at_the_end(axis.first, outer, s), _at_the_end(axis.span, outer, s)
                sizes = tuple(Size(_at_the_end(a.span, outer, s), a.size.step) for a in outer)
                size = Size(span, axis.size.step)
                if not outer:
                    out[:] = [f for f in out if f.name != axis.source_name]
                out.append(FinalIterator(axis.source_name, s.type, lower, size, axis.step, sizes))

    visit(nest.body, ())
    for name, (loop, _) in perhaps.items():
        raise refuse(
            "MDH202",
            f"the last value of `{name}` depends on a condition",
            loop.span,
            help=f"declare `{name}` in its loop",
        )
    return _in_order(nest, out)


def _in_order(nest: LoopNest, finals: Sequence[FinalIterator]) -> tuple[FinalIterator, ...]:
    """The final values so that none is computed from a variable that another has changed before.

    Raises MDH210 where there is no such order, also because the nest itself has changed the variable.
    """
    texts = {p.name: p.value or p.name for p in nest.params}

    def reads(f: FinalIterator) -> set[str]:
        values = (f.lower, f.size.span, *(s.span for s in f.outer))
        return {v for a in values for n in a.names for v in names_in_text(texts.get(n, n))}

    changed = {s.name for s in nest.scalars}
    left, out = list(finals), list[FinalIterator]()
    while left:
        if any(reads(f) & changed for f in left):
            break
        f = next((f for f in left if not any(f.name in reads(g) for g in left if g.name != f.name)), None)
        if f is None:
            break
        left.remove(f)
        out.append(f)
        if f.name in {g.name for g in left}:
            continue
        changed.add(f.name)
    if left:
        raise refuse(
            "MDH210",
            f"the value that `{left[0].name}` has after the nest is computed from one that the nest changes",
            nest.span,
            help=f"declare `{left[0].name}` in its loop",
        )
    return tuple(out)


def _loops_only(body: Sequence[NestStmt | Stmt]) -> tuple[NestStmt, ...]:
    out: list[NestStmt] = []
    for s in body:
        match s:
            case Loop():
                out.append(replace(s, body=_loops_only(s.body)))
            case If(then=then, other=other):
                out += _loops_only((*then, *other))
            case _:
                pass
    return tuple(out)


def _at_the_end(a: Affine, outer: Sequence[Axis], loop: Loop) -> Affine:
    """The value in the last iterations of the outer loops."""
    for axis in reversed(outer):
        if not a.coefficient(axis.name):
            continue
        if axis.size.step != 1 or not axis.single:
            raise _unknown_end(loop, axis)
        a = a.substitute({axis.name: axis.span - 1})
    return a


def _unknown_end(loop: Loop, axis: Axis) -> Refusal:
    name = loop.source_name or loop.iterator
    return refuse(
        "MDH202",
        f"the last value of `{name}` depends on `{axis.source_name}`",
        loop.span,
        help=f"declare `{name}` in its loop",
    )
