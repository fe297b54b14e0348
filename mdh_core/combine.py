"""Combine operators: the table, identities, laws.

    operator ::= cc | pw(function) | ps(function)

``cc`` concatenates (index-set function id), ``pw(f)`` combines point-wise (index-set function 0_f,
the dimension disappears), ``ps(f)`` is the prefix sum (id).  A ``CombineFunction`` works on a tuple
of components, so that several reductions over one dimension are one operator (mdh.md 2.2, item 5)
and arg-min is a row like any other.  Its value is given as expressions over the variables
``l0, l1, ...`` (left) and ``r0, r1, ...`` (right): the interpreter evaluates them, the emitters print
them, and nothing else knows what an operator does.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

from mdh_core.expr import (
    INT32,
    Binary,
    Call,
    Const,
    Expr,
    Function,
    RecordType,
    ScalarType,
    Select,
    Type,
    Var,
    rewrite,
)


@dataclass(frozen=True, slots=True)
class CombineFunction:
    """An associative function on tuples of component values.

    name         as in a directive and in reports: ``+``, ``max``, ``argmin``, ``(+, max)``, a C name
    types        one per component
    values       one expression per component over ``Var('l0')..`` and ``Var('r0')..``
    identity     one constant per component, or None where no neutral element is known
    exact        False where regrouping changes the result in the last digits (floating-point + and *)
    promised     True for a user's function: its laws are the user's word, and are tested
    commutative  False where the operands' order matters: such a function goes with one ``ps`` dimension
                 only, whose parts are combined in the order of their indices
    """

    name: str
    types: tuple[Type, ...]
    values: tuple[Expr, ...]
    identity: tuple[Const, ...] | None = None
    exact: bool = True
    promised: bool = False
    commutative: bool = True

    @property
    def arity(self) -> int:
        return len(self.types)


@dataclass(frozen=True, slots=True)
class CombineOp:
    kind: str  # "cc" | "pw" | "ps"
    function: CombineFunction | None = None

    def __post_init__(self) -> None:
        assert self.kind in ("cc", "pw", "ps") and (self.kind == "cc") == (self.function is None)

    def index_set(self, indices: tuple[int, ...]) -> tuple[int, ...]:
        """The operator's index-set function: id for cc and ps, 0_f for pw."""
        return (0,) if self.kind == "pw" else indices

    def __str__(self) -> str:
        """As a directive spells it: ``pw(+, max)``; ``fmin`` and ``fmax`` are ``min`` and ``max`` there."""
        if self.function is None:
            return self.kind
        names = self.function.name.removeprefix("(").removesuffix(")").split(", ")
        spelled = {"fmin": "min", "fmax": "max"}
        return f"{self.kind}({', '.join(spelled.get(n, n) for n in names)})"


CC = CombineOp("cc")


def pw(f: CombineFunction) -> CombineOp:
    return CombineOp("pw", f)


def ps(f: CombineFunction) -> CombineOp:
    return CombineOp("ps", f)


def left(c: int, t: Type) -> Var:
    return Var(f"l{c}", t)


def right(c: int, t: Type) -> Var:
    return Var(f"r{c}", t)


# --------------------------------------------------------------------------- the table


def lowest(t: ScalarType) -> Const:
    if t.is_float:
        return Const(float("-inf"), t)
    return Const(-(1 << (t.bits - 1)) if t.kind == "int" else 0, t)


def highest(t: ScalarType) -> Const:
    if t.is_float:
        return Const(float("inf"), t)
    if t.kind == "bool":
        return Const(1, t)
    return Const((1 << (t.bits - 1)) - 1 if t.kind == "int" else (1 << t.bits) - 1, t)


def _number(value: int, t: ScalarType) -> Const:
    return Const(float(value) if t.is_float else value, t)


def _nan(t: ScalarType) -> Const:
    return Const(math.nan, t)


def _all_ones(t: ScalarType) -> Const:
    return Const(-1, t) if t.kind == "int" else highest(t)


def _infix(op: str, e: tuple[Var, Var], t: ScalarType) -> Expr:
    return Binary(op, e[0], e[1], t)


def _extremum(comparison: str, e: tuple[Var, Var], t: ScalarType) -> Expr:
    l, r = e
    return Select(Binary(comparison, r, l, INT32), r, l, t)


