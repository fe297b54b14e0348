"""Scalars told apart by the values that they hold, so that a name used for many things depends on nothing.

    int t = a[i];  b[i] = t;  t = c[i];  d[i] = t;          two webs of t, one cell of each per iteration

A *web* starts where a list of statements sets the scalar without reading it, and takes all its uses from
there to the next such place in the list, those in inner loops and branches among them.  If every use of a
scalar is in a web, what one iteration leaves in it is never seen by another, and nothing but the nest's
end reads across webs: its cell may be renamed by the web and by the iterators around the place where the
web starts.  Where one use is outside (a running sum) the scalar keeps its one cell.

An array is private to the iterations of some outer loops if every cell that an iteration reads was written
in the same iteration before; its cells may be renamed by these iterators, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from certify.sets import equal, missing
from certify.source import Cell, Instance, before, rows_of, tagged, turn
from mdh_core.expr import Affine

Place = tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class Web:
    """``name``: of the scalar; ``place``: where it is set; ``loops``: the iterators around this place."""

    name: str
    place: Place
    loops: tuple[str, ...]

    @property
    def cell(self) -> Cell:
        at = ".".join(map(str, self.place))
        return Cell(f"{self.name}@{at}", tuple(Affine.of(i) for i in self.loops), True)


def renamed(found: Sequence[Instance], kept: frozenset[str]) -> tuple[list[Instance], dict[str, Web]]:
    """The instances with the cells of webs, and these by name; scalars in ``kept`` are left alone."""
    scalars = {c.name for x in found for c in x.cells if c.scalar and x.write is not None} - kept
    chosen: dict[tuple[int, str], Web] = {}
    for name in sorted(scalars):
        users = [x for x in found if any(c.scalar and c.name == name for c in x.cells)]
        known = _covered(name, users, ())
        for number, web in (known or {}).items():
            chosen[number, name] = web
    out = []
    for x in found:
        mine = {n: w.cell for (k, n), w in chosen.items() if k == x.number}
        reads = tuple(mine[c.name] if c.scalar and c.name in mine else c for c in x.reads)
        write = x.write
        if write is not None and write.scalar:
            write = mine.get(write.name, write)
        out.append(replace(x, reads=reads, write=write))
    return out, {w.cell.name: w for w in chosen.values()}


def _covered(name: str, users: Sequence[Instance], at: Place) -> Mapping[int, Web] | None:
    """The web of each user below a list of statements; None where a value comes from before the list."""
    out: dict[int, Web] = {}
    current: Web | None = None
    places = sorted({int(x.place[len(at)]) for x in users})
    below = {k: [x for x in users if x.place[len(at)] == k] for k in places}
    starts = {k: _sets(name, below[k], (*at, k)) for k in places}
    for n, k in enumerate(places):
        here, mine = (*at, k), below[k]
        needed = n + 1 < len(places) and not starts[places[n + 1]]  # what is left there is used
        if starts[k]:
            current = Web(name, here, tuple(p for p in here if isinstance(p, str)))
            out |= {x.number: current for x in mine}
            continue
        lists = sorted({x.place[: len(here) + 1] for x in mine if len(x.place) > len(here)}, key=str)
        inner = [_covered(name, [x for x in mine if x.place[: len(p)] == p], p) for p in lists]
        apart = bool(lists) and all(len(x.place) > len(here) for x in mine) and None not in inner
        if apart and not (needed and current is not None):
            for found in inner:
                out |= found or {}
            current = None
        elif current is None:
            return None
        else:
            out |= {x.number: current for x in mine}
    return out


def _sets(name: str, users: Sequence[Instance], here: Place) -> bool:
    """Is the scalar set at the place whatever happens, before anything there reads it?"""
    first = users[0]
    if first.place == here:
        own = first.write is not None and first.write.name == name
        return own and all(c.name != name for c in first.reads)
    if isinstance(first.place[len(here)], str) or first.again:
        return False  # a loop may have no iteration
    branches = [[x for x in users if x.place[: len(here) + 1] == (*here, k)] for k in (0, 1)]
    return all(b and _sets(name, b, b[0].place[: len(here) + 2]) for b in branches)


# --------------------------------------------------------------------------- arrays


def private_arrays(found: Sequence[Instance], names: Iterable[str]) -> tuple[list[Instance], dict[str, Web]]:
    """The instances with cells of their iterations where an array is private; these arrays by new names."""
    out, webs = list(found), {}
    for name in sorted(names):
        users = [x for x in found if any(c.name == name for c in x.cells)]
        if any(c.index is None for x in users for c in x.cells if c.name == name):
            continue
        common = users[0].iterators if users else ()
        for x in users:
            common = tuple(a for a, b in zip(common, x.iterators, strict=False) if a == b)
        while common and not _is_private(name, users, common):
            common = common[:-1]
        if common:
            web = Web(name, (), common)
            webs[web.cell.name] = web
            out = [_moved(x, web) for x in out]
    return out, webs


def _is_private(name: str, users: Sequence[Instance], loops: tuple[str, ...]) -> bool:
    """Is every cell that an iteration of the loops reads written in the same iteration before?"""
    writers = [x for x in users if x.write is not None and x.write.name == name and x.exact]
    for y in users:
        for c in y.reads:
            if c.name != name:
                continue
            assert c.index is not None
            mine = rows_of(y, "'")
            keep = {n for r in mine for n in r.names}
            sources = []
            for x in writers:
                assert x.write is not None and x.write.index is not None
                pairs = zip(x.write.index, tagged(y, "'", c.index), strict=True)
                rows = [*mine, *rows_of(x, ""), *(equal(a, b) for a, b in pairs)]
                rows += [equal(Affine.of(i), Affine.of(f"{i}'")) for i in loops]
                sources += [[*rows, *order] for order in before(x, y)]
            if missing(mine, sources, keep) is not None:
                return False
    return True


def _moved(x: Instance, web: Web) -> Instance:
    def cell(c: Cell) -> Cell:
        if c.name != web.name or c.scalar or c.index is None:
            return c
        return Cell(web.cell.name, (*(Affine.of(turn(i)) for i in web.loops), *c.index))

    write = None if x.write is None else cell(x.write)
    return replace(x, reads=tuple(cell(c) for c in x.reads), write=write)
