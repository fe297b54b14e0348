"""Checking a document again after an edit: only functions whose meaning may have changed are read.

    int n;  void f(..) { #pragma mdh ... }  void g(..) { #pragma mdh ... }
                            edited                            as before: blanks, and its values, moved

A function's values depend on its text, on all that stands outside of functions, on preprocessor lines
wherever they stand, and on the functions that any of these name, in turn.  If nothing of that changed, the
body is blanked out, but for its line ends, so that all other places stay where they are; preprocessor, parser
and lifter then see the rest.  Functions with preprocessor lines, with addresses taken or with files beside
them are always read.

What comes out must be what a whole check finds: tests/test_lsp_incremental.py and ``python -m campaigns.lsp``
compare the two after random edits.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from frontend_c.lexer import Token, closing, tokens_again
from mdh_core.diagnostics import Refusal
from mdh_core.source import Edit, Span, apply_edits
from mdh_lift.lsp.values import Analysis, Finding, Nest, places, shifted
from mdh_lift.splice import Region, original, regions

_OWN_PRAGMA = re.compile(rb"#\s*pragma\s+(?:mdh|omp)\b")  # means nothing to what stands behind its function
_DATA = re.compile(rb"mdh\s+data\b|#\s*pragma\s+scop\b")
_NOT_TEXT = re.compile(rb"__(LINE|COUNTER|FILE)__|(push|pop)_macro")
_WORD = re.compile(rb"[A-Za-z_]\w*")
_OPERAND = ("id", "number", "string", "char")
_MOST = 4000  # functions that are remembered


@dataclass(frozen=True, eq=False)
class Unit:
    """A function of a document: its generated regions included; ``body``: inside the braces."""

    name: str
    span: Span
    body: Span
    names: frozenset[bytes]  # identifiers in it
    always: bool  # it must be read each time
    after: int  # how many tokens of ``Layout.around`` stand before it


@dataclass(frozen=True)
class Layout:
    units: tuple[Unit, ...]
    around: tuple[Token, ...]  # tokens that stand in no unit, and preprocessor lines that do
    pointed_to: frozenset[bytes]  # names of which an address is taken

    @cached_property
    def by_name(self) -> dict[bytes, list[Unit]]:
        out: dict[bytes, list[Unit]] = {}
        for u in self.units:
            out.setdefault(u.name.encode(), []).append(u)
        return out

    @cached_property
    def everywhere(self) -> frozenset[bytes]:
        """Names in preprocessor lines: what they stand for, any function may mean."""
        lines = [t.text for t in self.around if t.kind == "directive"]
        return frozenset(name for text in lines for name in _WORD.findall(text))


@dataclass
class Memory:
    """Values of functions by what they depend on; places count from the start of the function.

    ``text``, ``stream``: the last text without generated regions, and its tokens.
    """

    known: OrderedDict[bytes, Analysis] = field(default_factory=OrderedDict)
    text: bytes = b""
    stream: Sequence[Token] = ()

    def tokens(self, text: bytes) -> Sequence[Token]:
        """Of a text that is mostly like the last one."""
        self.stream = tokens_again(text, self.text, self.stream)
        self.text = text
        return self.stream

    def get(self, key: bytes) -> Analysis | None:
        found = self.known.get(key)
        if found is not None:
            self.known.move_to_end(key)
        return found

    def put(self, key: bytes, value: Analysis) -> None:
        self.known[key] = value
        while len(self.known) > _MOST:
            self.known.popitem(last=False)


def checked(data: bytes, check: Callable[[bytes], Analysis], memory: Memory, salt: bytes = b"") -> Analysis:
    """``check(data)``, with what is known from earlier calls.  ``salt``: all else that results depend on."""
    layout = _layout(data, memory)
    if layout is None:
        return ordered(check(data))
    keys = _keys(layout, data, salt)
    reused = {u: values for u in layout.units if not u.always and (values := memory.get(keys[u])) is not None}
    needed = _needed(layout, [u for u in layout.units if u not in reused])
    blanked = [u for u in reused if u not in needed]
    fresh = check(apply_edits(data, [e for u in blanked for e in _blanks(data, u)]))
    if any(f.severity == "error" and not f.nest for f in fresh.findings):
        return ordered(check(data) if blanked else fresh)  # perhaps the file cannot be read
    for unit in layout.units:
        if unit not in reused and not unit.always:
            own = _within(fresh, unit)
            if own is not None:
                memory.put(keys[unit], own)
    moved = [shifted(reused[u], u.span.start) for u in blanked]
    findings = [*fresh.findings, *(f for a in moved for f in a.findings)]
    nests = [*fresh.nests, *(n for a in moved for n in a.nests)]
    return ordered(Analysis(tuple(findings), tuple(nests)))


def ordered(found: Analysis) -> Analysis:
    """By place; what is equal once."""
    findings = sorted(dict.fromkeys(found.findings), key=_finding_key)
    return Analysis(tuple(findings), tuple(sorted(found.nests, key=lambda n: (n.body.start, n.name))))


def _finding_key(f: Finding) -> tuple[object, ...]:
    return (f.place.start, f.place.end, f.code, f.message, f.nest)


# --------------------------------------------------------------------------- functions of a document


def _layout(data: bytes, memory: Memory) -> Layout | None:
    """The functions; None where a text cannot be taken apart."""
    if _DATA.search(data) or _NOT_TEXT.search(data):
        return None
    try:
        bare = original(data)
    except Refusal:
        return None
    found = regions(data)
    stream = memory.tokens(bare.data)
    units: list[Unit] = []
    around: list[Token] = []
    k = begin = mark = 0  # the declaration that is being read: its first token, and that in ``around``
    while k < len(stream):
        token = stream[k]
        around.append(token)
        k += 1
        if token.text == b"}":
            return None
        if token.kind == "directive" or token.text == b";":
            if not _balanced(stream[begin:k]):
                return None
            begin, mark = k, len(around)
        elif token.text == b"{":
            close = closing(stream, k - 1)
            if close is None:
                return None  # something is being typed
            name = _function_name(stream, begin, k - 1)
            if name is None:
                around += stream[k : close + 1]
                k = close + 1
            else:
                if not _balanced(stream[begin : k - 1]):
                    return None
                del around[mark:]
                parts = (stream, begin, k - 1, close)
                units.append(_unit(data, bare.in_file, found, parts, name, len(around)))
                around += [t for t in stream[k:close] if _is_for_others(t)]
                k = begin = close + 1
                mark = len(around)
    return Layout(tuple(units), tuple(around), _pointed_to(stream))


def _is_for_others(token: Token) -> bool:
    """Is it a preprocessor line that functions behind it see as well, as ``#define`` inside of one?"""
    return token.kind == "directive" and not _OWN_PRAGMA.match(token.text)


