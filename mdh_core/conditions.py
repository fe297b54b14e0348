"""Conditions of C as text: their parts, the names in them, and what affine ones say.

    "(a > 0 && (b > LEAST))"   ->   a > 0,  b > LEAST

``tests/test_assume.py`` compares with what C says.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from itertools import pairwise

from mdh_core.expr import Affine, Constraint, ScalarType
from mdh_core.ir import Param

_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*", re.ASCII)  # not in 0x1F, 1e5, 2.0f, of a member


def conjuncts(text: str) -> list[str]:
    """Conditions without brackets around them that all hold where ``text`` does, and only there."""
    text, depth, cuts = text.strip(), 0, [0]
    for k, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if depth == 0 and (text.startswith("||", k) or c in "?,"):
            return [text]
        if depth == 0 and text.startswith("&&", k):
            cuts.append(k)
        if depth == 0 and c == ")" and k == len(text) - 1 and text[0] == "(" and len(cuts) == 1:
            inner = text[1:-1]
            if _is_balanced(inner):
                return conjuncts(inner)
    if len(cuts) == 1:
        return [text]
    ends = [*cuts[1:], len(text)]
    return [x for a, b in zip(cuts, ends, strict=True) for x in conjuncts(text[a:b].removeprefix("&&"))]


def names_in(text: str) -> set[str]:
    """Identifiers and keywords, without members (``s.n`` has the name ``s``, ``p->n`` has both)."""
    return set(_NAME.findall(text))


def _is_balanced(text: str) -> bool:
    """Whether no bracket closes one that opens before the text."""
    depth = 0
    for c in text:
        depth += (c == "(") - (c == ")")
        if depth < 0:
            return False
    return depth == 0


def assumed(conditions: Sequence[str], params: Sequence[Param]) -> list[Constraint]:
    """The affine comparisons among the conditions of ``assume`` clauses; the others say nothing here.

    The emitted code tests the conditions, so that they may be relied on.
    """
    names = {p.name for p in params if isinstance(p.type, ScalarType) and p.type.is_integer}
    out: list[Constraint] = []
    for text in conditions:
        for part in conjuncts(text):
            try:
                tree = ast.parse(part, mode="eval").body
            except SyntaxError:
                continue
            if isinstance(tree, ast.Compare) and len(tree.ops) == 1:  # `a < b < c` of C is another condition
                values = [_python_affine(e, names) for e in (tree.left, *tree.comparators)]
                for op, (a, b) in zip(tree.ops, pairwise(values), strict=True):
                    if a is not None and b is not None and type(op) in _RELATIONS:
                        out += relation(_RELATIONS[type(op)], a, b)
    return out


_RELATIONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==",
}  # fmt: skip


def _python_affine(e: ast.expr, names: set[str]) -> Affine | None:
    match e:
        case ast.Constant(value=int(value)):
            return Affine.number(value)
        case ast.Name(id=name):
            return Affine.of(name) if name in names else None
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            negated = _python_affine(operand, names)
            return None if negated is None else -negated
        case ast.BinOp(left=left, op=op, right=right):
            a, b = _python_affine(left, names), _python_affine(right, names)
            if a is None or b is None:
                return None
            match op:
                case ast.Add():
                    return a + b
                case ast.Sub():
                    return a - b
                case ast.Mult() if a.is_constant or b.is_constant:
                    return b * a.const if a.is_constant else a * b.const
    return None


def relation(op: str, x: Affine, y: Affine) -> list[Constraint]:
    """The constraint that a comparison is; none for another operator."""
    match op:
        case "<":
            return [Constraint(y - x - 1)]
        case "<=":
            return [Constraint(y - x)]
        case ">":
            return [Constraint(x - y - 1)]
        case ">=":
            return [Constraint(x - y)]
        case "==":
            return [Constraint(x - y, equality=True)]
    return []
