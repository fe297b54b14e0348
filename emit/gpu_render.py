"""From steps and configurations to a nest's part of a file for a GPU: kernels, and a host function.

    int name(scalars, host arrays)      1: all the work of the nest is done, 0: nothing was written

What the parts of a file have in common is in ``emit.gpu_file``.  The host function declines as an
OpenMP kernel does (``emit.guards_text``), and where there is no device, not enough memory on it, or a call
fails; why is told once on the standard error output.  What the nest touches of an array is copied to the
device before the first step and what it writes is copied back behind the last one; so until then the
original can run instead.  Memory on the device is kept from call to call.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace

from emit.c_text import Printer, affine_text, c_type
from emit.empty_scan import empty_scan
from emit.gpu_context import GpuContext
from emit.gpu_file import DeviceArray, GpuFile, GpuPart, gpu_file
from emit.gpu_histogram_text import write_histogram
from emit.gpu_kernels import GpuKernel, Kernels, Known, words
from emit.gpu_nest_text import GpuNestText
from emit.gpu_ranges import overlap_lines, ranges_of
from emit.gpu_rows_text import write_scan, write_sequential
from emit.guards_text import assumption_lines, assumptions, in_comment, tests_at_call
from emit.host_text import Leaf, Loops, largest_size, leaves
from emit.interface_text import (
    argument,
    declared,
    depth_of,
    distinct_sizes,
    fixed_names,
    interface,
    is_integer,
    size_lines,
    size_text,
    taken_names,
    written_buffers,
)
from emit.kernel_text import Names
from emit.request import KernelRequest
from emit.targets import Target, spelled
from lowering.device import Device
from lowering.gpu import GpuNest, GpuStage, lower_gpu, plain_nest
from lowering.gpu_histogram import GpuHistogram
from lowering.loops import size_name
from lowering.machine import SystemModel
from mdh_core.diagnostics import refuse
from mdh_core.expr import FLOAT, Binary, Call, Expr, Function, RecordType, Type, Var, stmt_exprs, walk
from mdh_core.ir import Buffer, HostLoop, MdhProgram, Param, Sequential, Size, Step
from mdh_core.rounding import rounds_products
from mdh_core.source import NO_SPAN, Span

_OF_BUFFERS = ("device", "first", "last", "start", "end", "memory")  # variables of the host function


def emit_gpu(request: KernelRequest, target: Target, model: SystemModel, device: Device) -> GpuFile:
    """The file of one nest, named as its host function; raises as ``gpu_part``."""
    return gpu_file(request.name, [gpu_part(request, target, model, device)], target)


def gpu_part(request: KernelRequest, target: Target, model: SystemModel, device: Device) -> GpuPart:
    """A nest's kernels and host function, for a file that may have others (``emit.gpu_file``).

    Raises ``Refusal`` (MDH416) where an array is indexed with data and its size is not known: it
    cannot be copied; (MDH417) where a name means something else on the target.
    """
    steps = _plain_functions(distinct_sizes(request.steps, fixed_names(request)))
    placed = list(leaves(steps))
    params, buffers = interface(request, placed)
    meant = _means_something_else(request, placed, target)
    if meant is not None:
        headline = f"`{meant}` means something else in what is generated for {target.name}"
        raise refuse("MDH417", headline, placed[0][0].span, help="give it another name")
    written = written_buffers(placed)
    names = Names(taken_names(request, steps))
    for b in (*buffers, *request.temporaries):
        names.taken |= {f"{b.name}_{word}" for word in _OF_BUFFERS}
    known = {p.name: Known(p.name, "long" if is_integer(p) else c_type(p.type)) for p in params}
    for leaf, _ in placed:
        for d in leaf.hom.dims if isinstance(leaf, MdhProgram) else ():
            constant = d.size.constant
            known[size_name(d.name)] = Known(
                size_name(d.name), "long", value="" if constant is None else str(constant)
            )
    for b in (*buffers, *request.temporaries):
        known[b.name] = Known(b.name, c_type(b.type), buffer=True)
    records = _records(placed)
    own = tuple(_functions(placed))
    functions = tuple(f.name for f in own)
    kernels = Kernels(
        target, request.name, names, known, tuple(r.name for r in records), _launch(target), functions
    )
    body = _Body(request, model, device, kernels)
    body.write(steps)
    temporaries = [*request.temporaries, *body.temporaries]
    used = words(kernels.host.rows)
    mentioned = {k.name for kernel in kernels.done for k in kernel.parameters}
    buffers = [b for b in buffers if b.name in mentioned or b.name in used]
    ranges, unknown = ranges_of(buffers, placed)
    if unknown:
        headline = f"how much of `{unknown[0]}` is read is not known: it cannot be copied to a GPU"
        place = _place_of(unknown[0], placed)
        raise refuse("MDH416", headline, place, help="declare the array with its size")
    assumed = assumption_lines(request, placed)
    overlaps = overlap_lines(buffers, written, request.noalias)
    memory = [_memory(b, written) for b in buffers]
    memory += [DeviceArray(b.name, c_type(b.type), body.count(b)) for b in temporaries if b.name in mentioned]
    about = [*assumed, *(row for b in buffers for row in ranges[b.name]), *overlaps]
    used |= words([*about, *(m.count for m in memory)])
    sizes = [line for name, line in size_lines(placed).items() if name in used]
    used |= words(sizes)
    params = [q for q in params if q.name in used]
    known_here = {q.name for q in params} | {n for n in size_lines(placed) if n in used}
    wholes = {b.name: _whole(b, known_here) for b in buffers}
    memory = [replace(m, whole=wholes.get(m.name, "0")) for m in memory]
    arguments = [*map(_scalar, params), *(_pointer(b, written) for b in buffers)]
    given = [*map(argument, params), *(_given(b, written) for b in buffers)]
    # a structure may be packed or aligned in a way that is not known here
    records_of = [(b.base or b.name, b.type.size) for b in buffers if isinstance(b.type, RecordType)]
    fits = [f"sizeof *({at}) == {size}" for at, size in records_of]
    programs = [leaf for leaf, _ in placed if isinstance(leaf, MdhProgram)]
    return GpuPart(
        name=request.name,
        title=request.nest + (f", {request.lines}" if request.lines else ""),
        notes=tuple(map(in_comment, (*request.notes, *assumptions(request, [*assumed, *overlaps], [])))),
        prototype=f"int {request.name}({', '.join(arguments) or 'void'})",
        call=" && ".join([*fits, *tests_at_call(request), f"{request.name}({', '.join(given)})"]),
        records=tuple((r.name, _record_text(r)) for r in records),
        functions=tuple((f.name, tuple(_function_rows(f, own, kernels))) for f in own),
        kernels=tuple(kernels.done),
        texts=tuple(tuple(kernels.declaration(k)) for k in kernels.done),
        head=(*sizes, *about),
        memory=tuple(memory),
        body=tuple(kernels.host.rows),
        exact=any(p.fp == "exact" for p in programs),
        rounds=any(rounds_products(p) for p in programs),
        rounded=any(_divides(leaf) for leaf, _ in placed),
        span=placed[0][0].span,
    )


# --------------------------------------------------------------------------- steps


class _Body:
    """The host function behind its copies: host loops and launches."""

    def __init__(
        self, request: KernelRequest, model: SystemModel, device: Device, kernels: Kernels
    ) -> None:
        self.model, self.device, self.kernels = model, device, kernels
        self.configurations = iter(request.configurations)
        self.temporaries: list[Buffer] = []
        self.sizes: dict[str, tuple[Size, Loops]] = {}  # of temporaries' extents
        self.programs = 0

    def write(self, steps: tuple[Step, ...]) -> None:
        self._steps(steps, ())

    def _steps(self, steps: tuple[Step, ...], loops: Loops) -> None:
        for s in steps:
            match s:
                case MdhProgram():
                    self._program(s, loops)
                case HostLoop():
                    self._host_loop(s, loops)
                case Sequential():
                    write_sequential(s, loops, self.kernels)

    def _host_loop(self, loop: HostLoop, loops: Loops) -> None:
        out, t, end = self.kernels.host, loop.iterator, size_text(loop.size)
        self.kernels.known[t] = Known(t, "long")
        if loop.size.step != 1:
            name = self.kernels.names.new(size_name(t))
            out.add(f"const long {name} = {end};")
            end = name
        with out.block(f"for (long {t} = 0; {t} < {end}; {t}++)"):
            inside, scoped = len(out.rows), (*loops, loop)
            self._steps(loop.body, scoped)
            used = words(out.rows[inside:])
            lines = size_lines(leaves(loop.body, scoped), len(loops) + 1)
            pad = "  " * out.indent
            del self.kernels.known[t]
            out.rows[inside:inside] = [pad + line for name, line in lines.items() if name in used]

    def _program(self, program: MdhProgram, loops: Loops) -> None:
        """The kernels of a program, behind the sizes that only they have."""
        out = self.kernels.host
        at = len(out.rows)
        self._kernels(program, loops)
        used = words(out.rows[at:])
        made = [f"const long {n} = {text};" for n, text in self.kernels.made.items() if n in used]
        out.rows[at:at] = ["  " * out.indent + line for line in made]
        self.kernels.made.clear()

    def _kernels(self, program: MdhProgram, loops: Loops) -> None:
        k, self.programs = self.programs, self.programs + 1
        tag = str(k) if k else ""
        low = lower_gpu(program, next(self.configurations), self.model, self.device, tag)
        self.temporaries += low.temporaries
        for stage in low.stages:
            self.sizes |= {size_name(d.name): (d.size, loops) for d in stage.program.hom.dims}
        for b in low.temporaries:
            self.kernels.known[b.name] = Known(b.name, c_type(b.type), buffer=True)
        found, out = empty_scan(program), self.kernels.host
        if found is None:
            self._stages(low.stages, loops)
            return
        empty, cells = found
        if cells is not None:
            context = GpuContext(cells, self.kernels.names)
            text = GpuNestText(plain_nest(cells, self.device), context, self.kernels)
            if text.stored_if_empty:
                with out.block(f"if ({empty})"):
                    text.every_cell(initial_only=True)
        with out.block(f"if (!({empty}))"):
            self._stages(low.stages, loops)

    def _stages(self, stages: Iterable[GpuStage], loops: Loops) -> None:
        for stage in stages:
            context = GpuContext(stage.program, self.kernels.names)
            if isinstance(stage, GpuNest):
                for d in stage.program.hom.dims:
                    context.at[d.name] = "0"
                GpuNestText(stage, context, self.kernels).write()
            else:
                if isinstance(stage, GpuHistogram):
                    needed = write_histogram(stage, context, self.kernels)
                else:
                    needed = write_scan(stage, context, self.kernels)
                self.temporaries += needed.buffers
                self.sizes |= {name: (size, loops) for name, size in needed.sizes}

    def count(self, b: Buffer) -> str:
        """C text of a temporary's number of elements, the greatest over all iterations of host loops."""
        factors = []
        for e in b.extents:
            assert e is not None
            text = affine_text(e, {}, atom=True)
            for name in e.names:
                if name in self.sizes:
                    size, loops = self.sizes[name]
                    size = largest_size(size, loops) if depth_of(size, loops) else size
                    text = re.sub(rf"\b{name}\b", f"({size_text(size)})", text)
            factors.append(text)
        return "*".join(factors) or "1"


