"""Open documents: their text as the editor has it, and what was found out about it.

    document.change([Change((0, 4), (0, 5), "x")], version=7, encoding="utf-16")

Changes are applied in the order in which they come, at positions as ``positions.py`` understands them.
"""

from __future__ import annotations

import asyncio
import os
import urllib.parse
from collections.abc import Iterable
from dataclasses import dataclass, field

from mdh_lift.lsp.positions import Position, Text
from mdh_lift.lsp.values import Analysis, Nest, Place

LANGUAGES = ("c", "python")
_SUFFIXES = (".c", ".h", ".py")


@dataclass(frozen=True, slots=True)
class Change:
    """A range and its new text; ``start`` None: the whole text."""

    start: Position | None
    end: Position | None
    text: str


@dataclass
class Document:
    uri: str
    path: str
    version: int
    text: Text
    analysis: Analysis = field(default_factory=Analysis)
    analysed: int | None = None  # the version that ``analysis`` is about
    current: asyncio.Event = field(default_factory=asyncio.Event)  # set while it is about the text as it is
    task: asyncio.Task[None] | None = None
    seconds: float = 0.0  # that the last analysis took
    stopped: str = ""  # why the text as it is has none

    def change(self, changes: Iterable[Change], version: int, encoding: str) -> None:
        for c in changes:
            if c.start is None or c.end is None:
                self.text = Text(c.text)
            else:
                self.text = self.text.replaced(c.start, c.end, c.text, encoding)
        self.version = version
        self.current.clear()

    def nest_at(self, offset: int) -> Nest | None:
        """The innermost nest whose directive or statement holds an offset."""
        around = [n for n in self.analysis.nests if holds(n.head, offset) or holds(n.body, offset)]
        return min(around, key=lambda n: n.body.end - n.body.start, default=None)

    def nest(self, name: str) -> Nest | None:
        return next((n for n in self.analysis.nests if n.name == name), None)


def holds(place: Place, offset: int) -> bool:
    """Is an offset in a place or at its end?"""
    return place.start <= offset <= place.end


def path_of(uri: str) -> str | None:
    """The path of a ``file:`` URI; names may hold any bytes."""
    parts = urllib.parse.urlsplit(uri)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        return None
    return os.fsdecode(urllib.parse.unquote_to_bytes(parts.path)) or None


def is_ours(path: str, language: str) -> bool:
    """Is it a document that may hold directives?"""
    return language in LANGUAGES or (not language and path.endswith(_SUFFIXES))


def edits_between(old: str, new: str) -> list[tuple[int, int, str]]:
    """Changes that make one text of the other: [start, end) in characters, whole lines, in order."""
    import difflib

    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    starts = [0]
    for line in before:
        starts.append(starts[-1] + len(line))
    head = 0
    while head < min(len(before), len(after)) and before[head] == after[head]:
        head += 1
    tail = 0
    while tail < min(len(before), len(after)) - head and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    inner_old, inner_new = before[head : len(before) - tail], after[head : len(after) - tail]
    matcher = difflib.SequenceMatcher(None, inner_old, inner_new, autojunk=False)
    return [
        (starts[head + a], starts[head + b], "".join(inner_new[c:d]))
        for kind, a, b, c, d in matcher.get_opcodes()
        if kind != "equal"
    ]
