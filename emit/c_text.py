"""Expressions, types and statements as C text; one precedence table.

``Printer`` turns a typed expression into C.  What a leaf looks like (an iterator, an array access, an
operand of the scalar function) is the caller's business: it passes ``leaf``, which returns the text
of ``Var``, ``Load``, ``Operand`` and ``Result`` nodes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import assert_never

from mdh_core.expr import (
    COMPARISONS,
    LOGICAL,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    Affine,
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

C_NAMES = {
    "float": "float",
    "double": "double",
    "bool": "_Bool",
    "int8": "signed char",
    "int16": "short",
    "int32": "int",
    "int64": "long",
    "uint8": "unsigned char",
    "uint16": "unsigned short",
    "uint32": "unsigned int",
    "uint64": "unsigned long",
}
PRECEDENCE = {
    "*": 13, "/": 13, "%": 13, "+": 12, "-": 12, "<<": 11, ">>": 11, "<": 10, "<=": 10, ">": 10,
    ">=": 10, "==": 9, "!=": 9, "&": 8, "^": 7, "|": 6, "&&": 5, "||": 4,
}  # fmt: skip
UNARY, TERNARY, ATOM = 14, 3, 20
_UNSIGNED = {t.bits: t for t in (UINT8, UINT16, UINT32, UINT64)}
# gcc and clang ask for parentheses around these pairs (-Wparentheses)
_CLARIFY = {"&", "|", "^", "<<", ">>", "&&", "||"}

_CONVERTED = re.compile(r"\([a-z ]+\)\w+")

Leaf = Callable[[Expr], str]


def c_type(t: Type) -> str:
    return t.name if isinstance(t, RecordType) else C_NAMES[t.name]


def constant(value: int | float, t: ScalarType) -> str:
    """A literal of exactly this type and value."""
    if t.is_float:
        suffix = "f" if t.bits == 32 else ""
        v = float(value)
        if math.isnan(v):
            return f'__builtin_nan{suffix}("")'
        if math.isinf(v):
            return ("-" if v < 0 else "") + f"__builtin_inf{suffix}()"
        text = repr(v)
        return text + suffix
    number = int(value)
    if t.bits == 64:
        if t.kind == "uint":
            return f"{number}UL"
        return f"(-{-(number + 1)}L - 1)" if number == -(1 << 63) else f"{number}L"
    if t.kind == "uint" and t.bits == 32:
        return f"{number}U"
    return "(-2147483647 - 1)" if number == -(1 << 31) else str(number)


def _is_atom(text: str) -> bool:
    return text.replace("_", "a").replace(".", "a").isalnum()


def unsigned(t: ScalarType) -> ScalarType:
    """The unsigned type as wide as an integer type."""
    return _UNSIGNED[t.bits]


def wrapping(op: str, t: ScalarType) -> ScalarType | None:
    """The unsigned type in which C computes ``op`` on scalars of type ``t`` for all operands; None: in ``t``.

    Partial results, and what is computed for lanes that do not need it, may leave the range of a signed type
    where the original never does.  The unsigned type holds the same value modulo two to the number of bits,
    so that the results are the same.  What is narrower than ``int`` is computed in ``int``, which holds all
    sums of such values, but not all products of ``unsigned short``.
    """
    if op not in ("+", "-", "*") or not t.is_integer or t.kind == "bool":
        return None
    if t.bits >= 32:
        return unsigned(t) if t.kind == "int" else None
    return UINT32 if op == "*" and (t.kind, t.bits) == ("uint", 16) else None


def rounded(t: str, product: str) -> str:
    """A product, of scalars or vectors of type ``t``, that is not contracted with what it is added to."""
    return f"MDH_ROUNDED({t}, {product})"


class Printer:
    """C text of scalar expressions and statements."""

    def __init__(
        self,
        leaf: Leaf,
        rename: Callable[[str], str] = lambda n: n,
        functions: tuple[Function, ...] = (),
        index: Callable[[Binary], str | None] = lambda e: None,
        rounds: bool = False,
        wraps: bool = False,
    ) -> None:
        """``index``: the text of a sum over indices, as ``affine_text`` writes it; None for anything else.

        ``rounds``: no compiler may contract a product and a sum (``mdh_core.rounding``).
        ``wraps``: signed results may not fit where the original computes nothing: see ``wrapping``.
        """
        self.leaf = leaf
        self.rename = rename
        self.index = index
        self.rounds = rounds
        self.wraps = wraps
        self.functions = {f.name: f for f in functions}

    def text(self, e: Expr, parent: int = 0) -> str:
        """The expression, in parentheses where ``parent`` binds tighter."""
        text, precedence = self._node(e)
        return f"({text})" if precedence < parent else text

    def _node(self, e: Expr) -> tuple[str, int]:
        match e:
            case Const(value=value, type=t):
                text = constant(value, t)
                return text, UNARY if text.startswith("-") else ATOM
            case Var() | Load() | Operand() | Result():
                text = self.leaf(e)
                if _CONVERTED.fullmatch(text):
                    return text, UNARY
                return text, ATOM if _is_atom(text) or text.endswith(("]", ")")) else TERNARY
            case Unary(op=op, a=a):
                inner = self.text(a, UNARY)
                if self.wraps and (u := wrapping(op, e.type)):
                    return f"({c_type(e.type)})-({c_type(u)}){inner}", UNARY
                return (f"{op}({inner})" if inner.startswith(op) else f"{op}{inner}"), UNARY
            case Binary():
                return self._binary(e)
            case Select(cond=c, then=t, other=o):
                return (
                    f"{self.text(c, TERNARY + 1)} ? {self.text(t, TERNARY)} : {self.text(o, TERNARY)}",
                    TERNARY,
                )
            case Cast(a=a, type=t):
                return f"({c_type(t)}){self.text(a, UNARY)}", UNARY
            case Call(function=name, args=args, type=result):
                return self._call(name, args, result), ATOM
            case Field(a=a, name=name):
                return f"{self.text(a, ATOM)}.{name}", ATOM
            case MakeRecord(values=values, type=record):
                inner = ", ".join(self.text(v, TERNARY) for v in values)
                return f"({record.name}){{{inner}}}", ATOM
            case _:
                assert_never(e)

    def _binary(self, e: Binary) -> tuple[str, int]:
        index = self.index(e)
        if index is not None:
            return index, ATOM if _is_atom(index) else PRECEDENCE["+"]
        p = PRECEDENCE[e.op]
        if self.wraps and (u := wrapping(e.op, e.type)):
            a, b = (f"({c_type(u)}){self.text(x, UNARY)}" for x in (e.a, e.b))
            return f"({c_type(e.type)})({a} {e.op} {b})", UNARY
        a = self.text(e.a, ATOM if self._unclear(e.a, e.op) else p)
        b = self.text(e.b, ATOM if self._unclear(e.b, e.op) else p + 1)
        text = f"{a} {e.op} {b}"
        if e.type.is_integer and e.type.bits < 32 and e.op not in COMPARISONS | LOGICAL:
            return f"({c_type(e.type)})({text})", UNARY  # C computes in int: wrap as the node does
        if self.rounds and e.op == "*" and e.type.is_float:
            return rounded(c_type(e.type), text), ATOM
        return text, p

    @staticmethod
    def _unclear(child: Expr, op: str) -> bool:
        """Whether compilers would ask for parentheses around the operand."""
        if not isinstance(child, Binary):
            return False
        if op in COMPARISONS and child.op in COMPARISONS:
            return True
        if op not in _CLARIFY or child.op == op:
            return False
        return op not in ("&&", "||") or child.op in ("&&", "||")

    def _call(self, name: str, args: tuple[Expr, ...], result: Type) -> str:
        function = self.functions.get(name)
        if function is not None and function.out_param:
            # void f(T *res, const T *lhs, const T *rhs) as a value
            t = c_type(result)
            inner = ", ".join(f"&({t}[]){{{self.text(a, TERNARY)}}}[0]" for a in args)
            return f"({{ {t} mdh_r; {name}(&mdh_r, {inner}); mdh_r; }})"
        prefix = "" if function is not None else "__builtin_"
        return f"{prefix}{name}({', '.join(self.text(a, TERNARY) for a in args)})"

    def statements(self, body: tuple[Stmt, ...]) -> list[str]:
        """Statements as lines, indented by two spaces per level."""
        lines: list[str] = []
        for s in body:
            lines += self._statement(s)
        return lines

    def _statement(self, s: Stmt) -> list[str]:
        match s:
            case Declare(name=name, type=t, value=value):
                init = "" if value is None else f" = {self.text(value, TERNARY)}"
                return [f"{c_type(t)} {self.rename(name)}{init};"]
            case Assign(target=target, value=value):
                return [f"{self.text(target)} = {self.text(value, TERNARY)};"]
            case If(cond=cond, then=then, other=other):
                lines = [f"if ({self.text(cond)}) {{", *_indent(self.statements(then))]
                if other:
                    lines += ["} else {", *_indent(self.statements(other))]
                return [*lines, "}"]
            case While(cond=cond, body=body):
                return [f"while ({self.text(cond)}) {{", *_indent(self.statements(body)), "}"]
            case Return(value=value):
                return [f"return {self.text(value)};"]
            case _:
                assert_never(s)


def _indent(lines: list[str]) -> list[str]:
    return ["  " + line for line in lines]


def affine_text(a: Affine, offsets: dict[str, str], atom: bool = False) -> str:
    """An affine value as C text over ``long`` variables; ``offsets`` gives the text of a name.

    >>> affine_text(Affine.of("i") * 2 + 1, {"i": "i0 + 4"})
    '2*(i0 + 4) + 1'
    >>> affine_text(Affine.of("n") - Affine.of("i") - 1, {})
    'n - i - 1'
    """
    out = ""
    first = next((t for t in a.terms if t[1] > 0 and offsets.get(t[0]) != "0"), None)
    for name, c in a.terms if first is None else (first, *(t for t in a.terms if t != first)):
        text = offsets.get(name, name)
        if text == "0":
            continue
        if abs(c) != 1 or (c < 0 and not _is_atom(text)):
            text = text if _is_atom(text) else f"({text})"
            text = text if abs(c) == 1 else f"{abs(c)}*{text}"
        sign = "-" if c < 0 else "+"
        out += f" {sign} {text}" if out else ("-" + text if c < 0 else text)
    if a.const or not out:
        out = f"{out} {'-' if a.const < 0 else '+'} {abs(a.const)}" if out else str(a.const)
    return f"({out})" if atom and not _is_atom(out) else out
