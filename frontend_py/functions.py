"""Pure functions of the user as ``mdh_core.expr.Function``, one for each set of argument types.

    def cmul(res, lhs, rhs): res["re"] = ...        =>  cmul(lhs, rhs) { T res; res.re = ...; return res; }

A function is pure here if it reads and writes its parameters and locals only and calls only such functions
and those of ``math`` and NumPy.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field

from frontend_py import operators
from frontend_py.annotations import kind_of
from frontend_py.files import UserFunction
from frontend_py.flow import flow, mutated_records, names_in
from frontend_py.kinds import Array, Scalar, join
from frontend_py.operators import Val
from frontend_py.statements import MAX_READINGS, Binding, Names, Out, Statements, Types, plain
from lifter.loop_nest import Loop
from mdh_core.diagnostics import Diagnostic, Refusal, Related, refuse
from mdh_core.expr import (
    INT32,
    INT64,
    Assign,
    Binary,
    Call,
    Const,
    Declare,
    Expr,
    Function,
    If,
    RecordType,
    Return,
    ScalarType,
    Stmt,
    Type,
    Var,
    While,
    stmt_exprs,
    walk,
)
from mdh_core.source import Span


@dataclass(eq=False)
class Known:
    """A converted function: what it yields, what it calls, whether it reads an operand late."""

    function: Function
    result: Scalar
    calls: tuple[str, ...] = ()
    late_reads: bool = False


_Key = tuple[int, tuple[Scalar, ...]]


@dataclass(eq=False)
class Functions:
    """The functions of a program, converted when first called with arguments of some types."""

    _known: dict[_Key, Known | Diagnostic] = field(default_factory=dict)
    _open: set[int] = field(default_factory=set)
    _names: dict[str, _Key] = field(default_factory=dict)

    def get(self, name: str, source: UserFunction, kinds: Sequence[Scalar], at: Span) -> Known:
        """The function as a pure one; otherwise a refusal at the call ``at`` that says why not."""
        if id(source.node) in self._open:
            raise refuse("MDH204", f"`{name}` calls itself", at, help="write it as a loop")
        key = (id(source.node), tuple(kinds))
        if key not in self._known:
            self._open.add(id(source.node))
            try:
                self._known[key] = self._convert(self._unique(source.node.name, key), source, kinds)
            except Refusal as refusal:
                self._known[key] = refusal.diagnostic
            finally:
                self._open.discard(id(source.node))
        found = self._known[key]
        if isinstance(found, Known):
            return found
        raise refuse(
            "MDH204", f"`{name}` cannot be called inside a nest: {found.message}", at,
            related=(Related(found.span, "here"),) if found.span else (), help=found.help,
        )  # fmt: skip

    def _unique(self, name: str, key: _Key) -> str:
        number, new = 0, name
        while self._names.setdefault(new, key) != key:
            number += 1
            new = f"{name}_{number}"
        return new

    def _convert(self, name: str, source: UserFunction, kinds: Sequence[Scalar]) -> Known:
        types = Types()
        result: Scalar | None = None
        for _ in range(MAX_READINGS):
            types.changed = False
            reader = FunctionReader(source, self, types, result)
            known = reader.definition(name, kinds)
            if not types.changed and known.result == result:
                return known
            result = known.result
        raise refuse("MDH212", "the types of its variables could not be told")

    def closure(self, names: Sequence[str]) -> tuple[Function, ...]:
        """These functions and all they call, callees first."""
        out: dict[str, Function] = {}

        def add(name: str) -> None:
            known = self._known[self._names[name]]
            assert isinstance(known, Known)
            if name not in out:
                for callee in known.calls:
                    add(callee)
                out[name] = known.function

        for name in names:
            add(name)
        return tuple(out.values())

    def has(self, name: str) -> bool:
        return name in self._names and isinstance(self._known.get(self._names[name]), Known)


class FunctionReader(Statements):
    """Converts one function definition."""

    def __init__(
        self, source: UserFunction, functions: Functions, types: Types, result: Scalar | None
    ) -> None:
        names = Names(names_in([source.node]) | {a.arg for a in source.node.args.args})
        super().__init__(source.file, source.scope, names, types)
        self.node = source.node
        self.functions = functions
        self.calls: dict[str, None] = {}
        self.assumed = result
        self.result: Scalar | None = None
        self.out: Binding | None = None

    def definition(self, name: str, kinds: Sequence[Scalar]) -> Known:
        node = self.node
        self._check_signature(name, kinds)
        arguments = [a.arg for a in node.args.args]
        is_out = _writes_result(node)
        if is_out:
            bound = [self._bind(a, k) for a, k in zip(arguments[1:], kinds[1:], strict=True)]
            self._bind(arguments[0], kinds[0])
            self.out = self.scopes[0][arguments[0]]
            self.out.fresh = True
            self.result = kinds[0]
        else:
            stated = [kind_of(a.annotation, self.scope) for a in node.args.args]
            bound = [
                self._bind(a, s if isinstance(s, Scalar) and isinstance(k.type, ScalarType) else k)
                for a, s, k in zip(arguments, stated, kinds, strict=True)
            ]
        body = self.block(node.body)
        self.check_records()
        if self.problems:
            raise Refusal(self.problems[0])
        statements = plain(body)
        if self.out is not None:
            assert isinstance(kinds[0].type, RecordType)
            late = reads_late(statements, self.out.name, {p for p, _ in bound})
            res = Var(self.out.name, kinds[0].type)
            whole = (Declare(self.out.name, res.type), *statements, Return(res))
            return Known(
                Function(name, tuple(bound), whole, res.type, True), kinds[0], tuple(self.calls), late
            )
        if self.result is None or not flow(node.body).left:
            raise refuse("MDH204", "it does not return a value on every path", self.file.head(node))
        t: Type = INT32 if self.result.truth else self.result.type
        return Known(Function(name, tuple(bound), statements, t), self.result, tuple(self.calls))

    def _check_signature(self, name: str, kinds: Sequence[Scalar]) -> None:
        args = self.node.args
        if args.vararg or args.kwarg or args.kwonlyargs or args.posonlyargs or args.defaults:
            raise refuse("MDH204", "its parameters are not plain", self.file.head(self.node))
        if self.node.decorator_list:
            raise refuse("MDH204", "it is decorated", self.span(self.node.decorator_list[0]))
        if len(args.args) != len(kinds):
            raise refuse("MDH006", f"`{name}` takes {len(args.args)} arguments", self.file.head(self.node))

    def _bind(self, name: str, kind: Scalar) -> tuple[str, Type]:
        b = Binding(name, "parameter", (name, 0), self.names.unique(name), kind)
        self.scopes[0][name] = b
        self.types.note(b, kind, self, self.node)
        t = self.types.assumed[b.key]
        return b.name, INT32 if t.truth else t.type

    def call_user(self, name: str, function: UserFunction, node: ast.Call) -> Val:
        return user_call(self, self.functions, self.calls, name, function, node)

    def return_(self, node: ast.Return) -> list[Out]:
        span = self.span(node)
        if self.out is not None:
            raise refuse("MDH204", "it returns a value and changes a parameter", span)
        if node.value is None:
            raise refuse("MDH204", "it returns nothing", span)
        val = self.convert(node.value)
        stated = kind_of(self.node.returns, self.scope)
        if isinstance(stated, Array):
            raise refuse("MDH204", "it returns an array", span)
        kind = stated if stated is not None and not isinstance(val.expr.type, RecordType) else val.kind
        joined = kind if self.result is None else join(self.result, kind)
        if joined is None:
            raise refuse("MDH212", f"it returns `{self.result}` and `{kind}`", span)
        self.result = joined
        goal = self.assumed or joined
        return [Return(self._as(val, goal, span), span)]

    def _as(self, val: Val, kind: Scalar, span: Span) -> Expr:
        if isinstance(kind.type, RecordType) or isinstance(val.expr.type, RecordType):
            if val.expr.type != kind.type:
                raise refuse("MDH212", f"it returns `{val.kind}` and `{kind}`", span)
            return val.expr
        if kind.truth:
            return operators.truth(val, span)
        return operators.cast(val.expr, kind.type, span)

    def for_loop(self, node: ast.For) -> list[Out]:
        """A loop of a function is a ``While``; the iterator does not outlive it."""
        name, lower, upper, step = self.head(node)
        if isinstance(step, ast.expr):
            raise self.no_step(step)
        low = operators.constant(0, self.span(node)) if lower is None else self.convert(lower)
        high = self.convert(upper)
        for v, at in ((low, lower or node), (high, upper)):
            if not operators.number(v, self.span(at)).is_integer:
                raise refuse("MDH210", "bound is no integer", self.span(at))
        out: list[Out] = []
        limit = self.names.unique("mdh_end")
        out.append(Declare(limit, INT64, operators.cast(high.expr, INT64, self.span(upper))))
        b = Binding(name, "iterator", (name, id(node)), self.names.unique(name), Scalar(INT64, weak=True))
        out.append(Declare(b.name, INT64, operators.cast(low.expr, INT64, self.span(node)), self.span(node)))
        self.scopes.append({name: b})
        body = self.scoped(node.body)
        self.scopes.pop()
        self.gone.add(name)
        assert not any(isinstance(s, Loop) for s in body)
        i = Var(b.name, INT64)
        again = Binary("<" if step > 0 else ">", i, Var(limit, INT64), INT32)
        advance = Assign(i, Binary("+", i, Const(step, INT64), INT64))
        return [*out, While(again, (*plain(body), advance), self.file.head(node))]


def _writes_result(node: ast.FunctionDef) -> bool:
    """Is it of the form ``op(res, lhs, rhs)``, which fills its first parameter?"""
    if len(node.args.args) != 3 or any(
        isinstance(n, ast.Return) and n.value is not None for n in ast.walk(node)
    ):
        return False
    return node.args.args[0].arg in mutated_records(node.body)


def user_call(
    reader: Statements, functions: Functions, calls: dict[str, None], name: str, function: UserFunction,
    node: ast.Call,
) -> Val:  # fmt: skip
    """A call of a function that returns a value."""
    span = reader.span(node)
    if node.keywords or any(isinstance(a, ast.Starred) for a in node.args):
        raise reader.unsupported("an argument with a keyword or `*`", node)
    if _writes_result(function.node):
        raise reader.unsupported("a function without a result, used as a value", node)
    slot = function.node.name
    calls[slot] = None  # callers are numbered in the order of the text, arguments come later
    args = [reader.convert(a) for a in node.args]
    known = functions.get(name, function, [v.kind for v in args], span)
    _renamed(calls, slot, known.function.name)
    values: list[Expr] = []
    for v, (_, t) in zip(args, known.function.params, strict=True):
        if isinstance(t, RecordType) or isinstance(v.expr.type, RecordType):
            values.append(v.expr)
        else:
            values.append(v.expr if v.truth and t == INT32 else operators.fitted(v, t, span))
    call = Call(known.function.name, tuple(values), known.function.type)
    return Val(call, known.result.weak, known.result.truth)


def _renamed(calls: dict[str, None], old: str, new: str) -> None:
    if old != new:
        items = [new if name == old else name for name in calls]
        calls.clear()
        calls.update(dict.fromkeys(items))


def reads_late(body: Sequence[Stmt], res: str, operands: set[str]) -> bool:
    """Is an operand read after, or in a loop with, a first write of the result?"""
    written = False
    for s in body:
        if written and any(
            n.name in operands for e in stmt_exprs((s,)) for n in walk(e) if isinstance(n, Var)
        ):
            return True
        if isinstance(s, If | While) and _writes(s, res):
            inner = [s.then, s.other] if isinstance(s, If) else [(*s.body, *s.body)]
            if any(reads_late(b, res, operands) for b in inner):
                return True
        written = written or _writes(s, res)
    return False


def _writes(s: Stmt, name: str) -> bool:
    match s:
        case Assign(target=target):
            return any(isinstance(n, Var) and n.name == name for n in walk(target))
        case If(then=then, other=other):
            return any(_writes(x, name) for x in (*then, *other))
        case While(body=body):
            return any(_writes(x, name) for x in body)
        case _:
            return False
