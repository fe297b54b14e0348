"""Flat indices taken apart.

before   A[(i*J + j)*K + k + 1]     on  float *A
after    A[i][j][k + 1]             on  float A[][J][K],  where 0 <= j < J and 0 <= k + 1 < K

An index is read as a polynomial over iterators and parameters.  The coefficients of the iterators
are the strides of the accesses; a shape is a chain of strides, each dividing the next one, and it is
accepted when every inner index provably stays inside its extent.  Where that depends on the sizes
(``k < L`` with stride ``K``), the shape holds under an assumption (``L <= K``) that the emitted code
tests.  One shape serves all accesses of a buffer.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise, product
from math import gcd

from lifter.polyhedral import Constraint, at_least, equal, rename, satisfiable
from mdh_core.expr import Affine, Binary, Cast, Const, Expr, ScalarType, Unary, Var, as_affine, keeps
from mdh_core.polytope import implied, project, rows_of, without_implied

# --------------------------------------------------------------------------- polynomials

Monomial = tuple[str, ...]  # names, sorted, repeated for powers


@dataclass(frozen=True, slots=True)
class Poly:
    """A polynomial with integer coefficients; terms sorted, none zero."""

    terms: tuple[tuple[Monomial, int], ...] = ()

    @staticmethod
    def of(terms: dict[Monomial, int]) -> Poly:
        return Poly(tuple(sorted((m, c) for m, c in terms.items() if c)))

    @staticmethod
    def number(value: int) -> Poly:
        return Poly.of({(): value})

    @staticmethod
    def from_affine(a: Affine) -> Poly:
        terms = tuple([((n,), c) for n, c in a.terms])
        return Poly((((), a.const), *terms) if a.const else terms)  # sorted already

    def __add__(self, other: Poly) -> Poly:
        total = dict(self.terms)
        for m, c in other.terms:
            total[m] = total.get(m, 0) + c
        return Poly.of(total)

    def __mul__(self, other: Poly) -> Poly:
        total: dict[Monomial, int] = {}
        for m, c in self.terms:
            for n, d in other.terms:
                key = tuple(sorted(m + n))
                total[key] = total.get(key, 0) + c * d
        return Poly.of(total)

    def __neg__(self) -> Poly:
        return self * Poly.number(-1)

    def __sub__(self, other: Poly) -> Poly:
        return self + -other

    @property
    def names(self) -> frozenset[str]:
        return frozenset(n for m, _ in self.terms for n in m)

    @property
    def degree(self) -> int:
        return max((len(m) for m, _ in self.terms), default=0)

    @property
    def content(self) -> int:
        return gcd(*(c for _, c in self.terms))

    @property
    def affine(self) -> Affine | None:
        if self.degree > 1:
            return None
        constants = [c for m, c in self.terms if not m]
        return Affine.from_dict({m[0]: c for m, c in self.terms if m}, sum(constants))

    def leading(self) -> tuple[Monomial, int]:
        return max(self.terms, key=lambda t: (len(t[0]), t[0]))

    def divide(self, other: Poly) -> tuple[Poly, Poly]:
        """Quotient and remainder by leading terms (graded order)."""
        quotient, remainder, rest = Poly(), Poly(), self
        lead, factor = other.leading()
        while rest.terms:
            m, c = rest.leading()
            missing = _without(m, lead)
            if missing is None or c % factor:
                term = Poly.of({m: c})
                remainder, rest = remainder + term, rest - term
            else:
                term = Poly.of({missing: c // factor})
                quotient, rest = quotient + term, rest - term * other
        return quotient, remainder


def _without(m: Monomial, part: Monomial) -> Monomial | None:
    left = list(m)
    for name in part:
        if name not in left:
            return None
        left.remove(name)
    return tuple(left)


def as_polynomial(e: Expr) -> Poly | None:
    """The polynomial value of an integer expression, or None; integer casts are looked through."""
    affine = as_affine(e)
    return _as_polynomial(e) if affine is None else Poly.from_affine(affine)


def _as_polynomial(e: Expr) -> Poly | None:
    match e:
        case Const(value=int(value)):
            return Poly.number(value)
        case Var(name=name, type=ScalarType() as t) if t.is_integer:
            return Poly.of({(name,): 1})
        case Cast(a=a, type=t) if t.is_integer:
            return _as_polynomial(a) if keeps(a, t) else None
        case Unary(op="-", a=a):
            x = _as_polynomial(a)
            return None if x is None else -x
        case Binary(op="+" | "-" | "*" as op, a=a, b=b):
            x, y = _as_polynomial(a), _as_polynomial(b)
            if x is None or y is None:
                return None
            return x + y if op == "+" else x - y if op == "-" else x * y
        case Binary(op="<<", a=a, b=Const(value=int(shift))) if 0 <= shift < 31:
            x = _as_polynomial(a)
            return None if x is None else x * Poly.number(1 << shift)
        case _:
            return None


# --------------------------------------------------------------------------- shapes


@dataclass(frozen=True, slots=True)
class FlatAccess:
    """One flat access: its index, its iterators, and what is known where it is executed."""

    index: Poly
    iterators: frozenset[str]
    facts: tuple[Constraint, ...]
    written: bool = False


@dataclass(frozen=True, slots=True)
class Shape:
    """Inner extents of a flat buffer, outermost first, the accesses' indices, what must hold."""

    extents: tuple[Affine, ...]
    indices: tuple[tuple[Affine, ...], ...]
    assumptions: tuple[Affine, ...]  # each >= 0


