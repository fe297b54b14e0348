"""Rows of operands and results that a tile is the first to touch.

A tile over several rows reads as many places of memory side by side, and of a stencil most of them again:
rows that a tile before it has read are near.  Hardware follows a few such places by itself; where a tile has
more, those that come from memory can be fetched some way ahead (``Configuration.ahead``).

    for i by 4, for j    reads  in[i + 0..5][j + 0..2], a seven-point stencil
                         first  in[i + 2..4][j + 2] and in[i + 5][j + 1]

Of what is reduced along its rows, every element is read once, in long runs.  Hardware that follows them
stops where a page ends, and where the next one is has to be looked up: a core waits for its first lines,
about 0.1 us on the machine where this was measured.  So the first lines of a page are fetched as many bytes
ahead (``PAGE``, or several of it), once for each page.

Where a part of neighbouring programs (``lowering.outer_loop``) is computed from what is near, memory waits:
the program that reads an array of memory for the last time fetches what the next part of that will be
(``read_again``), element for element of its own.

A row is one of the places that differ in other dimensions than the vector's: the tile's own rows, moved by
what the accesses add to the indices.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mdh_core.expr import Affine
from mdh_core.ir import Access, MdhProgram

Offsets = tuple[int, ...]  # one per dimension of the program
PAGE = 4096  # bytes


@dataclass(frozen=True, slots=True)
class Rows:
    """Places of one buffer: ``index`` without what accesses add, and those additions per dimension.

    A place is ``index`` where every dimension ``d`` stands at the tile's first point plus ``offsets[d]``.
    """

    buffer: str
    index: tuple[Affine, ...]
    offsets: tuple[Offsets, ...]


def first_rows(
    program: MdhProgram, vector: str, order: Sequence[str], rows: Mapping[str, int]
) -> list[Rows]:
    """What the inputs' accesses touch first in a tile of ``rows`` points per dimension.

    ``vector``: the dimension along which a row runs; ``order``: dimensions that loops over tiles go through,
    the outermost first.  Accesses whose neighbours along the vector are no neighbours in memory, or with
    several dimensions in one index, are left out: they read little, or nothing is known of them.
    """
    dims = [d.name for d in program.hom.dims]
    groups: dict[tuple[str, tuple[Affine, ...]], set[Offsets]] = {}
    for a in program.inp.accesses:
        added = _added(a, dims)
        if added is None or not a.index or vector not in a.index[-1].names:
            continue
        index = tuple(Affine(x.terms, 0 if x.names & added.keys() else x.const) for x in a.index)
        touched = groups.setdefault((a.buffer, index), set())
        starts = [0 if d == vector else added.get(d, 0) for d in dims]
        counts = [rows.get(d, 1) if d != vector and d in added else 1 for d in dims]
        touched |= set(itertools.product(*(range(s, s + n) for s, n in zip(starts, counts, strict=True))))
    extents = [rows.get(d, 1) if d in order else 0 for d in dims]
    ranks = [dims.index(d) for d in order]
    found = []
    for (buffer, index), touched in groups.items():
        kept = sorted(x for x in touched if not any(_is_later(_minus(y, x), extents, ranks) for y in touched))
        found.append(Rows(buffer, index, tuple(kept)))
    return found


def read_once(program: MdhProgram, vector: str, rows: Mapping[str, int]) -> list[Rows]:
    """What a register tile of ``rows`` points per dimension reads that no other point reads."""
    every = {d.name for d in program.hom.dims if d.size.constant != 1}
    found = first_rows(program, vector, (), rows)
    return [r for r in found if every <= {n for x in r.index for n in x.names}]


def read_again(programs: Sequence[MdhProgram], dims: Sequence[str | None]) -> list[tuple[Access, ...]]:
    """Of each program of a part, accesses to arrays that one before it reads, and none writes or reads later.

    ``dims``: of each program, the dimension that is cut.  An access tells elements of different parts apart,
    and reads each once, in any order.
    """
    written = {s.buffer for p in programs for s in p.out.stores}
    readers: dict[str, list[int]] = {}
    for k, p in enumerate(programs):
        for buffer in dict.fromkeys(a.buffer for a in p.inp.accesses):
            readers.setdefault(buffer, []).append(k)
    found: list[list[Access]] = [[] for _ in programs]
    for buffer, numbers in readers.items():
        k, accesses = numbers[-1], [a for a in programs[numbers[-1]].inp.accesses if a.buffer == buffer]
        names = {n for a in accesses for x in a.index for n in x.names}
        every = {d.name for d in programs[k].hom.dims if d.size.constant != 1}
        if buffer not in written and len(numbers) > 1 and len(accesses) == 1 and {*every, dims[k]} <= names:
            found[k].append(accesses[0])
    return [tuple(x) for x in found]


def _added(a: Access, dims: Sequence[str]) -> dict[str, int] | None:
    """What an access adds to each of its dimensions; None where an index is not one of them and a number."""
    added: dict[str, int] = {}
    for x in a.index:
        used = [n for n in x.names if n in dims]
        if len(used) > 1 or any(n in added or x.coefficient(n) != 1 for n in used):
            return None
        added |= dict.fromkeys(used, x.const)
    return added


def _minus(x: Offsets, y: Offsets) -> Offsets:
    return tuple(a - b for a, b in zip(x, y, strict=True))


def _is_later(steps: Offsets, extents: Sequence[int], ranks: Sequence[int]) -> bool:
    """Whether a tile that is so many points further on comes later: it exists, and loops reach it later.

    ``extents``: of a tile; 0 where there is one tile only.  ``ranks``: of dimensions, outermost loop first.
    """
    if any(step % n if n else step for step, n in zip(steps, extents, strict=True)):
        return False
    return next((steps[k] for k in ranks if steps[k]), 0) > 0
