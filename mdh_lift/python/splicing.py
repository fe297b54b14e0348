"""A function with its loops replaced by a call, and the loops behind it for when the call declines.

    def dot(x, y):                          def dot(x, y):
        s = 0.0                                 s = 0.0
        for i in range(len(x)):     =>          mdh_out = mdh_call(locals())
            s += x[i] * y[i]                    if mdh_out is None:
        return s                                    for i in range(len(x)): s += x[i] * y[i]
                                                else:
                                                    s, = mdh_out
                                                return s

The new function has the globals, the closure and the defaults of the old one.
"""

from __future__ import annotations

import ast
import copy
import types
from collections.abc import Callable, Sequence
from typing import Any

from frontend_py.nest import Parts

_CALL, _OUT = "mdh_call_", "mdh_out_"


def with_call(
    function: types.FunctionType, parts: Parts, call: Callable[[dict[str, Any]], tuple[Any, ...] | None],
    results: Sequence[str],
) -> types.FunctionType:  # fmt: skip
    """``call`` gets the variables before the loops; it returns values for ``results``, or None."""
    before, loops, after = (copy.deepcopy(list(x)) for x in (parts.before, parts.loops, parts.after))
    at = parts.loops[0]
    asked = _statements(f"{_OUT} = {_CALL}(locals())", at)
    taken = _statements("".join(f"{name}, " for name in results) + f"= {_OUT}" if results else "pass", at)
    test = ast.Compare(ast.Name(_OUT, ast.Load()), [ast.Is()], [ast.Constant(None)])
    guarded = ast.If(_placed(test, at), loops, taken)
    return _rebuilt(function, parts.node, [*before, *asked, ast.copy_location(guarded, at), *after], call)


def loops_alone(
    function: types.FunctionType, parts: Parts, inputs: Sequence[str], results: Sequence[str]
) -> types.FunctionType:
    """The loops as a function of the variables that they use, returning the values of ``results``."""
    loops = copy.deepcopy(list(parts.loops))
    at = parts.loops[-1]
    back = _statements("return (" + "".join(f"{name}, " for name in results) + ")", at)
    helpers = [
        copy.deepcopy(s) for s in parts.before if isinstance(s, ast.FunctionDef | ast.Import | ast.ImportFrom)
    ]
    node = copy.deepcopy(parts.node)
    node.args = ast.arguments([], [ast.arg(name) for name in inputs], None, [], [], None, [])
    return _rebuilt(function, node, [*helpers, *loops, *back], None)


def _statements(text: str, at: ast.stmt) -> list[ast.stmt]:
    return [_placed(s, at) for s in ast.parse(text).body]


def _placed(node: Any, at: ast.stmt) -> Any:
    for n in ast.walk(node):
        if hasattr(n, "lineno") or isinstance(n, ast.expr | ast.stmt):
            ast.copy_location(n, at)
    return node


def _rebuilt(
    function: types.FunctionType, node: ast.FunctionDef, body: list[ast.stmt], call: Any
) -> types.FunctionType:
    new = copy.copy(node)
    new.args = copy.deepcopy(node.args)
    new.decorator_list, new.returns, new.body = [], None, body
    for a in (*new.args.posonlyargs, *new.args.args, *new.args.kwonlyargs, new.args.vararg, new.args.kwarg):
        if a is not None:
            a.annotation = None
    new.args.defaults = [_placed(ast.Constant(None), body[0]) for _ in new.args.defaults]
    new.args.kw_defaults = [
        None if d is None else _placed(ast.Constant(None), body[0]) for d in new.args.kw_defaults
    ]
    free = function.__code__.co_freevars
    given = ast.arguments([], [ast.arg(n) for n in (_CALL, *free)], None, [], [], None, [])
    outer = ast.FunctionDef(
        name="mdh_outer", args=given, body=[new], decorator_list=[], returns=None, type_comment=None
    )
    if hasattr(outer, "type_params"):
        outer.type_params = []
    module = ast.Module([outer], [])
    ast.copy_location(outer, node)
    ast.fix_missing_locations(module)
    code = compile(module, function.__code__.co_filename, "exec", dont_inherit=True)
    made = next(c for c in _codes(code) if c.co_name == node.name)
    cells = dict(zip(free, function.__closure__ or (), strict=True))
    cells[_CALL] = types.CellType(call)
    closure = tuple(cells[name] for name in made.co_freevars)
    result = types.FunctionType(made, function.__globals__, function.__name__, function.__defaults__, closure)
    result.__kwdefaults__ = function.__kwdefaults__
    result.__doc__, result.__qualname__ = function.__doc__, function.__qualname__
    return result


def _codes(code: types.CodeType) -> list[types.CodeType]:
    outer = next(c for c in code.co_consts if isinstance(c, types.CodeType))
    return [c for c in outer.co_consts if isinstance(c, types.CodeType)]
