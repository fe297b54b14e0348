"""Statements of ``ast`` -> statements of ``mdh_core.expr``.

Python declares nothing.  A variable is declared in the innermost statement list outside of which its values
are not used, at its first assignment there; a read that might come before the first assignment is refused.
The type of a variable holds everything that is assigned to it; as values may depend on it, a body is read
again until no type changes.
"""

from __future__ import annotations

import ast
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

from frontend_py import operators
from frontend_py.annotations import kind_of
from frontend_py.expressions import PRANGE, Expressions
from frontend_py.files import Dotted, PythonFile, Scope
from frontend_py.flow import assigned_in, directly_assigned, flow, names_in
from frontend_py.kinds import Scalar, join
from frontend_py.math_functions import MATH_BINARY, MATH_INTEGER, MATH_UNARY, NUMPY_BINARY, NUMPY_UNARY
from frontend_py.operators import Val
from lifter.loop_nest import Loop, NestStmt
from mdh_core.diagnostics import Diagnostic, Refusal, early_exit, refuse
from mdh_core.expr import (
    BOOL,
    INT32,
    Assign,
    Const,
    Declare,
    Expr,
    If,
    RecordType,
    Return,
    Stmt,
    Type,
    Var,
    While,
)
from mdh_core.source import Span

Out = NestStmt | Return
MAX_READINGS = 12  # of a body, until the types of its variables are known


# names that a variable of the generated C must not have
RESERVED = frozenset(
    {*MATH_UNARY.values(), *MATH_BINARY.values(), *MATH_INTEGER.values(), *NUMPY_UNARY.values()}
    | {*NUMPY_BINARY.values(), "abs", "labs", "main"}
    | {name + "f" for name in (*MATH_UNARY.values(), *MATH_BINARY.values(), *NUMPY_UNARY.values())}
    | {
        "auto", "char", "const", "default", "do", "double", "enum", "extern", "float", "goto", "inline",
        "int", "long", "register", "restrict", "short", "signed", "sizeof", "static", "struct", "switch",
        "typedef", "union", "unsigned", "void", "volatile", "asm", "typeof",
    }
)  # fmt: skip


def c_name(name: str) -> str:
    """``in_`` is Python's way to write the name ``in``."""
    plain_name = name.removesuffix("_")
    return plain_name if plain_name in ("in", "lambda", "def", "from", "is", "not", "as", "del") else name


@dataclass(eq=False)
class Names:
    """Gives out unique names; ``avoid`` are all identifiers of the function."""

    avoid: frozenset[str] = frozenset()
    used: set[str] = field(default_factory=set)

    def unique(self, name: str) -> str:
        if name not in self.used:
            self.used.add(name)
            return name
        number = 1
        while (new := f"{name}_{number}") in self.used or new in self.avoid:
            number += 1
        self.used.add(new)
        return new


@dataclass(eq=False)
class Binding:
    """A variable: kind "local", "iterator", "parameter" (of a function) or "outer"."""

    source: str
    kind: str
    key: tuple[str, int]  # by which its type is remembered from one reading to the next
    name: str = ""
    type: Scalar | None = None
    written: bool = False
    fresh: bool = False  # a record that no other name and no array shares
    shared: bool = False
    mutated: ast.AST | None = None


@dataclass(eq=False)
class Types:
    """Types of variables, found in one reading and assumed in the next."""

    assumed: dict[tuple[str, int], Scalar] = field(default_factory=dict)
    changed: bool = False

    def note(self, binding: Binding, kind: Scalar, reader: Expressions, node: ast.AST) -> Scalar:
        """The type of a variable that (also) holds values of this kind."""
        old = self.assumed.get(binding.key) or binding.type
        new = kind if old is None else join(old, kind)
        if new is None:
            raise refuse(
                "MDH212", f"`{binding.source}` is `{old}` and becomes `{kind}`", reader.span(node),
                help="convert the value, or use another variable",
            )  # fmt: skip
        if new != old or binding.key not in self.assumed:
            self.changed = self.changed or new != old
            self.assumed[binding.key] = new
        binding.type = new
        return new


