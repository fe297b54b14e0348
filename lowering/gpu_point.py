"""A point of a GPU's search space as a configuration, the space, and the choice without a search.

    fast          concatenated or reduced dimension whose neighbours are neighbouring threads
    threads_<d>   threads of a block in a dimension; of a reduced one, they combine what each has found
    rows_<d>      neighbouring cells of one thread (cc), points that are written out (pw)
    groups_<d>    how many times that in one thread, a block's threads apart (cc)
    chunk_<d>     points of a reduced dimension that a block has in shared memory, or goes through, at once
    part_<d>      0, or points of a reduced dimension in a part: parts are on different blocks
    share_<b>     1: an input is copied to shared memory
    turn_<b>      1: neighbours in the register tile are side by side in the copy
    pad_<b>       elements behind each row of the copy
    swizzle_<b>   "bits,base,shift": where the cells of the copy are (lowering.swizzle)
    vector_<b>    neighbours that are copied with one instruction
    instruction   row of lowering.instructions that computes the innermost part, where it fits
    stages        2: what is copied next is read while the current copies are used
    resident      blocks that a multiprocessor should have room for: with more, a thread has fewer registers
    private       no | block | thread: whose own cells a histogram's points are combined into
    copies        how many such copies there are

Layers of the models CUDA and OpenCL, by dimension, outermost first:

    cc            blocks (SMX), groups (SM), threads (CC), rows (RM), one part (DM)
    pw            chunks (DM), inside of a chunk (SM), rows (RM), threads (CC), one part (SMX)
    pw in parts   parts (SMX), chunks (DM), rows (RM), threads (CC), one part (SM)

What a configuration has beyond these choices is built in: D1 = S1 = R1, D2 = S2 = R2 (mdh.md 7).
"""

from __future__ import annotations

import math
from dataclasses import replace

from lowering.device import Device
from lowering.facts import Facts, facts, packable, read_dims, store_strides, strides
from lowering.gpu_histogram import histogram_default, histogram_space, with_copies
from lowering.histogram import one_hot
from lowering.machine import SystemModel
from lowering.parameters import (
    Configuration,
    Layout,
    Level,
    identity_layout,
    input_buffers,
    make,
    reassociates,
)
from lowering.point import Point
from lowering.space import Space
from lowering.swizzle import read_swizzle
from mdh_core.ir import MdhProgram

GLOBAL, SHARED, PRIVATE, BLOCKS, THREADS = range(5)  # layers of the models, in their order
_OF_CC = (BLOCKS, SHARED, THREADS, PRIVATE, GLOBAL)
_OF_PW = (GLOBAL, SHARED, PRIVATE, THREADS, BLOCKS)
_OF_PARTS = (BLOCKS, GLOBAL, PRIVATE, THREADS, SHARED)
_MANY = 1 << 12  # points of a reduction that are worth several threads
NONE = "0,0,0"  # the swizzle that is none
SWIZZLES = ("2,2,3", "3,2,5")
_FEW_BLOCKS = 2  # per multiprocessor: with fewer, reductions are shared
FULL = 32  # registers of a thread where a multiprocessor has as many threads as it can


