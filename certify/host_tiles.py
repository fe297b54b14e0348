"""Tiles of a host loop respect its dependences.

Instances (t, k, i) of a block of iterations: program k at position i in iteration t, counted from the block's
first.  They are in part b or on border c, between the parts c - 1 and c:

    part b      b*width + lower <= i < (b + 1)*width - upper,  the first and last without the shrinking end
    border c    c*width - upper <= i < c*width + lower
                lower = lower[k] + slopes[0]*t,  upper = upper[k] + slopes[1]*t

Parts run side by side, then borders do; each runs its instances in the order of (t, k), or of (s, t, k) with
strips s: s*strip <= i + upper - first position < (s + 1)*strip.  So what is to be excluded, for instances
that touch one cell of which one writes, the first one before the second:

    two parts, two borders, the first one on a border and the second one in a part
    with strips, i + upper of the first one above that of the second one, in whose strip it may not be then
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from certify.obligations import Obligation, prove
from certify.sets import System, at_least, below, equal, find
from certify.stages import loads, positional, shown, size_rows
from lowering.host_tiles import HostTiles
from mdh_core.expr import Affine, Constraint, Expr, Load, as_affine, stmt_exprs, walk
from mdh_core.ir import HostLoop, MdhProgram

TILES = "tiles of the host loop respect every dependence"

Cell = tuple[str, tuple[Affine, ...]]


def tiles_respect(loop: HostLoop, tiles: HostTiles, subject: str) -> Obligation:
    programs = [p for p in loop.body if isinstance(p, MdhProgram)]
    return prove(subject, TILES, lambda: _violation(loop, programs, tiles))


def _violation(loop: HostLoop, programs: list[MdhProgram], tiles: HostTiles) -> str | None:
    skew, steps = tiles.skew, tiles.steps
    if len(programs) != len(loop.body) or len(skew.dims) != len(programs):
        return "something else stands in the loop"
    changed = {s.buffer for p in programs for s in p.out.stores}
    if any(isinstance(n, Load) and n.buffer in changed and None in map(as_affine, n.index)
           for p in programs for e in _expressions(p) for n in walk(e)):  # fmt: skip
        return "what is written is also read at computed positions"
    grown = sum(skew.slopes) * ((steps or 1) - 1)
    ends = max(skew.lower) + max(skew.upper) + grown
    if tiles.width < ends or min(*skew.lower, *skew.upper, *skew.slopes) < 0:
        return f"parts of {tiles.width} positions are too narrow"
    if steps is None and (any(skew.slopes) or any(skew.lower) or any(skew.upper)):
        return "values travel, but the parts run through the whole loop"
    for k, m in itertools.product(range(len(programs)), repeat=2):
        first, second = programs[k], programs[m]
        written = {s.buffer for s in first.out.stores}, {s.buffer for s in second.out.stores}
        for (a, x), (b, y) in itertools.product(_cells(first), _cells(second)):
            if a != b or (a not in written[0] and a not in written[1]):
                continue
            left, right = _names(first, loop, ""), _names(second, loop, "'")
            base = [*_points(first, left), *_points(second, right)]
            base += [equal(i.substitute(left), j.substitute(right)) for i, j in zip(x, y, strict=True)]
            first_one = Affine.of("first!")  # iteration of the block: cells depend on the loop's own iterator
            t, u = left[loop.iterator] - first_one, right[loop.iterator] - first_one
            base.append(at_least(first_one))
            if steps is not None:
                base += [c for z in (t, u) for c in (at_least(z), below(z, Affine.number(steps)))]
            orders: list[System] = [[below(t, u)], *([[equal(t, u)]] if k < m else [])]
            apart = list(_apart(tiles, k, _position(first, skew.dims[k], left), t,
                                m, _position(second, skew.dims[m], right), u))  # fmt: skip
            for order, (text, rows) in itertools.product(orders, apart):
                witness = find([*base, *order, *rows])
                if witness is not None:
                    return f"`{a}`, {text}: {shown(witness)}"
    return None


def _apart(
    tiles: HostTiles, k: int, i: Affine, t: Affine, m: int, j: Affine, u: Affine
) -> Iterator[tuple[str, System]]:
    """Where instances are that nothing orders, or the wrong way round; ``c``: the number of a border."""
    skew, width, c = tiles.skew, tiles.width, Affine.of("border")
    at, some = c * width, at_least(c, 1)
    lower = [z * skew.slopes[0] + skew.lower[n] for n, z in ((k, t), (m, u))]
    upper = [z * skew.slopes[1] + skew.upper[n] for n, z in ((k, t), (m, u))]
    first_on_border = [at_least(i - at + upper[0]), below(i, at + lower[0])]
    yield "two parts", [some, below(i, at - upper[0]), at_least(j - at - lower[1])]
    yield "two parts", [some, at_least(i - at - lower[0]), below(j, at - upper[1])]
    yield "a border before a part", [some, *first_on_border, at_least(j - at - lower[1])]
    yield "a border before a part", [some, *first_on_border, below(j, at - upper[1])]
    yield "two borders", [some, below(i, at - width + lower[0]), at_least(j - at + upper[1])]
    yield "two borders", [some, at_least(i - at - width + upper[0]), below(j, at + lower[1])]
    if tiles.strip is not None:
        yield "a strip before an earlier one", [below(j + upper[1], i + upper[0])]


def _position(p: MdhProgram, number: int | None, names: dict[str, Affine]) -> Affine:
    return Affine.number(0) if number is None else names[p.hom.dims[number].name]


def _names(p: MdhProgram, loop: HostLoop, mark: str) -> dict[str, Affine]:
    """Unknowns of an instance: iteration and indices."""
    return {n: Affine.of(f"{n}!{mark}") for n in (loop.iterator, *(d.name for d in p.hom.dims))}


def _points(p: MdhProgram, names: dict[str, Affine]) -> list[Constraint]:
    rows = [r for d in p.hom.dims for r in size_rows(d, Affine.of(d.name))]
    return [c.substitute(names) for c in (*rows, *positional(p))]


def _cells(p: MdhProgram) -> list[Cell]:
    found: list[Cell] = [(a.buffer, a.index) for a in p.inp.accesses]
    found += [(s.buffer, s.index) for s in p.out.stores]
    found += [x for e in _expressions(p) for x in loads(e)]
    return list(dict.fromkeys(found))


def _expressions(p: MdhProgram) -> list[Expr]:
    scalar = p.hom.scalar
    initial = [e for e in p.out.initial if e is not None]
    return [*stmt_exprs(scalar.body), *scalar.results, *initial, *(s.value for s in p.out.stores)]
