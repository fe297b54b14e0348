"""Diagnostics for people: the source excerpt with carets, and one line per diagnostic.

error[MDH201]: index of `x` is not affine in `i`
 --> smooth.c:7:16
  |
7 |     y[i] = x[i * i];
  |              ^^^^^ product of iterators
  |
  = help: ...
"""

from __future__ import annotations

import os
import re
import sys
import unicodedata
from collections.abc import Iterable
from typing import IO

import click

from mdh_core.diagnostics import Diagnostic
from mdh_core.source import SourceFile, Span
from mdh_lift.findings import Finding

_COLOURS = {"error": "red", "warning": "yellow", "info": "cyan"}
_TAB = "    "


def wants_colour(choice: str, stream: IO[str] | None = None) -> bool:
    """``--color``, then NO_COLOR, then FORCE_COLOR, then whether the stream is a terminal."""
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR") or os.environ.get("CLICOLOR_FORCE"):
        return True
    return (stream or sys.stdout).isatty()


def concise(findings: Iterable[Finding]) -> str:
    """``file:line:col: severity[CODE]: message``, the shape that editors parse."""
    lines = []
    for f in findings:
        line, column = f.start
        d = f.diagnostic
        lines.append(f"{_name(f.file)}:{line}:{column}: {d.severity}[{d.code}]: {_one_line(d.message)}\n")
    return "".join(lines)


def text(findings: Iterable[Finding]) -> str:
    """Every diagnostic with its excerpt, notes and help, an empty line after each (ANSI colours)."""
    return "".join(_draw(f) + "\n" for f in findings)


def _draw(f: Finding) -> str:
    d = f.diagnostic
    colour = _COLOURS[d.severity]
    line, column = f.start
    head = click.style(f"{d.severity}[{d.code}]", fg=colour, bold=True)
    out = [head + click.style(f": {_one_line(d.message)}", bold=True)]
    margin = " " * len(str(max([line, *(f.line_of(r.span) for r in d.related)])))
    bar = click.style("|", fg="blue")
    if f.file:
        known = f":{line}:{column}" if d.span or d.line else ""
        out.append(f"{margin}{click.style('-->', fg='blue')} {_name(f.file)}{known}")
    if f.source is not None and (d.span or d.line):
        out += [f"{margin} {bar}", *_excerpt(f.source, d, margin), f"{margin} {bar}"]
    equals = click.style("=", fg="blue")
    out += [f"{margin} {equals} note: {_one_line(note)}" for note in d.notes]
    if d.help:
        out.append(f"{margin} {equals} help: {_one_line(d.help)}")
    return "\n".join(out) + "\n"


def _excerpt(source: SourceFile, d: Diagnostic, margin: str) -> list[str]:
    """The lines at fault, each with what is marked on it; dots where lines are left out."""
    marks = [(r.span, "-", r.label, "blue") for r in d.related if r.span]
    if d.span:
        marks.append((d.span, "^", d.label, _COLOURS[d.severity]))
    by_line: dict[int, list[tuple[Span, str, str, str]]] = {}
    for mark in marks:
        by_line.setdefault(source.line_col(mark[0].start)[0], []).append(mark)
    if d.line and not d.span and d.line <= source.line_count:
        by_line.setdefault(d.line, [])
    out: list[str] = []
    previous = None
    bar = click.style("|", fg="blue")
    for line in sorted(by_line):
        if previous is not None and line > previous + 1:
            out.append(click.style(f"{margin} ...", fg="blue"))
        previous = line
        span = source.line_span(line)
        number = click.style(f"{line:>{len(margin)}}", fg="blue")
        out.append(f"{number} {bar} {_printable(source.text(span))}".rstrip())
        for at, sign, label, colour in sorted(by_line[line], key=lambda m: (-m[0].start, m[1])):
            before = _width(_printable(source.text(Span(span.start, at.start))))
            inside = source.text(Span(at.start, max(at.start, min(at.end, span.end))))
            marked = sign * max(1, _width(_printable(inside)))
            more = "..." if at.end > span.end + 2 else ""
            rest = f"{marked}{more} {label}".rstrip()
            out.append(f"{margin} {bar} {' ' * before}{click.style(rest, fg=colour)}")
    return out


def _printable(line: str) -> str:
    """Tabs widened, control characters made visible (a source may hold escape sequences)."""
    line = line.replace("\t", _TAB)
    return "".join(c if c.isprintable() or c == " " else "\N{REPLACEMENT CHARACTER}" for c in line)


def _width(line: str) -> int:
    """Columns on a terminal."""
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in line)
    return len(line) + wide - sum(unicodedata.combining(c) != 0 for c in line)


def _name(file: str) -> str:
    """A file's name on one line; its other bytes as they are, so that an editor finds the file."""
    return re.sub(r"[\x00-\x1f\x7f]", "\N{REPLACEMENT CHARACTER}", file)


def _one_line(message: str) -> str:
    return _printable(message.replace("\r", "").replace("\n", " / "))
