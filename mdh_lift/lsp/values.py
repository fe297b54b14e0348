"""What an analysis says about a document, as plain values; JSON between the server and its child.

All places are byte offsets into the document in UTF-8.  ``shifted`` moves values along with the text that
they are about.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec


class Value(msgspec.Struct, frozen=True, omit_defaults=True):
    """A value of which each field is a place, a text, a number, or values again."""


class Place(Value, frozen=True):
    start: int
    end: int


class Related(Value, frozen=True):
    place: Place
    label: str


class Edit(Value, frozen=True):
    place: Place
    new: str


class Fix(Value, frozen=True):
    """A change that settles a finding; ``sure``: it cannot change what the program does."""

    title: str
    edits: tuple[Edit, ...]
    sure: bool = True


class Finding(Value, frozen=True):
    code: str
    severity: str  # "error" | "warning" | "info"
    message: str
    place: Place
    related: tuple[Related, ...] = ()
    label: str = ""
    notes: tuple[str, ...] = ()
    help: str = ""
    fixes: tuple[Fix, ...] = ()
    nest: str = ""


class Loop(Value, frozen=True):
    """A loop head and what became of the loop: ``++``, ``+``, ``in order``."""

    place: Place
    hint: str
    tooltip: str = ""


class Tuned(Value, frozen=True):
    """One entry of the lock file: a ratio and its interval, of original time to new time."""

    size_class: str
    machine: str
    median: float = 0.0
    low: float = 0.0
    high: float = 0.0
    stale: bool = False  # the nest is not what was tuned


class Region(Value, frozen=True):
    kind: str
    place: Place


class Nest(Value, frozen=True):
    """``head``: where a lens stands and a hover answers; ``body``: the statement."""

    name: str  # function::label
    status: str  # "lifted" | "partial" | "refused"
    head: Place
    body: Place
    hover: str = ""  # Markdown
    summary: str = ""  # what became of it, in a few words
    loops: tuple[Loop, ...] = ()
    splice: str = ""  # "" (nothing spliced) | "fresh" | "stale" | "edited"
    regions: tuple[Region, ...] = ()
    tuned: tuple[Tuned, ...] = ()
    replaceable: bool = True
    changes: tuple[Fix, ...] = ()  # that settle no finding: clauses that may be written out


class Analysis(Value, frozen=True):
    findings: tuple[Finding, ...] = ()
    nests: tuple[Nest, ...] = ()


class Request(msgspec.Struct, frozen=True):
    """``task``: "analyse", or what to compute: "splice", "revert", "annotate" (then ``nest`` is a line).

    ``others``: how often files changed that the document may include.
    """

    number: int
    task: str
    path: str
    text: bytes
    trusted: bool = False
    nest: str = ""
    others: int = 0


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """``problem``: why there is no result, for the user; ``trace``: for the log, ours."""

    number: int
    analysis: Analysis | None = None
    text: bytes | None = None
    problem: str = ""
    trace: str = ""


V = TypeVar("V", bound=Value)


def shifted(value: V, by: int) -> V:
    """The value with all places moved."""
    if isinstance(value, Place):
        return type(value)(value.start + by, value.end + by)
    changed: dict[str, object] = {}
    for name in value.__struct_fields__:
        part = getattr(value, name)
        if isinstance(part, Value):
            changed[name] = shifted(part, by)
        elif isinstance(part, tuple) and part and isinstance(part[0], Value):
            changed[name] = tuple(shifted(p, by) for p in part)
    return msgspec.structs.replace(value, **changed) if changed else value


def places(value: Value) -> list[Place]:
    """All places in a value."""
    if isinstance(value, Place):
        return [value]
    found: list[Place] = []
    for name in value.__struct_fields__:
        part = getattr(value, name)
        for one in part if isinstance(part, tuple) else (part,):
            if isinstance(one, Value):
                found += places(one)
    return found
