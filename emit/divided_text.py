"""A thread loop whose parts are cut at run time, so that all threads get the same.

before   for (long j_1 = 0; j_1 < j_size; j_1 += 288) ...            six tiles each, the last one shorter
after    const long j_tiles = (j_size + 47)/48;
         long j_parts = ((j_tiles + 5)/6 + MDH_THREADS - 1)/MDH_THREADS*MDH_THREADS;
         if (j_parts > j_tiles) j_parts = j_tiles;
         for (long j_part = 0; j_part < j_parts; j_part++) {
           const long j_1 = j_tiles*j_part/j_parts*48;
           const long j_part_end = j_part + 1 < j_parts ? j_tiles*(j_part + 1)/j_parts*48 : j_size;

At most six tiles are in each part, and as many parts are for each thread.  Where threads share a loop around
it, they are rounded up only if the parts of both are no multiple of the threads and not many in any case.
Parts differ by a tile at most, and none is longer than the last one: a tile that the size clips has another
one before it, if any part has.  Which dimensions: ``lowering.parts``.
"""

from __future__ import annotations

from collections.abc import Sequence

from emit.kernel_text import Context
from lowering.loops import Loop, size_name
from lowering.parts import MANY


class Divided:
    """The texts of one loop; ``around``: how often the loops around it run that threads share with it."""

    def __init__(self, loop: Loop, unit: Loop, context: Context, around: Sequence[str]) -> None:
        new, d = context.names.new, loop.dim
        self.most, self.unit, self.size, self.around = loop.size // unit.size, unit.size, size_name(d), around
        self.tiles, self.parts, self.number = (new(f"{d}_{x}") for x in ("tiles", "parts", "part"))
        self.end = new(f"{d}_part_end")
        self.threads = "MDH_TEAM" if context.team else "MDH_THREADS"

    @property
    def head(self) -> str:
        return f"for (long {self.number} = 0; {self.number} < {self.parts}; {self.number}++)"

    def count(self) -> list[str]:
        """Lines before the loops: how many parts there are."""
        parts, threads = self.parts, self.threads
        tiles = self.size if self.unit == 1 else f"({self.size} + {self.unit - 1})/{self.unit}"
        least, every = f"({self.tiles} + {self.most - 1})/{self.most}", "*".join([*self.around, parts])
        rounded = [f"long {parts} = ({least} + {threads} - 1)/{threads}*{threads};"]
        if self.around:
            rounded = [
                f"long {parts} = {least};",
                f"if (({every})%{threads} != 0 && {every} < {MANY}*{threads}) "
                f"{parts} = ({parts} + {threads} - 1)/{threads}*{threads};",
            ]
        last = f"if ({parts} > {self.tiles}) {parts} = {self.tiles};"
        return [f"const long {self.tiles} = {tiles};", *rounded, last]

    def part(self, variable: str) -> list[str]:
        """Lines inside of the loops: where a part begins and ends."""
        number, times = self.number, "" if self.unit == 1 else f"*{self.unit}"
        after = f"{self.tiles}*({number} + 1)/{self.parts}{times}"
        last = after if self.unit == 1 else f"{number} + 1 < {self.parts} ? {after} : {self.size}"
        return [
            f"const long {variable} = {self.tiles}*{number}/{self.parts}{times};",
            f"const long {self.end} = {last};",
        ]
