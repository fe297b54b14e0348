"""The fifteen tuning parameters of mdh.md 4.4 as one frozen value, their ranges and constraints.

    No.  field               range                            meaning
    0    num_parts           level -> N                       number of parts
    D1   decompose_order     permutation of the levels        de-composition order
    D2   decompose_assign    level -> ASM level, bijective    assignment, de-composition
    D3   input_memory        buffer, level -> region          where an input tile lives
    D4   input_layout        buffer, level -> permutation     its layout
    S1   scalar_order        permutation of the levels        order of the scalar function
    S2   scalar_assign       level -> ASM level, bijective    assignment, scalar phase
    S3   scalar_input_memory   buffer -> region               where f reads from
    S4   scalar_input_layout   buffer -> permutation
    S5   scalar_output_memory  buffer -> region               where f writes to
    S6   scalar_output_layout  buffer -> permutation
    R1   recompose_order     permutation of the levels        re-composition order
    R2   recompose_assign    level -> ASM level, bijective    assignment, re-composition
    R3   output_memory       buffer, level -> region          where partial results live
    R4   output_layout       buffer, level -> permutation

``past_caches`` refines R3: output buffers whose finished cells go to memory past the caches, where the
buffer is larger than the last of them (the caches stand for no region of their own on the way out).
``joined`` does so for one whose rows share lines, which are put together first; see ``lowering.joined``.
``fetched`` refines S5: outputs of which cells are fetched while a tile computes; what they hold joins its
results at the end, instead of being what the tile starts from.  1: the tile's own cells, which suffices where
it takes longer than memory does; 2, 3: those of the tile that the innermost loop over tiles comes to next, or
the loop around it; 4, 5: the same, row by row between the steps, as a core keeps track of few fetches;
6: so, in the order of memory, cells that several tiles write as a whole (``lowering.pieces``); else as 5.
``ahead`` does so for maps (function without operator, S3 and S5): rows of operands and
results that a tile is the first to touch are fetched so many bytes before.  For reductions in vectors along
rows, each element of which is read once, it fetches the first lines of pages; see ``lowering.ahead``.
For histograms with copies, it fetches what points read; see ``lowering.histogram``.
``aligned`` refines S6 for maps: from the second one on, the tiles of a row begin where a line of its output
does, however the row lies in memory.
``table`` is an alternative to all of them where the program has the form of ``lowering.keyed``: points are
summed by value, and cells look theirs up.
``padding`` refines D4: further elements behind each row of a buffer's copies, so that columns of a copy
in shared memory lie in different banks.  ``vectors`` (neighbours that a thread copies with one instruction,
by buffer) and ``stages`` (2: the next copies are on their way while the current ones are used) say how the
threads of a block make such copies; ``resident`` is how many blocks a multiprocessor should have room for.
``instruction`` names the row of ``lowering.instructions`` that computes the innermost part.
``swizzle`` (by buffer: bits, base, shift) refines D4 as ``padding`` does; see ``lowering.swizzle``.

A *level* ``(l, d)`` is partitioning layer ``l`` (0 .. L-1, outermost first) of dimension ``d`` (0 .. D-1,
in the order of the md_hom); an *ASM level* ``(a, x)`` is layer ``a`` of the system model with
arrangement dimension ``x``.  A region is the index of a memory layer.  Per-level tables are indexed
``[l][d]``.

Parts: a level's parts have ``part_size(l, d) = product of num_parts of the inner layers`` elements,
so sizes need not divide: trailing parts are partial or empty.  Layer 0 takes what is left, and its
number of parts is recomputed at run time: ``ceil(N_d / part_size(0, d))`` (constraint 0).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from lowering.machine import SystemModel
from lowering.swizzle import Swizzle, why_not_bijective
from mdh_core.ir import MdhProgram

Level = tuple[int, int]
AsmLevel = tuple[int, int]
Table = tuple[tuple[int, ...], ...]  # [layer][dim]
Layout = tuple[int, ...]
LayoutTable = tuple[tuple[Layout, ...], ...]


@dataclass(frozen=True, slots=True)
class Configuration:
    """One value per tuning parameter; see the module docstring."""

    num_parts: Table
    decompose_order: tuple[Level, ...]
    decompose_assign: tuple[tuple[AsmLevel, ...], ...]
    input_memory: tuple[tuple[str, Table], ...]
    input_layout: tuple[tuple[str, LayoutTable], ...]
    scalar_order: tuple[Level, ...]
    scalar_assign: tuple[tuple[AsmLevel, ...], ...]
    scalar_input_memory: tuple[tuple[str, int], ...]
    scalar_input_layout: tuple[tuple[str, Layout], ...]
    scalar_output_memory: tuple[tuple[str, int], ...]
    scalar_output_layout: tuple[tuple[str, Layout], ...]
    recompose_order: tuple[Level, ...]
    recompose_assign: tuple[tuple[AsmLevel, ...], ...]
    output_memory: tuple[tuple[str, Table], ...]
    output_layout: tuple[tuple[str, LayoutTable], ...]
    past_caches: tuple[str, ...] = ()
    fetched: tuple[tuple[str, int], ...] = ()
    table: bool = False
    padding: tuple[tuple[str, int], ...] = ()
    vectors: tuple[tuple[str, int], ...] = ()
    stages: int = 1
    resident: int = 1
    swizzle: tuple[tuple[str, tuple[int, int, int]], ...] = ()
    ahead: int = 0
    instruction: str = ""
    joined: tuple[str, ...] = ()
    aligned: bool = False

    def part_size(self, level: Level) -> int:
        """Elements of dimension d in one part of the level."""
        layer, d = level
        return math.prod(row[d] for row in self.num_parts[layer + 1 :])

    def parts(self, level: Level) -> int:
        return self.num_parts[level[0]][level[1]]

    @property
    def is_fused(self) -> bool:
        """D1 = S1 = R1 and D2 = S2 = R2: one loop nest (mdh.md 4.4)."""
        return (
            self.decompose_order == self.scalar_order == self.recompose_order
            and self.decompose_assign == self.scalar_assign == self.recompose_assign
        )


def input_buffers(program: MdhProgram) -> tuple[str, ...]:
    """Names of the input BUFs, in the order of their first access."""
    return tuple(dict.fromkeys(a.buffer for a in program.inp.accesses))


def output_buffers(program: MdhProgram) -> tuple[str, ...]:
    return tuple(dict.fromkeys(s.buffer for s in program.out.stores))


def columns_of(program: MdhProgram, c: Configuration) -> dict[str, int]:
    """Column of each dimension in the configuration's tables (stages may have fewer dimensions)."""
    width = len(c.num_parts[0])
    index = {d.name: k for k, d in enumerate(program.hom.dims)}
    return index if len(index) == width else {}