def find_shape(accesses: tuple[FlatAccess, ...]) -> Shape | None:
    """The shape shared by all accesses, or None.

    Rank 1 where all indices are affine and constant strides give no shape that holds without assumptions,
    unless a written cell is then not met once only.
    """
    affine = [a.index.affine for a in accesses]
    flat = None
    if all(a is not None for a in affine):
        flat = Shape((), tuple((a,) for a in affine if a is not None), ())
        whole = _constant_shape(accesses)
        if whole is not None:
            return whole
        if not any(a.written and _meets_twice(a) for a in accesses):
            return flat
    best: Shape | None = None
    for strides in _candidates(accesses, constants=flat is not None):
        shape = _try(accesses, strides)
        if shape is None:
            continue
        if not shape.assumptions:
            best = shape
            break
        if best is None or len(shape.assumptions) < len(best.assumptions):
            best = shape
    return best or flat


def _constant_shape(accesses: tuple[FlatAccess, ...]) -> Shape | None:
    """The shape of several constant strides, each a multiple of the next, if it is sure to hold."""
    found = _strides(accesses)
    if len(found) < 2 or any(c.degree for c in found):
        return None
    strides = _chain([c for c in found if c != Poly.number(1)])
    shape = _try(accesses, strides, shifted=False) if strides else None
    return None if shape is None or shape.assumptions else shape


def fit_shape(accesses: tuple[FlatAccess, ...], extents: tuple[Affine, ...]) -> Shape | None:
    """The accesses under a shape that is known, or None where they do not fit it."""
    if not extents:
        affine = [a.index.affine for a in accesses]
        return None if None in affine else Shape((), tuple((a,) for a in affine if a is not None), ())
    strides: list[Poly] = []
    step = Poly.number(1)
    for e in reversed(extents):
        step = step * Poly.from_affine(e)
        strides.append(step)
    return _try(accesses, tuple(reversed(strides)))


def _meets_twice(a: FlatAccess) -> bool:
    """May an affine index have one value at two points?"""
    index = a.index.affine
    assert index is not None
    mine = sorted(index.names & a.iterators)
    primed = {n: f"{n}'" for n in a.iterators}
    base = [*a.facts, *(c.renamed(primed) for c in a.facts), equal(index, rename(index, primed))]
    for level, name in enumerate(mine):
        same = [equal(Affine.of(n), Affine.of(f"{n}'")) for n in mine[:level]]
        if satisfiable([*base, *same, at_least(Affine.of(name) - Affine.of(f"{name}'"), 1)]):
            return True
    return False