def _function_name(stream: Sequence[Token], begin: int, brace: int) -> str | None:
    """The name of the function whose body starts at a brace, or None if it is something else's."""
    if brace <= begin or stream[brace - 1].text != b")":
        return None
    depth = 0
    for k in range(brace - 1, begin, -1):
        depth += (stream[k].text == b")") - (stream[k].text == b"(")
        if depth == 0:
            before = stream[k - 1]
            named = before.kind == "id" and before.text != b"__attribute__"
            return before.text.decode("utf-8", "replace") if named else None
    return None


def _balanced(stream: Sequence[Token]) -> bool:
    """Are brackets closed?  If not, what follows may belong to what they opened."""
    depth = 0
    for t in stream:
        depth += (t.text in (b"(", b"[")) - (t.text in (b")", b"]")) if t.kind == "punct" else 0
        if depth < 0:
            return False
    return depth == 0


def _unit(
    data: bytes,
    in_file: Callable[[int], int],
    found: Sequence[Region],
    parts: tuple[Sequence[Token], int, int, int],
    name: str,
    after: int,
) -> Unit:
    """``parts``: the tokens, and which of them are the first, the brace, and the brace that closes it."""
    stream, begin, brace, last = parts
    inside = stream[brace + 1 : last]
    start, end = in_file(stream[begin].start), in_file(stream[last].end - 1) + 1
    kernels = [r for r in found if r.kind == "kernel" and r.name.partition("::")[0] == name]
    own = [r for r in kernels if r.span.end <= start and not _between(data, r, kernels, start)]
    own += [r for r in found if start <= r.span.start < end]
    start = min([start, *(r.span.start for r in own)])
    always = any(map(_is_for_others, inside)) or len(own) != len(
        [r for r in found if r.name.partition("::")[0] == name]
    )
    always = always or any(b"#include" in r.text for r in own) or bool(_pointed_to(inside))
    body = Span(in_file(stream[brace].end - 1) + 1, in_file(stream[last].start))
    names = frozenset(t.text for t in stream[begin:last] if t.kind == "id")
    return Unit(name, Span(start, end), body, names, always, after)


