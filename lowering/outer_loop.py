"""Neighbouring programs in one outer loop (outer loop fusion).

    before   for i: P_0;   for i: P_1;   for i: P_2
    after    threads share the parts of i: { P_0 over a part;  P_1 over the same part;  P_2 over it }

What one program leaves of a part is in a cache when the next one reads it, and threads meet once instead of
once for each program.  That needs programs with one outermost concatenated dimension, of which no position
needs what another one computes.  It is written and proved as the tiles of a host loop of one iteration
(``lowering.host_tiles``), so this module finds where there may be one, and how wide parts should be:

    runs_of      steps -> runs of neighbours, as long as they can be
    in_one_loop  steps, widths of parts (0: as they are) -> steps with host loops, the tiles of these

Shown right by tests/test_outer_loop.py; by the certificate, of each kernel.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lowering.agreed import agreed
from lowering.facts import Facts
from lowering.host_tiles import HostTiles, Skew, skew_in
from lowering.machine import Machine
from lowering.programs import fresh
from lowering.traffic import bytes_of
from mdh_core.expr import Affine
from mdh_core.ir import HostLoop, MdhProgram, Size, Step
from mdh_core.polytope import rows_of

_WIDEST = 64  # positions of a part
_PARTS = 4  # for each thread, at least


@dataclass(frozen=True, slots=True)
class Run:
    """Neighbours ``steps[first : first + len(loop.body)]``; ``dims``: of each, the dimension that is cut."""

    first: int
    loop: HostLoop
    dims: tuple[str, ...]
    skew: Skew

    @property
    def programs(self) -> tuple[MdhProgram, ...]:
        return tuple(p for p in self.loop.body if isinstance(p, MdhProgram))


def runs_of(steps: Sequence[Step]) -> tuple[Run, ...]:
    """Of at least two programs each, outside of host loops; none overlap.

    Remembered by the identity of the steps, as every point of a search asks.
    """
    key = tuple(map(id, steps))
    if key not in _KNOWN:
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        _KNOWN[key] = tuple(steps), tuple(_runs(tuple(steps)))
    return _KNOWN[key][1]


_KNOWN: dict[tuple[int, ...], tuple[tuple[Step, ...], tuple[Run, ...]]] = {}  # the steps live as long
_MOST_KNOWN = 128


def _runs(steps: tuple[Step, ...]) -> Iterator[Run]:
    taken, first = _names(steps), 0
    while first < len(steps):
        found = None
        for end in range(first + 2, len(steps) + 1):
            longer = _run(steps, first, end, fresh("once", taken))
            if longer is None:
                break
            found = longer
        if found is not None:
            yield found
            taken.add(found.loop.iterator)
        first += 1 if found is None else len(found.loop.body)


def _names(steps: Sequence[Step]) -> set[str]:
    found: set[str] = set()
    for s in steps:
        if isinstance(s, HostLoop):
            found |= {s.iterator} | _names(s.body)
            continue
        found |= {b.name for b in s.buffers} | {q.name for q in s.params}
        if isinstance(s, MdhProgram):
            found |= {d.name for d in s.hom.dims} | {f.name for f in s.functions}
    return found


def _run(steps: tuple[Step, ...], first: int, end: int, iterator: str) -> Run | None:
    programs = [p for p in steps[first:end] if isinstance(p, MdhProgram)]
    outer = [d for p in programs for d in p.hom.dims_of("cc")[:1]]
    if len(outer) < end - first or any(d.size != outer[0].size for d in outer):
        return None
    dims = tuple(d.name for d in outer)
    loop = HostLoop(iterator, Size(Affine.number(1)), tuple(programs))
    skew = skew_in(loop, dims)
    return Run(first, loop, dims, skew) if skew is not None and skew.independent else None


def in_one_loop(
    steps: Sequence[Step], widths: Sequence[int], ahead: Sequence[bool] = ()
) -> tuple[tuple[Step, ...], dict[HostLoop, HostTiles]]:
    """``widths``: of the parts of each run; 0 leaves its programs as they are.

    ``ahead``: whether what the next part reads is fetched; missing ones are not.
    """
    new, tiles = list(steps), {}
    fetched = itertools.chain(ahead, itertools.repeat(False))
    for run, width, fetch in reversed([*zip(runs_of(steps), widths, fetched, strict=False)]):
        if width:
            new[run.first : run.first + len(run.loop.body)] = [run.loop]
            tiles[run.loop] = HostTiles(run.skew, width, None, ahead=fetch)
    return tuple(new), tiles


def usual_width(run: Run, own: Sequence[Facts], machine: Machine) -> int:
    """Positions of a part that stays in the caches of a core, with enough parts for all threads; 0: none.

    As many as the first cache holds, or a single one: the fewer, the faster, measured on softmax.  None where
    one does not fit into half of the second.
    ``own``: of each program of the run.
    """
    size = own[0].sizes[run.dims[0]]
    each = max(1.0, sum(union_of(own).values()) / max(1, size))
    if each > machine.l2 / 2:
        return 0
    return min(_WIDEST, max(1, int(machine.l1 / each)), size // (_PARTS * machine.cores))


def bytes_saved(own: Sequence[Facts], machine: Machine) -> float:
    """Bytes that do not come from memory again where a part stays in a cache.

    Of programs that may not run, alternatives for example, none are counted.
    """
    sure = [f for f in own if not _runs_perhaps(f.program)]
    moved = sum(sum(bytes_of(f).values()) for f in sure)
    once = sum(union_of(sure).values())
    return moved - once if once > machine.last else 0.0


def _runs_perhaps(program: MdhProgram) -> bool:
    """Whether a condition without an index says that a program computes anything at all."""
    found, dims = agreed(program), {d.name for d in program.hom.dims}
    if found is not None and found.once():
        return True
    return any(not r.names & dims for r in rows_of(program.hom.domain))


def union_of(own: Sequence[Facts]) -> dict[str, float]:
    """Of every buffer, the bytes that come from memory if no program reads what another one has read."""
    found: dict[str, float] = {}
    for f in own:
        for name, size in bytes_of(f).items():
            found[name] = max(size, found.get(name, 0.0))
    return found
