"""The structure of a ``GpuNest``'s kernel, as ``lowering.barriers`` wants it: who touches which shared cell.

    around0: inside0: ...                   loops that all threads go through together
      copy_A ...                            thread t writes vectors t, t + unit, ... of each copy
      part                                  each thread reads what its points need of the copies
      copy_A ...                            here instead, if they were read ahead; the loop begins one
                                            iteration early, without the part
    cell:                                   the cells of the local tile, one after the other
      put; step: combine; take              the threads' parts of a cell, combined in a tree
      put; take                             or by shuffles: those of several warps

A loop that may have any number of iterations has at least one, and touches the same cells in each: two stand
for all of them.  Of loops with nothing between them only the innermost matters: a barrier in its body is met
by whatever the outer ones carry, too; and loops around nothing but the part carry nothing, as it only reads.
Points at the border that a thread leaves out are taken to be there.  Shown right by running the emitted
kernels where races are found (``tests/test_gpu.py``), with each of the barriers left out, too.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Collection
from dataclasses import replace

from lowering.barriers import Access, Barriers, Block, Env, Loop, Node, Statement, barriers_of
from lowering.gpu import GpuNest, SharedTile, split_of
from lowering.loops import Loop as NestLoop
from lowering.loops import loop_range

MANY = 64  # iterations that a loop is taken to have whose trip count is not known


@functools.lru_cache(maxsize=64)
def barriers_of_nest(nest: GpuNest, warp: int, shuffled: bool = False) -> Barriers:
    """Where the kernel of a nest has barriers.

    ``warp``: threads that run together, 1: none do.  ``shuffled``: the lanes of a warp combine their parts
    of a cell in registers.
    """
    kept = {d.name for d in nest.program.hom.dims_of("cc")}
    if nest.program.hom.function is None:
        return barriers_of(Block(nest.unit, (), warp))
    split = split_of(nest)
    ahead = f"inside{split - 1}" if any(t.ahead for t in nest.tiles) else ""
    body: tuple[Node, ...] = (Statement("part", tuple(_reads(nest, t, ahead) for t in nest.tiles)),)
    outermost = {"part": "part"}  # of nodes: the loop in front of which it is in the text
    for k in reversed(range(split + 1)):
        copies = [Statement(f"copy_{t.buffer}", (_writes(nest, t),)) for t in nest.tiles if t.at == k]
        if k == split and ahead:
            trips = min(nest.inside[k - 1].count or 2, 2) + 1
            body = (Loop(ahead, (trips,), (*body, *copies), (nest.inside[k - 1].count or MANY) + 1),)
            outermost[ahead] = ahead
            continue
        if k < split and f"inside{k}" != ahead:
            body = _within(f"inside{k}", nest.inside[k], body, outermost)
        body = (*copies, *body)
    if any(x.dim not in kept for x in nest.threads):
        cells = math.prod(x.count or 1 for x in nest.inside[nest.reduced :])
        tree = _warps(nest, kept, warp) if shuffled else _tree(nest, kept)
        if tree:
            body = (*body, Loop("cell", (min(cells, 2),), tree, cells)) if cells > 1 else (*body, *tree)
    for k in reversed(range(len(nest.around))):
        body = _within(f"around{k}", nest.around[k], body, outermost)
    found = barriers_of(Block(nest.unit, body, warp))
    at = {
        replace(p, name=outermost.get(p.name, p.name)) if p.place == "before" else p: scope
        for p, scope in found.at.items()
    }
    return replace(found, at=at)


def _within(
    name: str, loop: NestLoop, body: tuple[Node, ...], outermost: dict[str, str]
) -> tuple[Node, ...]:
    """A loop around a body, as far as it matters."""
    if len(body) == 1 and body[0].name in outermost:
        outermost[body[0].name] = name
        return body
    outermost[name] = name
    return (Loop(name, (min(loop.count or 2, 2),), body, loop.count or MANY),)


def _writes(nest: GpuNest, tile: SharedTile) -> Access:
    """A thread copies every ``unit``-th vector, counted with the last dimension fastest.

    A swizzle puts every cell into a place of its own, so that which cells are the same does not depend on it.
    """
    places = [0]
    for extent, stride in zip(tile.extents, tile.strides, strict=True):
        places = [p + k * stride for p in places for k in range(extent)]
    own: list[set[int]] = [set() for _ in range(nest.unit)]
    for k, place in enumerate(places):
        own[k // tile.vector % nest.unit].add(place)
    found = [frozenset(cells) for cells in own]
    return Access(tile.buffer, "write", lambda t, _: found[t])


def _reads(nest: GpuNest, tile: SharedTile, ahead: str) -> Access:
    """What a thread's points read: its own part of each index, times the strides of the copy.

    ``ahead``: the loop whose first iteration has no part; empty: each has.
    """
    if nest.instruction:  # its lanes may read what belongs to others' points
        every = frozenset(range(tile.cells))
        return _from_second(Access(tile.buffer, "read", lambda t, _: every), ahead)
    accesses = [a for a in nest.program.inp.accesses if a.buffer == tile.buffer]
    dims = {d.name: d for d in nest.program.hom.dims}
    span_loops = [*nest.threads, *nest.inside[tile.at :]]
    first = 0  # of the box, in elements of the copy
    strides = dict.fromkeys(dims, 0)  # of the copy, between neighbours in a dimension
    for t, stride in enumerate(tile.strides):
        first -= min(a.index[t].const for a in accesses) * stride
        for d, c in accesses[0].index[t].terms:
            if d not in dims:
                continue
            span = loop_range(span_loops, d, dims[d].size.constant) or 1
            first += -c * (span - 1) * stride if c < 0 else 0
            strides[d] += c * stride
    firsts = [
        first + sum(i.const * stride for i, stride in zip(a.index, tile.strides, strict=True))
        for a in accesses
    ]
    private = [x for x in nest.inside[split_of(nest) :] if strides[x.dim]]
    moves = [range(0, (x.count or 1) * x.size * strides[x.dim], x.size * strides[x.dim]) for x in private]
    offsets = {sum(move) + at for move in itertools.product(*moves) for at in firsts}

    @functools.cache
    def from_place(place: int) -> frozenset[int]:
        return frozenset(place + at for at in offsets)

    def cells(t: int, _: Env) -> frozenset[int]:
        place = 0
        for loop in reversed(nest.threads):
            t, digit = divmod(t, loop.count or 1)
            place += digit * loop.size * strides[loop.dim]
        return from_place(place)

    return _from_second(Access(tile.buffer, "read", cells), ahead)


def _from_second(access: Access, loop: str) -> Access:
    """An access that the first iteration of a loop does not have."""
    if not loop:
        return access

    def cells(t: int, env: Env) -> Collection[int]:
        return access.cells(t, env) if env[loop] else ()

    return Access(access.array, access.kind, cells, (*access.iterators, loop))


def _warps(nest: GpuNest, kept: set[str], warp: int) -> tuple[Node, ...]:
    """The first lane of each warp puts what the warp has found; the first warp of a cell's takes all."""
    several = math.prod(x.count or 1 for x in nest.threads if x.dim not in kept)
    warps = several // warp
    if warps < 2:
        return ()

    def puts(t: int, _: Env) -> range:
        return range(t // warp, t // warp + (t % several % warp == 0))

    def takes(t: int, _: Env) -> range:
        number = t % several
        at = t // warp + number % warps
        return range(at, at + (number < warp))

    return (
        Statement("put", (Access("acc", "write", puts),)),
        Statement("take", (Access("acc", "read", takes),)),
    )


def _tree(nest: GpuNest, kept: set[str]) -> tuple[Node, ...]:
    several = math.prod(x.count or 1 for x in nest.threads if x.dim not in kept)
    others = nest.unit // several
    fastest = nest.threads[-1].dim not in kept
    stride = 1 if fastest else others
    steps = [1 << k for k in reversed(range((several - 1).bit_length()))]

    def number(t: int) -> int:
        return t % several if fastest else t // others

    def combines(t: int, env: Env) -> bool:
        return number(t) < steps[env["step"]] and number(t) + steps[env["step"]] < several

    def own(t: int, env: Env) -> range:
        return range(t, t + combines(t, env))

    def other(t: int, env: Env) -> range:
        at = t + steps[env["step"]] * stride
        return range(at, at + combines(t, env))

    combine = Statement(
        "combine", (Access("acc", "read", other, ("step",)), Access("acc", "write", own, ("step",)))
    )
    return (
        Statement("put", (Access("acc", "write", lambda t, _: range(t, t + 1)),)),
        Loop("step", (len(steps),), (combine,)),
        Statement("take", (Access("acc", "read", lambda t, _: range(t, t + (number(t) == 0))),)),
    )
