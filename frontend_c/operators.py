"""C's conversions as explicit nodes: building typed expressions from typed operands.

    float x; int i;    x + i * 2.0    becomes    (double)x + (double)i * 2.0

Constants are folded where C's result is beyond doubt: integer arithmetic without overflow, and
casts and signs of constants.
"""

from __future__ import annotations

import re
import struct

from frontend_c.c_types import common, promote
from mdh_core.diagnostics import refuse
from mdh_core.expr import (
    BOOL,
    COMPARISONS,
    DOUBLE,
    FLOAT,
    INT32,
    INT64,
    LOGICAL,
    UINT32,
    UINT64,
    Binary,
    Cast,
    Const,
    Expr,
    RecordType,
    ScalarType,
    Select,
    Unary,
    cut,
)  # fmt: skip
from mdh_core.source import Span

_ESCAPES = {
    "n": 10, "t": 9, "r": 13, "0": 0, "\\": 92, "'": 39, '"': 34, "a": 7, "b": 8, "f": 12, "v": 11, "?": 63,
}  # fmt: skip
_INTEGER = re.compile(r"(0[xX][0-9a-fA-F]+|0[bB][01]+|[0-9]+)([uUlL]*)$")


def constant(text: str, span: Span) -> Const:
    """The value and type of a numeric or character constant."""
    if text.endswith("'"):
        return _character(text, span)
    if found := _INTEGER.match(text):
        return _integer(found[1], found[2].lower(), span)
    suffix = text[-1].lower() if text[-1] in "fFlL" and not re.match(r"0[xX][^.pP]*$", text) else ""
    digits = text[:-1] if suffix else text
    try:
        value = float.fromhex(digits) if digits[:2].lower() == "0x" else float(digits)
    except (ValueError, OverflowError):
        raise refuse("MDH006", f"constant `{text}` is not supported", span) from None
    return Const(as_float(value), FLOAT) if suffix == "f" else Const(value, DOUBLE)


def _character(text: str, span: Span) -> Const:
    found = re.match(r"'(?:\\([xX])([0-9a-fA-F]+)|\\([0-7]{1,3})|\\(.)|([^\\]))'$", text)
    if found is None:
        raise refuse("MDH006", f"character constant `{text}` is not supported", span)
    _, digits, octal, escape, plain = found.groups()
    if digits or octal:
        return Const(_wrap(int(digits or octal, 16 if digits else 8), 8, True), INT32)
    return Const(ord(plain) if plain else _ESCAPES.get(escape, ord(escape)), INT32)


def _integer(digits: str, suffix: str, span: Span) -> Const:
    decimal = not digits.startswith("0") or digits == "0"
    prefix = digits[:2].lower()
    value = int(digits, 16 if prefix == "0x" else 2 if prefix == "0b" else 10 if decimal else 8)
    for t in (INT32, UINT32, INT64, UINT64):
        wide_enough = t.bits == 64 or "l" not in suffix
        sign_fits = not t.is_signed if "u" in suffix else t.is_signed or not decimal
        if wide_enough and sign_fits and in_range(value, t):
            return Const(value, t)
    raise refuse("MDH006", f"constant `{digits}` does not fit a 64-bit integer", span)


def as_float(value: float) -> float:
    """The nearest value of C type ``float``."""
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def in_range(value: int, t: ScalarType) -> bool:
    low = -(1 << t.bits - 1) if t.is_signed else 0
    return low <= value < low + (1 << t.bits)


def _wrap(value: int, bits: int, signed: bool) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if signed and value >> bits - 1 else value


def cast(e: Expr, t: ScalarType, span: Span) -> Expr:
    """``e`` converted to ``t``; no node where it has that type already."""
    if e.type == t:
        return e
    if isinstance(e.type, RecordType):
        raise refuse("MDH006", f"a value of type `{e.type}` is used as a number", span)
    if isinstance(e, Const) and (folded := _cast_constant(e, t)) is not None:
        return folded
    return cut(e, t)


def _cast_constant(e: Const, t: ScalarType) -> Const | None:
    if t == BOOL:
        return Const(int(e.value != 0), t)
    if t.is_float:
        return Const(as_float(float(e.value)) if t == FLOAT else float(e.value), t)
    if isinstance(e.value, int):
        return Const(_wrap(e.value, t.bits, t.is_signed), t)
    return Const(int(e.value), t) if abs(e.value) < 2**31 else None


