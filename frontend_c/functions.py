"""Pure functions of the user's file as ``mdh_core.expr.Function``.

    void cmul(T *res, const T *lhs, const T *rhs) { res->re = ...; }
    =>  cmul(lhs, rhs) { T res; res.re = ...; return res; }

A function is pure here if it reads and writes its parameters and locals only, calls only such
functions and math.h, and takes no pointers except in the second signature of a combine function.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from frontend_c import operators
from frontend_c.c_types import Array, Pointer, Types, Value, Void
from frontend_c.expressions import Binding, Context, Place
from frontend_c.parsing import Node, c_ast
from frontend_c.scopes import enumerator_value, local_types
from frontend_c.statements import Names, Out, Statements
from mdh_core.diagnostics import Diagnostic, Refusal, Related, refuse
from mdh_core.expr import (
    Assign,
    Call,
    Const,
    Declare,
    Expr,
    Function,
    If,
    RecordType,
    Return,
    Stmt,
    Type,
    Var,
    While,
    stmt_exprs,
    walk,
)  # fmt: skip
from mdh_core.source import Span


@dataclass(eq=False)
class Known:
    """A converted function, what it calls, and whether it reads an operand after writing its result."""

    function: Function
    calls: tuple[str, ...] = ()
    late_reads: bool = False


@dataclass(eq=False)
class Functions:
    """The functions of a file, converted when first asked for."""

    context: Context
    _known: dict[str, Known | Diagnostic] = field(default_factory=dict)
    _open: set[str] = field(default_factory=set)

    def get(self, name: str, at: Span) -> Known:
        """The function as a pure one; otherwise a refusal at the call ``at`` that says why not."""
        if name in self._open:
            raise refuse("MDH204", f"`{name}` calls itself", at, help="write it as a loop")
        if name not in self._known:
            self._open.add(name)
            try:
                self._known[name] = self._convert(name)
            except Refusal as refusal:
                self._known[name] = refusal.diagnostic
            finally:
                self._open.discard(name)
        found = self._known[name]
        if isinstance(found, Known):
            return found
        raise refuse(
            "MDH204", f"`{name}` cannot be called inside a nest: {found.message}", at,
            related=(Related(found.span, "here"),) if found.span else (), help=found.help,
        )  # fmt: skip

    def closure(self, names: Sequence[str]) -> tuple[Function, ...]:
        """These functions and all they call, callees first."""
        out: dict[str, Function] = {}

        def add(name: str) -> None:
            known = self._known[name]
            assert isinstance(known, Known)
            if name not in out:
                for callee in known.calls:
                    add(callee)
                out[name] = known.function

        for name in names:
            add(name)
        return tuple(out.values())

    def _convert(self, name: str) -> Known:
        found = self.context.unit.function(name)
        if found is None:
            raise refuse("MDH204", "its definition cannot be parsed")
        chunk, node = found
        types = Types(self.context.unit, self.context.types.signed_char, local_types([node.body]))
        reader = FunctionReader(replace_types(self.context, types), Names(chunk.names), self)
        return reader.definition(name, node)


def replace_types(context: Context, types: Types) -> Context:
    return Context(context.unit, context.positions, types)


class FunctionReader(Statements):
    """Converts one function definition."""

    instead = "use variables that the function sets"

    def __init__(self, context: Context, names: Names, functions: Functions) -> None:
        super().__init__(context, names)
        self.functions = functions
        self.calls: dict[str, None] = {}
        self.result: Type | None = None
        self.out: Binding | None = None

    def definition(self, name: str, node: Node) -> Known:
        """The function as a pure one."""
        params = list(parameters(node))
        result = self.types.resolve(node.decl.type.type)
        if isinstance(result, Void):
            bound = self._bind_out(params, node)
            self.result = bound[0][1]
        elif isinstance(result, Value):
            self.result = result.type
            bound = [self._bind(p) for p in params]
        else:
            raise refuse("MDH212", f"`{name}` does not return a number", self.context.head(node.decl))
        body = self.block(node.body.block_items or [])
        if self.problems:
            raise Refusal(self.problems[0])
        plain = tuple(s for s in body if isinstance(s, Declare | Assign | If | While | Return))
        assert len(plain) == len(body)
        late = False
        if self.out is not None:
            late = _reads_late(plain, self.out.name, {p for p, _ in bound})
            res = Var(self.out.name, self.result)
            plain = (Declare(self.out.name, self.result), *plain, Return(res))
        function = Function(name, tuple(bound), plain, self.result, self.out is not None)
        return Known(function, tuple(self.calls), late)

    def _bind(self, decl: Node) -> tuple[str, Type]:
        """A parameter that is passed by value."""
        ctype = self.types.resolve(decl.type)
        if not isinstance(ctype, Value):
            what = (
                "takes a pointer" if isinstance(ctype, Pointer | Array) else "has a parameter of another type"
            )
            raise refuse("MDH204", f"it {what}", self.span(decl), help="pass numbers and structs by value")
        return self._parameter(decl, ctype)

    def _parameter(self, decl: Node, ctype: Value) -> tuple[str, Type]:
        binding = Binding(decl.name, "local", ctype, self.names.unique(decl.name), storage="param")
        self.scopes[0][decl.name] = binding
        return binding.name, ctype.type

    def _bind_out(self, params: list[Node], node: Node) -> list[tuple[str, Type]]:
        """``(T *res, const T *lhs, const T *rhs)`` as values; ``res`` becomes a local."""
        targets = [_pointee(self.types, p) for p in params]
        if len(params) != 3 or any(
            t is None or targets[0] is None or t.type != targets[0].type for t in targets
        ):
            what = "it returns nothing and is no combine function"
            raise refuse("MDH204", what, self.context.head(node.decl))
        assert all(targets)
        bound = [self._parameter(p, t) for p, t in zip(params[1:], targets[1:], strict=True) if t]
        first = targets[0]
        assert first is not None
        self._parameter(params[0], first)
        self.out = self.scopes[0][params[0].name]
        return bound

    # ------------------------------------------------------------------ names and places

    def lookup(self, name: str, node: Node) -> Binding:
        binding = self.find(name)
        if binding is not None:
            if binding.refusal is not None:
                raise binding.refusal
            return binding
        value = enumerator_value(self.context, name, self) or self._constant(name)
        if value is None:
            raise refuse("MDH204", f"it uses `{name}`, which is none of its locals", self.span(node))
        return Binding(name, "constant", Value(value.type, ""), value=value)

    def _constant(self, name: str) -> Const | None:
        """The value of a file-level ``const`` scalar."""
        decl = self.context.unit.variable(name)
        ctype = self.types.resolve(decl.type) if decl is not None else None
        if not isinstance(ctype, Value) or not ctype.const or decl is None or decl.init is None:
            return None
        value = self.initial(decl.init, ctype.type, decl)
        return value if isinstance(value, Const) else None

    def place(self, node: Node) -> Place:
        """As everywhere, but ``*res`` and ``res->x`` denote the value itself."""
        if self.out is not None:
            if isinstance(node, c_ast.UnaryOp) and node.op == "*" and isinstance(node.expr, c_ast.ID):
                return super().place(node.expr)
            if isinstance(node, c_ast.StructRef) and node.type == "->":
                return super().place(c_ast.StructRef(node.name, ".", node.field, node.coord))
        return super().place(node)

    def call_user(self, name: str, args: Sequence[Node], node: Node) -> Expr:
        known = self.functions.get(name, self.span(node))
        if known.function.out_param:
            raise self.unsupported("a function without a result, used as a value", node)
        self.calls[name] = None
        return user_call(known, [self.convert(a) for a in args], self.span(node))

    # ------------------------------------------------------------------ statements

    def return_(self, node: Node) -> list[Out]:
        assert self.result is not None
        span = self.span(node)
        if self.out is not None:
            return [Return(Var(self.out.name, self.result), span)]
        if node.expr is None:
            raise refuse("MDH204", "it returns nothing", self.context.head(node))
        return [Return(self.initial(node.expr, self.result, node), span)]

    def for_loop(self, node: Node) -> list[Out]:
        """Any loop of a function is a ``While``."""
        return for_as_while(self, node)


def for_as_while(reader: Statements, node: Node) -> list[Out]:
    """``for (init; cond; step) body`` as a ``While`` with the initialisation before it."""
    reader.scopes.append({})
    init = [] if node.init is None else reader.statement(node.init)
    step = [] if node.next is None else [node.next]
    loop = reader.while_loop(node, node.cond, node.stmt, step)
    reader.scopes.pop()
    return [*init, *loop]


def user_call(known: Known, args: Sequence[Expr], span: Span) -> Expr:
    """A call with the conversions of C's argument passing."""
    function = known.function
    if len(args) != len(function.params):
        raise refuse("MDH006", f"`{function.name}` takes {len(function.params)} arguments", span)
    values: list[Expr] = []
    for value, (_, t) in zip(args, function.params, strict=True):
        if not isinstance(t, RecordType):
            value = operators.cast(value, t, span)
        elif value.type != t:
            raise refuse("MDH006", f"an argument of `{function.name}` has another type", span)
        values.append(value)
    return Call(function.name, tuple(values), function.type)