def levels(model: SystemModel, rank: int) -> tuple[Level, ...]:
    """All MDH levels, lexicographically."""
    return tuple((layer, d) for layer in range(model.depth) for d in range(rank))


def identity_layout(program: MdhProgram, buffer: str) -> Layout:
    return tuple(range(program.buffer(buffer).rank))


def make(
    program: MdhProgram,
    model: SystemModel,
    num_parts: Table,
    order: tuple[Level, ...] | None = None,
    assign: tuple[tuple[AsmLevel, ...], ...] | None = None,
    memory: Mapping[str, tuple[int, Level, Layout]] | None = None,
    accumulate_from: Level | None = None,
    past_caches: tuple[str, ...] = (),
    fetched: tuple[tuple[str, int], ...] = (),
    table: bool = False,
    padding: tuple[tuple[str, int], ...] = (),
    ahead: int = 0,
    joined: tuple[str, ...] = (),
    aligned: bool = False,
) -> Configuration:
    """A fused configuration from the few choices that matter most.

    memory           input buffer -> (region, level, layout): from that level inwards the buffer's tile
                     lives in the region with that layout; outside it lives in region 0, row-major
    accumulate_from  from this level inwards results live in the innermost region; None: in region 0
    """
    rank = len(program.hom.dims)
    every = levels(model, rank)
    order = order or every
    assign = assign or tuple(tuple((layer, d) for d in range(rank)) for layer in range(model.depth))
    position = {level: k for k, level in enumerate(order)}
    inner = len(model.memory) - 1

    def region_table(region: int, start: Level | None) -> Table:
        first = len(order) if start is None else position[start]
        return tuple(
            tuple(region if position[(layer, d)] >= first else 0 for d in range(rank))
            for layer in range(model.depth)
        )

    def layout_table(buffer: str, layout: Layout, start: Level | None) -> LayoutTable:
        first = len(order) if start is None else position[start]
        plain = identity_layout(program, buffer)
        return tuple(
            tuple(layout if position[(layer, d)] >= first else plain for d in range(rank))
            for layer in range(model.depth)
        )

    in_memory, in_layout, f_memory, f_layout = [], [], [], []
    for b in input_buffers(program):
        region, start, layout = (memory or {}).get(b, (0, None, identity_layout(program, b)))
        in_memory.append((b, region_table(region, start)))
        in_layout.append((b, layout_table(b, layout, start)))
        f_memory.append((b, region))
        f_layout.append((b, layout))
    outs = output_buffers(program)
    f_out = inner if accumulate_from is not None else 0
    plain_out = {b: identity_layout(program, b) for b in outs}
    return Configuration(
        num_parts,
        order,
        assign,
        tuple(in_memory),
        tuple(in_layout),
        order,
        assign,
        tuple(f_memory),
        tuple(f_layout),
        tuple((b, f_out) for b in outs),
        tuple((b, plain_out[b]) for b in outs),
        order,
        assign,
        tuple((b, region_table(inner, accumulate_from)) for b in outs),
        tuple((b, layout_table(b, plain_out[b], None)) for b in outs),
        past_caches,
        fetched,
        table,
        padding,
        ahead=ahead,
        joined=joined,
        aligned=aligned,
    )


