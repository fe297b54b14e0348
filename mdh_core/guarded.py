"""When a program does anything at all: conditions under which a store changes its cell, or a value matters.

    in     a store, and its value over the program's operands; or values that an operator combines
    out    the conditions under which a value is not what is there anyway, and the value where they hold

Shown right by tests/test_agreed.py, tests/test_contributions.py and tests/test_random_nests.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from mdh_core.combine import CombineFunction
from mdh_core.expr import INT32, Binary, Cast, Const, Expr, Load, Operand, Select, Unary, as_affine, walk
from mdh_core.ir import MdhProgram, Store


def conjuncts(e: Expr) -> list[Expr]:
    """Conditions that all have to hold where one does, in the order in which they are asked."""
    if isinstance(e, Cast) and isinstance(e.a, Binary) and e.a.op == "&&":
        return conjuncts(e.a)
    if isinstance(e, Binary) and e.op == "&&":
        return conjuncts(e.a) + conjuncts(e.b)
    if isinstance(e, Unary) and e.op == "!":
        inner = e.a.a if isinstance(e.a, Cast) else e.a
        if isinstance(inner, Binary) and inner.op == "||":
            return conjuncts(Unary("!", inner.a, INT32)) + conjuncts(Unary("!", inner.b, INT32))
    return [e]


def when_stored(program: MdhProgram, store: Store, value: Expr) -> tuple[Expr | None, Expr]:
    """The condition under which a value differs from what the cell holds anyway, and the value then."""
    taken, new = _taken(program, store, value)
    return (None if taken == _YES else taken), new


def behind_neutral(values: Sequence[Expr], function: CombineFunction) -> tuple[list[Expr], list[Expr]]:
    """Conditions around all values, outermost first, where these are else neutral; the values inside of them.

    What an operator combines with its neutral element (0.0 or -0.0 for a sum) it need not combine.
    """
    conditions: list[Expr] = []
    inner = list(values)
    while function.identity is not None:
        found = [_chosen(e, c.value) for e, c in zip(inner, function.identity, strict=True)]
        condition = None if found[0] is None else found[0][0]
        if condition is None or any(x is None or x[0] != condition for x in found):
            break
        conditions.append(condition)
        inner = [x[1] for x in found if x is not None]
    return conditions, inner


def _chosen(e: Expr, neutral: object) -> tuple[Expr, Expr] | None:
    match e:
        case Select(cond=cond, then=then, other=Const(value=value)) if value == neutral:
            return cond, then
        case Select(cond=cond, then=Const(value=value), other=other) if value == neutral:
            return Unary("!", cond, INT32), other
    return None


def behind_conditions(program: MdhProgram, store: Store, value: Expr) -> tuple[Expr | None, Expr]:
    """The conditions around a value that do not read the cell, and what is stored where they hold.

    ``c ? (x < y ? x : y) : x`` is the minimum of the cell ``x`` and ``y`` where ``c`` holds; ``when_stored``
    would say that it is ``y`` where ``c`` holds and ``x`` is not less.
    """
    found: Expr | None = None
    while isinstance(value, Select) and not any(_is_cell(program, store, n) for n in walk(value.cond)):
        if _is_cell(program, store, value.other):
            condition, value = value.cond, value.then
        elif _is_cell(program, store, value.then):
            condition, value = Unary("!", value.cond, INT32), value.other
        else:
            break
        found = condition if found is None else Binary("&&", found, condition, INT32)
    return found, value


_YES, _NO = Const(1, INT32), Const(0, INT32)


def _taken(program: MdhProgram, store: Store, value: Expr) -> tuple[Expr, Expr]:
    """When a value is another than the cell's own, and what it is then."""
    if _is_cell(program, store, value):
        return _NO, value
    if not isinstance(value, Select):
        return _YES, value
    (t, then), (o, other) = (_taken(program, store, x) for x in (value.then, value.other))
    if t == _YES and o == _YES:
        return _YES, value
    if o == _NO:
        return (value.cond if t == _YES else Binary("&&", value.cond, t, INT32)), then
    if t == _NO:
        no = Unary("!", value.cond, INT32)
        return (no if o == _YES else Binary("&&", no, o, INT32)), other
    return Select(value.cond, t, o, INT32), Select(value.cond, then, other, value.type)


def _is_cell(program: MdhProgram, store: Store, e: Expr) -> bool:
    match e:
        case Load(buffer=buffer, index=index):
            return buffer == store.buffer and tuple(as_affine(i) for i in index) == store.index
        case Operand(access=k):
            a = program.inp.accesses[k]
            return (a.buffer, a.index) == (store.buffer, store.index)
    return False