def parameters(node: Node) -> list[Node]:
    """Declarations of a function's parameters, those of a K&R definition included."""
    args = node.decl.type.args
    params = list(args.params) if args else []
    old = {d.name: d for d in node.param_decls or [] if isinstance(d, c_ast.Decl)}
    out = [old.get(p.name, p) if isinstance(p, c_ast.ID) else p for p in params]
    return [p for p in out if isinstance(p, c_ast.Decl)]


def _pointee(types: Types, decl: Node) -> Value | None:
    ctype = types.resolve(decl.type)
    return ctype.target if isinstance(ctype, Pointer) and isinstance(ctype.target, Value) else None


def _reads_late(body: Sequence[Stmt], res: str, operands: set[str]) -> bool:
    """Is an operand read after (or in a loop with) a first write of the result?

    If so, a call whose result is also an operand means something else than its value form.
    """
    written = False
    for s in body:
        if written and _mentions(s, operands):
            return True
        if isinstance(s, If | While) and _writes(s, res):
            inner = [s.then, s.other] if isinstance(s, If) else [(*s.body, *s.body)]
            if any(_reads_late(b, res, operands) for b in inner):
                return True
        written = written or _writes(s, res)
    return False


def _mentions(s: Stmt, names: set[str]) -> bool:
    from_exprs = (n.name for e in stmt_exprs((s,)) for n in walk(e) if isinstance(n, Var))
    return any(name in names for name in from_exprs)


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


def why_not_combine(context: Context, name: str) -> str:
    """Why a function's signature does not fit a combine operator; empty if it does."""
    found = context.unit.function(name)
    if found is None:
        return "its definition cannot be parsed"
    node = found[1]
    params = parameters(node)
    result = context.types.resolve(node.decl.type.type)
    if isinstance(result, Void):
        targets = [_pointee(context.types, p) for p in params]
        first = targets[0] if targets else None
        if (
            first is not None
            and len(params) == 3
            and all(t is not None and t.type == first.type for t in targets)
        ):
            return "its first parameter is `const`" if first.const else ""
        return "it returns nothing and does not take three pointers to one type"
    kinds = [context.types.resolve(p.type) for p in params]
    if len(kinds) != 2:
        return f"it takes {len(kinds)} parameters"
    same = [isinstance(k, Value) and isinstance(result, Value) and k.type == result.type for k in kinds]
    if not all(same):
        return "its parameters and its result do not have the same type"
    return ""