# --------------------------------------------------------------------------- memory


def _memory(b: Buffer, written: set[str]) -> DeviceArray:
    count = f"({b.name}_last - {b.name}_first + 1)"
    return DeviceArray(b.name, c_type(b.type), count, host=True, written=b.name in written)


def _scalar(p: Param) -> str:
    """A parameter; of a type that needs no declaration, which the header would not have."""
    return f"long {p.name}" if is_integer(p) else f"{c_type(p.type)} {p.name}"


def _whole(b: Buffer, names: set[str]) -> str:
    """Bytes of an array whose extents are declared, and known in the host function."""
    if b.strides is not None or any(e is None or e.names - names for e in b.extents):
        return "0"
    factors = [affine_text(e, {}, atom=True) for e in b.extents if e is not None]
    return "*".join([f"sizeof({c_type(b.type)})", *factors])


def _given(b: Buffer, written: set[str]) -> str:
    """The address of an array as the prototype wants it."""
    t = c_type(b.type) if not isinstance(b.type, RecordType) else "void"
    return f"({'' if b.name in written else 'const '}{t} *)({b.base or b.name})"


def _place_of(buffer: str, placed: list[tuple[Leaf, Loops]]) -> Span:
    """Where a buffer is read, or the nest's part that does."""
    own = [leaf for leaf, _ in placed if any(b.name == buffer for b in leaf.buffers)]
    accesses = [a for leaf in own if isinstance(leaf, MdhProgram) for a in leaf.inp.accesses]
    spans = [a.span for a in accesses if a.buffer == buffer] + [leaf.span for leaf in own]
    return next((span for span in spans if span != NO_SPAN), NO_SPAN)


