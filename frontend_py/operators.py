"""Typed expressions from typed operands, with the conversions that NumPy would make.

A ``Val`` is an expression and what Python knows about its value.  Values narrower than 32 bits are computed
in ``int32`` and brought back, as NumPy's wrap-around demands and C does:

    a8[i] + b8[i]      (int8)((int32)a8[i] + (int32)b8[i])
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

from frontend_py.kinds import Scalar, holds, join, numpy_name, promoted
from mdh_core.diagnostics import refuse
from mdh_core.expr import (
    BOOL,
    COMPARISONS,
    DOUBLE,
    FLOAT,
    INT32,
    INT64,
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
)
from mdh_core.source import Span


@dataclass(frozen=True, slots=True)
class Val:
    """``weak``: Python's own number; ``truth``: the result of a comparison, held as an ``int32``."""

    expr: Expr
    weak: bool = False
    truth: bool = False

    @property
    def kind(self) -> Scalar:
        if self.truth:
            return Scalar(BOOL, self.weak, True)
        return Scalar(self.expr.type, self.weak)


def number(v: Val, span: Span) -> ScalarType:
    """The type of an operand, which must be a number; a truth value counts as NumPy's ``bool``."""
    if isinstance(v.expr.type, RecordType):
        raise refuse("MDH006", f"a value of type `{v.expr.type}` is used as a number", span)
    return BOOL if v.truth else v.expr.type


# --------------------------------------------------------------------------- constants and casts


def as_float(value: float) -> float:
    """The nearest value of ``float32``."""
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def in_range(value: int, t: ScalarType) -> bool:
    low = -(1 << t.bits - 1) if t.is_signed else 0
    return low <= value < low + (1 << t.bits)


def wrapped(value: int, t: ScalarType) -> int:
    value &= (1 << t.bits) - 1
    return value - (1 << t.bits) if t.kind == "int" and value >> t.bits - 1 else value


def constant(value: bool | int | float, span: Span) -> Val:
    """A literal."""
    if isinstance(value, bool):
        return Val(Const(int(value), INT32), weak=True, truth=True)
    if isinstance(value, float):
        return Val(Const(value, DOUBLE), weak=True)
    if in_range(value, INT64):
        return Val(Const(value, INT64), weak=True)
    if in_range(value, UINT64):
        return Val(Const(value, UINT64), weak=True)
    raise refuse("MDH006", f"`{value}` does not fit 64 bits", span)


def cast(e: Expr, t: ScalarType, span: Span) -> Expr:
    """``e`` converted as by ``np.T(e)``; no node where it has that type already."""
    if e.type == t:
        return e
    if isinstance(e.type, RecordType):
        raise refuse("MDH006", f"a value of type `{e.type}` is used as a number", span)
    if isinstance(e, Const) and (folded := _cast_constant(e, t)) is not None:
        return folded
    if isinstance(e, Select):
        inner = _computed_in(t)
        then, other = cast(e.then, inner, span), cast(e.other, inner, span)
        if isinstance(then, Const | Select) and isinstance(other, Const | Select):
            chosen = Select(e.cond, then, other, inner)
            return chosen if inner == t else Cast(chosen, t)
    return cut(e, t)


def _cast_constant(e: Const, t: ScalarType) -> Const | None:
    if t == BOOL:
        return Const(int(e.value != 0), t)
    if t.is_float:
        return Const(as_float(float(e.value)) if t == FLOAT else float(e.value), t)
    if isinstance(e.value, int):
        return Const(wrapped(e.value, t), t)
    return Const(int(e.value), t) if math.isfinite(e.value) and abs(e.value) < 2**31 else None


def fitted(v: Val, t: ScalarType, span: Span) -> Expr:
    """A value for a place of type ``t``; a Python integer that does not fit is an error in NumPy, too."""
    if v.weak and not t.is_float and t != BOOL:
        _check_fits(v, t, span)
    return cast(v.expr, t, span)


def _check_fits(v: Val, t: ScalarType, span: Span) -> None:
    if isinstance(v.expr, Select):
        for branch in (v.expr.then, v.expr.other):
            _check_fits(Val(branch, weak=True), t, span)
    if isinstance(v.expr, Const) and isinstance(v.expr.value, int) and not in_range(v.expr.value, t):
        raise refuse("MDH006", f"`{v.expr.value}` does not fit `{numpy_name(t)}`", span)


