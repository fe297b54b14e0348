"""What expressions and statements mean: C's arithmetic on Python numbers.

A scalar value is an ``int`` or a ``float``, a record is the tuple of its fields' values.  Integers
wrap at their width (signed ones, too), ``float`` rounds after each operation, division truncates,
``&& || ?:`` are lazy.  What C leaves undefined and no machine defines either raises
``EvaluationError``: integer division by zero, a shift by the width or more, a ``float`` that does not
fit the integer type it is converted to, a variable without a value, an index outside its buffer.

math.h functions are computed in ``double`` and rounded to the result type, so their last digit
may differ from a C library's.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import assert_never

from mdh_core.expr import (
    COMPARISONS,
    LOGICAL,
    Assign,
    Binary,
    Call,
    Cast,
    Const,
    Declare,
    Expr,
    Field,
    Function,
    If,
    Load,
    MakeRecord,
    Operand,
    RecordType,
    Result,
    Return,
    ScalarType,
    Select,
    Stmt,
    Type,
    Unary,
    Var,
    While,
)

Scalar = int | float
Value = Scalar | tuple[Scalar | None, ...]  # None: a field that has no value yet


class EvaluationError(Exception):
    """The expression has no value (see the module's docstring)."""


def _absent(*what: object) -> Value:
    raise EvaluationError(f"no such thing here: {what}")


@dataclass(slots=True)
class Env:
    """What an expression may refer to.

    variables  dimensions, parameters and locals; None for a local that has no value yet
    load       value of a buffer at explicit indices
    store      the same as a place to assign to
    operand    value of the k-th access of the input view
    result     component of the combined result
    trap_overflow   raise where C's signed arithmetic overflows, instead of wrapping
    """

    variables: dict[str, Value | None]
    functions: Mapping[str, Function] = field(default_factory=dict)
    load: Callable[[str, tuple[int, ...]], Value] = _absent
    store: Callable[[str, tuple[int, ...], Value], object] = _absent
    operand: Callable[[int], Value] = _absent
    result: Callable[[int], Value] = _absent
    max_iterations: int = 1_000_000
    trap_overflow: bool = False


# --------------------------------------------------------------------------- conversions


def convert(value: Scalar, t: ScalarType) -> Scalar:
    """The value converted to a scalar type as by a C cast.

    >>> from mdh_core.expr import FLOAT, INT8, UINT8, BOOL
    >>> convert(300, UINT8), convert(200, INT8), convert(-1.9, INT8), convert(0.5, BOOL)
    (44, -56, -1, 1)
    >>> convert(16777217, FLOAT), convert(1e39, FLOAT)
    (16777216.0, inf)
    """
    if t.kind == "float":
        return round_to_float(value) if t.bits == 32 else _to_double(value)
    if t.kind == "bool":
        return int(value != 0)
    if isinstance(value, int):
        return wrap(value, t)
    if not math.isfinite(value) or wrap(math.trunc(value), t) != math.trunc(value):
        raise EvaluationError(f"{value} does not fit {t}")
    return math.trunc(value)


def convert_to(value: Value, t: Type) -> Value:
    """The same for a type that may be a record, whose values are left as they are."""
    return convert(as_scalar(value), t) if isinstance(t, ScalarType) else value


def wrap(value: int, t: ScalarType) -> int:
    """The integer that has the same low bits and lies in the range of the integer type ``t``."""
    value &= (1 << t.bits) - 1
    return value - (1 << t.bits) if t.kind == "int" and value >> (t.bits - 1) else value


def round_to_float(value: Scalar | Fraction) -> float:
    """The nearest number of C's ``float``, rounded once; infinite where it is too large."""
    d = value if isinstance(value, float) else _round_to_odd(Fraction(value))
    try:
        return float(struct.unpack("f", struct.pack("f", d))[0])
    except OverflowError:
        return math.copysign(math.inf, d)


def _to_double(value: Scalar | Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.copysign(math.inf, value)


def _round_to_odd(value: Fraction) -> float:
    """``double`` neighbour of an exact value from which rounding to ``float`` is still right."""
    d = _to_double(value)
    if not math.isfinite(d) or d == value or math.frexp(d)[0] * 2**53 % 2:
        return d
    return math.nextafter(d, math.inf if value > d else -math.inf)


def as_scalar(value: Value) -> Scalar:
    assert not isinstance(value, tuple), "a record where a scalar is needed"
    return value


def zero(t: Type) -> Value:
    """The value of a zero-initialised variable."""
    if isinstance(t, RecordType):
        return tuple(as_scalar(zero(u)) for _, u in t.fields)
    return 0.0 if t.is_float else 0


# --------------------------------------------------------------------------- expressions


def evaluate(e: Expr, env: Env) -> Value:
    """The value of an expression; it has the expression's type."""
    match e:
        case Operand():
            return env.operand(e.access)
        case Var():
            value = env.variables.get(e.name)
            if value is None:
                raise EvaluationError(f"`{e.name}` has no value")
            return value
        case Const():
            return convert(e.value, e.type)
        case Binary():
            return _binary(e, env)
        case Select():
            return evaluate(e.then if truth(e.cond, env) else e.other, env)
        case Load():
            return env.load(e.buffer, _index(e, env))
        case Result():
            return env.result(e.component)
        case Cast():
            return convert(evaluate_scalar(e.a, env), e.type)
        case Unary():
            return _unary(e, env)
        case Call():
            return _call(e, env)
        case Field():
            return _field(e, env)
        case MakeRecord():
            return tuple(evaluate_scalar(v, env) for v in e.values)
        case _:
            assert_never(e)


def evaluate_scalar(e: Expr, env: Env) -> Scalar:
    return as_scalar(evaluate(e, env))


def truth(e: Expr, env: Env) -> bool:
    return evaluate(e, env) != 0


def _index(e: Load, env: Env) -> tuple[int, ...]:
    return tuple(int(evaluate_scalar(i, env)) for i in e.index)


def _field(e: Field, env: Env) -> Value:
    record = evaluate(e.a, env)
    assert isinstance(record, tuple)
    value = record[_field_number(e)]
    if value is None:
        raise EvaluationError(f"field `{e.name}` has no value")
    return value


def _field_number(e: Field) -> int:
    assert isinstance(e.a.type, RecordType)
    return [name for name, _ in e.a.type.fields].index(e.name)


_COMPARE: dict[str, Callable[[Scalar, Scalar], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_BITWISE: dict[str, Callable[[int, int], int]] = {
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
}
assert _COMPARE.keys() == COMPARISONS


def _binary(e: Binary, env: Env) -> Scalar:
    if e.op in LOGICAL:
        return int(
            truth(e.a, env) and truth(e.b, env) if e.op == "&&" else truth(e.a, env) or truth(e.b, env)
        )
    x, y = evaluate_scalar(e.a, env), evaluate_scalar(e.b, env)
    if e.op in _COMPARE:
        return int(_COMPARE[e.op](x, y))
    exact = _float_result(e.op, float(x), float(y)) if e.type.is_float else _int_result(e, int(x), int(y))
    return _fit(exact, e.type, env)


def _fit(exact: Scalar, t: ScalarType, env: Env) -> Scalar:
    value = convert(exact, t)
    if env.trap_overflow and t.kind == "int" and value != exact:
        raise EvaluationError("signed overflow")
    return value


def _float_result(op: str, x: float, y: float) -> float:
    match op:
        case "+":
            return x + y
        case "-":
            return x - y
        case "*":
            return x * y
        case "/":
            return divide(x, y)
        case _:
            raise EvaluationError(f"`{op}` on floating-point values")


def divide(x: float, y: float) -> float:
    """IEEE division: a zero divisor gives an infinity or NaN."""
    if y != 0:
        return x / y
    if x == 0 or math.isnan(x):
        return math.nan
    return math.copysign(math.inf, x) * math.copysign(1.0, y)


def _int_result(e: Binary, x: int, y: int) -> int:
    match e.op:
        case "+":
            return x + y
        case "-":
            return x - y
        case "*":
            return x * y
        case "/" | "%":
            if y == 0:
                raise EvaluationError("integer division by zero")
            quotient = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
            return quotient if e.op == "/" else x - quotient * y
        case "<<" | ">>":
            if not 0 <= y < e.type.bits:
                raise EvaluationError(f"shift of {e.type} by {y}")
            return x << y if e.op == "<<" else x >> y
        case _:
            return _BITWISE[e.op](x, y)


def _unary(e: Unary, env: Env) -> Scalar:
    x = evaluate_scalar(e.a, env)
    match e.op:
        case "-":
            return _fit(-x, e.type, env)
        case "~":
            return convert(~int(x), e.type)
        case _:
            assert e.op == "!"
            return int(x == 0)


# --------------------------------------------------------------------------- calls


def _call(e: Call, env: Env) -> Value:
    args = tuple(evaluate(a, env) for a in e.args)
    f = env.functions.get(e.function)
    if f is not None:
        return call_function(f, args, env)
    return call_math(e.function, tuple(map(as_scalar, args)), e.type)


def call_function(f: Function, args: tuple[Value, ...], env: Env) -> Value:
    """The value of a function of the program.

    Of an ``out_param`` function, ``params`` may or may not list the pointer ``res``; where it does,
    the value of that variable is the result.
    """
    names = [name for name, _ in f.params]
    result = names.pop(0) if f.out_param and len(names) == len(args) + 1 else None
    variables: dict[str, Value | None] = dict(zip(names, args, strict=True))
    if result is not None:
        variables[result] = _undefined(f.type)
    inner = Env(
        variables,
        env.functions,
        max_iterations=env.max_iterations,
        trap_overflow=env.trap_overflow,
    )
    value = execute(f.body, inner)
    if value is None and result is not None:
        value = variables[result]
    if value is None:
        raise EvaluationError(f"`{f.name}` returns no value")
    return value


def _finite_or(special: float) -> Callable[[Callable[..., float]], Callable[..., float]]:
    """Where Python's math raises for a pole: the infinity that C returns."""

    def wrapper(f: Callable[..., float]) -> Callable[..., float]:
        def g(*args: float) -> float:
            try:
                return f(*args)
            except OverflowError:
                return special

        return g

    return wrapper


def _logarithm(f: Callable[[float], float], pole: float = 0.0) -> Callable[[float], float]:
    return lambda x: -math.inf if x == pole else f(x)


def _atanh(x: float) -> float:
    return math.copysign(math.inf, x) if abs(x) == 1 else math.atanh(x)


def _pow(x: float, y: float) -> float:
    odd = y.is_integer() and y % 2 == 1
    if x == 0 and y < 0:
        return math.copysign(math.inf, x) if odd else math.inf
    try:
        return math.pow(x, y)
    except OverflowError:
        return -math.inf if x < 0 and odd else math.inf


def _sinh(x: float) -> float:
    return math.copysign(_finite_or(math.inf)(math.sinh)(abs(x)), x)


def _round(x: float) -> float:
    """Halves away from zero, unlike Python's ``round``."""
    if not math.isfinite(x) or x == math.trunc(x):
        return x
    rest = abs(x) - math.floor(abs(x))
    return math.copysign(math.floor(abs(x)) + (rest >= 0.5), x)


def _integral(f: Callable[[float], int]) -> Callable[[float], float]:
    return lambda x: math.copysign(f(x), x) if math.isfinite(x) else x


def _minimum(x: float, y: float) -> float:
    return y if math.isnan(x) or y < x else x


def _maximum(x: float, y: float) -> float:
    return y if math.isnan(x) or y > x else x


def _cbrt(x: float) -> float:
    return math.copysign(math.cbrt(abs(x)), x)


def _gamma(x: float) -> float:
    if x == 0:
        return math.copysign(math.inf, x)
    return _finite_or(math.inf)(math.gamma)(x)


def _lgamma(x: float) -> float:
    return math.inf if x <= 0 and x.is_integer() else _finite_or(math.inf)(math.lgamma)(x)


def _fdim(x: float, y: float) -> float:
    return math.nan if math.isnan(x) or math.isnan(y) else x - y if x > y else 0.0


UNARY: dict[str, Callable[[float], float]] = {
    "sin": math.sin,
    "cos": math.cos,
    "tan": math.tan,
    "asin": math.asin,
    "acos": math.acos,
    "atan": math.atan,
    "sinh": _sinh,
    "cosh": _finite_or(math.inf)(math.cosh),
    "tanh": math.tanh,
    "asinh": math.asinh,
    "acosh": math.acosh,
    "atanh": _atanh,
    "exp": _finite_or(math.inf)(math.exp),
    "exp2": _finite_or(math.inf)(lambda x: math.pow(2.0, x)),
    "expm1": _finite_or(math.inf)(math.expm1),
    "log": _logarithm(math.log),
    "log2": _logarithm(math.log2),
    "log10": _logarithm(math.log10),
    "log1p": _logarithm(math.log1p, -1.0),
    "sqrt": math.sqrt,
    "cbrt": _cbrt,
    "fabs": math.fabs,
    "floor": _integral(math.floor),
    "ceil": _integral(math.ceil),
    "trunc": _integral(math.trunc),
    "rint": _integral(round),
    "nearbyint": _integral(round),
    "round": _round,
    "erf": math.erf,
    "erfc": math.erfc,
    "tgamma": _gamma,
    "lgamma": _lgamma,
}
BINARY: dict[str, Callable[[float, float], float]] = {
    "atan2": math.atan2,
    "pow": _pow,
    "hypot": math.hypot,
    "fmod": math.fmod,
    "remainder": math.remainder,
    "copysign": math.copysign,
    "fmin": _minimum,
    "fmax": _maximum,
    "fdim": _fdim,
}
MATH: dict[str, tuple[int, Callable[..., float]]] = {
    **{name: (1, f) for name, f in UNARY.items()},
    **{name: (2, g) for name, g in BINARY.items()},
}
"""math.h functions of ``double`` arguments (each also has an ``f`` variant) and their arity."""

TESTS: dict[str, Callable[[float], bool]] = {
    "isnan": math.isnan,
    "isinf": math.isinf,
    "isfinite": math.isfinite,
    "signbit": lambda x: math.copysign(1.0, x) < 0,
}
ABSOLUTE = frozenset({"abs", "labs", "llabs"})


def math_arity(name: str) -> int | None:
    """Number of arguments of a known math.h (or stdlib.h) function, None for any other name."""
    base = name.removesuffix("f") if name not in MATH else name
    if base in MATH:
        return MATH[base][0]
    if base == "fma":
        return 3
    return 1 if name in TESTS or name in ABSOLUTE else None


def call_math(name: str, args: tuple[Scalar, ...], t: Type) -> Scalar:
    """A math.h function with C's results at poles (an infinity) and outside the domain (NaN)."""
    assert isinstance(t, ScalarType)
    if math_arity(name) != len(args):
        raise EvaluationError(f"unknown function `{name}` of {len(args)} arguments")
    if name in TESTS:
        return int(TESTS[name](float(args[0])))
    if name in ABSOLUTE:
        return convert(abs(args[0]), t)
    base = name if name in MATH else name.removesuffix("f")
    x = tuple(map(float, args))
    if base == "fma":
        return _fma(x[0], x[1], x[2], t)
    try:
        return convert(MATH[base][1](*x), t)
    except ValueError:
        return math.nan


def _fma(x: float, y: float, z: float, t: ScalarType) -> float:
    if not all(map(math.isfinite, (x, y, z))):
        return x * y + z
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    if exact == 0:
        return x * y + z if z == 0 else 0.0
    return round_to_float(exact) if t.bits == 32 else _to_double(exact)


# --------------------------------------------------------------------------- statements


def execute(body: tuple[Stmt, ...], env: Env) -> Value | None:
    """Run statements; the value of the ``Return`` that was reached, or None."""
    for s in body:
        match s:
            case Declare():
                value = _undefined(s.type) if s.value is None else evaluate(s.value, env)
                env.variables[s.name] = value if value is None else convert_to(value, s.type)
            case Assign():
                assign(s.target, evaluate(s.value, env), env)
            case If():
                returned = execute(s.then if truth(s.cond, env) else s.other, env)
                if returned is not None:
                    return returned
            case While():
                returned = _loop(s, env)
                if returned is not None:
                    return returned
            case Return():
                return evaluate(s.value, env)
            case _:
                assert_never(s)
    return None


def _loop(s: While, env: Env) -> Value | None:
    for _ in range(env.max_iterations):
        if not truth(s.cond, env):
            return None
        returned = execute(s.body, env)
        if returned is not None:
            return returned
    raise EvaluationError(f"a `while` loop ran more than {env.max_iterations} times")


def assign(target: Expr, value: Value, env: Env) -> None:
    """Assign to a variable, an element of a buffer, or a field of either."""
    match target:
        case Var():
            env.variables[target.name] = convert_to(value, target.type)
        case Load():
            env.store(target.buffer, _index(target, env), convert_to(value, target.type))
        case Field():
            record = evaluate(target.a, env)
            assert isinstance(record, tuple)
            fields = list(record)
            fields[_field_number(target)] = convert(as_scalar(value), target.type)
            assign(target.a, tuple(fields), env)
        case _:
            raise AssertionError(f"not a place: {target}")


def _undefined(t: Type) -> Value | None:
    return (None,) * len(t.fields) if isinstance(t, RecordType) else None