def _pointer(b: Buffer, written: set[str]) -> str:
    """The parameter of a host array; of records without a type, which the file that calls may hide."""
    t = c_type(b.type) if not isinstance(b.type, RecordType) else "void"
    return f"{'' if b.name in written else 'const '}{t} *{b.name}"


# --------------------------------------------------------------------------- types and functions


def _means_something_else(
    request: KernelRequest, placed: list[tuple[Leaf, Loops]], target: Target
) -> str | None:
    """A name of the nest that the target's language, or the host function, has for something else."""
    names = {p.name for p in request.params} | {b.name for b in request.temporaries}
    for leaf, loops in placed:
        names |= {x.iterator for x in loops} | {p.name for p in leaf.params} | {b.name for b in leaf.buffers}
        names |= declared(leaf.body if isinstance(leaf, Sequential) else leaf.hom.scalar.body)
        names |= {d.name for d in leaf.hom.dims} if isinstance(leaf, MdhProgram) else set()
    for r in _records(placed):
        names |= {r.name.removeprefix("struct "), *(n for n, _ in r.fields)}
    for f in _functions(placed):
        names |= {n for n, _ in f.params}
    buffers = {b.name for leaf, _ in placed for b in leaf.buffers}
    own = {f"{b}_{word}" for b in buffers for word in _OF_BUFFERS}
    found = sorted(n for n in names if n in target.reserved or n in own or n.startswith("mdh_f_"))
    return found[0] if found else None


