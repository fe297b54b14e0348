"""Computations as terms: how a value came about, in a normal form for the operators that may be reordered.

    term ::= number | ("cell", buffer, position) | ("param", name) | (operation, term*)
           | ("sum", type, constant, {term: coefficient}) | ("product", type, multiset of terms)
           | ("fold", operation, type, multiset of terms)

A ``Term`` is the number of its node; equal computations have equal numbers.  Integer sums and products are
always in normal form, those of floating-point numbers only for the ``free`` operations: the ones that the
steps declare to be associative and commutative.  The normal form does not depend on the order in which
operands arrive: among them there is one number at most, which is exact, so that ``(x ^ 1) ^ 1`` is what
``x ^ (1 ^ 1)`` is, and ``(x + 0.1) + 0.2`` what ``x + (0.1 + 0.2)`` is.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from fractions import Fraction
from functools import reduce
from typing import Any

from mdh_core.expr import ScalarType, Type

Term = int
Node = tuple[Hashable, ...]
Number = int | float | Fraction
Factors = tuple[tuple[Term, int], ...]  # and how often each
DIGITS = 20_000  # bits of an exact number, beyond which nothing is compared
PRODUCTS = 4_000  # in a sum, likewise

# operation -> what it does to two numbers; x op x is x for all of them but ^, where it is 0
_FOLDED: dict[str, Callable[[Any, Any], Any]] = {
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "fmin": min,
    "fminf": min,
    "fmax": max,
    "fmaxf": max,
}


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

    def number(self, value: Number, t: Type) -> Term:
        if isinstance(value, float) and value == 0:
            value = 0.0  # of either sign
        return self.node("number", "nan" if value != value else value, _key(t))

    def value(self, term: Term) -> Number | None:
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
        if narrows and n[:2] == ("product", _key(old)):
            factors = [self.cast(y, old, new) for y, k in n[2] for _ in range(k)]  # type: ignore[attr-defined]
            return self._product(factors, new)
        if narrows and n[0] == "fold" and n[2] == _key(old) and n[1] in ("&", "|", "^"):
            every = tuple(self.cast(y, old, new) for y, k in n[3] for _ in range(k))  # type: ignore[attr-defined]
            return self.fold(str(n[1]), every, new)
        return self.node("cast", old, new, x)

    def unary(self, op: str, a: Term, t: ScalarType) -> Term:
        if op == "-" and self.reorders("+", t):
            return self._sum([(a, -1)], t)
        return self.node("unary", op, _key(t), a)

    def binary(self, op: str, a: Term, b: Term, t: ScalarType) -> Term:
        if op in ("+", "-") and self.reorders("+", t):
            return self._sum([(a, 1), (b, 1 if op == "+" else -1)], t)
        if op == "*" and self.reorders("*", t):
            return self._product((a, b), t)
        if op == "*" and -1 in (self.value(a), self.value(b)) and self.reorders("+", t):
            return self._sum([(b if self.value(a) == -1 else a, -1)], t)
        if op in ("&", "|", "^") and t.is_integer:
            return self.fold(op, (a, b), t)
        if op in ("+", "*") and b < a:
            a, b = b, a  # exact arithmetic or not, these two commute
        return self.node("binary", op, _key(t), a, b)

    def call(self, name: str, args: tuple[Term, ...], t: Type) -> Term:
        if len(args) == 2 and self.folds(name):
            return self.fold(name, args, t)
        return self.node("call", name, _key(t), *args)

    def folds(self, name: str) -> bool:
        """Is a call of this function in normal form?"""
        return name in _FOLDED or name in self.free

    def reorders(self, op: str, t: ScalarType) -> bool:
        """Are sums (``+``, also for ``-``) or products (``*``) of this type in normal form?"""
        return t.is_integer or ("+" if op == "-" else op) in self.free

    def fold(self, op: str, operands: tuple[Term, ...], t: Type) -> Term:
        """A reorderable operation, flat: what it combines and how often.

        Of a user's operator nothing else is known.  The others combine their numbers to one, which is left
        out where it is neutral and everything where it decides alone; an operand counts once, under ``^`` if
        there is an odd number of it.
        """
        key = ("fold", op, _key(t))
        found: Counter[Term] = Counter()
        for x in operands:
            n = self.nodes[x]
            found.update(dict(n[3]) if n[:3] == key else {x: 1})  # type: ignore[call-overload]
        if op in _FOLDED:
            found, constant = self._without_numbers(op, found)
            if constant is not None and (not found or constant == _deciding(op, t)):
                return self.number(constant, t)
            if constant is not None and constant != _neutral(op, t):
                found[self.number(constant, t)] = 1
            if not found:
                return self.number(0, t) if op == "^" else operands[0]
        if found.total() == 1:
            return next(iter(found))
        return self.node(*key, tuple(sorted(found.items())))

    def _without_numbers(self, op: str, found: Counter[Term]) -> tuple[Counter[Term], Number | None]:
        """The operands that are no numbers, each once, and what the numbers combine to."""
        numbers: list[Number] = []
        rest: Counter[Term] = Counter()
        for x, count in found.items():
            v = self.value(x)
            if v is not None:
                numbers += [v] * (count if op == "^" else 1)
            elif (op != "^" or count % 2) and self.nodes[x][1] != "nan":  # fmin and fmax pass over NaN
                rest[x] = 1
        return rest, reduce(_FOLDED[op], numbers) if numbers else None

    def _sum(self, parts: Iterable[tuple[Term, Number]], t: ScalarType) -> Term:
        key = ("sum", _key(t))
        constant: Number = 0
        terms: dict[Term, Number] = {}
        for x, factor in parts:
            n, v = self.nodes[x], self._exact(x)
            inner: Iterable[tuple[Term, Number]] = ((x, 1),)
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
            terms = {x: w for x, c in terms.items() if (w := wrapped(int(c), t))}
        if not terms:
            return self.number(constant, t)
        if constant == 0 and list(terms.values()) == [1]:
            return next(iter(terms))
        return self.node(*key, constant, tuple(sorted(terms.items())))

    def _product(self, operands: Iterable[Term], t: ScalarType) -> Term:
        """Factors as a multiset; where sums are in normal form, too, a sum of such products.

        A number is the coefficient of a product then, and otherwise one of its factors.
        """
        sums = self.reorders("+", t)
        whole: dict[Factors, Number] = {(): 1}
        for z in operands:
            more = self._products(z, t)
            if len(whole) * len(more) > PRODUCTS:
                raise OverflowError("a product of too many sums")
            parts: dict[Factors, Number] = {}
            for (x, c), (y, d) in itertools.product(whole.items(), more):
                both = tuple(sorted((Counter(dict(x)) + Counter(dict(y))).items()))
                parts[both] = parts.get(both, 0) + c * d
            whole = parts
        if any(isinstance(c, Fraction) and c.denominator.bit_length() > DIGITS for c in whole.values()):
            raise OverflowError("a constant of too many digits")
        if sums:
            return self._sum(((self._factors(x, t), c) for x, c in whole.items()), t)
        ((factors, coefficient),) = whole.items()
        number = () if coefficient == 1 else ((self.number(coefficient, t), 1),)
        return self._factors(tuple(sorted((*factors, *number))), t)

    def _products(self, x: Term, t: ScalarType) -> list[tuple[Factors, Number]]:
        """A value as the products that it is the sum of, each with a number that it is multiplied by."""
        n, v = self.nodes[x], self._exact(x)
        if v is not None and (v or t.is_integer):
            return [((), v)]  # a floating-point 0 may meet what is no number: it stays
        if n[:2] == ("sum", _key(t)) and self.reorders("+", t):
            constant: Number = n[2]  # type: ignore[assignment]
            parts: tuple[tuple[Term, Number], ...] = n[3]  # type: ignore[assignment]
            products = [(f, c * k) for y, k in parts for f, c in self._products(y, t)]
            return [*products, *([((), constant)] if constant else [])]
        if n[:2] == ("product", _key(t)):
            factors: Factors = n[2]  # type: ignore[assignment]
            number = next((f for f in factors if self._exact(f[0])), None)
            if number is not None:
                return [(tuple(f for f in factors if f != number), self._exact(number[0]) or 1)]
            return [(factors, 1)]
        return [(((x, 1),), 1)]

    def _factors(self, factors: Factors, t: ScalarType) -> Term:
        """The product of terms that are none themselves."""
        if not factors:
            return self.number(1, t)
        if len(factors) == 1 and factors[0][1] == 1:
            return factors[0][0]
        return self.node("product", _key(t), factors)

    def _exact(self, x: Term) -> int | Fraction | None:
        """The value of a finite number."""
        v = self.value(x)
        if isinstance(v, float):
            return Fraction(v) if math.isfinite(v) else None
        return v

    # ------------------------------------------------------------------ text

    def text(self, term: Term, depth: int = 4) -> str:
        n = self.nodes[term]
        if n[0] == "number":
            return str(float(n[1]) if isinstance(n[1], Fraction) else n[1])
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
                constant = float(n[2]) if isinstance(n[2], Fraction) else n[2]
                return "(" + " + ".join([*parts, *([str(constant)] if constant else [])]) + ")"
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


def _neutral(op: str, t: Type) -> Number:
    match op:
        case "fmin" | "fminf":
            return math.inf
        case "fmax" | "fmaxf":
            return -math.inf
        case "&":
            return _ones(t)
        case _:
            return 0


def _deciding(op: str, t: Type) -> Number | None:
    """The number that is the result whatever it is combined with."""
    match op:
        case "fmin" | "fminf":
            return -math.inf
        case "fmax" | "fmaxf":
            return math.inf
        case "&":
            return 0
        case "|":
            return _ones(t)
        case _:
            return None


def _ones(t: Type) -> int:
    assert isinstance(t, ScalarType)
    return -1 if t.kind == "int" else (1 << t.bits) - 1


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
