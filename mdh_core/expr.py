"""Scalar types, scalar expressions and statements, affine expressions.

    type ::= ScalarType(name) | RecordType(name, (field, ScalarType)*)
    expr ::= Const(value) | Var(name) | Load(buffer, expr*) | Operand(access) | Result(component)
           | Unary(op, expr) | Binary(op, expr, expr) | Select(expr, expr, expr) | Cast(expr)
           | Call(function, expr*) | Field(expr, name) | MakeRecord(expr*)
    stmt ::= Declare(name, type, expr?) | Assign(target, expr) | If(expr, stmt*, stmt*)
           | While(expr, stmt*) | Return(expr)

Every expression carries its type; the operands of an arithmetic or comparison node have equal
types (a frontend inserts ``Cast`` nodes for C's usual conversions, shifts excepted), comparisons
and logical operators yield ``INT32``.  ``Select`` and ``&& ||`` evaluate lazily, as in C.

``Load`` reads a buffer at explicit indices (loop nests, initial values, epilogues); ``Operand(k)``
is the value of the k-th access of an input view (scalar functions); ``Result(c)`` is the c-th
component of what ``md_hom`` delivers at an output position (output views).

Evaluation follows C: integers wrap at their width, ``float`` rounds after each operation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import is_not
from typing import assert_never

from mdh_core.source import NO_SPAN, Span

# --------------------------------------------------------------------------- types


@dataclass(frozen=True, slots=True)
class ScalarType:
    """One of the fixed-width C scalar types in ``SCALAR_TYPES``."""

    name: str
    kind: str  # "float", "int", "uint" or "bool"
    bits: int

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        return self.kind != "float"

    @property
    def is_signed(self) -> bool:
        return self.kind in ("int", "float")

    @property
    def size(self) -> int:
        """Bytes."""
        return max(1, self.bits // 8)

    def __str__(self) -> str:
        return self.name


FLOAT = ScalarType("float", "float", 32)
DOUBLE = ScalarType("double", "float", 64)
BOOL = ScalarType("bool", "bool", 8)
INT8, INT16, INT32, INT64 = (ScalarType(f"int{b}", "int", b) for b in (8, 16, 32, 64))
UINT8, UINT16, UINT32, UINT64 = (ScalarType(f"uint{b}", "uint", b) for b in (8, 16, 32, 64))
SCALAR_TYPES = {
    t.name: t
    for t in (FLOAT, DOUBLE, BOOL, INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64)
}


@dataclass(frozen=True, slots=True)
class RecordType:
    """A C struct of scalars; ``name`` is its spelling in C (``struct rec`` or a typedef name)."""

    name: str
    fields: tuple[tuple[str, ScalarType], ...]

    @property
    def size(self) -> int:
        """Bytes, with C's alignment on common ABIs."""
        offset, align = 0, 1
        for _, t in self.fields:
            offset = -(-offset // t.size) * t.size + t.size
            align = max(align, t.size)
        return -(-offset // align) * align

    def field_type(self, name: str) -> ScalarType:
        return dict(self.fields)[name]

    def __str__(self) -> str:
        return self.name


Type = ScalarType | RecordType

# --------------------------------------------------------------------------- expressions


@dataclass(frozen=True, slots=True)
class Const:
    """A number.  All NaN are one object, so that expressions with one are equal where they look equal."""

    value: int | float
    type: ScalarType

    def __post_init__(self) -> None:
        if self.value != self.value:
            object.__setattr__(self, "value", math.nan)

    def __reduce__(self) -> tuple[object, ...]:
        return Const, (self.value, self.type)


@dataclass(frozen=True, slots=True)
class Var:
    """An iterator, a parameter, or a local variable."""

    name: str
    type: Type


@dataclass(frozen=True, slots=True)
class Load:
    buffer: str
    index: tuple[Expr, ...]
    type: Type
    span: Span = field(default=NO_SPAN, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Operand:
    """The value read by access number ``access`` of the input view."""

    access: int
    type: Type


@dataclass(frozen=True, slots=True)
class Result:
    """Component number ``component`` of the combined result."""

    component: int
    type: Type


@dataclass(frozen=True, slots=True)
class Unary:
    op: str  # - ! ~
    a: Expr
    type: ScalarType


@dataclass(frozen=True, slots=True)
class Binary:
    op: str  # + - * / % & | ^ << >> < <= > >= == != && ||
    a: Expr
    b: Expr
    type: ScalarType


@dataclass(frozen=True, slots=True)
class Select:
    cond: Expr
    then: Expr
    other: Expr
    type: Type


@dataclass(frozen=True, slots=True)
class Cast:
    a: Expr
    type: ScalarType


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a math.h function or of a pure function of the program (``Function``)."""

    function: str
    args: tuple[Expr, ...]
    type: Type


@dataclass(frozen=True, slots=True)
class Field:
    a: Expr
    name: str
    type: ScalarType


@dataclass(frozen=True, slots=True)
class MakeRecord:
    values: tuple[Expr, ...]  # one per field, in order
    type: RecordType


Expr = (
    Const | Var | Load | Operand | Result | Unary | Binary | Select | Cast | Call | Field | MakeRecord
)

COMPARISONS = frozenset({"<", "<=", ">", ">=", "==", "!="})
LOGICAL = frozenset({"&&", "||"})

# --------------------------------------------------------------------------- statements


@dataclass(frozen=True, slots=True)
class Declare:
    """A local variable of the body it stands in; ``value`` is its initialiser, if any."""

    name: str
    type: Type
    value: Expr | None = None
    span: Span = field(default=NO_SPAN, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Assign:
    """``target = value``; the target is a ``Var``, a ``Load`` (as a place) or a ``Field`` of these."""

    target: Expr
    value: Expr
    span: Span = field(default=NO_SPAN, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class If:
    cond: Expr
    then: tuple[Stmt, ...]
    other: tuple[Stmt, ...] = ()
    span: Span = field(default=NO_SPAN, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class While:
    """``while (cond) body``; a ``for`` whose trip count depends on data is one, too."""

    cond: Expr
    body: tuple[Stmt, ...]
    span: Span = field(default=NO_SPAN, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Return:
    value: Expr
    span: Span = field(default=NO_SPAN, compare=False, repr=False)


Stmt = Declare | Assign | If | While | Return


@dataclass(frozen=True, slots=True)
class Function:
    """A pure function of the source: its body reads and writes parameters and locals only."""

    name: str
    params: tuple[tuple[str, Type], ...]
    body: tuple[Stmt, ...]
    type: Type
    out_param: bool = False  # C signature is void f(T *res, const T *lhs, const T *rhs)


# --------------------------------------------------------------------------- traversal


def children(e: Expr) -> tuple[Expr, ...]:
    """Direct subexpressions, in evaluation order."""
    match e:  # the most frequent first: analyses walk through trees all the time
        case Binary():
            return (e.a, e.b)
        case Var() | Const() | Operand() | Result():
            return ()
        case Load():
            return e.index
        case Cast() | Unary() | Field():
            return (e.a,)
        case Select():
            return (e.cond, e.then, e.other)
        case Call():
            return e.args
        case MakeRecord():
            return e.values
        case _:
            assert_never(e)


def map_children(e: Expr, f: Callable[[Expr], Expr]) -> Expr:
    """The same node with ``f`` applied to each direct subexpression; ``e`` itself where none changes."""
    match e:
        case Binary():
            x, y = f(e.a), f(e.b)
            return e if x is e.a and y is e.b else Binary(e.op, x, y, e.type)
        case Var() | Const() | Operand() | Result():
            return e
        case Load():
            new = _mapped(e.index, f)
            return e if new is e.index else Load(e.buffer, new, e.type, e.span)
        case Cast():
            x = f(e.a)
            return e if x is e.a else Cast(x, e.type)
        case Unary():
            x = f(e.a)
            return e if x is e.a else Unary(e.op, x, e.type)
        case Field():
            x = f(e.a)
            return e if x is e.a else Field(x, e.name, e.type)
        case Select():
            x, y, z = f(e.cond), f(e.then), f(e.other)
            return e if x is e.cond and y is e.then and z is e.other else Select(x, y, z, e.type)
        case Call():
            new = _mapped(e.args, f)
            return e if new is e.args else Call(e.function, new, e.type)
        case MakeRecord():
            new = _mapped(e.values, f)
            return e if new is e.values else MakeRecord(new, e.type)
        case _:
            assert_never(e)


def _mapped(parts: tuple[Expr, ...], f: Callable[[Expr], Expr]) -> tuple[Expr, ...]:
    new = tuple(map(f, parts))
    return new if any(map(is_not, new, parts)) else parts


def walk(e: Expr) -> Iterator[Expr]:
    """The expression and everything below it, outermost first."""
    rest = [e]
    while rest:
        e = rest.pop()
        yield e
        if below := children(e):
            rest += below[::-1]


def rewrite(e: Expr, f: Callable[[Expr], Expr | None]) -> Expr:
    """Bottom-up rewriting: ``f`` returns a replacement, or None to keep the node."""

    def below(e: Expr) -> Expr:
        e = map_children(e, below)
        new = f(e)
        return e if new is None else new

    return below(e)


def substitute(e: Expr, values: Mapping[str, Expr]) -> Expr:
    """Variables replaced by expressions."""

    def below(e: Expr) -> Expr:
        return values.get(e.name, e) if isinstance(e, Var) else map_children(e, below)

    return below(e) if values else e


def variables(e: Expr) -> frozenset[str]:
    found, rest = set(), [e]
    while rest:
        e = rest.pop()
        if isinstance(e, Var):
            found.add(e.name)
        else:
            rest += children(e)
    return frozenset(found)


def base_of(target: Expr) -> Var | Load:
    """The variable or cell that an assignment to ``target`` changes."""
    while not isinstance(target, Var | Load):
        assert isinstance(target, Field), target
        target = target.a
    return target


def stmt_exprs(body: tuple[Stmt, ...]) -> Iterator[Expr]:
    """All top-level expressions (targets included) of a statement list, nested ones too."""
    for s in body:
        match s:
            case Declare(value=value):
                if value is not None:
                    yield value
            case Assign(target=target, value=value):
                yield target
                yield value
            case If(cond=cond, then=then, other=other):
                yield cond
                yield from stmt_exprs(then)
                yield from stmt_exprs(other)
            case While(cond=cond, body=inner):
                yield cond
                yield from stmt_exprs(inner)
            case Return(value=value):
                yield value
            case _:
                assert_never(s)


def straight_line(body: tuple[Stmt, ...]) -> bool:
    """Whether a body only names values: declarations with initialisers."""
    return all(isinstance(s, Declare) and s.value is not None for s in body)


def named_values(body: tuple[Stmt, ...]) -> list[tuple[str, Type, Expr]]:
    """Name, type and value of each declaration of a straight-line body."""
    assert straight_line(body)
    return [(s.name, s.type, s.value) for s in body if isinstance(s, Declare) and s.value is not None]


def map_stmts(body: tuple[Stmt, ...], f: Callable[[Expr], Expr]) -> tuple[Stmt, ...]:
    """The statements with ``f`` applied to every top-level expression (targets included)."""

    def one(s: Stmt) -> Stmt:
        match s:
            case Assign(target=target, value=value):
                return Assign(f(target), f(value), s.span)
            case Declare(value=value):
                return Declare(s.name, s.type, None if value is None else f(value), s.span)
            case If(cond=cond, then=then, other=other):
                return If(f(cond), map_stmts(then, f), map_stmts(other, f), s.span)
            case While(cond=cond, body=inner):
                return While(f(cond), map_stmts(inner, f), s.span)
            case Return(value=value):
                return Return(f(value), s.span)
            case _:
                assert_never(s)

    return tuple(map(one, body))


# --------------------------------------------------------------------------- affine expressions


@dataclass(frozen=True, slots=True)
class Affine:
    """``sum(c * name) + const`` with integer coefficients; terms sorted by name, none zero.

    >>> str(Affine.of("i") * 2 + 3 - Affine.of("N"))
    '-N + 2*i + 3'
    """

    terms: tuple[tuple[str, int], ...] = ()
    const: int = 0

    @staticmethod
    def of(name: str, coefficient: int = 1) -> Affine:
        return Affine(((name, coefficient),) if coefficient else ())

    @staticmethod
    def number(value: int) -> Affine:
        return Affine((), value)

    @staticmethod
    def from_dict(terms: dict[str, int], const: int = 0) -> Affine:
        return Affine(tuple(sorted((n, c) for n, c in terms.items() if c)), const)

    def __add__(self, other: Affine | int) -> Affine:
        if isinstance(other, int):
            return Affine(self.terms, self.const + other)
        if not other.terms:
            return Affine(self.terms, self.const + other.const)
        total = dict(self.terms)
        for name, c in other.terms:
            total[name] = total.get(name, 0) + c
        return Affine.from_dict(total, self.const + other.const)

    def __neg__(self) -> Affine:
        return self * -1

    def __sub__(self, other: Affine | int) -> Affine:
        return self + (-other)

    def __mul__(self, factor: int) -> Affine:
        return Affine(tuple([(n, c * factor) for n, c in self.terms]) if factor else (), self.const * factor)

    def coefficient(self, name: str) -> int:
        for n, c in self.terms:
            if n == name:
                return c
        return 0

    @property
    def names(self) -> frozenset[str]:
        return frozenset([n for n, _ in self.terms])

    @property
    def is_constant(self) -> bool:
        return not self.terms

    def substitute(self, values: dict[str, Affine]) -> Affine:
        total, const = dict[str, int](), self.const
        for name, c in self.terms:
            value = values.get(name)
            if value is None:
                total[name] = total.get(name, 0) + c
                continue
            const += c * value.const
            for n, k in value.terms:
                total[n] = total.get(n, 0) + c * k
        return Affine.from_dict(total, const)

    def evaluate(self, values: dict[str, int]) -> int:
        total = self.const
        for n, c in self.terms:
            total += c * values[n]
        return total

    def __str__(self) -> str:
        out = ""
        for name, c in self.terms:
            term = name if abs(c) == 1 else f"{abs(c)}*{name}"
            sign = "-" if c < 0 else "+"
            out += (f" {sign} " if out else ("-" if c < 0 else "")) + term
        if self.const or not out:
            sign = "-" if self.const < 0 else "+"
            out += f" {sign} {abs(self.const)}" if out else str(self.const)
        return out


@dataclass(frozen=True, slots=True)
class Constraint:
    """``value == 0`` if ``equality``, otherwise ``value >= 0``."""

    value: Affine
    equality: bool = False

    def renamed(self, names: dict[str, str]) -> Constraint:
        return Constraint(
            self.value.substitute({old: Affine.of(new) for old, new in names.items()}), self.equality
        )

    def substitute(self, values: dict[str, Affine]) -> Constraint:
        return Constraint(self.value.substitute(values), self.equality)

    def holds(self, values: dict[str, int]) -> bool:
        value = self.value.evaluate(values)
        return value == 0 if self.equality else value >= 0

    @property
    def names(self) -> frozenset[str]:
        return self.value.names

    def __str__(self) -> str:
        return f"{self.value} {'=' if self.equality else '>='} 0"


def as_affine(e: Expr) -> Affine | None:
    """The affine value of an integer expression, or None.

    Casts between integers are looked through, but those that may cut: to ``char`` or ``short``.  An index
    that stands for an iterator of such a type (``Cast(Var(i, INT64), INT8)``) has its values; frontends write
    what a program cuts from 64 bits with ``cut``.
    """
    match e:
        case Const(value=int(value)):
            return Affine.number(value)
        case Var(name=name, type=ScalarType() as t) if t.is_integer:
            return Affine.of(name)
        case Cast(a=a, type=t) if t.is_integer:
            return as_affine(a) if keeps(a, t) else None
        case Unary(op="-", a=a):
            x = as_affine(a)
            return None if x is None else -x
        case Binary(op="+" | "-" | "*" as op, a=a, b=b):
            x, y = as_affine(a), as_affine(b)
            if x is None or y is None:
                return None
            if op == "+":
                return x + y
            if op == "-":
                return x - y
            if y.is_constant:
                return x * y.const
            return y * x.const if x.is_constant else None
        case Binary(op="/", a=a, b=Const(value=int(c)), type=ScalarType() as t) if c > 0:
            return _quotient(as_affine(a), c, t)
        case Binary(op=">>", a=a, b=Const(value=int(c)), type=ScalarType() as t) if 0 <= c < 32:
            return _quotient(as_affine(a), 1 << c, t)
        case _:
            return None


def preserves(source: Type, target: Type) -> bool:
    """Does a conversion keep every value?"""
    if not isinstance(source, ScalarType) or not isinstance(target, ScalarType):
        return source == target
    if source == target or source.kind == "bool":
        return True
    if source.is_float:
        return target.is_float and target.bits >= source.bits
    if target.is_float:
        return source.bits <= (16 if target.bits == 32 else 32)
    if target.kind == "bool":
        return False
    if source.kind == "uint":
        return target.bits > source.bits or (target.kind == "uint" and target.bits == source.bits)
    return target.kind == "int" and target.bits >= source.bits


def cut(e: Expr, t: ScalarType) -> Expr:
    """A program's own conversion, which may cut: by way of ``INT32`` where an index looks like one."""
    narrow = e.type == INT64 and t.is_integer and t.bits < 32 and t.kind != "bool"
    return Cast(Cast(e, INT32) if narrow and as_affine(e) is not None else e, t)


def keeps(a: Expr, t: ScalarType) -> bool:
    """Does a conversion to an integer type keep the numbers that programs count with?"""
    return t.bits >= 32 or preserves(a.type, t) or (a.type == INT64 and t.kind != "bool")


def _quotient(a: Affine | None, c: int, t: ScalarType) -> Affine | None:
    """``a / c`` where nothing is ever left, ``(4*i + 2) / 2``, nor was lost before by wrapping.

    Of unsigned integers, those of 64 bits that nothing is taken from: positions in memory.
    """
    if a is None or a.const % c or any(n % c for _, n in a.terms):
        return None
    if t.kind != "int" and (t.bits < 64 or a.const < 0 or any(n < 0 for _, n in a.terms)):
        return None
    return Affine(tuple((name, n // c) for name, n in a.terms), a.const // c)


def rise(e: Expr, name: str, varies: Callable[[Expr], bool]) -> int | None:
    """By how much a whole number grows when a variable grows by one; None where that is not known.

    ``varies``: tells expressions that are another number then.  Of unsigned ones it is not known, as they
    begin again at 0.
    """
    if not varies(e):
        return 0
    if not isinstance(e.type, ScalarType) or e.type.kind != "int":
        return None
    match e:
        case Var(name=own) if own == name:
            return 1
        case Cast(a=Var(name=own)) if own == name and e.type.bits >= 32:
            return 1  # an index, which in the source is a number of such a type
        case Cast(a=a) if isinstance(a.type, ScalarType) and a.type.bits <= e.type.bits:
            return rise(a, name, varies)
        case Binary(op="+" | "-" | "*" as op, a=a, b=b):
            x, y = rise(a, name, varies), rise(b, name, varies)
            if op == "*":
                known = next((c.value for c in (a, b) if isinstance(c, Const)), None)
                other = y if isinstance(a, Const) else x
                return other * known if isinstance(known, int) and other is not None else None
            if x is None or y is None:
                return None
            return x + y if op == "+" else x - y
        case _:
            return None


def affine_index(index: tuple[Expr, ...]) -> tuple[Affine, ...]:
    """The indices of a ``Load`` whose subscripts are known to be affine."""
    out = []
    for e in index:
        a = as_affine(e)
        assert a is not None, e
        out.append(a)
    return tuple(out)


def affine_expr(a: Affine, types: dict[str, ScalarType] | None = None) -> Expr:
    """An affine value as an ``INT64`` expression."""
    out: Expr | None = None
    for name, c in a.terms:
        v: Expr = Var(name, (types or {}).get(name, INT64))
        if v.type != INT64:
            v = Cast(v, INT64)
        term = v if c == 1 else Binary("*", Const(c, INT64), v, INT64)
        out = term if out is None else Binary("+", out, term, INT64)
    if out is None:
        return Const(a.const, INT64)
    return out if not a.const else Binary("+", out, Const(a.const, INT64), INT64)


