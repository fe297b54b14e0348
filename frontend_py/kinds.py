"""What a Python value is: its element type, and whether it is a plain Python number.

    kind  ::= Scalar(type, weak) | Array(element, extents, restrict)

A *weak* number is Python's own ``int``, ``float`` or ``bool``.  It takes the type of the NumPy value that it
meets (``a32[i] * 0.5`` is a ``float32``), as NumPy 2 has it (NEP 50); alone it is an ``int64`` or a
``double``.

    int8 + int8       int8            (wraps)          int32 + float32     double
    int32 + int64     int64                            int16 + float32     float
    float32 + 0.5     float32                          int32 + 0.5         double
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from mdh_core.expr import (
    BOOL,
    DOUBLE,
    FLOAT,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    RecordType,
    ScalarType,
    Type,
)

# NumPy's names of types, those of fixed width first: they are the ones that are printed
NUMPY_TYPES: dict[str, ScalarType] = {
    "float32": FLOAT, "float64": DOUBLE, "int8": INT8, "int16": INT16, "int32": INT32, "int64": INT64,
    "uint8": UINT8, "uint16": UINT16, "uint32": UINT32, "uint64": UINT64, "bool_": BOOL,
    "single": FLOAT, "double": DOUBLE, "byte": INT8, "short": INT16, "intc": INT32, "int_": INT64,
    "intp": INT64, "longlong": INT64, "ubyte": UINT8, "ushort": UINT16, "uintc": UINT32, "uint": UINT64,
    "uintp": UINT64, "ulonglong": UINT64, "bool": BOOL,
}  # fmt: skip
_NAMES = {t: name for name, t in reversed(NUMPY_TYPES.items())}
_NAMES[BOOL] = "bool"


def numpy_name(t: Type) -> str:
    """``float32`` for ``FLOAT``."""
    return t.name if isinstance(t, RecordType) else _NAMES[t]


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number or a record; ``weak``: a plain Python number, ``truth``: the result of a comparison."""

    type: Type
    weak: bool = False
    truth: bool = False

    def __str__(self) -> str:
        if self.weak and isinstance(self.type, ScalarType):
            return "float" if self.type.is_float else "int"
        return numpy_name(self.type)


PYTHON_INT = Scalar(INT64, weak=True)
PYTHON_FLOAT = Scalar(DOUBLE, weak=True)


@dataclass(frozen=True, slots=True)
class Array:
    """``extents``: one expression per dimension, None where nothing is declared; None: rank not known."""

    element: Type
    extents: tuple[ast.expr | None, ...] | None = None
    restrict: bool = False

    @staticmethod
    def of(element: Type, rank: int) -> Array:
        return Array(element, (None,) * rank)


Kind = Scalar | Array


# --------------------------------------------------------------------------- NumPy's promotion


def promoted(a: ScalarType, b: ScalarType) -> ScalarType | None:
    """NumPy's type of arithmetic on two values that both have a type of their own.

    >>> str(promoted(INT16, FLOAT)), str(promoted(INT32, FLOAT)), str(promoted(UINT32, INT32))
    ('float', 'double', 'int64')
    """
    if a == b:
        return a
    if BOOL in (a, b):
        return a if b == BOOL else b
    if a.is_float or b.is_float:
        if a.is_float and b.is_float:
            return DOUBLE
        real, integer = (a, b) if a.is_float else (b, a)
        return FLOAT if real == FLOAT and integer.bits <= 16 else DOUBLE
    if a.is_signed == b.is_signed:
        return a if a.bits > b.bits else b
    signed, unsigned = (a, b) if a.is_signed else (b, a)
    if signed.bits > unsigned.bits:
        return signed
    return {8: INT16, 16: INT32, 32: INT64}.get(unsigned.bits, DOUBLE)


def holds(wide: ScalarType, t: ScalarType) -> bool:
    """Has every value of ``t`` an equal one in ``wide``?

    >>> holds(INT32, UINT16), holds(DOUBLE, INT32), holds(FLOAT, INT32)
    (True, True, False)
    """
    if wide == t or t == BOOL:
        return True
    if wide.is_float:
        digits = 53 if wide == DOUBLE else 24
        return t == FLOAT if t.is_float else t.bits - t.is_signed <= digits
    if t.is_float or wide == BOOL:
        return False
    if wide.is_signed == t.is_signed:
        return wide.bits >= t.bits
    return wide.is_signed and wide.bits > t.bits


def join(a: Scalar, b: Scalar) -> Scalar | None:
    """The kind of a variable that holds values of both kinds; None where no type holds both.

    A plain Python number takes the other's type; types of NumPy widen.
    """
    if a == b:
        return a
    s, t = a.type, b.type
    if isinstance(s, RecordType) or isinstance(t, RecordType):
        return a if s == t else None
    if a.truth and b.truth:
        return Scalar(BOOL, a.weak and b.weak, True)
    if a.weak and b.weak:
        return _weak_join(a, b, s, t)
    if a.weak or b.weak:
        soft, firm = (s, b) if a.weak else (t, a)
        assert isinstance(firm.type, ScalarType)
        if soft.is_float and not firm.type.is_float:
            return Scalar(DOUBLE) if holds(DOUBLE, firm.type) else None
        return Scalar(INT64) if firm.type == BOOL else firm
    if holds(s, t) or holds(t, s):
        return Scalar(s if holds(s, t) else t)
    both = promoted(s, t)
    return Scalar(both) if both is not None and holds(both, s) and holds(both, t) else None


def _weak_join(a: Scalar, b: Scalar, s: ScalarType, t: ScalarType) -> Scalar | None:
    if s.is_float or t.is_float:
        return PYTHON_FLOAT
    if s.kind != t.kind:
        return PYTHON_INT
    return Scalar(s if s.bits > t.bits else t if t.bits > s.bits else s, weak=True)
