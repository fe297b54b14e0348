"""From a file to its lifted nests, and from kernels back into the file; no printing here.

    read -> lift -> (space, search) -> emit -> verify -> measure -> splice

What stands in the middle, and runs code, is in ``improve``.

A file is always read without its generated regions, so that a spliced file lifts as its original
does; the findings count in the file as it stands.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from frontend_c.compilers import project_of
from frontend_c.file import Refused, read
from frontend_c.lexer import token_hash, tokens
from frontend_c.preprocess import CompileCommand
from mdh_core.diagnostics import Diagnostic, Fix, Refusal, refuse
from mdh_core.source import NO_SPAN, SourceFile, Span
from mdh_lift import beside, compile_command, journal, macros
from mdh_lift.config import Config
from mdh_lift.files import Change, is_python, read_source
from mdh_lift.findings import Finding
from mdh_lift.splice import (
    DATA_KINDS,
    DataPart,
    Original,
    Region,
    SplicePart,
    kinds_of_regions,
    original,
    region_name,
    regions,
    revert,
    splice,
)
from tuning import lock as locks

if TYPE_CHECKING:  # most files have no directive: nothing of what parses and lifts is loaded for these
    from emit.gpu_file import GpuFile, GpuPart
    from emit.openmp_file import OpenmpFile, OpenmpPart
    from frontend_c.data_regions import DataRegion
    from frontend_py.read import Refused as RefusedFunction
    from lifter.lift import LiftedNest
    from lifter.loop_nest import LoopNest
    from tuning.turns import Turns

_OUR_DIRECTIVE = re.compile(rb'\s*#\s*pragma\s+mdh\b|\s*_Pragma\s*\(\s*"\s*mdh\b')


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line and the configuration say about a run."""

    config: Config = field(default_factory=Config)
    root: Path = Path()  # what relative paths of the configuration count from
    command: CompileCommand | None = None  # the text after ``--``
    build_dir: str = ""
    force: bool = False  # overwrite edited regions, splice without a speedup
    resume: bool = True  # use what the database knows
    replay: bool = False  # take all results from the database
    style: str = ""  # inline, outline; empty: as it is, else what the configuration says
    fingerprint: str = ""  # of the machine whose results are replayed; empty: this one, or the only one
    nearest: bool = False  # take the choice of a similar machine instead of a search
    locked: bool = False  # the lock file must not change
    frozen: bool = False  # and nothing may be compiled or run
    turns: Turns | None = field(default=None, compare=False)  # with other processes
    recorded: bool = False  # put in place what is recorded as verified here; compile and run nothing

    @property
    def runs_nothing(self) -> bool:
        return self.frozen or self.recorded or self.replay

    @property
    def target(self) -> str:
        """That was asked for; empty: what the nest says."""
        return self.config.tune.target

    @property
    def lock_path(self) -> Path:
        return self.root / self.config.lock.path

    @property
    def database_path(self) -> Path:
        return self.root / self.config.database.path


@dataclass(frozen=True, slots=True)
class NestReport:
    """One nest of a file: what became of it, and what is spliced for it."""

    name: str  # path.c::function::label
    line: int  # in the file
    status: str  # "lifted" | "partial" | "refused"
    lifted: LiftedNest | None
    regions: tuple[Region, ...]
    findings: tuple[Finding, ...]
    line_of: Callable[[Span], int] = field(default=lambda span: 0, compare=False, repr=False)  # in the file

    def __post_init__(self) -> None:
        named = tuple(f if f.nest == self.name else replace(f, nest=self.name) for f in self.findings)
        object.__setattr__(self, "findings", named)

    @property
    def replaceable(self) -> bool:
        """May a call stand in place of the nest?  If not, MDH414 says why."""
        return not any(f.diagnostic.code == "MDH414" for f in self.findings)

    @property
    def splice_state(self) -> str:
        """ "" (nothing spliced), "fresh", "stale" or "edited"."""
        if not self.regions:
            return ""
        if any(f.diagnostic.code == "MDH502" for f in self.findings):
            return "edited"
        return "stale" if any(f.diagnostic.code == "MDH501" for f in self.findings) else "fresh"


