"""Kernels and guarded calls in marked regions of a source file.

before    #pragma mdh                    after     #pragma mdh
          for (...)                                /* mdh-lift begin f::0 call version=... source=... */
              ...                                  #ifndef MDH_LIFT_OFF
                                                   if (f_mdh_0(...)) { } else
                                                   #endif
                                                   /* mdh-lift end f::0 call sum=... */
                                                   for (...)
                                                       ...

and the kernel, likewise marked, before the enclosing function.  Where a nest is several statements, the
call ends in ``else {`` and a third region, behind them, holds the brace that closes it.  Where arrays stay
on a device while a statement runs (``#pragma mdh data``), two regions stand inside of its braces; they go
with any change of the function's nests, since what is there must suit them all.  A splice only
ever *inserts*: the bytes of the original stand as they were, in their order, so that ``revert`` deletes the
regions and has the original again, whatever its line endings and encoding.

    region ::= lead begin-marker ... end-marker newline
    lead   ::= white space of the same line | newline       (newline: the marker says lead=newline)

``sum`` is a hash of the region's text with LF line endings, so an editor or git may convert those of
the whole file; ``source`` is the hash of the nest's tokens when the kernel was made.
Offsets of a ``SplicePart`` count in the *original* text (``revert(data)``), spliced or not.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from frontend_c.lexer import BOM, tokens
from mdh_core.diagnostics import refuse
from mdh_core.source import Edit, Span, apply_edits
from mdh_lift.version import VERSION

OFF_SWITCH = "MDH_LIFT_OFF"

_MARKER = re.compile(
    rb"^(?P<indent>(?:\xef\xbb\xbf)?[ \t\f\v]*)"
    rb"(?P<comment>/\* mdh-lift (?P<edge>begin|end) (?P<name>\S+) (?P<kind>kernel|call|close|enter|leave)"
    rb"(?P<rest>(?: [a-z]+=\S+)*) \*/)"
    rb"[ \t\f\v]*(?P<newline>\r?\n|\r?\Z)",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class SplicePart:
    """What is to be spliced for one nest.

    name      function::label
    function  offset of the enclosing function's first byte, where the kernel goes
    nest      offset before which the call goes (a pragma of another tool stays with its loop)
    kernel    C text of the kernel, without markers
    call      C expression, nonzero when it did the nest's work; of one line or several
    after     C statements that run after a successful call (final values of iterators)
    condition preprocessor expression that must also hold, such as ``(N) == 1024``
    source    hash of the nest's tokens
    end       offset after a nest of several statements; None where it is one statement
    """

    name: str
    function: int
    nest: int
    kernel: str
    call: str
    after: str = ""
    condition: str = ""
    source: str = ""
    end: int | None = None


@dataclass(frozen=True, slots=True)
class DataPart:
    """What is to be spliced for a data region: statements behind the opening and before the closing brace.

    enter, leave  offsets behind the one and before the other
    condition     under which the nests inside are what was spliced
    """

    name: str
    enter: int
    leave: int
    begin: str
    end: str
    condition: str = ""
    source: str = ""


DATA_KINDS = ("enter", "leave")


def kinds_of_regions(several: bool) -> tuple[str, ...]:
    """The regions of a nest of one or several statements."""
    return ("kernel", "call", "close") if several else ("kernel", "call")


@dataclass(frozen=True, slots=True)
class Region:
    """A generated region as found in a file; ``span`` is what ``revert`` deletes.

    marker   the begin marker, or the marker that has no partner
    text     the bytes of the span
    """

    name: str
    kind: str  # "kernel" | "call" | "close" | "enter" | "leave"
    span: Span
    marker: Span
    state: str  # "fresh" | "edited" | "damaged"
    version: str = ""
    source: str = ""
    reason: str = ""  # of damage
    text: bytes = field(default=b"", repr=False)


# --------------------------------------------------------------------------- reading regions


@dataclass(frozen=True, slots=True)
class _Marker:
    """A marker line ``[start, end)``, line ending included, and its comment ``[at, stop)``."""

    edge: str
    name: str
    kind: str
    attributes: dict[str, str]
    start: int
    at: int
    stop: int
    end: int


def _markers(data: bytes) -> list[_Marker]:
    found = []
    for m in _MARKER.finditer(data):
        attributes = dict(item.split("=", 1) for item in m["rest"].decode("ascii", "replace").split())
        name = m["name"].decode("ascii", "replace")
        start = m.start() + (len(BOM) if m["indent"].startswith(BOM) else 0)
        at, stop = m.end("indent"), m.end("comment")
        found.append(
            _Marker(m["edge"].decode(), name, m["kind"].decode(), attributes, start, at, stop, m.end())
        )
    return found


def regions(data: bytes) -> list[Region]:
    """The generated regions of a file, in order; markers without a partner are damaged regions."""
    found: list[Region] = []
    begin: _Marker | None = None
    for marker in _markers(data):
        if marker.edge == "begin":
            if begin is not None:
                found.append(_damaged(begin, "its end marker is missing"))
            begin = marker
        elif begin is None:
            found.append(_damaged(marker, "its begin marker is missing"))
        elif (begin.name, begin.kind) != (marker.name, marker.kind):
            found += [
                _damaged(begin, "its end marker is missing"),
                _damaged(marker, "its begin marker is missing"),
            ]
            begin = None
        else:
            found.append(_region(data, begin, marker))
            begin = None
    if begin is not None:
        found.append(_damaged(begin, "its end marker is missing"))
    return found


def _damaged(marker: _Marker, reason: str) -> Region:
    at = Span(marker.at, marker.stop)
    return Region(marker.name, marker.kind, at, at, "damaged", reason=reason)


def _region(data: bytes, begin: _Marker, end: _Marker) -> Region:
    start = begin.start
    if begin.attributes.get("lead") == "newline" and start > 0:
        start -= 2 if data[start - 2 : start] == b"\r\n" else 1
    intact = end.attributes.get("sum") == _checksum(data[begin.at : end.at])
    return Region(
        begin.name,
        begin.kind,
        Span(start, end.end),
        Span(begin.at, begin.stop),
        "fresh" if intact else "edited",
        begin.attributes.get("version", ""),
        begin.attributes.get("source", ""),
        text=data[start : end.end],
    )


def _checksum(text: bytes) -> str:
    """Hash of a region from its begin marker up to its end marker."""
    return hashlib.sha256(text.replace(b"\r\n", b"\n")).hexdigest()[:16]


# --------------------------------------------------------------------------- reverting


@dataclass(frozen=True, slots=True)
class Original:
    """A file without its generated regions, and where its bytes stand in the file."""

    data: bytes
    removed: tuple[Span, ...]  # in the file, ascending

    def in_file(self, offset: int) -> int:
        """Offset in the file of an offset in the original."""
        for span in self.removed:
            if span.start > offset:
                break
            offset += span.end - span.start
        return offset

    def in_original(self, offset: int) -> int:
        """Offset in the original of one in the file; of one inside a region, where the region stands."""
        gone = sum(min(span.end, offset) - span.start for span in self.removed if span.start < offset)
        return offset - gone


def original(data: bytes, names: Collection[str] | None = None) -> Original:
    """The file without the regions of the named nests (of all nests for None).

    Raises ``Refusal`` MDH509 where markers do not match.
    """
    found = regions(data)
    marked = None if names is None else {region_name(name) for name in names}
    for region in found:
        if region.state == "damaged":
            raise refuse(
                "MDH509",
                f"generated region `{region.name}` is damaged: {region.reason}",
                region.marker,
                help="restore the file from version control, or delete the marked lines by hand",
            )
    spans = tuple(r.span for r in found if marked is None or r.name in marked or _suits(r, marked))
    return Original(apply_edits(data, [Edit(span, b"") for span in spans]), spans)


def revert(data: bytes, names: Collection[str] | None = None) -> bytes:
    """The file without the generated regions of the named nests (of all nests for None)."""
    return original(data, names).data


# --------------------------------------------------------------------------- splicing


def _suits(region: Region, names: Collection[str]) -> bool:
    """Is it one of a data region in a function of these nests?"""
    functions = {name.partition("::")[0] for name in names}
    return region.kind in DATA_KINDS and region.name.partition("::")[0] in functions


def splice(
    data: bytes, parts: Sequence[SplicePart], force: bool = False, data_parts: Sequence[DataPart] = ()
) -> bytes:
    """The file with the parts in place; regions of other nests stay as they are.

    Raises ``Refusal`` MDH502 where a region of these nests was edited and ``force`` is not given,
    MDH509 where markers are damaged.
    """
    names = {region_name(part.name) for part in parts}
    found = regions(data)
    names |= {r.name for r in found if _suits(r, names)}
    for region in found:
        if region.state == "edited" and region.name in names and not force:
            raise refuse(
                "MDH502",
                f"generated {region.kind} of `{region.name}` was edited",
                region.marker,
                help="`--force` overwrites the edit, `mdh-lift revert -w` drops it",
            )
    bare = original(data)
    insertions = _kept(found, names, bare) + [i for part in parts for i in _insertions(bare.data, part)]
    insertions += [i for part in data_parts for i in _insertions_of_data(bare.data, part)]
    calls = {i.name: i.at for i in insertions if i.kind == "call"}
    insertions.sort(key=lambda i: (i.at, calls.get(i.name, -1)))
    spliced = apply_edits(bare.data, [Edit(Span(i.at, i.at), i.text) for i in insertions])
    assert revert(spliced) == bare.data, "a splice must be an insertion"
    _check_tokens(bare.data, spliced)
    return spliced


def _check_tokens(before: bytes, after: bytes) -> None:
    """Outside the regions the text must read as before: no insertion in a comment, string or directive."""
    bare = original(after)
    expected = [(t.kind, bare.in_file(t.start), t.text) for t in tokens(before)]
    inside = iter(bare.removed)
    region = next(inside, None)
    found = []
    for t in tokens(after):
        while region is not None and region.end <= t.start:
            region = next(inside, None)
        if region is None or t.end <= region.start:
            found.append((t.kind, t.start, t.text))
    if found != expected:
        raise refuse("MDH005", "the generated code would change the meaning of the text around it")


@dataclass(frozen=True, slots=True)
class _Insertion:
    name: str
    kind: str
    at: int  # in the original
    text: bytes


def _kept(found: Iterable[Region], names: Collection[str], bare: Original) -> list[_Insertion]:
    kept, removed = [], 0
    for region in found:
        if region.name not in names:
            kept.append(_Insertion(region.name, region.kind, region.span.start - removed, region.text))
        removed += region.span.end - region.span.start
    return kept


def _insertions(data: bytes, part: SplicePart) -> list[_Insertion]:
    name = region_name(part.name)
    guard = _guard(part.condition)
    after = f" {part.after.strip()} " if part.after.strip() else " "
    brace = "" if part.end is None else " {"
    found = [
        _insertion(data, name, kind, at, body, part.source)
        for kind, at, body in (
            ("kernel", part.function, [guard, *part.kernel.strip("\n").splitlines(), "#endif"]),
            ("call", part.nest, [guard, *f"if ({part.call}) {{{after}}} else{brace}".splitlines(), "#endif"]),
        )
    ]
    if part.end is not None:
        at, indent = _line_after(data, part.end), _indent(data, part.nest)
        found.append(_insertion(data, name, "close", at, [guard, "}", "#endif"], part.source, indent))
    return found


def _guard(condition: str) -> str:
    return f"#if !defined({OFF_SWITCH}) && ({condition})" if condition else f"#ifndef {OFF_SWITCH}"


def _insertions_of_data(data: bytes, part: DataPart) -> list[_Insertion]:
    name, guard = region_name(part.name), _guard(part.condition)
    indent = _indent(data, part.leave) + b"    "
    at = _line_after(data, part.enter)
    enter = _insertion(data, name, "enter", at, [guard, part.begin, "#endif"], part.source, indent)
    leave = _insertion(data, name, "leave", part.leave, [guard, part.end, "#endif"], part.source)
    return [enter, leave]


def _line_after(data: bytes, at: int) -> int:
    """The line after an offset; the offset itself where more stands on its line."""
    end = data.find(b"\n", at) + 1
    return end if end and not data[at:end].strip(b" \t\f\v\r\n") else at


def _indent(data: bytes, at: int) -> bytes:
    """The white space at the start of the line of an offset."""
    line = data[data.rfind(b"\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(b" \t\f\v"))]


def _insertion(
    data: bytes, name: str, kind: str, at: int, body: list[str], source: str, own_indent: bytes = b""
) -> _Insertion:
    """A region before the line on which ``at`` stands, or, inside a line, on lines of its own.

    ``own_indent``: the indentation at the start of a line, where nothing stands before ``at``.
    """
    eol = _line_ending(data)
    start = data.rfind(b"\n", 0, at) + 1
    if start == 0 and data.startswith(BOM):
        start = len(BOM)
    indent = data[start:at] or own_indent
    if indent.strip(b" \t\f\v"):
        start, indent, lead, attribute = at, b"", eol, " lead=newline"
        if data[at - 1 : at] == b"\r":  # revert takes CR LF for one line ending
            lead = b"\r\n"
    else:
        lead, attribute = b"", ""
    opening = f"/* mdh-lift begin {name} {kind} version={VERSION} source={source or '-'}{attribute} */"
    lines = [opening, *body]
    text = eol.join(
        (b"" if line.startswith("#") or not line or (kind == "kernel" and number) else indent)
        + line.encode("ascii")
        for number, line in enumerate(lines)
    )
    text += eol + indent
    region = text[len(indent) :]  # from the begin marker up to the end marker
    closing = f"/* mdh-lift end {name} {kind} sum={_checksum(region)} */".encode("ascii")
    return _Insertion(name, kind, start, lead + text + closing + eol)


def _line_ending(data: bytes) -> bytes:
    """The file's prevailing line ending."""
    crlf = data.count(b"\r\n")
    return b"\r\n" if 2 * crlf > data.count(b"\n") else b"\n"


def region_name(name: str) -> str:
    """A nest's name as it stands in a marker: ASCII, no blanks, nothing that could end a comment."""
    return re.sub(r"[^\w.:$-]", lambda m: "".join(f"%{b:02x}" for b in m[0].encode()), name, flags=re.ASCII)