# --------------------------------------------------------------------------- constraints

Constraint = tuple[str, Callable[[Configuration, MdhProgram, SystemModel], bool]]


def _is_permutation(order: tuple[Any, ...], of: tuple[Any, ...]) -> bool:
    return len(order) == len(of) and set(order) == set(of)


def _bijective(assign: tuple[tuple[AsmLevel, ...], ...], every: tuple[Level, ...]) -> bool:
    return _is_permutation(tuple(a for row in assign for a in row), every)


def _layouts(c: Configuration) -> list[tuple[str, Layout]]:
    found = [*c.scalar_input_layout, *c.scalar_output_layout]
    for table in (*c.input_layout, *c.output_layout):
        found += [(table[0], layout) for row in table[1] for layout in row]
    return found


def _regions(c: Configuration) -> list[int]:
    found = [r for _, r in (*c.scalar_input_memory, *c.scalar_output_memory)]
    return found + [r for _, t in (*c.input_memory, *c.output_memory) for row in t for r in row]


def _may_have_parts(c: Configuration, layer: int, d: int) -> bool:
    """Layer 0 takes what is left of any size, so its number of parts is never known to be one."""
    return layer == 0 or c.num_parts[layer][d] > 1


def _scan_order_is_contiguous(c: Configuration, p: MdhProgram, m: SystemModel) -> bool:
    """A scanned dimension's layers stay in order, so that its parts are contiguous (mdh.md 5)."""
    for d, op in enumerate(p.hom.combine):
        if op.kind != "ps":
            continue
        for order in (c.scalar_order, c.recompose_order):
            layers = [layer for layer, e in order if e == d and _may_have_parts(c, layer, d)]
            if layers != sorted(layers):
                return False
    return True