def scalar(e: Expr, span: Span) -> ScalarType:
    """The type of an operand, which must be a number."""
    if isinstance(e.type, RecordType):
        raise refuse("MDH006", f"a value of type `{e.type}` is used as a number", span)
    return e.type


def truth(e: Expr, span: Span) -> Expr:
    """``e`` as a condition, which is an ``INT32``."""
    t = scalar(e, span)
    return e if t == INT32 else binary("!=", e, Const(0.0 if t.is_float else 0, t), span)


def unary(op: str, a: Expr, span: Span) -> Expr:
    t = scalar(a, span)
    if op == "!":
        if t == INT32:
            return Unary("!", a, INT32)
        return binary("==", a, Const(0.0 if t.is_float else 0, t), span)
    if op == "~" and t.is_float:
        raise refuse("MDH006", "`~` needs an integer", span)
    t = promote(t)
    a = cast(a, t, span)
    if op == "+":
        return a
    if op == "-" and isinstance(a, Const) and (t.is_float or (t.is_signed and in_range(-int(a.value), t))):
        return Const(-a.value, t)
    return Unary(op, a, t)


def binary(op: str, a: Expr, b: Expr, span: Span) -> Expr:
    """``a op b`` with the usual arithmetic conversions."""
    if op in LOGICAL:
        return Binary(op, truth(a, span), truth(b, span), INT32)
    s, t = scalar(a, span), scalar(b, span)
    if op in ("%", "&", "|", "^", "<<", ">>") and (s.is_float or t.is_float):
        raise refuse("MDH006", f"`{op}` needs integers", span)
    if op in ("<<", ">>"):
        a, b = cast(a, promote(s), span), cast(b, promote(t), span)
        return _fold(op, a, b, promote(s))
    both = common(s, t)
    a, b = cast(a, both, span), cast(b, both, span)
    return _fold(op, a, b, INT32 if op in COMPARISONS else both)


def _fold(op: str, a: Expr, b: Expr, t: ScalarType) -> Expr:
    if (
        isinstance(a, Const)
        and isinstance(b, Const)
        and isinstance(a.value, int)
        and isinstance(b.value, int)
    ):
        value = _integer_result(op, a.value, b.value, t)
        if value is not None:
            return Const(value, t)
    return Binary(op, a, b, t)


def _integer_result(op: str, x: int, y: int, t: ScalarType) -> int | None:
    """C's result of integer arithmetic, or None where it overflows or is undefined."""
    if (op in ("/", "%") and y == 0) or (op in ("<<", ">>") and not 0 <= y < t.bits):
        return None
    if op in ("<<", ">>") and x < 0:
        return None
    quotient = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1) if op in ("/", "%") else 0
    results = {
        "+": x + y, "-": x - y, "*": x * y, "/": quotient, "%": x - quotient * y, "&": x & y, "|": x | y,
        "^": x ^ y, "<<": x << y if op == "<<" else 0, ">>": x >> y if op == ">>" else 0, "<": x < y,
        "<=": x <= y, ">": x > y, ">=": x >= y, "==": x == y, "!=": x != y,
    }  # fmt: skip
    value = int(results[op])
    if t.is_signed:
        return value if in_range(value, t) else None
    return _wrap(value, t.bits, False)


def select(cond: Expr, then: Expr, other: Expr, span: Span) -> Expr:
    if isinstance(then.type, RecordType) or isinstance(other.type, RecordType):
        if then.type != other.type:
            raise refuse("MDH006", "the branches of `?:` have different types", span)
        return Select(truth(cond, span), then, other, then.type)
    t = common(then.type, other.type)
    return Select(truth(cond, span), cast(then, t, span), cast(other, t, span), t)


def plus(e: Expr, c: int) -> Expr:
    """``e + c`` as simple as it can be written: ``n - 1`` plus 1 is ``n``."""
    if isinstance(e, Const):
        return Const(int(e.value) + c, e.type)
    assert isinstance(e.type, ScalarType)
    if isinstance(e, Binary) and e.op in "+-" and isinstance(e.b, Const):
        total = (int(e.b.value) if e.op == "+" else -int(e.b.value)) + c
        return plus(e.a, total)
    if c == 0:
        return e
    t = promote(e.type)
    wide: Expr = e if e.type == t else Cast(e, t)
    return Binary("+" if c > 0 else "-", wide, Const(abs(c), t), t)
