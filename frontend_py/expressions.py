"""Expressions of ``ast`` -> typed expressions of ``mdh_core.expr``.

What a variable is, is the one thing that differs between a nest, a function of the user's and a constant:
subclasses answer ``variable``, ``element`` and ``call_user``.
"""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from frontend_py import operators
from frontend_py.files import Dotted, Number, PythonFile, Record, Scope, UserFunction, dotted, scalar_type
from frontend_py.kinds import numpy_name
from frontend_py.math_functions import (
    MATH_BINARY,
    MATH_INTEGER,
    MATH_UNARY,
    NUMPY_BINARY,
    NUMPY_OPERATORS,
    NUMPY_UNARY,
)
from frontend_py.operators import Val
from mdh_core.diagnostics import Refusal, refuse
from mdh_core.expr import (
    BOOL,
    DOUBLE,
    FLOAT,
    INT32,
    INT64,
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Field,
    MakeRecord,
    RecordType,
    ScalarType,
    Select,
)
from mdh_core.source import Span

_BINARY: dict[type[ast.operator], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^",
}  # fmt: skip
_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip
_WORDS = {
    "ListComp": "a comprehension", "GeneratorExp": "a generator", "Lambda": "a lambda", "List": "a list",
    "Dict": "a dictionary", "Set": "a set", "Await": "`await`", "Yield": "`yield`", "JoinedStr": "a string",
    "Starred": "`*`", "NamedExpr": "`:=`", "Tuple": "a tuple", "Slice": "a slice",
}  # fmt: skip
PRANGE = ("builtins.range", "numba.prange", "mdh_lift.prange", "mdh_lift.python.prange")
_C_DIVISION = {"truncdiv": "/", "truncmod": "%"}


