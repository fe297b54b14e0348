"""Members of structs around the nest: ``m->n`` is a parameter, ``m->data[i]`` an element of a buffer.

A path ``m->a.b`` from a variable outside is bound as if it were a variable of its own, named ``m_a_b``, if
neither ``m`` nor a member of one of these names is assigned in the nest.  Stores through pointers are the
one other way to change it: where C's aliasing rules allow one to reach a scalar member, that is read from
memory each time (a buffer of rank 0, for which overlap is tested at run time), and a pointer member is
refused.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from frontend_c.c_types import LOCAL_POINTER, Aggregate, Array, CType, Other, Pointer, Value
from frontend_c.expressions import Binding
from frontend_c.parsing import Node, c_ast, c_text, walk_nodes
from lifter.loop_nest import Root
from mdh_core.diagnostics import refuse
from mdh_core.expr import BOOL, RecordType, ScalarType, Type

if TYPE_CHECKING:
    from frontend_c.nest import NestReader


def assigned_members(nest: Node) -> frozenset[str]:
    """Names of members that some statement of the nest assigns, counts or takes the address of."""
    out: set[str] = set()
    for n in walk_nodes(nest):
        if isinstance(n, c_ast.Assignment):
            target = n.lvalue
        elif isinstance(n, c_ast.UnaryOp) and n.op in ("++", "--", "p++", "p--", "&"):
            target = n.expr
        else:
            continue
        if isinstance(target, c_ast.StructRef):
            out.add(target.field.name)
    return frozenset(out)


def member(reader: NestReader, node: Node) -> Binding | None:
    """The binding of a path of members from a variable outside of the nest, or None for other things."""
    steps = _steps(node)
    if steps is None:
        return None
    root, path = steps
    b = reader.visible(root.name)
    if b is None or b.kind != "outer":
        return None
    t: CType | None = b.ctype
    aggregate = False
    for op, name in path:
        if t is None:
            return None
        if op == "->":
            if not isinstance(t, Pointer):
                return None
            t = t.target
        aggregate = aggregate or isinstance(t, Aggregate)
        t = reader.types.member(t, name)
    if t is None:
        return None
    if not aggregate and not _only_read(reader, root.name, path[0][0]):
        return None
    spelling = root.name + "".join(op + name for op, name in path)  # `(*m).n` is `m->n`
    if spelling not in reader.outer:
        reader.outer[spelling] = _bind(reader, spelling, root, path, t, node)
    return reader.outer[spelling]


def cell(reader: NestReader, node: Node) -> Binding | None:
    """The binding of ``*p`` where the nest uses the pointer ``p`` to one integer for nothing else.

    Fortran's arguments look like this in C; as bounds they must be parameters.
    """
    if not isinstance(node.expr, c_ast.ID):
        return None
    b = reader.visible(node.expr.name)
    t = b.ctype.target if b is not None and b.kind == "outer" and isinstance(b.ctype, Pointer) else None
    if b is None or not isinstance(t, Value) or not isinstance(t.type, ScalarType) or not t.type.is_integer:
        return None
    name = node.expr.name
    source = f"*{name}"
    if name in reader.assigned or source in reader.by_memory or not _only_dereferenced(reader, name):
        return None
    if source not in reader.outer:
        reader.outer[source] = Binding(source, "outer", t, storage="param", label=f"{name}_value")
        reader.outer[source].name = reader.names.unique(f"{name}_value")
    return reader.outer[source]


def _only_dereferenced(reader: NestReader, name: str) -> bool:
    """Does the nest read ``*name``, and mention ``name`` nowhere else?"""
    uses = reads = 0
    for n in walk_nodes(reader.nest):
        uses += _is_name(n, name)
        reads += _is_cell(n, name)
        written = isinstance(n, c_ast.Assignment) and _is_cell(n.lvalue, name)
        counted = isinstance(n, c_ast.UnaryOp) and n.op != "*" and _is_cell(n.expr, name)
        if written or counted:
            return False
    return uses == reads


def _is_name(node: Node, name: str) -> bool:
    return isinstance(node, c_ast.ID) and node.name == name


def _is_cell(node: Node, name: str) -> bool:
    return isinstance(node, c_ast.UnaryOp) and node.op == "*" and _is_name(node.expr, name)


def _steps(node: Node) -> tuple[Node, list[tuple[str, str]]] | None:
    """The variable and the members of ``v->a.b``."""
    path: list[tuple[str, str]] = []
    while isinstance(node, c_ast.StructRef):
        op, inner = node.type, node.name
        if op == "." and isinstance(inner, c_ast.UnaryOp) and inner.op == "*":
            op, inner = "->", inner.expr
        path.insert(0, (op, node.field.name))
        node = inner
    return (node, path) if isinstance(node, c_ast.ID) and path else None


def _only_read(reader: NestReader, name: str, op: str) -> bool:
    """Is a struct, or a pointer to one, used for reading members alone (``op``), all over the nest?"""
    uses = [n for n in walk_nodes(reader.nest) if _is_name(n, name)]
    reads = [
        n for n in walk_nodes(reader.nest)
        if isinstance(n, c_ast.StructRef) and n.type == op and _is_name(n.name, name)
        and n.field.name not in reader.assigned_members
    ]  # fmt: skip
    return len(uses) == len(reads) and name not in reader.assigned


def _bind(
    reader: NestReader, spelling: str, root: Node, path: Sequence[tuple[str, str]], t: CType, node: Node
) -> Binding:
    storage = "param" if any(op == "->" for op, _ in path) else "local"
    if isinstance(t, Pointer | Array):
        t = replace(t, restrict=False)
    b = Binding(spelling, "outer", t, storage=storage)
    b.label = "_".join([root.name, *(name for _, name in path)])
    span = reader.span(node)
    if root.name in reader.assigned:
        what = f"`{spelling}` is not the same in the whole nest: `{root.name}` changes"
        b.refusal = refuse("MDH006", what, span, help=LOCAL_POINTER)
        return b
    parts = (
        [name for name, _ in t.type.fields] if isinstance(t, Value) and isinstance(t.type, RecordType) else []
    )
    written = any(name in reader.assigned_members for name in (path[-1][1], *parts))
    inner = any(name in reader.assigned_members for _, name in path[:-1])
    if inner or (written and not isinstance(t, Value | Array)):
        b.refusal = refuse("MDH006", f"`{spelling}` is changed in the nest", span, help=LOCAL_POINTER)
    elif isinstance(t, Value) and (written or spelling in reader.by_memory):
        b.ctype = Pointer(t)
        b.address = f"&{spelling}"
    else:
        b.refusal = reader.objection(b, node)
    return b


def roots(reader: NestReader) -> tuple[Root, ...]:
    """The variables of which the nest uses members, or one value that they point to."""
    found: dict[str, Root] = {}
    for b in list(reader.outer.values()):
        name = _ROOT.match(b.source)
        variable = reader.variable(name[1]) if name is not None and b.label else None
        if variable is not None and variable.name not in found:
            found[variable.name] = Root(variable.name, _declaration(variable.decl))
    return tuple(found.values())


def set_first(reader: NestReader, known: Collection[str]) -> tuple[Root, ...]:
    """The variables from outside that are followed from where the nest sets them; none of those ``known``."""
    found = (b for b in list(reader.outer.values()) if reader.tracker.follows(b) and b.source not in known)
    variables = (reader.variable(b.source) for b in found)
    return tuple(Root(v.name, _declaration(v.decl), unset=True) for v in variables if v is not None)


def _declaration(decl: Node) -> str:
    """Of a variable that can be assigned, and what it points to as well."""
    plain = c_ast.Decl(
        name=decl.name, quals=[], align=[], storage=[], funcspec=[], type=_unqualified(decl.type),
        init=None, bitsize=None,
    )  # fmt: skip
    return c_text(plain)


def _unqualified(t: Node) -> Node:
    if isinstance(t, c_ast.PtrDecl):
        return c_ast.PtrDecl([], _unqualified(t.type))
    if isinstance(t, c_ast.TypeDecl):
        return c_ast.TypeDecl(t.declname, [], t.align, t.type)
    return t


_ROOT = re.compile(r"\*?([A-Za-z_]\w*)(?:(?:->|\.)|$)")


def reachable(t: Type, stored: Type) -> bool:
    """May a store of one type change an object of the other, by C's rules (6.5p7)?"""
    if isinstance(stored, RecordType):
        return any(reachable(t, s) for _, s in stored.fields)
    if isinstance(t, RecordType):
        return any(reachable(s, stored) for _, s in t.fields)
    if stored == BOOL or t == BOOL:
        return stored == t
    if stored.bits == 8:
        return True
    return stored.bits == t.bits and stored.is_float == t.is_float


def pointer_reachable(stored: Type) -> bool:
    """May a store change a pointer object?  Only one of characters."""
    if isinstance(stored, RecordType):
        return any(pointer_reachable(s) for _, s in stored.fields)
    return isinstance(stored, ScalarType) and stored.bits == 8 and stored != BOOL


__all__ = ["Other", "assigned_members", "member", "pointer_reachable", "reachable", "roots"]
