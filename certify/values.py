"""Running expressions and statements on traced values: a number together with the term that computed it.

The number decides branches, indices and trip counts; the term says what was computed from what.  Comparisons
and truth values are numbers only, and ``?:`` is the value that was chosen.  Floating-point numbers are not
rounded to ``float``: nothing but branches depends on them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import assert_never

from certify.terms import Term, Terms, wrapped
from mdh_core import evaluate as c
from mdh_core.evaluate import EvaluationError, Value
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

Traced = tuple[Value, Term]
Index = tuple[int, ...]


class TooLong(Exception):  # noqa: N818 - an answer
    """The run takes more operations than it is given."""


class _Returned(Exception):  # noqa: N818 - control flow
    def __init__(self, value: Traced) -> None:
        super().__init__()
        self.value = value


def _nothing(*what: object) -> Traced:
    raise EvaluationError(f"no such thing here: {what}")


@dataclass(slots=True)
class Budget:
    left: int

    def spend(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise TooLong

    def needs(self, least: int) -> None:
        """Before a run that takes so many operations at least."""
        if least > self.left:
            raise TooLong


@dataclass(slots=True)
class Env:
    terms: Terms
    budget: Budget
    variables: dict[str, Traced | None]
    functions: Mapping[str, Function] = field(default_factory=dict)
    load: Callable[[str, Index], Traced] = _nothing
    store: Callable[[str, Index, Traced], None] = lambda *_: None
    operand: Callable[[int], Traced] = _nothing
    result: Callable[[int], Traced] = _nothing

    # ------------------------------------------------------------------ expressions

    def value(self, e: Expr) -> Traced:
        self.budget.spend()
        match e:
            case Var(name=name):
                found = self.variables.get(name)
                if found is None:
                    raise EvaluationError(f"`{name}` has no value")
                return found
            case Const():
                number = c.convert(e.value, e.type)
                return number, self.terms.number(number, e.type)
            case Operand():
                return self.operand(e.access)
            case Result():
                return self.result(e.component)
            case Binary():
                return self._binary(e)
            case Select():
                return self.value(e.then if self.truth(e.cond) else e.other)
            case Load():
                return self.load(e.buffer, self.index(e))
            case Cast():
                return self.converted(self.value(e.a), e.a.type, e.type)
            case Unary():
                return self._unary(e)
            case Call():
                return self._call(e)
            case Field():
                return self._field(self.value(e.a), e)
            case MakeRecord():
                parts = [self.value(v) for v in e.values]
                assert isinstance(e.type, RecordType)
                return tuple(_scalar(v) for v, _ in parts), self.record([t for _, t in parts], e.type)

    def index(self, e: Load) -> Index:
        return tuple(self.integer(i) for i in e.index)

    def integer(self, e: Expr) -> int:
        return int(_scalar(self.value(e)[0]))

    def truth(self, e: Expr) -> bool:
        return self.value(e)[0] != 0

    def converted(self, x: Traced, old: Type, new: Type) -> Traced:
        if old == new or not isinstance(new, ScalarType):
            return x
        number = _scalar(x[0])
        value = float(number) if new.is_float else c.convert(number, new)
        assert isinstance(old, ScalarType)
        if self._plain(x[1]) and not (old.is_float and new.is_float):
            return value, self.terms.number(value, new)
        return value, self.terms.cast(x[1], old, new)

    def record(self, parts: list[Term], t: RecordType) -> Term:
        """The record with these fields; the record itself where all are one record's, each in its place."""
        nodes = [self.terms.nodes[part] for part in parts]
        own = [("call", f"field {name}", "") for name, _ in t.fields]
        if [n[:3] for n in nodes] == own and len({n[3] for n in nodes}) == 1:
            return int(nodes[0][3])  # type: ignore[call-overload]
        return self.terms.node("call", "record", "", *parts)

    def _field(self, x: Traced, e: Field) -> Traced:
        assert isinstance(e.a.type, RecordType) and isinstance(x[0], tuple)
        k = [name for name, _ in e.a.type.fields].index(e.name)
        value = x[0][k]
        if value is None:
            raise EvaluationError(f"field `{e.name}` has no value")
        node = self.terms.nodes[x[1]]
        if node[:2] == ("call", "record"):
            return value, int(node[3 + k])  # type: ignore[call-overload]
        return value, self.terms.node("call", f"field {e.name}", "", x[1])

    def _binary(self, e: Binary) -> Traced:
        if e.op in LOGICAL:
            both = self.truth(e.a) and self.truth(e.b) if e.op == "&&" else self.truth(e.a) or self.truth(e.b)
            return int(both), self.terms.number(int(both), e.type)
        (x, s), (y, t) = self.value(e.a), self.value(e.b)
        value = _computed(e, _scalar(x), _scalar(y))
        if e.op in COMPARISONS and x == y and s != t and not (self._plain(s) and self._plain(t)):
            self.terms.ties = True
        numbers = self._plain(s) and self._plain(t) and not self._exactly(e.op, e.type)
        if e.op in COMPARISONS or numbers:
            return value, self.terms.number(value, e.type)
        term = self.terms.binary(e.op, s, t, e.type)
        node = self.terms.nodes[term]
        if node[0] in ("sum", "fold"):
            self.budget.left -= len(node[3]) // 4  # type: ignore[arg-type]
        return value, term

    def _unary(self, e: Unary) -> Traced:
        x, t = self.value(e.a)
        number = _scalar(x)
        if e.op == "!":
            return int(number == 0), self.terms.number(int(number == 0), e.type)
        value: int | float = -number if e.op == "-" else ~int(number)
        value = value if e.type.is_float else wrapped(int(value), e.type)
        if self._plain(t) and not self._exactly(e.op, e.type):
            return value, self.terms.number(value, e.type)
        return value, self.terms.unary(e.op, t, e.type)

    def _call(self, e: Call) -> Traced:
        args = [self.value(a) for a in e.args]
        f = self.functions.get(e.function)
        if f is not None and not f.out_param and e.function not in self.terms.free:
            return self._inlined(f, args)
        value: Value
        if f is not None:
            env = c.Env({}, self.functions)
            value = c.call_function(f, tuple(v for v, _ in args), env)
        else:
            value = c.call_math(e.function, tuple(_scalar(v) for v, _ in args), e.type)
        numbers = all(self._plain(t) for _, t in args) and not self.terms.folds(e.function)
        if numbers and not isinstance(value, tuple):
            return value, self.terms.number(value, e.type)
        return value, self.terms.call(e.function, tuple(t for _, t in args), e.type)

    def _inlined(self, f: Function, args: list[Traced]) -> Traced:
        """What a function of the program computes, unless it is an operator itself."""
        names = [name for name, _ in f.params]
        inner = Env(self.terms, self.budget, dict(zip(names, args, strict=True)), self.functions)
        try:
            inner.run(f.body)
        except _Returned as returned:
            return returned.value
        raise EvaluationError(f"`{f.name}` returns no value")

    def _plain(self, t: Term) -> bool:
        return self.terms.nodes[t][0] == "number"

    def _exactly(self, op: str, t: ScalarType) -> bool:
        """Numbers that may be combined in any order are not rounded in their terms."""
        return t.is_float and self.terms.reorders(op, t)

    # ------------------------------------------------------------------ statements

    def run(self, body: tuple[Stmt, ...]) -> None:
        for s in body:
            self.budget.spend()
            match s:
                case Declare(name=name, type=t, value=value):
                    self.variables[name] = (
                        None if value is None else self.converted(self.value(value), value.type, t)
                    )
                case Assign(target=target, value=value):
                    self.assign(target, self.converted(self.value(value), value.type, target.type))
                case If():
                    self.run(s.then if self.truth(s.cond) else s.other)
                case While():
                    while self.truth(s.cond):
                        self.run(s.body)
                case Return(value=value):
                    raise _Returned(self.value(value))
                case _:
                    assert_never(s)

    def assign(self, target: Expr, x: Traced) -> None:
        match target:
            case Var():
                self.variables[target.name] = x
            case Load():
                self.store(target.buffer, self.index(target), x)
            case Field(a=a, name=name):
                assert isinstance(a.type, RecordType)
                old = self._whole(a)
                parts = [
                    x if n == name else self._field_or_none(old, Field(a, n, t)) for n, t in a.type.fields
                ]
                values = tuple(v if not isinstance(v, tuple) else None for v, _ in parts)
                self.assign(a, (values, self.record([t for _, t in parts], a.type)))
            case _:
                raise EvaluationError("not a place")

    def _whole(self, a: Expr) -> Traced | None:
        if isinstance(a, Var) and self.variables.get(a.name) is None:
            return None
        return self.value(a)

    def _field_or_none(self, record: Traced | None, e: Field) -> Traced:
        if record is None:
            return 0, self.terms.node("undefined", e.name, "")
        return self._field(record, e)


