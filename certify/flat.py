"""Flat positions taken apart: ``a[i * m + j]`` is the cell ``(i, j)`` of ``a`` with the extents ``[n][m]``.

    polynomial ::= {monomial: coefficient}      monomial: the names in it, sorted, each as often as it occurs

The extents are what the program claims; nothing is taken from how they were found.  ``split`` divides the
position by the strides that they make, the largest first, and multiplies back: an answer is an identity.
Whether each index but the first stays below its extent, so that different indices are different cells, is
for the caller to ask (``certify.dependences``), who knows which values the names take.

>>> from mdh_core.expr import INT32, Binary, Var
>>> i, j, m = (Var(n, INT32) for n in "ijm")
>>> flat = polynomial(Binary("+", Binary("*", i, m, INT32), j, INT32), {})
>>> [str(a) for a in split(flat, (None, Affine.of("m")))]
['i', 'j']
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mdh_core.expr import Affine, Binary, Cast, Const, Expr, ScalarType, Unary, Var, keeps

Monomial = tuple[str, ...]
Polynomial = dict[Monomial, int]


def polynomial(e: Expr, values: Mapping[str, Affine]) -> Polynomial | None:
    """The value of an integer expression, names that stand for others replaced; None: no polynomial."""
    match e:
        case Const(value=int(value)):
            return _plain({(): value})
        case Var(name=name, type=ScalarType() as t) if t.is_integer:
            return of_affine(values.get(name, Affine.of(name)))
        case Cast(a=a, type=t) if t.is_integer:
            return polynomial(a, values) if keeps(a, t) else None
        case Unary(op="-", a=a):
            x = polynomial(a, values)
            return None if x is None else times(x, {(): -1})
        case Binary(op="+" | "-" | "*" as op, a=a, b=b):
            x, y = polynomial(a, values), polynomial(b, values)
            if x is None or y is None:
                return None
            return times(x, y) if op == "*" else plus(x, y if op == "+" else times(y, {(): -1}))
        case _:
            return None


def of_affine(a: Affine) -> Polynomial:
    return _plain({(): a.const, **{(n,): c for n, c in a.terms}})


def plus(x: Polynomial, y: Polynomial) -> Polynomial:
    return _plain({m: x.get(m, 0) + y.get(m, 0) for m in (*x, *y)})


def times(x: Polynomial, y: Polynomial) -> Polynomial:
    out: Polynomial = {}
    for m, c in x.items():
        for n, d in y.items():
            product = tuple(sorted((*m, *n)))
            out[product] = out.get(product, 0) + c * d
    return _plain(out)


def _plain(x: Polynomial) -> Polynomial:
    return {m: c for m, c in x.items() if c}


def split(position: Polynomial, extents: Sequence[Affine | None]) -> tuple[Affine, ...] | None:
    """One affine index per extent whose row-major position is the polynomial, or None."""
    if not extents or any(e is None for e in extents[1:]):
        return None
    strides: list[Polynomial] = [{(): 1}]
    for e in reversed(extents[1:]):
        assert e is not None
        strides.insert(0, times(strides[0], of_affine(e)))
    out: list[Affine] = []
    left = dict(position)
    for stride in strides:
        if not stride:
            return None
        index = _quotient(left, stride)
        out.append(index)
        left = plus(left, times(times(of_affine(index), stride), {(): -1}))
    return tuple(out) if not left else None


def _quotient(x: Polynomial, divisor: Polynomial) -> Affine:
    """The affine ``q`` whose product with the leading monomial of the divisor is in ``x``."""
    leading = max(divisor, key=lambda m: (len(m), m))
    by = divisor[leading]
    terms: dict[str, int] = {}
    const = 0
    for m, c in x.items():
        rest = _without(m, leading)
        count = abs(c) // abs(by) * (1 if (c > 0) == (by > 0) else -1)  # a remainder is the next index's
        if rest is None or len(rest) > 1 or not count:
            continue
        if rest:
            terms[rest[0]] = count
        else:
            const = count
    return Affine.from_dict(terms, const)


def _without(m: Monomial, part: Monomial) -> Monomial | None:
    left = list(m)
    for n in part:
        if n not in left:
            return None
        left.remove(n)
    return tuple(left)
