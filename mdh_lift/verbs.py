"""What each verb does: call the library, hand results to the session, return the exit status."""

from __future__ import annotations

import contextlib
import json
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from mdh_core.diagnostics import Diagnostic, Refusal, refuse
from mdh_core.source import NO_SPAN, SourceFile
from mdh_lift import beside, journal, pipeline, report_text
from mdh_lift.files import Change, is_python
from mdh_lift.findings import Finding
from mdh_lift.pipeline import FileReport, NestReport, Options, short_name
from mdh_lift.report_cases import case_of, summary_of
from mdh_lift.session import Session, Target

if TYPE_CHECKING:  # what runs code is imported when it is asked for: `check` starts quickly
    from emit.gpu_file import GpuPart
    from emit.openmp_file import OpenmpPart
    from lifter.lift import LiftedNest
    from mdh_lift.improve import Improvement
    from tuning.lock import Entry

STDIN = "<stdin>"
T = TypeVar("T")


# --------------------------------------------------------------------------- shared steps


def reports_of(
    session: Session,
    paths: Sequence[str],
    only_c: bool = False,
    then: Callable[[FileReport, Options], FileReport] = lambda report, options: report,
    bar: bool = False,
    **options: Any,
) -> Iterator[tuple[Target, FileReport, list[NestReport]]]:
    """Every file that is meant, read and lifted, with the nests that are meant; findings are noted.

    ``then`` may add findings to a report, before it is decided which are told.  With ``bar``, a terminal says
    which file is being read; not for verbs that print between files or have a bar for each nest.
    """
    if "-" in paths and list(paths) != ["-"]:
        raise click.UsageError("`-` stands alone")
    targets = [Target(STDIN)] if "-" in paths else list(session.targets(paths))
    for target in followed(session, targets, lambda t: t.path) if bar else targets:
        if only_c and is_python(target.path):
            if target.named:
                session.attempt(target.path, partial(_refuse_python, target))
            continue
        report = session.attempt(target.path, partial(_read, session, target, options, then))
        if report is None:
            continue
        report = session.sifted(report)
        nests = [n for n in report.nests if target.selects(short_name(n.name))]
        unreadable = any(f.diagnostic.severity == "error" for f in report.findings)
        if target.function and not nests and not unreadable:
            raise click.UsageError(
                f"{target.path} has no nest `{'::'.join(filter(None, (target.function, target.label)))}`"
            )
        session.reports.append(report)
        if not target.function or unreadable:
            skipped = set() if target.named else {"MDH007"}
            session.findings += [f for f in report.findings if f.diagnostic.code not in skipped]
        for nest in nests:
            session.findings += nest.findings
        yield target, report, nests


def _read(
    session: Session,
    target: Target,
    options: Mapping[str, Any],
    then: Callable[[FileReport, Options], FileReport],
) -> FileReport:
    if target.path != STDIN:
        settings = session.options(target.path, **options)
        return then(pipeline.check_file(target.path, settings), settings)
    source = SourceFile(STDIN, sys.stdin.buffer.read())
    return pipeline.check_source(source, session.options(".", **options))


def _refuse_python(target: Target) -> None:
    if is_python(target.path):
        raise refuse(
            "MDH510", "nothing is tuned for Python files or put into them", file=target.path,
            help="decorated functions become kernels when they are called; "
            f"`mdh-lift check {target.path}` says what is lifted, `emit` prints the kernel",
        )  # fmt: skip


def nest_json(nest: NestReport) -> dict[str, object]:
    """The published shape of a nest (``schema_version`` 1)."""
    described: dict[str, Any] = {}
    if nest.lifted is not None:
        from lifter.describe import to_json

        described = to_json(nest.lifted, line_of=nest.line_of)
    return {
        "name": nest.name,
        "file": nest.name.rsplit("::", 2)[0],
        "line": nest.line,
        "status": nest.status,
        "program": described.get("program", []),
        "fusions": described.get("fusions", []),
        "splice": nest.splice_state,
        "diagnostics": [f.as_json() for f in nest.findings],
    }


def content_of(
    session: Session, nests: Sequence[NestReport], details: Mapping[str, Mapping[str, object]] | None = None
) -> dict[str, object]:
    """The JSON object of the verbs that look at nests; ``details`` adds to a nest, by its name."""
    entries = [nest_json(n) | dict((details or {}).get(n.name, {})) for n in nests]
    of_nests = {id(f) for nest in nests for f in nest.findings}
    rest = [f.as_json() for f in session.findings if id(f) not in of_nests]
    return {"nests": entries, "diagnostics": rest}


