"""What names mean to a living function: its closure, its module, the built-in names.

The front end reads text; what constants, types and functions the text refers to is looked up here.  Constants
that were looked up are remembered: a kernel is valid as long as they are the same.
"""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import linecache
import types
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from frontend_py.files import Dotted, Number, PythonFile, Record, Thing, UserFunction, as_number, library
from frontend_py.kinds import NUMPY_TYPES, PYTHON_FLOAT, PYTHON_INT, Array, Kind, Scalar
from frontend_py.operators import constant, in_range
from mdh_core.diagnostics import Refusal
from mdh_core.expr import BOOL, INT64, UINT64, RecordType, ScalarType, Type
from mdh_core.source import NO_SPAN, SourceFile

_BUILTINS = (
    "range",
    "min",
    "max",
    "abs",
    "len",
    "int",
    "float",
    "bool",
    "pow",
    "divmod",
    "sum",
    "round",
    "print",
)
_FILES: dict[tuple[str, int], PythonFile] = {}


class NoSource(Exception):  # noqa: N818 - an answer, not an error of ours
    """The text of a function cannot be found."""


def source_of(function: types.FunctionType) -> tuple[PythonFile, ast.FunctionDef]:
    """The file of a function, and the function in it."""
    path = inspect.getsourcefile(function) or ""
    lines = linecache.getlines(path, function.__globals__)
    if not lines:
        raise NoSource(f"the text of `{function.__name__}` is not available")
    text = "".join(lines)
    key = (path, hash(text))
    if key not in _FILES:
        try:
            _FILES[key] = PythonFile(SourceFile(path, text.encode("utf-8", "surrogateescape")))
        except Refusal as refusal:
            raise NoSource(refusal.diagnostic.message) from None
    first = function.__code__.co_firstlineno
    for node in ast.walk(_FILES[key].tree):
        if isinstance(node, ast.FunctionDef) and node.name == function.__code__.co_name:
            start = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            if start == first:
                return _FILES[key], node
    raise NoSource(f"the text of `{function.__name__}` has changed since it was loaded")


# --------------------------------------------------------------------------- types


