"""``LoopNest`` -> ``MdhProgram``s: the recipe of mdh.md 9.2 and its refusals.

    normalise      loops count from 0, subscripts are affine, flat arrays have their shape
    segments       loops side by side become nests of single loops
    Machine.run    every place's value after the nest, over reductions and scans
    programs       views, scalar function, combine operators; the order of several programs
    check_*        the directive's clauses against what was found

``lift`` never raises for a user's nest: what is not liftable is a diagnostic.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from lifter.clauses import check_names, check_programs, operators_note, promised
from lifter.loop_nest import Loop, LoopNest, NestStmt
from lifter.normalise import Axis, NormalNest, normalise
from lifter.places import Env
from lifter.polyhedral import Constraint, satisfiable
from lifter.programs import programs
from lifter.reductions import Rules
from lifter.segments import Segment, expressions, segments
from lifter.symbolic import Machine
from mdh_core.diagnostics import Diagnostic, Refusal, refuse
from mdh_core.expr import (
    Affine,
    Assign,
    Declare,
    Field,
    If,
    ScalarType,
    Stmt,
    Type,
    Var,
    While,
    base_of,
    variables,
)
from mdh_core.ir import Buffer, MdhProgram, Size, Step, programs_of

LIFTED, REFUSED = "lifted", "refused"


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
    run (scalars have none); without a value at first.
    """

    nest: LoopNest
    status: str  # "lifted" | "partial" | "refused"
    program: tuple[Step, ...]
    diagnostics: tuple[Diagnostic, ...]
    iterators_final: tuple[FinalIterator, ...] = ()
    temporaries: tuple[Buffer, ...] = ()

    @property
    def programs(self) -> tuple[MdhProgram, ...]:
        """All ``MdhProgram``s, those inside of host loops too, in the order of the text."""
        return tuple(programs_of(self.program))


def lift(nest: LoopNest) -> LiftedNest:
    """The programs of a nest, or the reasons why it has none."""
    try:
        check_names(nest)
        normal = normalise(nest)
        found = _programs(nest, normal)
        check_programs(nest, found)
    except Refusal as refusal:
        return LiftedNest(nest, REFUSED, (), (replace(refusal.diagnostic, file=nest.file),))
    except RecursionError:
        deep = Diagnostic("MDH211", "an expression of the nest is nested too deeply", nest.file, nest.span)
        return LiftedNest(nest, REFUSED, (), (deep,))
    notes = (*_information(nest, found), *_extents(nest, normal))
    return LiftedNest(
        nest,
        LIFTED,
        found,
        tuple(replace(d, file=nest.file) for d in notes),
        _final_iterators(nest, normal),
    )


def _programs(nest: LoopNest, normal: NormalNest) -> tuple[MdhProgram, ...]:
    types = _scalar_types(nest)
    rules = Rules(nest.directive.fp == "exact", {f.name: f for f in nest.functions}, promised(nest))
    parts = segments(normal, types, frozenset(s.name for s in nest.scalars))
    out: list[MdhProgram] = []
    for n, part in enumerate(parts):
        machine = Machine(normal, rules, types, _split_records(nest.body), part.body)
        env: Env = {}
        machine.run(part.body, env)
        out += programs(nest, normal, machine, part, env, _wanted(nest, part, parts[n + 1 :]))
    if not out:
        raise refuse(
            "MDH211",
            "the nest computes nothing that is used after it",
            nest.span,
            help="remove the directive",
        )
    return tuple(out)


def _wanted(nest: LoopNest, part: Segment, later: Sequence[Segment]) -> frozenset[str]:
    """Outer scalars whose value after a part is read by anyone."""
    used = {v for s in later for e in expressions(s.body) for v in variables(e)}
    live = {s.name for s in nest.scalars if s.live_after or s.name in used}
    return part.results & live


def _scalar_types(nest: LoopNest) -> dict[str, Type]:
    types: dict[str, Type] = {s.name: s.type for s in nest.scalars}
    for s in _statements(nest.body):
        if isinstance(s, Declare):
            types[s.name] = s.type
        elif isinstance(s, Assign) and isinstance(s.target, Var):
            types.setdefault(s.target.name, s.target.type)
    return types


def _split_records(body: Sequence[NestStmt]) -> frozenset[str]:
    """Records of which single fields are assigned."""
    out = set()
    for s in _statements(body):
        if isinstance(s, Assign) and isinstance(s.target, Field):
            base = base_of(s.target)
            out.add(base.name if isinstance(base, Var) else base.buffer)
    return frozenset(out)


def _statements(body: Sequence[NestStmt | Stmt]) -> Iterator[NestStmt | Stmt]:
    for s in body:
        yield s
        match s:
            case If(then=then, other=other):
                yield from _statements(then)
                yield from _statements(other)
            case While(body=inner):
                yield from _statements(inner)
            case Loop(body=nested):
                yield from _statements(nested)
            case _:
                pass


# --------------------------------------------------------------------------- what there is to say


def _information(nest: LoopNest, found: tuple[MdhProgram, ...]) -> Iterator[Diagnostic]:
    yield Diagnostic("MDH101", f"lifted to {operators_note(found)}", span=nest.span)
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


def _final_iterators(nest: LoopNest, normal: NormalNest) -> tuple[FinalIterator, ...]:
    out: list[FinalIterator] = []

    def visit(body: Sequence[NestStmt], outer: tuple[Size, ...]) -> None:
        for s in body:
            if isinstance(s, Loop):
                axis = normal.axes[s.iterator]
                visit(s.body, (*outer, axis.size))
                if s.declared_outside:
                    out.append(
                        FinalIterator(axis.source_name, s.type, axis.lower, axis.size, axis.step, outer)
                    )

    visit(nest.body, ())
    return tuple(out)
