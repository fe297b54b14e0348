"""Conditions under which a nest computes anything at all, where all lanes of a vector agree on them.

    before   f(a[i][k], b[k][j]) = a[i][k] != 0 ? a[i][k]*b[k][j] : 0        combined with ``+``
    agreed   condition  a[i][k] != 0
             program    f(a[i][k], b[k][j]) = a[i][k]*b[k][j]                always reads both

Where the condition does not hold, a reduction combines with its operator's neutral element and a map leaves
its cells as they are; nothing need be done.  So vectors along a dimension on which the condition does not
depend are those of the other program, behind one question for all of them (``emit.tile_text``).  Without it
they would read, or write, what the source does not.

``condition`` is asked in the order of the source: what it reads last may be there only where what it reads
first says so.  Shown right by tests/test_agreed.py.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

from lowering.between import between, varies
from lowering.inside import evaluated, inside
from mdh_core.combine import choice_of
from mdh_core.expr import (
    INT32,
    Assign,
    Binary,
    Declare,
    Expr,
    Load,
    Operand,
    RecordType,
    Select,
    map_children,
    map_stmts,
    stmt_exprs,
    variables,
    walk,
)
from mdh_core.fields import in_fields
from mdh_core.guarded import behind_conditions, behind_neutral, conjuncts
from mdh_core.ir import MdhProgram
from mdh_core.lanes import declared_in


@dataclass(frozen=True, slots=True)
class Agreed:
    """``program`` is what the nest computes where ``condition`` holds; elsewhere it does nothing."""

    condition: Expr
    program: MdhProgram

    def along(self, dim: str) -> bool:
        """Whether neighbours in a dimension have one condition."""
        return not varies(self.program, self.condition, dim)


    def once(self) -> bool:
        """Whether all points have one condition, so that it can be asked before all of them."""
        p = self.program
        asked = {p.inp.accesses[n.access].buffer for n in walk(self.condition) if isinstance(n, Operand)}
        if asked & {s.buffer for s in p.out.stores} or any(isinstance(n, Load) for n in walk(self.condition)):
            return False
        return all(self.along(d.name) for d in p.hom.dims)


def agreed(program: MdhProgram) -> Agreed | None:
    """None where nothing is read under a condition, or there is more to it than one for all that is done;
    and where it is that of a border (``lowering.inside``)."""
    if not any(a.conditional for a in program.inp.accesses) or inside(program) is not None:
        return None
    return _agreed(program)


def vector_program(program: MdhProgram) -> MdhProgram:
    """What vectors compute of a program: without a border's conditions or one that all lanes agree on, or
    between points that read everything."""
    found = inside(program) or agreed(program) or between(program)
    return program if found is None else found.program


def in_lanes(program: MdhProgram) -> MdhProgram:
    """The same with scalars for records."""
    return in_fields(vector_program(program))


@functools.lru_cache(maxsize=256)
def _agreed(program: MdhProgram) -> Agreed | None:
    scalar, accesses = program.hom.scalar, program.inp.accesses
    types = (*program.component_types, *(program.buffer(a.buffer).type for a in accesses))
    if any(isinstance(t, RecordType) for t in types):
        return None
    condition, inner = _of_a_map(program) if program.hom.function is None else _of_a_reduction(program)
    own = {d.name for d in declared_in(scalar.body)}
    if condition is None or variables(condition) & own:
        return None
    asked = {condition, *conjuncts(condition)}

    def where_it_holds(e: Expr) -> Expr:
        """Without the same question again: declarations ask it, too."""
        if isinstance(e, Select) and e.cond in asked:
            return where_it_holds(e.then)
        return map_children(e, where_it_holds)

    results = tuple(map(where_it_holds, inner))
    body = map_stmts(scalar.body, where_it_holds)
    values = [*results, *stmt_exprs(body)]
    surely = [s for s in body if isinstance(s, Declare | Assign)]  # not in branches and loops
    always = {k for e in (*results, *stmt_exprs(tuple(surely))) for k in evaluated(e)}
    used = {n.access for e in values for n in walk(e) if isinstance(n, Operand)}
    if any(accesses[k].conditional for k in used - always):
        return None
    return Agreed(
        condition,
        replace(
            program,
            hom=replace(program.hom, scalar=replace(scalar, results=results, body=body)),
            inp=replace(program.inp, accesses=tuple(replace(a, conditional=False) for a in accesses)),
        ),
    )


def _of_a_map(program: MdhProgram) -> tuple[Expr | None, list[Expr]]:
    """All components are stored plainly, each once, under one condition."""
    stores, results = program.out.stores, program.hom.scalar.results
    if [s.plain for s in stores] != list(range(len(results))) or any(s.at_last for s in stores):
        return None, []
    found = [behind_conditions(program, s, e) for s, e in zip(stores, results, strict=True)]
    condition = found[0][0]
    return condition if all(c == condition for c, _ in found) else None, [e for _, e in found]


def _of_a_reduction(program: MdhProgram) -> tuple[Expr | None, list[Expr]]:
    function = program.hom.function
    if function is None or choice_of(function) or program.hom.dims_of("ps"):
        return None, []
    conditions, values = behind_neutral(program.hom.scalar.results, function)
    if not conditions:
        return None, values
    return functools.reduce(lambda a, b: Binary("&&", a, b, INT32), conditions), values


__all__ = ["Agreed", "agreed", "in_lanes", "vector_program"]
