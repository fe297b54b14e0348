"""Host loops at given parameters: sizes of the programs inside, how often they run, how much work it is.

Sizes may differ from iteration to iteration.  Choices (the cost model, sizes to try) are made at one
iteration that stands for all; how much work there is, is an average.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from emit.host_text import Leaf, Loops, leaves
from mdh_core.expr import Binary, Declare, If, Stmt, Var, While
from mdh_core.ir import HostLoop, MdhProgram, Sequential, Size, Step
from mdh_lift.uses import interval

_SAMPLES = 4  # iterations of a loop that are looked at


def iterators_of(steps: Sequence[Step]) -> set[str]:
    return {loop.iterator for _, loops in leaves(steps) for loop in loops}


def placed(steps: Sequence[Step]) -> list[tuple[MdhProgram, Loops]]:
    """The programs in the order of the text, each with the host loops around it."""
    return [(p, loops) for p, loops in leaves(steps) if isinstance(p, MdhProgram)]


def together(steps: Sequence[Step]) -> list[list[int]]:
    """The numbers of the programs that a host loop runs one after the other, where there are several."""
    found: dict[int, list[int]] = {}
    for k, (_, loops) in enumerate(placed(steps)):
        if loops:
            found.setdefault(id(loops[-1]), []).append(k)
    return [numbers for numbers in found.values() if len(numbers) > 1]


def all_sizes(p: MdhProgram, loops: Loops) -> list[Size]:
    """Of the dimensions and of the host loops around them."""
    return [*(d.size for d in p.hom.dims), *(x.size for x in loops)]


def extents(leaf: Leaf, loops: Loops, params: Mapping[str, int]) -> list[int]:
    """Of the dimensions and of the host loops around them, at an iteration that stands for all; not empty."""
    env = _representative(leaf, loops, params)
    found = [x.size.evaluate(env) for x in loops]
    return [1, *found, *(leaf.sizes(env).values() if isinstance(leaf, MdhProgram) else ())]


def _representative(leaf: Leaf, loops: Loops, params: Mapping[str, int]) -> dict[str, int]:
    """The parameters with iterators at a third or two thirds of their ranges, where there are more points."""
    found = []
    for shares in itertools.product((2, 1), repeat=len(loops)):
        env = dict(params)
        for loop, share in zip(loops, shares, strict=True):
            env[loop.iterator] = max(0, share * loop.size.evaluate(env) // 3)
        found.append(env)
    return max(found, key=functools.partial(_points, leaf))


def sizes_at(steps: Sequence[Step], params: Mapping[str, int]) -> tuple[dict[str, int], ...]:
    """Extents of the dimensions, one dict per program, at iterations that stand for all."""
    return tuple(p.sizes(_representative(p, loops, params)) for p, loops in placed(steps))


def host_loops(
    steps: Sequence[Step], params: Mapping[str, int]
) -> Iterator[tuple[HostLoop, int]]:
    """All host loops in the order of the text, each with its iterations in the middle of those around it."""
    env = dict(params)
    for s in steps:
        if isinstance(s, HostLoop):
            n = max(0, s.size.evaluate(env))
            yield s, n
            yield from host_loops(s.body, env | {s.iterator: n // 2})


def runs(steps: Sequence[Step], params: Mapping[str, int]) -> tuple[float, ...]:
    """How often each program runs, on average over what depends on outer iterators."""
    return tuple(
        _over_iterations(loops, dict(params), lambda env: 1.0) for _, loops in placed(steps)
    )


def points(steps: Sequence[Step], params: Mapping[str, int]) -> float:
    """Points of all programs in all iterations, about, with loops inside of scalar functions and of parts
    that stay sequential."""
    return sum(
        _over_iterations(loops, dict(params), functools.partial(_points, leaf))
        for leaf, loops in leaves(steps)
    )


def works(steps: Sequence[Step], params: Mapping[str, int]) -> tuple[float, ...]:
    """Points of each program in all iterations, about."""
    return tuple(
        _over_iterations(loops, dict(params), functools.partial(_points, p)) for p, loops in placed(steps)
    )


def _points(leaf: Leaf, env: dict[str, int]) -> float:
    ranges = {name: (n, n) for name, n in env.items()}
    if isinstance(leaf, Sequential):
        return _repeated(leaf.body, ranges)
    sizes = leaf.sizes(env)
    ranges |= {name: (0, n - 1) for name, n in sizes.items()}
    points = float(math.prod(sizes.values()))
    return points * _repeated(leaf.hom.scalar.body, ranges) if points else 0.0


def _repeated(body: Sequence[Stmt], ranges: dict[str, tuple[int, int]]) -> float:
    """How often the innermost loops of statements run, about; those whose ends are not known count as once.

    ``ranges``: of what the ends of loops depend on.  Loops count from a variable's first value to a bound.
    """
    most, known = 1.0, dict(ranges)
    for s in body:
        match s:
            case Declare(name=name, value=value) if value is not None:
                if (found := interval(value, known)) is not None:
                    known[name] = found
            case If(then=then, other=other):
                most = max(most, _repeated(then, known), _repeated(other, known))
            case While(cond=cond, body=inner):
                trips, inside = 1.0, known
                if isinstance(cond, Binary) and cond.op in ("<", "<=", ">", ">="):
                    ends = interval(cond.a, known), interval(cond.b, known)
                    if ends[0] is not None and ends[1] is not None:
                        trips = max(1.0, abs(sum(ends[1]) - sum(ends[0])) / 2)
                        if isinstance(cond.a, Var):  # loops inside may begin or end at what this one counts
                            both = ends[0] + ends[1]
                            inside = known | {cond.a.name: (min(both), max(both))}
                most = max(most, trips * _repeated(inner, inside))
            case _:
                pass
    return most


def _over_iterations(
    loops: Loops, env: dict[str, int], value: Callable[[dict[str, int]], float]
) -> float:
    """The sum of a value over all iterations, from a few of them."""
    if not loops:
        return value(env)
    n = loops[0].size.evaluate(env)
    if n <= 0:
        return 0.0
    seen = min(n, _SAMPLES)
    chosen = [(2 * k + 1) * n // (2 * seen) for k in range(seen)]
    inner = [_over_iterations(loops[1:], env | {loops[0].iterator: t}, value) for t in chosen]
    return n * sum(inner) / seen


def chain(steps: Sequence[Step], params: Mapping[str, int]) -> int:
    """How many operations in a row may add their errors to one value, at most.

    Those of a reduction or scan; those of all steps, as each may use what the one before it computed; and
    all that once per iteration of a host loop.
    """
    length = 0
    for s in steps:
        match s:
            case MdhProgram():
                extents = s.sizes(dict(params))
                length += max(1, math.prod(extents[d.name] for d in s.hom.dims_of("pw", "ps")))
            case HostLoop(iterator=t, size=size, body=body):
                n = size.evaluate(dict(params))
                ends = {0, n - 1} if n > 0 else ()  # sizes are affine
                length += max((n * chain(body, {**params, t: k}) for k in ends), default=0)
            case Sequential():
                length += 1
    return max(1, length)
