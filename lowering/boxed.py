"""Wavefronts whose points are boxes, as boxes: dimensions counted from where they begin, no domain.

    before   for w in [0, 2*n - 2):  md_hom[i: n, k: w | n <= w + 1, i <= w, w + 2 <= i + n, ...]
    after    for w in [0, n - 1):    md_hom[i: n - w - 1, k: w]

What a wavefront visits is a box that a domain cuts.  If of the domain and the box one lower and one upper
bound of each dimension say it all, and these are equally far apart everywhere, then the dimension may begin
at the lower one; bounds of the host loop's iterator alone say where the loop begins and ends.

    boxed   host loop of programs -> the same loop without domains; None where it has none, or is no box

Bounds that follow from the others are left out first (``mdh_core.polytope.without_implied``), and each step
keeps the set of points for all parameters, so there is nothing to guard.  Bounds that mention reduced
dimensions say nothing about positions (``mdh_core.ir``), and those of positions do without them.

Shown right by tests/test_boxed.py: the same meaning as before, on random domains, too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from lowering.programs import Rows, assumes, points, with_values
from mdh_core.expr import (
    INT64,
    Affine,
    Binary,
    Const,
    Expr,
    Var,
    affine_expr,
    as_affine,
    map_children,
)
from mdh_core.ir import Dim, HostLoop, MdhProgram, Size, with_expressions
from mdh_core.polytope import without_implied


def boxed(loop: HostLoop) -> HostLoop | None:
    programs = [s for s in loop.body if isinstance(s, MdhProgram)]
    if len(programs) < len(loop.body) or loop.size.step != 1 or not any(p.hom.domain for p in programs):
        return None
    if assumes(programs, {loop.iterator}):
        return None
    found = [_box(p, loop) for p in programs]
    boxes = [b for b in found if b is not None]
    if len(boxes) < len(found) or any(b.times != boxes[0].times for b in boxes):
        return None
    first, size = boxes[0].times
    now = {loop.iterator: Affine.of(loop.iterator) + first}
    body = tuple(with_expressions(with_values(b.program(), now), _added) for b in boxes)
    return replace(loop, size=Size(size), body=body)


@dataclass(frozen=True, slots=True)
class _Box:
    """``bounds``: of dimensions, each in terms of those behind it; ``times``: first iteration, how many."""

    whole: MdhProgram
    bounds: tuple[tuple[str, Affine, Affine], ...]  # name, first index, how many
    times: tuple[Affine, Affine]

    def program(self) -> MdhProgram:
        p = replace(self.whole, hom=replace(self.whole.hom, domain=()))
        for name, first, size in self.bounds:
            dims = tuple(Dim(name, Size(size)) if d.name == name else d for d in p.hom.dims)
            p = with_values(replace(p, hom=replace(p.hom, dims=dims)), {name: Affine.of(name) + first})
        return p


def _box(p: MdhProgram, loop: HostLoop) -> _Box | None:
    reduced = {d.name for d in p.hom.dims_of("pw")}
    now = Affine.of(loop.iterator)
    kept = {d.name for d in p.hom.dims} - reduced
    rows = [*points(p, {}, kept), now, loop.size.span - 1 - now]
    # the loop's bounds may not rest on those of dimensions: it would run further
    loops, own = _apart(rows, kept)
    loops = without_implied(loops)
    here = without_implied([*loops, *own], own)
    times = _between(loops, loop.iterator)
    if times is None:
        return None
    bounds = _bounds(_apart(here, kept)[1], kept)
    inner = _apart(points(p, {}), reduced)[1]
    more = _bounds(_apart(without_implied([*here, *inner], inner), reduced)[1], reduced)
    return None if bounds is None or more is None else _Box(p, (*more, *bounds), times)


def _apart(rows: Rows, names: set[str]) -> tuple[Rows, Rows]:
    """Those without any of the names, those with some."""
    return [r for r in rows if not r.names & names], [r for r in rows if r.names & names]


def _between(rows: Rows, name: str) -> tuple[Affine, Affine] | None:
    """First value and number of values, if the rows are a lower and an upper bound of the name."""
    lower = [r for r in rows if r.coefficient(name) == 1]
    upper = [r for r in rows if r.coefficient(name) == -1]
    if len(rows) != 2 or len(lower) != 1 or len(upper) != 1:
        return None
    return Affine.of(name) - lower[0], lower[0] + upper[0] + 1


def _bounds(rows: Rows, names: set[str]) -> tuple[tuple[str, Affine, Affine], ...] | None:
    """First index and extent of each dimension, in terms of those that follow."""
    found: list[tuple[str, Affine, Affine]] = []
    while names:
        for name in sorted(names):
            own = [r for r in rows if name in r.names]
            between = _between(own, name)
            if between is not None and not between[1].names & names:
                break
        else:
            return None
        found.append((name, *between))
        rows, names = [r for r in rows if name not in r.names], names - {name}
    return None if rows else tuple(found)


# --------------------------------------------------------------------------- shorter sums


def _added(e: Expr) -> Expr:
    """Index sums of what was substituted, added up."""
    if _is_sum(e):
        value = as_affine(e)
        if value is not None:
            return affine_expr(value)
    return map_children(e, _added)


def _is_sum(e: Expr) -> bool:
    """Of 64-bit values alone, for which any order gives the same."""
    match e:
        case Var(type=t) | Const(type=t):
            return t == INT64
        case Binary(op="+" | "-" | "*", a=a, b=b):
            return _is_sum(a) and _is_sum(b)
        case _:
            return False
