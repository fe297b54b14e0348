"""Expressions of the parser -> typed expressions of ``mdh_core.expr``.

What a name means is the one thing that differs between a loop nest and a function of the user's:
subclasses answer ``lookup`` (a name's binding) and ``call_user`` (a call of a function of the file).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

from frontend_c import operators
from frontend_c.c_types import C_NAMES, LOCAL_POINTER, Array, CType, Other, Pointer, Types, Value, Void
from frontend_c.math_functions import CONSTANTS, MATH
from frontend_c.parsing import Node, Unit, c_ast, first_token, walk_nodes
from frontend_c.positions import Positions, PreToken
from mdh_core.diagnostics import Refusal, refuse
from mdh_core.expr import (
    INT32,
    INT64,
    UINT64,
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Field,
    Load,
    MakeRecord,
    RecordType,
    ScalarType,
    Var,
)  # fmt: skip
from mdh_core.source import NO_SPAN, Span


@dataclass(eq=False)
class Binding:
    """What a name stands for where it is used; ``name`` is the unique name in our output.

    kind   "local" (declared in what is read), "iterator", "outer" (declared around it),
           "constant" (an enumerator, or what is one for a moment: ``value``),
           "broken" (its declaration was refused: ``refusal``)
    """

    source: str
    kind: str
    ctype: CType
    name: str = ""
    value: Expr | None = None
    refusal: Refusal | None = None
    order: int = -1  # index of the declaring token
    storage: str = "local"  # local | param | static | global
    stale: bool = False  # was an iterator; its value after the loop is not known
    written: bool = False
    label: str = ""  # what to derive our name from, if not the source
    exposed: bool = False  # may a pointer point to it?
    address: str = ""  # C text of the address of a scalar that is read from memory
    subscripted: bool = False
    dereferenced: bool = False


def constant(name: str, value: Expr) -> Binding:
    """What a name stands for where it has a value that is known."""
    assert isinstance(value.type, ScalarType)
    return Binding(name, "constant", Value(value.type, ""), value=value)


@dataclass(frozen=True)
class Place:
    """Something that can be read or assigned: a variable, an element, or a member of these."""

    binding: Binding
    ctype: CType  # of the place
    node: Node
    index: tuple[Expr, ...] = ()
    members: tuple[str, ...] = ()
    whole: CType = field(default_factory=Void)  # type before the members were taken
    at: Expr | None = None  # of a pointer: the element it points to, in the last dimension


@dataclass(eq=False)
class Context:
    """What is known about the file."""

    unit: Unit
    positions: Positions
    types: Types

    def span(self, node: Node) -> Span:
        """The bytes of a node: from its first to its last known token, brackets completed."""
        known = [t for n in walk_nodes(node) if (t := first_token(n)) is not None]
        known += [t for n in walk_nodes(node) if (t := self._operator(n)) is not None]
        if not known:
            return NO_SPAN
        first, last = _balanced(self.unit.stream, min(known), max(known))
        return self.positions.span(first, last)

    def _operator(self, node: Node) -> int | None:
        """The token of a unary operator, which the parser does not record."""
        k = first_token(node)
        if not isinstance(node, c_ast.UnaryOp) or k is None or node.op == "sizeof":
            return None
        stream = self.unit.stream
        if node.op in ("p++", "p--"):
            return next(
                (j for j in range(k, min(k + 64, len(stream))) if stream[j].text == node.op[1:]), None
            )
        while k > 0 and stream[k - 1].text == "(":
            k -= 1
        return k - 1 if k and stream[k - 1].text == node.op else None

    def head(self, node: Node) -> Span:
        """The key word that a statement starts with."""
        k = first_token(node)
        return NO_SPAN if k is None else self.positions.span(k, k)


def _balanced(stream: Sequence[PreToken], first: int, last: int) -> tuple[int, int]:
    """Widen a range of tokens until each bracket in it has its partner."""
    depth = lowest = 0
    for k in range(first, last + 1):
        text = stream[k].text
        depth += (text in "([{") - (text in ")]}") if len(text) == 1 else 0
        lowest = min(lowest, depth)
    missing, open_ = -lowest, depth - lowest
    while missing and first > 0:
        first -= 1
        missing -= stream[first].text in ("(", "[", "{")
    inner = 0
    while open_ and last + 1 < len(stream):
        last += 1
        text = stream[last].text
        if text in ("(", "[", "{"):
            inner += 1
        elif text in (")", "]", "}"):
            open_ -= inner == 0
            inner -= inner > 0
    return first, last


class Expressions(ABC):
    """Converts expressions; raises a ``Refusal`` at the first construct that has no meaning for us."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.types = context.types

    # ------------------------------------------------------------------ for subclasses

    @abstractmethod
    def lookup(self, name: str, node: Node) -> Binding: ...

    @abstractmethod
    def call_user(self, name: str, args: Sequence[Node], node: Node) -> Expr: ...

    def subscript(self, index: Expr, node: Node) -> Expr:
        """A hook to simplify subscripts."""
        return index

    # ------------------------------------------------------------------ dispatch

    def span(self, node: Node) -> Span:
        return self.context.span(node)

    def unsupported(self, what: str, node: Node, advice: str = "") -> Refusal:
        return refuse("MDH006", f"{what} is not supported inside a nest", self.span(node), help=advice)

    def convert(self, node: Node) -> Expr:
        """The value of an expression."""
        method = getattr(self, f"_convert_{type(node).__name__.lower()}", None)
        if method is None:
            what = _WORDS.get(type(node).__name__, f"`{type(node).__name__}`")
            raise self.unsupported(what, node)
        result: Expr = method(node)
        return result

    def condition(self, node: Node) -> Expr:
        return operators.truth(self.convert(node), self.span(node))

    def _convert_constant(self, node: Node) -> Expr:
        span = self.span(node)
        if node.type == "string":
            raise self.unsupported("a string", node)
        if node.value[-1] in "lL" and "double" in node.type:
            raise refuse("MDH212", "constant has type `long double`", span, help="drop the suffix `L`")
        return operators.constant(node.value, span)

    def _convert_id(self, node: Node) -> Expr:
        return self.read(self.place(node))

    _convert_arrayref = _convert_id

    def _convert_structref(self, node: Node) -> Expr:
        if node.type == "." and isinstance(
            node.name, c_ast.FuncCall | c_ast.TernaryOp | c_ast.CompoundLiteral
        ):
            record = self.convert(node.name)
            return Field(record, node.field.name, self._member(record.type, node))
        return self.read(self.place(node))

    def _convert_unaryop(self, node: Node) -> Expr:
        if node.op == "*":
            return self.read(self.place(node))
        if node.op == "sizeof":
            return Const(self._sizeof(node.expr), UINT64)
        if node.op == "&":
            raise self.unsupported("taking an address", node)
        if node.op in ("++", "--", "p++", "p--"):
            raise self.unsupported(
                "`++` or `--` inside an expression", node, "make it a statement of its own"
            )
        if node.op not in ("-", "+", "!", "~"):
            raise self.unsupported(f"`{node.op}`", node)
        return operators.unary(node.op, self.convert(node.expr), self.span(node))

    def _convert_binaryop(self, node: Node) -> Expr:
        return operators.binary(node.op, self.convert(node.left), self.convert(node.right), self.span(node))

    def _convert_ternaryop(self, node: Node) -> Expr:
        cond = self.condition(node.cond)
        return operators.select(cond, self.convert(node.iftrue), self.convert(node.iffalse), self.span(node))

    def _convert_cast(self, node: Node) -> Expr:
        t = self.types.resolve(node.to_type)
        if isinstance(t, Other):
            raise refuse(t.code, f"cast to {t.why}", self.span(node))
        if not isinstance(t, Value) or isinstance(t.type, RecordType):
            raise self.unsupported("this cast", node)
        inner = node.expr
        if isinstance(inner, c_ast.Constant) and inner.value[-1] in "lL" and "double" in inner.type:
            value: Expr = operators.constant(inner.value, self.span(inner))  # ((double)1.7976e308L)
        else:
            value = self.convert(inner)
        return operators.cast(value, t.type, self.span(node))

    def _convert_compoundliteral(self, node: Node) -> Expr:
        t = self.types.resolve(node.type)
        if not isinstance(t, Value):
            raise self.unsupported("this compound literal", node)
        return self.initial(node.init, t.type, node)

    def _convert_assignment(self, node: Node) -> Expr:
        raise self.unsupported("an assignment inside an expression", node, "make it a statement of its own")

    def _convert_exprlist(self, node: Node) -> Expr:
        raise self.unsupported("a comma expression", node)

    # ------------------------------------------------------------------ calls

    def _convert_funccall(self, node: Node) -> Expr:
        args = list(node.args.exprs) if node.args else []
        if not isinstance(node.name, c_ast.ID):
            raise refuse("MDH204", "call through a pointer", self.span(node))
        name = node.name.name
        if self.context.unit.function_chunk(name) is not None:
            return self.call_user(name, args, node)
        plain = name.removeprefix("__builtin_")
        if plain != name and (constant := self._builtin(plain, args)) is not None:
            return constant
        if plain not in MATH:
            raise refuse(
                "MDH204", f"call of `{name}`, whose effects are not known", self.span(node),
                help="call math.h functions, or functions that this file defines",
            )  # fmt: skip
        params, result = MATH[plain]
        if len(params) != len(args):
            raise refuse("MDH006", f"`{plain}` takes {len(params)} arguments", self.span(node))
        values = (operators.cast(self.convert(a), t, self.span(a)) for a, t in zip(args, params, strict=True))
        return Call(plain, tuple(values), result)

    def _builtin(self, name: str, args: list[Node]) -> Expr | None:
        """What the macros of math.h expand to: constants, and tests for not-a-number."""
        if name in CONSTANTS:
            return Const(*CONSTANTS[name])
        if name == "expect" and len(args) == 2:
            return self.convert(args[0])
        if name == "isnan" and len(args) == 1:
            value = self.convert(args[0])
            return operators.binary("!=", value, value, self.span(args[0]))
        return None

    # ------------------------------------------------------------------ places

    def place(self, node: Node) -> Place:
        """The variable, element or member that an expression denotes."""
        if isinstance(node, c_ast.ID):
            binding = self.lookup(node.name, node)
            return Place(binding, binding.ctype, node)
        if isinstance(node, c_ast.ArrayRef):
            return self._element(self.place(node.name), node.subscript, node)
        if isinstance(node, c_ast.UnaryOp) and node.op == "*":
            return self._pointee(node)
        if isinstance(node, c_ast.StructRef):
            return self._member_place(node)
        if isinstance(node, c_ast.Cast):
            raise self.unsupported("a cast of a pointer", node)
        if isinstance(node, c_ast.UnaryOp) and node.op in ("++", "--", "p++", "p--"):
            raise self.unsupported("a moving pointer", node, "index it instead")
        raise self.unsupported("this way to name memory", node)

    def _element(self, base: Place, subscript: Node, node: Node) -> Place:
        base.binding.subscripted = True
        index = self.convert(subscript)
        if not isinstance(index.type, ScalarType) or not index.type.is_integer:
            raise refuse("MDH006", "subscript is no integer", self.span(subscript))
        return self._step(base, self.subscript(index, subscript), node)

    def _step(self, base: Place, index: Expr, node: Node) -> Place:
        match base.ctype:
            case Array(element=inner) | Pointer(target=inner):
                if base.members:
                    raise self.unsupported("an array inside a struct", node, LOCAL_POINTER)
                if base.at is not None:
                    base.binding.subscripted = True
                    index = total(base.at, index)
                return Place(base.binding, inner, node, (*base.index, index))
            case Other(why=why, code=code):
                raise refuse(code, f"`{base.binding.source}` has {why}", self.span(base.node))
            case _:
                raise refuse(
                    "MDH006", f"`{base.binding.source}` is subscripted, but no array", self.span(node)
                )

    def _pointee(self, node: Node) -> Place:
        """``*p``, ``*(p + i)`` and ``(*A)[i]``."""
        inner = node.expr
        if isinstance(inner, c_ast.BinaryOp) and inner.op in ("+", "-"):
            index = self.convert(inner.right)
            if inner.op == "-":
                index = operators.unary("-", index, self.span(inner.right))
            base = self.place(inner.left)
            base.binding.subscripted = True
            return self._step(base, self.subscript(index, inner.right), node)
        base = self.place(inner)
        if isinstance(base.ctype, Array | Pointer):
            base.binding.dereferenced = True
        return self._step(base, Const(0, INT32), node)

    def _member_place(self, node: Node) -> Place:
        base = self.place(node.name)
        if node.type == "->":
            base.binding.dereferenced = True
            base = self._step(base, Const(0, INT32), node)
        if isinstance(base.ctype, Other):
            what = f"`{base.binding.source}` has {base.ctype.why}"
            raise refuse(base.ctype.code, what, self.span(node), help=base.ctype.help)
        if not isinstance(base.ctype, Value):
            raise refuse("MDH006", "member of something that is no struct", self.span(node))
        t = self._member(base.ctype.type, node)
        whole = base.whole if base.members else base.ctype
        member = Value(t, C_NAMES[t.name])
        return Place(base.binding, member, node, base.index, (*base.members, node.field.name), whole)

    def _member(self, t: object, node: Node) -> ScalarType:
        if not isinstance(t, RecordType) or node.field.name not in dict(t.fields):
            raise refuse("MDH006", f"there is no member `{node.field.name}`", self.span(node))
        return t.field_type(node.field.name)

    def read(self, place: Place) -> Expr:
        """The value of a place."""
        binding = place.binding
        if binding.value is not None:
            return binding.value
        if binding.stale:
            raise refuse(
                "MDH210", f"`{binding.source}` is read after the loop that counts it", self.span(place.node),
                help="use a variable of its own for the loop",
            )  # fmt: skip
        return self.denote(place)

    def denote(self, place: Place) -> Expr:
        """The expression for a place, to read or to assign."""
        binding = place.binding
        whole = place.whole if place.members else place.ctype
        if isinstance(whole, Other):
            raise refuse(whole.code, f"`{binding.source}` has {whole.why}", self.span(place.node))
        if not isinstance(whole, Value):
            raise self.unsupported(f"the address of `{binding.source}` as a value", place.node)
        if place.index or not isinstance(binding.ctype, Value):
            out: Expr = Load(binding.name, place.index, whole.type, self.span(place.node))
        else:
            out = Var(binding.name, whole.type)
        for member in place.members:
            assert isinstance(whole.type, RecordType)
            out = Field(out, member, whole.type.field_type(member))
        return out

    # ------------------------------------------------------------------ initialisers and sizes

    def initial(self, node: Node, t: ScalarType | RecordType, at: Node) -> Expr:
        """The value of an initialiser for a variable of type ``t``."""
        if isinstance(node, c_ast.InitList):
            if isinstance(t, RecordType):
                return self._record_value(node, t)
            if len(node.exprs) > 1:
                raise self.unsupported("this initialiser", node)
            return self.initial(node.exprs[0], t, at) if node.exprs else _zero(t)
        value = self.convert(node)
        if isinstance(t, RecordType):
            if value.type != t:
                raise refuse("MDH006", f"the value is no `{t}`", self.span(node))
            return value
        return operators.cast(value, t, self.span(node))

    def _record_value(self, node: Node, t: RecordType) -> Expr:
        values: dict[str, Expr] = {}
        names = [name for name, _ in t.fields]
        position = 0
        for item in node.exprs:
            if isinstance(item, c_ast.NamedInitializer):
                name = item.name[0].name if len(item.name) == 1 and isinstance(item.name[0], c_ast.ID) else ""
                if name not in names:
                    raise self.unsupported("this designator", item)
                position, item = names.index(name), item.expr
            if position >= len(names):
                raise self.unsupported("an initialiser with too many values", node)
            values[names[position]] = self.initial(item, t.fields[position][1], item)
            position += 1
        return MakeRecord(tuple(values.get(name, _zero(s)) for name, s in t.fields), t)

    def _sizeof(self, node: Node) -> int:
        """Size in bytes of a type or of an expression's type."""
        if isinstance(node, c_ast.Typename):
            return self._size(self.types.resolve(node), node)
        if isinstance(node, c_ast.ID | c_ast.ArrayRef | c_ast.StructRef):
            return self._size(self.place(node).ctype, node)
        return self.convert(node).type.size

    def _size(self, t: CType, node: Node) -> int:
        match t:
            case Value(type=value):
                return value.size
            case Pointer():
                return 8
            case Array(element=element, extent=extent) if extent is not None:
                count = self.convert(extent)
                if isinstance(count, Const):
                    return int(count.value) * self._size(element, node)
        raise self.unsupported("`sizeof` of this", node)