@dataclass(frozen=True, slots=True)
class FileReport:
    """A file, read and lifted."""

    source: SourceFile  # as it stands
    bare: Original
    command: CompileCommand
    nests: tuple[NestReport, ...] = ()
    findings: tuple[Finding, ...] = ()  # what belongs to no nest
    data: tuple[DataRegion, ...] = ()  # whose arrays stay on the device, for GPUs
    directory: str = ""  # of the file, from the root; empty: the root, or none below it

    @property
    def all_findings(self) -> list[Finding]:
        return [*self.findings, *(f for nest in self.nests for f in nest.findings)]

    def nest(self, name: str) -> NestReport:
        return next(n for n in self.nests if n.name == name)


# --------------------------------------------------------------------------- read, lift


def check_file(path: str, options: Options | None = None) -> FileReport:
    """Read and lift a file; compare what is spliced with what it was made from.

    Raises ``Refusal`` where the file cannot be read or its markers are damaged.
    """
    return check_source(read_source(path), options)


def check_source(source: SourceFile, options: Options | None = None) -> FileReport:
    """The same for text that is already at hand."""
    options = options or Options()
    if is_python(source.path):
        return _check_python(source, options)
    bare = without_regions(source)
    command = command_for(source.path, options)
    text = SourceFile(source.path, bare.data)
    result = read(text, command, options.config.lift.accept)  # SourceFile -> LoopNests, each with exact spans
    found = regions(source.data)
    place = Place(source, bare)
    known = functools.cache(lambda: macros.definitions(text, command))  # for what is spliced only
    lifted: list[LiftedNest] = []
    refused = list(result.refused)
    if result.nests:
        from mdh_lift.lifting import whole_or_parts

        lifted, refused = whole_or_parts(result, options.config.lift.seconds)  # LoopNest -> LiftedNest
    nests = [_report(place, known, nest, found) for nest in lifted]
    nests += [_refused(place, nest, found) for nest in refused]
    nests.sort(key=lambda n: n.line)
    kept = [(region, problems_of(region, lifted)) for region in result.regions]
    told = [d for _, problems in kept for d in problems]
    findings = [place.finding(d) for d in (*result.diagnostics, *told)]
    half_done = journal.interrupted(source.path)
    findings += [Finding(half_done)] if half_done is not None else []
    data = tuple(region for region, problems in kept if not problems)
    if not any(f.diagnostic.severity == "error" for f in findings):
        names = {region_name(short_name(n.name)) for n in nests}
        findings += _orphans(source, found, names | {region_name(short_name(r.name)) for r in data})
        findings += [f for r in data for f in _data_freshness(source, found, r, bare.data)]
    directory = beside.directory_of(source.path, options.root)
    return FileReport(source, bare, command, tuple(nests), tuple(findings), data, directory)


def problems_of(region: DataRegion, lifted: Sequence[LiftedNest]) -> tuple[Diagnostic, ...]:
    """What must not be in a data region if a GPU runs these nests."""
    from frontend_c.data_regions import problems
    from mdh_lift.gpu_plans import on_device

    found = problems(region, [on_device(nest) for nest in lifted if nest.programs])
    return tuple(d if d.file else replace(d, file=lifted[0].nest.file if lifted else "") for d in found)


