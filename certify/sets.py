"""Integer points of affine constraints; the only module of the package that imports ``islpy``.

    system ::= Constraint*                 # all hold; every name in them is an unknown integer

``find`` answers with a point, so that whatever is refuted has a witness.  An answer that costs more than
``MAX_OPERATIONS`` is none: ``GaveUp`` is raised, and what was asked stays unknown.

>>> n, i = Affine.of("n"), Affine.of("i")
>>> find([at_least(i), at_least(n - i - 1), at_least(-n)]) is None
True
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import TypeVar

import islpy as isl

from mdh_core.expr import Affine, Constraint

MAX_OPERATIONS = 400_000
System = Sequence[Constraint]
Point = dict[str, int]
T = TypeVar("T")


class GaveUp(Exception):  # noqa: N818 - an answer
    """The question is too hard."""


def at_least(a: Affine, bound: int = 0) -> Constraint:
    """``a >= bound``."""
    return Constraint(a - bound)


def below(a: Affine, b: Affine) -> Constraint:
    """``a < b``."""
    return Constraint(b - a - 1)


def equal(a: Affine, b: Affine) -> Constraint:
    return Constraint(a - b, equality=True)


def find(rows: Iterable[Constraint]) -> Point | None:
    """A point of the system, or None where it has none."""
    return _find(frozenset(rows))


@lru_cache(maxsize=20_000)
def _find(rows: frozenset[Constraint]) -> Point | None:
    if any(not c.names and not c.holds({}) for c in rows):
        return None
    names = _names(rows)
    return _sample(lambda: isl.Set(_text(rows, names, names)), names)


def missing(every: System, some: Sequence[System], keep: Iterable[str]) -> Point | None:
    """Values of ``keep`` at a point of ``every`` that no point of the other systems has."""
    kept = tuple(sorted(keep))

    def ask() -> isl.Set:
        left = isl.Set(_text(every, _names(every, kept), kept))
        for rows in some:
            if left.is_empty():
                break
            left = left.subtract(isl.Set(_text(rows, _names(rows, kept), kept)))
        return left

    return _sample(ask, kept)


def _sample(ask: Callable[[], isl.Set], names: Sequence[str]) -> Point | None:
    def answer() -> Point | None:
        points = ask()
        if points.is_empty():
            return None
        point = points.sample_point()
        values = (point.get_coordinate_val(isl.dim_type.set, k) for k in range(len(names)))
        return {n: int(v.to_python()) for n, v in zip(names, values, strict=True)}

    return _bounded(answer)


def _names(rows: Iterable[Constraint], more: Iterable[str] = ()) -> tuple[str, ...]:
    return tuple(sorted({n for c in rows for n in c.names} | set(more)))


def _text(rows: Iterable[Constraint], names: Sequence[str], kept: Sequence[str]) -> str:
    short = {n: f"x{k}" for k, n in enumerate(names)}
    ordered = sorted(rows, key=lambda c: (c.value.terms, c.value.const, c.equality))
    body = " and ".join(str(c.renamed(short)) for c in ordered) or "true"
    hidden = [short[n] for n in names if n not in kept]
    body = f"exists {', '.join(hidden)}: {body}" if hidden else body
    return f"{{ [{', '.join(short[n] for n in kept)}] : {body} }}"


def _bounded(ask: Callable[[], T]) -> T:
    context = isl.DEFAULT_CONTEXT
    context.reset_operations()
    context.set_max_operations(MAX_OPERATIONS)
    try:
        return ask()
    except isl.Error as error:
        raise GaveUp(str(error).splitlines()[0]) from None
    finally:
        context.reset_operations()
        context.set_max_operations(0)
