"""The loops of a function as a ``LoopNest``.

Everything from the first loop of the function's body to the last one is the nest.  Names from outside are
bound when first used and sorted out at the end: what is only read is a parameter, what is written is an
outer scalar, arrays are buffers.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from frontend_py import operators
from frontend_py.annotations import kind_of
from frontend_py.files import PythonFile, Scope, UserFunction
from frontend_py.flow import assigned_in, flow, names_in, read_in, stored
from frontend_py.functions import Functions, user_call
from frontend_py.kinds import Array, Kind, Scalar
from frontend_py.operators import Val
from frontend_py.statements import RESERVED, Binding, Names, Out, Statements, Types, c_name, jump
from lifter.loop_nest import Loop, NestStmt, OuterScalar, Stride, quotient_facts
from lifter.trees import ends, loops_in, mentioned, replaced, widened
from mdh_core.diagnostics import refuse
from mdh_core.expr import (
    BOOL,
    INT32,
    INT64,
    UINT64,
    Affine,
    Assign,
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    If,
    Load,
    RecordType,
    Return,
    ScalarType,
    Select,
    Stmt,
    Type,
    Unary,
    Var,
    While,
    as_affine,
    map_children,
    rewrite,
    walk,
)
from mdh_core.ir import Buffer, Param
from mdh_core.source import Span

C_NAMES = {
    "float": "float", "double": "double", "bool": "_Bool", "int8": "signed char", "int16": "short",
    "int32": "int", "int64": "long long", "uint8": "unsigned char", "uint16": "unsigned short",
    "uint32": "unsigned int", "uint64": "unsigned long long",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Shape:
    """``array.shape[dimension]``."""

    array: str
    dimension: int


@dataclass(frozen=True)
class Parts:
    """A function's body, divided."""

    node: ast.FunctionDef
    before: tuple[ast.stmt, ...]
    loops: tuple[ast.stmt, ...]
    after: tuple[ast.stmt, ...]


def parts(node: ast.FunctionDef) -> Parts | None:
    """None where the body holds no loop."""
    loops = [k for k, s in enumerate(node.body) if isinstance(s, ast.For)]
    if not loops:
        return None
    first, last = loops[0], loops[-1] + 1
    body = node.body
    return Parts(node, tuple(body[:first]), tuple(body[first:last]), tuple(body[last:]))


@dataclass(eq=False)
class Outer(Binding):
    """A variable from before the nest; ``array`` if it is one."""

    array: Array | None = None


@dataclass(eq=False)
class Extents:
    """Derived parameters of a nest: what is computed once, before it."""

    reader: NestReader
    params: list[Param] = field(default_factory=list)
    sources: dict[str, Expr | Shape] = field(default_factory=dict)  # by the parameter's name

    def hoist(self, e: Expr) -> Expr:
        """``e`` with its invariant parts that are not affine replaced by parameters."""
        if as_affine(e) is not None or isinstance(e, Const | Var):
            return e
        if self.reader.invariant(e) and isinstance(e.type, ScalarType) and e.type.is_integer:
            return self.param(e, e.type)
        match e:
            case Binary(op="+" | "-") | Cast() | Unary(op="-"):
                return map_children(e, self.hoist)
            case Binary(op="*"):
                return map_children(e, self._factor)
        return e

    def _factor(self, e: Expr) -> Expr:
        """In a product with an iterator, sums and products stay, quotients and the like do not."""
        match e:
            case Const() | Var():
                return e
            case Binary(op="+" | "-" | "*") | Cast() | Unary(op="-"):
                return map_children(e, self._factor)
        return self.hoist(e)

    def param(self, source: Expr | Shape, t: ScalarType) -> Var:
        for name, known in self.sources.items():
            if known == source:
                return Var(name, t)
        name = self.reader.names.unique(f"mdh_p{len(self.params)}")
        self.params.append(Param(name, t, self._text(source), C_NAMES[t.name]))
        self.sources[name] = source
        return Var(name, t)

    def _text(self, source: Expr | Shape) -> str:
        if isinstance(source, Shape):
            return f"{source.array}.shape[{source.dimension}]"
        spelled = {b.name: b.source for b in self.reader.outers.values()}
        spelled |= {p.name: f"({p.value})" for p in self.params}
        return _shown(source, spelled)

    def of(self, b: Outer) -> tuple[Affine | None, ...]:
        assert b.array is not None and b.array.extents is not None
        return tuple(self.extent(b, k, e) for k, e in enumerate(b.array.extents))

    def extent(self, b: Outer, k: int, declared: ast.expr | None) -> Affine | None:
        """Extent ``k``: as declared, or the array's own."""
        if declared is not None:
            e = self.reader.outside(declared)
            affine = as_affine(e)
            return affine if affine is not None else Affine.of(self.param(e, INT64).name)
        return None if k == 0 else Affine.of(self.param(Shape(b.source, k), INT64).name)


