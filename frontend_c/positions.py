"""Which bytes of the user's file a token of the preprocessed text comes from.

    file          for (i = 0; i < N; i++)  s += SQ(a[i]);          // N is 10
    preprocessed  for (i = 0; i < 10; i++) s += ((a[i])*(a[i]));

Lines are known from line markers.  Lines with the same tokens on both sides are aligned one to
one; in a run of differing lines a longest common subsequence is.  What is left over came from a
macro: it is placed on the tokens between its aligned neighbours, which are the macro's call.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from difflib import SequenceMatcher
from functools import cached_property
from typing import NamedTuple

from frontend_c.lexer import Token, tokens
from frontend_c.preprocess import STDIN_NAME
from mdh_core.source import NO_SPAN, SourceFile, Span

_MARKER = re.compile(rb'#\s*(?:line\s+)?(\d+)\s+"((?:\\.|[^"\\])*)"')
_PRAGMA = re.compile(rb"#\s*pragma\b[ \t]*")


class PreToken(NamedTuple):
    """A token after preprocessing; ``line`` is that in the user's file, 0 in any other file."""

    kind: str  # as in Token, "pragma" for a pragma line
    text: str  # of a pragma: what follows the word
    line: int
    at: int = 0  # byte offset in the preprocessed text


def pre_tokens(text: bytes, start: int = 0) -> list[PreToken]:
    """Tokens of the output of ``cc -E``, with the lines that its markers give; ``start``: of a line."""
    starts = [0] + [m.end() for m in re.finditer(rb"\n", text)]
    out: list[PreToken] = []
    offset, here = _marked(text, start, starts)  # line in the file = physical line + offset
    for token in tokens(text[start:] if start else text):
        at = token.start + start
        physical = bisect_right(starts, at)
        if token.kind != "directive":
            out.append(PreToken(token.kind, _ascii(token), physical + offset if here else 0, at))
        elif marker := _MARKER.match(token.text):
            offset, here = int(marker[1]) - physical - 1, marker[2].decode() == STDIN_NAME
        elif pragma := _PRAGMA.match(token.text):
            rest = token.text[pragma.end() :].decode("latin-1")
            out.append(PreToken("pragma", rest, physical + offset if here else 0, at))
    return out


def _marked(text: bytes, start: int, starts: Sequence[int]) -> tuple[int, bool]:
    """What the last line marker before a line says: how lines are counted, and whether in the user's file."""
    at = start
    while at > 0:
        at = text.rfind(b"#", 0, at)
        marker = _MARKER.match(text, at) if at == 0 or text[at - 1 : at] == b"\n" else None
        if marker is not None:
            return int(marker[1]) - bisect_right(starts, at) - 1, marker[2].decode() == STDIN_NAME
    return 0, False


def _ascii(token: Token) -> str:
    """Text for the parser, which knows ASCII only; what a string says never matters."""
    if token.kind in ("string", "char"):
        return token.text.decode("ascii", "replace").replace("\ufffd", "?")
    return token.text.decode("latin-1")


class Positions:
    """Maps indices of preprocessed tokens to spans of the file."""

    def __init__(self, source: SourceFile, stream: Sequence[PreToken]) -> None:
        self.source = source
        self.stream = stream
        self.original = tokens(source.data)

    @cached_property
    def _aligned(self) -> dict[int, int]:
        """Index of a preprocessed token -> index of the original token that it is."""
        mine, theirs = self._by_line()
        out: dict[int, int] = {}
        run: tuple[list[int], list[int]] = ([], [])
        for line in sorted(mine.keys() | theirs.keys()):
            a, b = mine.get(line, []), theirs.get(line, [])
            if self._same(a, b) and a:
                self._align_run(run, out)
                run = ([], [])
                out.update(zip(a, b, strict=True))
            else:
                run[0].extend(a)
                run[1].extend(b)
        self._align_run(run, out)
        return out

    def _by_line(self) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
        mine: dict[int, list[int]] = {}
        for k, pre in enumerate(self.stream):
            if pre.line and pre.kind != "pragma":
                mine.setdefault(pre.line, []).append(k)
        theirs: dict[int, list[int]] = {}
        for k, token in enumerate(self.original):
            if token.kind != "directive":
                theirs.setdefault(self.source.line_col(token.start)[0], []).append(k)
        return mine, theirs

    def _same(self, a: list[int], b: list[int]) -> bool:
        return len(a) == len(b) and all(
            self.stream[x].text == self._original_text(y) for x, y in zip(a, b, strict=True)
        )

    def _original_text(self, k: int) -> str:
        return _ascii(self.original[k])

    def _align_run(self, run: tuple[list[int], list[int]], out: dict[int, int]) -> None:
        a, b = run
        if not a or not b:
            return
        left, right = [self.stream[k].text for k in a], [self._original_text(k) for k in b]
        for block in SequenceMatcher(None, left, right, autojunk=False).get_matching_blocks():
            for n in range(block.size):
                out[a[block.a + n]] = b[block.b + n]

    @cached_property
    def _sorted(self) -> list[int]:
        return sorted(self._aligned)

    def original_index(self, k: int) -> int | None:
        """Index of the original token that token ``k`` is, or None if a macro made it."""
        return self._aligned.get(k)

    def span(self, first: int, last: int) -> Span:
        """The bytes of the preprocessed tokens ``first`` to ``last``, both included."""
        begin, end = self._token_span(first), self._token_span(last)
        if not begin or not end or end.end < begin.start:
            return begin or end
        return Span(begin.start, end.end)

    def _token_span(self, k: int) -> Span:
        if k in self._aligned:
            return self.original[self._aligned[k]].span
        if not self.stream[k].line:
            return NO_SPAN
        return self._macro_call(k)

    def _macro_call(self, k: int) -> Span:
        """The original tokens between the aligned neighbours of ``k``; at worst its line."""
        at = bisect_right(self._sorted, k)
        before = self._aligned[self._sorted[at - 1]] if at else -1
        after = self._aligned[self._sorted[at]] if at < len(self._sorted) else len(self.original)
        line = self.stream[k].line
        between = [
            t for t in self.original[before + 1 : after]
            if t.kind != "directive" and abs(self.source.line_col(t.start)[0] - line) <= 64
        ]  # fmt: skip
        if between:
            return Span(between[0].start, between[-1].end)
        if before >= 0 and self.source.line_col(self.original[before].start)[0] == line:
            return self.original[before].span
        return self.source.line_span(line) if line <= self.source.line_count else NO_SPAN