def _check_python(source: SourceFile, options: Options) -> FileReport:
    """A Python file: read and lifted in the same way; nothing is ever spliced into it."""
    from frontend_py.read import read as read_python  # not needed for C
    from mdh_lift.lifting import lifted_within, of_python

    result = read_python(source)
    bare = Original(source.data, ())
    place = Place(source, bare)
    lifted = lifted_within(result.nests, options.config.lift.seconds, of_python(result.factories))
    nests = [_python_report(place, nest) for nest in lifted]
    nests += [_refused(place, refused, ()) for refused in result.refused]
    nests.sort(key=lambda n: n.line)
    findings = tuple(place.finding(d) for d in result.diagnostics)
    return FileReport(source, bare, CompileCommand(), tuple(nests), findings)


def _python_report(place: Place, lifted: LiftedNest) -> NestReport:
    nest = lifted.nest
    line = place.line_of(nest.directive_span or nest.span)
    findings = tuple(place.finding(d) for d in lifted.diagnostics)
    return NestReport(nest.name, line, lifted.status, lifted, (), findings, place.line_of)


def without_regions(source: SourceFile) -> Original:
    """The text as it was before anything was spliced.  Raises ``Refusal`` MDH509."""
    try:
        return original(source.data)
    except Refusal as refusal:
        raise Refusal(replace(refusal.diagnostic, file=source.path)) from None


def command_for(path: str, options: Options) -> CompileCommand:
    """The compile command of a file: the text after ``--``, a database, or the configuration."""
    if options.command is not None:
        return options.command
    build = options.config.build
    directory = options.build_dir or (build.compile_commands and str(options.root / build.compile_commands))
    found = compile_command.find(path, directory)
    if found is not None:
        return found
    given = compile_command.from_words([build.compiler, *build.flags], str(options.root))
    return replace(given, trees=project_of(path, str(options.root) if build.compiler else ""))


@dataclass(frozen=True, slots=True)
class Place:
    """Turns diagnostics that count in the original into findings that count in the file."""

    source: SourceFile
    bare: Original

    def span(self, span: Span) -> Span:
        if not span:
            return span
        start = self.bare.in_file(span.start)
        return Span(start, self.bare.in_file(span.end - 1) + 1 if span.end > span.start else start)

    def line_of(self, span: Span) -> int:
        return self.source.line_col(self.span(span).start)[0] if span else 0

    def line(self, line: int) -> int:
        text = SourceFile("", self.bare.data)
        if not 1 <= line <= text.line_count:
            return line
        return self.source.line_col(self.bare.in_file(text.offset_of_line(line)))[0]

    def finding(self, d: Diagnostic) -> Finding:
        if d.file and d.file != self.source.path:
            return Finding(d)  # about a header
        related = tuple(replace(r, span=self.span(r.span)) for r in d.related)
        line = self.line(d.line) if d.line else 0
        fix = d.fix and self.fix(d)
        moved = replace(d, file=self.source.path, span=self.span(d.span), related=related, line=line, fix=fix)
        return Finding(moved, self.source)

    def fix(self, d: Diagnostic) -> Fix | None:
        """Its place in the file; of decorators, which were rewritten, only names that stand there as told."""
        assert d.fix is not None
        span = self.span(d.fix.span)
        word = self.source.text(span)
        if is_python(self.source.path) and not (word.isidentifier() and f"`{word}`" in d.message):
            return None
        return replace(d.fix, span=span)


def short_name(name: str) -> str:
    """``function::label`` of ``path::function::label``."""
    return "::".join(name.rsplit("::", 2)[-2:])


def _report(
    place: Place,
    known: Callable[[], macros.Definitions],
    lifted: LiftedNest,
    found: Sequence[Region],
) -> NestReport:
    from lifter.claims import checked

    lifted = checked(lifted)
    nest = lifted.nest
    own = tuple(r for r in found if r.name == region_name(short_name(nest.name)))
    findings = [place.finding(d) for d in lifted.diagnostics]
    kinds = kinds_of_regions(nest.several)
    if own:
        findings += _freshness(place.source, own, source_hash(place.bare.data, nest, known()), kinds)
    at = nest.directive_span if nest.directive_span else nest.span
    return NestReport(
        nest.name, place.line_of(at), lifted.status, lifted, own, tuple(findings), place.line_of
    )


