"""Which barriers a kernel needs: derived from who touches what, and as few as there can be.

    barriers_of(Block(threads, body, warp)) -> Barriers: position -> "block" | "warp"

before   the structure of a kernel for one block of threads: statements with what each thread touches of the
         arrays that the threads share, in sequences, loops that all threads go through alike, and guards
after    the positions (before a node of a sequence, at the end of a body) at which all threads of the block,
         or only those of each warp, wait for one another

Model.  A statement runs for all threads at once, in no order; statements of one thread run in the order of
the text.  A *dependence* is a pair of accesses of one cell by two different threads, the *owners* of source
and sink, that are not both reads and not both atomic (flow, anti and output dependences alike), with the
source's statement before the sink's, in the same iteration of the loops around or in a later one.  It is kept
if between the two at least one barrier is executed: by the whole block, or, where both owners are in one
warp, by that warp.  A barrier that only some of the threads would reach is no barrier.

Each dependence is so a set of positions of which one must be taken, and the least choice is a hitting set:
fewest executions by the block, then by warps, then fewest in the text, then the earliest places (a barrier at
the start of a loop's body finds the threads together in the first iteration).  In one sequence the sets are
intervals: leaving out what dominates and what is dominated then leaves one position for each.  Loops make it
a hitting set in general (NP-complete), of which few positions are left to branch on.

Everything is enumerated: threads, iterations, cells.  A loop whose trip count is not known stands with few
iterations.  Where what it touches repeats after p iterations, 2p of them have all pairs of distances 1 to p,
and what is further apart has more barriers between; 0 is listed where it may happen (``Loop.counts``).

Definitions: dependences and owners as in Lift's barrier insertion (reference/lift-constraints.md 2.3 X4 and
2.4), whose graph heuristic the exact enumeration replaces; what a barrier orders as in the CUDA C++
programming guide (``__syncthreads``, ``__syncwarp``).  Shown right by ``tests/test_barriers.py``: on small
programs every set of positions is tried by running the threads one by one, the derived set keeps all pairs
apart, and no set that does costs less.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from typing import Literal

Env = Mapping[str, int]
Scope = Literal["block", "warp"]


@dataclass(frozen=True, slots=True)
class Access:
    """What each thread touches of an array in one execution of a statement.

    kind      read | write | atomic
    cells     thread, iterators -> numbers of cells; iterators of its own are gone through inside
    iterators the loops around on which that depends; no others are given to ``cells``
    """

    array: str
    kind: Literal["read", "write", "atomic"]
    cells: Callable[[int, Env], Collection[int]]
    iterators: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Statement:
    name: str
    accesses: tuple[Access, ...] = ()


@dataclass(frozen=True, slots=True)
class Loop:
    """All threads go through it alike; its name is its iterator, which counts from 0.

    counts  the trip counts that are possible
    often   the trip count that costs are reckoned with; 0: the greatest possible one
    """

    name: str
    counts: tuple[int, ...]
    body: tuple[Node, ...]
    often: int = 0


@dataclass(frozen=True, slots=True)
class Guard:
    """Only some of the threads run the body: thread, iterators -> whether this one does."""

    name: str
    holds: Callable[[int, Env], bool]
    body: tuple[Node, ...]


Node = Statement | Loop | Guard


@dataclass(frozen=True, slots=True)
class Block:
    """One block of threads; names of nodes are unique.

    warp  threads that a warp barrier orders; 1: there is none
    """

    threads: int
    body: tuple[Node, ...]
    warp: int = 1


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """``before`` the node of that name, or at the ``end`` of its body."""

    place: Literal["before", "end"]
    name: str


@dataclass(frozen=True, slots=True)
class Barriers:
    """Where barriers are, and how often they are executed: by the block, by each warp."""

    at: Mapping[Position, Scope]
    cost: tuple[Fraction, Fraction, int]

    def before(self, name: str) -> Scope | None:
        return self.at.get(Position("before", name))

    def at_end(self, name: str) -> Scope | None:
        return self.at.get(Position("end", name))


class NotOrderableError(ValueError):
    """Two threads touch a cell, and no position between them can have a barrier."""


def barriers_of(block: Block) -> Barriers:
    """The least barriers that keep all dependences of a block.

    Raises ``NotOrderableError`` where there are none: threads conflict within one execution of a statement,
    or all positions between are reached by some of the threads only.
    """
    return _Derivation(block).derived()


def positions_of(block: Block) -> tuple[Position, ...]:
    """All positions in the order of the text."""

    def of(nodes: tuple[Node, ...], end: Position | None) -> Iterator[Position]:
        for node in nodes:
            yield Position("before", node.name)
            if not isinstance(node, Statement):
                yield from of(node.body, Position("end", node.name))
        if end is not None:
            yield end

    return tuple(of(block.body, None))


# --------------------------------------------------------------------------- what happens, in order


@dataclass(frozen=True, slots=True)
class _Event:
    """A statement or a position that is come to, and by whom (a bit for each thread).

    share  of the executions that costs are reckoned with
    """

    what: Statement | Position
    env: Env
    who: int
    share: Fraction


_Key = tuple[object, ...]  # a statement, who runs it, and the iterators on which its cells depend
_Footprint = dict[str, dict[int, tuple[int, int, int]]]  # array -> cell -> who reads, writes, combines


@dataclass
class _Derivation:
    block: Block
    footprints: dict[_Key, _Footprint] = field(default_factory=dict)
    conflicts: dict[tuple[_Key, _Key], tuple[bool, tuple[int, ...]]] = field(default_factory=dict)

    def derived(self) -> Barriers:
        positions = positions_of(self.block)
        number = {p: k for k, p in enumerate(positions)}
        histories = list(self._histories(self.block.body, {}, self._every, None, Fraction(1)))
        barred = [0, 0]  # positions where no barrier, and where no warp barrier may be
        for event in (e for history in histories for e in history):
            if isinstance(event.what, Statement):
                continue
            bit = 1 << number[event.what]
            if event.who != self._every:
                barred[0] |= bit
            if any((event.who & w) not in (0, w) for w in self._warps):
                barred[1] |= bit
        needs: set[frozenset[tuple[int, Scope]]] = set()
        for history in histories:
            for block, warp in self._dependences(history, number):
                need: set[tuple[int, Scope]] = {(k, "block") for k in _bits(block & ~barred[0])}
                if self.block.warp > 1:
                    need |= {(k, "warp") for k in _bits(warp & ~barred[1])}
                if not need:
                    raise NotOrderableError("threads touch a cell with no place for a barrier between")
                needs.add(frozenset(need))
        often = [Fraction(0)] * len(positions)
        longest = max(histories, key=len, default=())
        for event in longest:
            if isinstance(event.what, Position):
                often[number[event.what]] += event.share
        chosen, cost = _least(needs, often)
        return Barriers({positions[k]: scope for k, scope in sorted(chosen)}, cost)

    @property
    def _every(self) -> int:
        return (1 << self.block.threads) - 1

    @property
    def _warps(self) -> list[int]:
        """The threads of each warp."""
        n, w = self.block.threads, self.block.warp
        return [((1 << min(w, n - k)) - 1) << k for k in range(0, n, w)]

    def _histories(
        self, nodes: tuple[Node, ...], env: Env, who: int, end: Position | None, share: Fraction
    ) -> Iterator[tuple[_Event, ...]]:
        """All that can happen in a sequence: each execution of a loop may have another trip count."""
        parts: list[list[tuple[_Event, ...]]] = []
        for node in nodes:
            parts.append([(_Event(Position("before", node.name), env, who, share),)])
            match node:
                case Statement():
                    parts.append([(_Event(node, env, who, share),)])
                case Guard():
                    inside = sum(1 << t for t in _bits(who) if node.holds(t, env))
                    found = self._histories(node.body, env, inside, Position("end", node.name), share)
                    parts.append(list(found) if inside else [()])
                case Loop():
                    parts.append(list(self._of_loop(node, env, who, share)))
        if end is not None:
            parts.append([(_Event(end, env, who, share),)])
        for choice in product(*parts):
            yield tuple(event for part in choice for event in part)

    def _of_loop(self, loop: Loop, env: Env, who: int, share: Fraction) -> Iterator[tuple[_Event, ...]]:
        most = max(loop.counts)
        own = share * Fraction(loop.often or most, most) if most else share
        end = Position("end", loop.name)
        rounds = [list(self._histories(loop.body, {**env, loop.name: k}, who, end, own)) for k in range(most)]
        for count in loop.counts:
            for choice in product(*rounds[:count]):
                yield tuple(event for part in choice for event in part)

    # ----------------------------------------------------------------- dependences

    def _dependences(
        self, history: tuple[_Event, ...], number: Mapping[Position, int]
    ) -> set[tuple[int, int]]:
        """Positions between the ends of dependences: those of the block, and those of a warp.

        The second is 0 where the threads are of different warps.
        """
        found: set[tuple[int, int]] = set()
        for k, source in enumerate(history):
            if isinstance(source.what, Position):
                continue
            if self._conflict(source, source) != (False, ()):
                raise NotOrderableError(f"`{source.what.name}`: threads touch the same cell in one execution")
            block, warps = 0, [0] * len(self._warps)
            for event in history[k + 1 :]:
                if isinstance(event.what, Position):
                    bit = 1 << number[event.what]
                    block |= bit if event.who == self._every else 0
                    for w, members in enumerate(self._warps if self.block.warp > 1 else ()):
                        warps[w] |= bit if event.who & members else 0
                    continue
                across, within = self._conflict(source, event)
                if across:
                    found.add((block, 0))
                found |= {(block, warps[w]) for w in within}
        return found

    def _conflict(self, source: _Event, sink: _Event) -> tuple[bool, tuple[int, ...]]:
        """Whether threads of different warps conflict, and the warps in which two threads do."""
        first, second = self._key(source), self._key(sink)
        if (first, second) in self.conflicts:
            return self.conflicts[first, second]
        a, b = self._footprint(source, first), self._footprint(sink, second)
        pairs = set()
        for array in a.keys() & b.keys():
            for cell in a[array].keys() & b[array].keys():
                (r, w, x), (r2, w2, x2) = a[array][cell], b[array][cell]
                pairs |= {(w, r2 | w2 | x2), (r, w2 | x2), (x, r2 | w2)}
        across, within = False, set()
        warps = self._warps if self.block.warp > 1 else []
        for m, n in pairs:
            if not m or not n or (m == n and not m & (m - 1)):
                continue
            inside = [k for k, members in enumerate(warps) if m & members and n & members]
            alone = next((k for k in inside if not (m | n) & ~warps[k]), None)
            across = across or alone is None
            for k in inside:
                own = m & warps[k]
                if own != n & warps[k] or own & (own - 1):
                    within.add(k)
        self.conflicts[first, second] = across, tuple(sorted(within))
        return self.conflicts[first, second]

    def _key(self, event: _Event) -> _Key:
        assert isinstance(event.what, Statement)
        names = sorted({i for a in event.what.accesses for i in a.iterators})
        return event.what.name, event.who, *(event.env[i] for i in names)

    def _footprint(self, event: _Event, key: _Key) -> _Footprint:
        assert isinstance(event.what, Statement)
        if key in self.footprints:
            return self.footprints[key]
        found: dict[str, dict[int, list[int]]] = {}
        for access in event.what.accesses:
            env = {i: event.env[i] for i in access.iterators}
            alike: dict[Collection[int], int] = {}  # threads that touch the same cells
            for t in _bits(event.who):
                cells = access.cells(t, env)
                cells = cells if isinstance(cells, range | frozenset) else frozenset(cells)
                alike[cells] = alike.get(cells, 0) | 1 << t
            own = found.setdefault(access.array, {})
            column = ("read", "write", "atomic").index(access.kind)
            for cells, threads in alike.items():
                for cell in cells:
                    own.setdefault(cell, [0, 0, 0])[column] |= threads
        self.footprints[key] = {
            array: {cell: (r, w, x) for cell, (r, w, x) in cells.items()} for array, cells in found.items()
        }
        return self.footprints[key]


def _bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


# --------------------------------------------------------------------------- the least hitting set

_Element = tuple[int, Scope]
_Cost = tuple[Fraction, Fraction, int]


def _least(
    needs: Collection[frozenset[_Element]], often: list[Fraction]
) -> tuple[tuple[_Element, ...], _Cost]:
    """The cheapest elements of which every need has one."""

    def price(e: _Element) -> _Cost:
        n, nothing = often[e[0]], Fraction(0)
        return (n, nothing, 1) if e[1] == "block" else (nothing, n, 1)

    def total(chosen: Collection[_Element]) -> _Cost:
        parts = [price(e) for e in chosen]
        nothing = Fraction(0)
        return sum((p[0] for p in parts), nothing), sum((p[1] for p in parts), nothing), len(parts)

    best: tuple[_Cost, tuple[_Element, ...]] | None = None

    def search(left: Collection[frozenset[_Element]], chosen: tuple[_Element, ...]) -> None:
        nonlocal best
        left = _without_dominated(left, price)
        cost = total(chosen)
        if best is not None and (cost, tuple(sorted(chosen))) >= best:
            return
        if not left:
            best = cost, tuple(sorted(chosen))
            return
        tried: frozenset[_Element] = frozenset()
        first = min(left, key=_few)
        for e in sorted(first):
            rest = [need - tried for need in left if e not in need]
            if all(rest):
                search(rest, (*chosen, e))
            tried |= {e}

    search(needs, ())
    assert best is not None
    return best[1], best[0]


def _without_dominated(
    needs: Collection[frozenset[_Element]], price: Callable[[_Element], _Cost]
) -> list[frozenset[_Element]]:
    """Without needs that another one implies, and elements that another one replaces at no higher price."""
    left = set(needs)
    while True:
        before = set(left)
        left = {n for n in left if not any(m < n for m in left)}
        elements = sorted({e for n in left for e in n})
        meets = {e: frozenset(n for n in left if e in n) for e in elements}
        for e in elements:
            for f in elements:
                no_worse = meets[e] <= meets[f] and price(f) <= price(e)
                strictly = meets[e] != meets[f] or price(f) != price(e) or f < e
                if e != f and no_worse and strictly:
                    left = {n - {e} for n in left}
                    break
        if left == before:
            return sorted(left, key=_few)


def _few(need: frozenset[_Element]) -> tuple[int, list[_Element]]:
    return len(need), sorted(need)