def _between(data: bytes, region: Region, kernels: Sequence[Region], start: int) -> bool:
    """Does anything but white space and other kernels stand between a kernel and its function?"""
    at = region.span.end
    for other in sorted(kernels, key=lambda r: r.span.start):
        if other.span.start >= at and not data[at : other.span.start].strip():
            at = other.span.end
    return bool(data[at:start].strip())


def _pointed_to(stream: Sequence[Token]) -> frozenset[bytes]:
    """Names behind a ``&`` that is no operator of two operands: all functions depend on these."""
    out = set()
    for k in range(1, len(stream) - 1):
        if stream[k].text == b"&" and stream[k + 1].kind == "id":
            before = stream[k - 1]
            operand = before.kind in _OPERAND or before.text in (b")", b"]")
            if not operand or before.text in (b"return", b"case"):
                out.add(stream[k + 1].text)
    return frozenset(out)


# --------------------------------------------------------------------------- what depends on what


def _keys(layout: Layout, data: bytes, salt: bytes) -> dict[Unit, bytes]:
    """Per function, a hash of all that its values depend on."""
    outside = hashlib.sha256(salt)
    for t in layout.around:
        outside.update(t.text + b"\0")
    outside.update(repr(sorted(layout.pointed_to)).encode())
    shared = outside.digest()
    texts = {u: hashlib.sha256(data[u.span.start : u.span.end]).digest() for u in layout.units}
    out = {}
    for unit in layout.units:
        own = hashlib.sha256(shared + texts[unit] + str(unit.after).encode())
        for other in _reached(layout, unit.names | layout.everywhere):
            where = f"{other.after} {other.span.start < unit.span.start}"
            own.update(texts[other] + where.encode())
        out[unit] = own.digest()
    return out


def _reached(layout: Layout, names: Collection[bytes]) -> list[Unit]:
    """Functions that are named, and those that they name, in the order of the text."""
    by_name = layout.by_name
    left = by_name.keys() & names
    seen: set[bytes] = set()
    found: list[Unit] = []
    while left:
        name = left.pop()
        seen.add(name)
        for u in by_name[name]:
            found.append(u)
            left |= (by_name.keys() & u.names) - seen
    return sorted(found, key=lambda u: u.span.start)


def _needed(layout: Layout, read: Iterable[Unit]) -> set[Unit]:
    """Functions that must stand there for these to be read."""
    units = set(read)
    names = {n for u in units for n in u.names}
    return units | set(_reached(layout, names | layout.everywhere))


def _blanks(data: bytes, unit: Unit) -> list[Edit]:
    """The body and the generated regions before it as white space of the same length and lines."""
    spans = [unit.body]
    inside = [r for r in regions(data[unit.span.start : unit.body.start]) if r.kind == "kernel"]
    spans += [Span(r.span.start + unit.span.start, r.span.end + unit.span.start) for r in inside]
    return [Edit(s, re.sub(rb"[^\r\n]", b" ", data[s.start : s.end])) for s in spans]


def _within(found: Analysis, unit: Unit) -> Analysis | None:
    """The values of a function, counted from its start; None where one is also about something else."""
    # by place: what the parser calls a function may be something else than what its tokens look like
    nests: list[Nest] = [n for n in found.nests if unit.span.start <= n.head.start < unit.span.end]
    names = {n.name for n in nests}
    findings = [f for f in found.findings if f.nest in names]
    own = Analysis(tuple(findings), tuple(nests))
    inside = all(unit.span.start <= p.start and p.end <= unit.span.end for p in places(own))
    return shifted(own, -unit.span.start) if inside else None