def reassociates(p: MdhProgram) -> bool:
    """Whether combining in another order may change the result's bits."""
    return p.hom.function is not None and not p.hom.function.exact


def _exact_keeps_order(c: Configuration, p: MdhProgram, m: SystemModel) -> bool:
    """Under fp(exact), reduced points of inexact operators are met in source order, by one thread."""
    if p.fp != "exact" or not reassociates(p):
        return True
    if p.hom.dims_of("ps") and p.hom.dims_of("pw"):
        return False  # a scan of reductions is computed row by row: sums of sums
    reduced = [d for d, op in enumerate(p.hom.combine) if op.kind != "cc"]
    for order, assign in (
        (c.scalar_order, c.scalar_assign),
        (c.recompose_order, c.recompose_assign),
    ):
        met = [(d, layer) for layer, d in order if d in reduced and _may_have_parts(c, layer, d)]
        if met != sorted(met):
            return False
        for d, layer in met:
            if m.layers[assign[layer][d][0]].role in ("blocks", "threads", "lanes"):
                return False
    return True


CONSTRAINTS: tuple[Constraint, ...] = (
    (
        "0: every level has at least one part",
        lambda c, p, m: all(n >= 1 for row in c.num_parts for n in row),
    ),
    (
        "0: one row per layer, one column per dimension",
        lambda c, p, m: len(c.num_parts) == m.depth
        and all(len(row) == len(p.hom.dims) for row in c.num_parts),
    ),
    *(
        (
            f"{number}: the order is a permutation of the levels",
            lambda c, p, m, field=field: _is_permutation(
                getattr(c, field), levels(m, len(p.hom.dims))
            ),
        )
        for number, field in (
            ("D1", "decompose_order"),
            ("S1", "scalar_order"),
            ("R1", "recompose_order"),
        )
    ),
    *(
        (
            f"{number}: the assignment is a bijection of levels",
            lambda c, p, m, field=field: _bijective(getattr(c, field), levels(m, len(p.hom.dims))),
        )
        for number, field in (
            ("D2", "decompose_assign"),
            ("S2", "scalar_assign"),
            ("R2", "recompose_assign"),
        )
    ),
    (
        "D3, S3, S5, R3: regions are memory layers",
        lambda c, p, m: all(0 <= r < len(m.memory) for r in _regions(c)),
    ),
    (
        "D4, S4, S6, R4: layouts are permutations of the buffer's dimensions",
        lambda c, p, m: all(_is_permutation(s, identity_layout(p, b)) for b, s in _layouts(c)),
    ),
    (
        "D4: paddings are not negative, vectors have 1, 2 or 4 elements, there are 1 or 2 stages",
        lambda c, p, m: all(n >= 0 for _, n in c.padding)
        and all(n in (1, 2, 4) for _, n in c.vectors)
        and c.stages in (1, 2)
        and c.resident >= 1,
    ),
    (
        "D4: swizzles are bijections",
        lambda c, p, m: all(why_not_bijective(Swizzle(*s)) is None for _, s in c.swizzle),
    ),
    ("S1, R1: a scanned dimension is met in order", _scan_order_is_contiguous),
    ("S1, S2, R1, R2: fp(exact) keeps the order of a reduction", _exact_keeps_order),
)


def why_not_legal(c: Configuration, program: MdhProgram, model: SystemModel) -> str | None:
    """The first constraint that the configuration breaks, or None."""
    for name, holds in CONSTRAINTS:
        if not holds(c, program, model):
            return name
    return None


# --------------------------------------------------------------------------- random, JSON


_SWIZZLES = ((1, 0, 1), (2, 2, 3), (3, 2, 5), (2, 1, 1), (1, 3, 2))


