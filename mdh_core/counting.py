"""How many integer points a system of affine rows has: as polynomials of its parameters, exactly.

    piece ::= (rows over the parameters, polynomial)      # the count wherever all rows are >= 0

Names are summed out one after the other.  Between a lower and an upper bound with coefficient one the sum
of a polynomial is a polynomial again (Faulhaber); where several bounds compete, each pair that can be the
tightest is a piece of its own, and no two pieces share a point.  A name that only has larger coefficients is
enumerated if it has few values.  The result is that of counting one by one (tests/test_counts.py).

>>> i, j, n = (Affine.of(x) for x in "ijn")
>>> [piece] = count([i, n - i - 1, j, i - j], ["i", "j"])
>>> print(piece.polynomial), piece.polynomial.evaluate({"n": 100})
(n^2 + n)/2
(None, 5050)
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from mdh_core.expr import Affine
from mdh_core.polytope import certainly_empty, project

MOST_PIECES = 256
MOST_VALUES = 2048  # of one name that is enumerated
Monomial = tuple[tuple[str, int], ...]  # names with their powers, sorted


class NotCountedError(ArithmeticError):
    """The points are unbounded, or the count has no form that this module finds; the message says which."""


@dataclass(frozen=True, slots=True)
class Polynomial:
    """A sum of monomials with rational coefficients, sorted by monomial; none is zero."""

    terms: tuple[tuple[Monomial, Fraction], ...] = ()

    @staticmethod
    def from_dict(terms: Mapping[Monomial, Fraction]) -> Polynomial:
        return Polynomial(tuple(sorted((m, c) for m, c in terms.items() if c)))

    @staticmethod
    def number(value: int | Fraction) -> Polynomial:
        return Polynomial.from_dict({(): Fraction(value)})

    @staticmethod
    def affine(a: Affine) -> Polynomial:
        return Polynomial.from_dict({((n, 1),): Fraction(c) for n, c in a.terms} | {(): Fraction(a.const)})

    def __add__(self, other: Polynomial) -> Polynomial:
        total = dict(self.terms)
        for m, c in other.terms:
            total[m] = total.get(m, Fraction(0)) + c
        return Polynomial.from_dict(total)

    def __sub__(self, other: Polynomial) -> Polynomial:
        return self + other * Polynomial.number(-1)

    def __mul__(self, other: Polynomial) -> Polynomial:
        total: dict[Monomial, Fraction] = {}
        for m, c in self.terms:
            for n, d in other.terms:
                powers = dict(m)
                for name, p in n:
                    powers[name] = powers.get(name, 0) + p
                key = tuple(sorted(powers.items()))
                total[key] = total.get(key, Fraction(0)) + c * d
        return Polynomial.from_dict(total)

    def power(self, k: int) -> Polynomial:
        return functools.reduce(Polynomial.__mul__, [self] * k, Polynomial.number(1))

    def in_powers_of(self, name: str) -> dict[int, Polynomial]:
        """The coefficients, themselves polynomials, of the powers of one name."""
        found: dict[int, dict[Monomial, Fraction]] = {}
        for m, c in self.terms:
            k = dict(m).get(name, 0)
            found.setdefault(k, {})[tuple((n, p) for n, p in m if n != name)] = c
        return {k: Polynomial.from_dict(terms) for k, terms in found.items()}

    def evaluate(self, values: Mapping[str, int]) -> int:
        """The value, which is an integer where the polynomial counts something."""
        total = sum((c * math.prod(values[n] ** p for n, p in m) for m, c in self.terms), Fraction(0))
        assert total.denominator == 1, total
        return int(total)

    @property
    def names(self) -> frozenset[str]:
        return frozenset(n for m, _ in self.terms for n, _ in m)

    def __str__(self) -> str:
        """Highest degree first, over one denominator: ``(n^2 + n)/2``."""
        below = math.lcm(*(c.denominator for _, c in self.terms))
        ordered = sorted(self.terms, key=lambda t: (-sum(p for _, p in t[0]), t[0]))
        out = ""
        for m, c in ordered:
            factor = int(abs(c) * below)
            names = [n if p == 1 else f"{n}^{p}" for n, p in m]
            term = "*".join([*([str(factor)] if factor != 1 or not m else []), *names])
            sign = "-" if c < 0 else "+"
            out += (f" {sign} " if out else "-" if c < 0 else "") + term
        if below == 1:
            return out or "0"
        return f"({out})/{below}" if len(self.terms) > 1 else f"{out}/{below}"


@dataclass(frozen=True, slots=True)
class Piece:
    """``polynomial`` is the count for parameters at which every row is >= 0."""

    rows: tuple[Affine, ...]
    polynomial: Polynomial


def count(rows: Iterable[Affine], names: Iterable[str], context: Sequence[Affine] = ()) -> tuple[Piece, ...]:
    """The number of points in the given names; every other name is a parameter.

    ``context``: rows that hold for the parameters anyway.  Raises ``NotCountedError``.
    """
    left = _reduced(rows)
    if left is None or certainly_empty([*left, *context]):
        return ()
    return tuple(_summed(left, Polynomial.number(1), sorted(set(names)), context))


def total(pieces: Iterable[Piece], values: Mapping[str, int]) -> int:
    """The count at given values of the parameters."""
    known = dict(values)
    chosen = (p for p in pieces if all(r.evaluate(known) >= 0 for r in p.rows))
    return sum(p.polynomial.evaluate(known) for p in chosen)


def number(rows: Iterable[Affine], names: Iterable[str]) -> int:
    """The number of points of a system without parameters.  Raises ``NotCountedError``."""
    return total(count(rows, names), {})


def _reduced(rows: Iterable[Affine]) -> list[Affine] | None:
    """Divided by common divisors and without doubles; None where a row never holds."""
    left, _ = project(rows, ())
    return None if any(r.is_constant and r.const < 0 for r in left) else left


def _summed(
    rows: list[Affine], polynomial: Polynomial, names: list[str], context: Sequence[Affine]
) -> list[Piece]:
    if not names:
        return [Piece(tuple(rows), polynomial)]
    simple = [n for n in names if all(abs(r.coefficient(n)) <= 1 for r in rows)]
    if not simple:
        return _enumerated(rows, polynomial, names, context)
    name = min(simple, key=lambda n: (_pairs(rows, n), n))
    rows = _needed(rows, name, context)
    rest = [r for r in rows if not r.coefficient(name)]
    lower = [Affine.of(name) - r for r in rows if r.coefficient(name) > 0]
    upper = [r + Affine.of(name) for r in rows if r.coefficient(name) < 0]
    if not lower or not upper:
        raise NotCountedError(f"`{name}` has no bound")
    out: list[Piece] = []
    for a, low in enumerate(lower):
        first = [low - x - (1 if k < a else 0) for k, x in enumerate(lower) if k != a]
        for b, high in enumerate(upper):
            last = [x - high - (1 if k < b else 0) for k, x in enumerate(upper) if k != b]
            inside = _reduced([*rest, *first, *last, high - low])
            if inside is None or certainly_empty([*inside, *context]):
                continue
            sum_ = _sum(polynomial, name, low, high)
            out += _summed(inside, sum_, [n for n in names if n != name], context)
            if len(out) > MOST_PIECES:
                raise NotCountedError("too many pieces")
    return out


def _needed(rows: list[Affine], name: str, context: Sequence[Affine]) -> list[Affine]:
    """Without bounds of the name that follow from the other rows: what is left of pieces is fewer."""
    if _pairs(rows, name) == 1:
        return rows
    kept = list(rows)
    for r in rows:
        if r.coefficient(name):
            others = [x for x in kept if x is not r]
            if certainly_empty([*others, *context, -r - 1]):
                kept = others
    return kept


def _pairs(rows: Sequence[Affine], name: str) -> int:
    return sum(r.coefficient(name) > 0 for r in rows) * sum(r.coefficient(name) < 0 for r in rows)


def _enumerated(
    rows: list[Affine], polynomial: Polynomial, names: list[str], context: Sequence[Affine]
) -> list[Piece]:
    """One name takes all its values in turn: that with the fewest."""
    ranges = {n: _range(rows, n) for n in names}
    name, (low, high) = min(ranges.items(), key=lambda item: item[1][1] - item[1][0])
    if high - low >= MOST_VALUES:
        raise NotCountedError(f"`{name}` has coefficients other than one and too many values")
    out: list[Piece] = []
    for v in range(low, high + 1):
        inside = _reduced(r.substitute({name: Affine.number(v)}) for r in rows)
        if inside is not None and not certainly_empty([*inside, *context]):
            fixed = _replaced(polynomial, name, Polynomial.number(v))
            out += _summed(inside, fixed, [n for n in names if n != name], context)
        if len(out) > MOST_VALUES:
            raise NotCountedError("too many pieces")
    return out


def _range(rows: Sequence[Affine], name: str) -> tuple[int, int]:
    alone, _ = project(rows, {n for r in rows for n in r.names} - {name})
    low = [-(r.const // r.coefficient(name)) for r in alone if r.coefficient(name) > 0]
    high = [r.const // -r.coefficient(name) for r in alone if r.coefficient(name) < 0]
    if not low or not high:
        raise NotCountedError(f"`{name}` has coefficients other than one and no numbers for bounds")
    return max(low), min(high)


# --------------------------------------------------------------------------- sums of polynomials


def _replaced(p: Polynomial, name: str, by: Polynomial) -> Polynomial:
    out = Polynomial()
    for k, coefficient in p.in_powers_of(name).items():
        out = out + coefficient * by.power(k)
    return out


def _sum(p: Polynomial, name: str, low: Affine, high: Affine) -> Polynomial:
    """The sum over ``name`` = low … high, where high >= low - 1."""
    first, last = Polynomial.affine(low - 1), Polynomial.affine(high)
    out = Polynomial()
    for k, coefficient in p.in_powers_of(name).items():
        powers = _power_sum(k)
        out = out + coefficient * (_replaced(powers, "x", last) - _replaced(powers, "x", first))
    return out


@functools.cache
def _power_sum(k: int) -> Polynomial:
    """``0^k + 1^k + ... + x^k`` as a polynomial of x, with ``0^0`` = 1: telescopes to ``(x + 1)^(k+1)``."""
    out = Polynomial.affine(Affine.of("x") + 1).power(k + 1)
    for j in range(k):
        out = out - Polynomial.number(math.comb(k + 1, j)) * _power_sum(j)
    return out * Polynomial.number(Fraction(1, k + 1))
