"""The texts that `mdh-lift emit` prints: kernels and calls, files for GPUs, what the decorator compiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from emit.gpu_file import GpuFile, gpu_file
from emit.openmp_file import OpenmpFile
from emit.targets import TARGETS
from frontend_c import data_regions
from lifter.lift import LiftedNest
from lowering.device import Device
from lowering.point import Point
from mdh_core.diagnostics import Refusal
from mdh_core.source import SourceFile
from mdh_lift import beside, classes, entry, given, gpu_entry, gpu_plans, kernels
from mdh_lift.files import is_python
from mdh_lift.lifting import of_python
from mdh_lift.outlined import outlined, outlined_file
from mdh_lift.pipeline import (
    FileReport,
    NestReport,
    lines_of,
    macros_of,
    problems_of,
    style_of,
    target_of,
)


def emitted(
    report: FileReport,
    nest: NestReport,
    point: Mapping[str, object] | None = None,
    target: str = "",
    device: Device | None = None,
    style: str = "",
) -> str:
    """Kernel and call of a nest at a point of the search space, by default the cost model's first choice.

    ``target``: empty for what the nest says.  Raises MDH411 where the nest's clause excludes it, and
    ``ConfigurationError`` for a point that is none of the nest.

    For a GPU, and in the style `outline`: the file of the nest, its header, and the call; for a ``device``,
    else for a usual one.
    """
    if nest.lifted is None or not nest.lifted.programs:
        return ""
    if is_python(report.source.path):
        return _emitted_for_python(report, nest, point, target_of(nest, target), device)
    target = target_of(nest, target)
    clauses = classes.clauses_of(nest.lifted)
    if len(clauses) > 1 and point is None:
        return _emitted_for_classes(report, nest, clauses, target, device, style)
    planned = kernels.plan(nest.lifted, lines_of(report, nest), macros_of(report))
    if target != "openmp":
        on_gpu = gpu_plans.gpu_plan(
            nest.lifted, target, planned.params, planned.lines, planned.macros, device, report.directory
        )
        file = on_gpu.file(given.completed(on_gpu, point))
        return _apart(nest.lifted, file, file.call)
    if style_of(nest, style) == "outline":
        plan = outlined(planned, report.source.path, report.directory)
        part = plan.part(given.completed(plan, point))
        name = beside.file_name(report.source.path, target)
        return _apart(nest.lifted, outlined_file(name, report.source.path, [part]), part.call)
    kernel = planned.kernel(given.completed(planned, point))
    after = kernels.after_text(nest.lifted)
    return f"{kernel.text.rstrip()}\n\n/* in place of the nest */\nif ({kernel.call}) {{ {after} }}\n"


def _emitted_for_classes(
    report: FileReport,
    nest: NestReport,
    clauses: Sequence[classes.Clause],
    target: str,
    device: Device | None,
    style: str,
) -> str:
    """A kernel for each `sizes` clause and one for other sizes, each the cost model's first choice."""
    assert nest.lifted is not None
    made: list[tuple[classes.AnyPlan, Point, classes.Clause | None]] = []
    for clause in (*clauses, None):
        lifted = classes.only_clause(nest.lifted, clause)
        plan: classes.AnyPlan
        plan = planned = kernels.plan(lifted, lines_of(report, nest), macros_of(report))
        if target != "openmp":
            plan = gpu_plans.gpu_plan(
                lifted, target, planned.params, planned.lines, planned.macros, device, report.directory
            )
        elif style_of(nest, style) == "outline":
            plan = outlined(planned, report.source.path, report.directory)
        made.append((plan, plan.default, clause))
    several = classes.several(made)
    if several.parts():
        return _apart(nest.lifted, *several.file(beside.file_name(report.source.path, target)))
    kernel = several.kernel({})
    after = kernels.after_text(nest.lifted)
    return f"{kernel.text.rstrip()}\n\n/* in place of the nest */\nif ({kernel.call}) {{ {after} }}\n"


def _apart(lifted: LiftedNest, file: GpuFile | OpenmpFile, call: str) -> str:
    """The texts of a file beside the source, and what stands in place of the nest."""
    return (
        f"{file.text.rstrip()}\n\n{file.header.rstrip()}\n\n{file.make.rstrip()}\n\n"
        f"/* in place of the nest */\nif ({call}) {{ {kernels.after_text(lifted)} }}\n"
    )


def emitted_file(
    report: FileReport,
    nests: Sequence[NestReport],
    point: Mapping[str, object] | None,
    target: str,
    device: Device | None = None,
) -> str:
    """The GPU file of several nests and of the data regions around them, and what stands in their places.

    Raises ``Refusal`` where a nest cannot be emitted, or one that is not among ``nests`` would use arrays
    that are on the device (MDH419).
    """
    parts, places, lifted = [], list[str](), []
    for nest in nests:
        if nest.lifted is None or not nest.lifted.programs:
            continue
        planned = kernels.plan(nest.lifted, lines_of(report, nest), macros_of(report))
        plan = gpu_plans.gpu_plan(
            nest.lifted, target, planned.params, planned.lines, planned.macros, device, report.directory
        )
        parts.append(plan.part(given.completed(plan, point)))
        places.append(f"/* in place of {parts[-1].title} */")
        places.append(f"if ({parts[-1].call}) {{ {kernels.after_text(nest.lifted)} }}")
        lifted.append(nest.lifted)
    if not parts:
        return ""
    regions = []
    for region in report.data:
        around = [n for n in lifted if region.span.start <= n.nest.span.start < region.span.end]
        for problem in problems_of(region, lifted) if around else ():
            raise Refusal(problem)
        if around:
            regions.append(gpu_plans.region_part(region, target, report.directory))
            for (at, text), where in zip(
                data_regions.insertions(region, *regions[-1].calls), ("behind", "before"), strict=True
            ):
                line = SourceFile("", report.bare.data).line_col(at)[0]
                places.append(f"/* {where} the brace in line {line} */\n{text.strip()}")
    file = gpu_file(beside.file_name(report.source.path, target), parts, TARGETS[target], regions)
    texts = (file.text, file.header, file.make, "\n".join(places))
    return "\n\n".join(text.rstrip() for text in texts) + "\n"


def _emitted_for_python(
    report: FileReport,
    nest: NestReport,
    point: Mapping[str, object] | None,
    target: str,
    device: Device | None,
) -> str:
    """What the decorator compiles: a C file with types and functions, kernel, entry.

    For a GPU: the file of the nest, and the C file with the entry.
    """
    assert nest.lifted is not None
    bare = entry.prepared(nest.lifted.nest)
    combines = any(d.code == "MDH415" for d in nest.lifted.diagnostics)
    again = of_python({bare.name} if combines else ())(bare)
    planned = kernels.plan(again, lines_of(report, nest))
    name = f"{kernels.kernel_name(bare.function, bare.label)}_entry"
    if target == "openmp":
        return entry.around(again, planned.kernel(given.completed(planned, point)), name).text
    made = gpu_entry.program(again, target, planned.params, point, planned.lines, name, device)
    return f"{made.device.rstrip()}\n\n/* the C file that calls it */\n{made.text}"
