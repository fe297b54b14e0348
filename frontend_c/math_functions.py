"""The functions of math.h and stdlib.h that a nest may call, with their types."""

from __future__ import annotations

from mdh_core.expr import DOUBLE, FLOAT, INT32, INT64, ScalarType

_UNARY = (
    "fabs sqrt cbrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh "
    "asinh acosh atanh erf erfc tgamma lgamma floor ceil trunc round rint nearbyint"
)
_BINARY = "pow atan2 fmod hypot fmin fmax fdim copysign remainder nextafter"

Signature = tuple[tuple[ScalarType, ...], ScalarType]


def _table() -> dict[str, Signature]:
    rows: dict[str, Signature] = {
        "abs": ((INT32,), INT32), "labs": ((INT64,), INT64), "llabs": ((INT64,), INT64),
    }  # fmt: skip
    for suffix, t in (("", DOUBLE), ("f", FLOAT)):
        rows.update({name + suffix: ((t,), t) for name in _UNARY.split()})
        rows.update({name + suffix: ((t, t), t) for name in _BINARY.split()})
        rows["fma" + suffix] = ((t, t, t), t)
        rows["ldexp" + suffix] = ((t, INT32), t)
        rows.update({name + suffix: ((t,), INT64) for name in ("lround", "llround", "lrint", "llrint")})
    return rows


MATH: dict[str, Signature] = _table()

# Spelled as calls by the compilers' own headers.
CONSTANTS: dict[str, tuple[float, ScalarType]] = {
    "inf": (float("inf"), DOUBLE), "inff": (float("inf"), FLOAT), "huge_val": (float("inf"), DOUBLE),
    "huge_valf": (float("inf"), FLOAT), "nan": (float("nan"), DOUBLE), "nanf": (float("nan"), FLOAT),
}  # fmt: skip
