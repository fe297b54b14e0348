"""Where all that a tile's rows read exists, in loops over what is reduced in vectors: ``lowering.between``.

    in    a tile, the number of its loop over steps, the text of the loop's bounds
    out   code in front of the loop that finds, from both ends, where each guard holds first and last

    long i_from = i_1, i_to = i_end;
    { long i_in = i_1; while (i_in < i_end && !(m[i_in])) i_in++; if (i_in > i_from) i_from = i_in;
      long i_out = i_end; while (i_out > i_in && !(m[i_out - 1])) i_out--; if (i_out < i_to) i_to = i_out; }

Where nothing is contributed outside, the loop has these ends itself; else steps there are taken point by
point.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from emit.kernel_text import atom
from lowering.between import varies
from mdh_core.expr import Expr

if TYPE_CHECKING:
    from emit.tile_text import Tile


@dataclass(frozen=True, slots=True)
class Ends:
    """Of a loop over steps: its own ``first`` and ``end``, and between which all operands exist."""

    first: str
    end: str
    start: str
    stop: str
    size: int

    def begun(self, at: str) -> str:
        """Whether a step's first point is not before all that is read."""
        return f"{at} >= {self.start}"

    def whole(self, at: str) -> str:
        """Whether its last point is not behind."""
        return f"{at} + {self.size - 1} < {self.stop}" if self.size > 1 else f"{at} < {self.stop}"


def find_ends(tile: Tile, k: int, first: str, end: str) -> Ends | None:
    """For the loop ``inner[k]`` along the lanes; None where operands are always there."""
    n, loop = tile.n, tile.inner[k]
    if n.between is None or not n.keeps_to_reads or tile.vectors is None or not tile.reduces_lanes:
        return None
    names, out, d = n.context.names, tile.out, loop.dim
    start, stop = names.new(f"{d}_from"), names.new(f"{d}_to")
    out.add(f"long {start} = {first}, {stop} = {end};")
    own = (first, end)
    if n.between.neutral:
        own = names.new(f"{d}_first"), names.new(f"{d}_last")
        out.add(f"long {own[0]} = {end}, {own[1]} = {first};")
    for guard in n.between.guards:
        with ExitStack() as stack:
            stack.callback(tile._restore, dict(n.context.at), dict(tile.counters))
            rows = [loop for loop, _ in tile.axes if varies(n.program, guard, loop.dim)]
            if not rows:
                stack.enter_context(out.block(""))
                out.rows[-1] = "  " * (out.indent - 1) + "{"
            for row in rows:
                tile._counter_loop(row, stack, (), None)
            a, b = names.new(f"{d}_in"), names.new(f"{d}_out")
            out.add(f"long {a} = {first};", f"while ({a} < {end} && !({_at(tile, guard, d, a)})) {a}++;")
            before = _at(tile, guard, d, f"{b} - 1")
            out.add(f"long {b} = {end};", f"while ({b} > {a} && !({before})) {b}--;")
            out.add(f"if ({a} > {start}) {start} = {a};", f"if ({b} < {stop}) {stop} = {b};")
            if n.between.neutral:
                out.add(f"if ({a} < {own[0]}) {own[0]} = {a};", f"if ({b} > {own[1]}) {own[1]} = {b};")
    if n.between.neutral and loop.size > 1:  # the steps are the same
        past = own[0] if first == "0" else f"({own[0]} - {atom(first)})"
        out.add(f"if ({own[0]} < {end}) {own[0]} -= {past}%{loop.size};")
    return Ends(*own, start, stop, loop.size)


def _at(tile: Tile, guard: Expr, dim: str, place: str) -> str:
    """The guard's text at a place of the loop."""
    at = tile.n.context.at
    before, at[dim] = at.get(dim), place
    text = tile.n.context.scalar(guard, 0)
    if before is not None:
        at[dim] = before
    return text
