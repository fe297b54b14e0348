"""The decorator ``@mdh`` and what is written with it; see docs/python.md."""

from __future__ import annotations

from mdh_lift.python.clauses import (
    CC,
    PS,
    PW,
    Buffer,
    add,
    and_,
    argmax,
    argmin,
    assume,
    cc,
    combine_ops,
    fp,
    inp,
    logical_and,
    logical_or,
    maximum,
    minimum,
    mul,
    name,
    noalias,
    or_,
    out,
    prange,
    ps,
    pw,
    sizes,
    target,
    truncdiv,
    truncmod,
    xor,
)
from mdh_lift.python.decorator import MdhFunction, MdhWarning, mdh

__all__ = [
    "CC", "PS", "PW", "Buffer", "MdhFunction", "MdhWarning", "add", "and_", "argmax", "argmin", "assume", "cc",
    "combine_ops", "fp", "inp", "logical_and", "logical_or", "maximum", "mdh", "minimum", "mul", "name", "noalias",
    "or_", "out", "prange", "ps", "pw", "sizes", "target", "truncdiv", "truncmod", "xor",
]  # fmt: skip