class Statements(Expressions):
    """Converts statement lists; problems are collected, so that one run finds them all."""

    def __init__(self, file: PythonFile, scope: Scope, names: Names, types: Types) -> None:
        super().__init__(file, scope)
        self.names = names
        self.types = types
        self.scopes: list[dict[str, Binding]] = [{}]
        self.gone: set[str] = set()  # iterators whose loops have ended
        self.mutable: list[Binding] = []
        self.problems: list[Diagnostic] = []

    # ------------------------------------------------------------------ for subclasses

    @abstractmethod
    def for_loop(self, node: ast.For) -> list[Out]: ...

    @abstractmethod
    def return_(self, node: ast.Return) -> list[Out]: ...

    def outer(self, name: str, node: ast.AST) -> Binding | None:
        """A variable from around what is read."""
        return None

    def visible(self, name: str) -> bool:
        """Has the name a meaning before it is assigned here?"""
        return self.find(name) is not None

    def element_target(self, node: ast.Subscript) -> Expr | None:
        """The place of an array element; None where the base is no array."""
        return None

    def note_view(self, val: Val, node: ast.AST) -> None:
        """A name is given to a record that may lie in an array."""

    def call_statement(self, node: ast.Call) -> list[Out]:
        thing = self.thing(node.func)
        if isinstance(thing, Dotted) and thing.name.startswith("builtins."):
            raise refuse("MDH204", f"`{ast.unparse(node.func)}` has effects", self.span(node))
        self.convert(node)
        return []

    # ------------------------------------------------------------------ names

    def find(self, name: str) -> Binding | None:
        return next((scope[name] for scope in reversed(self.scopes) if name in scope), None)

    def is_variable(self, name: str) -> bool:
        return self.visible(name) or name in self.gone

    def binding(self, name: str, node: ast.AST) -> Binding | None:
        found = self.find(name) or self.outer(name, node)
        if found is None and name in self.gone:
            raise refuse(
                "MDH210", f"`{name}` is read after the loop that counts it", self.span(node),
                help="use a variable of its own for the loop",
            )  # fmt: skip
        return found

    def variable(self, name: str, node: ast.AST) -> Val | None:
        found = self.binding(name, node)
        if found is None:
            return None
        return self.value_of(found, node)

    def value_of(self, b: Binding, node: ast.AST) -> Val:
        t = self.types.assumed.get(b.key) or b.type
        if t is None:
            raise refuse("MDH006", f"`{b.source}` may have no value here", self.span(node),
                         help="assign it before the loop")  # fmt: skip
        return Val(Var(b.name, INT32 if t.truth else t.type), t.weak, t.truth)

    # ------------------------------------------------------------------ lists

    def scoped(self, body: Sequence[ast.stmt]) -> list[Out]:
        self.scopes.append({})
        out = self.block(body)
        self.scopes.pop()
        return out

    def block(self, body: Sequence[ast.stmt]) -> list[Out]:
        """Statements in order, with the declarations of variables that live in this list."""
        starts = self._declared_here(body)
        out: list[Out] = []
        for s in body:
            first = [n for n, at in starts.items() if at is s]
            try:
                early = [n for n in first if n not in directly_assigned(s) or isinstance(s, ast.AugAssign)]
                for name in early:
                    b = self._declare(name, s)
                    t = self.types.assumed.get(b.key)
                    out.append(Declare(b.name, _stored_type(t) if t else INT32, None, self.span(s)))
                out += self.statement(s, frozenset(first) - set(early))
            except Refusal as refusal:
                if refusal.diagnostic not in self.problems:
                    self.problems.append(refusal.diagnostic)
                for name in first:
                    if name not in self.scopes[-1]:
                        self._declare(name, s)
        return out

    def _declared_here(self, body: Sequence[ast.stmt]) -> dict[str, ast.stmt]:
        """Variables that are declared in this list, with the statement that mentions them first."""
        out: dict[str, ast.stmt] = {}
        inner = assigned_in(body)
        whole = flow(body)
        for name in sorted(inner):
            if self.visible(name):
                continue
            mentions = [s for s in body if name in names_in([s])]
            here = any(name in directly_assigned(s) or name in flow([s]).exposed for s in mentions)
            if not here:
                continue
            if name in whole.exposed:
                node = whole.exposed[name]
                self.problems.append(
                    Diagnostic(
                        "MDH006",
                        f"`{name}` may have no value here",
                        span=self.span(node),
                        help=f"assign `{name}` before the loop",
                    )
                )
                if self.types.assumed.get((name, id(mentions[0]))) is None:
                    continue
            out[name] = mentions[0]
        return out

    def _declare(self, name: str, s: ast.stmt) -> Binding:
        b = Binding(name, "local", (name, id(s)), self.names.unique(c_name(name)))
        b.type = self.types.assumed.get(b.key)
        self.scopes[-1][name] = b
        return b

    def statement(self, s: ast.stmt, first: frozenset[str]) -> list[Out]:
        """One statement; ``first``: variables that it declares."""
        match s:
            case ast.Assign(targets=[target], value=value):
                return self._assign(target, value, s, first)
            case ast.Assign(targets=targets, value=value):
                return self._chain(targets, value, s, first)
            case ast.AnnAssign(target=target, value=None):
                return self._bare(target, s, first)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                return self._assign(target, value, s, first)
            case ast.AugAssign():
                return self._augmented(s)
            case ast.If():
                return self._if(s)
            case ast.For():
                if s.orelse:
                    raise self.unsupported("`else` of a loop", s.orelse[0])
                return self.for_loop(s)
            case ast.While():
                if s.orelse:
                    raise self.unsupported("`else` of a loop", s.orelse[0])
                return self.while_loop(s)
            case ast.Return():
                return self.return_(s)
            case ast.Pass():
                return []
            case ast.Expr(value=ast.Constant()):
                return []
            case ast.Expr(value=ast.Call() as call):
                return self.call_statement(call)
            case ast.Expr(value=value):
                self.convert(value)
                return []
            case ast.Break() | ast.Continue():
                word = "break" if isinstance(s, ast.Break) else "continue"
                raise jump(word, self.span(s))
            case ast.Assert():
                raise self.unsupported("`assert`", s, "put it before the first loop")
        word = type(s).__name__.lower()
        raise refuse("MDH006", f"`{word}` is not supported inside a nest", self.file.head(s))

    # ------------------------------------------------------------------ assignments

    def _assign(self, target: ast.expr, value: ast.expr, s: ast.stmt, first: frozenset[str]) -> list[Out]:
        if isinstance(target, ast.Tuple | ast.List):
            return self._unpacked(target.elts, value, s, first)
        if isinstance(target, ast.Name):
            fresh = self.fresh_record(value)
            if fresh is not None:
                return [self._store_record(target, fresh[0], fresh[1], s, first)]
            if self._copies_itself(target, value):
                return []
            shares = self._shares(value)
            val = self.convert(value)
            if shares and isinstance(val.expr.type, RecordType):
                self.note_view(val, s)
            return [self._to_name(target.id, val, s, first, fresh=not shares)]
        return [self._to_place(target, self.convert(value), s)]

    def _bare(self, target: ast.expr, s: ast.AnnAssign, first: frozenset[str]) -> list[Out]:
        """``t: int`` without a value declares."""
        kind = kind_of(s.annotation, self.scope)
        if not isinstance(target, ast.Name) or target.id not in first or not isinstance(kind, Scalar):
            return []
        b = self._declare(target.id, s)
        kind = self.types.note(b, kind, self, s)
        return [Declare(b.name, _stored_type(kind), None, self.span(s))]

    def _chain(
        self, targets: Sequence[ast.expr], value: ast.expr, s: ast.stmt, first: frozenset[str]
    ) -> list[Out]:
        """``a = b = value``: the value is computed once."""
        val = self.convert(value)
        if isinstance(val.expr.type, RecordType):
            raise self.unsupported("one record for several names", s)
        out: list[Out] = []
        if not isinstance(val.expr, Const | Var):
            val, keep = self._temporary(val, s)
            out.append(keep)
        for t in targets:
            if isinstance(t, ast.Name):
                out.append(self._to_name(t.id, val, s, first))
            else:
                out.append(self._to_place(t, val, s))
        return out

    def _unpacked(
        self, targets: Sequence[ast.expr], value: ast.expr, s: ast.stmt, first: frozenset[str]
    ) -> list[Out]:
        """``a, b = b, a``: all values, then all assignments."""
        if not isinstance(value, ast.Tuple) or len(value.elts) != len(targets):
            raise self.unsupported("this assignment to several names", s)
        out: list[Out] = []
        values: list[Val] = []
        for k, node in enumerate(value.elts):
            val = self.convert(node)
            if isinstance(val.expr.type, RecordType):
                raise self.unsupported("exchanging records", s)
            changed = names_in(targets[:k]) & names_in([node])
            if changed or any(isinstance(t, ast.Subscript) for t in targets[:k]):
                val, keep = self._temporary(val, s)
                out.append(keep)
            values.append(val)
        for t, val in zip(targets, values, strict=True):
            if isinstance(t, ast.Name):
                out.append(self._to_name(t.id, val, s, first))
            else:
                out.append(self._to_place(t, val, s))
        return out

    def _temporary(self, val: Val, s: ast.stmt) -> tuple[Val, Declare]:
        name = self.names.unique("mdh_t")
        t = val.expr.type
        return Val(Var(name, t), val.weak, val.truth), Declare(name, t, val.expr, self.span(s))

    def _to_name(self, name: str, val: Val, s: ast.stmt, first: frozenset[str], fresh: bool = False) -> Out:
        span = self.span(s)
        declares = name in first
        b = self._declare(name, s) if declares else self._target(name, s)
        kind = self.types.note(b, val.kind, self, s)
        if isinstance(kind.type, RecordType):
            b.fresh = fresh and (declares or b.fresh)
        e = self._fitted(val, kind, span)
        if declares:
            return Declare(b.name, _stored_type(kind), e, span)
        return Assign(Var(b.name, _stored_type(kind)), e, span)

    def _fitted(self, val: Val, kind: Scalar, span: Span) -> Expr:
        if isinstance(kind.type, RecordType) or kind.truth:
            return val.expr
        if val.truth and kind.type == BOOL:
            return operators.cast(val.expr, BOOL, span)
        return operators.fitted(val, kind.type, span)

    def _target(self, name: str, node: ast.AST) -> Binding:
        b = self.find(name) or self.outer(name, node)
        if b is None:
            raise refuse("MDH006", f"`{name}` is not known", self.span(node))
        if b.kind == "iterator":
            at = next((n for n in ast.walk(node) if isinstance(n, ast.Name) and n.id == name), node)
            raise refuse("MDH210", f"iterator `{name}` is assigned in its loop", self.span(at))
        b.written = True
        return b

    def _to_place(self, target: ast.expr, val: Val, s: ast.stmt) -> Assign:
        span = self.span(s)
        if not isinstance(target, ast.Subscript):
            raise self.unsupported("this target of an assignment", target)
        place = self.element_target(target) or self._field_target(target)
        if isinstance(place.type, RecordType):
            if val.expr.type != place.type:
                raise refuse("MDH006", f"the value assigned is no `{place.type}`", span)
            return Assign(place, val.expr, span)
        if val.truth:
            return Assign(place, operators.cast(val.expr, place.type, span), span)
        return Assign(place, operators.fitted(val, place.type, span), span)

    def _augmented(self, s: ast.AugAssign) -> list[Out]:
        val = self.convert(s.value)
        if isinstance(s.target, ast.Name):
            old = self.variable(s.target.id, s.target)
            if old is None:
                raise refuse("MDH006", f"`{s.target.id}` is not known", self.span(s.target))
            return [self._to_name(s.target.id, self.operate(s.op, old, val, s), s, frozenset())]
        if isinstance(s.target, ast.Subscript):
            place = self.element_target(s.target) or self._field_target(s.target)
            t = place.type
            if isinstance(t, RecordType):
                raise self.unsupported("arithmetic on records", s)
            old = Val(operators.truth(Val(place), self.span(s)), truth=True) if t == BOOL else Val(place)
            return [self._to_place(s.target, self.operate(s.op, old, val, s), s)]
        raise self.unsupported("this target of an assignment", s.target)

    # ------------------------------------------------------------------ records

    def _store_record(
        self, target: ast.Name, t: RecordType, value: Expr | None, s: ast.stmt, first: frozenset[str]
    ) -> Out:
        if value is not None:
            return self._to_name(target.id, Val(value), s, first, fresh=True)
        if target.id not in first:
            raise self.unsupported("`np.empty` after the first assignment", s)
        b = self._declare(target.id, s)
        self.types.note(b, Scalar(t), self, s)
        b.fresh = True
        return Declare(b.name, t, None, self.span(s))

    def _copies_itself(self, target: ast.Name, value: ast.expr) -> bool:
        """``r = r.copy()`` of a record makes it a value of its own; values are copied here anyway."""
        match value:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="copy"), args=[], keywords=[]):
                b = self.find(name)
                if name == target.id and b is not None and b.type and isinstance(b.type.type, RecordType):
                    b.fresh = True
                    return True
        return False

    def _shares(self, value: ast.expr) -> bool:
        """Does a value name a record that lives elsewhere?  Plain numbers never do."""
        for n in _whole_values(value):
            if isinstance(n, ast.Name) and (b := self.find(n.id)) is not None:
                b.shared = True
        return not _is_copy(value)

    def _field_target(self, node: ast.Subscript) -> Expr:
        base = node.value
        if isinstance(base, ast.Name):
            b = self.binding(base.id, base)
            if b is None:
                raise refuse("MDH006", f"`{base.id}` is not known", self.span(base))
            record = self.value_of(b, base)
            place = self.member(record, node)
            if not b.fresh:
                raise refuse(
                    "MDH006", f"a field of `{base.id}` is assigned, which may be a view", self.span(node),
                    help=f"write `{base.id} = {base.id}.copy()` first",
                )  # fmt: skip
            b.written = True
            b.mutated = node
            self.mutable.append(b)
            return place.expr
        if isinstance(base, ast.Subscript):
            inner = self.element_target(base)
            if inner is not None:
                return self.member(Val(inner), node).expr
        raise self.unsupported("this target of an assignment", node)

    def check_records(self) -> None:
        """After everything was read: a record that is changed must have one name only."""
        for b in self.mutable:
            if b.shared and b.mutated is not None:
                self.problems.append(
                    Diagnostic(
                        "MDH006",
                        f"`{b.source}` is changed, and another name may refer to it",
                        span=self.span(b.mutated),
                        help=f"pass or assign `{b.source}.copy()`",
                    )
                )
                return

    # ------------------------------------------------------------------ control

    def _if(self, s: ast.If) -> list[Out]:
        cond = self.condition(s.test)
        then, other = self.scoped(s.body), self.scoped(s.orelse)
        if not (then or other):
            return []
        return [If(cond, tuple(then), tuple(other), self.span(s))]  # type: ignore[arg-type] # loops in it

    def while_loop(self, s: ast.While) -> list[Out]:
        cond = self.condition(s.test)
        body = self.scoped(s.body)
        if any(isinstance(x, Loop) for x in body):
            raise refuse("MDH210", "counted loop inside a loop that is none", self.file.head(s))
        return [While(cond, plain(body), self.file.head(s))]

    # ------------------------------------------------------------------ loop heads

    def head(self, node: ast.For) -> tuple[str, ast.expr | None, ast.expr, int | ast.expr]:
        """Iterator, lower bound (None: 0), upper bound and step of ``for i in range(...)``.

        A step that is no constant is an integer; whether it may be one is for the caller to say.
        """
        call = node.iter
        advice = STEP_HELP
        if not isinstance(node.target, ast.Name):
            raise refuse("MDH210", "loop counts no variable", self.span(node.target), help=advice)
        if not isinstance(call, ast.Call) or call.keywords or not 1 <= len(call.args) <= 3:
            raise refuse("MDH210", "loop does not run over `range`", self.span(call), help=advice)
        thing = self.thing(call.func)
        name = thing.name if isinstance(thing, Dotted) else ""
        if name not in PRANGE:
            raise refuse("MDH210", "loop does not run over `range`", self.span(call), help=advice)
        args = call.args
        if any(isinstance(a, ast.Starred) for a in args):
            raise refuse("MDH210", "loop does not run over `range`", self.span(call), help=advice)
        if len(args) == 1:
            return node.target.id, None, args[0], 1
        step = 1
        if len(args) == 3:
            amount = self.convert(args[2]).expr
            if not isinstance(amount, Const):
                return node.target.id, args[0], args[1], args[2]
            if not isinstance(amount.value, int) or not amount.value:
                raise self.no_step(args[2])
            step = amount.value
        return node.target.id, args[0], args[1], step

    def no_step(self, node: ast.expr) -> Refusal:
        return refuse("MDH210", "step is not constant", self.span(node), help=STEP_HELP)


STEP_HELP = "write `for i in range(lo, hi, c)` with a constant `c`"


def jump(word: str, span: Span) -> Refusal:
    """MDH205."""
    return early_exit(word, span, "if … and i < at: at = i", "if …: found = 1")


def _stored_type(t: Scalar) -> Type:
    return INT32 if t.truth else t.type


def plain(body: Sequence[Out]) -> tuple[Stmt, ...]:
    """Statements of which none is a counted loop."""
    assert not any(isinstance(s, Loop) for s in body)
    return tuple(s for s in body if not isinstance(s, Loop))


def _whole_values(value: ast.expr) -> list[ast.expr]:
    """Names and elements that may become the value itself."""
    match value:
        case ast.Name() | ast.Subscript():
            return [value]
        case ast.IfExp(body=body, orelse=orelse):
            return [*_whole_values(body), *_whole_values(orelse)]
        case ast.Call(args=args) if not _is_copy(value):
            return [x for a in args for x in _whole_values(a)]
    return []


def _is_copy(value: ast.expr) -> bool:
    match value:
        case ast.Call(func=ast.Attribute(attr="copy"), args=[]):
            return True
    return False
