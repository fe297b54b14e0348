"""When a store changes its cell: what is stored may be what the cell holds anyway, under a condition.

    in     a store, and its value over the program's operands
    out    the condition under which the value is another, and that value

Shown right by tests/test_agreed.py and tests/test_random_nests.py.
"""

from __future__ import annotations

from mdh_core.expr import INT32, Binary, Const, Expr, Load, Operand, Select, Unary, as_affine, walk
from mdh_core.ir import MdhProgram, Store


def when_stored(program: MdhProgram, store: Store, value: Expr) -> tuple[Expr | None, Expr]:
    """The condition under which a value differs from what the cell holds anyway, and the value then."""
    taken, new = _taken(program, store, value)
    return (None if taken == _YES else taken), new


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
