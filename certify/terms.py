"""Computations as terms: how a value came about, in a normal form for the operators that may be reordered.

    term ::= number | ("cell", buffer, position) | ("param", name) | (operation, term*)
           | ("sum", type, constant, {term: coefficient}) | ("fold", operation, multiset of terms)

A ``Term`` is the number of its node; equal computations have equal numbers.  Integer sums and products are
always in normal form, those of floating-point numbers only for the ``free`` operations: the ones that the
steps declare to be associative and commutative.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable

from mdh_core.expr import ScalarType, Type

Term = int
Node = tuple[Hashable, ...]
IDEMPOTENT = frozenset({"fmin", "fmax", "fminf", "fmaxf", "&", "|"})


class Terms:
    """``free``: names of the floating-point and user's operations that may be reordered.

    ties   two values that were computed in different ways were compared and found equal: which of them is
           chosen may depend on the order
    """

    def __init__(self, free: Iterable[str] = ()) -> None:
        self.free = frozenset(free)
        self.ties = False
        self.nodes: list[Node] = []
        self.numbers: dict[Node, Term] = {}

    def node(self, *parts: Hashable) -> Term:
        found = self.numbers.get(parts)
        if found is None:
            found = self.numbers[parts] = len(self.nodes)
            self.nodes.append(parts)
        return found

    def number(self, value: float, t: Type) -> Term:
        if isinstance(value, float) and value == 0:
            value = 0.0  # of either sign
        return self.node("number", "nan" if value != value else value, _key(t))

    def value(self, term: Term) -> int | float | None:
        n = self.nodes[term]
        return n[1] if n[0] == "number" and n[1] != "nan" else None  # type: ignore[return-value]

    # ------------------------------------------------------------------ operations

    def cast(self, x: Term, old: ScalarType, new: ScalarType) -> Term:
        """A conversion; those between floating-point types only round, which is left out.

        Integers that get narrower keep their low bits: the sum of these is that of the narrow operands.
        """
        if old == new or (old.is_float and new.is_float):
            return x
        n, v = self.nodes[x], self.value(x)
        if v is not None:
            return self.number(float(v) if new.is_float else wrapped(int(v), new), new)
        narrows = (
            old.is_integer and new.is_integer and "bool" not in (old.kind, new.kind) and new.bits <= old.bits
        )
        if n[0] == "cast":
            first: ScalarType = n[1]  # type: ignore[assignment]
            if _preserves(first, old) or (narrows and first.is_integer and first.kind != "bool"):
                return self.cast(int(n[3]), first, new)  # type: ignore[call-overload]
        if narrows and n[:2] == ("sum", _key(old)):
            parts: list[tuple[Term, int]] = [(self.cast(y, old, new), k) for y, k in n[3]]  # type: ignore[attr-defined]
            return self._sum([*parts, (self.number(wrapped(int(n[2]), new), new), 1)], new)  # type: ignore[call-overload]
        if narrows and n[0] == "fold" and n[2] == _key(old) and n[1] in ("&", "|", "^"):
            every = tuple(self.cast(y, old, new) for y, k in n[3] for _ in range(k))  # type: ignore[attr-defined]
            return self.fold(str(n[1]), every, new)
        return self.node("cast", old, new, x)

    def unary(self, op: str, a: Term, t: ScalarType) -> Term:
        if op == "-" and self._reorders("+", t):
            return self._sum([(a, -1)], t)
        return self.node("unary", op, _key(t), a)

    def binary(self, op: str, a: Term, b: Term, t: ScalarType) -> Term:
        if op in ("+", "-") and self._reorders("+", t):
            return self._sum([(a, 1), (b, 1 if op == "+" else -1)], t)
        if op == "*" and self._reorders("*", t):
            return self._product(a, b, t)
        if op == "*" and -1 in (self.value(a), self.value(b)) and self._reorders("+", t):
            return self._sum([(b if self.value(a) == -1 else a, -1)], t)
        if op in ("&", "|", "^") and t.is_integer:
            return self.fold(op, (a, b), t)
        if op in ("+", "*") and b < a:
            a, b = b, a  # exact arithmetic or not, these two commute
        return self.node("binary", op, _key(t), a, b)

    def call(self, name: str, args: tuple[Term, ...], t: Type) -> Term:
        if len(args) == 2 and (name in ("fmin", "fmax", "fminf", "fmaxf") or name in self.free):
            return self.fold(name, args, t)
        return self.node("call", name, _key(t), *args)

    def fold(self, op: str, operands: tuple[Term, ...], t: Type) -> Term:
        """A reorderable operation, flat: the multiset of what it combines (a set where once is enough)."""
        key = ("fold", op, _key(t))
        found: Counter[Term] = Counter()
        for x in operands:
            n = self.nodes[x]
            if n[:3] == key:
                found.update(dict(n[3]))  # type: ignore[call-overload]
            elif not self._neutral(op, x, t):
                found[x] += 1
        if op in IDEMPOTENT:
            found = Counter(dict.fromkeys(found, 1))
        if not found:
            return operands[0]
        if len(found) == 1 and found.total() == 1:
            return next(iter(found))
        return self.node(*key, tuple(sorted(found.items())))

    def _neutral(self, op: str, x: Term, t: Type) -> bool:
        v = self.value(x)
        match op:
            case "fmin" | "fminf":
                return v == math.inf
            case "fmax" | "fmaxf":
                return v == -math.inf
            case "|" | "^":
                return v == 0
            case "&":
                return v == -1 or (isinstance(t, ScalarType) and t.kind == "uint" and v == (1 << t.bits) - 1)
            case _:
                return False

    def _reorders(self, op: str, t: ScalarType) -> bool:
        return t.is_integer or op in self.free

    def _sum(self, parts: list[tuple[Term, int]], t: ScalarType) -> Term:
        key = ("sum", _key(t))
        constant: int | float = 0 if t.is_integer else 0.0
        terms: dict[Term, int] = {}
        for x, factor in parts:
            n, v = self.nodes[x], self.value(x)
            inner: Iterable[tuple[Term, int]] = ((x, 1),)
            if v is not None:
                constant += factor * v
                continue
            if n[:2] == key:
                constant += factor * n[2]  # type: ignore[operator]
                inner = n[3]  # type: ignore[assignment]
            for y, c in inner:
                terms[y] = terms.get(y, 0) + factor * c
        terms = {x: c for x, c in terms.items() if c}
        if t.is_integer:
            constant = wrapped(int(constant), t)
            terms = {x: w for x, c in terms.items() if (w := wrapped(c, t))}
        if not terms:
            return self.number(constant, t)
        if constant == 0 and list(terms.values()) == [1]:
            return next(iter(terms))
        return self.node(*key, constant, tuple(sorted(terms.items())))

    def _product(self, a: Term, b: Term, t: ScalarType) -> Term:
        """Factors as a multiset; a number is a coefficient of the sum that the product belongs to."""
        x, y = self.value(a), self.value(b)
        if x is not None and y is not None:
            return self.number(wrapped(int(x * y), t) if t.is_integer else x * y, t)
        if x is not None or y is not None:
            number, other = (x, b) if x is not None else (y, a)
            if number == 1:
                return other
            if t.is_integer and self._reorders("+", t):
                assert number is not None
                return self._sum([(other, int(number))], t)
        key = ("product", _key(t))
        found: Counter[Term] = Counter()
        sign, factor = 1, 1
        for z in (a, b):
            n = self.nodes[z]
            if t.is_integer and n[:3] == ("sum", _key(t), 0) and len(n[3]) == 1:  # type: ignore[arg-type]
                ((z, factor),) = n[3]  # type: ignore[misc]
                sign *= int(factor)
                n = self.nodes[z]
            if n[:2] == key:
                found.update(dict(n[2]))  # type: ignore[call-overload]
            else:
                found[z] += 1
        out = self.node(*key, tuple(sorted(found.items())))
        return out if sign == 1 else self._sum([(out, sign)], t)

    # ------------------------------------------------------------------ text

    def text(self, term: Term, depth: int = 4) -> str:
        n = self.nodes[term]
        if n[0] == "number":
            return str(n[1])
        if n[0] in ("cell", "undefined"):
            return f"{n[1]}[{n[2]}]" if n[0] == "cell" else f"{n[1]}[{n[2]}] (never written)"
        if n[0] == "param":
            return str(n[1])
        if depth == 0:
            return "…"

        def inner(x: object) -> str:
            return self.text(int(x), depth - 1)  # type: ignore[call-overload]

        match n[0]:
            case "cast":
                return f"({n[2]}){inner(n[3])}"
            case "sum":
                parts = [inner(x) if c == 1 else f"{c}*{inner(x)}" for x, c in n[3]]  # type: ignore[attr-defined]
                return "(" + " + ".join([*parts, *([str(n[2])] if n[2] else [])]) + ")"
            case "product":
                return "*".join(inner(x) for x, c in n[2] for _ in range(c))  # type: ignore[attr-defined]
            case "fold":
                return f"{n[1]}({', '.join(inner(x) for x, c in n[3] for _ in range(c))})"  # type: ignore[attr-defined]
            case "binary":
                return f"({inner(n[3])} {n[1]} {inner(n[4])})"
            case "unary":
                return f"{n[1]}{inner(n[3])}"
            case _:
                return f"{n[1]}({', '.join(inner(x) for x in n[3:])})"


def wrapped(value: int, t: ScalarType) -> int:
    """The integer in the type's range that has the same low bits."""
    value &= (1 << t.bits) - 1
    return value - (1 << t.bits) if t.kind == "int" and value >> (t.bits - 1) else value


def _key(t: Type) -> str:
    """A type's name; floating-point types are one, as rounding is left out."""
    return "real" if isinstance(t, ScalarType) and t.is_float else str(t)


def _preserves(old: ScalarType, new: ScalarType) -> bool:
    """Does the new type have every value of the old one?"""
    if old.is_float or new.is_float:
        return (
            new.is_float
            and (old.is_float or new.bits == 64 or old.bits < 32)
            and not (old.is_integer and old.bits > 32)
        )
    if old.kind == new.kind:
        return old.bits <= new.bits
    return old.kind in ("uint", "bool") and (new.bits > old.bits or new.kind == "uint") and new.kind != "bool"
