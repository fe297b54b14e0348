"""Loops without a directive: where they stand, and the nest that each would be if one stood there.

    for (t ...)          LoopPlace(t, inner=(LoopPlace(i), LoopPlace(j)))
    {   for (i ...) ...
        for (j ...) ...  }

Loops of nests that have a directive are left out, and so are those of headers.  Nothing is inserted anywhere:
``UnannotatedReader.read`` reads a loop as ``frontend_c.read`` would have, with all its tests of place.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from frontend_c.directives import Found
from frontend_c.file import Preprocessing, Refused
from frontend_c.lexer import Token, statement_end
from frontend_c.parsing import Chunk
from frontend_c.preprocess import CompileCommand
from frontend_c.read import FileReader
from frontend_c.teams import belongs_to_loop
from lifter.loop_nest import LoopNest
from mdh_core.source import NO_SPAN, SourceFile, Span

_PRAGMA = re.compile(rb"#\s*pragma\b\s*(.*)", re.DOTALL)
_OPENS, _CLOSES = re.compile(rb"#\s*if(?:n?def)?\b"), re.compile(rb"#\s*endif\b")
_MIDDLE = re.compile(rb"#\s*(?:else|elif\w*)\b")


@dataclass(frozen=True, slots=True)
class LoopPlace:
    """A ``for`` statement of the file.

    head      bytes of its first token; where a macro makes it, the macro's call; may be unknown
    anchor    offset before which a directive would stand: of the ``for``, or of the pragmas that belong to
              it; -1 where none can, for the reason in ``obstacle``
    own_line  whether only white space is before the anchor on its line, so that a line may be put there
    depth     how many loops stand inside one another, this one included
    begins    preprocessed tokens: from the pragmas on that belong to the loop; ``first``, ``end`` of the loop
    """

    function: str
    head: Span
    anchor: int
    own_line: bool
    obstacle: str
    depth: int
    begins: int
    first: int
    end: int
    inner: tuple[LoopPlace, ...] = ()


@dataclass
class _Node:
    first: int
    end: int
    inner: list[_Node] = field(default_factory=list)


class UnannotatedReader:
    """One file, preprocessed once.  Raises ``Refusal`` where it cannot be (MDH002 and others).

    functions  names of the functions that the file defines, in order
    loops      its outermost loops that have no directive, in order
    directives how many directives it has
    """

    def __init__(self, source: SourceFile, command: CompileCommand, accept: Collection[str] = ()) -> None:
        self._file = FileReader(Preprocessing(source, command, accept))
        self._taken = list(self._directives())
        self.directives = len(self._file.directives) + len(self._file.data)
        chunks = [c for c in self._file.unit.chunks if c.kind == "function" and self._is_ours(c)]
        self.functions = tuple(c.name for c in chunks)
        self.loops = tuple(place for chunk in chunks for place in self._loops(chunk))

    def _is_ours(self, chunk: Chunk) -> bool:
        return any(t.line for t in self._file.stream[chunk.start : chunk.end])

    def _directives(self) -> Iterator[tuple[int, int]]:
        """Tokens of the nests that have a directive."""
        for found in self._file.directives:
            first = self._file.after_pragmas(found.token + 1)
            end = statement_end(self._file.whole.tokens, first) if found.end < 0 else found.end
            yield found.token, end or found.token + 1

    # ------------------------------------------------------------------ where they are

    def _loops(self, chunk: Chunk) -> Iterator[LoopPlace]:
        tokens = self._file.whole.tokens
        outermost: list[_Node] = []
        around: list[_Node] = []
        for k in range(chunk.start, chunk.end):
            if tokens[k].text != b"for" or tokens[k].kind != "id":
                continue
            end = statement_end(tokens, k)
            if end is None or any(a <= k < b for a, b in self._taken):
                continue
            while around and k >= around[-1].end:
                around.pop()
            node = _Node(k, end)
            (around[-1].inner if around else outermost).append(node)
            around.append(node)
        for node in outermost:
            yield from self._places(chunk, node)

    def _places(self, chunk: Chunk, node: _Node) -> Iterator[LoopPlace]:
        """The loop; instead of one that holds a directive, the loops in it."""
        inner = tuple(place for n in node.inner for place in self._places(chunk, n))
        if any(node.first < a < node.end for a, _ in self._taken):
            yield from inner
            return
        stream, positions = self._file.stream, self._file.positions
        begins = node.first
        while (
            begins > chunk.start
            and stream[begins - 1].kind == "pragma"
            and belongs_to_loop(stream[begins - 1].text)
        ):
            begins -= 1
        at = self._starts_at(node.first, begins)
        anchor, obstacle = -1, "a macro makes the `for`, and more"
        if at is not None:
            anchor, obstacle = self._anchor(at, chunk)
        yield LoopPlace(
            chunk.name,
            positions.span(node.first, node.first),
            anchor,
            anchor >= 0 and self._starts_line(anchor),
            obstacle,
            1 + max((place.depth for place in inner), default=0),
            begins,
            node.first,
            node.end,
            inner,
        )

    def _starts_at(self, first: int, begins: int) -> int | None:
        """The original token that is the loop's first, or starts the call of a macro that makes it."""
        positions = self._file.positions
        at = positions.original_index(first)
        before = positions.original_index(begins - 1)
        if at is not None or before is None:
            return at
        at = before + 1
        while at < len(positions.original) and positions.original[at].kind == "directive":
            at += 1
        called = positions.span(first, first)
        return at if at < len(positions.original) and positions.original[at].start == called.start else None

    def _anchor(self, at: int, chunk: Chunk) -> tuple[int, str]:
        """Where a directive for the loop at an original token would stand, or -1 and why it cannot."""
        original = self._file.positions.original
        start = self._file.positions.span(chunk.start, chunk.start)
        if _inside_parentheses(original, at, start.start):
            return -1, "it stands between parentheses: an argument of a macro, or a statement expression"
        k = _above_pragmas(original, at)
        if k != at and not self._starts_line(original[k].start):
            return -1, "a comment stands before its pragma on the same line"
        if k > 0 and original[k - 1].text == b")" and _ends_pragma_operator(original, k - 1):
            return -1, "`_Pragma` stands before it"
        return original[k].start, ""

    def _starts_line(self, offset: int) -> bool:
        """May a line be inserted above the one on which this token stands?"""
        source = self._file.source
        line = source.line_col(offset)[0]
        begin = source.offset_of_line(line)
        before = source.data[begin:offset]
        bom = b"\xef\xbb\xbf" if line == 1 else b""
        if before.removeprefix(bom).strip(b" \t\f\v"):
            return False
        return (
            line == 1
            or not source.data[:begin].rstrip(b"\r\n \t").endswith(b"\\")
            or _blank_between(source, begin)
        )

    # ------------------------------------------------------------------ what they are

    def read_all(self, places: Sequence[LoopPlace]) -> list[LoopNest | Refused]:
        """The nests that loops would be; they must be in order and not inside one another."""
        founds: list[Found] = []
        labels: list[str] = []
        for place in places:
            at = place.anchor if place.anchor >= 0 else max(place.head.start, 0)
            founds.append(Found(place.begins - 1, Span(at, at), "", (at,), ""))
            label = f"@{self.line(place)}"
            labels.append(label if label not in labels else f"{label}.{len(labels)}")
        return self._file.read_undirected(founds, labels)

    def line(self, place: LoopPlace) -> int:
        """The line of the file on which the loop starts; 0 where a macro of another file makes it."""
        if place.head:
            return self._file.source.line_col(place.head.start)[0]
        return self._file.stream[place.first].line

    def span(self, place: LoopPlace) -> Span:
        """The bytes of the loop, about: macros may make its ends."""
        found = self._file.original_statement(place.first)
        if found is not None:
            return found[1]
        return self._file.positions.span(place.first, place.end - 1) or NO_SPAN

    def operations(self, place: LoopPlace) -> int:
        """Arithmetic operators and assignments in the statement, by their look."""
        text = [t.text for t in self._file.stream[place.first : place.end]]
        return sum(t in _OPERATORS for t in text)


