"""Maps with conditions on their position, and what they are away from the border.

    before   f(up[0], up[1], c) = c > 0 ? min(up[0], up[1]) : up[0]          reads ``up[1]`` where c > 0 only
    inside   rows     c - 1 >= 0                                             of the positions
             program  f(up[0], up[1], c) = min(up[0], up[1])                 always reads both

Conditions of a stencil's border hold almost everywhere, or almost nowhere.  Where all points of a tile are
inside, the map is one without them, and has vectors; other tiles are computed as they stand, in scalars
(``emit.nest_text``).  Which way a condition goes is found with all indices in the middle of large sizes and
extents, other parameters being small: a guess that decides how fast a kernel is, not what it computes.

Only conditions that compare affine values.  Signed integers have these (what overflows is undefined),
unsigned ones where nothing is computed in them; where a value is cut to 32 bits, that it fits is a row.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace

from mdh_core.expr import (
    INT32,
    Affine,
    Binary,
    Cast,
    Const,
    Declare,
    Expr,
    Operand,
    ScalarType,
    Select,
    Stmt,
    Unary,
    Var,
    as_affine,
    children,
    map_children,
    straight_line,
    walk,
)
from mdh_core.ir import MdhProgram

_INT_MAX = Affine.number((1 << 31) - 1)
_MIDDLE, _SIZE, _OTHER = 1 << 20, 1 << 21, 3  # of dimensions, of sizes and extents, of other parameters


@dataclass(frozen=True, slots=True)
class Inside:
    """``rows``: not negative where ``program`` computes what the map does."""

    rows: tuple[Affine, ...]
    program: MdhProgram


def inside(program: MdhProgram) -> Inside | None:
    """None where nothing is read under a condition, or something is inside, too; and for what is no map."""
    if program.hom.function is not None or not any(a.conditional for a in program.inp.accesses):
        return None
    return _inside(program)


def in_the_middle(program: MdhProgram) -> MdhProgram:
    """The map without its border's conditions, if it has such; else the program."""
    found = inside(program)
    return program if found is None else found.program


@functools.lru_cache(maxsize=256)
def _inside(program: MdhProgram) -> Inside | None:
    scalar, accesses = program.hom.scalar, program.inp.accesses
    if not straight_line(scalar.body):
        return None
    if program.hom.dims_of("ps") or program.hom.domain:
        return None
    dims = {d.name for d in program.hom.dims}
    named = {s.name for s in scalar.body if isinstance(s, Declare)}
    large = {n for d in program.hom.dims for n, c in d.size.span.terms if c > 0}
    large |= {n for b in program.buffers for x in b.extents if x is not None for n in x.names}
    middle = {**dict.fromkeys(large, _SIZE), **dict.fromkeys(dims, _MIDDLE)}
    rows: dict[Affine, None] = {}

    def folded(e: Expr) -> Expr:
        if isinstance(e, Select):
            found = _known(e.cond, middle, dims, named)
            if found is not None:
                value, own = found
                rows.update(dict.fromkeys(own))
                return folded(e.then if value else e.other)
        return map_children(e, folded)

    def named_value(s: Stmt) -> Stmt:
        return replace(s, value=folded(s.value)) if isinstance(s, Declare) and s.value is not None else s

    body, results = tuple(named_value(s) for s in scalar.body), tuple(map(folded, scalar.results))
    values = [*results, *(s.value for s in body if isinstance(s, Declare) and s.value is not None)]
    always = {k for e in values for k in _evaluated(e)}
    used = {n.access for e in values for n in walk(e) if isinstance(n, Operand)}
    if not rows or used - always:
        return None
    new = replace(
        program,
        hom=replace(program.hom, scalar=replace(scalar, results=results, body=body)),
        inp=replace(program.inp, accesses=tuple(replace(a, conditional=False) for a in accesses)),
    )
    return Inside(tuple(r for r in rows if not _always(r, program)), new)


