"""``mdh-lift report``: collect, write as page, Markdown or JSON; show or serve the page."""

from __future__ import annotations

import json
import sys
import tempfile
import webbrowser
from collections.abc import Sequence
from pathlib import Path

import click

from mdh_lift.report.collect import collect
from mdh_lift.report.data import Report
from mdh_lift.session import Session


def report(
    session: Session,
    paths: Sequence[str],
    form: str = "html",
    scoreboard: str | None = None,
    title: str | None = None,
    show: bool = False,
    serve: bool = False,
) -> int:
    """The exit status: 0, or 2 where nothing was looked at.  Findings of the nests are in the report."""
    if (show or serve) and form != "html":
        raise click.UsageError("`--open` and `--serve` are for pages")
    if form == "html" and session.output is None and not show and not serve and sys.stdout.isatty():
        raise click.UsageError("a page is no text for a terminal: name a file with `-o`")
    made = collect(session, paths, scoreboard, title or "")
    told = {"MDH617", "MDH618", "MDH823", "MDH901"}
    session.findings = [
        f for f in session.findings if f.diagnostic.code in told or f.diagnostic.exit_status >= 2
    ]
    if not session.reports:  # nothing could be read: what stands there stays
        session.output = None
        return session.finish()
    page = session.attempt("", lambda: rendered(made, form))
    if page is None:
        session.output = None  # what stands there stays
        return session.finish()
    if serve:
        from mdh_lift.report.serve import serve as until_interrupted

        until_interrupted(page, lambda url: _say(url, show))
    elif session.output is not None or not show:
        session.result(page)
    status = session.finish()
    if show and not serve and status in (0, 1):
        _show(session.output, page)
    return status


def rendered(made: Report, form: str) -> bytes:
    if form == "json":
        return (json.dumps(made.as_json(), indent=2) + "\n").encode()
    if form == "md":
        from mdh_lift.report.markdown import markdown

        return markdown(made).encode("utf-8", "backslashreplace")
    from mdh_lift.report.page import html

    return html(made)


def _say(url: str, show: bool) -> None:
    click.echo(url)
    sys.stdout.flush()
    if show:
        webbrowser.open(url)


def _show(output: str | None, page: bytes) -> None:
    if output is None:
        with tempfile.NamedTemporaryFile("wb", prefix="mdh-lift-", suffix=".html", delete=False) as file:
            file.write(page)
        output = file.name
    webbrowser.open(Path(output).resolve().as_uri())