_OPERATORS = frozenset(
    ["+", "-", "*", "/", "%", "<<", ">>", "&", "|", "^", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "="]
)


def _blank_between(source: SourceFile, begin: int) -> bool:
    """Is the line above blank, so that a continuation further up ends there?"""
    above = source.data[:begin].rstrip(b"\r\n \t")
    return source.data[len(above) : begin].count(b"\n") > 1


def _inside_parentheses(original: Sequence[Token], at: int, start: int) -> bool:
    """Is a token between parentheses that opened after byte ``start``?"""
    open_ = 0
    for token in reversed(original[:at]):
        if token.start < start:
            break
        if token.kind == "punct":
            open_ += (token.text == b")") - (token.text == b"(")
            if open_ < 0:
                return True
    return False


def _above_pragmas(original: Sequence[Token], at: int) -> int:
    """The first of the pragmas above token ``at`` that belong to the loop there, or ``at``.

    ``#if`` ... ``#endif`` around pragmas only counts as they do.
    """
    best, k, depth, pragma = at, at, 0, False
    while k > 0 and original[k - 1].kind == "directive":
        k -= 1
        text = original[k].text
        found = _PRAGMA.match(text)
        if found is not None:
            if not belongs_to_loop(found[1].decode("latin-1")):
                if not depth:
                    break
                continue
            pragma = True
        elif _CLOSES.match(text):
            pragma = pragma and depth > 0
            depth += 1
            continue
        elif _OPENS.match(text) and depth:
            depth -= 1
        elif _MIDDLE.match(text) and depth:
            continue
        else:
            break
        if depth == 0 and pragma:
            best = k
    return best


def _ends_pragma_operator(original: Sequence[Token], k: int) -> bool:
    """Does token ``k`` close ``_Pragma("...")``?"""
    return k >= 3 and original[k - 3].text == b"_Pragma" and original[k - 1].kind == "string"