def _refused(place: Place, refused: Refused | RefusedFunction, found: Sequence[Region]) -> NestReport:
    """A nest that could not be read."""
    own = tuple(r for r in found if r.name == region_name(short_name(refused.name)))
    line = place.line_of(refused.span)
    findings = [place.finding(d) for d in refused.diagnostics]
    findings += _freshness(place.source, own, "")
    return NestReport(refused.name, line, "refused", None, own, tuple(findings))


# --------------------------------------------------------------------------- freshness


def source_hash(data: bytes, nest: LoopNest, known: macros.Definitions) -> str:
    """Hash of what a splice is made from: tokens of directive and nest, types, functions and macros it uses.

    Values of macros do not count: the splice itself asks for them (``macros.condition``).
    """
    start = nest.directive_span.start if nest.directive_span else nest.span.start
    nest_tokens = token_hash(data, Span(min(start, nest.span.start), nest.span.end))
    types: list[tuple[object, ...]] = [(p.name, p.type) for p in nest.params]
    types += [(s.name, s.type) for s in nest.scalars]
    types += [(b.name, b.type, b.rank, b.restrict) for b in nest.buffers]
    others = macros.used(known, data, nest.span)
    return hashlib.sha256(repr((nest_tokens, types, nest.functions, *others)).encode()).hexdigest()[:16]


def _freshness(
    source: SourceFile, own: Sequence[Region], current: str, kinds: Sequence[str] = ()
) -> list[Finding]:
    """What is wrong with the regions of a nest of source hash ``current``; ``kinds``: those it needs."""
    found = []
    for region in own:
        if region.state == "edited":
            headline = f"generated {region.kind} of `{region.name}` was edited"
            advice = "`--force` overwrites the edit, `mdh-lift revert -w` drops it"
            found.append(_about(source, region, "MDH502", headline, advice))
    faults = beside.faults(source.path, own)
    found += [Finding(d, source) for d in faults]
    if own and kinds and sorted(r.kind for r in own) != sorted(kinds):
        found.append(_stale(source, own[-1], f"it has {len(own)} of its {len(kinds)} regions"))
    elif any(r.source != current for r in own):
        found.append(_stale(source, own[-1], "the nest changed after it was made"))
    return found


def _data_freshness(
    source: SourceFile, found: Sequence[Region], region: DataRegion, data: bytes
) -> list[Finding]:
    own = [r for r in found if r.name == region_name(short_name(region.name))]
    return _freshness(source, own, data_hash(data, region), DATA_KINDS)


def data_hash(data: bytes, region: DataRegion) -> str:
    """Of the directive, from which the calls at a data region's ends are made."""
    return hashlib.sha256(data[region.directive_span.start : region.directive_span.end]).hexdigest()[:16]


def _orphans(source: SourceFile, found: Sequence[Region], known: set[str]) -> list[Finding]:
    """Regions whose nest is gone from the file."""
    gone = {r.name: r for r in found if r.name not in known}
    return [_stale(source, region, "the file has no such nest") for region in gone.values()]


def _stale(source: SourceFile, region: Region, reason: str) -> Finding:
    headline = f"splice of `{region.name}` is stale: {reason}"
    own = [r for r in regions(source.data) if r.name == region.name]
    target = "".join(beside.again(kind) for kind in sorted(set(beside.included(own).values())))
    again, drop = f"mdh-lift -w {target}{source.path}", f"mdh-lift revert -w {source.path}::{region.name}"
    advice = f"`{again}` makes it again, `{drop}` drops it"
    return _about(source, region, "MDH501", headline, advice)


def _about(source: SourceFile, region: Region, code: str, headline: str, advice: str) -> Finding:
    return Finding(Diagnostic(code, headline, source.path, region.marker, help=advice), source)


# --------------------------------------------------------------------------- splice, revert