@dataclass(eq=False)
class Records:
    """Structured dtypes and the names that they have in C."""

    names: dict[np.dtype[Any], str] = field(default_factory=dict)

    def record(self, dtype: np.dtype[Any], name: str = "") -> RecordType | None:
        """None where the fields do not lie as in a C struct, or are no numbers."""
        fields: list[tuple[str, ScalarType]] = []
        offset, alignment = 0, 1
        described: Any = dtype.fields
        for field_name in dtype.names or ():
            inner, at = described[field_name][:2]
            t = scalar_of(inner)
            if t is None or not field_name.isidentifier():
                return None
            offset = -(-offset // t.size) * t.size
            if at != offset:
                return None
            offset += t.size
            alignment = max(alignment, t.size)
            fields.append((field_name, t))
        if not fields or dtype.itemsize != -(-offset // alignment) * alignment:
            return None
        if dtype not in self.names:
            metadata: dict[str, Any] = dict(dtype.metadata or {})
            given = metadata.get("c_type") or name or f"mdh_record_{len(self.names)}"
            self.names[dtype] = str(given)
        return RecordType(self.names[dtype], tuple(fields))


@functools.cache
def scalar_of(dtype: np.dtype[Any]) -> ScalarType | None:
    """The scalar type of a plain, native dtype."""
    if dtype.fields is not None or not dtype.isnative or dtype.subdtype is not None:
        return None
    return NUMPY_TYPES.get("bool" if dtype.kind == "b" else dtype.name)


def type_of(dtype: np.dtype[Any], records: Records) -> Type | None:
    return records.record(dtype) if dtype.fields is not None else scalar_of(dtype)


def kind_of_value(value: object, records: Records) -> Kind | None:
    """The kind of a value at a call; None where the front end has no word for it."""
    if isinstance(value, np.ndarray):
        t = type_of(value.dtype, records)
        return None if t is None else Array.of(t, value.ndim)
    if isinstance(value, np.generic):
        t = type_of(value.dtype, records)
        return None if t is None else Scalar(t)
    if isinstance(value, bool):
        return Scalar(BOOL, weak=True, truth=True)
    if isinstance(value, int):
        return (
            PYTHON_INT
            if in_range(value, INT64)
            else Scalar(UINT64, weak=True)
            if in_range(value, UINT64)
            else None
        )
    return PYTHON_FLOAT if isinstance(value, float) else None


def sort_of_value(value: object) -> tuple[object, ...]:
    """Equal for values of equal kinds, and quicker to tell."""
    if isinstance(value, np.ndarray):
        return (value.dtype, value.ndim)
    if isinstance(value, np.generic):
        return (value.dtype,)
    if isinstance(value, int):
        return (type(value), value.bit_length() <= 63, value < 0)
    return (type(value),)


# --------------------------------------------------------------------------- names


class RuntimeScope:
    """Names of one function."""

    def __init__(self, function: types.FunctionType, file: PythonFile, records: Records) -> None:
        self.function, self.file, self.records = function, file, records
        self.constants: dict[str, object] = {}  # what the meaning of the text depends on
        self.inner: dict[str, RuntimeScope] = {}

    def value(self, name: str) -> tuple[bool, object]:
        """Whether the name has a value now, and the value."""
        free = self.function.__code__.co_freevars
        if name in free:
            try:
                return True, (self.function.__closure__ or ())[free.index(name)].cell_contents
            except ValueError:
                return False, None
        for space in (self.function.__globals__, vars(builtins)):
            if name in space:
                return True, space[name]
        return False, None

    def find(self, name: str) -> Thing | None:
        known, value = self.value(name)
        if not known:
            return None
        self.constants[name] = value
        return self.thing(name, value)

    def thing(self, name: str, value: object) -> Thing | None:
        if isinstance(value, bool | int | float) and not isinstance(value, np.generic):
            try:
                return Number(constant(value, NO_SPAN))
            except Refusal:
                return None
        if isinstance(value, np.generic) and value.dtype.fields is None:
            t = scalar_of(value.dtype)
            return None if t is None else as_number(value.item(), t)
        if isinstance(value, np.dtype):
            record = self.records.record(value, name)
            return None if record is None else Record(record)
        if isinstance(value, types.FunctionType):
            own = _of_ours(value)
            if own is not None:
                return own
            try:
                file, node = source_of(value)
            except NoSource:
                return None
            scope = self.inner.setdefault(name, RuntimeScope(value, file, self.records))
            return UserFunction(node, file, scope)
        return _library_thing(value)

    def unchanged(self) -> bool:
        """Do the names still mean what they meant?"""
        for name, old in self.constants.items():
            known, value = self.value(name)
            if not known or not (value is old or (type(value) is type(old) and _same(value, old))):
                return False
        return all(scope.unchanged() for scope in self.inner.values())


def _same(a: object, b: object) -> bool:
    plain = bool | int | float | np.generic | np.dtype
    return isinstance(a, plain) and bool(a == b)


def _of_ours(value: types.FunctionType) -> Thing | None:
    if value.__module__.startswith("mdh_lift.python"):
        return Dotted(f"mdh_lift.{value.__name__}")
    return None


def _library_thing(value: object) -> Thing | None:
    if isinstance(value, types.ModuleType):
        return Dotted(value.__name__)
    if isinstance(value, type):
        if issubclass(value, np.generic):
            if value is np.void:
                return Dotted("numpy.void")
            try:
                return Dotted(f"numpy.{np.dtype(value).name}")
            except TypeError:
                return None
        if value is np.dtype:
            return Dotted("numpy.dtype")
        if value.__module__ == "builtins" and value.__name__ in _BUILTINS:
            return Dotted(f"builtins.{value.__name__}")
        return Dotted(f"numba.{value.__name__}") if value.__module__.startswith("numba") else None
    if isinstance(value, np.ufunc):
        return Dotted(f"numpy.{value.__name__}")
    module, word = getattr(value, "__module__", None), getattr(value, "__name__", "")
    if module in ("builtins", "math") or (module == "numpy" and callable(value)):
        return library(f"{module}.{word}")
    return None
