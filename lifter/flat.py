"""A nest without loops that must run in order: programs side by side, or the reason why not.

    normalise      loops count from 0, subscripts are affine, flat arrays have their shape
    segments       loops side by side become nests of single loops
    Machine.run    every place's value after the nest, over reductions and scans
    programs       views, scalar function, combine operators; the order of several programs
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lifter.clauses import promised
from lifter.loop_nest import Loop, LoopNest, NestStmt
from lifter.normalise import NormalNest
from lifter.places import Env
from lifter.programs import programs
from lifter.reductions import Rules
from lifter.segments import Segment, expressions, segments
from lifter.symbolic import Machine
from lifter.trees import loops_in
from mdh_core.diagnostics import refuse
from mdh_core.expr import Assign, Declare, Field, If, Stmt, Type, Var, While, base_of, variables
from mdh_core.ir import MdhProgram


def flat_programs(nest: LoopNest, normal: NormalNest) -> tuple[MdhProgram, ...]:
    """The nest as programs that run one after the other; raises ``Refusal``."""
    for s in statements(nest.body):
        if isinstance(s, If) and next(loops_in((s,)), None) is not None:
            raise refuse("MDH211", "loop under a condition", s.span,
                         help="put the condition inside the innermost loop")  # fmt: skip
    types = scalar_types(nest)
    rules = Rules(nest.directive.fp == "exact", {f.name: f for f in nest.functions}, promised(nest))
    parts = segments(normal, types, frozenset(s.name for s in nest.scalars))
    out: list[MdhProgram] = []
    for n, part in enumerate(parts):
        machine = Machine(normal, rules, types, _split_records(nest.body), part.body)
        env: Env = {}
        machine.run(part.body, env)
        out += programs(nest, normal, machine, part, env, _wanted(nest, part, parts[n + 1 :]))
    return tuple(out)


def _wanted(nest: LoopNest, part: Segment, later: Sequence[Segment]) -> frozenset[str]:
    """Outer scalars whose value after a part is read by anyone."""
    used = {v for s in later for e in expressions(s.body) for v in variables(e)}
    live = {s.name for s in nest.scalars if s.live_after or s.name in used}
    return part.results & live


def scalar_types(nest: LoopNest) -> dict[str, Type]:
    types: dict[str, Type] = {s.name: s.type for s in nest.scalars}
    for s in statements(nest.body):
        if isinstance(s, Declare):
            types[s.name] = s.type
        elif isinstance(s, Assign) and isinstance(s.target, Var):
            types.setdefault(s.target.name, s.target.type)
    return types


def _split_records(body: Sequence[NestStmt]) -> frozenset[str]:
    """Records of which single fields are assigned."""
    out = set()
    for s in statements(body):
        if isinstance(s, Assign) and isinstance(s.target, Field):
            base = base_of(s.target)
            out.add(base.name if isinstance(base, Var) else base.buffer)
    return frozenset(out)


def statements(body: Sequence[NestStmt | Stmt]) -> Iterator[NestStmt | Stmt]:
    for s in body:
        yield s
        match s:
            case If(then=then, other=other):
                yield from statements(then)
                yield from statements(other)
            case While(body=inner):
                yield from statements(inner)
            case Loop(body=nested):
                yield from statements(nested)
            case _:
                pass
