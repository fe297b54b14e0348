"""Conditions on the position of what a reduction combines: the points that contribute are its domain.

    before   f(w[0], in[0], y, a) = 0 <= y + a - 2 && y + a - 2 < h ? w[0]*in[0] : -0.0
    after    f(w[0], in[0]) = w[0]*in[0]         on the points with  2 <= a + y  and  a + y <= h + 1

As in a picture's convolution, whose sums leave out what lies beyond the edge.  What is combined elsewhere is
the operator's neutral element, so nothing is combined there.  Only comparisons that are exactly affine, and
only those that mention a reduced dimension: a cell of which no point is in the domain keeps what it starts
from, but a cell whose own position is outside would not be stored.  Others stay conditions.

    in     the values that are combined, over axes and parameters; which axes are reduced
    out    constraints, and the values where they hold

Shown right by tests/test_contributions.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from lifter.normalise import NonNegative, exact_facts
from lifter.polyhedral import Constraint
from mdh_core.combine import CombineFunction
from mdh_core.expr import INT32, Binary, Const, Expr, Select, Unary
from mdh_core.guarded import behind_neutral, conjuncts

Restricted = tuple[tuple[Constraint, ...], list[Expr]]


def restricted(
    values: Sequence[Expr],
    function: CombineFunction,
    reduced: Collection[str],
    known: NonNegative,
    matters: Callable[[Constraint], bool],
) -> Restricted | None:
    """The domain of what is combined; None where no condition says anything about it.

    known    whether an affine value is at least 0
    matters  whether a constraint leaves out any point, and names nothing but axes and parameters
    """
    conditions, inner = behind_neutral(values, function)
    found: list[Constraint] = []
    rest: list[Expr] = []
    for c in (part for e in conditions for part in _parts(e)):
        facts = exact_facts(c, known)
        if facts is None or any(f.equality or not f.names & set(reduced) or not matters(f) for f in facts):
            rest.append(c)
        else:
            found += facts
    if not found:
        return None
    new = list(inner)
    for c in reversed(rest):
        new = [Select(c, e, nothing, e.type) for e, nothing in zip(new, _neutral(values), strict=True)]
    return tuple(dict.fromkeys(found)), new


def _neutral(values: Sequence[Expr]) -> list[Const]:
    """What the values are where nothing is combined: as the source's operator has it, -0.0 for sums."""
    found = []
    for e in values:
        assert isinstance(e, Select)
        found.append(e.other if isinstance(e.other, Const) else e.then)
    assert all(isinstance(c, Const) for c in found)
    return [c for c in found if isinstance(c, Const)]


def _parts(e: Expr) -> Iterator[Expr]:
    """Conditions that all have to hold."""
    match e:
        case Unary(op="!", a=Unary(op="!", a=a)):
            yield from _parts(a)
        case Unary(op="!", a=Binary(op="||", a=a, b=b)):
            yield from _parts(Unary("!", a, INT32))
            yield from _parts(Unary("!", b, INT32))
        case Binary(op="&&"):
            for part in conjuncts(e):
                yield from _parts(part) if part != e else (part,)
        case _:
            yield e