_Value = Callable[[tuple[Var, Var], ScalarType], Expr]
_Identity = Callable[[ScalarType], Const]

# name -> (value from (left, right) and type, identity from type, the types that it applies to)
_TABLE: dict[str, tuple[_Value, _Identity, str]] = {
    "+": (lambda e, t: _infix("+", e, t), lambda t: _number(0, t), "any"),
    "*": (lambda e, t: _infix("*", e, t), lambda t: _number(1, t), "any"),
    "min": (lambda e, t: _extremum("<", e, t), highest, "any"),
    "max": (lambda e, t: _extremum(">", e, t), lowest, "any"),
    "fmin": (lambda e, t: Call(_suffixed("fmin", t), e, t), _nan, "float"),
    "fmax": (lambda e, t: Call(_suffixed("fmax", t), e, t), _nan, "float"),
    "&": (lambda e, t: _infix("&", e, t), _all_ones, "integer"),
    "|": (lambda e, t: _infix("|", e, t), lambda t: _number(0, t), "integer"),
    "^": (lambda e, t: _infix("^", e, t), lambda t: _number(0, t), "integer"),
    "&&": (lambda e, t: _truth("&&", e, t), lambda t: _number(1, t), "truth"),
    "||": (lambda e, t: _truth("||", e, t), lambda t: _number(0, t), "truth"),
}
OPERATOR_NAMES = (*_TABLE, "argmin", "argmax")


def _suffixed(name: str, t: ScalarType) -> str:
    return name + ("f" if t.bits == 32 else "")


def lane_values(function: CombineFunction) -> tuple[Expr, ...]:
    """The values without calls of ``fmin`` and ``fmax``, which vectors have no form of.

    NaN is passed over as they do; of zeros of both signs either may be the result, as of theirs.  Only for
    operators: a scalar function keeps the zero that the library yields.
    """

    def compared(n: Expr) -> Expr | None:
        if not isinstance(n, Call) or n.function not in ("fmin", "fminf", "fmax", "fmaxf"):
            return None
        (a, b), t = n.args, n.type
        better = Select(Binary("<" if "min" in n.function else ">", a, b, INT32), a, b, t)
        return Select(Binary("!=", b, b, INT32), a, better, t)

    return tuple(rewrite(e, compared) for e in function.values)


def _truth(op: str, e: tuple[Var, Var], t: ScalarType) -> Expr:
    zero = _number(0, t)
    both = Binary(
        op, Binary("!=", e[0], zero, INT32), Binary("!=", e[1], zero, INT32), INT32
    )
    return Select(both, _number(1, t), zero, t)


def scalar_operator(name: str, t: ScalarType) -> CombineFunction | None:
    """The one-component operator ``name`` on type ``t``; None where it does not apply.

    Floating-point ``+`` and ``*`` are associative only up to rounding: ``exact`` is False.
    ``&& ||`` yield 0 or 1 and are operators on 0/1 values of an integer type.  ``fmin`` and ``fmax``
    pass over NaN, which is their identity: an infinity would replace a NaN.
    """
    if name not in _TABLE:
        return None
    value, identity, domain = _TABLE[name]
    if (domain == "float" and not t.is_float) or (
        domain in ("integer", "truth") and not t.is_integer
    ):
        return None
    e = (left(0, t), right(0, t))
    exact = not (t.is_float and name in ("+", "*"))
    return CombineFunction(name, (t,), (value(e, t),), (identity(t),), exact)


def arg_operator(
    name: str, t: ScalarType, payload: tuple[Type, ...], positions: int, last_wins: bool = False
) -> CombineFunction:
    """``argmin``/``argmax`` on (value, payload..., position...).

    The last ``positions`` components are ``INT64`` indices of the reduced dimensions, outermost
    first; they break ties so that the operator is commutative: the first position wins as with a
    strict comparison in the source, or the last one (``last_wins``) as with ``<=``.
    No identity: the value may never be replaced by anything (NaN, empty ranges).
    """
    from mdh_core.expr import INT64

    types: tuple[Type, ...] = (t, *payload, *([INT64] * positions))
    better = "<" if name == "argmin" else ">"
    takes_right: Expr = Binary(better, right(0, t), left(0, t), INT32)
    tie: Expr | None = None
    for c in range(len(types) - 1, len(types) - 1 - positions, -1):
        a, b = (left(c, INT64), right(c, INT64)) if last_wins else (right(c, INT64), left(c, INT64))
        before: Expr = Binary("<", a, b, INT32)
        if tie is not None:
            same = Binary("==", a, b, INT32)
            before = Binary("||", before, Binary("&&", same, tie, INT32), INT32)
        tie = before
    if tie is not None:
        equal = Binary("==", right(0, t), left(0, t), INT32)
        takes_right = Binary("||", takes_right, Binary("&&", equal, tie, INT32), INT32)
    values = tuple(Select(takes_right, right(c, u), left(c, u), u) for c, u in enumerate(types))
    return CombineFunction(name, types, values)


