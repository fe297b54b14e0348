"""What the child does: the text of a document in, values or a changed text out.

    Tasks().answer(Request(1, "analyse", "/w/f.c", b"...", trusted=True)) -> Answer(1, analysis=Analysis(...))

In a workspace that is not trusted no configuration is read and the preprocessor does not run
(``CompileCommand.buffer_only``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace

from frontend_c.preprocess import CompileCommand
from mdh_core.diagnostics import Diagnostic, Refusal, refuse
from mdh_core.source import SourceFile, apply_edits
from mdh_lift import config as configuration
from mdh_lift.compile_command import DatabaseError
from mdh_lift.config import Config, ConfigurationError
from mdh_lift.files import is_python
from mdh_lift.findings import Finding as Found
from mdh_lift.lsp import incremental
from mdh_lift.lsp.analysis import Extras, analysis, first_line
from mdh_lift.lsp.incremental import Memory
from mdh_lift.lsp.values import Analysis, Answer, Finding, Request
from mdh_lift.pipeline import FileReport, Options, check_source, command_for
from mdh_lift.selection import Rules, Selection
from mdh_lift.splice import Original, original, revert


class Tasks:
    """Answers requests, one after the other; what it remembers makes the next answer quicker."""

    def __init__(self) -> None:
        self.memory = Memory()

    def answer(self, request: Request) -> Answer:
        if request.task == "analyse":
            return Answer(request.number, self.analyse(request))
        try:
            return Answer(request.number, text=self.changed(request))
        except Refusal as refusal:
            d = refusal.diagnostic
            advice = f"; {d.help}" if d.help else ""
            return Answer(request.number, problem=f"{d.code}: {d.message}{advice}")
        except (ConfigurationError, DatabaseError) as error:
            return Answer(request.number, problem=str(error))

    def analyse(self, request: Request) -> Analysis:
        if b"mdh" not in request.text and not request.trusted:
            return Analysis()
        source = SourceFile(request.path, request.text)
        try:
            options = options_for(request.path, request.trusted)
        except (ConfigurationError, DatabaseError) as error:
            return Analysis((Finding("MDH001", "error", str(error), first_line(source)),))
        if b"mdh" not in request.text and not options.config.lift.accept:
            return Analysis()

        def check(data: bytes) -> Analysis:
            return checked(SourceFile(request.path, data), options, request.trusted)

        if is_python(request.path):
            found = incremental.ordered(check(request.text))
        else:
            found = incremental.checked(request.text, check, self.memory, _salt(request, options))
        if b"mdh-lift:" not in request.text:
            return found
        return incremental.ordered(
            Analysis((*found.findings, *_about_comments(source, options)), found.nests)
        )

    def changed(self, request: Request) -> bytes:
        """The text with a nest spliced or reverted.  Raises ``Refusal``."""
        if request.task == "revert":
            return revert(request.text, [request.nest])
        options = options_for(request.path, request.trusted)
        source = SourceFile(request.path, request.text)
        if request.task == "annotate":
            return _annotated(source, int(request.nest), options)
        if not request.trusted:  # it reads the lock file of the tree, and asks the compiler who it is
            raise refuse(
                "MDH822", f"`{request.nest}` is not spliced: the workspace is not trusted",
                help=f"trust it, or let `mdh-lift -w {request.path}::{request.nest}` do it",
            )  # fmt: skip
        from mdh_lift.lsp.tuned import spliced  # not needed until somebody splices

        return spliced(check_source(source, options), request.nest, options)


def checked(source: SourceFile, options: Options, trusted: bool) -> Analysis:
    """One whole analysis."""
    try:
        report = check_source(source, options)
    except Refusal as refusal:
        return _nothing_but(refusal.diagnostic, source, trusted)
    except (ConfigurationError, DatabaseError) as error:
        return _nothing_but(Diagnostic("MDH001", str(error), source.path), source, trusted)
    if not trusted:
        return analysis(_selected(report, options), Extras({}, trusted))
    from mdh_lift.lsp.tuned import tuned

    if any(n.regions for n in report.nests):
        from mdh_lift.lock_check import with_lock

        report = with_lock(report, options)
    return analysis(_selected(report, options), Extras(tuned(report, options), trusted))


def _selected(report: FileReport, options: Options) -> FileReport:
    """Without what the configuration or comments say is not to be told."""
    selection, rules = Selection(), _rules(options)
    selection.read(report.source, report.bare)
    nests = tuple(replace(n, findings=tuple(selection.kept(n.findings, rules, n.line))) for n in report.nests)
    return replace(report, nests=nests, findings=tuple(selection.kept(report.findings, rules)))


def _rules(options: Options) -> Rules:
    d = options.config.diagnostics
    return Rules(d.select, d.ignore, d.severity, d.per_file_ignores, options.root)


def _about_comments(source: SourceFile, options: Options) -> Iterator[Finding]:
    """What is wrong with comments that say what is not to be told; those of the whole text."""
    try:
        bare = original(source.data)
    except Refusal:
        return
    selection = Selection()
    report = FileReport(source, bare, CompileCommand(), findings=tuple(selection.read(source, bare)))
    told = tuple(selection.kept(report.findings, _rules(options)))
    yield from analysis(replace(report, findings=told), Extras({})).findings


def _annotated(source: SourceFile, line: int, options: Options) -> bytes:
    """The text with a directive for the loop of a line (from 1).  Raises ``Refusal``."""
    from mdh_lift.annotate import directive_edit
    from mdh_lift.unannotated import unannotated

    found = unannotated(source, options)
    candidate = next((c for c in found.candidates if c.line == line), None)
    if candidate is None:
        inner = [str(c.line) for c in found.candidates if c.annotatable and line < c.line <= line + 50][:1]
        advice = f"the loop of line {inner[0]} does" if inner else ""
        raise refuse("MDH822", "the loop of this line does not lift, or has a directive", help=advice)
    if not candidate.annotatable:
        why = candidate.reason
        raise Refusal(why.diagnostic) if why else refuse("MDH822", "no directive can stand here")
    return apply_edits(source.data, [directive_edit(source, candidate)])


def _nothing_but(d: Diagnostic, source: SourceFile, trusted: bool) -> Analysis:
    found = Found(d if d.file else replace(d, file=source.path), source)
    report = FileReport(source, Original(source.data, ()), CompileCommand(), findings=(found,))
    return analysis(report, Extras({}, trusted))


def options_for(path: str, trusted: bool) -> Options:
    """As `check` has them; without configuration and compile command where the workspace is not trusted."""
    if not trusted:
        return Options(Config(), command=CompileCommand(buffer_only=True))
    file = configuration.find(path)
    return Options(configuration.load(file), configuration.root(path, file))


def _salt(request: Request, options: Options) -> bytes:
    """All but the text that values depend on; what it includes counts by ``Request.others``."""
    command = command_for(request.path, options)
    lock = options.lock_path.read_bytes() if request.trusted and options.lock_path.is_file() else b""
    parts = (request.path, request.trusted, request.others, options, command, lock)
    return hashlib.sha256(repr(parts).encode("utf-8", "surrogateescape")).digest()
