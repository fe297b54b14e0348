"""The value of a C integer expression over named values, as frontends write them for derived parameters.

    n / 2      m->rows * 8      *n + 1

What has a value is a variable, a member (``m->rows``, ``m.size.x``), or what a pointer points to (``*n``).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence

from frontend_c.lexer import Token, tokens

_LEVELS = [
    level.split() for level in ["||", "&&", "|", "^", "&", "== !=", "< <= > >=", "<< >>", "+ -", "* / %"]
]  # loosest first
_TYPE_WORDS = frozenset(["char", "short", "int", "long", "signed", "unsigned", "_Bool", "size_t"])

_OPERATIONS = {
    "|": operator.or_, "^": operator.xor, "&": operator.and_, "==": operator.eq, "!=": operator.ne,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "<<": operator.lshift,
    ">>": operator.rshift, "+": operator.add, "-": operator.sub, "*": operator.mul,
}  # fmt: skip


class NotAnInteger(Exception):  # noqa: N818 - an answer
    """The expression holds something else than integers, names with a value, and operators."""


_PLACE = re.compile(r"\*?[A-Za-z_]\w*(?:(?:->|\.)[A-Za-z_]\w*)*", re.ASCII)


def is_place(text: str) -> bool:
    """Is it a variable, a member of one, or ``*p``?"""
    return _PLACE.fullmatch(text) is not None


def names_in(text: str) -> list[str]:
    """Variables, members and ``*p`` of an expression, without the words of types; ``sizeof`` included."""
    stream = tokens(text.encode())
    found: list[str] = []
    k = 0
    while k < len(stream):
        if stream[k].kind != "id" or _text(stream, k) in _TYPE_WORDS:
            k += 1
            continue
        name, after = _member(stream, k)
        found.append(f"*{name}" if _is_dereferenced(stream, k) and after == k + 1 else name)
        k = after
    return list(dict.fromkeys(found))


def divisors_in(text: str) -> set[str]:
    """Variables and members that the expression divides by.

    >>> sorted(divisors_in("2 * h ? (n - 1) / (2 * h) : m->k / m->s"))
    ['h', 'm->s']
    """
    stream = tokens(text.encode())
    found: set[str] = set()
    for k in range(1, len(stream)):
        if _text(stream, k - 1) != "/":
            continue
        end, depth = k, 0
        while end < len(stream) and (depth or end == k):
            depth += {"(": 1, ")": -1}.get(_text(stream, end), 0)
            end = _member(stream, end)[1] if stream[end].kind == "id" else end + 1
        found |= set(names_in(b" ".join(t.text for t in stream[k:end]).decode("latin-1")))
    return found


def _text(stream: Sequence[Token], k: int) -> str:
    return stream[k].text.decode("latin-1") if 0 <= k < len(stream) else ""


def _member(stream: Sequence[Token], k: int) -> tuple[str, int]:
    """``m->rows`` from the identifier at ``k`` on, and the token behind it."""
    name, k = _text(stream, k), k + 1
    while _text(stream, k) in ("->", ".") and k + 1 < len(stream) and stream[k + 1].kind == "id":
        name, k = name + _text(stream, k) + _text(stream, k + 1), k + 2
    return name, k


def _is_dereferenced(stream: Sequence[Token], k: int) -> bool:
    """Is the `*` before token ``k`` the unary one?"""
    if _text(stream, k - 1) != "*":
        return False
    before = _text(stream, k - 2)
    converted = before == ")" and _text(stream, k - 3) in _TYPE_WORDS
    return converted or not (before in (")", "]") or (k >= 2 and stream[k - 2].kind in ("id", "number")))


def value(text: str, names: Mapping[str, int]) -> int:
    """
    >>> value("m ? (n + 1) / m : 0", {"n": 8, "m": 2})
    4
    """
    parser = _Parser(tokens(text.encode()), names)
    result = parser.conditional()
    if parser.at != len(parser.stream):
        raise NotAnInteger(text)
    return result


class _Parser:
    def __init__(self, stream: list[Token], names: Mapping[str, int]) -> None:
        self.stream, self.names, self.at = stream, names, 0

    def peek(self) -> str:
        return self.stream[self.at].text.decode("latin-1") if self.at < len(self.stream) else ""

    def take(self) -> str:
        text = self.peek()
        self.at += 1
        return text

    def conditional(self) -> int:
        condition = self.level(0)
        if self.peek() != "?":
            return condition
        self.take()
        then = self.conditional()
        if self.take() != ":":
            raise NotAnInteger
        other = self.conditional()
        return then if condition else other

    def level(self, n: int) -> int:
        if n == len(_LEVELS):
            return self.unary()
        left = self.level(n + 1)
        while self.peek() in _LEVELS[n]:
            left = _apply(self.take(), left, self.level(n + 1))
        return left

    def unary(self) -> int:
        text = self.take()
        if text in ("-", "+", "!", "~"):
            inner = self.unary()
            return {"-": -inner, "+": inner, "!": int(not inner), "~": ~inner}[text]
        if text == "(":
            if self.peek() in _TYPE_WORDS:  # a conversion, assumed to keep the value
                while self.take() != ")":
                    if self.at >= len(self.stream):
                        raise NotAnInteger
                return self.unary()
            inner = self.conditional()
            if self.take() != ")":
                raise NotAnInteger
            return inner
        if text == "*" and f"*{self.peek()}" in self.names:
            return self.names["*" + self.take()]
        if self.at <= len(self.stream) and self.stream[self.at - 1].kind == "id":
            name, self.at = _member(self.stream, self.at - 1)
            if name not in self.names:
                raise NotAnInteger(name)
            return self.names[name]
        try:
            return int(text.rstrip("uUlL"), 0)
        except ValueError:
            raise NotAnInteger(text) from None


def _apply(op: str, a: int, b: int) -> int:
    if op in ("/", "%"):
        if b == 0:
            return 0  # of a branch that is not taken; C would not get there
        quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        return quotient if op == "/" else a - b * quotient
    match op:
        case "||":
            return int(bool(a or b))
        case "&&":
            return int(bool(a and b))
        case "<<" | ">>":
            return int(_OPERATIONS[op](a, min(max(0, b), 64)))
        case _:
            return int(_OPERATIONS[op](a, b))
