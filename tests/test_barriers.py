"""Derived barriers are enough and as few as possible: all other choices are tried, thread by thread."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from itertools import product

import pytest

from lowering.barriers import (
    Access,
    Barriers,
    Block,
    Env,
    Guard,
    Loop,
    Node,
    NotOrderableError,
    Position,
    Scope,
    Statement,
    barriers_of,
    positions_of,
)

# --------------------------------------------------------------------------- what barriers do, one thread at a time

Counts = Callable[[Loop, tuple[int, ...]], int]
Choice = Mapping[Position, Scope]
# a thread comes to a position, or touches a cell; with the iterations of the loops around
Step = tuple[Position, tuple[int, ...]] | tuple[str, str, int]


def _trace(nodes: tuple[Node, ...], end: Position | None, thread: int, env: Env, counts: Counts) -> Iterator[Step]:
    """What one thread does; ``counts`` tells how often it goes through a loop, as it tells all others."""
    at = tuple(env.values())
    for node in nodes:
        yield Position("before", node.name), at
        match node:
            case Statement():
                for a in node.accesses:
                    for cell in a.cells(thread, env):
                        yield a.array, a.kind, cell
            case Guard():
                if node.holds(thread, env):
                    yield from _trace(node.body, Position("end", node.name), thread, env, counts)
            case Loop():
                for k in range(counts(node, at)):
                    inner = {**env, node.name: k}
                    yield from _trace(node.body, Position("end", node.name), thread, inner, counts)
    if end is not None:
        yield end, at


def _runs(block: Block) -> list[list[list[Step]]]:
    """For all trip counts, what every thread does; the longest run is the last."""
    found: dict[tuple[object, ...], list[list[Step]]] = {}
    pending: list[dict[tuple[str, tuple[int, ...]], int]] = [{}]
    while pending:
        chosen = pending.pop()
        missing: list[tuple[Loop, tuple[int, ...]]] = []

        def counts(loop: Loop, at: tuple[int, ...]) -> int:
            if (loop.name, at) in chosen:  # noqa: B023 - called before the next round
                return chosen[loop.name, at]  # noqa: B023
            missing.append((loop, at))  # noqa: B023
            return 0

        traces = [list(_trace(block.body, None, t, {}, counts)) for t in range(block.threads)]
        if missing:
            loop, at = missing[0]
            pending += [{**chosen, (loop.name, at): n} for n in loop.counts]
        else:
            found[tuple(sorted(chosen.items()))] = traces
    return sorted(found.values(), key=lambda traces: sum(map(len, traces)))


def _is_enough(block: Block, runs: list[list[list[Step]]], choice: Choice) -> bool:
    """Whether no barrier hangs, and all conflicting accesses of two threads have a barrier between."""
    for traces in runs:
        met: list[list[tuple[object, ...]]] = []
        touched: dict[tuple[str, int], list[tuple[int, str, int, int]]] = {}
        for thread, trace in enumerate(traces):
            passed: list[tuple[object, ...]] = []
            by_block = 0
            for step in trace:
                if len(step) == 3:
                    array, kind, cell = step
                    touched.setdefault((array, cell), []).append((thread, kind, by_block, len(passed)))
                elif step[0] in choice:
                    passed.append((*step, choice[step[0]]))
                    by_block += choice[step[0]] == "block"
            met.append(passed)
        for t in range(block.threads):
            for other in range(t):
                mine, theirs = met[t], met[other]
                if t // block.warp != other // block.warp:
                    mine, theirs = ([x for x in m if x[-1] == "block"] for m in (mine, theirs))
                if mine != theirs:
                    return False
        for accesses in touched.values():
            for k, (t, kind, by_block, by_any) in enumerate(accesses):
                for t2, kind2, by_block2, by_any2 in accesses[:k]:
                    if t == t2 or (kind == kind2 and kind != "write"):
                        continue
                    same = t // block.warp == t2 // block.warp
                    if by_block == by_block2 and not (same and by_any != by_any2):
                        return False
    return True


def _price(longest: list[list[Step]], choice: Choice) -> tuple[int, int, int]:
    """Executions by the block and by warps, and barriers in the text."""
    executed = {step for trace in longest for step in trace if len(step) == 2}
    times = {scope: sum(choice.get(p) == scope for p, _ in executed) for scope in ("block", "warp")}
    return times["block"], times["warp"], len(choice)


def _choices(block: Block) -> Iterator[dict[Position, Scope]]:
    scopes: tuple[Scope | None, ...] = (None, "block", "warp") if block.warp > 1 else (None, "block")
    positions = positions_of(block)
    for chosen in product(scopes, repeat=len(positions)):
        yield {p: s for p, s in zip(positions, chosen, strict=True) if s is not None}


def _check(block: Block) -> str:
    """Compare the derivation with all other choices; what was found."""
    runs = _runs(block)
    try:
        found: Barriers | None = barriers_of(block)
    except NotOrderableError:
        found = None
    least = None
    # the cheapest first: the first one that is enough is the least
    for choice in sorted(_choices(block), key=lambda c: _price(runs[-1], c)):
        if _is_enough(block, runs, choice):
            least = choice
            break
    if found is None or least is None:
        assert found is None and least is None, (block, found, least)
        return "not orderable"
    assert _is_enough(block, runs, found.at), f"a barrier is missing: {found.at} for {block}"
    assert found.cost == _price(runs[-1], found.at)
    assert found.cost == _price(runs[-1], least), f"{found.at} costs more than {least} for {block}"
    for p in found.at:
        fewer = {q: s for q, s in found.at.items() if q != p}
        assert not _is_enough(block, runs, fewer), f"{p} is superfluous for {block}"
    if not found.at:
        return "none"
    return "warp" if set(found.at.values()) == {"warp"} else "several" if len(found.at) > 1 else "one"


# --------------------------------------------------------------------------- small programs

MAPPINGS: dict[str, Callable[[int, int], list[int]]] = {
    "own": lambda t, n: [t],
    "next": lambda t, n: [(t + 1) % n],
    "reversed": lambda t, n: [n - 1 - t],
    "neighbour": lambda t, n: [t ^ 1],
    "strided": lambda t, n: [2 * t],
    "pair": lambda t, n: [2 * t, 2 * t + 1],
    "first": lambda t, n: [0],
    "all": lambda t, n: list(range(n)),
    "within two": lambda t, n: [t - t % 2, t - t % 2 + 1],
}
MOVES: dict[str, Callable[[int], int]] = {"again": lambda k: 0, "fresh": lambda k: 8 * k, "two": lambda k: 8 * (k % 2)}
GUARDS: dict[str, Callable[[int, Env, int], bool]] = {
    "one": lambda t, env, n: t == 0,
    "half": lambda t, env, n: t < n // 2,
    "later": lambda t, env, n: sum(env.values()) > 0,
    "all": lambda t, env, n: t >= 0,
}


def _access(rng: random.Random, n: int, arrays: int, loops: tuple[str, ...], kind: str = "") -> Access:
    kind, array = kind or rng.choice(("read", "read", "write", "atomic")), f"s{rng.randrange(arrays)}"
    # most statements have no conflict of their own
    apart = [*MAPPINGS][:6] if kind == "write" and rng.random() < 0.95 else [*MAPPINGS, "within two", "neighbour"]
    of_thread = MAPPINGS[rng.choice(apart)]
    iterators = (rng.choice(loops),) if loops and rng.random() < 0.6 else ()
    move = MOVES[rng.choice(list(MOVES))]

    def cells(t: int, env: Env) -> list[int]:
        shift = move(env[iterators[0]]) if iterators else 0
        return [c + shift for c in of_thread(t, n)]

    return Access(array, kind, cells, iterators)  # type: ignore[arg-type]


def _nodes(rng: random.Random, n: int, arrays: int, left: list[int], loops: tuple[str, ...], depth: int) -> list[Node]:
    found: list[Node] = []
    for _ in range(rng.randint(1, 3)):
        if not left[0]:
            break
        roll = rng.random()
        if roll < 0.3 and depth < 2 and left[1]:
            left[1] -= 1
            name = f"k{left[1]}"
            counts = rng.choice([(2,), (1, 2), (0, 1), (0, 2), (3,), (0,)]) if not loops else rng.choice([(2,), (0, 1)])
            body = _nodes(rng, n, arrays, left, (*loops, name), depth + 1)
            found.append(Loop(name, counts, tuple(body)))
        elif roll < 0.45 and depth < 2 and left[2]:
            left[2] -= 1
            holds = GUARDS[rng.choice(list(GUARDS))]
            body = _nodes(rng, n, arrays, left, loops, depth + 1)
            found.append(Guard(f"g{left[2]}", lambda t, env, holds=holds: holds(t, env, n), tuple(body)))
        else:
            left[0] -= 1
            accesses = [_access(rng, n, arrays, loops, rng.choice(("write", "")))]
            other = _access(rng, n, arrays, loops)
            if other.array != accesses[0].array or rng.random() < 0.05:
                accesses.append(other)
            found.append(Statement(f"s{left[0]}", tuple(accesses)))
    return found


def _program(rng: random.Random) -> Block:
    n, warp = rng.choice(((2, 1), (2, 2), (3, 1), (4, 1), (4, 2), (4, 2)))
    body = _nodes(rng, n, rng.randint(1, 3), [rng.randint(2, 4), 2, 1], (), 0)
    return Block(n, tuple(body), warp)


@pytest.mark.parametrize("seed", range(4))
def test_derived_barriers_are_enough_and_least(seed: int) -> None:
    """Random structures with loops and guards, one to three arrays, several owners of cells."""
    rng = random.Random(seed)
    outcomes: dict[str, int] = {}
    tried = 0
    while tried < 250:
        block = _program(rng)
        if len(positions_of(block)) > (7 if block.warp > 1 else 9):
            continue
        tried += 1
        outcome = _check(block)
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    least = {"none": 60, "one": 30, "several": 15, "warp": 8, "not orderable": 5}
    assert all(outcomes.get(k, 0) >= n for k, n in least.items()), f"{tried} programs: {outcomes}"


def test_all_pairs_of_owners() -> None:
    """One thread writes, one reads, in a sequence and in a loop that reuses the array: every pair of mappings."""
    found: dict[str, int] = {}
    for (w, r), n, looped, warp in product(product(MAPPINGS, repeat=2), (2, 3, 4), (False, True), (1, 2)):
        write, read = MAPPINGS[w], MAPPINGS[r]
        body: tuple[Node, ...] = (
            Statement("f", (Access("s", "write", lambda t, _, n=n, write=write: write(t, n)),)),
            Statement("g", (Access("s", "read", lambda t, _, n=n, read=read: read(t, n)),)),
        )
        outcome = _check(Block(n, (Loop("k", (2,), body),) if looped else body, warp))
        found[outcome] = found.get(outcome, 0) + 1
    assert sum(found.values()) == 4 * 3 * 81, found
    assert min(found.values()) > 10 and set(found) == {"none", "one", "several", "warp", "not orderable"}, found


def test_a_missing_barrier_is_noticed() -> None:
    """The oracle is none if it accepts anything: without one of its barriers, no derived choice is enough."""
    rng, dropped = random.Random(9), 0
    while dropped < 200:
        block = _program(rng)
        try:
            found = barriers_of(block)
        except NotOrderableError:
            continue
        runs = _runs(block)
        for p in found.at:
            assert not _is_enough(block, runs, {q: s for q, s in found.at.items() if q != p})
            dropped += 1


# --------------------------------------------------------------------------- programs with a known answer

N = 4


def _own(array: str, kind: str, *iterators: str) -> Access:
    """Each thread its own cell; with an iterator, another row of cells in each iteration."""

    def cells(t: int, env: Env) -> range:
        first = t + sum(N * env[i] for i in iterators)
        return range(first, first + 1)

    return Access(array, kind, cells, iterators)  # type: ignore[arg-type]


def _every(array: str, kind: str, *iterators: str) -> Access:
    """Each thread all cells."""

    def cells(t: int, env: Env) -> range:
        first = sum(N * env[i] for i in iterators)
        return range(first, first + N)

    return Access(array, kind, cells, iterators)  # type: ignore[arg-type]


def _found(*body: Node, threads: int = N, warp: int = 1) -> dict[str, Scope]:
    block = Block(threads, body, warp)
    if len(positions_of(block)) <= 8:
        _check(block)
    return {f"{p.place} {p.name}": s for p, s in barriers_of(block).at.items()}


def test_reused_in_each_iteration() -> None:
    """seq i { lcl j: buf = f; seq j: g(buf) }: between, and before what was read is written again."""
    body = Statement("f", (_own("buf", "write"),)), Statement("g", (_every("buf", "read"),))
    assert _found(Loop("i", (2,), body)) == {"before f": "block", "before g": "block"}


def test_another_buffer_in_each_iteration() -> None:
    body = Statement("f", (_own("buf", "write", "i"),)), Statement("g", (_every("buf", "read", "i"),))
    assert _found(Loop("i", (3,), body)) == {"before g": "block"}


def test_partial_groups() -> None:
    """lcl(1) i { lcl(0) j: f; seq j: lcl(0) l: g } where i is there for some threads only: no barrier can be."""

    def there(t: int, env: Env) -> bool:
        return 2 * env["i"] + t // 2 < 3

    def row(t: int, env: Env) -> range:
        first = 2 * (t // 2)
        return range(first, first + 2)

    f, g = Statement("f", (_own("buf", "write"),)), Statement("g", (Access("buf", "read", row),))
    with pytest.raises(NotOrderableError):
        _found(Loop("i", (2,), (Guard("there", there, (f, g)),)))
    # guards within a loop that all go through alike
    alike = Guard("there_f", there, (f,)), Guard("there_g", there, (g,))
    assert len(_found(Loop("i", (2,), alike))) == 2
    # threads of a row in one warp
    assert set(_found(Loop("i", (2,), alike), warp=2).values()) == {"warp"}
    assert set(_found(Loop("i", (2,), (Guard("there", there, (f, g)),)), warp=2).values()) == {"warp"}


def test_two_loops_of_the_same_owners() -> None:
    """seq i {lcl j: f}; seq i {lcl j: g}: each thread reads what it has written."""
    f = Loop("i", (2,), (Statement("f", (_own("buf", "write", "i"),)),))
    g = Loop("k", (2,), (Statement("g", (_own("buf", "read", "k"),)),))
    assert _found(f, g) == {}


def test_hoisted() -> None:
    """seq i {lcl j: f}; lcl i {seq j: g}: one barrier between the nests, none inside."""
    f = Loop("i", (3,), (Statement("f", (_own("buf", "write", "i"),)),))
    g = Loop("j", (3,), (Statement("g", (Access("buf", "read", lambda t, e: [N * t % 3 + e["j"]], ("j",)),)),))
    assert _found(f, g) == {"before j": "block"}
    around = _found(Loop("k", (2,), (f, g)))
    assert len(around) == 2 and around["before j"] == "block"


def test_one_barrier_for_two_copies() -> None:
    """The one behind both copies does; and none is needed in front of the first chunk's."""
    copies = Statement("A", (_own("A", "write"),)), Statement("B", (_own("B", "write"),))
    part = Statement("part", (_every("A", "read"), _every("B", "read")))
    assert _found(*copies, part) == {"before part": "block"}
    assert _found(Loop("k", (2,), (*copies, part))) == {"before A": "block", "before part": "block"}
    # A is copied once: the barrier behind B in the loop serves it, too
    assert _found(copies[0], Loop("k", (2,), (copies[1], part))) == {"before B": "block", "before part": "block"}
    # the loop may be empty, but then nothing is read in it
    assert len(_found(copies[0], Loop("k", (0, 2), (copies[1], part)))) == 2


