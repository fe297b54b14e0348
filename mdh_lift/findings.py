"""Diagnostics with their place in a file, and the exit status that they add up to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mdh_core.diagnostics import Diagnostic
from mdh_core.source import SourceFile, Span


@dataclass(frozen=True, slots=True)
class Finding:
    """A diagnostic and the file its spans count in (None where there is none, as for a missing file)."""

    diagnostic: Diagnostic
    source: SourceFile | None = None

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


def exit_status(findings: Iterable[Finding], *others: int) -> int:
    """The highest applicable exit status."""
    return max([0, *(f.diagnostic.exit_status for f in findings), *others])
