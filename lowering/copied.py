"""What a copy of an input holds: its elements, or what the scalar function computes from each of them alone.

    C[i][j] += alpha * A[i][k] * B[k][j]      the copy of A holds alpha * A[i][k]

A tile uses an element of its copy for every column; computed there, the product (and in vector code its
spread to all lanes) would take turns with the multiply-adds.  The value is rounded as it was, so results have
the same bits.  Restricted to sums, differences and products of floating-point numbers, which fail nowhere: a
copy holds elements that the function may not meet.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from mdh_core.expr import (
    Binary,
    Cast,
    Const,
    Expr,
    Operand,
    ScalarType,
    Unary,
    Var,
    children,
    rewrite,
    walk,
)
from mdh_core.ir import MdhProgram


def copied_value(program: MdhProgram, buffer: str) -> Expr | None:
    """The largest expression over a buffer's one operand that stands wherever the operand does; else None."""
    accesses = [k for k, a in enumerate(program.inp.accesses) if a.buffer == buffer]
    scalar = program.hom.scalar
    if len(accesses) != 1 or scalar.body:
        return None
    dims = {d.name for d in program.hom.dims}
    found = [e for r in scalar.results for e in _largest(r, accesses[0], dims)]
    if not found or isinstance(found[0], Operand) or any(e != found[0] for e in found):
        return None
    t = program.buffer(buffer).type
    same = isinstance(t, ScalarType) and found[0].type == t and t.is_float
    return found[0] if same and _times(found, accesses[0]) == _times(scalar.results, accesses[0]) else None


def _times(expressions: Iterable[Expr], access: int) -> int:
    return sum(isinstance(n, Operand) and n.access == access for e in expressions for n in walk(e))


def _largest(e: Expr, access: int, dims: set[str]) -> list[Expr]:
    """The largest expressions inside of ``e`` that contain the operand and no other, nor an index."""
    if _is_of_one(e, access, dims):
        return [e] if any(isinstance(n, Operand) for n in walk(e)) else []
    return [x for child in children(e) for x in _largest(child, access, dims)]


def _is_of_one(e: Expr, access: int, dims: set[str]) -> bool:
    match e:
        case Const():
            return True
        case Var(name=name):
            return name not in dims
        case Operand():
            return e.access == access
        case Unary(op="-", a=a) | Cast(a=a):
            return _is_float(e) and _is_of_one(a, access, dims)
        case Binary(op="+" | "-" | "*", a=a, b=b):
            return _is_float(e) and _is_of_one(a, access, dims) and _is_of_one(b, access, dims)
    return False


def _is_float(e: Expr) -> bool:
    return isinstance(e.type, ScalarType) and e.type.is_float


def with_copied_values(program: MdhProgram, buffers: Iterable[str]) -> MdhProgram:
    """The program with the operands of these buffers in the place of what their copies hold."""
    values = {}
    for b in buffers:
        value = copied_value(program, b)
        if value is not None:
            values[value] = next(n for n in walk(value) if isinstance(n, Operand))
    if not values:
        return program
    scalar = program.hom.scalar
    results = tuple(rewrite(e, values.get) for e in scalar.results)
    return replace(program, hom=replace(program.hom, scalar=replace(scalar, results=results)))
