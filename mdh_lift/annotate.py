"""Directives for loops that have none -> an edit of the file.

    for (i ...)              #pragma mdh
        y[i] = 2 * x[i];     for (i ...)
                                 y[i] = 2 * x[i];

Nothing but the directives is inserted; the result is read again, and a directive that does not make the nest
that it was meant for is left out.  A second run finds nothing to do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from frontend_c.file import read
from lifter.annotations import Directive
from lifter.loop_nest import LoopNest
from mdh_core.diagnostics import Diagnostic, Refusal
from mdh_core.source import Edit, SourceFile, Span, apply_edits
from mdh_lift.estimate import estimated
from mdh_lift.files import Change
from mdh_lift.findings import Finding
from mdh_lift.pipeline import Options, without_regions
from mdh_lift.splice import regions
from mdh_lift.unannotated import Candidate, Unannotated, unannotated

DIRECTIVE = "mdh"
LEAST_ITERATIONS = 1000  # of nests whose sizes are constants: below, threads never pay


@dataclass(frozen=True, slots=True)
class Annotated:
    """``change``: the file with directives; ``taken``, ``left_out``: candidates that lift."""

    change: Change
    taken: tuple[Candidate, ...] = ()
    left_out: tuple[tuple[Candidate, Diagnostic], ...] = ()


def directive_edit(source: SourceFile, candidate: Candidate) -> Edit:
    """The insertion of ``#pragma mdh`` for a candidate that is ``annotatable``, in the layout of the line.

    A loop that shares its line with other code gets ``_Pragma("mdh")``, which may stand anywhere.
    """
    assert candidate.annotatable, candidate.name
    at = candidate.anchor
    if not candidate.own_line:
        return Edit(Span(at, at), f'_Pragma("{DIRECTIVE}") '.encode())
    line = source.line_col(at)[0]
    start = source.offset_of_line(line)
    indentation = source.data[start:at].removeprefix(b"\xef\xbb\xbf")
    return Edit(Span(at, at), f"#pragma {DIRECTIVE}".encode() + line_ending(source, line) + indentation)


def line_ending(source: SourceFile, line: int) -> bytes:
    """That of a line, or of the one above where the file ends."""
    for k in (line, line - 1):
        if 1 <= k < source.line_count:
            return b"\r\n" if source.data[: source.offset_of_line(k + 1)].endswith(b"\r\n") else b"\n"
    return b"\n"


def annotated(
    source: SourceFile, options: Options | None = None, least: float = LEAST_ITERATIONS,
    found: Unannotated | None = None,
) -> Annotated:  # fmt: skip
    """The file with a directive before every largest nest that lifts and may be replaced.

    ``least``: iterations below which a nest of constant sizes is left out.  ``found``: what is known of the
    file.  Raises ``Refusal`` where the file's generated regions are damaged.
    """
    options = options or Options()
    found = found or unannotated(source, options)
    left_out: list[tuple[Candidate, Diagnostic]] = []
    taken: list[Candidate] = []
    for c in found.candidates:
        if not c.annotatable:
            continue
        why = _why_not(source, c, least)
        if why is None:
            taken.append(c)
        else:
            left_out.append((c, why))
    while taken:
        data = apply_edits(source.data, [directive_edit(source, c) for c in taken])
        wrong = set(_wrong(data, found, taken, options))
        if not wrong:
            break
        because = "the file would be read in another way with it"
        left_out += [(c, _cannot(source, c, because)) for c in taken if c in wrong]
        taken = [c for c in taken if c not in wrong]
    new = data if taken else source.data
    return Annotated(Change(source.path, source.data, new, found.findings), tuple(taken), tuple(left_out))


def _why_not(source: SourceFile, c: Candidate, least: float) -> Diagnostic | None:
    below = [r.name for r in regions(source.data) if r.marker.start > c.anchor]
    if any(name.startswith(f"{c.function}::") and name.partition("::")[2].isdigit() for name in below):
        return Diagnostic(
            "MDH107", "a directive here would rename the spliced nests below it",
            source.path, _head(source, c), help="give those below names with `name(...)`",
        )  # fmt: skip
    work = estimated(c.nest) if c.nest is not None else None
    if work is not None and not work.assumed and work.iterations < least:
        return _cannot(source, c, f"it has only {work.iterations:g} iterations")
    return None


def _cannot(source: SourceFile, c: Candidate, why: str) -> Diagnostic:
    return Diagnostic("MDH106", f"loop is left without a directive: {why}", source.path, _head(source, c))


def _head(source: SourceFile, c: Candidate) -> Span:
    return source.line_span(c.line) if 1 <= c.line <= source.line_count else c.span


def could_have(source: SourceFile, c: Candidate) -> Finding:
    """MDH108 about a candidate, for those that show it."""
    what = "this loop nest lifts" if c.status == "lifted" else "parts of this loop nest lift"
    help_ = f"`mdh-lift annotate -w {source.path}` puts `#pragma mdh` above it"
    return Finding(
        Diagnostic("MDH108", f"{what} and has no directive", source.path, _head(source, c), help=help_),
        source,
    )


# --------------------------------------------------------------------------- the second look


def _wrong(
    data: bytes, found: Unannotated, taken: Sequence[Candidate], options: Options
) -> Iterator[Candidate]:
    """The candidates whose directives do not make their nests; all where the file cannot be read any more."""
    try:
        bare = without_regions(SourceFile(found.source.path, data))
    except Refusal:
        yield from taken
        return
    text = SourceFile(found.source.path, bare.data)
    result = read(text, found.command, options.config.lift.accept)
    made = {bare.in_file(n.span.start): n for n in result.nests}
    moved = 0
    for c in taken:
        moved += len(directive_edit(found.source, c).new)
        nest = made.get(c.span.start + moved)
        if c.nest is None or nest is None or _meaning(nest) != _meaning(c.nest):
            yield c


def _meaning(nest: LoopNest) -> LoopNest:
    """Without what tells where it stands."""
    return replace(nest, name="", label="", directive=Directive())