def _shown(e: Expr, spelled: Mapping[str, str]) -> str:
    """C text of an invariant integer expression."""
    match e:
        case Const(value=value):
            return str(value) if value >= 0 else f"({value})"
        case Var(name=name):
            return spelled.get(name, name)
        case Cast(a=a, type=t):
            return f"(({C_NAMES[t.name]}){_shown(a, spelled)})"
        case Unary(op=op, a=a):
            return f"({op}{_shown(a, spelled)})"
        case Binary(op=op, a=a, b=b):
            return f"({_shown(a, spelled)} {op} {_shown(b, spelled)})"
        case Select(cond=c, then=t, other=o):
            return f"({_shown(c, spelled)} ? {_shown(t, spelled)} : {_shown(o, spelled)})"
    raise AssertionError(e)


class NestReader(Statements):
    """Converts one nest."""

    def __init__(
        self, file: PythonFile, scope: Scope, whole: Parts, kinds: Mapping[str, Kind | None], types: Types,
        static: bool = False,
    ) -> None:  # fmt: skip
        every = names_in([whole.node]) | {a.arg for a in whole.node.args.args}
        super().__init__(file, scope, Names(every, set(RESERVED)), types)
        self.whole = whole
        self.kinds = kinds
        self.static = static  # nothing is known of a call
        self.functions = Functions()
        self.called: dict[str, None] = {}
        self.outers: dict[str, Outer] = {}
        self.extents = Extents(self)
        self.facts: list[Affine] = []  # of quotients, not negative
        self.assigned = assigned_in(whole.loops)
        self.counters = _declared_counters(whole, scope)
        self.assigned -= set(self.counters)
        self.depth = 0
        self.views: list[tuple[str, ast.AST]] = []

    # ------------------------------------------------------------------ names

    def visible(self, name: str) -> bool:
        return self.find(name) is not None or name in self.kinds

    def outer(self, name: str, node: ast.AST) -> Outer | None:
        if name in self.outers:
            return self.outers[name]
        if name not in self.kinds:
            return None
        kind = self.kinds[name]
        if kind is None and self.static:
            raise refuse(
                "MDH216", f"the type of `{name}` is not declared", self.span(node),
                help=f'the function is lifted when it is called; to check it here, annotate `{name}`, '
                f'for example `{name}: "float32[:, :]"` or `{name}: np.int64`',
            )  # fmt: skip
        if kind is None:
            raise refuse(
                "MDH212", f"the type of `{name}` is not known", self.span(node),
                help=f'annotate it, for example `{name}: "float32[:, :]"` or `{name}: np.int64`',
            )  # fmt: skip
        if isinstance(kind, Array) and kind.extents is None:
            kind = replace(kind, extents=(None,) * _rank(name, self.whole.loops))
        t = kind if isinstance(kind, Scalar) else None
        b = Outer(name, "outer", (name, 0), self.names.unique(c_name(name)), t)
        b.array = kind if isinstance(kind, Array) else None
        self.outers[name] = b
        if t is not None:
            self.types.note(b, t, self, node)
            b.type = self.types.assumed[b.key]
        return b

    def value_of(self, b: Binding, node: ast.AST) -> Val:
        if isinstance(b, Outer) and b.array is not None:
            if b.array.extents == ():
                raise refuse(
                    "MDH006", f"`{b.source}` is an array of no dimension", self.span(node),
                    help=f"write `{b.source}[()]`",
                )  # fmt: skip
            raise refuse(
                "MDH006", f"the array `{b.source}` as a whole is used as a value", self.span(node),
                help="write a loop over its elements",
            )  # fmt: skip
        return super().value_of(b, node)

    def outside(self, node: ast.expr) -> Expr:
        """An extent: an expression over what is known before the nest."""
        scopes, self.scopes = self.scopes, [{}]
        try:
            e = self.convert(node).expr
        finally:
            self.scopes = scopes
        if not isinstance(e.type, ScalarType) or not e.type.is_integer or not self.invariant(e):
            raise refuse(
                "MDH212", f"the extent `{ast.unparse(node)}` is no integer that is known before the nest",
                self.file.head(self.whole.node),
            )  # fmt: skip
        return e

    def invariant(self, e: Expr) -> bool:
        """Does a value stay the same in the whole nest, and come from outside?"""
        outer = {b.name: b for b in self.outers.values()}
        derived = set(self.extents.sources)
        for n in walk(e):
            if isinstance(n, Var):
                if n.name in derived:
                    continue
                binding = outer.get(n.name)
                if binding is None or binding.source in self.assigned or not isinstance(n.type, ScalarType):
                    return False
            elif not isinstance(n, Const | Cast | Unary | Binary | Select):
                return False
        return True

    # ------------------------------------------------------------------ arrays

    def _array(self, node: ast.expr) -> tuple[Outer, list[ast.expr]] | None:
        """The array that an expression subscripts, and the subscripts."""
        index: list[ast.expr] = []
        while isinstance(node, ast.Subscript):
            items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            if any(isinstance(i, ast.Constant) and isinstance(i.value, str) for i in items):
                return None
            index = [*items, *index]
            node = node.value
        if not isinstance(node, ast.Name) or self.find(node.id) is not None:
            return None
        b = self.outer(node.id, node)
        return (b, index) if b is not None and b.array is not None else None

    def element(self, node: ast.Subscript) -> Val | None:
        place = self.element_target(node)
        return None if place is None else Val(place)

    def element_target(self, node: ast.Subscript) -> Expr | None:
        found = self._array(node)
        if found is None:
            return None
        b, items = found
        assert b.array is not None and b.array.extents is not None
        rank = len(b.array.extents)
        if len(items) != rank:
            what = f"`{b.source}` has {rank} dimension{'s' * (rank != 1)} and {len(items)} subscripts"
            raise refuse("MDH006", what, self.span(node), help="subscript every dimension")
        index = tuple(self._index(b, k, item) for k, item in enumerate(items))
        return Load(b.name, index, b.array.element, self.span(node))

    def _index(self, b: Outer, k: int, node: ast.expr) -> Expr:
        if isinstance(node, ast.Slice):
            raise self.unsupported("a slice", node, "write a loop over the elements")
        v = self.convert(node)
        if v.truth or not isinstance(v.expr.type, ScalarType) or not v.expr.type.is_integer:
            raise refuse("MDH006", "subscript is no integer", self.span(node))
        e = v.expr
        if isinstance(e, Const) and e.value < 0:  # counted from the end
            return operators.fold("+", self._size(b, k), Const(int(e.value), INT64), INT64)
        return self.extents.hoist(e)

    def _size(self, b: Outer, k: int) -> Expr:
        assert b.array is not None and b.array.extents is not None
        declared = b.array.extents[k]
        if declared is not None:
            return operators.cast(self.outside(declared), INT64, Span(0, 0))
        return self.extents.param(Shape(b.source, k), INT64)

    def shape(self, node: ast.expr) -> Val | None:
        """``x.shape[0]`` and ``len(x)``."""
        match node:
            case ast.Subscript(
                value=ast.Attribute(value=ast.Name(id=name), attr="shape"), slice=ast.Constant(value=int(k))
            ):
                pass
            case ast.Call(func=ast.Name(id="len"), args=[ast.Name(id=name)], keywords=[]):
                k = 0
            case _:
                return None
        b = self.outer(name, node) if self.find(name) is None else None
        if b is None or b.array is None:
            return None
        assert b.array.extents is not None
        if not -len(b.array.extents) <= k < len(b.array.extents):
            raise refuse("MDH006", f"`{name}` has no dimension {k}", self.span(node))
        return Val(self._size(b, k % len(b.array.extents)), weak=True)

    # ------------------------------------------------------------------ calls

    def call_user(self, name: str, function: UserFunction, node: ast.Call) -> Val:
        return user_call(self, self.functions, self.called, name, function, node)

    def call_statement(self, node: ast.Call) -> list[Out]:
        """``f(x, y, z)`` of a combine function that fills its first parameter is ``x = f(y, z)``."""
        thing = self.thing(node.func)
        if not isinstance(thing, UserFunction) or len(node.args) != 3 or node.keywords:
            return super().call_statement(node)
        kinds = [self.convert(a).kind for a in node.args]
        known = self.functions.get(thing.node.name, thing, kinds, self.span(node))
        if not known.function.out_param:
            return super().call_statement(node)
        self.called[known.function.name] = None
        target, *values = node.args
        if not isinstance(target, ast.Name):
            raise self.unsupported("a result that is no local record", target)
        b = self.binding(target.id, target)
        operands = [self.convert(v).expr for v in values]
        again = any(isinstance(v, ast.Name) and v.id == target.id for v in values)
        if b is None or not b.fresh:
            raise refuse(
                "MDH006", f"`{target.id}` is changed, which may be a view", self.span(node),
                help=f"write `{target.id} = {target.id}.copy()` first",
            )  # fmt: skip
        if known.late_reads and again:
            raise refuse(
                "MDH204", f"`{known.function.name}` writes its result, an operand, before it has read both",
                self.span(node), help="compute into locals first, then write the result",
            )  # fmt: skip
        b.written = True
        b.mutated = node
        self.mutable.append(b)
        place = Var(b.name, known.function.type)
        return [
            Assign(place, Call(known.function.name, tuple(operands), known.function.type), self.span(node))
        ]

    # ------------------------------------------------------------------ statements

    def return_(self, node: ast.Return) -> list[Out]:
        raise jump("return", self.file.head(node))

    def while_loop(self, s: ast.While) -> list[Out]:
        if not self.depth:
            raise refuse(
                "MDH210", "`while` loop around everything else", self.file.head(s),
                help="only a loop over scalars inside a counted loop may be one",
            )  # fmt: skip
        out = super().while_loop(s)
        if any(isinstance(n, Load) for n in _targets(out)):
            raise refuse("MDH210", "array is written in a loop that does not count", self.file.head(s))
        return out

    def for_loop(self, node: ast.For) -> list[Out]:
        name, lower_node, upper_node, step = self.head(node)
        lower: Expr = Const(0, INT32) if lower_node is None else self._bound(lower_node)
        upper = self._bound(upper_node)
        by = self._step(step) if isinstance(step, ast.expr) else Const(step, INT64)
        if self.find(name) is not None or (name in self.kinds and name in self.assigned):
            raise refuse(
                "MDH210", f"`{name}` counts a loop and is used for something else", self.span(node.target)
            )
        t = self.counters.get(name) or _iterator_type(lower, upper, lower_node is None)
        b = Binding(name, "iterator", (name, id(node)), self.names.unique(c_name(name)), Scalar(t, weak=True))
        self.scopes.append({name: b})
        for assigned in sorted(assigned_in(node.body)):  # the order in which the C front end binds them
            if self.find(assigned) is None:
                self.outer(assigned, node)
        self.depth += 1
        body = self.scoped(node.body)
        self.depth -= 1
        self.scopes.pop()
        self.gone.add(name)
        inner = tuple(s for s in body if not isinstance(s, Return))
        start = self.file.head(node)
        head = Span(start.start, max(start.end, self.span(node.iter).end))
        if isinstance(step, int):
            stride = self._stride(lower, by, upper, inner) if step > 1 else None
            return [Loop(b.name, t, lower, upper, step, inner, name, False, head, stride=stride)]
        trips = self._trips(lower, by, upper)
        if not self.invariant(trips):
            raise refuse(
                "MDH202", "how often the loop runs is a quotient of what an outer loop changes",
                self.span(node.iter), help="let it run to a bound that stays, under a condition",
            )  # fmt: skip
        value: Expr = _plus(lower, _times(by, Var(b.name, INT64)))
        inner = replaced(inner, {b.name: value if t == INT64 else Cast(value, t)})
        stride = self._stride(lower, by, upper, inner)
        zero, count = Const(0, INT64), self.extents.hoist(trips)
        return [Loop(b.name, INT64, zero, count, 1, inner, name, False, head, stride=stride)]

    def _step(self, node: ast.expr) -> Expr:
        """A step that the nest does not change; generated code tests that it is positive."""
        by = self._bound(node)
        step = as_affine(by) if self.invariant(by) else None
        if step is None:
            raise self.no_step(node)
        self.facts.append(step - 1)
        return by

    def _trips(self, lower: Expr, by: Expr, upper: Expr) -> Expr:
        """How often a loop by a positive step runs, or less than 1."""
        span = _plus(upper, _times(Const(-1, INT64), lower))
        return Binary("/", _plus(span, _plus(by, Const(-1, INT64))), widened(by), INT64)

    def _stride(self, lower: Expr, by: Expr, upper: Expr, body: Sequence[NestStmt]) -> Stride | None:
        """What a loop counts by other steps than 1, where others are in it: those may be over its tiles."""
        if not any(isinstance(s, Loop) for s in loops_in(body)):
            return None
        trips = self._trips(lower, by, upper)
        end = None
        if self.invariant(trips):
            end = self.extents.hoist(_plus(lower, _times(by, self.extents.hoist(trips))))
        return Stride(lower, by, upper, end)

    def _bound(self, node: ast.expr) -> Expr:
        v = self.convert(node)
        if v.truth or not isinstance(v.expr.type, ScalarType) or not v.expr.type.is_integer:
            raise refuse("MDH210", "bound is no integer", self.span(node))
        written = {b.name for b in self.outers.values() if b.source in self.assigned}
        for n in walk(v.expr):
            if isinstance(n, Var) and n.name in written:
                raise refuse(
                    "MDH202", f"bound depends on `{n.name}`, which the nest changes", self.span(node)
                )
        return self.extents.hoist(rewrite(v.expr, self._part))

    def _part(self, e: Expr) -> Expr | None:
        """A part of a size in a bound, as ``n // 2`` and ``n >> 1``, has a parameter of its own."""
        match e:
            case Select(
                then=Binary(op="-", a=down), other=Binary(op="/", a=a, b=Const(value=int(divisor))) as up
            ) if down == up and divisor > 1:  # as ``//`` rounds
                pass
            case Binary(op=">>", a=a, b=Const(value=int(places))) if 0 < places < 31:
                divisor = 1 << places
            case _:
                return None
        whole = as_affine(a)
        outer = {b.name for b in self.outers.values()} | set(self.extents.sources)
        if whole is None or not whole.names or not whole.names <= outer or not self.invariant(e):
            return None
        part = self.extents.hoist(e)
        quotient = as_affine(part)
        assert quotient is not None
        self.facts += quotient_facts(whole, quotient, divisor)
        return part

    def note_view(self, val: Val, node: ast.AST) -> None:
        for load in _views(val.expr):
            self.views.append((load.buffer, node))

    # ------------------------------------------------------------------ the result

    def read(self) -> list[Out]:
        """The nest's statements."""
        self._check_after()
        body = self.block(self.whole.loops)
        self.check_records()
        return body

    def _check_after(self) -> None:
        """What is read after the nest must have its value before it, or be computed by it."""
        counters = {n for s in self.whole.loops for n in stored(s)} - self.assigned
        for name, node in flow(self.whole.after).exposed.items():
            if name in self.kinds:
                continue
            if name in self.assigned:
                raise refuse(
                    "MDH006", f"`{name}` may have no value here", self.span(node),
                    help=f"assign `{name}` before the first loop",
                )  # fmt: skip
            if name in counters:
                raise refuse(
                    "MDH210", f"`{name}` is read after the loop that counts it", self.span(node),
                    help="use a variable of its own for the loop",
                )  # fmt: skip

    def result(
        self, body: Sequence[Out]
    ) -> tuple[tuple[NestStmt, ...], tuple[Param, ...], tuple[Buffer, ...], tuple[OuterScalar, ...]]:
        """Body, parameters, buffers and outer scalars, after the last name is known."""
        nest = tuple(s for s in body if not isinstance(s, Return))
        self._check_views(nest)
        buffers = tuple(
            Buffer(b.name, b.array.element, self.extents.of(b), restrict=b.array.restrict, base=b.source)
            for b in list(self.outers.values())
            if b.array is not None
        )
        used = _used(nest, buffers) | ends(nest) | {n for a in self.facts for n in a.names}
        params: list[Param] = []
        scalars: list[OuterScalar] = []
        after = read_in(self.whole.after)
        for b in self.outers.values():
            if b.array is not None:
                continue
            t = _held(self.types.assumed[b.key])
            if b.written:
                scalars.append(OuterScalar(b.name, t, b.source in after))
            elif b.name in used:
                params.append(Param(b.name, t, b.source))
        hoisted = [p for p in self.extents.params if p.name in used]
        return nest, (*params, *hoisted), buffers, tuple(scalars)

    def _check_views(self, nest: Sequence[NestStmt]) -> None:
        written = {n.buffer for n in _targets(nest) if isinstance(n, Load)}
        for buffer, node in self.views:
            if buffer in written:
                raise refuse(
                    "MDH006", f"a record of `{buffer}`, which the nest changes, is a view", self.span(node),
                    help="append `.copy()`",
                )  # fmt: skip


