"""Scalar functions whose integers are computed in the narrowest type that holds all values.

C computes with ``int`` what it reads as bytes.  In vectors that costs: eight lanes instead of sixteen, and
conversions in both directions.

    in     uint8 a, b:   int32 s = a + 2*b;  (uint8)(s < 255 ? s : 255)
    out    int16 s = (int16)a + 2*(int16)b;  (uint8)(s < 255 ? s : 255)        0 <= s <= 765

``narrowed`` finds an interval for every integer value of a straight-line function, from the types of what is
read and the constants, and rewrites the function where one type is narrower than all that are computed in and
holds all intervals.  Intervals are those of the integers, not of a type: where a value might leave its own
type, nothing is rewritten, so what wraps still wraps.  Results keep their types.

Shown right by evaluating both functions on all or random inputs (tests/test_narrow.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from mdh_core.expr import (
    COMPARISONS,
    INT8,
    INT16,
    LOGICAL,
    UINT8,
    UINT16,
    Binary,
    Cast,
    Const,
    Declare,
    Expr,
    Load,
    Operand,
    ScalarType,
    Select,
    Stmt,
    Unary,
    Var,
    map_children,
)

NARROW = (INT8, UINT8, INT16, UINT16)  # narrowest first
Interval = tuple[int, int]


def narrowed(body: tuple[Stmt, ...], results: tuple[Expr, ...]) -> tuple[tuple[Stmt, ...], tuple[Expr, ...]]:
    """The same function with narrower integers, or as it is.

    body      declarations with values only, else nothing is done
    results   one expression for each component; their types stay
    """
    found = _Ranges()
    if not all(isinstance(s, Declare) and s.value is not None for s in body):
        return body, results
    try:
        for s in body:
            assert isinstance(s, Declare) and s.value is not None
            found.variables[s.name] = found.of(s.value)
        for e in results:
            found.of(e)
    except _UnboundedError:
        return body, results
    t = found.type()
    if t is None:
        return body, results
    own = {s.name for s in body if isinstance(s, Declare)}
    typed = _Typed(t, own)
    new = []
    for s in body:
        assert isinstance(s, Declare) and s.value is not None
        value = typed.value(s.value)
        assert isinstance(value.type, ScalarType)
        new.append(replace(s, type=value.type, value=value))
    ends = tuple(
        v if (v := typed.value(e)).type == e.type or not isinstance(e.type, ScalarType) else Cast(v, e.type)
        for e in results
    )
    return tuple(new), ends


class _UnboundedError(Exception):
    """A value may leave its type, or is not known to fit into a narrower one."""


def _is_computed(t: object) -> bool:
    """Is it a type that C computes integers in?"""
    return isinstance(t, ScalarType) and t.is_integer and t.kind != "bool" and t.bits >= 32


def _of_type(t: ScalarType) -> Interval:
    if t.kind == "bool":
        return 0, 1
    return (-(1 << t.bits - 1), (1 << t.bits - 1) - 1) if t.is_signed else (0, (1 << t.bits) - 1)


@dataclass(slots=True)
class _Ranges:
    """Intervals of integers; ``computed``: of all values that the rewritten function has in one type."""

    variables: dict[str, Interval | None] = field(default_factory=dict)
    computed: list[Interval] = field(default_factory=list)
    shifted: int = 0  # the largest distance of a shift

    def type(self) -> ScalarType | None:
        """The narrowest type that holds everything computed; None if there is nothing or no such type."""
        for t in NARROW if self.computed else ():
            low, high = _of_type(t)
            if self.shifted < t.bits and all(low <= a and b <= high for a, b in self.computed):
                return t
        return None

    def of(self, e: Expr) -> Interval | None:
        """The interval of an integer; None for a number of another kind.  Raises _UnboundedError."""
        if not isinstance(e.type, ScalarType):
            raise _UnboundedError
        if not e.type.is_integer:
            for child in _values(e):
                self.of(child)
            return None
        found = self._integer(e, e.type)
        low, high = _of_type(e.type)
        if not low <= found[0] <= found[1] <= high:
            raise _UnboundedError
        if _is_computed(e.type) and not (isinstance(e, Binary) and e.op in COMPARISONS | LOGICAL):
            self.computed.append(found)
        return found

    def _integer(self, e: Expr, t: ScalarType) -> Interval:
        match e:
            case Const(value=value):
                return int(value), int(value)
            case Var(name=name) if (known := self.variables.get(name)) is not None:
                return known
            case Operand() | Load() | Var() if not _is_computed(t):
                return _of_type(t)
            case Cast(a=a):
                inner = self.of(a)
                low, high = _of_type(t)
                if inner is not None and low <= inner[0] and inner[1] <= high:
                    return inner
                if _is_computed(t):
                    raise _UnboundedError
                return low, high
            case Select(cond=cond, then=then, other=other):
                self.of(cond)
                one, two = self._known(then), self._known(other)
                return min(one[0], two[0]), max(one[1], two[1])
            case Unary(op="-", a=a):
                low, high = self._known(a)
                return -high, -low
            case Unary(op="~", a=a):
                low, high = self._known(a)
                return ~high, ~low
            case Unary(op="!", a=a):
                self.of(a)
                return 0, 1
            case Binary(op=op, a=a, b=b) if op in COMPARISONS | LOGICAL:
                self.of(a)
                self.of(b)
                return 0, 1
            case Binary(op="<<" | ">>" as op, a=a, b=Const(value=by)) if 0 <= by < t.bits:
                low, high = self._known(a)
                if op == "<<" and low < 0:
                    raise _UnboundedError  # C leaves it open
                self.shifted = max(self.shifted, int(by))
                return (low << int(by), high << int(by)) if op == "<<" else (low >> int(by), high >> int(by))
            case Binary(op=op, a=a, b=b):
                return _combined(op, self._known(a), self._known(b))
            case _:
                raise _UnboundedError

    def _known(self, e: Expr) -> Interval:
        found = self.of(e)
        if found is None:
            raise _UnboundedError
        return found


def _values(e: Expr) -> Iterator[Expr]:
    """Subexpressions whose values matter, rather than what is read with them."""
    match e:
        case Load():
            return
        case Unary(a=a) | Cast(a=a):
            yield a
        case Binary(a=a, b=b):
            yield from (a, b)
        case Select(cond=c, then=t, other=o):
            yield from (c, t, o)
        case Const() | Var() | Operand():
            return
        case _:
            raise _UnboundedError


def _combined(op: str, a: Interval, b: Interval) -> Interval:
    """All values of ``x op y`` for x and y in intervals lie in the one returned."""
    match op:
        case "+":
            return a[0] + b[0], a[1] + b[1]
        case "-":
            return a[0] - b[1], a[1] - b[0]
        case "*":
            corners = [x * y for x in a for y in b]
            return min(corners), max(corners)
        case "/" if b[0] == b[1] and b[0] > 0:  # towards zero
            return _toward_zero(a[0], b[0]), _toward_zero(a[1], b[0])
        case "%" if b[0] == b[1] and b[0] > 0:
            return max(min(a[0], 0), 1 - b[0]), min(max(a[1], 0), b[0] - 1)
        case "&" if a[0] >= 0 and b[0] >= 0:
            return 0, min(a[1], b[1])
        case "&" | "|" | "^":
            bits = max(x.bit_length() if x >= 0 else (~x).bit_length() for x in (*a, *b))
            return (0 if a[0] >= 0 and b[0] >= 0 else -(1 << bits)), (1 << bits) - 1
        case _:
            raise _UnboundedError


def _toward_zero(x: int, by: int) -> int:
    return x // by if x >= 0 else -(-x // by)


@dataclass(frozen=True, slots=True)
class _Typed:
    """Rewrites expressions: what was computed in a type of 32 bits or more is computed in ``t``."""

    t: ScalarType
    own: set[str]

    def narrow(self, e: Expr) -> Expr:
        match e:
            case Load() | Operand():
                return e
            case Const(value=value, type=t) if _is_computed(t):
                return Const(value, self.t)
            case Var(name=name, type=t):
                return Var(name, self.t) if name in self.own and _is_computed(t) else e
            case Cast(a=a, type=t) if _is_computed(t):
                a = self.narrow(a)
                return a if a.type == self.t else Cast(a, self.t)
            case Binary(op=op) if op in LOGICAL:
                return map_children(e, self.narrow)
            case Unary(op="!"):
                return map_children(e, self.narrow)
            case Binary(op=op) if op in COMPARISONS:
                return map_children(e, self.value)
            case Select(cond=cond, then=then, other=other):
                one, two = self.value(then), self.value(other)
                assert isinstance(one.type, ScalarType)
                return Select(self.narrow(cond), one, two, one.type)
            case Unary() | Binary() if _is_computed(e.type):
                new = map_children(e, self.value)
                assert isinstance(new, Unary | Binary)
                return replace(new, type=self.t)
            case _:
                return map_children(e, self.value)

    def value(self, e: Expr) -> Expr:
        """As an operand: truth values, INT32 by definition, in the common type."""
        e = self.narrow(e)
        return Cast(e, self.t) if _is_computed(e.type) else e