def revert_file(path: str, names: Sequence[str] | None = None) -> Change:
    """The file without generated regions (those of the named nests, ``function::label``).

    Generated files beside it that nothing includes any more go with them.
    """
    source = read_source(path)
    found = [r for r in regions(source.data) if names is None or r.name in {region_name(n) for n in names}]
    without_regions(source)
    if not found:
        nothing = Diagnostic("MDH508", "nothing is spliced here", source.path)
        return Change(path, source.data, source.data, (Finding(nothing, source),))
    return _change_of(path, source.data, revert(source.data, names))


def _change_of(path: str, old: bytes, new: bytes) -> Change:
    """A change of a source file, with the removal of what only the old text includes."""
    before, after = (beside.included(regions(data)) for data in (old, new))
    return Change(path, old, new, removed=tuple(beside.without(path, before.keys() - after.keys())))


def splice_file(
    report: FileReport,
    parts: Sequence[SplicePart],
    force: bool = False,
    apart: Mapping[str, Sequence[tuple[LiftedNest, GpuPart | OpenmpPart]]] | None = None,
) -> Change:
    """The file with the parts in place.  Raises ``Refusal`` (MDH502, MDH509, MDH005, MDH417, MDH803).

    ``apart``: by target, what stands in the file beside it; all nests of that file.  A data region is
    spliced with them where nothing else in it uses its arrays.
    """
    regions_of = {
        target: _regions_around(report, [n for n, _ in some])
        for target, some in (apart or {}).items()
        if target != "openmp"
    }
    conditions = {part.name: part.condition for part in parts}
    data_parts = [
        _data_part(report, region, nests, target, conditions)
        for target, some in regions_of.items()
        for region, nests in some
    ]
    try:
        new = splice(report.source.data, parts, force, data_parts)
    except Refusal as refusal:
        raise Refusal(replace(refusal.diagnostic, file=report.source.path)) from None
    change = _change_of(report.source.path, report.source.data, new)
    made: list[Change] = []
    for target, several in (apart or {}).items():
        file = _file_beside(report, target, [part for _, part in several], regions_of.get(target, []))
        made += beside.files(report.source.path, file, target, force)
    return replace(change, beside=tuple(made))


def _file_beside(
    report: FileReport,
    target: str,
    parts: Sequence[GpuPart | OpenmpPart],
    around: Sequence[tuple[DataRegion, list[LiftedNest]]],
) -> GpuFile | OpenmpFile:
    from emit.gpu_file import GpuPart, gpu_file
    from emit.openmp_file import OpenmpPart
    from emit.targets import TARGETS
    from mdh_lift.gpu_plans import region_part
    from mdh_lift.outlined import outlined_file

    name = beside.file_name(report.source.path, target)
    if target == "openmp":
        return outlined_file(name, report.source.path, [p for p in parts if isinstance(p, OpenmpPart)])
    regions = [region_part(region, target, report.directory) for region, _ in around]
    return gpu_file(name, [p for p in parts if isinstance(p, GpuPart)], TARGETS[target], regions)


def _regions_around(
    report: FileReport, nests: Sequence[LiftedNest]
) -> list[tuple[DataRegion, list[LiftedNest]]]:
    """The data regions that hold some of the nests, and need no others: with those that they hold."""
    found = []
    for region in report.data:
        inside = [n for n in nests if region.span.start <= n.nest.span.start < region.span.end]
        if inside and not problems_of(region, inside):
            found.append((region, inside))
    return found


def _data_part(
    report: FileReport,
    region: DataRegion,
    nests: Sequence[LiftedNest],
    target: str,
    conditions: Mapping[str, str],
) -> DataPart:
    from mdh_lift.gpu_plans import region_part

    begin, end = region_part(region, target, report.directory).calls
    needed = [conditions.get(short_name(n.nest.name), "") for n in nests]
    return DataPart(
        short_name(region.name),
        region.span.start + 1,
        region.span.end - 1,
        begin,
        end,
        " && ".join(dict.fromkeys(f"({c})" for c in needed if c)),
        data_hash(report.bare.data, region),
    )