def test_two_buffers_in_turn() -> None:
    """Double buffering needs one barrier for each chunk: the other buffer is free when it comes."""

    def turn(of: Callable[[int], range], kind: str, offset: int = 0) -> Access:
        def cells(t: int, env: Env) -> list[int]:
            return [c + N * ((env["k"] + offset) % 2) for c in of(t)]

        return Access("A", kind, cells, ("k",))  # type: ignore[arg-type]

    first = Statement("first", (_own("A", "write"),))
    part = Statement("part", (turn(lambda t: range(N), "read"),))
    ahead = Statement("ahead", (turn(lambda t: range(t, t + 1), "write", 1),))
    for body in ((ahead, part), (part, ahead)):
        assert list(_found(first, Loop("k", (4,), body)).values()) == ["block"]
        assert barriers_of(Block(N, (first, Loop("k", (4,), body)))).cost[0] == 4


def _tree(several: int, most: int) -> Loop:
    """Steps of a reduction in a tree: thread t takes what thread t + step has."""
    steps = []
    while most:
        steps.append(most)
        most //= 2

    def runs(t: int, env: Env) -> bool:
        return t < steps[env["step"]] and t + steps[env["step"]] < several

    own = Access("acc", "write", lambda t, e: [t] if runs(t, e) else [], ("step",))
    other = Access("acc", "read", lambda t, e: [t + steps[e["step"]]] if runs(t, e) else [], ("step",))
    return Loop("step", (len(steps),), (Statement("combine", (other, own)),))