def apply(session: Session, change: Change, write: bool) -> None:
    """Write a change or print it as a diff; a diff that is not written is a finding (exit status 1)."""
    session.findings += change.findings
    if not write:
        for part in change.all:
            session.diff(part)
            session.statuses.append(1)
            session.noted["would change"] += 1
        return
    session.noted["written"] += session.attempt(change.path, partial(journal.make, change)) or 0


def finish_edits(session: Session, paths: Sequence[str]) -> bool:
    """Before files are read to be written: finish what a killed run left half done.  False: one cannot be."""
    told = [d for path in dict.fromkeys(t.path for t in session.targets(paths)) for d in journal.finish(path)]
    session.findings += [Finding(d) for d in told]
    return not any(d.severity == "error" for d in told)


# --------------------------------------------------------------------------- look


def show(session: Session, paths: Sequence[str], form: str, stage: str) -> int:
    if form == "json":
        session.output_format = "json"
    nests = [n for _, _, found in reports_of(session, paths) for n in found]
    for nest in nests:
        if nest.lifted is not None and session.for_people:
            from mdh_lift.shown import shown

            text = shown(nest.lifted, form, stage)
            heading = click.style(f"{nest.name} ({nest.status})", bold=True)
            session.result(heading if session.colour else click.unstyle(heading))
            session.result("\n" + textwrap.indent(text.rstrip("\n"), "  ") + "\n\n")
    return session.finish(content_of(session, nests))


def status(session: Session, paths: Sequence[str]) -> int:
    nests: list[NestReport] = []
    beyond: list[str] = []  # what is wrong with data regions, and with splices that have no nest
    for target, report, found in reports_of(session, paths):
        nests += found
        told = () if target.function else report.findings
        beyond += [
            f"{f.diagnostic.code} {f.diagnostic.message}"
            for f in told if f.diagnostic.severity == "error" and f.diagnostic.code in _OF_SPLICES
        ]  # fmt: skip
    width = max((len(n.name) for n in nests), default=0)
    for nest in nests:
        codes = sorted({f.diagnostic.code for f in nest.findings if f.diagnostic.severity == "error"})
        words = [
            nest.status,
            _splice_words(nest),
        ]
        session.result(f"{nest.name:<{width}}  {', '.join(words)}{'  ' + ' '.join(codes) if codes else ''}\n")
    for line in beyond:
        session.result(f"{line}\n")
    stale = bool(beyond) or any(n.splice_state in ("stale", "edited") for n in nests)
    content = content_of(session, nests)
    if session.for_people:
        session.findings = [f for f in session.findings if f.diagnostic.exit_status >= 2]
    session.statuses.append(1 if stale else 0)
    return session.finish(content)


_OF_SPLICES = ("MDH418", "MDH419", "MDH501", "MDH502")


def _splice_words(nest: NestReport) -> str:
    if is_python(nest.name.rsplit("::", 2)[0]):
        wrong = any(f.diagnostic.severity == "error" for f in nest.findings)
        return "runs as Python" if wrong else "compiled when called"
    return {"": "not spliced", "fresh": "spliced"}.get(nest.splice_state, nest.splice_state)


# --------------------------------------------------------------------------- change


def revert(session: Session, paths: Sequence[str], write: bool) -> int:
    if write and not finish_edits(session, paths):
        return session.finish({"nests": [], "diagnostics": [f.as_json() for f in session.findings]})
    for target in session.targets(paths):
        if is_python(target.path) and not target.named:
            continue
        change = session.attempt(target.path, partial(_reverted, target))
        if change is not None and (target.named or change.new != change.old):
            apply(session, change, write)
    return session.finish({"nests": [], "diagnostics": [f.as_json() for f in session.findings]})


def _reverted(target: Target) -> Change:
    _refuse_python(target)
    names = None
    if target.function:
        names = pipeline.spliced_names(target.path, target.selects)
    return pipeline.revert_file(target.path, names)


def splice(
    session: Session, paths: Sequence[str], write: bool, force: bool, target: str | None = None
) -> int:
    """What was verified before, as it is recorded; nothing is compiled or run."""
    return _improve(session, paths, write, stage="splice", force=force, target=target, recorded=True)


# --------------------------------------------------------------------------- run


def lift_files(session: Session, paths: Sequence[str], write: bool, force: bool, **search: object) -> int:
    return _improve(session, paths, write, stage="all", force=force, **search)


def tune(session: Session, paths: Sequence[str], **search: object) -> int:
    return _improve(session, paths, False, stage="tune", **search)


def verify(session: Session, paths: Sequence[str], target: str | None = None) -> int:
    return _improve(session, paths, False, stage="verify", target=target)