class Expressions(ABC):
    """Converts expressions; raises a ``Refusal`` at the first construct that has no meaning for us."""

    def __init__(self, file: PythonFile, scope: Scope) -> None:
        self.file = file
        self.scope = scope

    # ------------------------------------------------------------------ for subclasses

    @abstractmethod
    def variable(self, name: str, node: ast.AST) -> Val | None:
        """The value of a variable; None where the name is none."""

    def is_variable(self, name: str) -> bool:
        """Does the name stand for a variable, whatever it is outside of the function?"""
        return False

    def element(self, node: ast.Subscript) -> Val | None:
        """The value of an array element; None where the base is no array."""
        return None

    def shape(self, node: ast.expr) -> Val | None:
        """``x.shape[0]`` and ``len(x)``; None where the node is neither."""
        return None

    def call_user(self, name: str, function: UserFunction, node: ast.Call) -> Val:
        raise self.unsupported("this call", node)

    # ------------------------------------------------------------------ dispatch

    def span(self, node: ast.AST) -> Span:
        return self.file.span(node)

    def unsupported(self, what: str, node: ast.AST, advice: str = "") -> Refusal:
        return refuse("MDH006", f"{what} is not supported inside a nest", self.span(node), help=advice)

    def convert(self, node: ast.expr) -> Val:
        """The value of an expression."""
        method: Callable[[ast.expr], Val] | None = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is None:
            raise self.unsupported(_WORDS.get(type(node).__name__, f"`{type(node).__name__}`"), node)
        return method(node)

    def condition(self, node: ast.expr) -> Expr:
        return operators.truth(self.convert(node), self.span(node))

    def thing(self, node: ast.expr) -> object:
        """What a name or dotted name stands for outside of the function."""
        root = node
        while isinstance(root, ast.Attribute):
            root = root.value
        if isinstance(root, ast.Name) and not self.is_variable(root.id):
            return dotted(node, self.scope)
        return None

    # ------------------------------------------------------------------ leaves

    def _constant(self, node: ast.Constant) -> Val:
        if isinstance(node.value, bool | int | float):
            return operators.constant(node.value, self.span(node))
        what = {"str": "a string", "bytes": "a string", "complex": "a complex number"}
        raise self.unsupported(what.get(type(node.value).__name__, f"`{node.value!r}`"), node)

    def _name(self, node: ast.Name) -> Val:
        found = self.variable(node.id, node)
        if found is not None:
            return found
        return self._outside(node, node.id)

    def _attribute(self, node: ast.Attribute) -> Val:
        return self._outside(node, node.attr)

    def _outside(self, node: ast.expr, name: str) -> Val:
        thing = self.thing(node)
        if isinstance(thing, Number):
            return thing.val
        if isinstance(thing, Dotted | UserFunction | Record):
            raise self.unsupported(f"`{name}` as a value", node)
        raise refuse(
            "MDH006", f"`{name}` is not known", self.span(node),
            help="pass it as a parameter, or assign it once at the top of the file",
        )  # fmt: skip

    def _subscript(self, node: ast.Subscript) -> Val:
        for found in (self.shape(node), self.element(node)):
            if found is not None:
                return found
        fresh = self.fresh_record(node)
        if fresh is not None and fresh[1] is not None:
            return Val(fresh[1])
        return self.member(self.convert(node.value), node)

    def member(self, record: Val, node: ast.Subscript) -> Val:
        """``r["field"]``."""
        t = record.expr.type
        key = node.slice
        if not isinstance(t, RecordType):
            raise refuse("MDH006", "something that is no array is subscripted", self.span(node))
        if (
            not isinstance(key, ast.Constant)
            or not isinstance(key.value, str)
            or key.value not in dict(t.fields)
        ):
            raise refuse(
                "MDH006", f"`{t}` has no such field", self.span(key),
                help="the fields are " + ", ".join(f'`"{name}"`' for name, _ in t.fields),
            )  # fmt: skip
        return Val(Field(record.expr, key.value, t.field_type(key.value)))

    # ------------------------------------------------------------------ operators

    def _unaryop(self, node: ast.UnaryOp) -> Val:
        span = self.span(node)
        if isinstance(node.op, ast.Not):
            value = self.convert(node.operand)
            condition = operators.truth(value, span)
            if isinstance(condition, Const):
                return Val(Const(int(not condition.value), INT32), weak=True, truth=True)
            return Val(operators.negated(condition), weak=True, truth=True)
        value = self.convert(node.operand)
        if isinstance(node.op, ast.USub):
            return operators.negative(value, span)
        if isinstance(node.op, ast.Invert):
            return operators.inverted(value, span)
        operators.number(value, span)
        return value

    def _binop(self, node: ast.BinOp) -> Val:
        a, b = self.convert(node.left), self.convert(node.right)
        return self.operate(node.op, a, b, node)

    def operate(self, op: ast.operator, a: Val, b: Val, node: ast.AST) -> Val:
        """``a op b`` of two values."""
        span = self.span(node)
        if type(op) in _BINARY:
            return operators.binary(_BINARY[type(op)], a, b, span)
        match op:
            case ast.Div():
                return operators.true_division(a, b, span)
            case ast.FloorDiv():
                return self._floored("/", a, b, span)
            case ast.Mod():
                return self._floored("%", a, b, span)
            case ast.LShift() | ast.RShift():
                return operators.shift("<<" if isinstance(op, ast.LShift) else ">>", a, b, span)
            case ast.Pow():
                return self._power(a, b, span)
        raise self.unsupported("`@`", node)

    def _floored(self, op: str, a: Val, b: Val, span: Span) -> Val:
        """``//`` and ``%``, which round downwards."""
        t, weak = operators.common(a, b, span)
        if t == BOOL:
            t = INT64
        inner = t if t.is_float or t.bits >= 32 else INT32
        x, y = operators.cast(a.expr, inner, span), operators.cast(b.expr, inner, span)
        if t.is_float:
            return Val(_floored_float(op, x, y, t), weak)
        if not isinstance(y, Const) or y.value in (0, -1):
            raise refuse(
                "MDH006", f"`{'//' if op == '/' else '%'}` by something that is no constant", span,
                help="divide by a constant other than 0 and -1, or compute the value before the nest",
            )  # fmt: skip
        return Val(operators.cast(operators.floor_quotient(x, y, inner, op), t, span), weak)

    def _power(self, a: Val, b: Val, span: Span) -> Val:
        """A product for small constant powers, ``pow`` otherwise."""
        exponent = b.expr.value if isinstance(b.expr, Const) else None
        base = a.expr.value if isinstance(a.expr, Const) else None
        if a.weak and b.weak and isinstance(base, int) and isinstance(exponent, int) and 0 <= exponent < 65:
            return operators.constant(base**exponent, span)
        if b.weak and isinstance(exponent, int) and 0 < exponent <= 4:
            out = a
            for _ in range(exponent - 1):
                out = operators.binary("*", out, a, span)
            return out
        t, weak = operators.common(a, b, span)
        if t.is_integer:
            raise refuse(
                "MDH006", "a power of integers", span, help="use a constant exponent from 1 to 4, or floats"
            )
        args = (operators.cast(a.expr, t, span), operators.cast(b.expr, t, span))
        return Val(Call("pow" if t == DOUBLE else "powf", args, t), weak)

    def _compare(self, node: ast.Compare) -> Val:
        parts: list[Val] = []
        left = self.convert(node.left)
        for op, right_node in zip(node.ops, node.comparators, strict=True):
            if type(op) not in _COMPARE:
                raise self.unsupported("`is` or `in`", node)
            right = self.convert(right_node)
            parts.append(operators.binary(_COMPARE[type(op)], left, right, self.span(node)))
            left = right
        out = parts[0].expr
        for p in parts[1:]:
            out = Binary("&&", out, p.expr, INT32)
        return Val(out, all(p.weak for p in parts), truth=True)

    def _boolop(self, node: ast.BoolOp) -> Val:
        """``and`` and ``or`` of conditions; of other values they would yield one of these."""
        values = [self.convert(v) for v in node.values]
        op = "&&" if isinstance(node.op, ast.And) else "||"
        if not all(v.truth for v in values):
            odd = next(n for n, v in zip(node.values, values, strict=True) if not v.truth)
            raise refuse(
                "MDH006", f"`{'and' if op == '&&' else 'or'}` of what is no condition", self.span(odd),
                help="compare it, for example with `!= 0`",
            )  # fmt: skip
        out = values[0].expr
        for v in values[1:]:
            out = Binary(op, out, v.expr, INT32)
        return Val(out, all(v.weak for v in values), truth=True)

    def _ifexp(self, node: ast.IfExp) -> Val:
        condition = self.condition(node.test)
        return operators.select(
            condition, self.convert(node.body), self.convert(node.orelse), self.span(node)
        )

    # ------------------------------------------------------------------ calls

    def _call(self, node: ast.Call) -> Val:
        found = self.shape(node)
        if found is not None:
            return found
        fresh = self.fresh_record(node)
        if fresh is not None and fresh[1] is not None:
            return Val(fresh[1])
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("copy", "item") and not node.args:
            base = node.func.value
            if self.thing(base) is None:
                value = self.convert(base)
                return Val(value.expr, weak=value.weak or node.func.attr == "item", truth=value.truth)
        thing = self.thing(node.func)
        if isinstance(thing, UserFunction):
            return self.call_user(_callee(node), thing, node)
        if not isinstance(thing, Dotted):
            raise refuse(
                "MDH204", f"call of `{ast.unparse(node.func)}`, whose effects are not known", self.span(node),
                help="call functions of `math`, NumPy, or of the same file",
            )  # fmt: skip
        if node.keywords or any(isinstance(a, ast.Starred) for a in node.args):
            raise self.unsupported("an argument with a keyword or `*`", node)
        return self._library_call(thing.name, node)

    def _library_call(self, name: str, node: ast.Call) -> Val:
        module, _, last = name.rpartition(".")
        span = self.span(node)
        t = scalar_type(node.func, self.scope)
        if t is not None and len(node.args) <= 1:
            value = self.convert(node.args[0]) if node.args else Val(Const(0, INT64), weak=True)
            return self._converted(value, t, span)
        args = [self.convert(a) for a in node.args]
        for v in args:
            operators.number(v, span)
        out: Val | None = None
        if module == "builtins":
            out = self._builtin(last, args, span)
        elif module == "math":
            out = self._math(last, args, span)
        elif module == "numpy":
            out = self._numpy(last, args, node)
        elif module in ("mdh_lift", "mdh_lift.python") and last in _C_DIVISION and len(args) == 2:
            out = self._c_division(_C_DIVISION[last], args[0], args[1], span)
        if out is None:
            raise refuse(
                "MDH204", f"`{ast.unparse(node.func)}` is not supported with {len(args)} arguments", span,
                help="call functions of `math`, NumPy, or of the same file",
            )  # fmt: skip
        return out

    def _converted(self, v: Val, t: ScalarType, span: Span) -> Val:
        """``np.T(value)``."""
        if t == BOOL:
            return Val(operators.truth(v, span), truth=True)
        return Val(operators.fitted(v, t, span))

    def _builtin(self, name: str, args: list[Val], span: Span) -> Val | None:
        match name, args:
            case "min" | "max", [_, _, *_]:
                out = args[0]
                for b in args[1:]:
                    chosen = operators.binary("<" if name == "min" else ">", b, out, span)
                    out = operators.select(chosen.expr, b, out, span)
                return out
            case "abs", [a]:
                return self._absolute(a, span)
            case "float", [a]:
                return Val(operators.cast(a.expr, DOUBLE, span), weak=True)
            case "int", [a]:
                t = operators.number(a, span)
                wide = t if t.is_integer and t.bits == 64 else INT64
                return Val(operators.cast(a.expr, wide, span), weak=True)
            case "bool", [a]:
                return Val(operators.truth(a, span), weak=True, truth=True)
            case "pow", [a, b]:
                return self._power(a, b, span)
        return None

    def _absolute(self, a: Val, span: Span) -> Val:
        t = operators.number(a, span)
        if t.is_float:
            return Val(Call("fabs" if t == DOUBLE else "fabsf", (a.expr,), t), a.weak)
        if not t.is_signed:
            return a
        inner = INT64 if t == INT64 else INT32
        e = operators.cast(a.expr, inner, span)
        positive = Call("labs" if inner == INT64 else "abs", (e,), inner)
        return Val(operators.cast(positive, t if not a.weak else inner, span), a.weak)

    def _math(self, name: str, args: list[Val], span: Span) -> Val | None:
        doubles = tuple(operators.cast(a.expr, DOUBLE, span) for a in args)
        if len(args) == 1 and name in MATH_UNARY:
            return Val(Call(MATH_UNARY[name], doubles, DOUBLE), weak=True)
        if len(args) == 2 and name in MATH_BINARY:
            return Val(Call(MATH_BINARY[name], doubles, DOUBLE), weak=True)
        if len(args) == 1 and name in MATH_INTEGER:
            return Val(Cast(Call(MATH_INTEGER[name], doubles, DOUBLE), INT64), weak=True)
        if len(args) == 1 and name == "isnan":
            return Val(Binary("!=", doubles[0], doubles[0], INT32), weak=True, truth=True)
        return None

    def _numpy(self, name: str, args: list[Val], node: ast.Call) -> Val | None:
        span = self.span(node)
        if name in NUMPY_OPERATORS and len(args) == 2:
            out = operators.binary(NUMPY_OPERATORS[name], args[0], args[1], span)
            return Val(out.expr, truth=out.truth)
        match name, args:
            case "abs" | "absolute", [a]:
                return Val(self._absolute(a, span).expr)
            case "square", [a]:
                return Val(operators.binary("*", a, a, span).expr)
            case "divide" | "true_divide", [a, b]:
                return Val(operators.true_division(a, b, span).expr)
            case "isnan", [a] if operators.number(a, span).is_float:
                return Val(Binary("!=", a.expr, a.expr, INT32), truth=True)
            case "where", [c, a, b]:
                return operators.select(operators.truth(c, span), a, b, span)
            case "minimum" | "maximum", [a, b]:
                return self._extremum(name, a, b, span)
        if len(args) == 1 and name in NUMPY_UNARY:
            t = self._real(args[0], span)
            if t is None:
                return None
            return Val(_of_math(NUMPY_UNARY[name], (operators.cast(args[0].expr, t, span),), t))
        if len(args) == 2 and name in NUMPY_BINARY:
            t, _ = operators.common(args[0], args[1], span)
            if not t.is_float:
                if name in ("fmin", "fmax"):
                    return self._extremum(name, args[0], args[1], span)
                if name in ("power", "pow", "fmod"):
                    return None
                t = DOUBLE
            both = tuple(operators.cast(a.expr, t, span) for a in args)
            return Val(_of_math(NUMPY_BINARY[name], both, t))
        return None

    def _real(self, a: Val, span: Span) -> ScalarType | None:
        """The type in which NumPy computes a function of one number; None: in half precision."""
        t = operators.number(a, span)
        if t.is_float:
            return t
        if a.weak or t.bits >= 32:
            return DOUBLE
        return FLOAT if t.bits == 16 else None

    def _extremum(self, name: str, a: Val, b: Val, span: Span) -> Val:
        """``np.minimum`` passes not-a-number on."""
        t, _ = operators.common(a, b, span)
        if t == BOOL:
            t = INT64
        x, y = operators.cast(a.expr, t, span), operators.cast(b.expr, t, span)
        inner = t if t.is_float or t.bits >= 32 else INT32
        wide = (operators.cast(x, inner, span), operators.cast(y, inner, span))
        chosen: Expr = Binary("<" if "min" in name else ">", *wide, INT32)
        if t.is_float:
            chosen = Binary("||", chosen, Binary("!=", x, x, INT32), INT32)
        return Val(Select(chosen, x, y, t))

    def _c_division(self, op: str, a: Val, b: Val, span: Span) -> Val | None:
        """``truncdiv`` and ``truncmod``: division that rounds towards zero, as C's."""
        t, weak = operators.common(a, b, span)
        if t.is_float or t == BOOL:
            return None
        inner = t if t.bits >= 32 else INT32
        x, y = operators.cast(a.expr, inner, span), operators.cast(b.expr, inner, span)
        if not isinstance(y, Const) or y.value in (0, -1):
            raise refuse("MDH006", "division by something that is no constant", span)
        return Val(operators.cast(operators.fold(op, x, y, inner), t, span), weak)

    # ------------------------------------------------------------------ records

    def fresh_record(self, node: ast.expr) -> tuple[RecordType, Expr | None] | None:
        """``np.void((1, 2), rec)``, ``np.zeros((), rec)[()]``; without a value: ``np.empty((), rec)[()]``."""
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple) and not node.slice.elts:
            call, names = node.value, ["numpy.zeros", "numpy.empty"]
        else:
            call, names = node, ["numpy.void"]
        if not isinstance(call, ast.Call):
            return None
        callee = self.thing(call.func)
        if not isinstance(callee, Dotted) or callee.name not in names:
            return None
        given = [*call.args, *(k.value for k in call.keywords if k.arg == "dtype")]
        t = self.thing(given[1]) if len(given) == 2 else None
        if not isinstance(t, Record):
            return None
        if callee.name == "numpy.empty":
            return t.type, None
        if callee.name == "numpy.zeros":
            zeros = tuple(Const(0.0 if f.is_float else 0, f) for _, f in t.type.fields)
            return t.type, MakeRecord(zeros, t.type)
        values = given[0]
        if not isinstance(values, ast.Tuple) or len(values.elts) != len(t.type.fields):
            raise refuse("MDH006", f"`{t.type}` has {len(t.type.fields)} fields", self.span(node))
        parts = [
            operators.fitted(self.convert(v), f, self.span(v))
            for v, (_, f) in zip(values.elts, t.type.fields, strict=True)
        ]
        return t.type, MakeRecord(tuple(parts), t.type)


