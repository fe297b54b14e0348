"""Reductions that read under a condition, in vectors along what they reduce.

    before    s += m[i] ? a[i]*b[i] : 0                    reads ``a`` and ``b`` where ``m`` says so only
    between   guards    m[i]
              program   s += m[i] ? a[i]*b[i] : 0          always reads both

Vectors compute all lanes and choose afterwards, so they read what the source does not: it may not be there.
But an array is in one piece: between two elements of a row that are read, all exist.  So where each guard
holds at some place before and at some place behind, or there, the program that always reads is what the nest
computes; at the ends of a row, up to where each guard has held, points are computed one by one
(``emit.between_text``).  A guard is the condition under which an access takes place, asked in the order of
the source; of guards that imply each other the strictest is enough.

Only reductions: a map that stores all the same is in vectors by the compiler's masks, and where it does not
store, nothing may be written.  Shown right by tests/test_between.py.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from lowering.inside import evaluated
from mdh_core.combine import choice_of
from mdh_core.expr import (
    INT32,
    Binary,
    Declare,
    Expr,
    Load,
    Operand,
    RecordType,
    Select,
    Unary,
    Var,
    children,
    map_children,
    straight_line,
    walk,
)
from mdh_core.guarded import behind_neutral, conjuncts
from mdh_core.ir import MdhProgram


@dataclass(frozen=True, slots=True)
class Between:
    """``program`` is what the nest computes between points where all ``guards`` hold.

    guards    none where every point reads the same whichever way its conditions go
    neutral   where no guard holds, a point contributes nothing
    """

    guards: tuple[Expr, ...]
    neutral: bool
    program: MdhProgram


def between(program: MdhProgram) -> Between | None:
    """None where nothing is read under a condition, or that is no reduction; or not plainly so."""
    if program.hom.function is None or not any(a.conditional for a in program.inp.accesses):
        return None
    return _between(program)


@functools.lru_cache(maxsize=256)
def _between(program: MdhProgram) -> Between | None:
    hom, accesses = program.hom, program.inp.accesses
    function = hom.function
    types = (*program.component_types, *(program.buffer(a.buffer).type for a in accesses))
    if function is None or choice_of(function) or hom.dims_of("ps") or hom.domain:
        return None
    if not straight_line(hom.scalar.body) or any(isinstance(t, RecordType) for t in types):
        return None
    values: dict[str, Expr] = {}
    for s in hom.scalar.body:
        if not isinstance(s, Declare) or s.value is None:
            return None
        values[s.name] = _written_out(s.value, values)
    results = [_written_out(e, values) for e in hom.scalar.results]
    if any(isinstance(n, Load) for e in results for n in walk(e)):
        return None
    found: dict[int, list[Expr]] = {}
    for e in results:
        for access, path in _reads(e, ()):
            found.setdefault(access, list(path))
    always = {k for e in results for k in evaluated(e)}
    guards = [path for k, path in sorted(found.items()) if accesses[k].conditional and k not in always]
    if not all(guards):
        return None
    strictest = [g for g in guards if not any(_follows(g, h) for h in guards if set(h) != set(g))]
    conditions, _ = behind_neutral(results, function)
    outer = [c for condition in conditions for c in conjuncts(condition)]
    asked = tuple(dict.fromkeys(_all(g) for g in strictest))
    return Between(
        asked,
        len(asked) == 1 and _follows(strictest[0], outer),
        replace(
            program,
            inp=replace(program.inp, accesses=tuple(replace(a, conditional=False) for a in accesses)),
        ),
    )


def varies(program: MdhProgram, e: Expr, dim: str) -> bool:
    """Whether neighbours in a dimension may have different values of an expression."""
    accesses = program.inp.accesses
    for n in walk(e):
        if isinstance(n, Operand) and any(x.coefficient(dim) for x in accesses[n.access].index):
            return True
        if isinstance(n, Var) and n.name == dim:
            return True
    return False


def _written_out(e: Expr, values: Mapping[str, Expr]) -> Expr:
    """An expression without the variables of its scalar function."""
    if isinstance(e, Var):
        return values.get(e.name, e)
    return map_children(e, lambda x: _written_out(x, values))


def _reads(e: Expr, path: tuple[Expr, ...]) -> Iterator[tuple[int, tuple[Expr, ...]]]:
    """The accesses of an expression, each time with the conditions under which it takes place, in order."""
    match e:
        case Operand(access=k):
            yield k, path
        case Select(cond=cond, then=then, other=other):
            yield from _reads(cond, path)
            yield from _reads(then, (*path, *conjuncts(cond)))
            yield from _reads(other, (*path, *conjuncts(_not(cond))))
        case Binary(op="&&" | "||" as op, a=a, b=b):
            yield from _reads(a, path)
            yield from _reads(b, (*path, *conjuncts(a if op == "&&" else _not(a))))
        case _:
            for child in children(e):
                yield from _reads(child, path)


def _not(e: Expr) -> Expr:
    return Unary("!", e, INT32)


def _all(conditions: list[Expr]) -> Expr:
    return functools.reduce(lambda a, b: Binary("&&", a, b, INT32), conditions)


def _follows(some: list[Expr], more: list[Expr]) -> bool:
    """Whether ``some`` hold wherever ``more`` do."""
    return set(some) <= set(more)


__all__ = ["Between", "between", "varies"]