def _plain_functions(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Steps whose functions return what they compute."""

    def plain(s: Step) -> Step:
        if isinstance(s, HostLoop):
            return replace(s, body=tuple(map(plain, s.body)))
        return replace(s, functions=tuple(replace(f, out_param=False) for f in s.functions))

    return tuple(map(plain, steps))


def _functions(placed: Iterable[tuple[Leaf, Loops]]) -> list[Function]:
    return list({f.name: f for leaf, _ in placed for f in leaf.functions}.values())


def _function_rows(f: Function, every: tuple[Function, ...], kernels: Kernels) -> list[str]:
    def leaf(e: object) -> str:
        assert isinstance(e, Var)
        return e.name

    printer = Printer(leaf, functions=every)
    params = ", ".join(f"{c_type(t)} {n}" for n, t in f.params)
    body = ["  " + line for line in printer.statements(f.body)]
    head = f"{kernels.target.function}{c_type(f.type)} {f.name}({params})"
    return spelled([head, "{", *body, "}", ""], kernels.target, kernels.records, kernels.functions)


def _records(placed: Iterable[tuple[Leaf, Loops]]) -> list[RecordType]:
    found: dict[str, RecordType] = {}

    def note(t: Type) -> None:
        if isinstance(t, RecordType):
            found.setdefault(t.name, t)

    for leaf, _ in placed:
        for b in leaf.buffers:
            note(b.type)
        for f in leaf.functions:
            note(f.type)
            for _, t in f.params:
                note(t)
        exprs = stmt_exprs(leaf.body) if isinstance(leaf, Sequential) else leaf.hom.scalar.results
        for e in exprs:
            for n in walk(e):
                note(n.type)
    return list(found.values())


def _record_text(r: RecordType) -> str:
    fields = " ".join(f"{_field_type(t)} {n};" for n, t in r.fields)
    if r.name.startswith("struct "):
        return f"{r.name} {{ {fields} }};"
    return f"typedef struct {{ {fields} }} {r.name};"


def _divides(leaf: Leaf) -> bool:
    """Whether there is a division or a root of single precision, which a device may round otherwise."""
    exprs: list[Expr] = [e for f in leaf.functions for e in stmt_exprs(f.body)]
    if isinstance(leaf, Sequential):
        exprs += stmt_exprs(leaf.body)
    else:
        exprs += [*stmt_exprs(leaf.hom.scalar.body), *leaf.hom.scalar.results]
        exprs += [*(e for e in leaf.out.initial if e is not None), *(s.value for s in leaf.out.stores)]
    nodes = [n for e in exprs for n in walk(e)]
    divided = any(isinstance(n, Binary) and n.op == "/" and n.type == FLOAT for n in nodes)
    return divided or any(isinstance(n, Call) and "sqrt" in n.function for n in nodes)


def _field_type(t: Type) -> str:
    return c_type(t).replace("_Bool", "bool")


# --------------------------------------------------------------------------- launches


def _launch(target: Target) -> Callable[[GpuKernel, str], list[str]]:
    return _launch_cuda if target.name == "cuda" else _launch_opencl


def _launch_cuda(kernel: GpuKernel, blocks: str) -> list[str]:
    arguments = ", ".join(f"{k.name}_device" if k.buffer else k.name for k in kernel.parameters)
    if blocks.isdigit():
        return [
            f"{kernel.name}<<<{blocks}, {kernel.unit}>>>({arguments});",
            "if (mdh_not_launched()) return 0;",
        ]
    return [
        f"if (mdh_too_many({blocks})) return 0;",
        f"{kernel.name}<<<(unsigned int)({blocks}), {kernel.unit}>>>({arguments});",
        "if (mdh_not_launched()) return 0;",
    ]


def _launch_opencl(kernel: GpuKernel, blocks: str) -> list[str]:
    number = int(kernel.name.rpartition("_")[2])
    rows, k = [], 0
    for p in kernel.parameters:
        if p.buffer:
            rows.append(f"mdh_argument({number}, {k}, sizeof(cl_mem), &{p.name}_device);")
            rows.append(f"mdh_argument({number}, {k + 1}, sizeof(cl_long), &{p.name}_first);")
        else:
            rows.append(f"mdh_argument({number}, {k}, sizeof {p.name}, &{p.name});")
        k += 1 + p.buffer
    return [*rows, f"if (mdh_launch({number}, {blocks}, {kernel.unit})) return 0;"]