def _plus(a: Expr, b: Expr) -> Expr:
    """The sum of two integers, without wrapping."""
    if isinstance(a, Const) and a.value == 0:
        return widened(b)
    return Binary("+", widened(a), widened(b), INT64)


def _times(a: Expr, b: Expr) -> Expr:
    """The product of two integers, without wrapping."""
    if isinstance(b, Const) and b.value == 0:
        return Const(0, INT64)
    return Binary("*", widened(a), widened(b), INT64)


def _declared_counters(whole: Parts, scope: Scope) -> dict[str, ScalarType]:
    """``i: np.int32`` without a value gives a loop's iterator its type."""
    targets = {
        n.target.id for n in ast.walk(whole.node) if isinstance(n, ast.For) and isinstance(n.target, ast.Name)
    }
    out: dict[str, ScalarType] = {}
    for n in ast.walk(whole.node):
        if isinstance(n, ast.AnnAssign) and n.value is None and isinstance(n.target, ast.Name):
            kind = kind_of(n.annotation, scope)
            known = isinstance(kind, Scalar) and isinstance(kind.type, ScalarType) and kind.type.is_integer
            if n.target.id in targets and known:
                out[n.target.id] = kind.type  # type: ignore[union-attr,assignment]
    return out


def _held(t: Scalar) -> Type:
    return INT32 if t.truth else t.type