def truth(v: Val, span: Span) -> Expr:
    """The value as a condition, an ``int32``."""
    if isinstance(v.expr.type, RecordType):
        raise refuse("MDH006", f"a value of type `{v.expr.type}` is used as a condition", span)
    t = v.expr.type
    if v.truth:
        return v.expr
    promoted_type = _computed_in(t)
    zero = Const(0.0 if t.is_float else 0, promoted_type)
    return fold("!=", cast(v.expr, promoted_type, span), zero, INT32)


# --------------------------------------------------------------------------- arithmetic


def _computed_in(t: ScalarType) -> ScalarType:
    """C computes nothing narrower than ``int``."""
    return INT32 if t.is_integer and t.bits < 32 else t


def common(a: Val, b: Val, span: Span, comparing: bool = False) -> tuple[ScalarType, bool]:
    """The type in which NumPy computes with two values, and whether the result is a Python number."""
    s, t = number(a, span), number(b, span)
    if a.weak and b.weak:
        return _weak_common(a, b, s, t), True
    if a.weak or b.weak:
        soft, firm = (a, t) if a.weak else (b, s)
        return _with_weak(soft, firm, span, comparing), False
    both = promoted(s, t)
    assert both is not None
    if both.is_float and s.is_integer and t.is_integer:
        raise refuse(
            "MDH006", f"`{numpy_name(s)}` and `{numpy_name(t)}` have no common integer type", span,
            help="convert one of them, for example with `np.int64(...)`",
        )  # fmt: skip
    return both, False


def _weak_common(a: Val, b: Val, s: ScalarType, t: ScalarType) -> ScalarType:
    """Python's integers are as wide as the declared ones that they come from, 64 bits by default."""
    if s.is_float or t.is_float:
        return DOUBLE
    if s == t:
        return s
    for v, mine, other in ((a, s, t), (b, t, s)):
        if (
            isinstance(v.expr, Const)
            and mine != BOOL
            and in_range(int(v.expr.value), other)
            and other != BOOL
        ):
            return other
    return INT64


def _with_weak(soft: Val, firm: ScalarType, span: Span, comparing: bool) -> ScalarType:
    t = number(soft, span)
    if t.is_float:
        return firm if firm.is_float else DOUBLE
    if firm == BOOL:
        return BOOL if t == BOOL else INT64
    if firm.is_float or t == BOOL:
        return firm
    fits = not isinstance(soft.expr, Const) or in_range(int(soft.expr.value), firm)
    if not fits and comparing and holds(INT64, firm):
        return INT64
    if not fits:
        _check_fits(soft, firm, span)
    if comparing and not isinstance(soft.expr, Const) and not holds(firm, t):
        return INT64 if holds(INT64, firm) else firm
    return firm


def binary(op: str, a: Val, b: Val, span: Span) -> Val:
    """``a op b`` for ``+ - * & | ^`` and comparisons."""
    comparing = op in COMPARISONS
    t, weak = common(a, b, span, comparing)
    if t.kind == "uint" and weak and op == "-":
        t = INT64  # may be negative
    if op in ("&", "|", "^") and t.is_float:
        raise refuse("MDH006", f"`{op}` needs integers", span)
    if t == BOOL and not comparing:
        return _logical(op, a, b, span)
    inner = _computed_in(t)
    x, y = (cast(v.expr, inner, span) for v in (a, b))
    if comparing:
        return Val(fold(op, x, y, INT32), weak, truth=True)
    return Val(cast(fold(op, x, y, inner), t, span), weak)


def _logical(op: str, a: Val, b: Val, span: Span) -> Val:
    """``& | ^`` of truth values; ``True + True`` is 2 in Python and ``True`` in NumPy."""
    x, y = truth(a, span), truth(b, span)
    weak = a.weak and b.weak
    if op in ("+", "-", "*"):
        if not weak:
            raise refuse(
                "MDH006", f"`{op}` of truth values", span, help="use `&`, `|` or a conditional expression"
            )
        return Val(fold(op, cast(x, INT64, span), cast(y, INT64, span), INT64), weak=True)
    if op == "^":
        return Val(fold("!=", x, y, INT32), weak, truth=True)
    return Val(Binary("&&" if op == "&" else "||", x, y, INT32), weak, truth=True)


def true_division(a: Val, b: Val, span: Span) -> Val:
    """``a / b``, which is never an integer."""
    s, t = number(a, span), number(b, span)
    if s.is_float or t.is_float:
        both, weak = common(a, b, span)
    else:
        both, weak = DOUBLE, a.weak and b.weak
    return Val(fold("/", cast(a.expr, both, span), cast(b.expr, both, span), both), weak)