def gpu_configuration(
    program: MdhProgram, model: SystemModel, sizes: dict[str, int], point: Point
) -> Configuration:
    """The fifteen tuning parameters; what the point lacks has its plainest value."""
    names = [d.name for d in program.hom.dims]
    kinds = [op.kind for op in program.hom.combine]
    fast = str(point.get("fast", names[-1] if names else ""))
    parts = [[1] * len(names) for _ in range(model.depth)]
    layers = []
    for k, (d, kind) in enumerate(zip(names, kinds, strict=True)):
        threads, rows = _value(point, "threads", d), _value(point, "rows", d)
        if kind == "cc":
            layers.append(_OF_CC)
            parts[1][k], parts[2][k], parts[3][k] = _value(point, "groups", d), threads, rows
            continue
        part, chunk = int(point.get(f"part_{d}", 0)), _value(point, "chunk", d)
        inner = threads * rows
        layers.append(_OF_PARTS if part else _OF_PW)
        parts[2][k], parts[3][k] = rows, threads
        parts[1][k] = max(1, -(-part // inner)) if part else max(1, chunk // inner)
    # the last dimension of the machine is the fastest
    rank = sorted(range(len(names)), key=lambda k: names[k] == fast)
    place = {k: x for x, k in enumerate(rank)}
    assign = tuple(
        tuple((layers[k][layer], place[k]) for k in range(len(names))) for layer in range(model.depth)
    )
    order: list[Level] = [(0, k) for k in range(len(names)) if kinds[k] == "cc"]
    order += [(0, k) for k in range(len(names)) if kinds[k] != "cc"]
    for layer in range(1, model.depth):
        order += [(layer, k) for k in range(len(names)) if kinds[k] != "cc"]
        order += [(layer, k) for k in range(len(names)) if kinds[k] == "cc"]
    inside = order[len(names)] if names else None
    memory: dict[str, tuple[int, Level, Layout]] = {}
    for b in input_buffers(program):
        if point.get(f"share_{b}", 0) and inside is not None:
            layout = identity_layout(program, b)
            memory[b] = (SHARED, inside, _turned(program, b, point) if point.get(f"turn_{b}", 0) else layout)
    reduced = next((level for level in order if kinds[level[1]] == "pw"), None)
    pads = tuple((b, int(point.get(f"pad_{b}", 0))) for b in memory if point.get(f"pad_{b}", 0))
    table = tuple(map(tuple, parts))
    vectors = tuple((b, n) for b in memory if (n := _number(point, f"vector_{b}")) > 1)
    c = make(program, model, table, tuple(order), assign, memory, reduced, padding=pads)
    swizzles = [(b, read_swizzle(str(point[f"swizzle_{b}"]))) for b in memory if f"swizzle_{b}" in point]
    swizzle = tuple((b, (s.bits, s.base, s.shift)) for b, s in swizzles if s.bits)
    c = replace(c, swizzle=swizzle, instruction=str(point.get("instruction", "")))
    c = replace(c, vectors=vectors, stages=_number(point, "stages"), resident=_number(point, "resident"))
    return with_copies(c, program, point, BLOCKS) if one_hot(program) is not None else c


def _turned(program: MdhProgram, buffer: str, point: Point) -> Layout:
    """The layout in which the coordinate of a thread's neighbouring cells is the last one."""
    access = next(a for a in program.inp.accesses if a.buffer == buffer)

    def cells(t: int) -> int:
        kept = [n for n in access.index[t].names if any(n == d.name for d in program.hom.dims_of("cc"))]
        return max((_value(point, "rows", d) for d in kept), default=0)

    return tuple(sorted(range(len(access.index)), key=cells))


def _number(point: Point, name: str) -> int:
    return max(1, int(point.get(name, 1)))


def _value(point: Point, word: str, d: str) -> int:
    return _number(point, f"{word}_{d}")


# --------------------------------------------------------------------------- the choice without a search


def gpu_default(program: MdhProgram, device: Device, sizes: dict[str, int]) -> Point:
    """A point for given sizes: from the shape of the accesses alone."""
    f = facts(program, sizes)
    if f.ps or not f.sizes:
        return {}
    if one_hot(program) is not None:
        return histogram_default(f, device)
    cells = math.prod(f.sizes[d] for d in f.cc)
    points = math.prod(f.sizes[d] for d in f.pw)
    enough = _FEW_BLOCKS * device.processors * 128
    may_share = f.pw and not (program.fp == "exact" and reassociates(program))
    if may_share and cells < enough and points >= 64:
        return _shared_reduction(f, device, cells)
    if not f.cc:
        return {"fast": f.pw[-1]}
    fast = _fastest(f, f.cc)
    tile = _reused(f, fast)
    if f.pw and tile is not None and f.sizes[tile] >= 16 and f.sizes[fast] >= 16 and points >= 8:
        return _tiled(f, device, fast, tile)
    point: Point = {"fast": fast}
    unit = min(device.block_threads, 256)
    wide = min(_up_to(f.sizes[fast]), 32 if len(f.cc) > 1 else unit)
    point[f"threads_{fast}"] = wide
    for d in reversed([d for d in f.cc if d != fast]):
        n = min(_up_to(f.sizes[d]), unit // wide, 8)
        if n > 1:
            point[f"threads_{d}"] = n
            break
    return point


def _up_to(n: int) -> int:
    """The least power of two that is not less."""
    return 1 << max(0, (n - 1).bit_length())


def _fastest(f: Facts, dims: tuple[str, ...]) -> str:
    """The dimension in which most of what is read and written lies side by side."""

    def side_by_side(d: str) -> tuple[int, int]:
        found = [s for _, s in strides(f, d)] + 2 * list(store_strides(f, d))
        return sum(s == 1 for s in found), f.sizes[d]

    return max(dims, key=side_by_side) if dims else ""


def _reused(f: Facts, fast: str) -> str | None:
    """The other dimension of a register tile: some input does not depend on it, and some not on ``fast``."""
    buffers = input_buffers(f.program)
    if all(fast in read_dims(f, b) for b in buffers):
        return None
    others = [d for d in f.cc if d != fast and any(d not in read_dims(f, b) for b in buffers)]
    return max(others, key=lambda d: f.sizes[d]) if others else None


def _shared_reduction(f: Facts, device: Device, cells: int) -> Point:
    """Threads, and where there are too few cells blocks, share what a cell combines."""
    inner = _fastest(f, f.pw)
    across = _fastest(f, f.cc) if f.cc else ""
    side_by_side = any(s == 1 for _, s in strides(f, inner)) or not f.cc
    point: Point = {"fast": inner if side_by_side else across}
    unit = min(device.block_threads, 256)
    if side_by_side:
        wide = min(_up_to(f.sizes[inner]), unit)
        point[f"threads_{inner}"] = wide
        if f.cc and wide < unit:
            point[f"threads_{across}"] = min(unit // wide, _up_to(f.sizes[across]))
    else:
        wide = min(32, _up_to(f.sizes[across]))
        point[f"threads_{across}"] = wide
        point[f"threads_{inner}"] = min(unit // wide, _up_to(f.sizes[inner]))
    own = int(point[f"threads_{inner}"])
    blocks = max(1, cells // max(1, int(point.get(f"threads_{across}", 1))))
    wanted = _FEW_BLOCKS * device.processors // blocks
    if wanted > 1 and f.sizes[inner] >= _MANY:
        part = max(8 * own, -(-f.sizes[inner] // (wanted * own)) * own)
        if part < f.sizes[inner]:
            point[f"part_{inner}"] = part
    return point


def _tiled(f: Facts, device: Device, fast: str, other: str) -> Point:
    """A register tile and copies in shared memory, as large as leaves work for every multiprocessor."""
    inner = _fastest(f, f.pw)
    point: Point = {"fast": fast, f"threads_{fast}": 16, f"threads_{other}": 16}
    rest = math.prod(f.sizes[d] for d in f.cc if d not in (fast, other))
    for rows in (8, 4, 2, 1):
        width = 16 * rows
        blocks = rest * -(-f.sizes[fast] // width) * -(-f.sizes[other] // width)
        if blocks >= device.processors or rows == 1:
            break
    for d in (fast, other):
        if rows >= 4:
            point[f"rows_{d}"], point[f"groups_{d}"] = 4, rows // 4
        else:
            point[f"rows_{d}"] = rows
    depth = 8  # of a copy: what is read ahead has its registers
    point[f"chunk_{inner}"] = point[f"rows_{inner}"] = min(depth, _up_to(f.sizes[inner]))
    for b in input_buffers(f.program):
        if packable(f, b) and f.program.buffer(b).rank:
            point[f"share_{b}"] = 1
            if _turned(f.program, b, point) != identity_layout(f.program, b):
                point[f"turn_{b}"], point[f"pad_{b}"] = 1, 4
            point[f"vector_{b}"] = 16 // max(f.element, 4)
            point["stages"] = 2
    point["resident"] = 2
    return point


# --------------------------------------------------------------------------- the space


def gpu_space(program: MdhProgram, device: Device, sizes: dict[str, int]) -> Space:
    """The points worth trying; the default is one of them.  Constraints are those of the device."""
    f = facts(program, sizes)
    chosen = gpu_default(program, device, sizes)
    if not chosen:
        return Space(())
    if "private" in chosen:
        return histogram_space(f, device)
    alone = program.fp == "exact" and reassociates(program)
    on_threads: list[tuple[str, tuple[int | str, ...]]] = []
    in_thread: list[tuple[str, tuple[int | str, ...]]] = []
    others: list[tuple[str, tuple[int | str, ...]]] = []
    for d in f.cc:
        n = _up_to(f.sizes[d])
        on_threads.append((f"threads_{d}", tuple(x for x in (1, 2, 4, 8, 16, 32, 64, 128, 256) if x <= n)))
        in_thread.append((f"rows_{d}", tuple(x for x in (1, 2, 4, 8) if x <= n)))
        in_thread.append((f"groups_{d}", tuple(x for x in (1, 2, 4) if x <= n)))
    for d in f.pw:
        n = _up_to(f.sizes[d])
        if not alone:
            counts = (1, 8, 16, 32, 64, 128, 256, 512)
            on_threads.append((f"threads_{d}", tuple(x for x in counts if x <= n)))
            lengths = [x for x in (0, 1 << 11, 1 << 13, 1 << 15, 1 << 17) if x < n]
            others.append((f"part_{d}", tuple(lengths or [0])))
        others.append((f"rows_{d}", tuple(x for x in (1, 2, 4, 8, 16) if x <= n)))
        others.append((f"chunk_{d}", tuple(x for x in (1, 8, 16, 32, 64) if x <= n)))
    # what may exceed a limit stands together, so that a walk through the space turns back early
    parameters = [("fast", (*f.cc, *f.pw)), *on_threads, *in_thread, *others]
    shared = [b for b in input_buffers(program) if packable(f, b) and program.buffer(b).rank and f.pw]
    parameters += [(f"share_{b}", (0, 1)) for b in shared]
    several = [b for b in shared if program.buffer(b).rank > 1]
    parameters += [(f"turn_{b}", (0, 1)) for b in several]
    parameters += [(f"pad_{b}", (0, 1, 4)) for b in several]
    parameters += [(f"swizzle_{b}", (NONE, *SWIZZLES)) for b in several]
    parameters += [(f"vector_{b}", (1, 2, 4)) for b in shared]
    parameters += [("stages", (1, 2))] if shared else []
    parameters.append(("resident", (1, 2, 4)))
    threads = [name for name, _ in on_threads]
    unit, words = "*".join(threads) or "1", max(1, f.element // 4)
    restrictions = [f"{'*'.join(threads[:k])} <= {device.block_threads}" for k in range(2, len(threads) + 1)]
    if device.warp > 1 and math.prod(f.sizes.values()) >= 1 << 16:
        restrictions.append(f"{unit} >= {device.warp}")
    cells = [name for name, _ in in_thread]
    for k in range(1, len(cells) + 1):
        product = "*".join(cells[:k])
        restrictions.append(f"{product} <= {device.thread_registers // 2 // words}")
        restrictions.append(f"{product}*{unit} <= {device.registers // words}")
    for b in shared:
        restrictions.append(f"share_{b} == 0 or {_tile_bytes(f, b)} <= {device.shared}")
    restrictions += [f"swizzle_{b} == '{NONE}' or pad_{b} == 0" for b in several]
    plain = {"turn": "0", "pad": "0", "swizzle": f"'{NONE}'"}
    idle = [(f"{n}_{b}", f"share_{b} == 1 or {n}_{b} == {v}") for n, v in plain.items() for b in several]
    idle += [(f"vector_{b}", f"share_{b} == 1 or vector_{b} == 1") for b in shared]
    most = device.registers // words
    restrictions.append(f"{'*'.join(cells) or '1'}*{unit}*resident <= {most // 2} or resident == 1")
    restrictions.append(f"{unit}*resident <= {device.registers // FULL} or resident == 1")
    if shared:
        idle.append(("stages", f"stages == 1 or {' or '.join(f'share_{b} == 1' for b in shared)}"))
    names = {name for name, _ in parameters}
    missing = [(name, (value,)) for name, value in chosen.items() if name not in names]
    every = []
    for name, values in (*parameters, *missing):
        own = (chosen[name],) if name in chosen else ()
        every.append((name, tuple(dict.fromkeys((*values, *own)))))
    return Space(tuple(every), tuple(restrictions), tuple(idle))


def _tile_bytes(f: Facts, buffer: str) -> str:
    """The bytes of a copy in shared memory, as an expression over the parameters."""
    access = next(a for a in f.program.inp.accesses if a.buffer == buffer)
    factors = [str(f.program.buffer(buffer).type.size)]
    for x in access.index:
        spans = []
        for d, c in x.terms:
            if d in f.cc:
                spans.append(f"{abs(c)}*(threads_{d}*rows_{d}*groups_{d} - 1)")
            elif d in f.pw:
                spans.append(f"{abs(c)}*(max(chunk_{d}, rows_{d}) - 1)")
        factors.append(f"({' + '.join(['1', *spans])})")
    return "*".join(factors)


__all__ = ["gpu_configuration", "gpu_default", "gpu_space"]