def _rank(name: str, body: Sequence[ast.stmt]) -> int:
    """Number of dimensions that the subscripts of an array tell."""
    most = 0
    for s in body:
        for n in ast.walk(s):
            count, inner = 0, n
            while isinstance(inner, ast.Subscript):
                items = inner.slice.elts if isinstance(inner.slice, ast.Tuple) else [inner.slice]
                count += len(
                    [i for i in items if not (isinstance(i, ast.Constant) and isinstance(i.value, str))]
                )
                inner = inner.value
            if isinstance(inner, ast.Name) and inner.id == name:
                most = max(most, count)
    return most


def _iterator_type(lower: Expr, upper: Expr, from_zero: bool) -> ScalarType:
    """The type of what ``range`` counts through: that of its bounds, 64 bits for constants."""
    types = {e.type for e in (lower, upper) if not isinstance(e, Const) and isinstance(e.type, ScalarType)}
    if not types:
        return INT64
    low = from_zero or (isinstance(lower, Const) and lower.value >= 0)
    if types == {UINT64}:
        return UINT64 if low else INT64
    if all(t.bits < 32 or t in (INT32, BOOL) for t in types):
        return INT32
    if types == {next(iter(types))} and next(iter(types)).kind == "uint" and low:
        return next(iter(types))
    return INT64


def _views(e: Expr) -> list[Load]:
    """Records in memory that a value may be."""
    match e:
        case Load(type=RecordType()):
            return [e]
        case Select(then=then, other=other):
            return [*_views(then), *_views(other)]
        case Call(args=args, type=RecordType()):
            return [load for a in args for load in _views(a)]
    return []


def _targets(body: Sequence[NestStmt | Out | Stmt]) -> list[Expr]:
    out: list[Expr] = []
    for s in body:
        match s:
            case Assign(target=target):
                while not isinstance(target, Var | Load):
                    target = target.a  # type: ignore[union-attr]
                out.append(target)
            case If(then=then, other=other):
                out += [*_targets(then), *_targets(other)]
            case While(body=inner):
                out += _targets(inner)
            case Loop(body=nested):
                out += _targets(nested)
    return out


def _used(body: Sequence[NestStmt], buffers: Sequence[Buffer]) -> set[str]:
    """Names of variables that the nest or an extent mentions."""
    out = mentioned(body)
    for buffer in buffers:
        for extent in buffer.extents:
            out.update(extent.names if extent is not None else ())
    return out
