"""Findings as Markdown: a summary for a comment on a pull request, or for the page of a run.

What names of files and messages hold is escaped: a file may be called ``[x](y)``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from mdh_lift import places
from mdh_lift.findings import Finding

MOST = 50  # rows of a table; comments have a limit
_SIGNS = {"error": "❌", "warning": "⚠️", "info": "ℹ️"}


def markdown(findings: Sequence[Finding], footer: str, rows: Sequence[Mapping[str, str]] = ()) -> str:
    """Headline, table of findings (errors first), table of ``rows`` (of equal keys), footer."""
    shown = [f for f in findings if f.diagnostic.severity != "info"]
    shown.sort(key=lambda f: f.diagnostic.severity != "error")
    errors = sum(f.diagnostic.severity == "error" for f in shown)
    warnings = len(shown) - errors
    lines = [f"### mdh-lift: {_count(errors, 'error')}, {_count(warnings, 'warning')}", ""]
    if shown:
        lines += ["| | code | place | what |", "| --- | --- | --- | --- |"]
        lines += [_row(f) for f in shown[:MOST]]
        if len(shown) > MOST:
            lines += ["", f"and {len(shown) - MOST} more"]
        lines.append("")
    if rows:
        titles = list(rows[0])
        lines += [f"| {' | '.join(titles)} |", "| --- " * len(titles) + "|"]
        lines += [f"| {' | '.join(_escaped(row[t]) for t in titles)} |" for row in rows[:MOST]]
        if len(rows) > MOST:
            lines += ["", f"and {len(rows) - MOST} more"]
        lines.append("")
    return "\n".join([*lines, _escaped(footer), ""])


def _row(f: Finding) -> str:
    d = f.diagnostic
    place = f"{places.relative(f.file)}:{f.start[0]}" if f.file else ""
    told = _escaped(d.message) + (f"<br>help: {_escaped(d.help)}" if d.help else "")
    return f"| {_SIGNS[d.severity]} | {d.code} | {_escaped(place)} | {told} |"


def _escaped(text: str) -> str:
    """Words on one line, nothing of them markup but pairs of back quotes, which stay code."""
    flat = re.sub(r"\s+", " ", places.readable(text))
    flat = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in flat)
    parts = flat.split("`")
    if len(parts) % 2 == 0:  # a back quote without a partner
        return "\\`".join(map(_plain, parts))
    return "".join(f"`{p}`".replace("|", "\\|") if k % 2 else _plain(p) for k, p in enumerate(parts))


def _plain(text: str) -> str:
    return re.sub(r"([\\*_\[\]<>|#@~&])", r"\\\1", text)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