def splice_part(
    report: FileReport, nest: LoopNest, kernel: str, call: str, after: str = ""
) -> SplicePart:
    """How a kernel goes into the file; ``after`` are statements that run when it did the nest's work."""
    text = SourceFile(report.source.path, report.bare.data)
    return SplicePart(
        short_name(nest.name),
        nest.function_span.start,
        call_offset(text.data, nest),
        kernel,
        call,
        after,
        macros.condition(text, report.command, nest.function_span, nest.span),
        source_hash(text.data, nest, macros.definitions(text, report.command)),
        nest.span.end if nest.several else None,
    )


def write_lock(path: Path, entries: Sequence[locks.Entry]) -> bool:
    """Put what was chosen into the lock file; False where it already says so.

    Raises ``Refusal`` MDH511, MDH803.
    """
    try:
        return locks.update(path, entries)
    except locks.LockError as error:
        raise refuse("MDH511", f"the lock file cannot be read: {error}", file=str(path),
                     help=error.help) from None  # fmt: skip
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise refuse("MDH803", f"`{path}` cannot be written: {reason}", file=str(path)) from None


def call_offset(data: bytes, nest: LoopNest) -> int:
    """Where the guarded call goes: before the nest, or before a foreign pragma that belongs to the nest."""
    directive = nest.directive_span
    if not directive:
        return nest.span.start
    if not _OUR_DIRECTIVE.match(data, directive.start):
        return directive.start
    between = tokens(data[directive.end : nest.span.start])
    foreign = next((t for t in between if t.kind == "directive"), None)
    return nest.span.start if foreign is None else directive.end + foreign.start


def spliced_names(path: str, selects: Callable[[str], bool]) -> list[str]:
    """Names (``function::label``) of the spliced nests of a file that are meant."""
    return sorted({r.name for r in regions(read_source(path).data) if selects(r.name)})


def target_of(nest: NestReport, asked: str = "") -> str:
    """The target that was asked for, or that it is spliced for, or the first of the directive's clause.

    Raises MDH411.
    """
    own = nest.lifted.nest.directive.targets if nest.lifted is not None else ()
    if asked and own and asked not in own:
        assert nest.lifted is not None
        span = NO_SPAN if nest.regions else nest.lifted.nest.directive_span  # regions shift it
        raise refuse("MDH411", f"target `{asked}` is not among those of the nest", span,
                     help=f"add `{asked}` to the clause `target({', '.join(own)})`")  # fmt: skip
    if asked:
        return asked
    spliced = [t for t in beside.included(nest.regions).values() if not own or t in own]
    return spliced[0] if spliced else own[0] if own else "openmp"


def style_of(nest: NestReport, asked: str = "", otherwise: str = "inline") -> str:
    """Where kernels for the processor stand: as asked, or as they do, or as the configuration says."""
    if asked or not nest.regions:
        return asked or otherwise
    return "outline" if "openmp" in beside.included(nest.regions).values() else "inline"


def macros_of(report: FileReport) -> frozenset[str]:
    """Names that a kernel must not use, as they are macros of the file."""
    return macros.defined(SourceFile(report.source.path, report.bare.data), report.command)


def lines_of(report: FileReport, nest: NestReport) -> str:
    """``gemm.c:12-18``, without directories, so that the text does not depend on where the file lies.

    Bytes of the name that are no UTF-8 are left to the reader's guess: this goes into text.
    """
    assert nest.lifted is not None
    text = SourceFile(report.source.path, report.bare.data)
    span = nest.lifted.nest.span
    first, last = (text.line_col(at)[0] for at in (span.start, span.end - 1))
    name = Path(report.source.path).name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return f"{name}:{first}-{last}"
