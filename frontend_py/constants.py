"""The value of an expression that mentions constants only."""

from __future__ import annotations

import ast

from frontend_py.expressions import Expressions
from frontend_py.files import PythonFile, Scope
from frontend_py.operators import Val
from mdh_core.diagnostics import refuse
from mdh_core.expr import Const


class _Constants(Expressions):
    def variable(self, name: str, node: ast.AST) -> Val | None:
        return None


def constant_value(node: ast.expr, scope: Scope, file: PythonFile) -> Val:
    """The constant; a refusal where it is none."""
    val = _Constants(file, scope).convert(node)
    if not isinstance(val.expr, Const):
        raise refuse("MDH006", "this is no constant", file.span(node))
    return val
