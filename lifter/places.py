"""What a nest on symbols is made of: places, what they hold, reductions.  See ``symbolic``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lifter.normalise import Axis, in_source
from lifter.reductions import number
from mdh_core.combine import CombineFunction
from mdh_core.diagnostics import Refusal, Related, refuse
from mdh_core.expr import (
    Affine,
    Expr,
    MakeRecord,
    RecordType,
    Type,
    Var,
    walk,
)
from mdh_core.source import NO_SPAN, Span

Dims = tuple[tuple[str, str], ...]  # (axis, "cc" | "pw" | "ps"), outermost first


@dataclass(frozen=True, slots=True)
class Place:
    """A scalar variable (``index`` None) or an array cell, or one field of either."""

    name: str
    index: tuple[Affine, ...] | None = None
    field: str = ""

    def uses(self, axis: str) -> bool:
        return self.index is not None and any(axis in a.names for a in self.index)


@dataclass(frozen=True, slots=True)
class Entry:
    """What a place holds: a value over ``dims``, the closed axes that the place ranges over.

    last       only the value of the last iteration of ``dims`` remains (a scalar)
    total      for a scan's running variable: its final value as a reduction of its own
    touched    the condition under which the source writes the cell; None: always
    """

    value: Expr
    dims: Dims = ()
    last: bool = False
    total: Expr | None = None
    touched: Expr | None = None
    span: Span = field(default=NO_SPAN, compare=False)


@dataclass(frozen=True, slots=True)
class Reduction:
    """Components that are combined by one function; ``Result(n)`` refers to one of them."""

    function: CombineFunction
    elements: tuple[Expr, ...]
    initials: tuple[Expr | None, ...]
    dims: Dims
    span: Span = field(default=NO_SPAN, compare=False)
    arg_values: tuple[tuple[Expr, Expr], ...] = ()  # of an arg-operator: old value -> new value


Env = dict[Place, Entry]


def is_poison(e: Expr) -> str | None:
    """The name of a variable that has no usable value in ``e``."""
    for n in walk(e):
        if isinstance(n, Var) and n.name[0] in "!?":
            return n.name
    return None


def output_twice(name: str, span: Span, other: Span) -> Refusal:
    return refuse(
        "MDH208",
        f"a cell of `{name}` may be written more than once",
        span,
        label="may be the same cell",
        related=related(other, "also written here"),
        help="write each cell once",
    )


def related(span: Span, label: str) -> tuple[Related, ...]:
    return (Related(span, label),) if span else ()


def shown(p: Place, axes: Mapping[str, Axis]) -> str:
    """The place as in the source: ``a[i - 1].re``."""
    index = "" if p.index is None else "".join(f"[{in_source(a, axes)}]" for a in p.index)
    return p.name + index + (f".{p.field}" if p.field else "")


def fits(e: Expr, limit: int) -> bool:
    """Has the expression at most ``limit`` nodes?"""
    return all(k < limit for k, _ in enumerate(walk(e)))


def is_unset(e: Expr) -> bool:
    return isinstance(e, Var) and e.name.startswith("?")


def zero(t: Type) -> Expr:
    if isinstance(t, RecordType):
        return MakeRecord(tuple(number(0, u) for _, u in t.fields), t)
    return number(0, t)