def _scalar(v: Value) -> int | float:
    if isinstance(v, tuple):
        raise EvaluationError("a record where a scalar is needed")
    return v


def _computed(e: Binary, x: float, y: float) -> int | float:
    if e.op in COMPARISONS:
        return int(_COMPARE[e.op](x, y))
    if e.type.is_float:
        match e.op:
            case "+":
                return x + y
            case "-":
                return x - y
            case "*":
                return x * y
            case _:
                return c.divide(float(x), float(y))
    if e.op in ("+", "-", "*"):
        return wrapped(int(x + y if e.op == "+" else x - y if e.op == "-" else x * y), e.type)
    assert isinstance(e.a.type, ScalarType) and isinstance(e.b.type, ScalarType)
    return _scalar(c.evaluate(Binary(e.op, Const(x, e.a.type), Const(y, e.b.type), e.type), c.Env({})))


_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<": lambda x, y: x < y,
    "<=": lambda x, y: x <= y,
    ">": lambda x, y: x > y,
    ">=": lambda x, y: x >= y,
    "==": lambda x, y: x == y,
    "!=": lambda x, y: x != y,
}


def alike(x: Value, y: Value) -> bool:
    """Equal up to rounding."""
    if isinstance(x, tuple) and isinstance(y, tuple):
        return all(a is None or b is None or alike(a, b) for a, b in zip(x, y, strict=True))
    if isinstance(x, tuple) or isinstance(y, tuple):
        return False
    if isinstance(x, float) or isinstance(y, float):
        if not (math.isfinite(x) and math.isfinite(y)):
            return not math.isfinite(x) and not math.isfinite(y)
        return math.isclose(x, y, rel_tol=1e-6, abs_tol=1e-6)
    return x == y
