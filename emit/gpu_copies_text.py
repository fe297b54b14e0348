"""Copies of a nest's inputs in the memory of a block: how all its threads make them together.

before   SharedTile(buffer, at, layout, extents, padding, vector, ahead) and, per dimension, the text of the
         index at the block's first point there
after    a cell at a time                      in two halves, through registers of the threads

    for (int c = threadIdx.x; ...)             read    A_next[..] = *(const float4 *)&A[..], or one by one,
      A_tile[..] = A[.. clamped ..];                   clamped, where a box leaves the sizes or is not aligned
                                               write   A_tile[..] = A_next[..]

Where an input is copied ahead, ``GpuNestText`` puts a loop's work between the two halves.  An index outside
of the sizes is replaced by the one at the border: what is read there exists, and nobody uses it.  That this
is right is shown by random configurations against the interpreter, under checks of every index and race.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from emit.c_text import affine_text, c_type
from emit.cells_text import CellsText
from emit.gpu_context import Copy, GpuContext
from emit.gpu_kernels import Kernels
from emit.kernel_text import Context
from lowering.gpu import GpuNest, SharedTile
from lowering.loops import loop_range, size_name
from mdh_core.expr import Affine

MEMBERS = "xyzw"  # of a vector


@dataclass(frozen=True, slots=True)
class Box:
    """What a copy has of its buffer: per coordinate the first index, and texts of the least and the largest.

    shifts  what is added to an index inside of the block to find it in the copy
    starts  C texts over what is the same for all threads of the block
    lows    C texts, or empty where no index can be less; ``highs`` likewise, and ``tops`` are one more
    """

    shifts: tuple[int, ...]
    starts: tuple[str, ...]
    lows: tuple[str, ...]
    highs: tuple[str, ...]
    tops: tuple[str, ...]


class CopiesText(CellsText):
    """Writes the copies of a nest; ``uniform``: per dimension the terms that all threads of a block share."""

    context: GpuContext
    gpu: GpuNest
    kernels: Kernels
    uniform: dict[str, list[str]]

    def _is_whole(self, d: str) -> bool:
        """Whether the loops of a dimension never leave it."""
        raise NotImplementedError

    # ------------------------------------------------------------------ where they are

    def barrier(self, place: Literal["before", "end"], name: str) -> None:
        """The barrier that ``lowering.gpu_barriers`` has found for a position, if there is one."""
        raise NotImplementedError

    def copy(self, tiles: Sequence[SharedTile]) -> None:
        """All threads copy what the block reads."""
        wide = [t for t in tiles if t.vector > 1]
        for tile in wide:
            self.declare(tile)
            self.read(tile)
        for tile in tiles:
            self.barrier("before", f"copy_{tile.buffer}")
            if tile in wide:
                self.write_copy(tile)
            else:
                self._copy_cells(tile)

    def declare(self, tile: SharedTile) -> None:
        """The registers in which a thread has its share of a copy between reading and writing."""
        b = self.program.buffer(tile.buffer)
        self.context.registers[tile.buffer] = self.context.names.new(f"{tile.buffer}_next")
        count = tile.registers(self.gpu.unit)
        self.out.add(f"{c_type(b.type)} {self.context.registers[tile.buffer]}[{count}];")

    def _box(self, tile: SharedTile) -> Box:
        accesses = [a for a in self.program.inp.accesses if a.buffer == tile.buffer]
        inner = [*self.gpu.threads, *self.gpu.inside[tile.at :]]
        uniform = {d: " + ".join(terms) or "0" for d, terms in self.uniform.items()}
        dims = {d.name: d for d in self.program.hom.dims}
        shifts, starts, lows, highs, tops = [], [], [], [], []
        for t in range(len(tile.extents)):
            index = accesses[0].index[t]
            consts = [a.index[t].const for a in accesses]
            plain = Affine(index.terms)
            back = 0  # how far before its index at the block's first point an access may be
            low = high = plain
            loose = False
            for d, c in index.terms:
                if d not in dims:
                    continue
                span = loop_range(inner, d, dims[d].size.constant)
                assert span is not None
                back += -c * (span - 1) if c < 0 else 0
                ends = Affine.number(0), Affine.of(size_name(d)) - 1
                low, high = low.substitute({d: ends[c < 0]}), high.substitute({d: ends[c > 0]})
                loose = loose or not self._is_whole(d) or c < 0
            shifts.append(back - min(consts))
            starts.append(affine_text(plain + (min(consts) - back), uniform))
            lows.append(affine_text(low + min(consts), {}) if loose and back else "")
            highs.append(affine_text(high + max(consts), {}) if loose else "")
            tops.append(affine_text(high + max(consts) + 1, {}) if loose else "")
        return Box(tuple(shifts), tuple(starts), tuple(lows), tuple(highs), tuple(tops))

    def name_copy(self, tile: SharedTile) -> Copy:
        """The copy, which is where the buffer is read from now on."""
        known = self.context.copies.get(tile.buffer)
        if known is not None and known.tile is tile:
            return known
        t, function, s = c_type(self.program.buffer(tile.buffer).type), "", tile.swizzle
        name = self.kernels.share(t, f"{tile.buffer}_tile", tile.cells, aligned=True)
        if s is not None:
            value = f"number ^ (number >> {s.shift} & {s.mask})"
            function = self.kernels.helper(f"{tile.buffer}_place", "number", value)
        copy = Copy(name, tile, self._box(tile).shifts, function)
        self.context.copies = self.context.copies | {tile.buffer: copy}
        return copy

    def _source(self, buffer: str, texts: Sequence[str]) -> str:
        """A cell of the array itself, at indices that are C texts."""
        at = {f"mdh_{t}": text for t, text in enumerate(texts)}
        context = GpuContext(self.program, self.context.names, at, narrow=self.context.narrow)
        return context.subscript(buffer, tuple(map(Affine.of, at)))

    @staticmethod
    def _place(copy: Copy, locals_: Sequence[str]) -> str:
        terms = []
        for local, stride in zip(locals_, copy.tile.strides, strict=True):
            if local != "0":
                atom = local if local.replace("_", "a").isalnum() else f"({local})"
                terms.append(local if stride == 1 else f"{atom}*{stride}")
        return copy.cell(" + ".join(terms) or "0")

    # ------------------------------------------------------------------ a cell at a time

    def _coordinates(self, tile: SharedTile, cell: str) -> list[str]:
        """Constants that say where in the box a cell is, by its number."""
        total, below = math.prod(tile.extents), 1
        found: list[str] = []
        for t, extent in reversed(list(enumerate(tile.extents))):
            digit = cell if below == 1 else f"{cell} / {below}"
            digit = digit if below * extent == total else f"{digit} % {extent}"
            below *= extent
            local = "0"
            if extent > 1:
                local = self.context.names.new(f"{cell}{t}")
                self.out.add(f"const int {local} = {digit};")
            found.insert(0, local)
        return found

    def _clamped(self, box: Box, locals_: Sequence[str], cell: str) -> list[str]:
        """The indices of a cell of the box, or those at the border."""
        found = []
        for t, (local, start) in enumerate(zip(locals_, box.starts, strict=True)):
            name, text = self.context.names.new(f"{cell}{t}_at"), _sum(start, local)
            low, high = box.lows[t], box.highs[t]
            const = "" if low or high else "const "
            self.out.add(f"{const}{self.context.index_type} {name} = {text};")
            if high:
                self.out.add(f"if ({name} > {high}) {name} = {high};")
            if low:
                self.out.add(f"if ({name} < {low}) {name} = {low};")
            found.append(name)
        return found

    def _copy_cells(self, tile: SharedTile) -> None:
        box, cell = self._box(tile), self.context.names.new("c")
        thread, total = self.kernels.target.thread, math.prod(tile.extents)
        head = f"for (int {cell} = {thread}; {cell} < {total}; {cell} += {self.gpu.unit})"
        copy = self.name_copy(tile)
        with self.out.block(head):
            locals_ = self._coordinates(tile, cell)
            source = self._source(tile.buffer, self._clamped(box, locals_, cell))
            self.out.add(f"{self._place(copy, locals_)} = {source};")

    # ------------------------------------------------------------------ in two halves

    def read(self, tile: SharedTile) -> None:
        """From the array to registers: neighbours with one instruction where they are whole and aligned."""
        box, out, v = self._box(tile), self.out, tile.vector
        name = self.context.registers[tile.buffer]
        tests = []
        for start, low, top, extent in zip(box.starts, box.lows, box.tops, tile.extents, strict=True):
            tests += [f"{start} >= {low}"] if low else []
            tests += [f"{_sum(start, str(extent))} <= {top}"] if top else []
        tests += self._aligned(tile, box) if v > 1 else []
        if not tests:
            self._read_whole(tile, box, name)
            return
        with out.block(f"if ({' && '.join(tests)})"):
            self._read_whole(tile, box, name)
            out.middle("} else {")
            with self._of_thread(tile) as (first, number):
                cell, register = first, number
                if v > 1:
                    register, one = self._neighbour(tile, number)
                    out.add("#pragma unroll")
                    out.add(f"for (int {one} = 0; {one} < {v}; {one}++) {{")
                    out.indent += 1
                    cell = self.context.names.new("c")
                    out.add(f"const int {cell} = {first} + {one};")
                locals_ = self._coordinates(tile, cell)
                source = self._source(tile.buffer, self._clamped(box, locals_, cell))
                out.add(f"{name}[{register}] = {source};")
                if v > 1:
                    out.indent -= 1
                    out.add("}")

    def _neighbour(self, tile: SharedTile, number: str) -> tuple[str, str]:
        one = self.context.names.new("v")
        return f"{number}*{tile.vector} + {one}", one

    def _aligned(self, tile: SharedTile, box: Box) -> list[str]:
        """Tests whether all vectors of the box are aligned, where the language asks for that."""
        target = self.kernels.target
        if not target.aligned:
            return []
        b = self.program.buffer(tile.buffer)
        tests = []
        strides = Context(self.program, self.context.names).raw_place(tile.buffer).strides
        for stride, extent in zip(strides[:-1], tile.extents[:-1], strict=True):
            if extent > 1 and (not isinstance(stride, int) or stride % tile.vector):
                atom = str(stride) if "*" not in str(stride) else f"({stride})"
                tests.append(f"{atom} % {tile.vector} == 0")
        tests.append(f"(size_t)&{self._source(tile.buffer, box.starts)} % {b.type.size * tile.vector} == 0")
        return tests

    @contextmanager
    def _of_thread(self, tile: SharedTile) -> Iterator[tuple[str, str]]:
        """A loop over the vectors of a thread; inside, the number of its first cell, and its own number."""
        unit, names, out = self.gpu.unit, self.context.names, self.out
        total, v = math.prod(tile.extents), tile.vector
        trips = tile.registers(unit) // v
        number, first = names.new("n"), names.new("c")
        out.add("#pragma unroll")
        with out.block(f"for (int {number} = 0; {number} < {trips}; {number}++)"):
            text = f"{self.kernels.target.thread} + {number}*{unit}"
            out.add(f"const int {first} = {text if v == 1 else f'({text})*{v}'};")
            if trips * unit * v > total:
                with out.block(f"if ({first} < {total})"):
                    yield first, number
            else:
                yield first, number

    def _read_whole(self, tile: SharedTile, box: Box, name: str) -> None:
        with self._of_thread(tile) as (first, number):
            locals_ = self._coordinates(tile, first)
            texts = [_sum(start, local) for start, local in zip(box.starts, locals_, strict=True)]
            source = self._source(tile.buffer, texts)
            if tile.vector == 1:
                self.out.add(f"{name}[{number}] = {source};")
                return
            t = self.kernels.target.vector_of(c_type(self.program.buffer(tile.buffer).type), tile.vector)
            cells = self.context.names.new("cells")
            self.out.add(f"const {t} {cells} = {self.kernels.target.read(t, tile.vector, source)};")
            for k in range(tile.vector):
                place = f"{number}*{tile.vector}" + (f" + {k}" if k else "")
                self.out.add(f"{name}[{place}] = {cells}.{MEMBERS[k]};")

    def write_copy(self, tile: SharedTile) -> None:
        """From registers to the memory of the block."""
        copy = self.name_copy(tile)
        registers = self.context.registers[tile.buffer]
        with self._of_thread(tile) as (first, number):
            *others, last = self._coordinates(tile, first)
            if tile.vector == 1:
                self.out.add(f"{self._place(copy, [*others, last])} = {registers}[{number}];")
                return
            register, one = self._neighbour(tile, number)
            last = one if last == "0" else f"{last} + {one}"
            self.out.add("#pragma unroll")
            with self.out.block(f"for (int {one} = 0; {one} < {tile.vector}; {one}++)"):
                self.out.add(f"{self._place(copy, [*others, last])} = {registers}[{register}];")


def _sum(a: str, b: str) -> str:
    return b if a == "0" else a if b == "0" else f"{a} + {b}"