@dataclass(frozen=True, slots=True)
class Choice:
    """What ``arg_operator`` made: the better value with all that belongs to it, whole.

    op         "<" or ">": the right operand is taken where its value stands so to the left one's
    positions  how many of the last components are positions, which decide where values are equal
    last_wins  the last position is taken then, else the first
    """

    op: str
    positions: int
    last_wins: bool


@functools.lru_cache(maxsize=256)
def choice_of(f: CombineFunction) -> Choice | None:
    """Which arg-min or arg-max a function is; None: none, or one that does not commute."""
    t = f.types[0]
    if f.name not in ("argmin", "argmax") or not isinstance(t, ScalarType):
        return None
    for positions in range(1, f.arity):
        for last_wins in (False, True):
            if f == arg_operator(f.name, t, f.types[1 : f.arity - positions], positions, last_wins):
                return Choice("<" if f.name == "argmin" else ">", positions, last_wins)
    return None


def linear_operator(t: ScalarType) -> CombineFunction:
    """The composition of maps ``s -> factor*s + term``, the left one first, on pairs (factor, term).

    Scanned from ``(0, s0)``, the constant map, the second component is the recurrence
    ``s = factor*s + term`` from ``s0``.  The order of maps matters, so this does not commute.  (1, 0) is
    neutral, but not beside an infinity, and is no ``identity`` therefore.
    """
    factor = _infix("*", (right(0, t), left(0, t)), t)
    term = Binary("+", _infix("*", (right(0, t), left(1, t)), t), right(1, t), t)
    return CombineFunction("linear", (t, t), (factor, term), exact=not t.is_float, commutative=False)


def user_operator(f: Function) -> CombineFunction:
    """A C function ``T f(T, T)`` as an operator whose laws are promised by the user."""
    t = f.type
    return CombineFunction(
        f.name, (t,), (Call(f.name, (left(0, t), right(0, t)), t),), None, exact=_is_exact(t), promised=True
    )


def _is_exact(t: Type) -> bool:
    if isinstance(t, RecordType):
        return not any(u.is_float for _, u in t.fields)
    return not t.is_float


def neutral(f: CombineFunction) -> Const | None:
    """A neutral element that changes no bit: -0.0 for floating-point addition.

    ``&&`` and ``||`` have none: what they yield is 0 or 1, whatever the variable held.
    """
    if f.identity is None or f.arity != 1 or f.name in ("&&", "||"):
        return None
    (e,) = f.identity
    return Const(-0.0, e.type) if f.name == "+" and e.type.is_float else e


def tuple_operator(parts: tuple[CombineFunction, ...]) -> CombineFunction:
    """Several operators at once over one dimension, component by component."""
    if len(parts) == 1:
        return parts[0]
    from mdh_core.expr import substitute

    types: list[Type] = []
    values: list[Expr] = []
    identity: list[Const] | None = []
    for f in parts:
        base = len(types)
        renamed: dict[str, Expr] = {}
        for c, t in enumerate(f.types):
            renamed[f"l{c}"] = left(base + c, t)
            renamed[f"r{c}"] = right(base + c, t)
        types += f.types
        values += [substitute(v, renamed) for v in f.values]
        identity = None if identity is None or f.identity is None else [*identity, *f.identity]
    return CombineFunction(
        "(" + ", ".join(f.name for f in parts) + ")",
        tuple(types),
        tuple(values),
        None if identity is None else tuple(identity),
        all(f.exact for f in parts),
        any(f.promised for f in parts),
        all(f.commutative for f in parts),
    )