def _candidates(accesses: tuple[FlatAccess, ...], constants: bool) -> list[tuple[Poly, ...]]:
    """Chains of strides to try, greatest first in each; ``constants``: only integer strides occur."""
    found = _strides(accesses)
    if constants:
        return [(c,) for c in sorted(found, key=lambda c: -c.terms[0][1]) if c != Poly.number(1)]
    symbolic = {c for c in found if c.degree > 0}
    offsets = [_split(a)[1] for a in accesses]
    primitive: dict[Poly, int] = {}
    for c in symbolic:
        base = Poly.of({m: k // c.content for m, k in c.terms})
        primitive[base] = gcd(primitive.get(base, 0), c.content)
    for base in primitive:
        for offset in offsets:
            quotient, _ = offset.divide(base)
            primitive[base] = gcd(primitive[base], *(k for m, k in quotient.terms if not m))
    exact = [base * Poly.number(k) for base, k in primitive.items()]
    chains = [_chain(exact), _chain(list(primitive)), _chain(list(symbolic))]
    # strides that do not divide one another: leave out the ones in between
    chains += [(c,) for c in sorted(exact, key=lambda c: c.degree)]
    whole = [c for c in found if c.degree == 0 and c.terms[0][1] > 1]
    chains += [_chain([*exact, k]) for k in sorted(whole, key=lambda c: c.terms[0][1])]
    unique: list[tuple[Poly, ...]] = []
    for chain in chains:
        if chain and chain not in unique:
            unique.append(chain)
    return unique


def _strides(accesses: tuple[FlatAccess, ...]) -> set[Poly]:
    """Coefficients of all iterators, without signs."""
    return {c if c.leading()[1] > 0 else -c for a in accesses for c in _coefficients(a).values()}


def _chain(strides: list[Poly]) -> tuple[Poly, ...]:
    """The strides, greatest first, or () where one does not divide the next."""
    ordered = sorted(set(strides), key=lambda c: (-c.degree, -abs(c.leading()[1])))
    for big, small in pairwise(ordered):
        if big.divide(small)[1].terms:
            return ()
    return tuple(ordered)


def _split(a: FlatAccess) -> tuple[dict[str, Poly], Poly]:
    """Coefficients of the iterators, and the rest; products of iterators are left in the rest."""
    coefficients: dict[str, dict[Monomial, int]] = {}
    rest: dict[Monomial, int] = {}
    for m, c in a.index.terms:
        mine = [n for n in m if n in a.iterators]
        if len(mine) == 1:
            coefficients.setdefault(mine[0], {})[_without(m, (mine[0],)) or ()] = c
        else:
            rest[m] = c
    return {n: Poly.of(t) for n, t in coefficients.items()}, Poly.of(rest)


def _coefficients(a: FlatAccess) -> dict[str, Poly]:
    return _split(a)[0]


def _try(
    accesses: tuple[FlatAccess, ...], strides: tuple[Poly, ...], shifted: bool = True
) -> Shape | None:
    """``shifted``: inner indices may also begin a stride earlier or later."""
    extents: list[Affine] = []
    for k, stride in enumerate(strides):
        quotient = stride.divide(strides[k + 1])[0] if k + 1 < len(strides) else stride
        extent = quotient.affine
        if extent is None:
            return None
        extents.append(extent)
    indices: list[tuple[Affine, ...]] = []
    assumptions: list[Affine] = []
    for a in accesses:
        best: tuple[tuple[Affine, ...], list[Affine]] | None = None
        shifts_of = (0, -1, 1) if shifted else (0,)
        for shifts in sorted(product(shifts_of, repeat=len(strides)), key=lambda s: sum(map(abs, s))):
            index = _take_apart(a, strides, shifts)
            if index is None:
                return None
            needed = _needed(index, extents, a)
            if needed is not None and (best is None or len(needed) < len(best[1])):
                best = index, needed
            if best is not None and not best[1]:
                break
        if best is None:
            return None
        indices.append(best[0])
        assumptions += best[1]
    return Shape(tuple(extents), tuple(indices), tuple(without_implied(assumptions)))


def _needed(index: tuple[Affine, ...], extents: list[Affine], a: FlatAccess) -> list[Affine] | None:
    """What must be >= 0 for every inner index to be inside its extent; None where that is impossible."""
    out: list[Affine] = []
    for value, extent in zip(index[1:], extents, strict=True):
        for margin in (value, extent - value - 1):
            needed = why_not_inside(margin, a)
            if needed is None:
                continue
            if not satisfiable([*a.facts, Constraint(needed)]):
                return None
            out.append(needed)
    return out


def _take_apart(
    a: FlatAccess, strides: tuple[Poly, ...], shifts: tuple[int, ...]
) -> tuple[Affine, ...] | None:
    """The index per stride; ``shifts``: added to the quotients, the remainders making up for it."""
    coefficients, rest = _split(a)
    index: list[Affine] = []
    for stride, shift in zip(strides, shifts, strict=True):
        part = Poly()
        for name, c in coefficients.items():
            quotient, remainder = c.divide(stride)
            if quotient.degree > 0:
                return None
            part, coefficients[name] = part + quotient * Poly.of({(name,): 1}), remainder
        quotient, rest = rest.divide(stride)
        quotient, rest = quotient + Poly.number(shift), rest - stride * Poly.number(shift)
        value = (part + quotient).affine
        if value is None:
            return None
        index.append(value)
    for name, c in coefficients.items():
        rest = rest + c * Poly.of({(name,): 1})
    last = rest.affine
    return None if last is None else (*index, last)


def why_not_inside(margin: Affine, a: FlatAccess) -> Affine | None:
    """None where ``margin >= 0`` holds at every point; otherwise what the sizes must fulfil, >= 0.

    That is the least value over the points; of several bounds for it the greatest, if one is sure to be, or
    one without iterators of loops around the nest.
    """
    if not satisfiable([*a.facts, Constraint(-margin - 1)]):
        return None
    least = Affine.of("?")
    rows = [*rows_of(a.facts), least - margin, margin - least]
    left, _ = project(rows, a.iterators)
    bounds = [least - r for r in left if r.coefficient("?") == 1]
    known = [r for r in left if not r.coefficient("?")]
    greatest = (b for b in bounds if all(implied(b - other, known) for other in bounds))
    above, below = ({n for r in known for n, c in r.terms if c * sign > 0} for sign in (-1, 1))
    simplest = min(
        bounds, key=lambda b: (len(b.names & above & below), len(b.terms), str(b)), default=Affine.number(-1)
    )
    return next(greatest, simplest)
