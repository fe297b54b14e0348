"""Counted loops: their bounds, where C's comparison does what they say, and variables that walk.

    for (i = n; i-- > 0;)            ->  i from n - 1 to 0
    for (p = x; p < end; p++)        ->  v from 0 to end - x, in which p is x + v
    for (b = lo; b < hi; b += s)     ->  v from 0 to (hi - lo + s - 1) / s, in which b is lo + s*v

Given the ``Head`` of a loop and the reader of its nest; ``meeting.py`` has the bounds of heads with a
``meeting``.  What is refused is refused with MDH202 (the bounds are not such as the lifter knows) or
MDH210 (the loop may do something else in C: wrap, or not end).
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING

from frontend_c import operators
from frontend_c.buffers import is_object
from frontend_c.c_types import Pointer, Value, common
from frontend_c.expressions import Binding, constant, times, total, wide
from frontend_c.loops import HELP, Head, mentions
from frontend_c.meeting import check_sides, meeting_range, met
from frontend_c.parsing import Node, c_ast, walk_nodes
from frontend_c.statements import Out, assigned_names
from frontend_c.tracking import At, Known, Range, moved
from lifter.loop_nest import Loop, Stride
from mdh_core.diagnostics import Refusal, refuse
from mdh_core.expr import INT32, INT64, Binary, Const, Expr, ScalarType, Var, as_affine, walk

if TYPE_CHECKING:
    from frontend_c.nest import NestReader


def begun(reader: NestReader, h: Head, node: Node) -> tuple[Head, list[Out]]:
    """What a loop initialises, in order; the iterator itself is left to the loop, where that may be later.

    ``for (i = j, j = 0; ...)`` and ``for (int i = 0, j = i + n; ...)`` need its first value in between.
    """
    before, behind = h.before[: h.begun], h.before[h.begun :]
    out = [s for part in before for s in reader.statement(part)]
    if h.declared is not None and isinstance(reader.types.resolve(h.declared.type), Pointer):
        out += reader.statement(h.declared)
    elif h.lower is not None and _in_between(h.iterator, h.lower, behind):
        name = c_ast.ID(h.iterator, node.coord)
        if h.declared is None and isinstance(reader.lookup(h.iterator, name).ctype, Pointer):
            out += reader.statement(c_ast.Assignment("=", name, h.lower, node.coord))
            h = replace(h, lower=None)
        else:
            ctype, _ = reader.iterator_type(h.iterator, h.declared, node)
            assert isinstance(ctype.type, ScalarType)
            first = operators.cast(reader.convert(h.lower), ctype.type, reader.span(node))
            name = c_ast.ID(f"first {h.iterator}", node.coord)  # no identifier
            reader.scopes[-1][name.name] = constant(name.name, first)
            reader.scopes.append({h.iterator: constant(h.iterator, first)})
            out += [s for part in behind for s in reader.statement(part)]
            reader.scopes[-2].update(
                (n, b) for n, b in reader.scopes.pop().items() if n != h.iterator
            )  # what they declare
            declared = copy(h.declared)
            if declared is not None:
                declared.init = name
            return replace(h, lower=name, declared=declared), out
    return h, [*out, *(s for part in behind for s in reader.statement(part))]


def _in_between(iterator: str, lower: Node, behind: list[Node]) -> bool:
    """Do these parts use the iterator, or change what its first value is computed from?"""
    changed = {name for part in behind for name in assigned_names(part)}
    return any(mentions(part, iterator) for part in behind) or any(mentions(lower, n) for n in changed)


def after(reader: NestReader, h: Head) -> list[Out]:
    """What the step does beside moving the iterator, which it sees where that has been moved to."""
    out: list[Out] = []
    for part, done in h.after:
        b = reader.visible(h.iterator)
        if not done or b is None or not mentions(part, h.iterator):
            out += reader.guarded(part)
        elif reader.tracker.follows(b):
            known = reader.tracker.value(b, part)
            reader.tracker.values[b] = moved(known, Const(done, INT64))
            out += reader.guarded(part)
            reader.tracker.values[b] = known
        else:
            value = operators.plus(reader.convert(c_ast.ID(h.iterator, part.coord)), done)
            reader.scopes.append({h.iterator: constant(h.iterator, value)})
            out += reader.guarded(part)
            reader.scopes.pop()
    return out


def bounds(reader: NestReader, h: Head, node: Node) -> Range:
    """The bounds of a loop over integers, without a look at how C compares them."""
    lower = _first(reader, h, node) if h.lower is None else reader.bound(h.lower)
    if h.meeting is not None:
        return meeting_range(reader, h, h.meeting, lower, node)
    upper: Expr = Const(0, INT32) if h.bound is None else reader.bound(h.bound)
    change = {"<=": 1, ">=": -1}.get(h.op, 0) - h.offset + h.late
    if h.ahead:
        lower = operators.plus(wide(lower), h.ahead)
    if change:
        upper = operators.plus(upper if change > 0 else wide(upper), change)
    return Range(lower, upper, h.step)


def _first(reader: NestReader, h: Head, node: Node) -> Expr:
    """The value that the iterator has before a loop that does not set it."""
    own = reader.visible(h.iterator)
    if own is not None and isinstance(own.ctype, Value):
        left = own.stale and reader.tracker.values.get(own) is not None
        value = reader.tracker.value(own, node) if left or reader.tracker.follows(own) else None
        if value is not None and not isinstance(value, At):
            return reader.extents.hoist(value)
    raise refuse(
        "MDH210", f"loop does not set its iterator `{h.iterator}`", reader.context.head(node), help=HELP
    )


def checked_range(reader: NestReader, h: Head, ctype: Value, node: Node) -> Range:
    """The bounds, where the loop does in C what they say: no wrapping, no endless loop."""
    r = bounds(reader, h, node)
    t = ctype.type
    assert isinstance(t, ScalarType)
    if h.meeting is not None:
        check_sides(reader, h, h.meeting, t, r.lower, node)
        _runs_once(reader, h, r, node)
        return r
    place = h.bound if h.bound is not None else node.cond
    limit = Const(0, INT32) if h.bound is None else reader.convert(h.bound)
    assert isinstance(limit.type, ScalarType)
    compared = common(t, limit.type)
    first = _first(reader, h, node) if h.lower is None else reader.convert(h.lower)
    for e, new, where in ((limit, compared, place), (first, t, node)):
        assert isinstance(e.type, ScalarType)
        if new.is_signed and e.type.bits < new.bits and _wraps(e) and not reader.never_negative(e):
            raise refuse(
                "MDH210", "a bound that may be negative is computed as an unsigned number",
                reader.span(where) if where is place else reader.context.head(node),
                help="use signed integers for the iterator and its bounds",
            )  # fmt: skip
    if h.op == ">=" and not compared.is_signed:
        least = -h.step if not h.late else 1
        if not isinstance(limit, Const) or int(limit.value) < least or h.offset:
            raise refuse(
                "MDH210", "an unsigned iterator never gets below its bound", reader.span(node.cond),
                help="count upwards, or use a signed iterator",
            )  # fmt: skip
    if not compared.is_signed:
        for e, signed, where in ((limit, limit.type.is_signed, place), (first, t.is_signed, node)):
            if (signed or _wraps(e)) and not reader.never_negative(e):
                raise refuse(
                    "MDH210", "a bound that may be negative is compared as an unsigned number",
                    reader.span(where) if where is place else reader.context.head(node),
                    help="use signed integers for the iterator and its bounds",
                )  # fmt: skip
    if h.op == "!=" and (not compared.is_signed or t.bits < 32) and not reader.never_negative(r.span):
        raise refuse(
            "MDH210", "`!=` may never hold: it is not known that the loop runs towards its bound",
            reader.span(node.cond), help="use `<` or `>`",
        )  # fmt: skip
    _runs_once(reader, h, r, node)
    return r


def _runs_once(reader: NestReader, h: Head, r: Range, node: Node) -> None:
    if h.once and not reader.never_negative(total(r.span, Const(-1, INT64))):
        raise refuse(
            "MDH210", "`do` loop that may run once although its condition never holds",
            reader.context.head(node), help="use `for` or `while`",
        )  # fmt: skip


def over_memory(reader: NestReader, h: Head, own: Binding, node: Node) -> Loop:
    """``for (p = x; p < end; p++)``: a loop over the elements that a pointer walks."""
    if not reader.tracker.follows(own):
        raise reader.tracker.given_up.get(own.source) or reader.moving(own, node)
    start = reader.tracker.value(own, node) if h.lower is None or h.declared else reader.pointer(h.lower)
    if not isinstance(start, At):
        raise _no_end(reader, node)
    if h.meeting is not None:
        if h.lower is not None and h.declared is None:
            reader.tracker.set(own, start, node)
        for side in (h.meeting.low, h.meeting.high):
            at = reader.pointer(side)
            if at is not None and at.binding is not start.binding:
                names = f"`{start.binding.source}` and `{at.binding.source}`"
                raise refuse(
                    "MDH210", f"{names} point into one array, which the nest does not show",
                    reader.span(node.cond),
                    help=f"give both their values in the head: `for ({h.iterator} = x, ...`",
                )  # fmt: skip
        low, high = (_element(reader, e, start, node) for e in (h.meeting.low, h.meeting.high))
        lower = reader.extents.hoist(start.index[-1])
        r = met(reader, h, h.meeting, lower, (low, high), node)
    else:
        last = _element(reader, h.bound, start, node)
        change = {"<=": 1, ">=": -1}.get(h.op, 0) - h.offset + h.late
        lower = reader.extents.hoist(total(start.index[-1], Const(h.ahead, INT64)))
        r = Range(lower, reader.extents.hoist(total(last, Const(change, INT64))), h.step)
    _runs_once(reader, h, r, node)
    around, target = start.index[:-1], start.target
    return _walked(reader, h, own, r, lambda v: At(start.binding, (*around, v), target), node)


def _element(reader: NestReader, pointer: Node | None, start: At, node: Node) -> Expr:
    """Which element a pointer is at, counted as those of ``start``."""
    at = None if pointer is None else reader.pointer(pointer)
    if at is not None and start.binding is at.binding and start.index[:-1] == at.index[:-1]:
        return at.index[-1]
    if at is None or not len(start.index) == len(at.index) == 1 or not _fixed(start) or not _fixed(at):
        raise _no_end(reader, node)
    names = f"({at.binding.source}) - ({start.binding.source})"
    return total(at.index[-1], reader.extents.variable(INT64, names, "ptrdiff_t"))


def _no_end(reader: NestReader, node: Node) -> Refusal:
    return refuse("MDH210", "loop over a pointer without a known end", reader.span(node.cond))


def _walked(
    reader: NestReader, h: Head, own: Binding, r: Range, at: Callable[[Expr], Known], node: Node
) -> Loop:
    """A loop over ``r`` in which a variable has the value ``at(iterator)``, and behind it one more."""
    outer_depth = reader.tracker.depth.get(own, 0)
    reader.tracker.depth[own] = reader.tracker.maybe
    it = Binding(own.source, "iterator", Value(INT64, "long"), reader.names.unique(own.source))
    reader.tracker.values[own] = at(Var(it.name, INT64))
    loop, leave = reader.body(node, h, it, r, False, own)
    leave()

    def final() -> Known:
        value = reader.tracker.final(own, r, node)()
        assert not isinstance(value, At)
        return at(value)

    reader.tracker.depth[own] = outer_depth
    reader.tracker.values[own] = final
    reader.tracker.changed[own] = True
    return loop


def strided(reader: NestReader, h: Head, node: Node) -> list[Out]:
    """``for (b = lo; b < hi; b += s)``: a loop over ``t``, in which ``b`` is ``lo + s*t``.

    It runs ``(hi - lo + s - 1) / s`` times.  Generated code tests that a variable ``s`` is positive.
    """
    out: list[Out] = []
    if h.declared is not None:
        out += reader.statement(h.declared)
    elif h.lower is not None:
        name = c_ast.ID(h.iterator, node.coord)
        out += reader.statement(c_ast.Assignment("=", name, h.lower, node.coord))
    own = reader.visible(h.iterator)
    by = Const(abs(h.step), INT64) if h.stride is None else reader.bound(h.stride)
    step = as_affine(by) if reader.invariant(by) else None
    if own is None or not reader.tracker.follows(own) or step is None:
        raise refuse(
            "MDH210", "step is not constant", reader.span(h.stride or node.cond),
            help="count with integers of 32 bits or more, by a step that the nest does not change",
        )  # fmt: skip
    assert isinstance(own.ctype, Value)
    r = checked_range(reader, replace(h, lower=None, stride=None), own.ctype, node)
    if h.stride is not None:
        reader.facts.append(step - 1)
        limit = Const(0, INT32) if h.bound is None else reader.convert(h.bound)
        assert isinstance(own.ctype.type, ScalarType) and isinstance(limit.type, ScalarType)
        if h.step < 0 and not common(own.ctype.type, limit.type).is_signed:
            raise refuse(
                "MDH210", "an unsigned iterator may get below its bound", reader.span(node.cond),
                help="count upwards, or use a signed iterator",
            )  # fmt: skip
    trips = Binary("/", total(r.span, total(by, Const(-1, INT64))), by, INT64)
    if not reader.invariant(trips):
        raise refuse(
            "MDH202", "how often the loop runs is a quotient of what an outer loop changes",
            reader.span(node.cond), help="let it run to a bound that stays, under a condition",
        )  # fmt: skip
    first, amount = r.lower, times(Const(1 if h.step > 0 else -1, INT64), by)
    counted = Range(Const(0, INT64), reader.extents.hoist(trips), 1)
    loop = _walked(reader, h, own, counted, lambda v: total(first, times(amount, v)), node)
    return [*out, replace(loop, stride=stride(reader, h, r, by, node))]


def stride(reader: NestReader, h: Head, r: Range, by: Expr, node: Node) -> Stride | None:
    """What a loop counts by other steps than 1, where other loops use it: those may be over its tiles."""
    inner = any(isinstance(n, c_ast.For) for n in walk_nodes(node.stmt))
    if h.step < 0 or not inner or not mentions(node.stmt, h.iterator):
        return None
    end: Expr | None = None
    if reader.invariant(r.lower) and reader.invariant(r.span):
        trips = reader.extents.hoist(Binary("/", total(r.span, total(by, Const(-1, INT64))), by, INT64))
        end = reader.extents.hoist(total(r.lower, times(by, trips)))
    return Stride(r.lower, by, r.upper, end)


def _fixed(at: At) -> bool:
    """Is the start of the buffer a pointer that can be named before the nest?"""
    return isinstance(at.binding.ctype, Pointer) or not is_object(at.binding)


def _wraps(e: Expr) -> bool:
    """Does C compute a difference of unsigned numbers?"""
    return any(
        isinstance(n, Binary) and n.op == "-" and isinstance(n.type, ScalarType) and not n.type.is_signed
        for n in walk(e)
    )