def bench(session: Session, paths: Sequence[str], target: str | None = None) -> int:
    return _improve(session, paths, False, stage="bench", target=target)


def emit(
    session: Session,
    paths: Sequence[str],
    target: str | None,
    configuration: str | None,
    device: str | None = None,
) -> int:
    given = None
    if configuration is not None:
        try:
            given = json.loads(Path(configuration).read_text())
        except (OSError, ValueError) as error:
            raise click.UsageError(f"{configuration}: {error}") from None
        if not isinstance(given, dict):
            raise click.UsageError(f"{configuration}: expected an object with the values of parameters")
    nests: list[NestReport] = []
    codes: dict[str, dict[str, object]] = {}
    for found, report, own in reports_of(session, paths):
        asked = session.options(found.path, target=target).target
        for group in _emitted_together(report, own, asked):
            work = partial(_emitted, report, group, given, asked, device, session.style)
            text = session.attempt(found.path, work)
            if text is not None:
                codes |= {n.name: {"target": pipeline.target_of(n, asked), "code": text} for n in group}
                session.result(text)
        nests += own
    return session.finish(content_of(session, nests, codes))


def _emitted_together(report: FileReport, nests: list[NestReport], asked: str) -> list[list[NestReport]]:
    """The nests one by one; with data regions, all that go to one kind of GPU share a file."""
    with contextlib.suppress(Refusal):
        kinds = {pipeline.target_of(nest, asked) for nest in nests}
        if report.data and len(kinds) == 1 and kinds != {"openmp"}:
            return [nests]
    return [[nest] for nest in nests]


def _emitted(
    report: FileReport,
    nests: list[NestReport],
    given: Mapping[str, object] | None,
    asked: str,
    device: str | None,
    style: str,
) -> str:
    """The code of nests; for a device by its name."""
    from mdh_lift import emitted
    from tuning.devices import device_named

    target = pipeline.target_of(nests[0], asked)
    on = None
    if device is not None:
        if target == "openmp":
            raise click.UsageError("`--device` is for `--target cuda` and `--target opencl`")
        on = device_named(device, target)
        if on is None:
            what = f"this machine has no device for {target}"
            raise click.UsageError(f"{what}; `mdh-lift doctor` says what there is")
    if report.data and target != "openmp":
        return emitted.emitted_file(report, nests, given, target, on)
    return emitted.emitted(report, nests[0], given, target, on, style)


def _improve(session: Session, paths: Sequence[str], write: bool, stage: str, **options: Any) -> int:
    """Tune, verify, measure or splice, as far as the stage says, and tell what came of it."""
    nests: list[NestReport] = []
    details: dict[str, dict[str, object]] = {}
    if write and not finish_edits(session, paths):
        return session.finish(content_of(session, nests, details))
    for target, report, own in reports_of(session, paths, only_c=True, **options):
        settings = session.options(target.path, **options)
        made: list[Improvement] = []
        for nest in own:
            began = time.monotonic()
            improvement = _improved(session, report, nest, settings, stage)
            session.cases.append(case_of(nest, settings.target, improvement, time.monotonic() - began))
            session.summary.append(summary_of(nest, improvement))
            if improvement is not None:
                nest = replace(nest, findings=(*nest.findings, *improvement.findings))
                details[nest.name] = improvement.as_json()
                made.append(improvement)
            nests.append(nest)
            if improvement is not None and improvement.part is not None:
                session.settle(nest, "MDH501", "MDH502")
        entries = [entry for i in made for entry in i.entries]
        if settings.locked:
            kept = session.attempt(target.path, partial(_as_locked, settings, entries))
            made = made if kept else []
        elif entries and (write or stage == "tune"):
            session.attempt(target.path, partial(pipeline.write_lock, settings.lock_path, entries))
        made = with_neighbours(session, report, settings, made)
        if any(i.part is not None for i in made):
            change = session.attempt(target.path, partial(spliced, report, made, settings.force))
            if change is not None:
                apply(session, change, write)
    return session.finish(content_of(session, nests, details))


def spliced(report: FileReport, made: Sequence[Improvement], force: bool) -> Change:
    """The change that puts improvements into their file.  Raises as ``pipeline.splice_file``."""
    apart: dict[str, list[tuple[LiftedNest, GpuPart | OpenmpPart]]] = {}
    for i in made:
        lifted = report.nest(i.name).lifted
        if i.apart and lifted is not None:
            apart.setdefault(i.target, []).extend((lifted, part) for part in i.apart)
    return pipeline.splice_file(report, [i.part for i in made if i.part is not None], force, apart)


