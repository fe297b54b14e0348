"""Module-level names of a file, told from its text."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field

from frontend_py.constants import constant_value
from frontend_py.files import (
    Dotted,
    Number,
    PythonFile,
    Record,
    Scope,
    Thing,
    UserFunction,
    dotted,
    library,
    record_type,
)
from mdh_core.diagnostics import Refusal


@dataclass(eq=False)
class FileScope:
    """Module-level names: imports, functions, constants and structured dtypes that are assigned once."""

    file: PythonFile
    _bound: dict[str, list[ast.stmt]] = field(default_factory=dict)
    _known: dict[str, Thing | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for s in self.file.tree.body:
            for name in _binds(s):
                self._bound.setdefault(name, []).append(s)

    def find(self, name: str) -> Thing | None:
        if name not in self._known:
            self._known[name] = None  # while it is being looked up
            self._known[name] = self._find(name)
        return self._known[name]

    def _find(self, name: str) -> Thing | None:
        statements = self._bound.get(name, [])
        if not statements:
            return Dotted(f"builtins.{name}") if name in _BUILTINS else None
        if len(statements) > 1:
            return None
        match statements[0]:
            case ast.Import() | ast.ImportFrom() as found:
                return _imported(found, name)
            case ast.FunctionDef() as node:
                return UserFunction(node, self.file, self)
            case (
                ast.Assign(targets=[ast.Name()], value=value)
                | ast.AnnAssign(target=ast.Name(), value=ast.expr() as value)
            ):
                return self._value(name, value)
            case ast.Assign(targets=[ast.Tuple(elts=items)], value=ast.Tuple(elts=values)) if len(
                items
            ) == len(values):
                for item, value in zip(items, values, strict=True):
                    if isinstance(item, ast.Name) and item.id == name:
                        return self._value(name, value)
        return None

    def _value(self, name: str, node: ast.expr) -> Thing | None:
        record = record_type(name, node, self)
        if record is not None:
            return Record(record)
        thing = dotted(node, self)
        if thing is not None:
            return thing
        try:
            return Number(constant_value(node, self, self.file))
        except Refusal:
            return None


def _binds(s: ast.stmt) -> list[str]:
    """Names that a module-level statement gives a meaning."""
    match s:
        case ast.Import(names=names):
            return [a.asname or a.name.split(".")[0] for a in names]
        case ast.ImportFrom(names=names):
            return [a.asname or a.name for a in names]
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.AsyncFunctionDef(name=name):
            return [name]
        case _:
            return [n.id for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]


@dataclass(eq=False)
class LocalScope:
    """What is defined or imported inside a function, before its loops; then what is around it."""

    file: PythonFile
    around: Scope
    body: Sequence[ast.stmt]

    def find(self, name: str) -> Thing | None:
        for s in self.body:
            match s:
                case ast.FunctionDef(name=defined) if defined == name:
                    return UserFunction(s, self.file, self)
                case ast.Import() | ast.ImportFrom() if name in _binds(s):
                    return _imported(s, name)
        return self.around.find(name)


def _imported(s: ast.Import | ast.ImportFrom, name: str) -> Thing | None:
    if isinstance(s, ast.Import):
        alias = next(a for a in s.names if (a.asname or a.name.split(".")[0]) == name)
        return Dotted(alias.name if alias.asname else name)
    if s.module is None or s.level:
        return None
    alias = next(a for a in s.names if (a.asname or a.name) == name)
    return library(f"{s.module}.{alias.name}")


_BUILTINS = frozenset(
    ("range", "min", "max", "abs", "len", "int", "float", "bool", "pow", "divmod", "sum", "round", "print")
)
