"""From a checked file to what an editor shows; pure, protocol-neutral, all places in bytes of the document.

    FileReport -> Analysis(findings, nests)   nests: hover text, operators at loop heads, splice

What is too wide to underline is cut to its first line: an editor draws every place that a finding names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lifter.lift import LiftedNest
from lifter.loop_nest import Loop as SourceLoop
from lifter.trees import loops_in
from mdh_core.diagnostics import CODES, Diagnostic
from mdh_core.ir import HostLoop, Sequential, Step, programs_of
from mdh_core.source import SourceFile, Span
from mdh_lift.findings import Finding as Found
from mdh_lift.findings import in_order
from mdh_lift.lsp.values import Analysis, Edit, Finding, Fix, Loop, Nest, Place, Region, Related, Tuned
from mdh_lift.pipeline import FileReport, NestReport, short_name

UNTOLD = ("MDH007", "MDH101")  # most files have no directive; lens and hover say what was lifted
_LONGEST_HOVER = 6000  # characters


@dataclass(frozen=True)
class Extras:
    """What is known of nests beside the report.  ``tuned``: by name (function::label)."""

    tuned: Mapping[str, tuple[Tuned, ...]]
    trusted: bool = True


def analysis(report: FileReport, extras: Extras) -> Analysis:
    """What there is to say about a file."""
    told: list[Finding] = [
        _finding(f, report.source, "") for f in report.findings if _is_told(f.diagnostic, extras.trusted)
    ]
    for nest in report.nests:
        name = short_name(nest.name)
        told += [
            _finding(f, report.source, name)
            for f in in_order(nest.findings)
            if _is_told(f.diagnostic, extras.trusted)
        ]
    return Analysis(tuple(dict.fromkeys(told)), tuple(_nest(report, n, extras) for n in report.nests))


def _is_told(d: Diagnostic, trusted: bool) -> bool:
    """Without the preprocessor, only what follows from the text of directives and regions is certain."""
    if d.code in UNTOLD:
        return False
    return trusted or d.code[3:] in _CERTAIN


_CERTAIN = ("401", "402", "403", "407", "502", "509", "901", "821", "822")


# --------------------------------------------------------------------------- findings


def _finding(found: Found, source: SourceFile, nest: str) -> Finding:
    d = found.diagnostic
    if found.source is None or found.file != source.path:  # in a header, which is another document
        elsewhere = f"{found.file}:{found.start[0]}: " if found.file != source.path else ""
        return Finding(d.code, d.severity, f"{elsewhere}{d.message}", first_line(source), (), d.label,
                       d.notes, d.help, (), nest)  # fmt: skip
    place = _drawn(source, d.span) if d.span else _line(source, d.line)
    related = tuple(Related(_drawn(source, r.span), r.label) for r in d.related if r.span)
    return Finding(d.code, d.severity, d.message, place, related, d.label, d.notes, d.help,
                   tuple(_fixes(d)), nest)  # fmt: skip


def _fixes(d: Diagnostic) -> Iterator[Fix]:
    """The change that a diagnostic proposes."""
    if d.fix is not None:
        title = d.fix.title[:1].upper() + d.fix.title[1:]
        yield Fix(title, (Edit(place_of(d.fix.span), d.fix.text),))


def place_of(span: Span) -> Place:
    return Place(span.start, span.end)


def _drawn(source: SourceFile, span: Span) -> Place:
    """A span, or its first line where it has several."""
    start = min(span.start, len(source.data))
    line = source.line_col(start)[0]
    return Place(start, max(start, min(span.end, source.line_span(line).end)))


def _line(source: SourceFile, line: int) -> Place:
    if not 1 <= line <= source.line_count:
        return first_line(source)
    span = source.line_span(line)
    text = source.data[span.start : span.end]
    return Place(span.end - len(text.lstrip()), span.end)


def first_line(source: SourceFile) -> Place:
    return place_of(source.line_span(1))


def explanation(code: str) -> str:
    """The long form of a code, as Markdown."""
    row = CODES[code]
    return f"**{row.code}: {row.title}**\n\n{row.explanation}"


# --------------------------------------------------------------------------- nests


def _nest(report: FileReport, nest: NestReport, extras: Extras) -> Nest:
    name, source = short_name(nest.name), report.source
    lifted = nest.lifted
    if lifted is None:
        head = _line(source, nest.line)
        return Nest(name, nest.status, head, head, _hover(nest, None, ()), _summary(nest),
                    splice=nest.splice_state, regions=_regions(nest))  # fmt: skip
    body = _in_file(report, lifted.nest.span)
    directive = _in_file(report, lifted.nest.directive_span) if lifted.nest.directive_span else None
    tuned = extras.tuned.get(name, ())
    return Nest(
        name,
        nest.status,
        directive or _line(source, source.line_col(body.start)[0]),
        body,
        _hover(nest, lifted, tuned),
        _summary(nest),
        tuple(_loops(report, lifted)),
        nest.splice_state,
        _regions(nest),
        tuned,
        nest.replaceable,
        tuple(_written_out(report, lifted)),
    )


def _in_file(report: FileReport, span: Span) -> Place:
    """A span of the original in the file as it stands."""
    start = report.bare.in_file(span.start)
    return Place(start, report.bare.in_file(span.end - 1) + 1 if span.end > span.start else start)


def _regions(nest: NestReport) -> tuple[Region, ...]:
    return tuple(Region(r.kind, place_of(r.span)) for r in nest.regions)


def _summary(nest: NestReport) -> str:
    """``2 md_homs``, ``1 md_hom, 1 part stays``, or why the nest is refused."""
    if nest.lifted is None or nest.status == "refused":
        codes = sorted({f.diagnostic.code for f in nest.findings if f.diagnostic.severity == "error"})
        return "not lifted" + (f": {', '.join(codes)}" if codes else "")
    steps = nest.lifted.program
    homs, kept, in_turn = len(nest.lifted.programs), _count(steps, Sequential), _count(steps, HostLoop)
    parts = [f"{homs} md_hom{'' if homs == 1 else 's'}"] if homs else []
    parts += [f"{in_turn} loop{'' if in_turn == 1 else 's'} in order"] if in_turn else []
    parts += [f"{kept} part{' stays' if kept == 1 else 's stay'}"] if kept else []
    return ", ".join(parts)


def _count(steps: Sequence[Step], kind: type) -> int:
    inner = sum(_count(s.body, kind) for s in steps if isinstance(s, HostLoop))
    return inner + sum(isinstance(s, kind) for s in steps)


# --------------------------------------------------------------------------- operators at loop heads


def _loops(report: FileReport, lifted: LiftedNest) -> Iterator[Loop]:
    """The loops of a nest with what they became; those of which that is not certain are left out."""
    loops = list(loops_in(lifted.nest.body))
    in_turn = {s.span: s for s in _host_loops(lifted.program)}
    for loop in loops:
        if not loop.span:
            continue
        place = _head(report, loop.span)
        if loop.span in in_turn:
            yield Loop(place, "in order", "runs in order: an iteration needs what earlier ones computed")
            continue
        operators = _operators(lifted, loop, loops)
        if operators:
            yield Loop(place, ", ".join(_sign(o) for o in operators), _tooltip(operators))


def _host_loops(steps: Sequence[Step]) -> Iterator[HostLoop]:
    for s in steps:
        if isinstance(s, HostLoop):
            yield s
            yield from _host_loops(s.body)


def _head(report: FileReport, span: Span) -> Place:
    """The head with the bracket that closes it."""
    place = _in_file(report, span)
    rest = report.source.data[place.end : place.end + 200]
    gap = len(rest) - len(rest.lstrip())
    closed = rest[gap : gap + 1] == b")"
    return Place(place.start, place.end + gap + 1) if closed else place


def _operators(lifted: LiftedNest, loop: SourceLoop, loops: Sequence[SourceLoop]) -> list[str]:
    """Combine operators of the dimensions that a loop became; none where several loops could be meant."""
    name = loop.source_name or loop.iterator
    alike = [x for x in loops if (x.source_name or x.iterator) == name]
    names = {x.iterator for x in alike} | {name}
    found = {
        str(op): None
        for p in programs_of(lifted.program)
        for d, op in zip(p.hom.dims, p.hom.combine, strict=True)
        if d.name in names
    }
    return list(found) if len(alike) == 1 or len(found) == 1 else []


def _sign(operator: str) -> str:
    if operator == "cc":
        return "++"
    return operator[3:-1] if operator.startswith("pw(") else operator


def _tooltip(operators: Sequence[str]) -> str:
    said = []
    for o in operators:
        if o == "cc":
            said.append("`cc`: iterations are independent, their results stand side by side")
        elif o.startswith("pw("):
            said.append(f"`{o}`: iterations are combined by `{_sign(o)}`, in any grouping")
        else:
            said.append(f"`{o}`: every iteration's partial result is kept")
    return "; ".join(said)


# --------------------------------------------------------------------------- hover


def _hover(nest: NestReport, lifted: LiftedNest | None, tuned: Sequence[Tuned]) -> str:
    """The nest in Markdown: expression, operators, counts, what is tuned and spliced."""
    parts = [f"**{_code(short_name(nest.name))}**: {nest.status}, {_summary(nest)}"]
    if lifted is not None and lifted.program:
        from mdh_lift.shown import shown

        text = shown(lifted).rstrip("\n")
        if len(text) > _LONGEST_HOVER:
            text = text[:_LONGEST_HOVER].rsplit("\n", 1)[0] + "\n…"
        parts.append(f"```text\n{text}\n```")
        rows = dict.fromkeys(
            f"| {_code(d.name)} | {_code(str(d.size))} | {_code(str(op))} |"
            for p in programs_of(lifted.program)
            for d, op in zip(p.hom.dims, p.hom.combine, strict=True)
        )
        if rows:
            parts.append("\n".join(["| loop | iterations | operator |", "| --- | --- | --- |", *rows]))
        parts += counts_of(lifted)
    for f in nest.findings:
        if f.diagnostic.severity == "error":
            parts.append(f"{f.diagnostic.code}: {f.diagnostic.message}")
    parts += [_tuned_text(t) for t in tuned]
    said = {"fresh": "The result is spliced.", "stale": "What is spliced is stale: the nest changed.",
            "edited": "Generated code was edited by hand."}  # fmt: skip
    if nest.splice_state:
        parts.append(said[nest.splice_state])
    return "\n\n".join(parts)


def _code(text: str) -> str:
    """Text as it is, in Markdown; names may hold any character but line ends."""
    text = text.replace("|", "\\|")
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def _tuned_text(t: Tuned) -> str:
    ratio = f"{t.median:.3g} × ({t.low:.3g} to {t.high:.3g})" if t.median else "not measured"
    what = f"Tuned for {_code(t.size_class)}: {ratio}"
    return f"{what}; of an older version of the nest" if t.stale else what


def counts_of(lifted: LiftedNest) -> list[str]:
    """How much work it is at the sizes that are tuned for: iterations, operations, bytes, intensity."""
    from mdh_lift.counts import usual_counts

    try:
        found = usual_counts(lifted)
    except (KeyError, ArithmeticError):
        return []
    if found is None:
        return []
    sizes, c = found
    at = ", ".join(f"{n} = {v}" for n, v in sorted(sizes.items()))
    iterations = f"{c.iterations:,}" + (f" = {_code(c.formula)}" if c.formula else "")
    rows = [f"- iterations: {iterations}", f"- floating-point operations: {c.flops:,}"]
    rows.append(f"- bytes that must move: {c.moved:,}")
    if c.intensity is not None:
        rows.append(f"- arithmetic intensity: {c.intensity:.3g} operations per byte")
    about = "" if c.exact else "about, "
    return [f"{about}at {at}:\n\n" + "\n".join(rows) if at else about + "\n".join(["", *rows])]


# --------------------------------------------------------------------------- clauses written out


def _written_out(report: FileReport, lifted: LiftedNest) -> Iterator[Fix]:
    """What was inferred, as clauses of a directive that does not state it."""
    nest = lifted.nest
    span, directive = nest.directive_span, nest.directive
    text = report.bare.data[span.start : span.end] if span else b""
    mdh = text.find(b"mdh")
    if not text.startswith(b"#") or mdh < 0 or directive.access or directive.claims:
        return  # another language's directive, or one that a macro makes
    at = report.bare.in_file(span.start + mdh + 2) + 1
    programs = lifted.programs
    if not directive.combine_ops and len(programs) == 1 and lifted.program == programs:
        (p,) = programs
        loops = {x.iterator: x.source_name or x.iterator for x in loops_in(nest.body)}
        dims = [d.name for d in p.hom.dims]
        operators = [str(op) for op in p.hom.combine]
        if set(dims) == set(loops) and not any("linear" in o for o in operators):
            listed = ", ".join(f"{loops[d]}: {o}" for d, o in zip(dims, operators, strict=True))
            if len(set(loops.values())) == len(loops):
                yield Fix("Write out the inferred combine operators",
                          (Edit(Place(at, at), f" combine_ops({listed})"),))  # fmt: skip
