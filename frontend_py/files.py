"""A Python file: its tree, the bytes of its nodes, and what its names stand for outside of functions.

    thing ::= Dotted(name) | Number(value, kind) | Record(type) | UserFunction(node, file, scope)

A ``Scope`` finds what a name stands for around a function.  ``FileScope`` reads the file and runs nothing;
the decorator has one that looks at the living objects.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Protocol

from frontend_py.kinds import NUMPY_TYPES
from frontend_py.operators import Val, as_float, constant, wrapped
from mdh_core.diagnostics import refuse
from mdh_core.expr import Const, RecordType, ScalarType
from mdh_core.source import NO_SPAN, SourceFile, Span

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Dotted:
    """Something of a library, by its full name: ``numpy.float32``, ``math``, ``builtins.max``."""

    name: str


@dataclass(frozen=True, slots=True)
class Number:
    """A constant."""

    val: Val


@dataclass(frozen=True, slots=True)
class Record:
    """A structured dtype."""

    type: RecordType


@dataclass(frozen=True, eq=False)
class UserFunction:
    node: ast.FunctionDef
    file: PythonFile
    scope: Scope


Thing = Dotted | Number | Record | UserFunction


class Scope(Protocol):
    def find(self, name: str) -> Thing | None:
        """What a name stands for that is no variable of the function; None where nobody knows."""


class PythonFile:
    """A parsed file; raises a ``Refusal`` (MDH003) where Python itself would not read it."""

    def __init__(self, source: SourceFile) -> None:
        self.source = source
        self._lines = _line_starts(source.data)
        try:
            self.tree = ast.parse(source.data, source.path)
        except SyntaxError as error:
            raise refuse(
                "MDH003",
                f"the file is no Python: {error.msg}",
                self._line(error.lineno or 1),
                file=source.path,
            ) from None
        except ValueError as error:  # a null byte
            raise refuse("MDH003", f"the file is no Python: {error}", file=source.path) from None

    def _line(self, line: int) -> Span:
        line = min(line, self.source.line_count)
        return self.source.line_span(line)

    def span(self, node: ast.AST) -> Span:
        """The bytes of a node."""
        first, last = getattr(node, "lineno", None), getattr(node, "end_lineno", None)
        if first is None or last is None:
            return NO_SPAN
        size = len(self.source.data)
        start = min(size, self._offset(first, node.col_offset))  # type: ignore[attr-defined]
        end = min(size, self._offset(last, node.end_col_offset))  # type: ignore[attr-defined]
        return Span(start, max(start, end))

    def head(self, node: ast.stmt) -> Span:
        """The key word that a statement starts with."""
        start = self.span(node).start
        found = re.match(rb"\w+", self.source.data[start:])
        return Span(start, start + len(found[0])) if found else self.span(node)

    def _offset(self, line: int, column: int) -> int:
        if line > len(self._lines):
            return len(self.source.data)
        bom = len(_BOM) if line == 1 and self.source.data.startswith(_BOM) else 0
        return self._lines[line - 1] + column + bom


def _line_starts(data: bytes) -> list[int]:
    r"""Offsets of lines as Python counts them: ``\n``, ``\r\n`` and ``\r`` end one."""
    return [0, *(m.end() for m in re.finditer(rb"\r\n|\n|\r", data))]


# --------------------------------------------------------------------------- names of libraries


def dotted(node: ast.expr, scope: Scope) -> Thing | None:
    """What ``np.float32`` or a plain name stands for."""
    if isinstance(node, ast.Name):
        return scope.find(node.id)
    if isinstance(node, ast.Attribute):
        base = dotted(node.value, scope)
        if isinstance(base, Dotted):
            return library(f"{base.name}.{node.attr}")
    return None


def library(name: str) -> Thing:
    """Constants of a library as numbers, everything else by name."""
    module, _, last = name.rpartition(".")
    if module in ("math", "numpy") and last in LIBRARY_CONSTANTS:
        return Number(constant(LIBRARY_CONSTANTS[last], NO_SPAN))
    return Dotted(name)


LIBRARY_CONSTANTS = {
    "pi": 3.141592653589793, "e": 2.718281828459045, "tau": 6.283185307179586, "inf": float("inf"),
    "nan": float("nan"),
}  # fmt: skip


# --------------------------------------------------------------------------- types in expressions


def scalar_type(node: ast.expr, scope: Scope) -> ScalarType | None:
    """``np.float32``, ``float32`` or ``"float32"`` where a type is meant."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return NUMPY_TYPES.get(node.value)
    thing = dotted(node, scope)
    if isinstance(thing, Dotted) and thing.name.rpartition(".")[0] in _TYPE_MODULES:
        return NUMPY_TYPES.get(thing.name.rpartition(".")[2])
    return None


_TYPE_MODULES = ("numpy", "mdh_lift", "mdh_lift.python", "numpy.typing")


def record_type(name: str, node: ast.expr, scope: Scope) -> RecordType | None:
    """``np.dtype([("re", np.float64), ("im", np.float64)], align=True)`` as a record called ``name``.

    ``metadata={"c_type": "struct range"}`` gives it the name that C has for it.
    """
    if not isinstance(node, ast.Call) or not node.args or not isinstance(node.args[0], ast.List):
        return None
    callee = dotted(node.func, scope)
    if callee != Dotted("numpy.dtype"):
        return None
    options = {k.arg: k.value for k in node.keywords}
    fields: list[tuple[str, ScalarType]] = []
    for item in node.args[0].elts:
        if not isinstance(item, ast.Tuple) or len(item.elts) != 2:
            return None
        field_name, t = item.elts
        found = scalar_type(t, scope)
        if found is None or not isinstance(field_name, ast.Constant) or not isinstance(field_name.value, str):
            return None
        fields.append((field_name.value, found))
    aligned = options.get("align")
    if not (isinstance(aligned, ast.Constant) and aligned.value is True) and len({t for _, t in fields}) > 1:
        return None
    return RecordType(_c_name(options.get("metadata"), name), tuple(fields))


def _c_name(metadata: ast.expr | None, name: str) -> str:
    if isinstance(metadata, ast.Dict):
        for key, value in zip(metadata.keys, metadata.values, strict=True):
            if isinstance(key, ast.Constant) and key.value == "c_type" and isinstance(value, ast.Constant):
                return str(value.value)
    return name


def as_number(value: object, t: ScalarType) -> Number:
    """A NumPy scalar of type ``t``."""
    assert isinstance(value, int | float)
    if t.is_float:
        return Number(Val(Const(as_float(float(value)) if t.bits == 32 else float(value), t)))
    return Number(Val(Const(wrapped(int(value), t), t)))
