"""Where directives stand in the file, and their text with the place of each character.

#pragma mdh combine_ops(cc, \\      ->   text " combine_ops(cc,  pw(+))", offsets of each byte
                        pw(+))
_Pragma("mdh name(\\"x\\")")         ->   the same, unescaped
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace

from frontend_c.lexer import Token, statement_end
from frontend_c.positions import Positions
from mdh_core.source import NO_SPAN, Span

MDH = re.compile(r"mdh(?![\w.-])")
DATA = re.compile(r"\s*data\b")
ACCEPTED = ("scop", "omp", "acc")
_FIRST = re.compile(r"(mdh(?![\w.-])|scop\b|omp\b|acc\b)")
_END_OF_REGION = re.compile(r"endscop\b")
_GAP = rb"(?:[ \t]|/\*.*?\*/|\\\r?\n)*"
_PRAGMA = re.compile(rb"#" + _GAP + rb"pragma" + _GAP + rb"(mdh(?![\w.-])|(?:scop|omp|acc)\b)", re.DOTALL)
_SKIPPED = re.compile(rb"\\[ \t]*(?:\r?\n|\Z)|/\*.*?\*/|//[^\n]*", re.DOTALL)


@dataclass(frozen=True)
class Found:
    """A directive: index of its preprocessed token, its bytes, its clauses' text with offsets."""

    token: int
    span: Span
    text: str
    offsets: tuple[int, ...]
    word: str = "mdh"  # or "scop", "omp", "acc"; empty: none stands there, this is where one would
    end: int = -1  # of a region of several statements: the token of its `endscop`
    parts: tuple[Found, ...] = ()  # directives for its loops and blocks

    @property
    def is_data(self) -> bool:
        """Is it ``mdh data``, about arrays of a block, not about a nest?"""
        return self.word == "mdh" and DATA.match(self.text) is not None


def find_directives(positions: Positions, accept: Collection[str] = ()) -> list[Found]:
    """All directives of the user's file that are active under the given flags, in order.

    ``accept``: the other languages whose directives count.
    """
    source = positions.source
    written: dict[int, list[Token]] = {}
    for k, token in enumerate(positions.original):
        line = source.line_col(token.start)[0]
        if token.kind == "directive" and _PRAGMA.match(token.text):
            written.setdefault(line, []).append(token)
        elif token.text == b"_Pragma" and (string := _argument(positions.original, k)):
            written.setdefault(line, []).append(string)
    out = []
    for k, pre in enumerate(positions.stream):
        if pre.kind == "pragma" and pre.line and (found := _FIRST.match(pre.text)):
            here = written.get(pre.line, [])
            token_here = here.pop(0) if here else None
            if found[1] == "mdh" or found[1] in accept:
                one = _found(positions, k, pre.text[found.end() :], pre.line, token_here, found[1])
                out += [one] if one.word != "scop" else _region(positions, one)
    return out


def _region(positions: Positions, begin: Found) -> list[Found]:
    """``#pragma scop ... #pragma endscop``: one directive, for a loop, a block, or a list of statements."""
    stream = positions.stream
    end = next(
        (k for k in range(begin.token + 1, len(stream))
         if stream[k].kind == "pragma" and _END_OF_REGION.match(stream[k].text)), None
    )  # fmt: skip
    nothing = [replace(begin, token=len(stream) - 1)]  # a directive before nothing
    if end is None:
        return nothing
    words = [
        Token("directive" if t.kind == "pragma" else t.kind, k, k + 1, t.text.encode("latin-1"))
        for k, t in enumerate(stream[:end])
    ]
    out, k, statements = [], begin.token + 1, 0
    while k < end:
        stop = statement_end(words, k)
        first = next((j for j in range(k, end) if stream[j].kind != "pragma"), end)
        if stop is None or first >= end:
            break
        if stream[first].text in ("for", "{"):
            out.append(replace(begin, token=first - 1))
        k = stop
        statements += 1
    return out if statements == len(out) == 1 else [replace(begin, end=end, parts=tuple(out or nothing))]


def _argument(stream: list[Token], k: int) -> Token | None:
    """The whole ``_Pragma("mdh ...")`` as one token."""
    part = stream[k : k + 4]
    if len(part) < 4 or part[1].text != b"(" or part[2].kind != "string" or part[3].text != b")":
        return None
    if not part[2].text[1:].lstrip().startswith((b"mdh", b"scop", b"omp", b"acc")):
        return None
    return Token("string", part[0].start, part[3].end, part[2].text)


def _found(positions: Positions, k: int, text: str, line: int, token: Token | None, word: str) -> Found:
    if token is None:  # a macro made it: all we know is the line
        source = positions.source
        span = source.line_span(line) if line <= source.line_count else NO_SPAN
        start = max(span.start, 0)
        return Found(k, span, text, (start,) * (len(text) + 1), word)
    if token.kind == "directive":
        head = _PRAGMA.match(token.text)
        assert head is not None
        clean, offsets = _cleaned(token.text, head.end(), token.start)
        return Found(k, token.span, clean, offsets, word)
    return Found(k, token.span, *_unescaped(positions.source.data, token, word), word)


def _cleaned(text: bytes, begin: int, base: int) -> tuple[str, tuple[int, ...]]:
    """Text from ``begin`` without line continuations and comments (a blank for each)."""
    out: list[str] = []
    offsets: list[int] = []
    position = begin
    while position < len(text):
        skipped = _SKIPPED.match(text, position)
        out.append(" " if skipped else chr(text[position]))
        offsets.append(base + position)
        position = skipped.end() if skipped else position + 1
    return "".join(out), (*offsets, base + len(text))


def _unescaped(data: bytes, token: Token, word: str) -> tuple[str, tuple[int, ...]]:
    """The inside of a ``_Pragma`` string after its first word."""
    position = data.index(word.encode(), token.start) + len(word)
    end = data.rindex(b'"', token.start, token.end)
    out: list[str] = []
    offsets: list[int] = []
    while position < end:
        if data[position : position + 1] == b"\\":
            position += 1
        out.append(chr(data[position]))
        offsets.append(position)
        position += 1
    return "".join(out), (*offsets, end)