def total(a: Expr, b: Expr) -> Expr:
    """The sum of two integers, as subscripts are added: without wrapping."""
    if isinstance(a, Const) and isinstance(b, Const):
        return Const(int(a.value) + int(b.value), INT64)
    if isinstance(a, Const) and a.value == 0:
        return b
    if isinstance(b, Const) and b.value == 0:
        return a
    return Binary("+", wide(a), wide(b), INT64)


def times(a: Expr, b: Expr) -> Expr:
    """The product of two integers, without wrapping."""
    if isinstance(a, Const) and isinstance(b, Const):
        return Const(int(a.value) * int(b.value), INT64)
    for x, y in ((a, b), (b, a)):
        if isinstance(x, Const) and x.value in (0, 1):
            return y if x.value else Const(0, INT64)
    return Binary("*", wide(a), wide(b), INT64)


def wide(e: Expr) -> Expr:
    """An integer as an ``INT64``."""
    if isinstance(e, Const):
        return Const(e.value, INT64)
    return e if e.type == INT64 else Cast(e, INT64)


_WORDS = {
    "FuncCall": "this call", "Compound": "a statement expression", "GenericSelection": "`_Generic`",
    "InitList": "an initialiser", "Typename": "a type", "StaticAssert": "`_Static_assert`",
}  # fmt: skip


def _zero(t: ScalarType | RecordType) -> Expr:
    if isinstance(t, RecordType):
        return MakeRecord(tuple(_zero(s) for _, s in t.fields), t)
    return Const(0.0 if t.is_float else 0, t)
