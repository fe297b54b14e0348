"""The verb ``check``: nests and splices of a tree against its directives, its sources and its lock file.

Static: of other programs only the C preprocessor runs, and nothing of the tree is executed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from mdh_core.diagnostics import Diagnostic
from mdh_lift import baseline
from mdh_lift import config as configuration
from mdh_lift.findings import Finding
from mdh_lift.pipeline import FileReport, NestReport, Options
from mdh_lift.report_cases import Case
from mdh_lift.session import Session
from mdh_lift.verbs import content_of, reports_of


def check(
    session: Session,
    paths: Sequence[str],
    select: list[str] | None = None,
    ignore: list[str] | None = None,
    write_baseline: bool = False,
) -> int:
    """Tell all findings; with ``write_baseline``, allow them instead."""
    session.select, session.ignore = select, ignore or []
    if write_baseline:
        session.without_baseline()
    nests: list[NestReport] = []
    whole: list[str] = []  # files of which all is known
    for target, report, found in reports_of(session, paths, then=_with_lock, bar=True):
        nests += found
        path = report.source.path
        session.cases += [Case(n.name, path) for n in found]
        session.summary += [_row(n) for n in found]
        if not report.nests:
            session.cases.append(Case(path, path))
        unreadable = any(f.diagnostic.severity == "error" for f in report.findings)
        if not target.function and not unreadable:
            whole.append(path)
            session.findings += session.kept(session.selection.unused(report.source, session.rules(path)))
    if write_baseline:
        return _adopt(session, whole)
    session.findings += session.kept(_gone(session, whole))
    return session.finish(content_of(session, nests), diagnostics_are_results=True)


def _with_lock(report: FileReport, options: Options) -> FileReport:
    if not any(n.regions for n in report.nests):
        return report
    from mdh_lift.lock_check import with_lock

    return with_lock(report, options)


def _row(nest: NestReport) -> dict[str, str]:
    codes = sorted({f.diagnostic.code for f in nest.findings if f.diagnostic.severity != "info"})
    return {
        "nest": nest.name,
        "status": nest.status,
        "splice": nest.splice_state or "none",
        "findings": ", ".join(codes),
    }


def _gone(session: Session, files: Sequence[str]) -> list[Finding]:
    """That a baseline allows what is not there any more (MDH424)."""
    path = session.baseline_path()
    number = session.selection.gone(files, session.rules)
    if path is None or not number:
        return []
    gone = "1 finding that is" if number == 1 else f"{number} findings that are"
    what = f"the baseline allows {gone} gone"
    return [Finding(Diagnostic("MDH424", what, str(path), help="`--write-baseline` writes it anew"))]


def _adopt(session: Session, files: Sequence[str]) -> int:
    """Write the baseline; what cannot be allowed is told."""
    path = session.baseline_path()
    named = path is not None
    if path is None:
        path = configuration.root(".", session.config_file_of(".")) / baseline.NAME
    kept = _of_other_files(path, files)
    try:
        number = baseline.write(path, session.findings, kept)
    except OSError as error:
        raise click.UsageError(f"cannot write the baseline {path}: {error.strerror}") from None
    session.findings = [f for f in session.findings if not baseline.in_baseline(f)]
    told = f"{path}: {number} finding{'s' * (number != 1)} allowed"
    if not named:
        told += f'; `baseline = "{path.name}"` in the configuration makes every run use it'
    click.echo(told, err=True)
    return session.finish({"nests": [], "diagnostics": [f.as_json() for f in session.findings]}, True)


def _of_other_files(path: Path, files: Sequence[str]) -> list[dict[str, Any]]:
    """Entries that this run cannot judge, as it did not look at their files."""
    try:
        before = baseline.entries(path)
    except baseline.BaselineError:
        return []
    nothing = Diagnostic("MDH001", "")
    judged = {baseline.key_of(Finding(replace(nothing, file=f)), path.parent)[0] for f in files}
    return [e for e in before if e["file"] not in judged and (path.parent / e["file"]).exists()]