def shift(op: str, a: Val, b: Val, span: Span) -> Val:
    """``a << c`` and ``a >> c`` by a constant that is smaller than the width."""
    t, weak = common(a, b, span)
    if t.is_float or t == BOOL:
        raise refuse("MDH006", f"`{op}` needs integers", span)
    if not isinstance(b.expr, Const) or not 0 <= b.expr.value < t.bits:
        raise refuse("MDH006", "a shift by an amount that is no constant below the width", span)
    inner = _computed_in(t)
    amount = Const(int(b.expr.value), INT32)
    return Val(cast(fold(op, cast(a.expr, inner, span), amount, inner), t, span), weak)


def negative(a: Val, span: Span) -> Val:
    t = number(a, span)
    if t == BOOL:
        if not a.weak:
            raise refuse("MDH006", "`-` of a truth value", span)
        t = INT64
    if a.weak and t.kind == "uint":
        t = INT64
    inner = _computed_in(t)
    e = cast(a.expr, inner, span)
    if isinstance(e, Const) and (inner.is_float or (inner.is_signed and in_range(-int(e.value), inner))):
        return Val(cast(Const(-e.value, inner), t, span), a.weak)
    return Val(cast(Unary("-", e, inner), t, span), a.weak)


def inverted(a: Val, span: Span) -> Val:
    """``~a``."""
    t = number(a, span)
    if t.is_float:
        raise refuse("MDH006", "`~` needs an integer", span)
    if t == BOOL:
        if a.weak:
            raise refuse("MDH006", "`~` of a Python bool", span, help="use `not`")
        return Val(negated(truth(a, span)), truth=True)
    if a.weak and t.kind == "uint":
        t = INT64
    inner = _computed_in(t)
    return Val(cast(Unary("~", cast(a.expr, inner, span), inner), t, span), a.weak)


def negated(condition: Expr) -> Expr:
    """``!condition``."""
    return Unary("!", condition, INT32)


def select(condition: Expr, then: Val, other: Val, span: Span) -> Val:
    """``then if condition else other``: one of two values, in a type that holds both."""
    then, other = _adapted(then, other), _adapted(other, then)
    kind = join(then.kind, other.kind)
    if kind is None:
        raise refuse(
            "MDH006", f"a value is `{then.kind}` in one case and `{other.kind}` in the other", span,
            help="convert both to one type",
        )  # fmt: skip
    if isinstance(kind.type, RecordType):
        return Val(Select(condition, then.expr, other.expr, kind.type))
    if kind.truth:
        return Val(Select(condition, then.expr, other.expr, INT32), kind.weak, truth=True)
    t = kind.type
    inner = _computed_in(t) if then.expr.type != other.expr.type else t
    chosen = Select(condition, fitted(then, inner, span), fitted(other, inner, span), inner)
    return Val(cast(chosen, t, span), kind.weak)


def _adapted(v: Val, to: Val) -> Val:
    """A literal in the width of the Python integer that it stands beside."""
    t = to.expr.type
    if not (v.weak and to.weak) or v.truth or to.truth or not isinstance(t, ScalarType) or not t.is_integer:
        return v
    if isinstance(v.expr, Const) and isinstance(v.expr.value, int) and not isinstance(to.expr, Const):
        return Val(Const(v.expr.value, t), weak=True) if in_range(v.expr.value, t) else v
    return v


# --------------------------------------------------------------------------- folding


def fold(op: str, a: Expr, b: Expr, t: ScalarType) -> Expr:
    """A binary node; integer constants without overflow are folded."""
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
    if (op in ("/", "%") and y == 0) or (op in ("<<", ">>") and not 0 <= y < t.bits):
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
    return wrapped(value, t)


def floor_quotient(a: Expr, b: Expr, t: ScalarType, op: str) -> Expr:
    """``a // b`` (``op`` "/") or ``a % b`` of integers of one type of at least 32 bits; ``b`` is constant.

    C rounds towards zero, Python downwards: they differ where the remainder is not 0 and its sign is not
    that of the divisor.
    """
    assert isinstance(b, Const) and b.value not in (0, -1)
    if isinstance(a, Const):
        exact = int(a.value) // int(b.value) if op == "/" else int(a.value) % int(b.value)
        return Const(exact, t)
    result, rest = Binary(op, a, b, t), Binary("%", a, b, t)
    if not t.is_signed:
        return result
    zero = Const(0, t)
    differs = Binary("<" if b.value > 0 else ">", rest, zero, INT32)
    corrected = Binary("-", result, Const(1, t), t) if op == "/" else Binary("+", result, b, t)
    return Select(differs, corrected, result, t)
