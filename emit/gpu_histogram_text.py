"""A ``GpuHistogram`` as kernels: every point finds its cell, in the array or in a private copy.

    no      a thread for each point, which combines into the array's cell by an atomic instruction; where
            there is none, or order matters, a thread for each point of the concatenated dimensions
    block   clear the block's copy; barrier; points, a grid apart, combine into it; barrier; add it up:

              __shared__ int h_copy[4096];
              for (c = thread; c < cells; c += 256) h_copy[c] = 0;
              __syncthreads();
              for (point = ...; point < points; point += copies*256) atomicAdd(&h_copy[to[i]], 1);
              __syncthreads();
              for (c = thread; c < cells; c += 256) if (h_copy[c] != 0) atomicAdd(&h[c], h_copy[c]);

    thread  each thread clears its copy in device memory and goes through a part of the points in order; a
            second kernel combines the copies into each cell, in their order

Barriers are those that ``lowering.barriers`` finds.  Private copies are used where all cells have room.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from emit.c_text import c_type, constant
from emit.gpu_context import CELL_UNIT, GpuContext, cell_of_thread, digits
from emit.gpu_kernels import Kernels, Known, Needed
from emit.histogram_text import HistogramText
from emit.kernel_text import Lines, product_text, repeats_right
from emit.nest_text import NestText
from emit.targets import Target
from lowering.barriers import Access, Barriers, Block, Position, Statement, barriers_of
from lowering.gpu_histogram import GpuHistogram
from lowering.loops import size_name
from lowering.lower import Nest
from mdh_core.combine import neutral
from mdh_core.expr import Affine, Const, ScalarType
from mdh_core.ir import Buffer, MdhProgram

COPY_UNIT = 256  # threads of a block that has a copy
PART_UNIT = 32  # threads of a block that have a copy each: few, so that there are many blocks
_ATOMIC = {"+": "add", "min": "min", "max": "max", "&": "and", "|": "or", "^": "xor"}


def atomic(program: MdhProgram, target: Target) -> str | None:
    """The instruction that combines into a cell whatever others do, or None.

    Sums of floating-point values depend on who comes first: only ``fp(fast)`` allows that.
    """
    function = program.hom.function
    assert function is not None
    (t,) = program.component_types
    name = _ATOMIC.get(function.name)
    if name is None or not isinstance(t, ScalarType) or not (function.exact or program.fp == "fast"):
        return None
    if t.is_float:
        return "atomicAdd" if name == "add" and target.typed and t.bits == 32 else None
    if t.bits == 32 and t.is_integer:
        return f"atomic{name.capitalize()}" if target.typed else f"atomic_{name}"
    return None


@functools.cache
def _barriers(cells: int, unit: int) -> Barriers:
    """Of the kernel of a block with a copy: any thread may count into any cell."""
    own = Access("copy", "write", lambda t, _: range(t, cells, unit))
    every = Access("copy", "atomic", lambda t, _: range(cells))
    read = replace(own, kind="read")
    body = Statement("clear", (own,)), Statement("points", (every,)), Statement("add", (read,))
    return barriers_of(Block(unit, body))


class _AtomicCells(NestText):
    """Cells into which many threads combine at once."""

    instruction = ""

    def accumulate(self, left: list[str], right: list[str]) -> None:
        self.out.add(f"{self.instruction}(&{left[0]}, {right[0]});")


@dataclass
class _Histogram:
    """Writes the kernels of one histogram."""

    nest: GpuHistogram
    context: GpuContext
    kernels: Kernels

    def write(self) -> Needed:
        nest, program = self.nest, self.nest.program
        if any(d.size.constant == 0 for d in program.hom.dims):
            return Needed()
        tests, needed = [], Needed()
        cells = product_text([d.size.constant or size_name(d.name) for d in program.hom.dims_of("cc")])
        if isinstance(cells, str):
            tests.append(f"{cells} <= {nest.room}")
        copies = nest.place if self.instruction or nest.place == "no" else "thread"
        if copies == "thread":
            points = " * ".join(f"(double){size_name(d)}" for d in nest.dims)
            tests.append(f"{points} >= 2.0*{cells}")  # else clearing the copies takes longer
        with ExitStack() as stack:
            names = [d.name for d in program.hom.dims if d.size.constant is None]
            if names:
                some = " && ".join(f"{size_name(d)} > 0" for d in names)
                stack.enter_context(self.kernels.host.block(f"if ({some})"))
            if copies == "no":
                self._into_the_array()
                return needed
            if tests:
                stack.enter_context(self.kernels.host.block(f"if ({' && '.join(tests)})"))
            if copies == "block":
                self._copies_of_blocks(str(cells))
            else:
                needed = self._copies_of_threads(str(cells))
            if tests:
                self.kernels.host.middle("} else {")
                self._into_the_array()
        return needed

    @functools.cached_property
    def instruction(self) -> str | None:
        return atomic(self.nest.program, self.kernels.target)

    @property
    def _written(self) -> set[str]:
        return {s.buffer for s in self.nest.program.out.stores}

    @property
    def _nothing(self) -> Const:
        function = self.nest.program.hom.function
        found = None if function is None else neutral(function)
        assert found is not None  # or the program has another form
        return found

    def _into_the_array(self) -> None:
        kept = {d.name for d in self.nest.program.hom.dims_of("cc")}
        parallel = [d for d in self.nest.dims if self.instruction or d in kept]
        total, unit = str(product_text([size_name(d) for d in parallel])), CELL_UNIT if parallel else 1
        blocks = f"({total} + {unit - 1})/{unit}" if parallel else "1"
        with self.kernels.kernel(unit, blocks, self._written) as out:
            text = _Points(self.nest, self.context, out, self.instruction)
            with cell_of_thread(out, self.kernels, self.context, parallel, unit):
                text.visit(tuple(d for d in self.nest.dims if d not in parallel), None)

    def _copies_of_blocks(self, cells: str) -> None:
        kernels, nest, context = self.kernels, self.nest, self.context
        target, names, unit = kernels.target, context.names, COPY_UNIT
        (store,) = nest.program.out.stores
        t, nothing = nest.program.component_types[0], self._nothing
        total = str(product_text([size_name(d) for d in nest.dims]))
        wanted = f"({total} + {unit - 1})/{unit}"
        blocks = kernels.note("blocks", f"{wanted} < {nest.copies} ? {wanted} : {nest.copies}")
        barriers = _barriers(min(nest.room, 2 * unit), unit)

        with kernels.kernel(unit, blocks, self._written) as out:

            def barrier(name: str) -> None:
                if Position("before", name) in barriers.at:
                    out.add(target.barrier)

            copy = kernels.share(c_type(t), f"{store.buffer}_copy", nest.room)
            c, value = names.new("c"), constant(nothing.value, nothing.type)
            every_cell = f"for (int {c} = {target.thread}; {c} < {cells}; {c} += {unit})"
            text = _Points(nest, context, out, self.instruction)
            barrier("clear")
            with out.block(every_cell):
                out.add(f"{copy}[{c}] = {value};")
            barrier("points")
            point = names.new("point" if len(nest.dims) > 1 else nest.dims[0])
            start = f"(long){target.block}*{unit} + {target.thread}"
            step = nest.copies * unit
            with out.block(f"for (long {point} = {start}; {point} < {total}; {point} += {step})"):
                self._indices(nest.dims, point, out)
                text.visit((), copy)
            barrier("add")
            with out.block(every_cell), out.block(f"if ({copy}[{c}] != {value})"):
                self._indices([d.name for d in text._cells], c, out)
                cell = context.subscript(store.buffer, store.index)
                text.cells.accumulate([cell], [f"{copy}[{c}]"])

    def _indices(self, dims: Sequence[str], number: str, out: Lines) -> None:
        """The indices of the position with a number, which stays as it is."""
        if len(dims) == 1:
            self.context.at[dims[0]] = number
            return
        rest = self.context.names.new("rest")
        out.add(f"long {rest} = {number};")
        digits(out, self.context, dims, rest)

    def _copies_of_threads(self, cells: str) -> Needed:
        kernels, nest, context = self.kernels, self.nest, self.context
        target, names = kernels.target, context.names
        (store,) = nest.program.out.stores
        t, nothing = nest.program.component_types[0], self._nothing
        copies = Buffer(names.new(f"{store.buffer}_copies"), t, (Affine.number(nest.copies * nest.room),))
        kernels.known[copies.name] = Known(copies.name, c_type(t), buffer=True)
        first = nest.dims[0]
        share = kernels.note("share", f"({size_name(first)} + {nest.copies - 1})/{nest.copies}")
        unit = min(PART_UNIT, nest.copies)
        with kernels.kernel(unit, str(-(-nest.copies // unit)), {copies.name}) as out:
            part, c, end = names.new("part"), names.new("c"), names.new("end")
            out.add(f"const long {part} = (long){target.block}*{unit} + {target.thread};")
            with ExitStack() as stack:
                if nest.copies % unit:
                    stack.enter_context(out.block(f"if ({part} < {nest.copies})"))
                with out.block(f"for (long {c} = 0; {c} < {cells}; {c}++)"):
                    at = f"{c}*{nest.copies} + {part}"
                    out.add(f"{copies.name}[{at}] = {constant(nothing.value, nothing.type)};")
                last = f"({part} + 1)*{share}"
                out.add(f"const long {end} = {last} < {size_name(first)} ? {last} : {size_name(first)};")
                text = _Points(nest, context, out, None)
                text.column = f"{nest.copies} + {part}"
                text.visit(nest.dims, copies.name, (f"{part}*{share}", end))
        text = _Points(nest, context, kernels.host, None)
        dims = [d.name for d in text._cells]
        blocks = f"({product_text([size_name(d) for d in dims])} + {CELL_UNIT - 1})/{CELL_UNIT}"
        with kernels.kernel(CELL_UNIT, blocks, self._written) as out:
            text = _Points(nest, context, out, None)
            with cell_of_thread(out, kernels, context, dims, CELL_UNIT):
                part = names.new("part")
                cell = context.subscript(store.buffer, store.index)
                text.column = f"{nest.copies} + {part}"
                with out.block(f"for (int {part} = 0; {part} < {nest.copies}; {part}++)"):
                    value = text._own_cell(copies.name)
                    if repeats_right(text.function):
                        (value,) = text.cells._named([value])
                    text.cells.accumulate([cell], [value])
        return Needed((copies,))


class _Points(HistogramText):
    """Points of a thread, and what they are combined into.

    column  of copies in device memory: their number, and which one is meant
    """

    column = ""

    def __init__(self, nest: GpuHistogram, context: GpuContext, out: Lines, instruction: str | None) -> None:
        super().__init__(nest, context, out)
        if instruction is not None:
            cells = _AtomicCells(Nest(nest.program, (), (0, 0), 0, 0, (), "direct"), context, out)
            cells.instruction = instruction
            self.cells = cells

    def visit(self, dims: tuple[str, ...], own: str | None, bounds: tuple[str, str] | None = None) -> None:
        self._points(dims, own, bounds)

    def _own_cell(self, own: str, first: str = "") -> str:
        at = f"{first}{self._at()}"
        if not self.column:
            return f"{own}[{at}]"
        return f"{own}[{f'({at})' if '+' in at else at}*{self.column}]"


def write_histogram(nest: GpuHistogram, context: GpuContext, kernels: Kernels) -> Needed:
    """The kernels of a histogram, and the copies in device memory that they need."""
    return _Histogram(nest, context, kernels).write()