def random_configuration(
    rng: Random, program: MdhProgram, model: SystemModel, fused: bool | None = None
) -> Configuration:
    """A random legal configuration; ``fused`` forces or forbids D1 = S1 = R1, D2 = S2 = R2."""
    rank, every = len(program.hom.dims), levels(model, len(program.hom.dims))
    on_gpu = any(layer.role == "blocks" for layer in model.layers)
    while True:
        parts = [
            [1 if layer == 0 or rng.random() < 0.4 else rng.choice((1, 2, 3, 4, 5, 8)) for _ in range(rank)]
            for layer in range(model.depth)
        ]
        num_parts = tuple(tuple(row) for row in parts)
        orders = [tuple(rng.sample(every, len(every))) for _ in range(3)]
        assigns = []
        for _ in range(3):
            flat = rng.sample(every, len(every))
            assigns.append(
                tuple(tuple(flat[layer * rank : (layer + 1) * rank]) for layer in range(model.depth))
            )
        if fused or (fused is None and rng.random() < 0.7):
            orders, assigns = [orders[0]] * 3, [assigns[0]] * 3
        if rng.random() < 0.3:
            orders = [every] * 3

        def regions() -> Table:
            return tuple(
                tuple(rng.randrange(len(model.memory)) for _ in range(rank)) for _ in range(model.depth)
            )

        def layouts(b: str) -> LayoutTable:
            plain = identity_layout(program, b)
            return tuple(
                tuple(tuple(rng.sample(plain, len(plain))) for _ in range(rank))
                for _ in range(model.depth)
            )

        ins, outs = input_buffers(program), output_buffers(program)

        def one_layout(b: str) -> Layout:
            return tuple(rng.sample(identity_layout(program, b), program.buffer(b).rank))

        c = Configuration(
            num_parts,
            orders[0],
            assigns[0],
            tuple((b, regions()) for b in ins),
            tuple((b, layouts(b)) for b in ins),
            orders[1],
            assigns[1],
            tuple((b, rng.randrange(len(model.memory))) for b in ins),
            tuple((b, one_layout(b)) for b in ins),
            tuple((b, rng.randrange(len(model.memory))) for b in outs),
            tuple((b, one_layout(b)) for b in outs),
            orders[2],
            assigns[2],
            tuple((b, regions()) for b in outs),
            tuple((b, layouts(b)) for b in outs),
            tuple(b for b in outs if rng.random() < 0.4),
            () if on_gpu else tuple((b, rng.choice((1, 2, 3))) for b in outs if rng.random() < 0.4),
            not on_gpu and rng.random() < 0.5,
            tuple((b, rng.choice((0, 1, 4))) for b in ins) if on_gpu else (),
            tuple((b, rng.choice((1, 2, 4))) for b in ins) if on_gpu else (),
            rng.choice((1, 2)) if on_gpu else 1,
            rng.choice((1, 2)) if on_gpu else 1,
            tuple((b, rng.choice(_SWIZZLES)) for b in ins if rng.random() < 0.5) if on_gpu else (),
        )
        if why_not_legal(c, program, model) is None:
            return c
        if rng.random() < 0.5:  # scans and fp(exact) are rarely met by chance: repair the order
            c = replace(c, scalar_order=every, recompose_order=every, decompose_order=every)
            if why_not_legal(c, program, model) is None:
                return c


def to_json(c: Configuration) -> dict[str, Any]:
    """A plain JSON value; ``from_json`` is its inverse."""
    out: dict[str, Any] = {}
    for field in Configuration.__dataclass_fields__:
        value = getattr(c, field)
        rows = value if isinstance(value, tuple) else ()
        keyed = rows and isinstance(rows[0], tuple) and rows[0] and isinstance(rows[0][0], str)
        out[field] = dict(value) if keyed else value
    return out


def from_json(data: Mapping[str, Any]) -> Configuration:
    def tuples(value: Any) -> Any:
        if isinstance(value, Mapping):
            return tuple((name, tuples(v)) for name, v in value.items())
        return tuple(map(tuples, value)) if isinstance(value, list | tuple) else value

    known = (field for field in Configuration.__dataclass_fields__ if field in data)
    return Configuration(**{field: tuples(data[field]) for field in known})
