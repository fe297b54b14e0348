"""What directives of OpenMP and OpenACC claim about loops, against what the analysis found.

    #pragma omp parallel for           s += x[i];      MDH413: no `reduction(+: s)`
    #pragma omp parallel for           y[i] = y[i-1];  MDH412: the loop runs in order

A nest with such a contradiction is refused: either the directive or the loop is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from lifter.annotations import Claim
from lifter.clauses import SYNONYMS, shown_name
from lifter.lift import LiftedNest
from lifter.loop_nest import Loop, LoopNest
from lifter.trees import loops_in
from mdh_core.diagnostics import Diagnostic, Related
from mdh_core.expr import Assign, Declare, If, Load, Result, Var, While, base_of, walk
from mdh_core.ir import HostLoop, MdhProgram, Step, Store
from mdh_core.source import Span

_DEPENDENCES = ("MDH207", "MDH208", "MDH213")


def checked(lifted: LiftedNest) -> LiftedNest:
    """The same with the frontend's remarks, refused if a claim is wrong."""
    nest = lifted.nest
    if nest.remarks:
        placed = tuple(replace(d, file=nest.file) for d in nest.remarks)
        lifted = replace(lifted, diagnostics=(*placed, *lifted.diagnostics))
    found = [replace(d, file=nest.file) for claim in nest.directive.claims for d in _problems(lifted, claim)]
    if not found:
        return lifted
    kept = tuple(d for d in lifted.diagnostics if d.severity == "error")
    return replace(lifted, status="refused", program=(), diagnostics=(*found, *kept), iterators_final=())


def claimed_loops(nest: LoopNest, claim: Claim) -> list[Loop]:
    """The loops that a claim is about, outermost first."""
    loops = [x for x in loops_in(nest.body) if x.span.start == claim.at][:1]
    while loops and len(loops) < claim.loops:
        inner = [s for s in loops[-1].body if isinstance(s, Loop)]
        if len(inner) != 1:
            break
        loops.append(inner[0])
    return loops


def _problems(lifted: LiftedNest, claim: Claim) -> Iterator[Diagnostic]:
    loops = claimed_loops(lifted.nest, claim)
    if not loops:
        return
    if len(loops) < claim.loops:
        yield Diagnostic(
            "MDH413", f"`collapse({claim.loops})` but there are {len(loops)} nested loops", span=claim.span,
            help="correct the number",
        )  # fmt: skip
    if not claim.parallel:
        return
    yield from _shared(lifted, claim, loops)
    if lifted.status == "refused":
        yield from (
            Diagnostic(
                "MDH412", f"the iterations of `{shown_name(loops[0])}` are not independent: {d.message}",
                span=claim.span, related=(Related(d.span, d.label or "here"),) if d.span else (),
            )
            for d in lifted.diagnostics if d.code in _DEPENDENCES and _inside(d, loops)
        )  # fmt: skip
        return
    names = _dimensions(loops)
    stored = _stored_around(lifted.nest, loops[0])
    for step in _every(lifted.program):
        if isinstance(step, HostLoop) and step.span in [x.span for x in loops]:
            why = f" ({step.reason})" if step.reason else ""
            yield Diagnostic(
                "MDH412", f"the iterations of `{step.source_name}` are not independent{why}", span=claim.span,
                related=(Related(step.span, "this loop runs in order"),) if step.span else (),
                help="remove the directive, or the dependence",
            )  # fmt: skip
        elif isinstance(step, MdhProgram) and any(s.buffer in stored for s in step.out.stores):
            yield from _operators(step, claim, names, _locals(lifted.nest.body))
    yield from _idle_clauses(lifted, claim)


def _dimensions(loops: Sequence[Loop]) -> set[str]:
    """What dimensions that these loops have become may be called."""
    return {name for x in loops for name in (x.iterator, shown_name(x))}


def _stored_around(nest: LoopNest, loop: Loop) -> set[str]:
    """What is written by the statement of the nest that a loop is a part of.

    Dimensions bear the names in the source, so that of two loops over `i`, one after the other, what is
    stored tells which one a program is about.
    """
    return next((_written((s,)) for s in nest.body if any(x is loop for x in loops_in((s,)))), set())


def _every(steps: Sequence[Step]) -> Iterator[Step]:
    for s in steps:
        yield s
        if isinstance(s, HostLoop):
            yield from _every(s.body)


def _inside(d: Diagnostic, loops: Sequence[Loop]) -> bool:
    """Is the dependence about a claimed loop?  Its message names the loop, or says nothing about one."""
    return any(f"`{shown_name(x)}`" in d.message for x in loops) or "iteration of" not in d.message


