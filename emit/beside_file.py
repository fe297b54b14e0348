"""What generated files beside a source have in common, for GPUs and for the processor.

    nests of a file  ->  what they declare, once each; the header with their prototypes
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

from emit.frames import template
from mdh_core.diagnostics import refuse
from mdh_core.source import Span

_T = TypeVar("_T")


class Part(Protocol):
    """A nest of the file."""

    @property
    def title(self) -> str: ...
    @property
    def span(self) -> Span: ...


def common(parts: Sequence[Part], found: Sequence[Mapping[str, _T]]) -> dict[str, _T]:
    """What the nests declare, by its name, once each.

    Raises ``Refusal`` MDH417 where one name means different things.
    """
    known: dict[str, _T] = {}
    for part, own in zip(parts, found, strict=True):
        for name, declaration in own.items():
            if known.setdefault(name, declaration) != declaration:
                headline = f"`{name}` of {part.title} is something else in another nest of the file"
                raise refuse("MDH417", headline, part.span, help="give one of them another name")
    return known


def header_text(name: str, prototypes: Sequence[str]) -> str:
    """The header of a file, for C and C++; prototypes without ``;``."""
    written = [p.replace("_Bool", "bool") for p in prototypes]
    bools = any(re.search(r"\bbool\b", p) for p in written)
    return template("beside.h.j2").render(name=name, prototypes=written, bools=bools)
