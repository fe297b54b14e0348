"""Scans, histograms and sequential statements as kernels.

    scan        a thread for each point of the concatenated dimensions, which goes along the scanned one
    histogram   a thread for each point, which combines into its cell atomically; or, where that may change
                the result or no instruction does it, a thread for each point of the concatenated dimensions
    sequential  one thread
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

from emit.gpu_kernels import Kernels
from emit.gpu_nest_text import CELL_UNIT, GpuContext, cell_of_thread
from emit.histogram_text import HistogramText
from emit.host_text import Loops, SequentialText
from emit.kernel_text import Lines, product_text
from emit.linear_text import LinearText
from emit.scan_text import ScanText
from lowering.loops import size_name
from lowering.lower import HistogramNest, ScanNest, is_linear_recurrence
from mdh_core.expr import INT64, Assign, If, Load, Stmt, While, base_of
from mdh_core.ir import Param, Sequential


class _OnDevice(ScanText):
    """A scan whose rows are threads of a kernel."""

    kernels: Kernels
    in_vectors = False

    def _rows(self, stack: ExitStack) -> None:
        rows = [d.name for d in self.program.hom.dims_of("cc")]
        stack.enter_context(cell_of_thread(self.out, self.kernels, self.context, rows, _unit(rows)))
        domain = self.cells.domain
        tests = [domain.not_negative(r, self.context.at) for r in domain.positions]
        if tests:
            stack.enter_context(self.out.block(f"if ({' && '.join(tests)})"))


class _ScanOnDevice(_OnDevice):
    pass


class _LinearOnDevice(LinearText, _OnDevice):
    in_vectors = False
    _rows = _OnDevice._rows


def _unit(rows: list[str]) -> int:
    return CELL_UNIT if rows else 1


def _some(rows: list[str]) -> str:
    return " && ".join(f"{size_name(d)} > 0" for d in rows)


def write_scan(scan: ScanNest, context: GpuContext, kernels: Kernels) -> None:
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


class _HistogramOnDevice(HistogramText):
    """A histogram whose rows are threads of a kernel."""

    kernels: Kernels

    def _loops(self) -> None:
        rows = _parallel(self.nest)
        rest = tuple(d for d in self.nest.dims if d not in rows)
        with cell_of_thread(self.out, self.kernels, self.context, rows, _unit(rows)):
            self._points(rest, None)


def _parallel(nest: HistogramNest) -> list[str]:
    kept = {d.name for d in nest.program.hom.dims_of("cc")}
    return [d for d in nest.dims if d in kept]


def write_histogram(nest: HistogramNest, context: GpuContext, kernels: Kernels) -> None:
    rows = _parallel(nest)
    total, unit = str(product_text([size_name(d) for d in rows])), _unit(rows)
    blocks = f"({total} + {unit - 1})/{unit}" if rows else "1"
    with ExitStack() as stack:
        if rows:
            stack.enter_context(kernels.host.block(f"if ({_some(rows)})"))
        out = stack.enter_context(kernels.kernel(unit, blocks, {s.buffer for s in nest.program.out.stores}))
        text = _HistogramOnDevice(nest, context, out)
        text.kernels = kernels
        text.write()


def write_sequential(step: Sequential, loops: Loops, kernels: Kernels) -> None:
    known = {p.name for p in step.params}
    extra = tuple(Param(x.iterator, INT64) for x in loops if x.iterator not in known)
    with kernels.kernel(1, "1", _targets(step.body)) as out:
        SequentialText(replace(step, params=(*step.params, *extra)), kernels.names, out).write()


def _targets(body: tuple[Stmt, ...]) -> set[str]:
    found: set[str] = set()
    for s in body:
        if isinstance(s, Assign):
            base = base_of(s.target)
            found |= {base.buffer} if isinstance(base, Load) else set()
        elif isinstance(s, If):
            found |= _targets((*s.then, *s.other))
        elif isinstance(s, While):
            found |= _targets(s.body)
    return found


__all__ = ["Lines", "write_histogram", "write_scan", "write_sequential"]
