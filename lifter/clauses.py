"""The directive against the analysis: what is stated must be what the loops do."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches

from lifter.annotations import OpClause
from lifter.fusion import Fusion, neighbours, product_text
from lifter.loop_nest import Loop, LoopNest
from lifter.trees import loops_in
from mdh_core.combine import CombineOp
from mdh_core.diagnostics import Diagnostic, Fix, Related, refuse, replacement
from mdh_core.expr import Load, ScalarType, walk
from mdh_core.ir import HostLoop, MdhProgram, Sequential, Step, Store
from mdh_core.source import Span

SYNONYMS = {"fmin": "min", "fmax": "max"}


def shown_name(loop: Loop) -> str:
    return loop.source_name or loop.iterator


def promised(nest: LoopNest) -> frozenset[str]:
    """User functions that a clause promises to be associative and commutative."""
    named = {f for clause in nest.directive.combine_ops for f in clause.functions}
    return frozenset(named & {f.name for f in nest.functions})


def check_names(nest: LoopNest) -> None:
    """Before lifting: MDH403 and MDH409 for what the nest does not have."""
    d = nest.directive
    loops = list(loops_in(nest.body))
    iterators = {shown_name(x) for x in loops}
    by_position = [c for c in d.combine_ops if not c.iterator]
    if by_position and len(by_position) != len(loops):
        raise refuse(
            "MDH403",
            f"{len(by_position)} combine operator{'s' * (len(by_position) != 1)} for "
            f"{len(loops)} loop{'s' * (len(loops) != 1)}",
            _whole(d.combine_ops) or d.clause_span("combine_ops") or nest.directive_span,
            notes=("the loops are " + ", ".join(f"`{shown_name(x)}`" for x in loops),),
            help="write one operator per loop, outermost first, or `iterator: operator` pairs",
            fix=None if d.access else replacement("remove `combine_ops`", d.clause_span("combine_ops"), ""),
        )
    for c in d.combine_ops:
        if c.iterator and c.iterator not in iterators:
            raise _unknown(nest, "combine_ops", c.iterator, "iterator", sorted(iterators))
    known = _size_names(nest)
    for sizes in d.sizes:
        for name, _ in sizes:
            if name not in known:
                raise _unknown(nest, "sizes", name, "size", sorted(known))
    buffers = {b.name for b in nest.buffers}
    for group in d.noalias:
        for name in group:
            if name not in buffers:
                raise _unknown(nest, "noalias", name, "buffer", sorted(buffers))


_PLACE = re.compile(r"[A-Za-z_]\w*(?:(?:->|\.)[A-Za-z_]\w*)*", re.ASCII)
_TYPES = frozenset(["char", "short", "int", "long", "signed", "unsigned", "size_t", "sizeof"])


def _size_names(nest: LoopNest) -> set[str]:
    """Names that a ``sizes`` clause may give values: of parameters, and of what others are computed from.

    A member goes by its names with underscores: ``m_rows`` for ``m->rows``.
    """
    found: set[str] = set()
    for p in nest.params:
        if not (isinstance(p.type, ScalarType) and p.type.is_integer):
            continue
        if not p.value or _PLACE.fullmatch(p.value.lstrip("*")):
            found.add(p.name)
        else:
            found |= {re.sub(r"\W+", "_", x) for x in _PLACE.findall(p.value)} - _TYPES
    return found


def _whole(clauses: Sequence[OpClause]) -> Span:
    spans = [c.span for c in clauses if c.span]
    return Span(spans[0].start, spans[-1].end) if spans else Span(-1, -1)


def _unknown(nest: LoopNest, clause: str, name: str, what: str, known: list[str]) -> Exception:
    listed = ", ".join(f"`{k}`" for k in known)
    span = nest.directive.name_span(clause, name)
    close = get_close_matches(name, known, 1, 0.5)
    return refuse(
        "MDH409",
        f"the nest has no {what} `{name}`",
        span or nest.directive.clause_span(clause),
        help=f"it has {listed}" if known else f"it has no {what}",
        fix=replacement(f"write `{close[0]}`", span, close[0]) if close else None,
    )


def check_programs(nest: LoopNest, programs: Sequence[MdhProgram]) -> None:
    """After lifting: MDH404 and MDH408."""
    _check_operators(nest, programs)
    _check_buffers(nest, programs)


def _check_operators(nest: LoopNest, programs: Sequence[MdhProgram]) -> None:
    loops = list(loops_in(nest.body))
    for n, clause in enumerate(nest.directive.combine_ops):
        if clause.iterator:
            mine = [x for x in loops if shown_name(x) == clause.iterator]
        else:
            mine = [loops[n]]
        found: list[CombineOp] = []
        for p in programs:
            for d, op in zip(p.hom.dims, p.hom.combine, strict=True):
                if any(d.name in (x.iterator, shown_name(x)) for x in mine):
                    found.append(op)
        if found and not any(agrees(clause, op) for op in found):
            raise refuse(
                "MDH404",
                f"`{shown_name(mine[0])}` is declared `{clause}` but the loop does `{found[0]}`",
                clause.span or nest.directive.clause_span("combine_ops"),
                related=(Related(mine[0].span, "this loop"),) if mine[0].span else (),
                help=f"{_advice(found[0])}, or correct the loop",
                fix=_corrected(clause, found[0]),
            )


def _advice(op: CombineOp) -> str:
    """A linear recurrence is inferred; no clause declares it."""
    ordered = op.function is not None and not op.function.commutative
    return "leave the clause out" if ordered else f"write `{op}`"


def _corrected(clause: OpClause, op: CombineOp) -> Fix | None:
    """What the loop does, where a clause can say it."""
    ordered = op.function is not None and not op.function.commutative
    return None if ordered else replacement(f"write `{op}`", clause.span, str(op))


def agrees(clause: OpClause, op: CombineOp) -> bool:
    if clause.kind != op.kind:
        return False
    if op.function is None:
        return True
    names = _parts(op.function.name)
    stated = [SYNONYMS.get(f, f) for f in clause.functions]
    return sorted(stated) == sorted(SYNONYMS.get(f, f) for f in names)


def _parts(name: str) -> list[str]:
    return name[1:-1].split(", ") if name.startswith("(") else [name]


def _check_buffers(nest: LoopNest, programs: Sequence[MdhProgram]) -> None:
    d = nest.directive
    written = {s.buffer for p in programs for s in p.out.stores}
    read = {a.buffer for p in programs for a in p.inp.accesses}
    inner = {
        n.buffer
        for p in programs
        for e in (*p.out.initial, *(s.value for s in p.out.stores))
        if e is not None
        for n in walk(e)
        if isinstance(n, Load)
    }
    if d.out:
        _compare("out", d.out, written, frozenset(), nest)
    if d.inp:
        # what only starts from or merges with its own old value may be listed or not
        _compare("inp", d.inp, read | (inner - written), frozenset(inner | (read & written)), nest)
    if d.access:
        _check_access(nest, programs)


def _compare(
    clause: str, stated: Sequence[str], found: set[str], either: frozenset[str], nest: LoopNest
) -> None:
    verb = "writes" if clause == "out" else "reads"
    extra = sorted(set(stated) - found - either)
    missing = sorted(found - set(stated) - either)
    if extra or missing:
        message = f"the nest {verb} `{missing[0]}`, which is not in `{clause}`" if missing else ""
        if extra:
            message = f"`{extra[0]}` is in `{clause}` but the nest does not {verb[:-1]} it"
        span = nest.directive.clause_span(clause)
        exact = f"{clause}({', '.join(sorted(found))})"
        fix = replacement(f"write `{exact}`", span, exact) if found else None
        raise refuse("MDH408", message, span, help=_exactly(verb, found), fix=fix)


def _exactly(verb: str, names: set[str]) -> str:
    return f"the nest {verb} " + ", ".join(f"`{n}`" for n in sorted(names))


def _check_access(nest: LoopNest, programs: Sequence[MdhProgram]) -> None:
    """The output access of the CC'23 spelling names a buffer and, with plain subscripts, its index."""
    text = nest.directive.access
    name = re.split(r"[\[(\s]", text.strip(), maxsplit=1)[0].lstrip("*&")
    stores = [s for p in programs for s in p.out.stores if s.buffer == name]
    span = nest.directive.clause_span("access") or nest.directive_span
    if not stores:
        written = {s.buffer for p in programs for s in p.out.stores}
        raise refuse("MDH408", f"the nest does not write `{name}`", span, help=_exactly("writes", written))
    index = [i.strip() for i in re.findall(r"\[([^\]]*)\]", text)]
    iterators = {shown_name(x) for x in loops_in(nest.body)}
    plain = index and all(i in iterators for i in index)
    if plain and not any(_mentions(s, index) for s in stores):
        actual = "".join(f"[{a}]" for a in stores[0].index)
        raise refuse("MDH408", f"`{text}` is declared but the nest writes `{name}{actual}`", span)


