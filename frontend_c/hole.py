"""The hole test: are these bytes exactly one statement, and nothing but that statement?

    before  ...  #pragma mdh   for (...) { ... }   return s; ...
    hole    ...  #pragma mdh   __MDH_HOLE__;       return s; ...

Both texts are preprocessed.  The tokens around the hole must be the same in both, and the tokens
that went into it must be one statement.  A macro may make the loop's head or its end; one that makes
more than the loop, or an ``#if`` that cuts through the nest, fails one of the two.

Nests of which none can change what is behind it, as they hold no preprocessor lines, are tried all at once;
one by one only where that fails.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from frontend_c.lexer import Token, common_prefix, statement_end
from frontend_c.positions import PreToken, pre_tokens
from frontend_c.preprocess import CompileCommand, preprocess
from mdh_core.diagnostics import Diagnostic, Refusal
from mdh_core.source import SourceFile, Span

HOLE = "__MDH_HOLE__"


def as_tokens(stream: Sequence[PreToken], first: int = 0) -> list[Token]:
    """Preprocessed tokens in the lexer's form; positions are indices, from ``first`` on."""
    return [
        Token("directive" if t.kind == "pragma" else t.kind, k, k + 1, t.text.encode("latin-1"))
        for k, t in enumerate(stream, first)
    ]


@dataclass(frozen=True)
class Preprocessed:
    """What ``cc -E`` printed for the file: bytes, tokens, and these in the lexer's form."""

    text: bytes
    stream: list[PreToken]
    tokens: list[Token]


_last = Preprocessed(b"", [], [])  # files often begin with the headers of the one before


def preprocessed(text: bytes) -> Preprocessed:
    """Text and tokens; what begins as the last one did is not tokenised again."""
    global _last
    same = _common_lines(_last.text, text)
    k = bisect_left(_last.stream, same, key=lambda t: t.at)
    stream = _last.stream[:k] + pre_tokens(text, same)
    _last = Preprocessed(text, stream, _last.tokens[:k] + as_tokens(stream[k:], k))
    return _last


def hole_test(
    source: SourceFile, command: CompileCommand, whole: Preprocessed, span: Span, first: int,
    last: int | None = None,
) -> Diagnostic | None:  # fmt: skip
    """MDH005 unless the bytes ``span`` are the statement that starts at token ``first``.

    ``last``: of several statements, the index after their last token.
    """
    removed = source.data[span.start : span.end]
    filler = f"{HOLE};".encode() + b"\n" * removed.count(b"\n")
    try:
        text = preprocess(source, command, source.data[: span.start] + filler + source.data[span.end :])
    except Refusal:
        return _failed(source, span, "an `#if` or a macro cuts through it")
    # Only what differs is tokenised: headers may be long, and are the same in both.
    same = _common_lines(whole.text, text)
    rest = _common_lines(whole.text[same:][::-1], text[same:][::-1])
    holed = pre_tokens(text[same : len(text) - rest])
    low = bisect_left(whole.stream, same, key=lambda t: t.at)
    high = bisect_left(whole.stream, len(whole.text) - rest, key=lambda t: t.at)
    if [t.text for t in holed].count(HOLE) != 1:
        return _failed(source, span, "an `#if` or a macro hides it")
    at = next(k for k, t in enumerate(holed) if t.text == HOLE)
    end = high - (len(holed) - at - 2)
    around = _equal(whole.stream[low:first], holed[:at]) and _equal(whole.stream[end:high], holed[at + 2 :])
    if low + at != first or end <= first or not around:
        return _failed(source, span, "taking it out changes the code around it")
    if (statement_end(whole.tokens, first) if last is None else last) != end:
        return _failed(source, span, "a macro makes more than the loop")
    return None


@dataclass(frozen=True)
class Place:
    """Where a statement is: its bytes, the token at which it starts."""

    span: Span
    first: int


def all_exact(
    source: SourceFile, command: CompileCommand, whole: Preprocessed, places: Sequence[Place]
) -> bool:
    """Do nests that do not overlap, in order, pass the hole test at the same time?"""
    parts, at = [], 0
    for place in places:
        lines = source.data.count(b"\n", place.span.start, place.span.end)
        parts += [source.data[at : place.span.start], f"{HOLE};".encode(), b"\n" * lines]
        at = place.span.end
    try:
        text = preprocess(source, command, b"".join([*parts, source.data[at:]]))
    except Refusal:
        return False
    same = _common_lines(whole.text, text)
    k = bisect_left(whole.stream, same, key=lambda t: t.at)
    tokens, expected = iter(pre_tokens(text[same:])), iter(places)
    for token in tokens:
        if token.text == HOLE:
            nest, end = next(expected, None), statement_end(whole.tokens, k)
            if nest is None or nest.first != k or end is None or next(tokens, token).text != ";":
                return False
            k = end
        elif k < len(whole.stream) and _equal([token], whole.stream[k : k + 1]):
            k += 1
        else:
            return False
    return k == len(whole.stream) and next(expected, None) is None


def _common_lines(a: bytes, b: bytes) -> int:
    """Length of the common prefix, up to the last line ending in it."""
    return a.rfind(b"\n", 0, common_prefix(a, b)) + 1


def _equal(a: Sequence[PreToken], b: Sequence[PreToken]) -> bool:
    return len(a) == len(b) and all(x.kind == y.kind and x.text == y.text for x, y in zip(a, b, strict=True))


def _failed(source: SourceFile, span: Span, why: str) -> Diagnostic:
    return Diagnostic(
        "MDH005",
        f"nest has no exact place in the file: {why}",
        source.path,
        Span(span.start, min(span.end, _line_end(source, span.start))),
        help="write the `for` and its braces out, and keep `#if` lines outside the nest or whole inside it",
    )


def _line_end(source: SourceFile, offset: int) -> int:
    return source.line_span(source.line_col(offset)[0]).end
