"""Maps with conditions on their position, and what they are away from the border.

    before   f(up[0], up[1], c) = c > 0 ? min(up[0], up[1]) : up[0]          reads ``up[1]`` where c > 0 only
    inside   rows     c - 1 >= 0                                             of the positions
             program  f(up[0], up[1], c) = min(up[0], up[1])                 always reads both

Conditions of a stencil's border hold almost everywhere, or almost nowhere.  Where all points of a tile are
inside, the map is one without them, and has vectors; other tiles are computed as they stand, in scalars
(``emit.nest_text``).  Which way a condition goes is found with all indices in the middle of large sizes and
extents, other parameters being small: a guess that decides how fast a kernel is, not what it computes.

Only conditions that compare affine values.  Signed integers have these where they do not overflow, unsigned
ones where nothing is computed in them; that a value of 32 bits fits is a row, unless it always does.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace

from mdh_core.expr import (
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
    extents = {n for b in program.buffers for x in b.extents if x is not None for n in x.names}
    middle = dict.fromkeys(large | extents, _SIZE)
    middle |= {d.name: _MIDDLE if d.size.constant is None else d.size.constant // 2 for d in program.hom.dims}
    # of others, sums could overflow
    sound = dims | extents | {n for d in program.hom.dims for n in d.size.span.names}
    sound |= {q.name for q in program.params if isinstance(q.type, ScalarType) and q.type.size <= 4}
    rows: dict[Affine, None] = {}

    def folded(e: Expr) -> Expr:
        if isinstance(e, Select):
            found = _known(e.cond, middle, dims, sound - named)
            if found is not None:
                value, own = found
                rows.update(dict.fromkeys(own))
                return folded(e.then if value else e.other)
        return map_children(e, folded)

    def named_value(s: Stmt) -> Stmt:
        return replace(s, value=folded(s.value)) if isinstance(s, Declare) and s.value is not None else s

    body, results = tuple(named_value(s) for s in scalar.body), tuple(map(folded, scalar.results))
    values = [*results, *(s.value for s in body if isinstance(s, Declare) and s.value is not None)]
    always = {k for e in values for k in evaluated(e)}
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
    """Whether a row is never negative where there are points, by the box and by the types of parameters."""
    least = {d.name: d.size.span - 1 if row.coefficient(d.name) < 0 else Affine() for d in program.hom.dims}
    types = {q.name: q.type for q in program.params}
    sizes = [d.size.span for d in program.hom.dims]  # all at least 1
    row = row.substitute(least)
    total = row.const
    for name, c in row.terms:
        t = types.get(name)
        lowest = [1 - span.const for span in sizes if span.terms == ((name, 1),)]
        if c > 0 and lowest:
            total += c * max(lowest)
        elif isinstance(t, ScalarType) and t.is_integer and t.size <= 4:
            half = 1 << (8 * t.size - 1)
            low, high = (-half, half - 1) if t.kind == "int" else (0, 2 * half - 1)
            total += c * (low if c > 0 else high)
        else:
            return False
    return total >= 0


def evaluated(e: Expr) -> set[int]:
    """Accesses whose values are read whenever the expression is evaluated."""
    match e:
        case Operand(access=k):
            return {k}
        case Select(cond=cond, then=then, other=other):
            return evaluated(cond) | (evaluated(then) & evaluated(other))
        case Binary(op="&&" | "||", a=a):
            return evaluated(a)
        case _:
            return {k for child in children(e) for k in evaluated(child)}


def _known(
    e: Expr, middle: Mapping[str, int], dims: set[str], sound: set[str]
) -> tuple[bool, tuple[Affine, ...]] | None:
    """What a condition is in the middle, and rows that are not negative only where it is that."""
    match e:
        case Unary(op="!", a=a):
            found = _known(a, middle, dims, sound)
            return None if found is None else (not found[0], found[1])
        case Binary(op="&&" | "||" as op, a=a, b=b):
            x, y = _known(a, middle, dims, sound), _known(b, middle, dims, sound)
            decides = op == "||"
            for one in (x, y):  # one that is so decides alone, whatever the other is
                if one is not None and one[0] == decides:
                    return one
            return None if x is None or y is None else (not decides, x[1] + y[1])
        case Binary(op="<" | "<=" | ">" | ">=" | "==" | "!=" as op, a=a, b=b):
            left, right = as_affine(a), as_affine(b)
            fits = _fitting(a, sound), _fitting(b, sound)
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


def _fitting(e: Expr, sound: set[str]) -> tuple[Affine, ...] | None:
    """Rows that are not negative where an integer is the affine value that it looks like; None: unknown.

    ``sound``: names that may occur; indices, sizes, and integers of 32 bits.
    """
    rows: list[Affine] = []
    for n in walk(e):
        t = getattr(n, "type", None)
        if not isinstance(t, ScalarType) or t.kind not in ("int", "uint"):
            return None
        match n:
            case Const():
                pass
            case Var(name=name) if name in sound:
                if t.kind == "uint" and t.size > 4:
                    rows.append(Affine.of(name))  # kernels have it as a signed one
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
                    rows += _of_32_bits(value)
            case Unary(op="-") | Binary(op="+" | "-" | "*") if t.kind == "int":
                value = as_affine(n)
                if value is None:
                    return None
                rows += _of_32_bits(value) if t.size <= 4 else ()  # it may be defined to wrap
            case _:
                return None
    return tuple(rows)


def _of_32_bits(value: Affine) -> tuple[Affine, Affine]:
    return _INT_MAX - value, value + _INT_MAX + 1


__all__ = ["Inside", "evaluated", "inside"]
