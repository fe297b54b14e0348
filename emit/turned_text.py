"""Operands that lie across the vectors of a map, turned in registers (``lowering.across``).

    float_v s_turned[16][vectors_v];       rows of the tile, vectors of lanes
    float_v s_part[lanes];
    for (l ...) s_part[l] = the vector of s along r at i + l
    MDH_TURN_4(float_v, s_part);           s_part[k][l] and s_part[l][k] change places
    for (l ...) s_turned[l] = s_part[l];

once for each square of as many lanes as the machine's vectors have.  A square of n lanes takes log2(n) steps:
in the one of distance d, of lanes and rows whose numbers differ in the bit d, those off the diagonal change
places, which are two shuffles for a pair of rows.

Shown right by tests/test_turned.py.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from emit.prefix_text import lanes_macro
from lowering.across import turned
from lowering.loops import Loop
from mdh_core.expr import ScalarType

if TYPE_CHECKING:
    from emit.tile_text import Tile
    from emit.vectors_text import VectorsText


def turned_in(n: VectorsText, inner: tuple[Loop, ...]) -> tuple[Loop, tuple[int, ...]] | None:
    """The loop over rows along which the tile ``inner`` turns operands, and these by their numbers."""
    tile = inner[max(n.nest.tile - n.scope, 0) :]
    if n.vector_program.inp != n.program.inp:  # what rows read hangs on conditions of theirs
        return None
    if len(tile) < 2 or tile[-1].role != "lanes" or any(x.count is None or x.size != 1 for x in tile):
        return None
    *rows, lanes = tile
    counts = {x.dim: x.count or 1 for x in rows}
    numbers = turned(n.program, lanes.dim, lanes.count or 1, counts, n.lane_bytes)
    long = [x for x in rows if (x.count or 1) > 1]
    return (long[0], numbers) if numbers and len(long) == 1 else None


def turn_operands(tile: Tile, k: int) -> None:
    """Before the loop ``inner[k]`` over rows: what ``tile.held`` then has in registers."""
    found = turned_in(tile.n, tile.inner) if tile.vectors is not None and tile.function is None else None
    if found is None or tile.inner[k] is not found[0]:
        return
    for number in found[1]:
        if number not in tile.held:
            _turn(tile, number, found[0])


def _turn(tile: Tile, number: int, rows: Loop) -> None:
    vectors, access, context, out = tile.vectors, tile.n.program.inp.accesses[number], tile.context, tile.out
    t = tile.n.program.buffer(access.buffer).type
    assert vectors is not None and tile.lanes is not None and isinstance(t, ScalarType)
    vector, lanes, count = vectors.type(t), vectors.lanes, f"vectors_{vectors.suffix}"
    name, part = context.names.new(f"{access.buffer}_turned"), context.names.new(f"{access.buffer}_part")
    out.add(f"{vector} {name}[{rows.count}][{count}];")
    with ExitStack() as stack:
        stack.callback(tile._restore, dict(context.at), dict(tile.counters))
        down, along, lane = (context.names.new(x) for x in (f"{rows.dim}_v", f"{tile.lanes.dim}_v", "lane"))
        for v in (down, along):
            out.add(f"#pragma GCC unroll {rows.count}")
            stack.enter_context(out.block(f"for (long {v} = 0; {v} < {count}; {v}++)"))
        out.add(f"{vector} {part}[{lanes}];")
        each = f"for (long {lane} = 0; {lane} < {lanes}; {lane}++)"
        _move(tile, rows.dim, f"{down}*{lanes}")
        _move(tile, tile.lanes.dim, f"{along}*{lanes} + {lane}")
        cell = context.subscript(access.buffer, access.index)
        for head, text in (
            (each, f"{part}[{lane}] = *(const {vectors.unaligned(t)} *)&{cell};"),
            ("", f"MDH_TURN_{t.size}({vector}, {part});"),
            (each, f"{name}[{down}*{lanes} + {lane}][{along}] = {part}[{lane}];"),
        ):
            if not head:
                out.add(text)
                continue
            out.add(f"#pragma GCC unroll {rows.count}")
            with out.block(head):
                out.add(text)
    tile.held[number] = (name, (rows,), True)


def _move(tile: Tile, dim: str, by: str) -> None:
    start = tile.context.at[dim]
    tile.context.at[dim] = by if start == "0" else f"{start} + {by}"


def turn_macros(size: int) -> list[str]:
    """``MDH_TURN_4(F, x)``: of as many vectors x of type F as each has lanes, x[k][l] becomes x[l][k]."""
    lines = [*lanes_macro(size), f"#ifndef MDH_TURN_{size} /* the rows of a square become its columns */"]
    for n, width in enumerate((64, 32, 16)):
        lanes = width // size
        steps = [1 << s for s in range(lanes.bit_length() - 1)]
        lines.append(f"#{'elif' if n else 'if'} MDH_VECTOR_BYTES == {width}")
        for d in steps:
            low = [lanes + k - d if k & d else k for k in range(lanes)]
            high = [lanes + k if k & d else k + d for k in range(lanes)]
            for word, chosen in (("LOW", low), ("HIGH", high)):
                text = f"MDH_LANES_{size}(a, b, {', '.join(map(str, chosen))})"
                lines.append(f"#define MDH_{word}_{size}_{d}(a, b) {text}")
        all_steps = " ".join(f"MDH_SWAP_{size}(F, x, {d})" for d in steps)
        lines.append(f"#define MDH_TURN_{size}(F, x) do {{ {all_steps} }} while (0)")
    return [
        *lines,
        "#endif",
        f"#define MDH_SWAP_{size}(F, x, d) \\",
        f'    _Pragma("GCC unroll {64 // size}") \\',
        f"    for (long mdh_k = 0; mdh_k < MDH_VECTOR_BYTES / {size}; mdh_k++) \\",
        "      if (!(mdh_k & d)) { \\",
        "        const F mdh_a = x[mdh_k], mdh_b = x[mdh_k + d]; \\",
        f"        x[mdh_k] = MDH_LOW_{size}_##d(mdh_a, mdh_b); \\",
        f"        x[mdh_k + d] = MDH_HIGH_{size}_##d(mdh_a, mdh_b); \\",
        "      }",
        "#endif",
    ]
