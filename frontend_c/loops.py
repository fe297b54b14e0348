"""The head of a counted ``for``: iterator, bounds, step.

for (i = n - 1, s = 0; 0 <= i; i -= 2)   ->  Head(i, lower=n - 1, bound=0, op=">=", step=-2), s = 0 before
"""

from __future__ import annotations

from dataclasses import dataclass, field

from frontend_c.expressions import Expressions
from frontend_c.parsing import Node, c_ast, walk_nodes
from frontend_c.statements import assigned_names
from mdh_core.diagnostics import Refusal, refuse
from mdh_core.expr import Const

_MIRRORED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "!=": "!="}
_HELP = "write it as `for (i = lo; i < hi; i += c)` with a constant `c`"


@dataclass(eq=False)
class Head:
    """Syntax only: nodes of a counted loop, turned so that the iterator is on the left of ``op``."""

    iterator: str
    lower: Node
    op: str
    bound: Node
    step: int
    declared: Node | None = None  # where the head declares the iterator
    before: list[Node] = field(default_factory=list)  # rest of the initialisation
    after: list[Node] = field(default_factory=list)  # rest of the step


def head(reader: Expressions, node: Node) -> Head:
    """The counted form of a loop; a refusal with MDH210 says what is not of that form."""
    if node.cond is None:
        raise _refusal(reader, "loop has no condition", node, whole=True)
    steps = _parts(node.next)
    counted = {name: n for n in steps if (name := _stepped(n))}
    iterator, op, bound = _condition(reader, node.cond, counted)
    step = _step(reader, counted[iterator])
    lower, declared, before = _initial(reader, node, iterator)
    _check(reader, node, iterator, op, bound, step)
    after = [n for n in steps if n is not counted[iterator]]
    return Head(iterator, lower, op, bound, step, declared, before, after)


def _refusal(reader: Expressions, message: str, node: Node, whole: bool = False) -> Refusal:
    span = reader.context.head(node) if whole else reader.span(node)
    return refuse("MDH210", message, span, help=_HELP)


def _parts(node: Node | None) -> list[Node]:
    if node is None:
        return []
    return list(node.exprs) if isinstance(node, c_ast.ExprList) else [node]


def _stepped(node: Node) -> str:
    """The variable that a step expression changes."""
    if isinstance(node, c_ast.UnaryOp) and node.op in ("++", "--", "p++", "p--"):
        return node.expr.name if isinstance(node.expr, c_ast.ID) else ""
    if isinstance(node, c_ast.Assignment) and isinstance(node.lvalue, c_ast.ID):
        return str(node.lvalue.name)
    return ""


def _condition(reader: Expressions, cond: Node, counted: dict[str, Node]) -> tuple[str, str, Node]:
    """Iterator, operator and bound of ``i < n`` or ``n > i``."""
    if isinstance(cond, c_ast.BinaryOp) and cond.op in _MIRRORED:
        left, right = _uncast(cond.left), _uncast(cond.right)
        if isinstance(left, c_ast.ID) and left.name in counted:
            return left.name, cond.op, cond.right
        if isinstance(right, c_ast.ID) and right.name in counted:
            return right.name, _MIRRORED[cond.op], cond.left
    raise _refusal(reader, "condition does not compare the iterator with a bound", cond)


def _uncast(node: Node) -> Node:
    while isinstance(node, c_ast.Cast):
        node = node.expr
    return node


def _step(reader: Expressions, node: Node) -> int:
    """The constant that is added to the iterator."""
    if isinstance(node, c_ast.UnaryOp):
        return 1 if "+" in node.op else -1
    name, value = node.lvalue.name, node.rvalue
    sign = -1 if node.op == "-=" else 1
    if node.op == "=" and isinstance(value, c_ast.BinaryOp) and value.op in ("+", "-"):
        sign = 1 if value.op == "+" else -1
        left, right = value.left, value.right
        if isinstance(left, c_ast.ID) and left.name == name:
            value = right
        elif value.op == "+" and isinstance(right, c_ast.ID) and right.name == name:
            value = left
        else:
            raise _refusal(reader, "step is not constant", node)
    elif node.op not in ("+=", "-="):
        raise _refusal(reader, "step is not constant", node)
    amount = reader.convert(value)
    if not isinstance(amount, Const) or not isinstance(amount.value, int) or not amount.value:
        raise _refusal(reader, "step is not constant", node)
    return sign * amount.value


def _initial(reader: Expressions, node: Node, iterator: str) -> tuple[Node, Node | None, list[Node]]:
    """Initial value of the iterator, its declaration in the head, and what else is initialised."""
    parts = list(node.init.decls) if isinstance(node.init, c_ast.DeclList) else _parts(node.init)
    for n in parts:
        rest = [m for m in parts if m is not n]
        if isinstance(n, c_ast.Decl) and n.name == iterator and n.init is not None:
            return n.init, n, rest
        if isinstance(n, c_ast.Assignment) and n.op == "=" and _stepped(n) == iterator:
            return n.rvalue, None, rest
    raise _refusal(reader, f"loop does not set its iterator `{iterator}`", node, whole=True)


def _check(reader: Expressions, node: Node, iterator: str, op: str, bound: Node, step: int) -> None:
    if op == "!=" and abs(step) != 1:
        raise _refusal(reader, "`!=` with a step other than 1 may never hold", node.cond)
    if op != "!=" and (op in ("<", "<=")) != (step > 0):
        raise _refusal(reader, "step leads away from the bound", node.next)
    for where in (node.stmt, bound):
        tokens = assigned_names(where).get(iterator) if not _redeclares(where, iterator) else None
        if tokens:
            span = reader.context.positions.span(tokens[0], tokens[0])
            raise refuse("MDH210", f"iterator `{iterator}` is assigned in its loop", span)
    named = {n.name for n in walk_nodes(bound) if isinstance(n, c_ast.ID)}
    if iterator in named:
        raise _refusal(reader, "bound depends on the loop's own iterator", bound)
    changed = sorted(n for n in named & assigned_names(node.stmt).keys() if not _redeclares(node.stmt, n))
    if changed:
        what = f"bound depends on `{changed[0]}`, which the loop changes"
        raise refuse(
            "MDH202", what, reader.span(bound), help="copy the bound into a variable before the nest"
        )


def _redeclares(node: Node, name: str) -> bool:
    return any(isinstance(n, c_ast.Decl) and n.name == name for n in walk_nodes(node))


def leaves(node: Node) -> Node | None:
    """A ``break`` or ``continue`` that belongs to this loop, if there is one."""
    for _, child in node.children():
        if isinstance(child, c_ast.Break | c_ast.Continue):
            return child  # of this loop: those of inner loops are not looked at
        if isinstance(child, c_ast.For | c_ast.While | c_ast.DoWhile | c_ast.Switch):
            continue
        found = leaves(child)
        if found is not None:
            return found
    return None