def _always(row: Affine, program: MdhProgram) -> bool:
    """Whether a row is never negative: its least value in the box is a number, or one less an ``int``."""
    int32 = {q.name for q in program.params if q.type == INT32}
    least = {d.name: d.size.span - 1 if row.coefficient(d.name) < 0 else Affine() for d in program.hom.dims}
    value = row.substitute(least)
    if value.is_constant:
        return value.const >= 0
    return value.const >= _INT_MAX.const and [c for n, c in value.terms if n in int32] == [-1] == [
        c for _, c in value.terms
    ]


def _evaluated(e: Expr) -> set[int]:
    """Accesses whose values are read whenever the expression is evaluated."""
    match e:
        case Operand(access=k):
            return {k}
        case Select(cond=cond, then=then, other=other):
            return _evaluated(cond) | (_evaluated(then) & _evaluated(other))
        case Binary(op="&&" | "||", a=a):
            return _evaluated(a)
        case _:
            return {k for child in children(e) for k in _evaluated(child)}


def _known(
    e: Expr, middle: Mapping[str, int], dims: set[str], named: set[str]
) -> tuple[bool, tuple[Affine, ...]] | None:
    """What a condition is in the middle, and rows that are not negative only where it is that."""
    match e:
        case Unary(op="!", a=a):
            found = _known(a, middle, dims, named)
            return None if found is None else (not found[0], found[1])
        case Binary(op="&&" | "||" as op, a=a, b=b):
            x, y = _known(a, middle, dims, named), _known(b, middle, dims, named)
            decides = op == "||"
            for one in (x, y):  # one that is so decides alone, whatever the other is
                if one is not None and one[0] == decides:
                    return one
            return None if x is None or y is None else (not decides, x[1] + y[1])
        case Binary(op="<" | "<=" | ">" | ">=" | "==" | "!=" as op, a=a, b=b):
            left, right = as_affine(a), as_affine(b)
            fits = _fitting(a, dims, named), _fitting(b, dims, named)
            if left is None or right is None or fits[0] is None or fits[1] is None or a.type != b.type:
                return None
            if not (left - right).names & dims:
                return None
            value, rows = _compared(op, left - right, middle)
            return value, (*rows, *fits[0], *fits[1])
        case _:
            return None


def _compared(op: str, difference: Affine, values: Mapping[str, int]) -> tuple[bool, tuple[Affine, ...]]:
    """Of ``difference op 0``."""
    middle = difference.evaluate({n: values.get(n, _OTHER) for n in difference.names})
    if op in ("==", "!="):
        if middle == 0:
            return op == "==", (difference, -difference)
        return op == "!=", (difference - 1 if middle > 0 else -difference - 1,)
    holds = {"<": middle < 0, "<=": middle <= 0, ">": middle > 0, ">=": middle >= 0}[op]
    strict = (op in "<>") == holds  # a strict one that holds, or the negation of one that is not
    row = difference if (op in (">", ">=")) == holds else -difference
    return holds, (row - 1 if strict else row,)


def _fitting(e: Expr, dims: set[str], named: set[str]) -> tuple[Affine, ...] | None:
    """Rows that are not negative where an integer is the affine value that it looks like; None: unknown."""
    rows: list[Affine] = []
    for n in walk(e):
        t = getattr(n, "type", None)
        if not isinstance(t, ScalarType) or t.kind not in ("int", "uint"):
            return None
        match n:
            case Const():
                pass
            case Var(name=name) if name not in named:
                pass
            case Cast(a=a) if isinstance(a.type, ScalarType) and a.type.kind in ("int", "uint"):
                value = as_affine(a)
                if value is None or t.size < 4:
                    return None
                if a.type.kind != t.kind:
                    if t.kind == "int" and t.size > a.type.size:
                        continue
                    if not (t.kind == "uint" and t.size >= a.type.size):
                        return None
                    rows.append(value)
                elif t.size < a.type.size:
                    if t.kind == "uint":
                        return None
                    rows += [_INT_MAX - value, value + _INT_MAX + 1]
            case Unary(op="-") | Binary(op="+" | "-" | "*") if t.kind == "int":
                pass
            case _:
                return None
    return tuple(r for r in rows if not r.is_constant or r.const < 0)


__all__ = ["Inside", "in_the_middle", "inside"]
