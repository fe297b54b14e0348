"""Integer points of affine constraints: the only module that imports ``islpy``.

Everything is asked by *name*: a constraint is an ``Affine`` value over iterators and parameters that is
zero or not negative.  Parameters are unknowns like the others, so "satisfiable" means "for some
sizes".  Each question may use a bounded number of isl operations; where the bound is met the answer
is the careful one.

>>> n, i = Affine.of("n"), Affine.of("i")
>>> satisfiable([at_least(i), at_least(n - i - 1), equal(i, n)])
False
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import islpy as isl

from mdh_core.expr import Affine, Constraint

__all__ = [
    "Constraint", "Image", "Part", "Rows", "apart", "at_least", "bounds", "covered", "equal", "fixed_values",
    "less", "reaches", "rename", "satisfiable",
]  # fmt: skip

MAX_OPERATIONS = 2_000_000
T = TypeVar("T")


def rename(a: Affine, names: dict[str, str]) -> Affine:
    return a.substitute({old: Affine.of(new) for old, new in names.items()})


def at_least(a: Affine, bound: int = 0) -> Constraint:
    """``a >= bound``."""
    return Constraint(a - bound)


def less(a: Affine, b: Affine) -> Constraint:
    """``a < b``."""
    return Constraint(b - a - 1)


def equal(a: Affine, b: Affine) -> Constraint:
    return Constraint(a - b, equality=True)


def satisfiable(constraints: Iterable[Constraint]) -> bool:
    """Is there an integer point? True also where isl gave up."""
    return _satisfiable(frozenset([(c.value.terms, c.value.const, c.equality) for c in constraints]))


Row = tuple[tuple[tuple[str, int], ...], int, bool]  # terms, constant, equality


@lru_cache(maxsize=20_000)
def _satisfiable(constraints: frozenset[Row]) -> bool:
    rows = _reduced(constraints)
    if rows is None:
        return False
    if not rows:
        return True
    rows.sort(key=lambda r: (r[0], r[1], r[2]))
    names = {name: f"x{k}" for k, name in enumerate(sorted({n for terms, _, _ in rows for n, _ in terms}))}
    text = " and ".join(
        "+".join([*(f"{c}{names[n]}" for n, c in terms), str(const)]) + ("=0" if eq else ">=0")
        for terms, const, eq in rows
    )
    answer = _bounded(lambda: bool(isl.Set(f"{{ [{','.join(names.values())}] : {text} }}").is_empty()))
    return answer is not True


def _reduced(constraints: frozenset[Row]) -> list[Row] | None:
    """The constraints without variables that an equality gives; None where they contradict plainly.

    isl decides everything; this spares it the many questions with an obvious answer.
    """
    rows = [(dict(terms), const, equality) for terms, const, equality in constraints]
    while True:
        found = None
        for k, (terms, _, equality) in enumerate(rows):
            if equality:
                name = next((n for n in sorted(terms) if abs(terms[n]) == 1), None)
                if name is not None and (found is None or len(terms) < len(rows[found[0]][0])):
                    found = k, name
        if found is None:
            break
        k, name = found
        terms, const, _ = rows.pop(k)
        sign = -terms.pop(name)  # name = sign * (terms + const)
        for other, (their, c, e) in enumerate(rows):
            factor = their.pop(name, 0) * sign
            if factor:
                for n, v in terms.items():
                    new = their.get(n, 0) + factor * v
                    if new:
                        their[n] = new
                    else:
                        del their[n]
                rows[other] = (their, c + factor * const, e)
    least: dict[tuple[tuple[str, int], ...], int] = {}
    out: set[Row] = set()
    for terms, const, equality in rows:
        if not terms:
            if const < 0 or (equality and const):
                return None
            continue
        key = tuple(sorted(terms.items()))
        if equality:
            out.add((key, const, True))
        else:
            least[key] = min(const, least.get(key, const))
    for key, const in least.items():
        opposite = least.get(tuple((n, -c) for n, c in key))
        if opposite is not None and const + opposite < 0:
            return None
        out.add((key, const, False))
    return list(out)


def _holds(c: Constraint) -> bool:
    return c.value.const == 0 if c.equality else c.value.const >= 0


def fixed_values(constraints: Iterable[Constraint], targets: tuple[Affine, ...]) -> tuple[int | None, ...]:
    """Per target its value if it is the same in all points, otherwise None."""
    rows = list(constraints)
    outputs = [f"d{k}" for k in range(len(targets))]
    rows += [equal(Affine.of(f"={name}"), t) for name, t in zip(outputs, targets, strict=True)]
    used = sorted({n for c in rows for n in c.value.names if not n.startswith("=")})
    names = {name: f"x{k}" for k, name in enumerate(used)} | {f"={name}": name for name in outputs}

    def ask() -> tuple[int | None, ...]:
        points = isl.Set(_text(rows, names, outputs)).compute_divs().detect_equalities()
        values = [points.plain_get_val_if_fixed(isl.dim_type.set, k) for k in range(len(outputs))]
        return tuple(int(v.to_python()) if v.is_int() else None for v in values)

    return _bounded(ask) or (None,) * len(targets)


def reaches(
    domain: Iterable[Constraint], facts: Iterable[Constraint], value: Affine, inner: frozenset[str]
) -> bool:
    """Is every ``value`` over the domain at most one that also fulfils the facts, for all sizes?

    ``inner``: the names that are iterators.  False also where isl gave up.
    """
    v = Affine.of("=v")
    every = [*domain, equal(v, value)]
    some = [*domain, *facts, at_least(value - v)]
    used = sorted({n for c in (*every, *some) for n in c.value.names} - {"=v"})
    names = {name: f"x{k}" for k, name in enumerate(used)} | {"=v": "v"}
    outputs = [*(names[n] for n in used if n not in inner), "v"]

    def ask() -> bool:
        return bool(isl.Set(_text(every, names, outputs)) <= isl.Set(_text(some, names, outputs)))

    return _bounded(ask) is True


def covered(
    cells: tuple[Iterable[Constraint], Sequence[Affine]],
    others: Iterable[tuple[Iterable[Constraint], Sequence[Affine]]],
    inner: frozenset[str],
) -> bool:
    """Is every cell, an index over the points that fulfil constraints, one of the others', for all sizes?

    ``inner``: the names that are iterators.  False also where isl gave up.

    >>> n, i = Affine.of("n"), Affine.of("i")
    >>> loop = (at_least(i), less(i, n))
    >>> covered((loop, [n - i - 1]), [(loop, [i])], frozenset("i"))
    True
    >>> covered((loop, [i + 1]), [(loop, [i])], frozenset("i"))
    False
    """
    systems = [
        [*facts, *(equal(Affine.of(f"=c{k}"), a) for k, a in enumerate(index))]
        for facts, index in (cells, *others)
    ]
    used = sorted({n for rows in systems for c in rows for n in c.value.names if not n.startswith("=")})
    coordinates = [f"c{k}" for k in range(len(cells[1]))]
    names = {name: f"x{k}" for k, name in enumerate(used)} | {f"={c}": c for c in coordinates}
    outputs = [*(names[n] for n in used if n not in inner), *coordinates]

    def ask() -> bool:
        left, *rest = (isl.Set(_text(rows, names, outputs)) for rows in systems)
        for one in rest:
            left = left.subtract(one)
        return bool(left.is_empty())

    return _bounded(ask) is True


def _text(rows: list[Constraint], names: dict[str, str], outputs: list[str]) -> str:
    body = " and ".join(f"{rename(c.value, names)} {'=' if c.equality else '>='} 0" for c in rows)
    hidden = [name for name in names.values() if name not in outputs]
    body = f"exists {', '.join(hidden)}: {body}" if hidden else body
    return f"{{ [{', '.join(outputs)}] : {body} }}"


def _bounded(ask: Callable[[], T]) -> T | None:
    """The answer, or None where isl needs more than ``MAX_OPERATIONS``."""
    context = isl.DEFAULT_CONTEXT
    context.reset_operations()
    context.set_max_operations(MAX_OPERATIONS)
    try:
        return ask()
    except isl.Error:
        return None
    finally:
        context.reset_operations()
        context.set_max_operations(0)


def bounds(
    constraints: Iterable[Constraint], values: tuple[Affine, ...]
) -> tuple[tuple[int, int], ...] | None:
    """Smallest and largest of each value over the points, which are finitely many; None without points.

    Raises ``ArithmeticError`` where isl gave up or a value is unbounded.
    """
    rows = frozenset(constraints)
    names = tuple(sorted({n for c in rows for n in c.value.names} | {n for v in values for n in v.names}))
    if not names:
        return tuple((v.const, v.const) for v in values) if all(map(_holds, rows)) else None
    box = _box(rows)
    if box is not None and all(n in box for v in values for n in v.names):
        some = all(low <= high for low, high in box.values())
        return tuple(_over_box(v, box) for v in values) if some else None
    points = _points(rows, names)
    short = {name: f"x{k}" for k, name in enumerate(names)}

    def ask() -> tuple[tuple[isl.Val, isl.Val], ...]:
        texts = (f"{{ [{', '.join(short.values())}] -> [{rename(v, short)}] }}" for v in values)
        functions = [isl.Aff.read_from_str(isl.DEFAULT_CONTEXT, text) for text in texts]
        return tuple((points.min_val(f), points.max_val(f)) for f in functions)

    found = _bounded(lambda: None if points.is_empty() else ask())
    if found is None:
        if _bounded(lambda: bool(points.is_empty())) is not True:
            raise ArithmeticError("too many operations")
        return None
    if not all(v.is_int() for pair in found for v in pair):
        raise ArithmeticError("a value is not bounded")
    return tuple((int(low.to_python()), int(high.to_python())) for low, high in found)


def _box(rows: Iterable[Constraint]) -> dict[str, tuple[int, int]] | None:
    """Ranges, perhaps empty ones, of all names where each constraint is one name's: isl need not be asked.

    None where a constraint has several names, or none and does not hold, and where a name lacks an end.
    """
    lows: dict[str, int] = {}
    highs: dict[str, int] = {}
    for row in rows:
        if not row.value.terms and _holds(row):
            continue
        if len(row.value.terms) != 1:
            return None
        (name, c), const = row.value.terms[0], row.value.const
        if c > 0 or row.equality:  # the whole number at or above -const / c
            lows[name] = max(lows.get(name, -(const // c)), -(const // c))
        if c < 0 or row.equality:  # at or below
            highs[name] = min(highs.get(name, const // -c), const // -c)
    if lows.keys() != highs.keys():
        return None
    return {name: (low, highs[name]) for name, low in lows.items()}


def _over_box(value: Affine, box: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
    ends = [sorted((c * box[n][0], c * box[n][1])) for n, c in value.terms]
    return value.const + sum(low for low, _ in ends), value.const + sum(high for _, high in ends)


@lru_cache(maxsize=2_000)
def _points(rows: frozenset[Constraint], names: tuple[str, ...]) -> isl.Set:
    ordered = sorted(rows, key=lambda c: (c.value.terms, c.value.const, c.equality))
    short = {name: f"x{k}" for k, name in enumerate(names)}
    return isl.Set(_text(ordered, short, list(short.values())))


Rows = tuple[Affine, ...]  # each >= 0
Image = tuple[Rows, tuple[Affine, ...]]  # a domain over any names, and one function of them per coordinate


@dataclass(frozen=True, slots=True)
class Part:
    """Values that some images take and others do not, then without the first ``hidden`` coordinates."""

    some: tuple[Image, ...]
    without: tuple[Image, ...] = ()
    hidden: int = 0


def apart(parts: Iterable[Part]) -> list[Rows | int] | None:
    """The union of all parts, in pieces that share no point; every name has numbers for bounds.

    A piece is a tuple of rows over the coordinates ``a0, a1, …``, or, where it is no plain polytope, the
    number of its points.  None where isl gave up.
    """
    texts = [(_union(x.some), _union(x.without), x.hidden) for x in parts if x.some]
    if not texts:
        return []

    def ask() -> list[Rows | int]:
        whole = None
        for some, without, hidden in texts:
            points = isl.Set(some)
            if without:
                points = points.subtract(isl.Set(without))
            points = points.project_out(isl.dim_type.set, 0, hidden)
            whole = points if whole is None else whole.union(points)
        assert whole is not None
        return [_piece(b) for b in whole.compute_divs().coalesce().make_disjoint().get_basic_sets()]

    return _bounded(ask)


def _image(rows: Rows, functions: tuple[Affine, ...]) -> tuple[int, str]:
    names = sorted({n for a in (*rows, *functions) for n in a.names})
    short = {name: f"x{k}" for k, name in enumerate(names)}
    tests = [f"{rename(r, short)} >= 0" for r in rows]
    tests += [f"a{k} = {rename(a, short)}" for k, a in enumerate(functions)]
    body = " and ".join(tests) or "true"
    return len(functions), f"exists {', '.join(short.values())}: {body}" if short else body


def _union(images: tuple[Image, ...]) -> str:
    found = [_image(rows, functions) for rows, functions in images]
    texts = (f"[{', '.join(f'a{k}' for k in range(n))}] : {body}" for n, body in found)
    return "{ " + "; ".join(texts) + " }" if found else ""


def _piece(part: isl.BasicSet) -> Rows | int:
    if part.dim(isl.dim_type.div):
        return int(isl.Set.from_basic_set(part).count_val().to_python())
    rows: list[Affine] = []
    for c in part.get_constraints():
        terms = {
            f"a{k}": int(c.get_coefficient_val(isl.dim_type.set, k).to_python())
            for k in range(part.dim(isl.dim_type.set))
        }
        row = Affine.from_dict(terms, int(c.get_constant_val().to_python()))
        rows += [row, -row] if c.is_equality() else [row]
    return tuple(rows)
