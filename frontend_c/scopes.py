"""Names of C: what is visible at a nest inside its function, and file-level constants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import pairwise

from frontend_c import operators
from frontend_c.expressions import Context, Expressions
from frontend_c.parsing import Node, c_ast, first_token, walk_nodes
from mdh_core.expr import INT32, Const

LocalTypes = Callable[[str, str], Node | None]


@dataclass(eq=False)
class Variable:
    """A declaration outside the nest; ``storage`` is "param", "local", "static" or "global"."""

    name: str
    decl: Node
    storage: str
    order: int  # index of the declaring token


@dataclass(eq=False)
class Surroundings:
    """What is visible at a statement of a function, and whether it may run again."""

    variables: dict[str, Variable] = field(default_factory=dict)
    scopes: list[Node] = field(default_factory=list)  # items that may define types
    repeats: bool = False  # an enclosing loop, or a label before it


def surroundings(function: Node, params: Sequence[Node], nest: Node) -> Surroundings | None:
    """The surroundings of the statement ``nest``, or None where it is not in the function."""
    around = Surroundings()
    for p in params:
        if p.name:
            around.variables[p.name] = Variable(p.name, p, "param", first_token(p) or -1)
    around.repeats = any(isinstance(n, c_ast.Label | c_ast.Case) for n in walk_nodes(function.body))
    path = _path(function.body, nest)
    if path is None:
        return None
    for parent, child in pairwise(path):
        around.repeats = around.repeats or isinstance(parent, c_ast.For | c_ast.While | c_ast.DoWhile)
        for item in _before(parent, child):
            _note(item, around)
    return around


def replaced(tree: Node, target: Node, new: Node) -> Node:
    """A copy of the tree with ``new`` in place of a node; whatever is not above that is shared."""
    for parent in reversed((_path(tree, target) or [])[:-1]):
        copied = copy(parent)
        for slot in (s for s in parent.__slots__ if s not in ("coord", "__weakref__")):
            value = getattr(parent, slot)
            if value is target:
                setattr(copied, slot, new)
            elif isinstance(value, list):
                setattr(copied, slot, [new if item is target else item for item in value])
        target, new = parent, copied
    return new


def _path(node: Node, target: Node) -> list[Node] | None:
    if node is target:
        return [node]
    for _, child in node.children():
        rest = _path(child, target)
        if rest is not None:
            return [node, *rest]
    return None


def _before(parent: Node, child: Node) -> list[Node]:
    """Items of a parent that are in scope for its child."""
    if isinstance(parent, c_ast.Compound):
        items = parent.block_items or []
        return list(items[: next(k for k, item in enumerate(items) if item is child)])
    if isinstance(parent, c_ast.For) and isinstance(parent.init, c_ast.DeclList) and child is parent.stmt:
        return list(parent.init.decls)
    return []


def _note(item: Node, around: Surroundings) -> None:
    around.scopes.append(item)
    if isinstance(item, c_ast.Decl) and item.name and not isinstance(item.type, c_ast.FuncDecl):
        storage = "static" if "static" in (item.storage or []) else "local"
        if "extern" in (item.storage or []):
            storage = "global"
        around.variables[item.name] = Variable(item.name, item, storage, first_token(item) or -1)


# --------------------------------------------------------------------------- what is needed later

_SETS, _READS = "sets", "reads"


def dead_after(function: Node, nest: Node, name: str) -> bool:
    """Is a local variable set anew on every way from the end of the nest to a next use?

    False where that is not plain to see.
    """
    if any(isinstance(n, c_ast.Label | c_ast.Goto) for n in walk_nodes(function.body)):
        return False
    path = _path(function.body, nest) or []
    for parent, child in reversed(list(pairwise(path))):
        if isinstance(parent, c_ast.Compound):
            items = parent.block_items or []
            at = next(k for k, item in enumerate(items) if item is child)
            found = _first_use(items[at + 1 :], name)
            if found is not None:
                return found == _SETS
        elif isinstance(parent, c_ast.For | c_ast.While | c_ast.DoWhile):
            ends = [n for n in (getattr(parent, "next", None), parent.cond) if n is not None]
            if any(_mentions(n, name) for n in ends) or _again(parent.stmt, nest, name) != _SETS:
                return False
        elif not isinstance(parent, c_ast.If):
            return False
    return True


def _again(body: Node, nest: Node, name: str) -> str | None:
    """The first use of a variable in another iteration, up to the nest, which is taken to read it."""
    items = (body.block_items or []) if isinstance(body, c_ast.Compound) else [body]
    for item in items:
        if _path(item, nest) is not None:
            return _READS
        if (found := _use(item, name)) is not None:
            return found
    return _READS


def _first_use(items: Sequence[Node], name: str) -> str | None:
    return next((found for item in items if (found := _use(item, name)) is not None), None)


def _use(node: Node, name: str) -> str | None:
    """What a statement does first with a variable: sets it, perhaps reads it, or nothing."""
    if _escapes(node):
        return _READS
    if not _mentions(node, name):
        return None
    match node:
        case c_ast.Assignment(op="=", lvalue=c_ast.ID(name=target)) if target == name:
            if isinstance(node.rvalue, c_ast.Assignment) and _use(node.rvalue, name) == _SETS:
                return _SETS
            return _READS if _mentions(node.rvalue, name) else _SETS
        case c_ast.Compound():
            return _first_use(node.block_items or [], name)
        case c_ast.ExprList():
            return _first_use(node.exprs, name)
        case c_ast.For() if node.init is not None and not isinstance(node.init, c_ast.DeclList):
            return _SETS if _use(node.init, name) == _SETS else _READS
        case c_ast.If() if not _mentions(node.cond, name):
            found = {_use(n, name) if n is not None else None for n in (node.iftrue, node.iffalse)}
            return _READS if _READS in found else _SETS if found == {_SETS} else None
    return _READS


def _escapes(node: Node, inside: bool = False) -> bool:
    """Does a statement jump out of itself, but not out of the function?"""
    if isinstance(node, c_ast.Break | c_ast.Continue):
        return not inside
    inner = inside or isinstance(node, c_ast.For | c_ast.While | c_ast.DoWhile)
    return any(_escapes(child, inner) for _, child in node.children() if child is not None)


def _mentions(node: Node, name: str) -> bool:
    return any(
        (isinstance(n, c_ast.ID) and n.name == name) or (isinstance(n, c_ast.Decl) and n.name == name)
        for n in walk_nodes(node)
    )


def local_types(items: Sequence[Node]) -> LocalTypes:
    """Finds typedefs, tags and enumerators that are defined below these nodes."""
    found: dict[tuple[str, str], Node] = {}
    for item in items:
        for n in walk_nodes(item):
            if isinstance(n, c_ast.Typedef):
                found["typedef", n.name] = n.type
            elif isinstance(n, c_ast.Struct) and n.decls and n.name:
                found["struct", n.name] = n
            elif isinstance(n, c_ast.Enum) and n.values:
                for e in n.values.enumerators:
                    if isinstance(e, c_ast.Enumerator):
                        found["enum", e.name] = n
    return lambda kind, name: found.get((kind, name))


def enumerator_value(context: Context, name: str, reader: Expressions) -> Const | None:
    """The value of an enumeration constant."""
    enum = context.types.local("enum", name) or context.unit.enumerators(name)
    if enum is None:
        return None
    value = -1
    for e in enum.values.enumerators:
        if not isinstance(e, c_ast.Enumerator):
            continue
        if e.value is None:
            value += 1
        else:
            given = reader.convert(e.value)
            if not isinstance(given, Const):
                return None
            value = int(given.value)
        if e.name == name:
            return Const(value, INT32) if operators.in_range(value, INT32) else None
    return None
