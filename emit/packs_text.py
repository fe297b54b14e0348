"""Copies of the inputs' parts that a tile reads, in a layout of their own."""

from __future__ import annotations

import functools
import math
from contextlib import ExitStack
from dataclasses import replace

from emit.c_text import affine_text, c_type
from emit.kernel_text import Allocation, Context, Lines, Place, Strip
from emit.vectors_text import VectorsText
from lowering.copied import copied_value, with_copied_values
from lowering.loops import Loop, loop_range, size_name
from lowering.lower import Nest
from lowering.packs import Pack
from mdh_core.expr import Affine
from mdh_core.ir import Access, InputView, read_buffers


def layout_strides(pack: Pack) -> tuple[int, ...]:
    """Elements between neighbours of a copy, inside of a strip, per dimension of the buffer."""
    strides, cells = [0] * len(pack.extents), 1
    for position in reversed(pack.layout):
        strides[position] = cells
        is_cut = pack.strip is not None and position == pack.strip[0]
        cells *= pack.strip[1] if is_cut and pack.strip is not None else pack.extents[position]
    return tuple(strides)


def room(cells: int, size: int) -> int:
    """Elements to allocate for a copy that begins at a line; copies of the next threads then do, too.

    (Not where the size of an element divides no line.)
    """
    line = -(-64 // size)
    return (-(-cells // line) + 1) * line


class PacksText(VectorsText):
    """The copies of one nest.

    packed_from     the first index of a dimension that the copies hold
    copied_values   what the copies hold where it is not the element itself (see ``lowering.copied``)
    padded          inputs whose copies are filled up where a dimension is shorter than a strip
    parallel        whether the loops of threads are run by several: known sizes may be too little work
    """

    def __init__(self, nest: Nest, context: Context, out: Lines) -> None:
        super().__init__(nest, context, out)
        self.packed_from: dict[str, str] = {}
        self.parallel = False
        self.padded: set[str] = set()
        copied = [pack.buffer for pack in nest.packs if pack.at <= self.scope]  # no others are made
        self.copied_values = {b: copied_value(nest.program, b) for b in copied}
        self.program = with_copied_values(nest.program, copied)
        self._look_at_conditions()

    def pack(self, pack: Pack) -> None:
        """Copy the box of cells that the accesses touch from here on, in the pack's layout."""
        context, out = self.context, self.out
        accesses = [a for a in self.program.inp.accesses if a.buffer == pack.buffer]
        inner = self.nest.loops[pack.at :]
        name = self._memory(pack)
        bases, lengths = [], []
        for d in range(len(pack.extents)):
            base, length = self._box(accesses, d, inner)
            bases.append(base)
            lengths.append(length)
        target = Place(name, layout_strides(pack), tuple(bases))
        variables = [context.names.new(f"c{d}") for d in range(len(pack.extents))]
        at = {v: v if b == "0" else f"{b} + {v}" for v, b in zip(variables, bases, strict=True)}
        with ExitStack() as loops:
            # right before the threads' loops, one thread does it, if not a team
            if pack.at < self.nest.threads[0] + context.team:
                context.shared_loop(out, "static")
            if pack.strip is None:
                self._copy_cells(pack, replace(target, base=()), lengths, at)
            else:
                target = self._copy_strips(pack, target, lengths, at, loops)
        context.places[pack.buffer] = target
        used = {n for a in accesses for x in a.index for n in x.names}
        cut = {target.strip.dim} if target.strip is not None else set()
        self.packed_from |= {d: self.context.at[d] for d in (used & self.concatenated) - cut}

    def _memory(self, pack: Pack) -> str:
        """Declares the copy: on the stack of its thread, or on the heap; its name."""
        context, out, name = self.context, self.out, self.context.names.new(f"{pack.buffer}_tile")
        t = self.program.buffer(pack.buffer).type
        private = pack.at >= self.nest.threads[1] > self.nest.threads[0]
        small = pack.cells * t.size <= 1 << 14 and not context.team  # a variable would be each thread's own
        if not pack.heap and (private or small):
            out.add(f"{c_type(t)} {name}[{pack.cells}] __attribute__((aligned(64)));")
            return name
        memory, each = context.names.new(f"{pack.buffer}_memory"), room(pack.cells, t.size)
        several = private and self.parallel
        aligned = f"({c_type(t)} *)(((__UINTPTR_TYPE__){memory} + 63) & -64)"
        aligned += f" + {each}L*MDH_THREAD" if several else ""
        count = f"{each}L*MDH_THREADS" if several else str(each)
        context.allocations.append(Allocation(memory, c_type(t), count))
        out.add(f"{c_type(t)} *const __restrict {name} = {aligned};")
        return name

    def _copy_strips(
        self, pack: Pack, target: Place, lengths: list[str], at: dict[str, str], loops: ExitStack
    ) -> Place:
        """Strip by strip; the last one lies where its tile will (see ``NestText._move``).

        Where there is less than one strip, its last element is repeated: the tile is computed as a whole,
        with cells that are not stored, from data that are there.
        """
        assert pack.strip is not None
        t, width = pack.strip
        names, out, d = self.context.names, self.out, self.nest.loops[-1].dim
        first, n, known = self.context.at[d], size_name(d), self.program.dim(d).size.constant or 0
        pitch, c = math.prod(pack.extents) // pack.extents[t], list(at)[t]
        s = names.new(f"{d}_s")
        loops.enter_context(out.block(f"for (long {s} = 0; {s} < {lengths[t]}; {s} += {width})"))
        start = f"{first} + {s}" if first != "0" else s
        moved = self.is_moved_back(d)
        if moved:
            place, start = start, names.new(f"{d}_start")
            last = f"{n} - {width}" if known >= width else f"({n} > {width} ? {n} - {width} : 0)"
            out.add(f"const long {start} = {place} + {width} <= {n} ? {place} : {last};")
            left = f"{n} < {width} ? {n} : {width}"
        else:
            left = f"{lengths[t]} - {s} < {width} ? {lengths[t]} - {s} : {width}"
        index = next(a.index[t] for a in self.program.inp.accesses if a.buffer == pack.buffer)
        at = at | {c: f"{affine_text(index, self.context.at | {d: start})} + {c}"}
        here = replace(target, base=(), strip=Strip(t, c, "0", pitch))

        def copy(width: str, at: dict[str, str] = at) -> None:
            ends = [*lengths[:t], width, *lengths[t + 1 :]]
            self._copy_cells(pack, here, ends, at, {c: (s, "0")})

        if known >= width if moved else known > 0 and known % width == 0 and self.ordered(d):
            copy(str(width))
        else:  # a constant number is copied in vectors
            length = names.new(f"{d}_width")
            out.add(f"const long {length} = {left};")
            with out.block(f"if ({length} == {width})"):
                copy(str(width))
                out.middle("} else {")
                if moved:
                    first_index = affine_text(index, self.context.at | {d: start})
                    copy(str(width), at | {c: f"{first_index} + ({c} < {length} ? {c} : {length} - 1)"})
                    self.padded.add(pack.buffer)
                else:
                    copy(length)
        return replace(target, strip=Strip(t, d, first, pitch))

    def _copy_cells(
        self,
        pack: Pack,
        target: Place,
        ends: list[str],
        at: dict[str, str],
        tiles: dict[str, tuple[str, str]] | None = None,
    ) -> None:
        """Loops over the cells of a box; ``at``: per variable of the copy the index in the buffer."""
        names, program, variables = self.context.names, self.program, list(at)
        index = tuple(Affine.of(v) for v in variables)
        copy = Context(program, names, {v: v for v in variables}, tiles=tiles or {})
        copy.places = {pack.buffer: target}
        # each operand of the buffer is the element that is copied
        view = tuple(replace(a, index=index) if a.buffer == pack.buffer else a for a in program.inp.accesses)
        source = Context(replace(program, inp=InputView(view)), names, at)
        source.places = {pack.buffer: self.context.place(pack.buffer)}
        value = self.copied_values[pack.buffer]
        text = source.subscript(pack.buffer, index) if value is None else source.scalar(value, 0)
        with ExitStack() as loops:
            for position in pack.layout:
                v = variables[position]
                loops.enter_context(self.out.block(f"for (long {v} = 0; {v} < {ends[position]}; {v}++)"))
            self.out.add(f"{copy.subscript(pack.buffer, index)} = {text};")

    def _box(self, accesses: list[Access], d: int, inner: tuple[Loop, ...]) -> tuple[str, str]:
        """First index and number of indices of one buffer dimension, clipped at the sizes."""
        constants = [a.index[d].const for a in accesses]
        base = Affine(accesses[0].index[d].terms, min(constants))
        length: list[str] = []
        fixed = max(constants) - min(constants) + 1
        shift: list[str] = []
        dims = {x.name for x in self.program.hom.dims}
        for name, c in accesses[0].index[d].terms:
            if name not in dims:
                continue  # a parameter
            known = self.program.dim(name).size.constant
            span = loop_range(inner, name, known)
            assert span is not None
            if span == 1:
                continue
            n, start = size_name(name), self.context.at[name]
            left = n if start == "0" else f"{n} - {start}"
            end = next((self.ends[x] for x in inner if x.dim == name and x in self.ends), None)
            if end is None and known is not None and known % span == 0 and self.ordered(name):
                fixed += abs(c) * (span - 1)
                if c < 0:
                    shift.append(f" - {abs(c) * (span - 1)}")
                continue
            clipped = f"({end} - {start})" if end else f"({left} < {span} ? {left} : {span})"
            fixed -= abs(c)
            length.append(clipped if abs(c) == 1 else f"{abs(c)}*{clipped}")
            if c < 0:
                shift.append(f" - {abs(c)}*({clipped} - 1)")
        text = affine_text(base, self.context.at)
        base_text = text + "".join(shift)
        if "+" in base_text or "-" in base_text or "*" in base_text:
            base_name = self.context.names.new(f"{accesses[0].buffer}_first{d}")
            self.out.add(f"const long {base_name} = {base_text};")
            base_text = base_name
        if not length:
            return base_text, str(fixed)
        length_name = self.context.names.new(f"{accesses[0].buffer}_count{d}")
        total = " + ".join(length) + (f" + {fixed}" if fixed > 0 else f" - {-fixed}" if fixed else "")
        self.out.add(f"const long {length_name} = {total};")
        return base_text, length_name

    # ------------------------------------------------------------------ tiles on the border

    def _is_moved(self, k: int) -> bool:
        """Whether loop ``k`` is the last over a dimension before the tile, and its last tile is moved back.

        The tile then reads operands of cells that are not its own, which exist, and does not store these.
        """
        loop, inner = self.nest.loops[k], self.nest.loops[self.scope :]
        own = [x for x in inner if x.dim == loop.dim]
        return (
            self._moves_tiles
            and k < self.scope
            and loop.dim in self.concatenated
            and bool(own)
            and all(x.dim != loop.dim for x in self.nest.loops[k + 1 : self.scope])
            and loop.size == loop_range(own, loop.dim) == math.prod(x.count or 0 for x in own) > 1
            and not self.whole(loop, loop.size)
        )

    def is_moved_back(self, dim: str) -> bool:
        """Whether tiles on the border begin earlier in a dimension."""
        loops = self.nest.loops[: self.scope]
        return any(x.dim == dim and self._is_moved(k) for k, x in enumerate(loops))

    @functools.cached_property
    def _moves_tiles(self) -> bool:
        inner = self.nest.loops[self.scope :]
        return (
            self.vector_function is not None
            and self.vector_function.identity is not None
            and not self.domain.rows
            and not self._keeps_order
            and not self._may_repeat_points()
            and self._has_vectors_of_copies(inner)
        )

    def _has_vectors_of_copies(self, inner: tuple[Loop, ...]) -> bool:
        """Whether the tile has a vector form where all copies are in place, asked before they are."""
        before = dict(self.context.places)
        for pack in self.nest.packs:
            self.context.places[pack.buffer] = Place(pack.buffer, layout_strides(pack), ())
        found = self._has_vectors(inner)
        self.context.places = before
        return found

    def _may_repeat_points(self) -> bool:
        """Whether computing a cell twice changes nothing: at one visit, and nothing written is read."""
        program = self.program
        if self.nest.results != "direct" or any(s.at_last for s in program.out.stores):
            return False
        if self.nest.packs:  # copies hold what the tile reads where it stands
            return False
        return not {s.buffer for s in program.out.stores} & read_buffers(program)
