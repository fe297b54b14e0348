"""Integer points between affine bounds: what is left of a box that constraints cut (Fourier-Motzkin).

    row ::= Affine                      # >= 0 at every point

A system is a list of rows over dimensions and, if they are not numbers, parameters.  Eliminating a
name projects the system onto the others.  Rows are divided by the greatest common divisor of their
coefficients and their constants rounded down, so that a projection loses no integer point; that it
gains none is certain where the eliminated name has coefficient 1 in all rows that bound it from
one side (``exact``), as in nearly every loop nest.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Set

from mdh_core.expr import Affine, Constraint

Box = Mapping[str, tuple[int, int]]  # first and last index per dimension


def rows_of(constraints: Iterable[Constraint]) -> list[Affine]:
    """
    >>> [str(r) for r in rows_of([Constraint(Affine.of("i") - 3, equality=True)])]
    ['i - 3', '-i + 3']
    """
    out = []
    for c in constraints:
        out += [c.value, -c.value] if c.equality else [c.value]
    return out


def box_rows(box: Box) -> list[Affine]:
    return [row for n, (low, high) in box.items() for row in (Affine.of(n) - low, Affine.of(n, -1) + high)]


def project(rows: Iterable[Affine], names: Iterable[str]) -> tuple[list[Affine], bool]:
    """The rows without the names, and whether every point of the projection is one of a point before.

    >>> i, j, n = (Affine.of(x) for x in "ijn")
    >>> rows, exact = project([j, i - j, n - i - 1], "i")
    >>> [str(r) for r in rows], exact
    (['j', '-j + n - 1'], True)
    """
    left, exact = _distinct(rows), True
    in_order = sorted(names) if isinstance(names, Set) else names  # what is left depends on it
    open_names = [n for n in in_order if any(r.coefficient(n) for r in left)]
    while open_names:
        more = _rows_more(left)
        name = min(open_names, key=lambda n: more.get(n, 0))
        open_names.remove(name)
        free: list[Affine] = []
        lower: list[tuple[Affine, int]] = []
        upper: list[tuple[Affine, int]] = []
        for r in left:
            c = r.coefficient(name)
            if c:
                (lower if c > 0 else upper).append((r, c))
            else:
                free.append(r)
        exact = exact and (all(c == 1 for _, c in lower) or all(c == -1 for _, c in upper))
        left = _distinct([*free, *(a * -n + b * m for a, m in lower for b, n in upper)])
    return left, exact


def _rows_more(rows: list[Affine]) -> dict[str, int]:
    """How many rows there are more, for each name, without it."""
    lower = Counter(n for r in rows for n, c in r.terms if c > 0)
    upper = Counter(n for r in rows for n, c in r.terms if c < 0)
    return {n: lower[n] * upper[n] - lower[n] - upper[n] for n in lower | upper}


def _distinct(rows: Iterable[Affine]) -> list[Affine]:
    """Reduced rows, of several with one linear part the tightest; rows that always hold are left out."""
    tightest: dict[tuple[tuple[str, int], ...], int] = {}
    for row in rows:
        terms, const = row.terms, row.const
        divisor = math.gcd(*[c for _, c in terms])
        if divisor > 1:
            terms, const = tuple([(n, c // divisor) for n, c in terms]), const // divisor
        elif not divisor and const >= 0:
            continue
        tightest[terms] = min(const, tightest.get(terms, const))
    return [Affine(terms, const) for terms, const in tightest.items()]


def names_of(rows: Iterable[Affine]) -> set[str]:
    return {n for r in rows for n in r.names}


def certainly_empty(rows: Iterable[Affine]) -> bool:
    """Whether no point obeys all rows; False also where only a closer look would tell.

    >>> i, j = Affine.of("i"), Affine.of("j")
    >>> certainly_empty([i - j - 1, j - i]), certainly_empty([i * 2 - j * 2 - 1, j * 2 - i * 2 + 1])
    (True, True)
    """
    rows = list(rows)
    return any(r.const < 0 for r in project(rows, names_of(rows))[0])


def implied(row: Affine, rows: Iterable[Affine]) -> bool:
    """Whether certainly every point of the rows obeys this one as well.

    >>> i, n = Affine.of("i"), Affine.of("n")
    >>> implied(n, [i, n - i - 1]), implied(n - 2, [i, n - i - 1])
    (True, False)
    """
    return certainly_empty([*rows, -row - 1])


def without_implied(rows: Iterable[Affine], tried: Iterable[Affine] | None = None) -> list[Affine]:
    """The rows without those that the others imply; ``tried``: those that may be left out, in this order.

    >>> i, n = Affine.of("i"), Affine.of("n")
    >>> [str(r) for r in without_implied([i, n - i - 1, n, i + 1])]
    ['i', '-i + n - 1']
    """
    left = list(dict.fromkeys(rows))
    for row in left if tried is None else dict.fromkeys(tried):
        others = [r for r in left if r != row]
        if row in left and implied(row, others):
            left = others
    return left


def has_point(rows: Iterable[Affine]) -> bool:
    """Whether some integer point obeys all rows; every name has numbers for bounds."""
    rows = _distinct(rows)
    names = sorted(names_of(rows))
    left, exact = project(rows, names)
    if left or exact:
        return not left
    name = min(names, key=lambda n: _width(_range(rows, n)))
    low, high = _range(rows, name)
    return any(has_point(r.substitute({name: Affine.number(v)}) for r in rows) for v in range(low, high + 1))


def _width(ends: tuple[int, int]) -> int:
    return ends[1] - ends[0]


def _range(rows: Iterable[Affine], name: str) -> tuple[int, int]:
    """Bounds of a name; all others are eliminated."""
    rows = list(rows)
    alone, _ = project(rows, names_of(rows) - {name})
    low = max(-(r.const // r.coefficient(name)) for r in alone if r.coefficient(name) > 0)
    high = min(r.const // -r.coefficient(name) for r in alone if r.coefficient(name) < 0)
    return low, high


def reach(a: Affine, box: Box, constraints: Iterable[Constraint] = ()) -> tuple[int, int] | None:
    """Smallest and largest value over the points of a box that obey the constraints; None: no points.

    >>> i, j = Affine.of("i"), Affine.of("j")
    >>> box = {"i": (0, 9), "j": (0, 9)}
    >>> reach(i - j, box), reach(i - j, box, [Constraint(i - j)])
    ((-9, 9), (0, 9))
    """
    constraints = list(constraints)
    used = connected(a.names, constraints)
    near = [c for c in constraints if c.names & used]
    apart = [c for c in constraints if not c.names & used]
    if any(low > high for low, high in box.values()) or not _holds_somewhere(apart, box):
        return None
    if not near:
        ends = [(c * box[n][0], c * box[n][1]) for n, c in a.terms]
        return a.const + sum(map(min, ends)), a.const + sum(map(max, ends))
    own = {n: box[n] for n in used}
    value = Affine.of("=")
    rows = [*rows_of(near), *box_rows(own)]
    whole = [*rows, *rows_of([Constraint(value - a, equality=True)])]
    alone, exact = project(whole, used)
    if any(r.is_constant for r in alone):
        return None
    low, high = _range(alone, "=")
    if exact:
        return (low, high) if low <= high else None

    def attained(v: int) -> bool:
        return has_point([*rows, *rows_of([Constraint(a - v, equality=True)])])

    lowest = next((v for v in range(low, high + 1) if attained(v)), None)
    if lowest is None:
        return None
    return lowest, next(v for v in range(high, low - 1, -1) if attained(v))


def _holds_somewhere(constraints: list[Constraint], box: Box) -> bool:
    names = {n for c in constraints for n in c.names}
    return not constraints or has_point([*rows_of(constraints), *box_rows({n: box[n] for n in names})])


def connected(names: Iterable[str], constraints: Iterable[Constraint]) -> set[str]:
    """The names, and those that constraints tie to them."""
    out = set(names)
    constraints = list(constraints)
    while more := {n for c in constraints if c.names & out for n in c.names} - out:
        out |= more
    return out
