"""Scans and sequential statements as kernels.

    scan        a thread for each point of the concatenated dimensions (a row), which goes along the scanned
                one; where rows are long and few, threads for chunks of each row
    sequential  one thread
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace

from emit.c_text import c_type
from emit.gpu_context import CELL_UNIT, GpuContext, cell_of_thread, digits
from emit.gpu_kernels import Kernels, Known, Needed
from emit.host_text import Loops, SequentialText
from emit.interface_text import size_text, written_buffers
from emit.kernel_text import product_text
from emit.linear_text import LinearText
from emit.scan_text import ScanText
from lowering.loops import size_name
from lowering.lower import ScanNest, is_linear_recurrence
from lowering.parameters import reassociates
from mdh_core.expr import INT64, Affine
from mdh_core.ir import Buffer, Param, Sequential, Size


class _OnDevice(ScanText):
    """A scan whose rows are threads of a kernel."""

    kernels: Kernels
    in_vectors = False

    def _simd_reduction(self, carry: list[str]) -> str:
        return ""

    def _rows(self, stack: ExitStack) -> None:
        rows = [d.name for d in self.program.hom.dims_of("cc")]
        stack.enter_context(cell_of_thread(self.out, self.kernels, self.context, rows, _unit(rows)))
        domain = self.cells.domain
        tests = [domain.not_negative(r, self.context.at) for r in domain.positions]
        if tests:
            stack.enter_context(self.out.block(f"if ({' && '.join(tests)})"))


@dataclass(frozen=True, slots=True)
class _Place:
    """What a thread is for, as C text: the ``inner``-th chunk (or group) of a row, ``number`` among all."""

    number: str
    inner: str
    row: str

    def ends(self, count: str) -> tuple[str, str]:
        """The numbers of the row's first chunk (or group) and behind its last one, of ``count``."""
        return (f"{self.row}*{count}", f"({self.row} + 1)*{count}") if self.row else ("0", count)


class _ScanOnDevice(_OnDevice):
    """The kernels of a scan in chunks: each method writes what one thread does."""

    def _fresh(self) -> list[str]:
        """Running values that start from the identity."""
        names = [self.context.names.new("carry") for _ in self.types]
        for c, (name, t) in enumerate(zip(names, self.types, strict=True)):
            self.out.add(f"{c_type(t)} {name} = {self._neutral(c)};")
        return names

    def total_of_chunk(self, at: _Place, totals: list[str]) -> None:
        self._bounds(CHUNK, at.inner)
        carry = self._fresh()
        start, end = self._ends_of_block
        self._sequence(carry, start, end, start, store=False, seeded=True)
        self.out.add(*(f"{t}[{at.number}] = {c};" for t, c in zip(totals, carry, strict=True)))

    def _ends(self, at: _Place, chunks: str) -> tuple[str, str]:
        """The chunks of a group."""
        first, end = self.context.names.new("first"), self.context.names.new("last")
        reach, (begin, most) = f"{first} + {GROUP}", at.ends(chunks)
        start = f"{at.inner}*{GROUP}" if begin == "0" else f"{begin} + {at.inner}*{GROUP}"
        self.out.add(f"const long {first} = {start};")
        self.out.add(f"const long {end} = {reach} < {most} ? {reach} : {most};")
        return first, end

    def total_of_group(self, at: _Place, totals: list[str], above: list[str], chunks: str) -> None:
        first, end = self._ends(at, chunks)
        carry, k = self._fresh(), self.context.names.new("k")
        with self.out.block(f"for (long {k} = {first}; {k} < {end}; {k}++)"):
            self.cells.accumulate(carry, self.cells._named([f"{t}[{k}]" for t in totals]))
        self.out.add(*(f"{t}[{at.number}] = {c};" for t, c in zip(above, carry, strict=True)))

    def before_groups(self, at: _Place, above: list[str], groups: str) -> None:
        carry = self._carry()
        self._from_block_to_block(*at.ends(groups), above, carry)
        self._store(carry, last=True, at=f"{size_name(self.scan.dim)} - 1")

    def before_chunks(self, at: _Place, totals: list[str], above: list[str], chunks: str) -> None:
        first, end = self._ends(at, chunks)
        self._from_block_to_block(first, end, totals, self._carries(above, at.number))

    def chunk(self, at: _Place, totals: list[str]) -> None:
        self._bounds(CHUNK, at.inner)
        self._sequence(self._carries(totals, at.number), *self._ends_of_block, "0")


class _LinearOnDevice(LinearText, _OnDevice):
    in_vectors = False
    _rows = _OnDevice._rows


def _unit(rows: list[str]) -> int:
    return CELL_UNIT if rows else 1


def _some(rows: list[str]) -> str:
    return " && ".join(f"{size_name(d)} > 0" for d in rows)


def write_scan(scan: ScanNest, context: GpuContext, kernels: Kernels) -> Needed:
    """The kernels of a scan; where rows are long, and too few for a thread each, they are in chunks."""
    if not _goes_in_chunks(scan):
        _write_in_order(scan, context, kernels)
        return Needed()
    rows = [d.name for d in scan.program.hom.dims_of("cc")]
    tests = [f"{size_name(scan.dim)} > {LONG}"]
    if rows:
        tests += [_some(rows), f"{product_text([size_name(d) for d in rows])} <= {ROWS}"]
    with kernels.host.block(f"if ({' && '.join(tests)})"):
        needed = _write_in_chunks(scan, rows, context, kernels)
        kernels.host.middle("} else {")
        _write_in_order(scan, context, kernels)
    return needed


