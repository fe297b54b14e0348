"""How often a loop runs whose end is where two sides of its condition meet.

    for (i = 0, j = n - 1; i < j; i++, j--)  ->  i from 0 to n / 2
    for (i = 1; 3 * i <= n; i++)             ->  i from 1 to 1 + n / 3
    while (lo < hi) { ...; lo++; hi--; }     ->  lo from lo to lo + (hi - lo + 1) / 2

The condition is ``high - low >= slack``, and each iteration takes ``rate`` from the difference
(``loops.Meeting``).  If it is ``d`` before the loop, the body runs ``(d - slack + rate) / rate`` times, not
at all where that is negative; C's division rounds those to 0 or to something negative, too.  What is known
of the quotient is a fact of the nest as for ``n / 2`` (``NestReader.part``).

Signed sides are taken not to overflow.  Unsigned ones must not wrap before they meet: they begin at values
that are not negative (proved, or tested by the generated code), ``low`` does not fall, ``high`` falls by
1 per iteration, from 1 at least.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from frontend_c.c_types import Value
from frontend_c.expressions import constant, times, total
from frontend_c.loops import Head, Meeting
from frontend_c.parsing import Node, c_ast, walk_nodes
from frontend_c.tracking import Range
from mdh_core.diagnostics import refuse
from mdh_core.expr import (
    INT64,
    Binary,
    Cast,
    Const,
    Expr,
    ScalarType,
    Type,
    Var,
    affine_expr,
    as_affine,
    walk,
)

if TYPE_CHECKING:
    from frontend_c.nest import NestReader


def meeting_range(reader: NestReader, h: Head, m: Meeting, lower: Expr, node: Node) -> Range:
    """The bounds of a loop whose iterator begins at ``lower``.

    Raises ``Refusal`` (MDH202) where the number of iterations is not known before the loop.
    """
    return met(reader, h, m, lower, _sides(reader, h, m, lower), node)


def met(reader: NestReader, h: Head, m: Meeting, lower: Expr, sides: tuple[Expr, Expr], node: Node) -> Range:
    """The bounds from what the sides are before the first iteration."""
    low, high = (reader.limit(e, node.cond) for e in sides)
    a, b = as_affine(low), as_affine(high)
    if a is None or b is None:
        raise refuse("MDH202", "bound is not affine", reader.span(node.cond))
    whole = b - a - m.slack + m.rate
    types = {n.name: n.type for e in (low, high) for n in walk(e) if isinstance(n, Var)}
    trips = affine_expr(whole, {name: t for name, t in types.items() if isinstance(t, ScalarType)})
    if whole.is_constant:
        trips = Const(max(whole.const // m.rate, 0), INT64)
    elif m.rate > 1:
        size = trips.a if isinstance(trips, Cast) else trips  # of n and n / 2 of other loops one parameter
        assert isinstance(size.type, ScalarType)
        part = reader.part(Binary("/", size, Const(m.rate, size.type), size.type))
        if part is None:
            raise refuse(
                "MDH202", f"how often the loop runs is a share (1 / {m.rate}) of what an outer loop changes",
                reader.span(node.cond), help="let it run to a bound that stays, under a condition",
            )  # fmt: skip
        trips = part
    return Range(lower, total(lower, times(Const(h.step, INT64), trips)), h.step)


def check_sides(
    reader: NestReader, h: Head, m: Meeting, iterator: ScalarType, lower: Expr, node: Node
) -> None:
    """MDH210 where a side may wrap before the two meet."""
    low, high = _sides(reader, h, m, lower)
    types = [iterator, *(n.type for e in (low, high) for n in walk(e))]
    if any(isinstance(t, ScalarType) and t.is_integer and not t.is_signed for t in types):
        slow = m.rising >= 0 and (m.falling == 0 or (m.falling == -1 and m.slack == 1))
        fine = slow and all(reader.never_negative(e) for e in (low, high))
    else:
        fine = True
    if not fine or iterator.bits < 32:
        raise refuse(
            "MDH210", "a side of the condition may wrap before the two meet", reader.span(node.cond),
            help="use signed integers of 32 bits or more for what the loop counts",
        )  # fmt: skip


def _sides(reader: NestReader, h: Head, m: Meeting, lower: Expr) -> tuple[Expr, Expr]:
    """Both sides of the condition before the first iteration."""
    for name in m.moves:
        b = reader.visible(name)
        side = m.high if any(n.name == name for n in walk_nodes(m.high) if isinstance(n, c_ast.ID)) else m.low
        if name != h.iterator and (b is None or not reader.tracker.follows(b)):
            advice = f"let the loop run to a bound that stays, and compute `{name}` from `{h.iterator}`"
            if b is not None and isinstance(b.ctype, Value) and _is_narrow(b.ctype.type):
                advice = f"declare `{name}` as an `int` or longer: narrower ones may wrap"
            raise refuse(
                "MDH202", f"bound depends on `{name}`, which the loop changes", reader.span(side), help=advice
            )
    reader.scopes.append({h.iterator: constant(h.iterator, lower)})
    try:
        return reader.convert(m.low), reader.convert(m.high)
    finally:
        reader.scopes.pop()


def _is_narrow(t: Type) -> bool:
    return isinstance(t, ScalarType) and t.is_integer and t.bits < 32