def test_steps_of_a_tree() -> None:
    """One barrier for each step, before it: thread 0 reads the result that it has itself written."""
    put = Statement("put", (_own("acc", "write"),))
    take = Statement("take", (Access("acc", "read", lambda t, e: [0] * (t == 0)),))
    assert _found(put, _tree(8, 4), take, threads=8) == {"before combine": "block"}
    assert _found(put, _tree(8, 4), take, threads=8, warp=8) == {"before combine": "warp"}
    # several cells one after the other: what thread 1 has put for the last one has been read
    again = _found(Loop("cell", (2,), (put, _tree(8, 4), take)), threads=8)
    assert again == {"before put": "block", "before combine": "block"}
    assert _found(put, _tree(1, 0), take, threads=1) == {}


def test_atomic_accesses_do_not_conflict() -> None:
    """Private copies of a histogram: cleared, counted into by all, read by the one that adds them up."""
    clear, count = Statement("clear", (_own("h", "write"),)), Statement("count", (_every("h", "atomic"),))
    add = Statement("add", (_own("h", "read"),))
    assert _found(clear, Loop("k", (2,), (count,)), add) == {"before k": "block", "before add": "block"}


def test_conflicts_within_one_statement_are_told() -> None:
    with pytest.raises(NotOrderableError, match="`f`"):
        barriers_of(Block(2, (Statement("f", (Access("s", "write", lambda t, e: [0]),)),)))


def test_many_statements() -> None:
    """Intervals in one sequence: as many barriers as pairwise disjoint ones, in no time."""
    n = 40
    body = tuple(Statement(f"s{k}", (_every(f"a{k // 2 % 5}", "read" if k % 2 else "atomic"),)) for k in range(n))
    assert len(barriers_of(Block(N, body)).at) == n // 2
