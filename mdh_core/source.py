"""Source text as bytes, spans in it, and edits of it.

A ``Span`` is a pair of byte offsets into the original file; lines and columns (both counted
from 1, columns in bytes) are computed when something is printed.  Bytes outside an edit are
never touched, whatever their encoding or line endings.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property


@dataclass(frozen=True, slots=True)
class Span:
    """Half-open range ``[start, end)`` of byte offsets."""

    start: int
    end: int

    def __post_init__(self) -> None:
        assert 0 <= self.start <= self.end or self.start == -1, (self.start, self.end)

    def __bool__(self) -> bool:
        return self.start >= 0


NO_SPAN = Span(-1, -1)


@dataclass(frozen=True)
class SourceFile:
    """A file as it was read: its path (as the user named it) and its bytes."""

    path: str
    data: bytes = field(repr=False)

    @cached_property
    def _line_starts(self) -> list[int]:
        return [0, *(m.end() for m in re.finditer(rb"\n", self.data))]

    def line_col(self, offset: int) -> tuple[int, int]:
        """Line and column (from 1) of a byte offset."""
        line = bisect.bisect_right(self._line_starts, offset)
        return line, offset - self._line_starts[line - 1] + 1

    def offset_of_line(self, line: int) -> int:
        """Byte offset at which line ``line`` (from 1) starts."""
        return self._line_starts[line - 1]

    @property
    def line_count(self) -> int:
        return len(self._line_starts)

    def line_span(self, line: int) -> Span:
        """The bytes of one line without its line ending."""
        start = self._line_starts[line - 1]
        end = self._line_starts[line] if line < self.line_count else len(self.data)
        return Span(start, start + len(self.data[start:end].rstrip(b"\r\n")))

    def text(self, span: Span) -> str:
        """The text of a span; bytes that are not UTF-8 are read as Latin-1."""
        raw = self.data[span.start : span.end]
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            return raw.decode("latin-1")


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace the bytes of ``span`` by ``new``; an insertion has an empty span."""

    span: Span
    new: bytes


def apply_edits(data: bytes, edits: Iterable[Edit]) -> bytes:
    """The text with all edits applied; edits must not overlap.

    >>> apply_edits(b"a b c", [Edit(Span(2, 3), b"xx"), Edit(Span(0, 0), b"> ")])
    b'> a xx c'
    """
    out: list[bytes] = []
    position = 0
    for edit in sorted(edits, key=lambda e: (e.span.start, e.span.end)):
        assert edit.span.start >= position, "edits overlap"
        out += [data[position : edit.span.start], edit.new]
        position = edit.span.end
    return b"".join([*out, data[position:]])