def _mentions(s: Store, index: list[str]) -> bool:
    """Does a store use these iterators, each in its dimension?"""
    return len(s.index) == len(index) and all(i in a.names for i, a in zip(index, s.index, strict=True))


def operators_note(programs: Sequence[MdhProgram]) -> str:
    """``md_hom(i: cc, k: pw(+))``, one per program."""
    return ", then ".join(
        "md_hom("
        + ", ".join(f"{d.name}: {op}" for d, op in zip(p.hom.dims, p.hom.combine, strict=True))
        + ")"
        for p in programs
    )


def steps_note(steps: Sequence[Step]) -> str:
    """``t { md_hom(i: cc) }``: host loops around what is in them."""
    out = []
    for s in steps:
        match s:
            case MdhProgram():
                out.append(operators_note((s,)))
            case HostLoop(source_name=name, iterator=iterator, body=body):
                out.append(f"{name or iterator} in order {{ {steps_note(body)} }}")
            case Sequential():
                out.append("statements in order")
    return ", then ".join(out)


def fusion_note(steps: Sequence[Step], fusion: Fusion, span: Span) -> Diagnostic:
    """MDH104: what could be computed together, and what that saves."""
    parts = neighbours(steps, fusion)
    related = [Related(p.span, f"computes {_outputs(p)}") for p in parts if p.span and p.span != span]
    notes = [f"this saves {saving}" for saving in fusion.saved]
    notes += [f"the temporary `{name}` is not needed then" for name in fusion.unneeded]
    if fusion.repeated:
        notes.append(f"values are computed {product_text(fusion.repeated)} times as often")
    what = [_outputs(p) for p in parts]
    return Diagnostic(
        "MDH104",
        f"{', '.join(what[:-1])} and {what[-1]} may be computed in one sweep",
        span=span,
        related=tuple(related),
        notes=tuple(notes),
    )


def _outputs(p: MdhProgram) -> str:
    return ", ".join(dict.fromkeys(f"`{s.buffer}`" for s in p.out.stores))