def _operators(p: MdhProgram, claim: Claim, names: set[str], local: set[str]) -> Iterator[Diagnostic]:
    """Reductions and scans over claimed loops that the clauses do not cover.

    A clause about a variable of the nest's own (``local``) stands for what is stored from it.
    """
    clauses = {variable: operator for operator, variable, _ in claim.reductions}
    inner = {operator for operator, variable, _ in claim.reductions if variable in local}
    for d, op in zip(p.hom.dims, p.hom.combine, strict=True):
        if d.name not in names or op.kind == "cc" or op.function is None:
            continue
        for s in p.out.stores:
            if op.kind == "ps":
                yield Diagnostic(
                    "MDH412", f"`{s.buffer}` is a prefix sum over `{d.name}`, so its iterations are ordered",
                    span=claim.span,
                )  # fmt: skip
                continue
            operator = _operator(op.function.name, s)
            stated = clauses.get(s.buffer)
            if stated is None and (operator in inner or s.buffer in claim.own):
                continue
            if stated is None:
                yield Diagnostic(
                    "MDH413", f"`{s.buffer}` is combined over `{d.name}` but is in no reduction clause",
                    span=claim.span, help=f"add `reduction({operator}: {s.buffer})`",
                )  # fmt: skip
            elif stated != operator:
                yield Diagnostic(
                    "MDH413", f"`{s.buffer}` is combined by `{operator}`, not by `{stated}`",
                    span=_place(claim, s.buffer),
                    help=f"write `reduction({operator}: {s.buffer})`",
                )  # fmt: skip


def _operator(name: str, s: Store) -> str:
    """The operator of what is stored, from that of a tuple."""
    parts = name[1:-1].split(", ") if name.startswith("(") else [name]
    component = next((n.component for n in walk(s.value) if isinstance(n, Result)), 0)
    found = parts[component] if component < len(parts) else parts[0]
    return SYNONYMS.get(found, found)


def _idle_clauses(lifted: LiftedNest, claim: Claim) -> Iterator[Diagnostic]:
    """Reduction clauses about variables that no loop of the nest combines."""
    combined = {
        s.buffer
        for p in lifted.programs
        if any(op.kind == "pw" for op in p.hom.combine)
        for s in p.out.stores
    }
    local = _locals(lifted.nest.body)
    for operator, variable, span in claim.reductions:
        if variable not in combined | local:
            yield Diagnostic(
                "MDH413", f"`reduction({operator}: {variable})` but the loop does not combine `{variable}`",
                span=span or claim.span, help="remove the clause",
            )  # fmt: skip


def _place(claim: Claim, variable: str) -> Span:
    return next((span for _, name, span in claim.reductions if name == variable and span), claim.span)


def _shared(lifted: LiftedNest, claim: Claim, loops: Sequence[Loop]) -> Iterator[Diagnostic]:
    """OpenMP: variables declared before the loop that all threads write; in OpenACC each has its own."""
    if claim.language != "omp":
        return
    own = {*claim.private, *claim.own, *(variable for _, variable, _ in claim.reductions)}
    names = _dimensions(loops)
    reduced = {
        s.buffer for p in lifted.programs for s in p.out.stores
        if any(d.name in names for d in p.hom.dims_of("pw", "ps"))
    }  # fmt: skip
    outer = {s.name for s in lifted.nest.scalars}
    written = _written(loops[-1].body) & outer
    inner = {shown_name(x) for x in loops_in(loops[-1].body) if x.declared_outside}
    for name in sorted((written - reduced) | inner):
        if name not in own:
            yield Diagnostic(
                "MDH412", f"all threads write `{name}`, which is shared", span=claim.span,
                help=f"declare it inside the loop, or add `private({name})`",
            )  # fmt: skip


def _locals(body: Sequence[object]) -> set[str]:
    """Variables that the nest declares, by their names in the source or with a number after them."""
    out: set[str] = set()
    for s in body:
        match s:
            case Declare(name=name):
                out |= {name, re.sub(r"_\d+$", "", name)}
            case If(then=then, other=other):
                out |= _locals((*then, *other))
            case While(body=inner) | Loop(body=inner):
                out |= _locals(inner)
    return out


def _written(body: Sequence[object]) -> set[str]:
    out: set[str] = set()
    for s in body:
        match s:
            case Assign(target=target):
                place = base_of(target)
                out.add(place.name if isinstance(place, Var) else place.buffer)
                assert isinstance(place, Var | Load)
            case If(then=then, other=other):
                out |= _written((*then, *other))
            case While(body=inner) | Loop(body=inner):
                out |= _written(inner)
            case Declare():
                pass
    return out
