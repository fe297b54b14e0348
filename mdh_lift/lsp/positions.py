"""Places in a document: byte offsets of ours, lines and characters of the protocol.

    Text("é = 1;\\n").position(2, UTF16)      (0, 1): `é` is two bytes and one UTF-16 unit
    Text("é = 1;\\n").offset((0, 1), UTF16)   2

The protocol counts lines and characters from 0, in the units that client and server agreed upon, and knows
three line endings (LF, CR LF, CR); form feeds and other separators end no line.  Places beyond the end of a
line mean its end, places inside a character its start.  tests/test_lsp_positions.py counts anew.
"""

from __future__ import annotations

import bisect
import re
from functools import cached_property

UTF8, UTF16, UTF32 = "utf-8", "utf-16", "utf-32"
ENCODINGS = (UTF8, UTF16, UTF32)
_LINE_END = re.compile(r"\r\n|\n|\r")

Position = tuple[int, int]


def encoded(text: str) -> bytes:
    """The text in UTF-8; halves of surrogate pairs, which editors may send, as they are."""
    return text.encode("utf-8", "surrogatepass")


def units(text: str, encoding: str) -> int:
    """The length of a text in code units of an encoding."""
    if encoding == UTF8:
        return len(encoded(text))
    if encoding == UTF32 or text.isascii():
        return len(text)
    return len(text) + sum(c > "\uffff" for c in text)


def characters(text: str, count: int, encoding: str) -> int:
    """How many characters of a text fit into so many code units."""
    if encoding == UTF32 or text.isascii():
        return min(max(count, 0), len(text))
    seen = 0
    for k, c in enumerate(text):
        seen += units(c, encoding)
        if seen > count:
            return k
    return len(text)


class Text:
    """A document's text; ``data`` is the same in UTF-8, which all our offsets count."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def data(self) -> bytes:
        return encoded(self.text)

    @cached_property
    def _starts(self) -> list[int]:
        """Index of the first character of each line."""
        return [0] + [m.end() for m in _LINE_END.finditer(self.text)]

    @cached_property
    def _bytes(self) -> list[int]:
        """Offset of the first byte of each line."""
        if self.text.isascii():
            return self._starts
        out, at, before = [], 0, 0
        for start in self._starts:
            at += len(encoded(self.text[before:start]))
            out.append(at)
            before = start
        return out

    @property
    def line_count(self) -> int:
        return len(self._starts)

    def line(self, number: int) -> str:
        """A line without its ending; empty beyond the last."""
        if not 0 <= number < self.line_count:
            return ""
        last = number + 1 == self.line_count
        end = len(self.text) if last else self._starts[number + 1]
        text = self.text[self._starts[number] : end]
        return text if last else text.rstrip("\r\n")

    def index(self, position: Position, encoding: str) -> int:
        """Index of a character of the text."""
        number, character = position
        if number >= self.line_count:
            return len(self.text)
        number = max(number, 0)
        return self._starts[number] + characters(self.line(number), character, encoding)

    def offset(self, position: Position, encoding: str) -> int:
        """Byte offset of a position."""
        number = min(max(position[0], 0), self.line_count - 1)
        index = self.index(position, encoding)
        return self._bytes[number] + len(encoded(self.text[self._starts[number] : index]))

    def position(self, offset: int, encoding: str) -> Position:
        """Position of a byte offset."""
        offset = min(max(offset, 0), len(self.data))
        number = bisect.bisect_right(self._bytes, offset) - 1
        line = self.line(number)
        inside = encoded(line)[: offset - self._bytes[number]]
        if encoding == UTF8:
            return number, len(inside)
        # "ignore": an offset inside a character means its start
        return number, units(_decoded(inside), encoding)

    def replaced(self, start: Position, end: Position, new: str, encoding: str) -> Text:
        """The text with a range of it replaced, as an incremental change says."""
        first, last = self.index(start, encoding), self.index(end, encoding)
        return Text(self.text[:first] + new + self.text[max(first, last) :])


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        return data[: error.start].decode("utf-8", "surrogatepass")