def _callee(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else ast.unparse(node.func).replace(".", "_")


def _of_math(name: str, args: Sequence[Expr], t: ScalarType) -> Expr:
    return Call(name + ("f" if t == FLOAT else ""), tuple(args), t)


def _floored_float(op: str, x: Expr, y: Expr, t: ScalarType) -> Expr:
    """``x // y`` and ``x % y`` of floats: the remainder of C, moved to the sign of the divisor."""
    zero = Const(0.0, t)
    rest = _of_math("fmod", (x, y), t)
    wrong = Binary(
        "&&", Binary("!=", rest, zero, INT32),
        Binary("!=", Binary("<", rest, zero, INT32), Binary("<", y, zero, INT32), INT32), INT32,
    )  # fmt: skip
    if op == "%":
        # a remainder of zero has the sign of the divisor
        signed = Select(Binary("==", rest, zero, INT32), _of_math("copysign", (zero, y), t), rest, t)
        return Select(wrong, Binary("+", rest, y, t), signed, t)
    exact = Binary("/", Binary("-", x, rest, t), y, t)
    quotient = Select(wrong, Binary("-", exact, Const(1.0, t), t), exact, t)
    floor = _of_math("floor", (quotient,), t)
    near = Select(Binary(">", Binary("-", quotient, floor, t), Const(0.5, t), INT32),
                  Binary("+", floor, Const(1.0, t), t), floor, t)  # fmt: skip
    by_zero = Binary("==", y, zero, INT32)
    return Select(by_zero, Binary("/", x, y, t), near, t)


def shown_type(t: ScalarType) -> str:
    return f"`{numpy_name(t)}`"
