"""Tokens of C text with exact byte ranges, and the extent of a statement.

    tokens(b"x+=1; /* c */") -> Token("id", 0, 1), Token("punct", 1, 3), Token("number", 3, 4), ...

The parser sees preprocessed text, whose columns are not the user's; every edit and every span
therefore comes from this lexer, which works on the original bytes: comments, line continuations,
CRLF and bytes of any encoding are skipped or kept, never decoded.  A preprocessor line is one
token of kind ``directive``.  The same lexer reads what ``cc -E`` prints.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mdh_core.source import Span

_NUMBER = rb"\.?[0-9](?:[eEpP][+-]|[0-9A-Za-z_.])*"
_NAME = rb"[A-Za-z_$\x80-\xff][0-9A-Za-z_$\x80-\xff]*"
_PUNCT = rb"\.\.\.|<<=|>>=|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|##|::|[^\s]"
_SPLICE = rb"\\[ \t]*\r?\n"
# names and numbers first: most tokens are these
_TOKEN = re.compile(
    rb"""[ \t]*(?:(?P<id>(?!(?:u8|[LuU])"|[LuU]')""" + _NAME + rb")|(?P<number>" + _NUMBER + rb")"
    rb"|(?P<space>(?:[ \t\r\n\f\v]|" + _SPLICE + rb")+)"
    rb"|(?P<comment>/\*.*?(?:\*/|\Z)|//(?:" + _SPLICE + rb"|[^\n])*)"
    rb'|(?P<string>(?:u8|[LuU])?"(?:\\.|[^"\\\n])*"?)'
    rb"|(?P<char>[LuU]?'(?:\\.|[^'\\\n])*'?)"
    rb"|(?P<punct>" + _PUNCT + rb"))",
    re.DOTALL,
)
_DIRECTIVE = re.compile(
    rb"#(?:" + _SPLICE + rb"|/\*.*?(?:\*/|\Z)|//(?:" + _SPLICE + rb'|[^\n])*|"(?:\\.|[^"\\\n])*"|[^\n])*',
    re.DOTALL,
)
_OPEN = {b"(": b")", b"[": b"]", b"{": b"}"}
_HASH = ord("#")
BOM = b"\xef\xbb\xbf"


class Token(NamedTuple):  # a file has thousands, and a tuple is made in a third of the time
    """``kind`` is "id", "number", "string", "char", "punct" or "directive"; ``text`` its bytes."""

    kind: str
    start: int
    end: int
    text: bytes

    @property
    def span(self) -> Span:
        return Span(self.start, self.end)


def tokens(data: bytes) -> list[Token]:
    """All tokens of the text, without comments and white space."""
    return list(_read(data, len(BOM) if data.startswith(BOM) else 0, True))


def tokens_again(data: bytes, before: bytes, known: Sequence[Token]) -> list[Token]:
    """The same for a text that is mostly like another, of which the tokens are known.

    Read are the tokens around what differs, up to one where both texts go on alike.
    """
    head = common_prefix(before, data)
    tail = min(common_prefix(before[::-1], data[::-1]), min(len(before), len(data)) - head)
    grown = len(data) - len(before)
    k = bisect_left(known, head, key=lambda t: t.end) - _LOOKAHEAD
    while k >= 0 and known[k].kind == "directive":
        k -= 1
    if k < 0:
        return tokens(data)
    out = list(known[: k + 1])
    same = bisect_left(known, len(before) - tail, key=lambda t: t.start)
    for token in _read(data, known[k].end, False):
        while same < len(known) and known[same].start + grown < token.start:
            same += 1
        alike = same < len(known) and known[same].start + grown == token.start
        if alike and "directive" not in (token.kind, known[same].kind):  # so both go on from the same state
            out += [Token(t.kind, t.start + grown, t.end + grown, t.text) for t in known[same:]]
            break
        out.append(token)
    return out


_LOOKAHEAD = 3  # tokens before a change that may have been read otherwise because of it


def common_prefix(a: bytes, b: bytes) -> int:
    """How many bytes both begin with."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _read(data: bytes, position: int, line_start: bool) -> Iterator[Token]:
    """Tokens from a position on; ``line_start``: only white space and comments since the last line ending."""
    while position < len(data):
        for found in _TOKEN.finditer(data, position):
            kind = found.lastgroup or ""
            if kind == "space":
                line_start = line_start or b"\n" in found[0]
            elif kind != "comment":
                start, end = found.span(kind)
                text = found[kind]
                if line_start and text[0] == _HASH:
                    break
                yield Token(kind, start, end, text)
                line_start = False
        else:
            return
        line = _DIRECTIVE.match(data, start)
        assert line is not None
        end = start + len(line[0].rstrip())
        yield Token("directive", start, end, data[start:end])
        position = line.end()


def comments(data: bytes) -> list[Span]:
    """The places of all comments, also of those behind preprocessor lines."""
    out: list[Span] = []
    position = len(BOM) if data.startswith(BOM) else 0
    while position < len(data):
        found = _TOKEN.match(data, position)
        assert found is not None, position
        if found.lastgroup == "comment":
            out.append(Span(*found.span("comment")))
        position = found.end()
    return out


def token_hash(data: bytes, span: Span) -> str:
    """Hash of the tokens in a span; comments and white space do not count.

    >>> token_hash(b"a = b;", Span(0, 6)) == token_hash(b"a=b /* c */;", Span(0, 12))
    True
    """
    digest = hashlib.sha256()
    for token in tokens(data[span.start : span.end]):
        text = _directive_text(token.text) if token.kind == "directive" else token.text
        digest.update(text + b"\n")
    return digest.hexdigest()[:16]


def _directive_text(text: bytes) -> bytes:
    """A preprocessor line with its white space and comments reduced to single blanks."""
    text = re.sub(_SPLICE + rb"|/\*.*?\*/|//[^\n]*", b" ", text, flags=re.DOTALL)
    return b" ".join(text.split())


def closing(stream: Sequence[Token], k: int) -> int | None:
    """Index of the bracket that closes the one at ``k``, or None."""
    expected: list[bytes] = []
    for j in range(k, len(stream)):
        token = stream[j]
        if token.kind != "punct":
            continue
        if token.text in _OPEN:
            expected.append(_OPEN[token.text])
        elif token.text in (b")", b"]", b"}"):
            if not expected or expected.pop() != token.text:
                return None
            if not expected:
                return j
    return None


def statement_end(stream: Sequence[Token], k: int) -> int | None:
    """Index after the last token of the statement that starts at token ``k``, or None.

    Brackets and key words alone decide; what a macro hides is not seen, hence the hole test.
    """
    k = _skip_directives(stream, k)
    if k >= len(stream):
        return None
    text = stream[k].text
    if text == b"{":
        return _after(closing(stream, k))
    if text in (b"for", b"while", b"switch"):
        return _after_head(stream, k)
    if text == b"if":
        return _if_end(stream, k)
    if text == b"do":
        return _do_end(stream, k)
    if text in (b"else", b")", b"]", b"}"):
        return None
    if stream[k].kind == "id" and k + 1 < len(stream) and stream[k + 1].text == b":":
        return statement_end(stream, k + 2)
    return _simple_end(stream, k)


def is_statement_list(stream: Sequence[Token], k: int, end: int) -> bool:
    """Are tokens ``[k, end)`` statements, one after the other?"""
    while k < end:
        stop = statement_end(stream, k)
        if stop is None or stop > end:
            return False
        k = stop
    return True


def _after(k: int | None) -> int | None:
    return None if k is None else k + 1


def _skip_directives(stream: Sequence[Token], k: int) -> int:
    while k < len(stream) and stream[k].kind == "directive":
        k += 1
    return k


def _after_head(stream: Sequence[Token], k: int) -> int | None:
    """After ``keyword ( ... ) statement``."""
    if k + 1 >= len(stream) or stream[k + 1].text != b"(":
        return None
    close = closing(stream, k + 1)
    return None if close is None else statement_end(stream, close + 1)


def _if_end(stream: Sequence[Token], k: int) -> int | None:
    end = _after_head(stream, k)
    if end is None:
        return None
    other = _skip_directives(stream, end)
    if other < len(stream) and stream[other].text == b"else":
        return statement_end(stream, other + 1)
    return end


def _do_end(stream: Sequence[Token], k: int) -> int | None:
    end = statement_end(stream, k + 1)
    if end is None or end >= len(stream) or stream[end].text != b"while":
        return None
    return _simple_end(stream, end)


def _simple_end(stream: Sequence[Token], k: int) -> int | None:
    """After the next ``;`` outside brackets."""
    while k < len(stream):
        if stream[k].text in _OPEN and stream[k].kind == "punct":
            close = closing(stream, k)
            if close is None:
                return None
            k = close
        elif stream[k].text in (b")", b"]", b"}"):
            return None
        elif stream[k].text == b";":
            return k + 1
        k += 1
    return None
