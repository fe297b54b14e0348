"""Comments that say that a finding is known: ``// mdh-lift: ignore[MDH203] reason``.

    y[i] = x[idx[i]];  // mdh-lift: ignore[MDH214] gathers are done elsewhere     about this line
    // mdh-lift: ignore[MDH214] gathers are done elsewhere                        about the next line
    y[i] = x[idx[i]];

One on the line of a nest's directive, or before it, is about the whole nest.  ``/* */`` and, in Python, ``#``
are as good; several codes are separated by commas; the reason is required.  Lines are those of the text
without generated regions, so that splicing does not part a comment from its line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from frontend_c.lexer import BOM, comments
from mdh_core.diagnostics import CODES, Diagnostic
from mdh_core.source import SourceFile, Span

_HEAD = b"mdh-lift:"
_FORM = re.compile(
    r"\s*mdh-lift:\s*(?P<word>[\w-]*)\s*(?:\[(?P<codes>[^\]]*)\])?\s*(?P<reason>.*)", re.DOTALL
)
_CODE = re.compile(r"\w+")
_EXAMPLE = "write `mdh-lift: ignore[MDH214] why it is known`"


@dataclass(slots=True)
class Suppression:
    """One comment: codes with their places, and the lines (of the text without regions) that it is about."""

    span: Span
    lines: range
    codes: dict[str, Span]
    reason: str
    used: set[str] = field(default_factory=set)


def may_be_suppressed(code: str) -> bool:
    """Not what is no remark about the code: input and output, wrong results, environment, internal errors."""
    return CODES[code].exit_status <= 1


def read_suppressions(text: SourceFile, python: bool) -> tuple[list[Suppression], list[Diagnostic]]:
    """The comments of a text without generated regions, and what is wrong with them (MDH420, 421, 423)."""
    if _HEAD not in text.data:
        return [], []
    found: list[Suppression] = []
    wrong: list[Diagnostic] = []
    for span, inner in _comments(text, python):
        words = text.text(inner)
        form = _FORM.fullmatch(words)
        if form is None:
            continue
        one, problem = _suppression(text, span, inner, form)
        wrong += problem
        if one is not None:
            found.append(one)
    return found, wrong


def _suppression(
    text: SourceFile, span: Span, inner: Span, form: re.Match[str]
) -> tuple[Suppression | None, list[Diagnostic]]:
    def told(code: str, message: str, at: Span = span, advice: str = _EXAMPLE) -> Diagnostic:
        return Diagnostic(code, message, text.path, at, help=advice)

    if form["word"] != "ignore":
        return None, [told("MDH420", f"`mdh-lift: {form['word']}` is no comment that is known here")]
    if form["codes"] is None or not form["codes"].strip(" ,"):
        return None, [told("MDH420", "the codes that shall be ignored are missing")]
    if not re.search(r"\w", form["reason"]):
        return None, [told("MDH420", "the reason is missing")]
    codes: dict[str, Span] = {}
    wrong = []
    ascii_only = _is_ascii(text, inner)
    for m in _CODE.finditer(form["codes"]):
        start = inner.start + form.start("codes") + m.start()
        at = Span(start, start + len(m[0])) if ascii_only else span
        if m[0] not in CODES:
            what = f"no diagnostic has the code `{m[0]}`"
            wrong.append(told("MDH421", what, at, "`mdh-lift codes` lists all"))
        elif not may_be_suppressed(m[0]):
            wrong.append(told("MDH423", f"`{m[0]}` ({CODES[m[0]].title}) cannot be ignored", at, "remove it"))
        else:
            codes[m[0]] = at
    return (Suppression(span, _lines(text, span), codes, form["reason"].strip()) if codes else None), wrong


def _is_ascii(text: SourceFile, span: Span) -> bool:
    """Is every character one byte, so that offsets agree?"""
    return text.data[span.start : span.end].isascii()


def _lines(text: SourceFile, span: Span) -> range:
    """The comment's own line; the next one with something else on it where the comment stands alone."""
    first, last = text.line_col(span.start)[0], text.line_col(max(span.start, span.end - 1))[0]
    before = text.data[text.line_span(first).start : span.start]
    after = text.data[span.end : text.line_span(last).end]
    if before.strip() or after.strip():
        return range(first, last + 1)
    line = last + 1
    while line <= text.line_count and _is_idle(text, line):
        line += 1
    return range(first, line + 1)


def _is_idle(text: SourceFile, line: int) -> bool:
    """Is it blank, or another comment of this kind alone?"""
    words = text.data[text.line_span(line).start : text.line_span(line).end].strip()
    return not words or (words.startswith((b"//", b"/*", b"#")) and _HEAD in words)


def _comments(text: SourceFile, python: bool) -> Iterator[tuple[Span, Span]]:
    """All comments, with and without what makes them comments."""
    if python:
        yield from _python_comments(text)
        return
    for span in comments(text.data):
        closed = text.data[span.start : span.end]
        end = span.end - 2 if closed.startswith(b"/*") and closed.endswith(b"*/") else span.end
        yield span, Span(span.start + 2, max(span.start + 2, end))


def _python_comments(text: SourceFile) -> Iterator[tuple[Span, Span]]:
    import io
    import tokenize  # not needed for C

    lines = text.data.split(b"\n")
    try:
        for token in tokenize.tokenize(io.BytesIO(text.data).readline):
            if token.type == tokenize.COMMENT:
                row, column = token.start
                line = lines[row - 1].removeprefix(BOM) if row == 1 else lines[row - 1]
                before = line.decode("utf-8", "surrogateescape")[:column].encode("utf-8", "surrogateescape")
                start = text.offset_of_line(row) + len(lines[row - 1]) - len(line) + len(before)
                end = start + len(token.string.encode("utf-8", "surrogateescape"))
                yield Span(start, end), Span(start + 1, end)
    except (tokenize.TokenError, SyntaxError, UnicodeDecodeError):
        return
