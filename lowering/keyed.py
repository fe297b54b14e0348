"""Points that contribute to the cells that hold a value equal to theirs: they are summed by value.

before   md_hom(i: pw(+), b: cc),  f(i, b) = (x[i] == k[b] && y[i] > 0) ? w[i] : 0,  h[b] starts with h[b]
after    for i: if (y[i] > 0) t[x[i]] += w[i];   for b: h[b] += t[k[b]]

``keyed`` recognises the form: of the conditions around what else is neutral, one compares a value of the
point in the reduced dimensions with a value of the cell (its key); everything else depends on the reduced
dimensions alone.  Keys are any integers and may repeat.  Work falls from points times cells to points, cells
and the span of the keys, which is known at run time only: the table ``t`` is used where it pays, else the
nest as it is.  What the source computes for points and cells that match only must not be able to fail, as
the table's loop computes it for all.

``lowering.histogram`` has the form in which the key of a cell is its index.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from lowering.histogram import Test, in_place, names_of, peeled
from mdh_core.expr import (
    Binary,
    Call,
    Cast,
    Expr,
    Load,
    Operand,
    ScalarType,
    Select,
    Type,
    Unary,
    walk,
)
from mdh_core.ir import MdhProgram
from mdh_core.lanes import steady_divisor

CELLS = 8  # with fewer, comparing is as fast


@dataclass(frozen=True, slots=True)
class Keyed:
    """``element`` of a point goes to all cells whose ``key`` is its ``value``, if all ``tests`` hold."""

    tests: tuple[Test, ...]
    value: Expr
    key: Expr
    element: Expr


@functools.lru_cache(maxsize=256)
def keyed(program: MdhProgram) -> Keyed | None:
    """The form of a program, or None where it has another."""
    hom, function = program.hom, program.hom.function
    if not isinstance(hom.scalar.results[0], Select) or hom.scalar.body or hom.domain:
        return None
    if function is None or function.arity != 1 or len(program.out.stores) != 1:
        return None
    if hom.dims_of("ps") or not hom.dims_of("pw") or not hom.dims_of("cc") or not in_place(program):
        return None
    if program.fp == "exact" and not function.exact:
        return None  # private tables are combined in another order
    cells = {d.name for d in hom.dims_of("cc")}
    points = {d.name for d in hom.dims_of("pw")}
    tests, element = peeled(hom.scalar.results[0], program, set())
    pairs = [_pair(t.value, program, cells, points) for t in tests]
    if sum(pair is not None for pair in pairs) != 1:
        return None
    where = next(k for k, pair in enumerate(pairs) if pair is not None)
    value, key = pairs[where] or (element, element)
    others = (*tests[:where], *tests[where + 1 :])
    late = [element, *(t.value for t in tests[where + 1 :]), *([key] if where else ())]
    if any(names_of(e, program) & cells for e in (element, *(t.value for t in others))):
        return None
    if not all(_never_fails(n, program) for e in late for n in walk(e)):
        return None
    return Keyed(others, value, key, element)


def _pair(c: Expr, program: MdhProgram, cells: set[str], points: set[str]) -> tuple[Expr, Expr] | None:
    """The value of the point and the key of the cell that a condition compares."""
    if not isinstance(c, Binary) or c.op != "==" or not _are_small(c.a.type, c.b.type):
        return None
    for x, y in ((c.a, c.b), (c.b, c.a)):
        of_point, of_cell = names_of(x, program), names_of(y, program)
        if of_cell & cells and not of_cell & points and of_point & points and not of_point & cells:
            return x, y
    return None


def _are_small(a: Type, b: Type) -> bool:
    """Integers that compare as the numbers that they are; differences fit into ``long``."""
    types = [t for t in (a, b) if isinstance(t, ScalarType) and t.is_integer and t.bits <= 32]
    wide = any(t.kind == "uint" and t.bits == 32 for t in types)  # C converts the other one
    return len(types) == 2 and (not wide or all(t.kind == "uint" for t in types))


def _never_fails(e: Expr, program: MdhProgram) -> bool:
    """Whether a part of an expression may be computed where the source does not.

    No element that the source reads under a condition, no division, no overflow, no call.
    """
    match e:
        case Operand():
            return not program.inp.accesses[e.access].conditional
        case Load() | Call() | Unary(op="-"):
            return isinstance(e, Unary) and _wraps(e.type)
        case Cast():  # of a floating-point value to an integer that does not hold it
            return not (_is_float(e.a.type) and not _is_float(e.type))
        case Binary(op="+" | "-" | "*"):
            return _wraps(e.type)
        case Binary(op="/" | "%"):
            return _is_float(e.type) or steady_divisor(e)
        case Binary(op="<<" | ">>"):
            return False
    return True


def _is_float(t: Type) -> bool:
    return isinstance(t, ScalarType) and t.is_float


def _wraps(t: Type) -> bool:
    return isinstance(t, ScalarType) and t.kind != "int"
