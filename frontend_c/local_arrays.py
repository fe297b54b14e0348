"""Arrays that a nest declares: how many elements they have, and what these begin with.

    float v[3], w[2][2] = {{1, 2}, {3}};    =>    v;  w;  w[0][0] = 1; w[0][1] = 2; w[1][0] = 3; w[1][1] = 0;

``lifter.local_arrays`` makes variables of the elements, once the whole nest is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING

from frontend_c.buffers import flatten
from frontend_c.c_types import Array, Other, Value
from frontend_c.expressions import Binding
from frontend_c.parsing import Node, c_ast
from lifter.local_arrays import HELP
from lifter.local_tiles import LocalArray
from lifter.loop_nest import Loop, NestStmt
from mdh_core.diagnostics import refuse
from mdh_core.expr import (
    INT64,
    Assign,
    Const,
    Declare,
    Expr,
    Load,
    MakeRecord,
    ScalarType,
    Type,
    Var,
    as_affine,
)

if TYPE_CHECKING:
    from frontend_c.nest import NestReader
    from frontend_c.statements import Out

MAX_VALUES = 256  # of an initialiser


def declared(reader: NestReader, b: Binding, ctype: Array, node: Node) -> tuple[LocalArray, list[Out]]:
    """The array of a declaration, and the statements that this stands for; raises ``Refusal``."""
    dims, element = flatten(ctype)
    if isinstance(element, Other):
        raise refuse(element.code, f"`{node.name}` has {element.why}", reader.span(node), help=element.help)
    if not isinstance(element, Value):
        raise reader.unsupported("declaring an array of pointers", node, HELP)
    extents = tuple(_extent(reader, d, node) for d in dims)
    b.name = reader.names.unique(node.name)
    span = reader.span(node)
    array = LocalArray(b.name, element.type, extents, node.name, span)
    out: list[Out] = [Declare(b.name, element.type, None, span)]
    if node.init is None:
        return array, out
    if not isinstance(node.init, c_ast.InitList):
        raise reader.unsupported("this initialiser", node, "assign the elements")
    values = dict(_values(reader, node.init, extents, element.type))
    rest = _zero(element.type)
    if all(repr(v) == repr(rest) for v in values.values()):  # -0.0 is another value
        return array, [*out, _filled(reader, array, rest)]
    if prod(extents) > MAX_VALUES:
        raise reader.unsupported("this initialiser", node, "assign the elements")
    for at in array.elements:
        place = Load(b.name, tuple(Const(k, INT64) for k in at), element.type, span)
        out.append(Assign(place, values.get(at, rest), span))
    return array, out


def _filled(reader: NestReader, array: LocalArray, value: Expr) -> NestStmt:
    """Loops that give all elements a value."""
    names = [reader.names.unique(f"{array.source}_{k}") for k in range(len(array.extents))]
    place = Load(array.name, tuple(Var(n, INT64) for n in names), array.type, array.span)
    out: NestStmt = Assign(place, value, array.span)
    for name, extent in reversed(list(zip(names, array.extents, strict=True))):
        zero, end = Const(0, INT64), Const(extent, INT64)
        out = Loop(name, INT64, zero, end, 1, (out,), name, span=array.span)
    return out


def _extent(reader: NestReader, dim: Node | None, node: Node) -> int:
    size = None if dim is None else as_affine(reader.convert(dim))
    if size is None or not size.is_constant:
        raise reader.unsupported("declaring an array without a constant size", node, HELP)
    if size.const < 1:
        raise refuse("MDH006", f"`{node.name}` has no elements", reader.span(node), help="leave it out")
    return size.const


def _values(
    reader: NestReader, init: Node, extents: Sequence[int], t: Type
) -> Iterator[tuple[tuple[int, ...], Expr]]:
    """The elements that an initialiser names, with or without braces around rows, and their values."""
    inner = prod(extents[1:])
    at = 0  # the element that is next
    for item in init.exprs:
        if isinstance(item, c_ast.NamedInitializer):
            raise reader.unsupported("this designator", item, "give the values in their order")
        if at >= prod(extents):
            raise reader.unsupported("an initialiser with too many values", init, "leave some out")
        if isinstance(item, c_ast.InitList) and len(extents) > 1:
            if at % inner:
                raise reader.unsupported("this initialiser", init, "assign the elements")
            for place, value in _values(reader, item, extents[1:], t):
                yield (at // inner, *place), value
            at += inner
        else:
            rows = [prod(extents[k + 1 :]) for k in range(len(extents))]
            place = tuple(at // row % extent for row, extent in zip(rows, extents, strict=True))
            yield place, reader.initial(item, t, item)
            at += 1


def _zero(t: Type) -> Expr:
    if isinstance(t, ScalarType):
        return Const(0.0 if t.is_float else 0, t)
    return MakeRecord(tuple(_zero(s) for _, s in t.fields), t)