def _goes_in_chunks(scan: ScanNest) -> bool:
    program, function = scan.program, scan.program.hom.function
    known = program.dim(scan.dim).size.constant
    return (
        not program.hom.domain
        and function is not None
        and function.commutative
        and function.identity is not None
        and not (program.fp == "exact" and reassociates(program))
        and (known is None or known > LONG)
    )


def _write_in_order(scan: ScanNest, context: GpuContext, kernels: Kernels) -> None:
    rows = [d.name for d in scan.program.hom.dims_of("cc")]
    total, unit = str(product_text([size_name(d) for d in rows])), _unit(rows)
    blocks = f"({total} + {unit - 1})/{unit}" if rows else "1"
    text_class = _LinearOnDevice if is_linear_recurrence(scan.program) else _ScanOnDevice
    with ExitStack() as stack:
        if rows:
            stack.enter_context(kernels.host.block(f"if ({_some(rows)})"))
        out = stack.enter_context(kernels.kernel(unit, blocks, {s.buffer for s in scan.program.out.stores}))
        text = text_class(scan, context, out)
        text.kernels = kernels
        text.write()


CHUNK = 64  # elements that one thread goes through
GROUP = 1024  # chunks whose totals one thread goes through
LONG = 1 << 13  # points that take one thread longer than starting the kernels of chunks
ROWS = 1 << 14  # rows that are enough threads, however long they are


def _write_in_chunks(scan: ScanNest, rows: list[str], context: GpuContext, kernels: Kernels) -> Needed:
    """Totals of chunks and of groups of chunks; and back: what is before each group, each chunk, each point.

    The lengths are the same in every run, and so are the bits of the result.
    """
    d, program = scan.dim, scan.program
    size = program.dim(d).size
    chunks, groups = kernels.names.new(f"{d}_chunks"), kernels.names.new(f"{d}_groups")
    sizes = tuple(
        (name, Size(size.span, size.step * length))
        for name, length in ((chunks, CHUNK), (groups, CHUNK * GROUP))
    )
    for name, length in sizes:
        kernels.known[name] = Known(name, "long")
        kernels.made[name] = size_text(length)
    totals: list[str] = []
    above: list[str] = []
    buffers: list[Buffer] = []
    for name, found in ((chunks, totals), (groups, above)):
        for t in program.component_types:
            extents = *(Affine.of(size_name(r)) for r in rows), Affine.of(name)
            buffers.append(Buffer(kernels.names.new(f"mdh_{name}_total"), t, extents))
            kernels.known[buffers[-1].name] = Known(buffers[-1].name, c_type(t), buffer=True)
            found.append(buffers[-1].name)
    stored = {s.buffer for s in program.out.stores}

    def kernel(count: str, written: set[str], write: Callable[[_ScanOnDevice, _Place], None]) -> None:
        """A kernel with ``count`` threads for each row."""
        threads = str(product_text([*map(size_name, rows), int(count) if count == "1" else count]))
        unit = 1 if threads == "1" else CELL_UNIT
        blocks = "1" if unit == 1 else f"({threads} + {unit - 1})/{unit}"
        with kernels.kernel(unit, blocks, written) as out:
            text = _ScanOnDevice(scan, context, out)
            text.kernels = kernels
            context.at[d] = "0"
            if unit == 1:
                write(text, _Place("0", "0", ""))
                return
            names = kernels.names
            number = inner = names.new("number")
            out.add(f"const long {number} = (long){kernels.target.block}*{unit} + {kernels.target.thread};")
            with out.block(f"if ({number} < {threads})"):
                row = ""
                if rows:
                    row = number
                    if count != "1":
                        row, inner = names.new("row"), names.new("chunk" if count == chunks else "group")
                        out.add(f"const long {row} = {number} / {count};")
                        out.add(f"const long {inner} = {number} % {count};")
                    rest = row
                    if len(rows) > 1:
                        rest = names.new("rest")
                        out.add(f"long {rest} = {row};")
                    digits(out, context, rows, rest)
                write(text, _Place(number, inner, row))

    kernel(chunks, set(totals), lambda text, at: text.total_of_chunk(at, totals))
    kernel(groups, set(above), lambda text, at: text.total_of_group(at, totals, above, chunks))
    kernel("1", {*above, *stored}, lambda text, at: text.before_groups(at, above, groups))
    kernel(groups, set(totals), lambda text, at: text.before_chunks(at, totals, above, chunks))
    kernel(chunks, stored, lambda text, at: text.chunk(at, totals))
    return Needed(tuple(buffers), sizes)


def write_sequential(step: Sequential, loops: Loops, kernels: Kernels) -> None:
    known = {p.name for p in step.params}
    extra = tuple(Param(x.iterator, INT64) for x in loops if x.iterator not in known)
    with kernels.kernel(1, "1", written_buffers([(step, loops)])) as out:
        SequentialText(replace(step, params=(*step.params, *extra)), kernels.names, out).write()
