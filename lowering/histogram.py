"""Dimensions of which each point contributes to one cell: the reduction visits that cell only.

before   md_hom(i: pw(+), c: cc),  f(i, c) = (idx[i] == c && x[i] > 0) ? x[i] : 0,  h[c] starts with h[c]
after    for i: if (x[i] > 0 and idx[i] is in [0, C)) h[idx[i]] += x[i]

``one_hot`` recognises the form: a ``cc`` dimension that the scalar function only compares with a value, and a
neutral element wherever the two differ.  It holds for a histogram written with a loop over its bins and for
one that was lifted from ``h[idx[i]] += x[i]`` (``lifter.scatter``).  Work falls from points times cells to
points; the published form does not have this (mdh.md 3.5).
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

from lowering.machine import LINE
from mdh_core.combine import neutral
from mdh_core.expr import (
    Affine,
    Binary,
    Cast,
    Const,
    Expr,
    Load,
    Operand,
    ScalarType,
    Select,
    Var,
    affine_index,
    as_affine,
    stmt_exprs,
    variables,
    walk,
)
from mdh_core.ir import Access, MdhProgram

POINTS_AHEAD = 0, 2048, 4096  # bytes; half of the one and twice the other gain less, measured with weights
FEWEST_POINTS, MOST_POINTS = 4, 16  # that a line serves whose operands are fetched


@dataclass(frozen=True, slots=True)
class Test:
    """What must hold for a point to contribute: a condition, or that ``dim``'s index is ``value``."""

    value: Expr
    dim: str = ""


@dataclass(frozen=True, slots=True)
class OneHot:
    """``element`` goes to the cell that the tests name; they are evaluated in this order."""

    tests: tuple[Test, ...]
    element: Expr

    @property
    def cells(self) -> tuple[str, ...]:
        """Dimensions whose index is computed."""
        return tuple(t.dim for t in self.tests if t.dim)


def one_hot(program: MdhProgram) -> OneHot | None:
    """The form of a program, or None where it has another."""
    hom, function = program.hom, program.hom.function
    if not isinstance(hom.scalar.results[0], Select):
        return None  # most programs: this is asked for every point of a search
    if function is None or function.arity != 1 or len(program.out.stores) != 1:
        return None
    if hom.dims_of("ps") or not hom.dims_of("pw") or not in_place(program):
        return None
    inside = {n for c in hom.domain for n in c.names}
    inside |= {n for a in program.inp.accesses for i in a.index for n in i.names}
    inside |= {n for e in stmt_exprs(hom.scalar.body) for n in variables(e)}
    free = {d.name for d in hom.dims_of("cc")} - inside
    tests, element = peeled(hom.scalar.results[0], program, free)
    cells = [t.dim for t in tests if t.dim]
    used = {n for e in (element, *(t.value for t in tests)) for n in variables(e)}
    if not cells or used & set(cells):
        return None
    return OneHot(tests, element)


def in_place(program: MdhProgram) -> bool:
    """Does each cell combine what it holds with what the points contribute?"""
    (store,), (initial,) = program.out.stores, program.out.initial
    return (
        store.plain == 0
        and not store.at_last
        and isinstance(initial, Load)
        and initial.buffer == store.buffer
        and program.buffer(store.buffer).type == program.component_types[0]
        and all(as_affine(i) is not None for i in initial.index)
        and affine_index(initial.index) == store.index
    )


def peeled(e: Expr, program: MdhProgram, free: set[str]) -> tuple[tuple[Test, ...], Expr]:
    """The conditions around what is neutral where one of them does not hold."""
    tests: list[Test] = []
    named: set[str] = set()
    while isinstance(e, Select) and _is_neutral(e.other, program):
        for c in _conjuncts(e.cond):
            test = _test(c, free - named)
            named.add(test.dim)
            tests.append(test)
        e = e.then
    return tuple(tests), e


def _conjuncts(e: Expr) -> list[Expr]:
    if isinstance(e, Binary) and e.op == "&&":
        return _conjuncts(e.a) + _conjuncts(e.b)
    return [e]


def _test(c: Expr, free: set[str]) -> Test:
    if isinstance(c, Binary) and c.op == "==":
        for x, y in ((c.a, c.b), (c.b, c.a)):
            name = _index(y)
            if name in free and name not in variables(x) and _keeps(x, y):
                return Test(x, name)
    return Test(c)


def _index(e: Expr) -> str:
    """The dimension whose index an expression is, in the type of an iterator."""
    while isinstance(e, Cast) and isinstance(e.type, ScalarType) and e.type.is_integer and e.type.bits >= 32:
        e = e.a
    return e.name if isinstance(e, Var) else ""


def _keeps(value: Expr, index: Expr) -> bool:
    """Is the comparison one of the numbers themselves?"""
    types = (value.type, index.type)
    if not all(isinstance(t, ScalarType) and t.is_integer for t in types):
        return False
    return all(t.kind != "uint" or t.bits < 64 for t in types if isinstance(t, ScalarType))


def _is_neutral(e: Expr, program: MdhProgram) -> bool:
    """A cell that is combined with it keeps its value (and the sign of a zero, under ``fp(exact)``)."""
    f = program.hom.function
    nothing = None if f is None else neutral(f)
    if nothing is None or not isinstance(e, Const) or e != nothing:
        return False
    return program.fp != "exact" or math.copysign(1, e.value) == math.copysign(1, nothing.value)


def followed(program: MdhProgram, d: str, looped: Collection[str]) -> tuple[Access, ...]:
    """Operands of which every point has one of its own, beside that of its neighbour along ``d``.

    ``looped``: the dimensions that loops go through.  A core that has several points in flight for each of
    its instructions sees less far ahead than memory is away.  Of elements so small that a line serves many
    points it sees enough; with records of half a line nothing is gained, larger ones are slower (measured).
    """
    every = {x.name for x in program.hom.dims if x.name in looped and x.size.constant != 1}
    found: list[Access] = []
    for a in program.inp.accesses:
        *outer, last = a.index or (Affine(),)
        size = program.buffer(a.buffer).type.size
        own = last.coefficient(d) == 1 and not any(d in x.names for x in outer)
        if not own or not FEWEST_POINTS <= LINE // size <= MOST_POINTS:
            continue
        if every <= {n for x in a.index for n in x.names} and not any(_is_near(a, b, size) for b in found):
            found.append(a)
    return tuple(found)


def _is_near(a: Access, b: Access, size: int) -> bool:
    """Whether two accesses are always less than a line apart, in elements of ``size`` bytes."""
    if a.buffer != b.buffer or a.index[:-1] != b.index[:-1] or a.index[-1].terms != b.index[-1].terms:
        return False
    return abs(a.index[-1].const - b.index[-1].const) * size < LINE


def names_of(e: Expr, program: MdhProgram) -> set[str]:
    """The dimensions that a value depends on."""
    accesses = [program.inp.accesses[n.access] for n in walk(e) if isinstance(n, Operand)]
    names = {n for a in accesses for i in a.index for n in i.names} | variables(e)
    return names & {d.name for d in program.hom.dims}
