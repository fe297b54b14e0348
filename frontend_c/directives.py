"""Where directives stand in the file, and their text with the place of each character.

#pragma mdh combine_ops(cc, \\      ->   text " combine_ops(cc,  pw(+))", offsets of each byte
                        pw(+))
_Pragma("mdh name(\\"x\\")")         ->   the same, unescaped
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from frontend_c.lexer import Token
from frontend_c.positions import Positions
from mdh_core.source import NO_SPAN, Span

MDH = re.compile(r"mdh(?![\w.-])")
_GAP = rb"(?:[ \t]|/\*.*?\*/|\\\r?\n)*"
_PRAGMA = re.compile(rb"#" + _GAP + rb"pragma" + _GAP + rb"mdh(?![\w.-])", re.DOTALL)
_SKIPPED = re.compile(rb"\\[ \t]*\r?\n|/\*.*?\*/|//[^\n]*", re.DOTALL)


@dataclass(frozen=True)
class Found:
    """A directive: index of its preprocessed token, its bytes, its clauses' text with offsets."""

    token: int
    span: Span
    text: str
    offsets: tuple[int, ...]


def find_directives(positions: Positions) -> list[Found]:
    """All directives of the user's file that are active under the given flags, in order."""
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
        if pre.kind == "pragma" and pre.line and (found := MDH.match(pre.text)):
            here = written.get(pre.line, [])
            token_here = here.pop(0) if here else None
            out.append(_found(positions, k, pre.text[found.end() :], pre.line, token_here))
    return out


def _argument(stream: list[Token], k: int) -> Token | None:
    """The whole ``_Pragma("mdh ...")`` as one token."""
    part = stream[k : k + 4]
    if len(part) < 4 or part[1].text != b"(" or part[2].kind != "string" or part[3].text != b")":
        return None
    if not part[2].text[1:].lstrip().startswith(b"mdh"):
        return None
    return Token("string", part[0].start, part[3].end, part[2].text)


def _found(positions: Positions, k: int, text: str, line: int, token: Token | None) -> Found:
    if token is None:  # a macro made it: all we know is the line
        source = positions.source
        span = source.line_span(line) if line <= source.line_count else NO_SPAN
        start = max(span.start, 0)
        return Found(k, span, text, (start,) * (len(text) + 1))
    if token.kind == "directive":
        head = _PRAGMA.match(token.text)
        assert head is not None
        clean, offsets = _cleaned(token.text, head.end(), token.start)
        return Found(k, token.span, clean, offsets)
    return Found(k, token.span, *_unescaped(positions.source.data, token))


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


def _unescaped(data: bytes, token: Token) -> tuple[str, tuple[int, ...]]:
    """The inside of a ``_Pragma`` string after the word ``mdh``."""
    position = data.index(b"mdh", token.start) + 3
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
