"""The same nest, steps and stages with smaller constants, where the real ones are too large to be run.

before   for (i = 0; i < 1024; i++) A[i] = B[1023 - i];
after    for (i = 0; i < 4; i++) A[i] = B[3 - i];

Neighbouring constants keep their distance.  All integer constants change alike, those of expressions, too, so
that what was equal before may differ afterwards (a product that was folded): only agreement says something.
At last every size is 2, and what may be a product of sizes the product of as many twos.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from mdh_core.expr import Affine, Const, ScalarType

LARGEST = 1 << 24  # what is beyond is no size
CHOICES = ((8, 3, True), (8, 3, False), (8, 2, False), (4, 2, False))  # constants from, the least, apart
T = TypeVar("T")


def smaller(*values: object) -> Iterator[dict[int, int]]:
    """Which constants to replace by which, different sizes remaining different if possible."""
    every = sorted({n for v in values for n in _integers(v) if n <= LARGEST})
    for large, first, apart in CHOICES:
        groups: list[list[int]] = []
        for n in (n for n in every if n >= large):
            if groups and n - groups[-1][0] <= 3:
                groups[-1].append(n)
            else:
                groups.append([n])
        at = first
        out: dict[int, int] = {}
        for g in groups:
            out |= {n: at + n - g[0] for n in g}
            at = max(out.values()) + 1 if apart else at
        if out:
            yield out
    if every[-1:] > [3]:
        yield {n: 2 ** _factors(n, every) for n in every if n >= 3}


def _factors(n: int, known: Sequence[int]) -> int:
    """Of how many sizes is it the product?  ``a[i * 2520 + j * 360 + …]`` has its strides folded."""
    best = 1
    for m in known:
        if 3 <= m < n and n % m == 0 and n // m in known:
            best = max(best, _factors(m, known) + _factors(n // m, known))
    return best


def _integers(x: object) -> Iterator[int]:
    match x:
        case Affine(terms=terms, const=const):
            yield abs(const)
            yield from (abs(c) for _, c in terms)
        case Const(value=int(value), type=ScalarType() as t) if t.is_integer:
            yield abs(value)
        case tuple():
            for y in x:
                yield from _integers(y)
        case _ if is_dataclass(x):
            for f in fields(x):
                yield from _integers(getattr(x, f.name))


def with_constants(x: T, new: Mapping[int, int]) -> T:
    """The value with its integer constants replaced."""
    return _replaced(x, new)


def _replaced(x: Any, new: Mapping[int, int]) -> Any:
    def number(n: int) -> int:
        return new.get(n, n) if n >= 0 else -new.get(-n, -n)

    match x:
        case Affine(terms=terms, const=const):
            return Affine.from_dict({n: number(c) for n, c in terms}, number(const))
        case Const(value=int(value), type=t) if t.is_integer:
            return replace(x, value=number(value))
        case tuple():
            return tuple(_replaced(y, new) for y in x)
        case _ if is_dataclass(x) and not isinstance(x, type):
            changed = {f.name: _replaced(getattr(x, f.name), new) for f in fields(x) if f.init}
            different = {n: v for n, v in changed.items() if v is not getattr(x, n)}
            return replace(x, **different) if different else x
        case _:
            return x
