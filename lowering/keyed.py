"""Points that contribute to the cells that hold a value equal to theirs: they are summed by value.

before   md_hom(i: pw(+), b: cc),  f(i, b) = (x[i] == k[b] && y[i] > 0) ? w[i] : 0,  h[b] starts with h[b]
after    for i: if (y[i] > 0) t[x[i]] += w[i];   for b: h[b] += t[k[b]]

``keyed`` recognises the form: of the conditions around what else is neutral, one compares a value of the
point in the reduced dimensions with a value of the cell (its key); everything else depends on the reduced
dimensions alone.  Keys are any integers and may repeat.  Work falls from points times cells to points, cells
and the span of the keys, which is known at run time only: the table ``t`` is used where it pays, else the
nest as it is.  ``lowering.histogram`` has the form in which the key of a cell is its index.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from lowering.histogram import Test, in_place, peeled
from mdh_core.expr import Binary, Expr, Load, Operand, ScalarType, Select, Type, variables, walk
from mdh_core.ir import MdhProgram

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
    found, others = [], []
    for t in tests:
        pair = _pair(t.value, program, cells, points)
        if pair is None:
            others.append(t)
        else:
            found.append(pair)
    rest = [element, *(t.value for t in others)]
    if len(found) != 1 or any(names_of(e, program) & cells for e in rest):
        return None
    if any(_is_read_late(n, program) for e in rest for n in walk(e)):
        return None  # of points whose value is no key, the source reads less than the table's loop
    ((value, key),) = found
    return Keyed(tuple(others), value, key, element)


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


def _is_read_late(e: Expr, program: MdhProgram) -> bool:
    return isinstance(e, Load) or (isinstance(e, Operand) and program.inp.accesses[e.access].conditional)


def names_of(e: Expr, program: MdhProgram) -> set[str]:
    """The dimensions that a value depends on."""
    accesses = [program.inp.accesses[n.access] for n in walk(e) if isinstance(n, Operand)]
    names = {n for a in accesses for i in a.index for n in i.names} | variables(e)
    return names & {d.name for d in program.hom.dims}
