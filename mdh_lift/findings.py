"""Diagnostics with their place in a file, and the exit status that they add up to."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from mdh_core.diagnostics import Diagnostic
from mdh_core.source import SourceFile, Span
from mdh_lift import places


@dataclass(frozen=True, slots=True)
class Finding:
    """A diagnostic and the file its spans count in (None where there is none, as for a missing file)."""

    diagnostic: Diagnostic
    source: SourceFile | None = None
    nest: str = ""  # path.c::function::label; empty: about no nest

    @property
    def file(self) -> str:
        return self.diagnostic.file or (self.source.path if self.source else "")

    @property
    def start(self) -> tuple[int, int]:
        """Line and column, from 1."""
        return self.diagnostic.position(self.source)

    @property
    def end(self) -> tuple[int, int]:
        """Line and column just past the span."""
        span = self.diagnostic.span
        return self.source.line_col(span.end) if self.source is not None and span else self.start

    def line_of(self, span: Span) -> int:
        return self.source.line_col(span.start)[0] if self.source is not None and span else 0

    def as_json(self) -> dict[str, object]:
        """The published shape of a diagnostic (``schema_version`` 1)."""
        d = self.diagnostic
        (line, column), (end_line, end_column) = self.start, self.end
        return {
            "code": d.code,
            "severity": d.severity,
            "nest": self.nest,
            "message": d.message,
            "file": self.file,
            "line": line,
            "column": column,
            "end_line": end_line,
            "end_column": end_column,
            "label": d.label,
            "related": [{"line": self.line_of(r.span), "label": r.label} for r in d.related],
            "notes": list(d.notes),
            "help": d.help,
            "fix": self._fix_json(),
        }

    def _fix_json(self) -> dict[str, object] | None:
        """The edit that answers it: the text between two places becomes ``text``."""
        fix = self.diagnostic.fix
        if fix is None or self.source is None:
            return None
        (line, column), (end_line, end_column) = map(self.source.line_col, (fix.span.start, fix.span.end))
        place = {"line": line, "column": column, "end_line": end_line, "end_column": end_column}
        return {"title": fix.title, **place, "text": fix.text}


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """By file, then by place, then by code; duplicates dropped."""
    unique = {(f.file, f.start, f.diagnostic.code, f.diagnostic.message): f for f in findings}
    return [unique[key] for key in sorted(unique)]


def full_message(f: Finding) -> str:
    """Headline, notes and help, one per line."""
    d = f.diagnostic
    lines = [d.message, *(f"note: {note}" for note in d.notes), *([f"help: {d.help}"] if d.help else [])]
    return places.readable("\n".join(lines))


# --------------------------------------------------------------------------- identity

_PLACE = re.compile(r"\b(lines? |:)\d+(:\d+|-\d+)?")


def fingerprints(findings: Sequence[Finding], file_name: Callable[[str], str] = str) -> list[str]:
    """One per finding, all different; the same for the same fault after lines were added above it.

    Made of code, nest (or file) and headline; those that agree in that are numbered.  ``file_name``
    makes names of files independent of where the command runs.
    """
    seen: Counter[str] = Counter()
    out = []
    for f in findings:
        file = file_name(f.file) if f.file else ""
        nest = "::".join(f.nest.rsplit("::", 2)[1:])
        text = "\0".join((f.diagnostic.code, file, nest, _PLACE.sub(r"\1", f.diagnostic.message)))
        seen[text] += 1
        if seen[text] > 1:
            text += f"\0{seen[text]}"
        out.append(hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32])
    return out


# --------------------------------------------------------------------------- exit status

SEVERITIES = ("error", "warning", "info")
FAIL_ON = ("error", "warning", "info", "never")
_RANK = {"error": 0, "warning": 1, "info": 2, "never": -1}


def counts(f: Finding, fail_on: str = "error") -> int:
    """The exit status that a finding asks for.

    What is no finding about the code (2 and above: input and output, wrong results, environment, internal
    errors) always counts.  Of the others, those of severity ``fail_on`` and above do, and for "error" also
    warnings that the table says so of.  That a nest was lifted (1xx) is no finding.
    """
    d = f.diagnostic
    if d.exit_status >= 2 or fail_on == "error":
        return d.exit_status
    told = d.code.startswith("MDH1") and d.severity == "info"
    return int(_RANK[d.severity] <= _RANK[fail_on] and not told)


def exit_status(findings: Iterable[Finding], *others: int, fail_on: str = "error") -> int:
    """The highest applicable exit status; with "never", 1 is none."""
    found = max([0, *(counts(f, fail_on) for f in findings), *others])
    return 0 if found == 1 and fail_on == "never" else found