def _as_locked(settings: Options, entries: Sequence[Entry]) -> bool:
    """True; a refusal (MDH520) where the lock file would change."""
    from mdh_lift import recorded

    recorded.expect_entries(settings, entries)
    return True


def with_neighbours(
    session: Session, report: FileReport, settings: Options, made: list[Improvement]
) -> list[Improvement]:
    """With the other nests of a file beside the source that is about to be written anew.

    They were accepted before, so their speed is no matter; where one cannot be made again, those that share
    the file with it are left as they are, and MDH516 says so of each.
    """
    for kind in {i.target for i in made if i.apart}:
        name = beside.file_name(report.source.path, kind)
        known = {i.name for i in made}
        there = [n for n in report.nests if n.name not in known and name in beside.included(n.regions)]
        tune_for = msgspec.structs.replace(settings.config.tune, target=kind)
        config = msgspec.structs.replace(settings.config, tune=tune_for)
        forced = replace(settings, config=config, force=True)
        again = [_improved(session, report, n, forced, "splice") for n in there]
        found = [i for i in again if i is not None and i.apart]
        failed = sorted({n.name for n in there} - {i.name for i in found})
        if failed:
            sharing = [i.name for i in made if i.target == kind and i.apart]
            session.findings += [_left_out(report, own, name, failed) for own in sharing]
        made = [i for i in made if i.name not in sharing] if failed else made + found
    return made


def _left_out(report: FileReport, name: str, file: str, failed: Sequence[str]) -> Finding:
    """That a nest is not written, as others of its generated file cannot be."""
    nest = report.nest(name)
    others = ", ".join(f"`{short_name(n)}`" for n in failed)
    return Finding(
        Diagnostic(
            "MDH516",
            f"`{short_name(name)}` is left as it is: {others} cannot be made again",
            report.source.path,
            nest.lifted.nest.directive_span if nest.lifted is not None else NO_SPAN,
            notes=(f"all nests of `{file}` are written together",),
            help="what is wrong there is told above; without the nest: `mdh-lift revert -w`",
        ),
        report.source,
        nest=name,
    )


def _improved(
    session: Session, report: FileReport, nest: NestReport, options: Options, stage: str
) -> Improvement | None:
    """The improvement of one nest, told; None for a nest that is refused or must not be touched."""
    if nest.lifted is None or nest.status == "refused":
        return None
    if nest.splice_state == "edited" and stage in ("all", "splice") and not options.force:
        return None  # MDH502 is among its findings
    if not nest.replaceable and stage in ("all", "tune", "splice"):
        return None  # MDH414 is among its findings
    with progress(session, nest.name) as tell:
        from mdh_lift import several

        work = partial(several.improve, report, nest, options, stage, tell)
        improvement = session.attempt(report.source.path, work, nest)
    if improvement is not None:
        own = [replace(f, nest=nest.name) for f in improvement.findings]
        improvement = replace(improvement, findings=tuple(session.kept(own, nest.line)))
        session.findings += improvement.findings
        session.result(describe(session, improvement))
    return improvement


def describe(session: Session, improvement: Improvement) -> str:
    """Expression, verification and speedup of one nest, for people."""
    rows = [click.style(improvement.name, bold=True)]
    rows.append(textwrap.indent(improvement.expression.rstrip("\n"), "  "))
    rows += [f"  {label + ':':<14}{value}" for label, value in improvement.summary()]
    text = "\n".join(rows) + "\n\n"
    return text if session.colour else click.unstyle(text)


class progress:  # noqa: N801 - used as a function
    """``with progress(session, name) as tell``: a bar on a terminal, nothing elsewhere."""

    def __init__(self, session: Session, name: str) -> None:
        shown = session.for_people and not session.quiet and sys.stderr.isatty()
        import rich.console
        import rich.progress

        console = rich.console.Console(
            stderr=True, no_color=not report_text.wants_colour(session.color, sys.stderr)
        )
        self.bar = rich.progress.Progress(console=console, transient=True, disable=not shown)
        self.task = self.bar.add_task(name, total=None)

    def __enter__(self) -> Callable[[str, int, int], None]:
        self.bar.start()
        return self.tell

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def tell(self, what: str, done: int, total: int) -> None:
        self.bar.update(self.task, description=what, completed=done, total=total or None)


def followed(session: Session, items: Sequence[T], name: Callable[[T], str]) -> Iterator[T]:
    """The items one by one; on a terminal, a bar says which of them is being worked on."""
    if len(items) < 2 or not (session.for_people and not session.quiet and sys.stderr.isatty()):
        yield from items
        return
    with progress(session, "") as tell:
        for k, item in enumerate(items):
            tell(name(item), k, len(items))
            yield item
