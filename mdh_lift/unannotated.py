"""A file's loops without a directive -> what would become of each if one stood there.

    loop t   refused            for loops that do not lift, those inside of them are tried:
      loop i   lifted           the candidates are the largest nests that lift, and what is refused
      loop j   refused

Static: the preprocessor and the lifter, each nest in a child with a time limit.  Spans and lines count in the
file as it stands, with generated regions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from frontend_c.file import Refused
from frontend_c.preprocess import CompileCommand
from frontend_c.unannotated import LoopPlace, UnannotatedReader
from lifter.claims import checked
from lifter.lift import LiftedNest
from lifter.loop_nest import LoopNest
from mdh_core.diagnostics import Diagnostic, Refusal
from mdh_core.source import NO_SPAN, SourceFile, Span
from mdh_lift.findings import Finding
from mdh_lift.lifting import lifted_within
from mdh_lift.pipeline import Options, Place, command_for, without_regions

_ROUNDS = 12  # loops inside one another that are tried


@dataclass(frozen=True, slots=True)
class Candidate:
    """A loop without a directive.

    name       path.c::function::@line
    line       of its ``for`` in the file, 0 where that is not known
    span       bytes of the statement in the file, about where macros make its ends
    anchor     offset in the file before which the directive belongs; -1: none can stand there
    own_line   may the directive have a line of its own there?
    depth      loops inside one another
    operators  arithmetic operators and assignments in its text
    status     "lifted", "partial" or "refused"
    lifted     the lifted nest, where it got so far; its spans count in the text without generated regions
    nest       the nest as read, where it could be
    findings   why it does not lift, or may not be replaced; notes
    inside     refused loops around it, the outermost first
    """

    name: str
    function: str
    line: int
    span: Span
    anchor: int
    own_line: bool
    depth: int
    operators: int
    status: str
    lifted: LiftedNest | None = None
    nest: LoopNest | None = None
    findings: tuple[Finding, ...] = ()
    inside: tuple[int, ...] = ()

    @property
    def lifts(self) -> bool:
        return self.status != "refused"

    @property
    def replaceable(self) -> bool:
        """May a call stand in its place?  If not, MDH414 says why."""
        return not any(f.diagnostic.code == "MDH414" for f in self.findings)

    @property
    def annotatable(self) -> bool:
        """Is a directive here of use?"""
        return self.lifts and self.replaceable and self.anchor >= 0

    @property
    def reason(self) -> Finding | None:
        """Why no directive would help: the first error, or that the nest may not be replaced."""
        errors = [f for f in self.findings if f.diagnostic.severity == "error"]
        others = [f for f in self.findings if f.diagnostic.code in ("MDH414", "MDH106")]
        return next(iter(errors + others), None)


@dataclass(frozen=True, slots=True)
class Unannotated:
    """What was found in a file.

    ``functions``: names of those that it defines; ``loops``: number of outermost ones without a directive;
    ``findings``: of the file (it does not preprocess); ``directives``: number of those that it has.
    """

    source: SourceFile
    command: CompileCommand
    functions: tuple[str, ...] = ()
    loops: int = 0
    candidates: tuple[Candidate, ...] = ()
    findings: tuple[Finding, ...] = ()
    directives: int = 0


def unannotated(source: SourceFile, options: Options | None = None) -> Unannotated:
    """The loops of a C file that have no directive, lifted or refused; in the order of the file.

    A loop that does not lift is a candidate if none of the loops in it does either; otherwise it is named in
    ``inside`` of those that do.  Raises ``Refusal`` where markers of generated regions are damaged.
    """
    options = options or Options()
    bare = without_regions(source)
    command = command_for(source.path, options)
    place = Place(source, bare)
    text = SourceFile(source.path, bare.data)
    try:
        reader = UnannotatedReader(text, command, options.config.lift.accept)
    except Refusal as refusal:
        return Unannotated(source, command, findings=(place.finding(refusal.diagnostic),))
    search = _Search(reader, place, source.path, options.config.lift.seconds)
    candidates = tuple(search.all())
    return Unannotated(
        source, command, reader.functions, len(reader.loops), candidates, directives=reader.directives
    )


@dataclass
class _Search:
    reader: UnannotatedReader
    place: Place
    path: str
    seconds: float

    def all(self) -> list[Candidate]:
        """Round by round, one level of loops deeper where the level above was refused."""
        found: dict[int, Candidate] = {}
        parents: dict[int, LoopPlace] = {}
        level: Sequence[LoopPlace] = self.reader.loops
        for _ in range(_ROUNDS):
            deeper: list[LoopPlace] = []
            for loop, candidate in zip(level, self._tried(level), strict=True):
                found[loop.first] = candidate
                if not candidate.lifts:
                    deeper += loop.inner
                    parents |= {inner.first: loop for inner in loop.inner}
            if not deeper:
                break
            level = deeper
        return list(self._kept(found, parents))

    def _kept(self, found: dict[int, Candidate], parents: dict[int, LoopPlace]) -> Iterator[Candidate]:
        """Those that lift, and the outermost of those around and inside of which nothing does."""
        around: dict[int, list[int]] = {
            first: [] for first in found
        }  # the loops outside of each, innermost first
        for first, outside in around.items():
            up = parents.get(first)
            while up is not None:
                outside.append(up.first)
                up = parents.get(up.first)
        of_use = {up for first, outside in around.items() if found[first].lifts for up in outside}
        for first in sorted(found):
            outside = around[first]
            largest = not outside or outside[0] in of_use
            if found[first].lifts or (largest and first not in of_use):
                yield replace(found[first], inside=tuple(found[up].line for up in reversed(outside)))

    def _tried(self, level: Sequence[LoopPlace]) -> Iterator[Candidate]:
        results = self.reader.read_all(level)
        nests = [r for r in results if isinstance(r, LoopNest)]
        lifted = map(checked, lifted_within(nests, self.seconds))
        for loop, result in zip(level, results, strict=True):
            yield self._candidate(loop, result, next(lifted) if isinstance(result, LoopNest) else None)

    def _candidate(self, loop: LoopPlace, result: LoopNest | Refused, lifted: LiftedNest | None) -> Candidate:
        nest = result if isinstance(result, LoopNest) else None
        told = result.diagnostics if isinstance(result, Refused) else ()
        told = told if lifted is None else lifted.diagnostics
        line, span = self.reader.line(loop), self.reader.span(loop) if nest is None else nest.span
        findings = [self.place.finding(d) for d in told if d.code != "MDH101"]
        if loop.obstacle:
            cannot = Diagnostic(
                "MDH106", f"no directive can stand before this loop: {loop.obstacle}",
                span=loop.head, line=line, help="write the loop out as a statement of its own",
            )  # fmt: skip
            findings.append(self.place.finding(cannot))
        return Candidate(
            result.name,
            loop.function,
            self.place.line(line) if line else 0,
            self.place.span(span) if span else NO_SPAN,
            self.place.bare.in_file(loop.anchor) if loop.anchor >= 0 else -1,
            loop.own_line,
            loop.depth,
            self.reader.operations(loop),
            "refused" if lifted is None else lifted.status,
            lifted,
            nest,
            tuple(findings),
        )
