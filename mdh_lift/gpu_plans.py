"""From a lifted nest to files for a GPU: kernels, a host function and its header.

A point has the parameters of every program (``lowering.gpu_point``), those of the k-th (k > 0) with the
suffix ``_atk``.  Programs are as they were lifted: neither fused nor with host loops in blocks, which pays on
caches that a GPU does not have.  A ``GpuPlan`` has what a search and its verdict ask of ``kernels.Plan``,
but for an estimate of times: a search starts at the default.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from emit.gpu_file import GpuFile, GpuPart, RegionArray, RegionPart, gpu_file
from emit.gpu_render import gpu_part
from emit.host_text import leaves
from emit.interface_text import written_buffers
from emit.request import KernelRequest
from emit.targets import TARGETS, Target
from frontend_c.data_regions import DataRegion, NestOnDevice
from lifter.lift import LiftedNest
from lowering.device import GENERIC_OPENCL, H100, Device
from lowering.gpu_point import gpu_configuration, gpu_default, gpu_space
from lowering.instructions import TABLE
from lowering.machine import CUDA, OPENCL, SystemModel, this_machine
from lowering.parameters import Configuration, to_json, why_not_legal
from lowering.point import Point, own_values, suffix_of
from lowering.space import Space
from mdh_core.diagnostics import refuse
from mdh_lift import iterations, kernels
from mdh_lift.kernels import ALONE, Variant
from tuning.harness import Candidate

MODELS: Mapping[str, SystemModel] = {"cuda": CUDA, "opencl": OPENCL}
USUAL: Mapping[str, Device] = {"cuda": H100, "opencl": GENERIC_OPENCL}  # where no device is named


@dataclass(frozen=True, slots=True)
class GpuPlan:
    """A lifted nest, a target, a device, and the extents of its programs at the sizes to choose for.

    ``directory``: of the source file, as ``external_name`` wants it.
    """

    lifted: LiftedNest
    target: Target
    device: Device
    params: Mapping[str, int]
    sizes: tuple[dict[str, int], ...]
    lines: str = ""
    macros: frozenset[str] = frozenset()
    variant: Variant = ALONE
    directory: str = ""

    @property
    def name(self) -> str:
        """Of the host function, which other files see."""
        nest, source = self.lifted.nest, self.lines.rpartition(":")[0]
        name = external_name(source, nest.function, nest.label, self.directory)
        return name + self.variant.suffix

    @property
    def default(self) -> Point:
        """The choice without a search."""
        point: Point = {}
        for k, (program, sizes) in enumerate(zip(self.lifted.programs, self.sizes, strict=True)):
            point |= {n + suffix_of(k): v for n, v in gpu_default(program, self.device, sizes).items()}
        return point

    @property
    def starts(self) -> list[Point]:
        """Where a search begins: the default with a value for every parameter."""
        default = self.default
        return [{n: default.get(n, plainest(values)) for n, values in self.space.parameters}]

    @property
    def space(self) -> Space:
        """What is searched: the parameters of the programs with most points; others are as in the default."""
        default = self.default
        work = iterations.works(self.lifted.program, self.params)
        ranked = sorted(range(len(work)), key=lambda k: -work[k])
        chosen = {k for k in ranked[: kernels.TUNED] if work[k] >= kernels.MATTERS * sum(work)}
        parameters: list[tuple[str, tuple[int | str, ...]]] = []
        rules: list[str] = []
        idle: list[tuple[str, str]] = []
        for k, (program, sizes) in enumerate(zip(self.lifted.programs, self.sizes, strict=True)):
            if k not in chosen:
                own = gpu_default(program, self.device, sizes)
                parameters += [(n + suffix_of(k), (v,)) for n, v in own.items()]
                continue
            space = gpu_space(program, self.device, sizes)
            parameters += [(n + suffix_of(k), values) for n, values in space.parameters]
            names = set(space.names)
            rules += [_renamed(r, names, suffix_of(k)) for r in space.rules]
            idle += [(n + suffix_of(k), _renamed(r, names, suffix_of(k))) for n, r in space.idle]
        listed = {n for n, _ in parameters}
        parameters += [(n, (v,)) for n, v in default.items() if n not in listed]
        return Space(tuple(parameters), tuple(rules), tuple(idle))

    def configurations(self, point: Point) -> tuple[Configuration, ...]:
        return tuple(
            gpu_configuration(program, MODELS[self.target.name], sizes, own_values(point, k))
            for k, (program, sizes) in enumerate(zip(self.lifted.programs, self.sizes, strict=True))
        )

    def candidate(self, point: Point, described: bool = False) -> Candidate:
        """What a point would put into the source, and the file beside it.

        Not ``described``, it has a data region as well, so that a search compares times without copies.
        """
        if described:
            file, begin, end = self.file(point), "", ""
        else:
            part = self.part(point, described=False)
            addresses = _addresses(self.lifted)
            arrays = [RegionArray(m.name, addresses[m.name], "copy") for m in part.memory if m.host]
            region = RegionPart(f"{part.name}_times", part.title, tuple(arrays))
            file = gpu_file(part.name, [part], self.target, [region])
            begin, end = region.calls
        configurations = [to_json(c) for c in self.configurations(point)]
        return Candidate(
            file.header, file.call, kernels.after_text(self.lifted),
            json.dumps(configurations, sort_keys=True), file.text, begin, end,
        )  # fmt: skip

    def expression(self, point: Point) -> str:
        """The lines of all programs, for people; the same at every point."""
        return "\n".join(kernels.outline(self.lifted.program, kernels.expression))

    def file(self, point: Point, described: bool = True) -> GpuFile:
        """A file for this nest alone; raises as ``part``."""
        part = self.part(point, described)
        return gpu_file(part.name, [part], self.target)

    def part(self, point: Point, described: bool = True) -> GpuPart:
        """For a file with other nests (``gpu_file``); ``described``: its comment names the configuration.

        Raises ``Refusal`` where arrays cannot be copied (MDH416), names mean something else (MDH417), or the
        point is not legal (MDH608).
        """
        nest, model = self.lifted.nest, MODELS[self.target.name]
        for program, c in zip(self.lifted.programs, self.configurations(point), strict=True):
            reason = why_not_legal(c, program, model)
            if c.instruction and all(row.name != c.instruction for row in TABLE):
                reason = f"there is no instruction called `{c.instruction}`"
            if reason is not None and point != self.default:
                raise refuse("MDH608", f"the configuration is not legal: {reason}", nest.directive_span)
        configuration = "configuration: " + ", ".join(f"{k}={v}" for k, v in sorted(point.items()))
        request = KernelRequest(
            self.name,
            f"{nest.function}::{nest.label}",
            self.lifted.program,
            self.configurations(point),
            this_machine(),
            self.lines,
            nest.directive.noalias,
            nest.directive.assume,
            (
                *kernels.outline(self.lifted.program, lambda p: kernels.expression(p, "->", "o")),
                *self.variant.notes,
                *(textwrap.wrap(configuration, 100) if described and point else ()),
            ),
            self.lifted.temporaries,
            nest.params,
            self.macros,
        )
        return gpu_part(request, self.target, model, self.device)


def gpu_plan(
    lifted: LiftedNest,
    target: str,
    params: Mapping[str, int],
    lines: str = "",
    macros: frozenset[str] = frozenset(),
    device: Device | None = None,
    directory: str = "",
) -> GpuPlan:
    """A plan for values of the integer parameters; without a device, for a usual one."""
    sizes = iterations.sizes_at(lifted.program, params)
    by = device or USUAL[target]
    return GpuPlan(lifted, TARGETS[target], by, params, sizes, lines, macros, directory=directory)


def external_name(source: str, function: str, label: str, directory: str) -> str:
    """``gemm_step_0_mdh_1f6c09``: of a function that other files see, such that no two of them have one name.

    The name of the source file is in it, as functions of several files may have one name; and six digits of
    a hash of its directory (``beside.directory_of``), as files of several directories may.  In the root it
    has no digits.
    """
    stem = Path(source).stem
    name = kernels.kernel_name(function if stem in ("", function) else f"{stem}_{function}", label)
    name = name if name[0].isalpha() else f"mdh_{name}"  # `2mm.c`; and C keeps what begins with `_`
    return f"{name}_{hashlib.sha256(os.fsencode(directory)).hexdigest()[:6]}" if directory else name


def plainest(values: tuple[int | str, ...]) -> int | str:
    """What a point means that lacks a parameter: not copied, not padded, one thread, one row."""
    return next((v for v in (0, 1) if v in values), values[-1])


def _renamed(restriction: str, names: set[str], suffix: str) -> str:
    """A restriction about the parameters of the k-th program."""

    def renamed(found: re.Match[str]) -> str:
        return found[0] + suffix if found[0] in names else found[0]

    return re.sub(r"[A-Za-z_]\w*", renamed, restriction, flags=re.ASCII) if suffix else restriction


def region_part(region: DataRegion, target: str, directory: str = "") -> RegionPart:
    """The two functions of a data region: ``jacobi_data0_mdh_begin`` and ``_end``; ``directory``: of its
    file, as for a plan."""
    reserved = TARGETS[target].reserved
    arrays = [RegionArray(n.name + "_" * (n.name in reserved), n.name, n.clause) for n in region.names]
    source = region.name.rsplit("::", 2)[0]
    name = external_name(source, region.function, region.label, directory)
    return RegionPart(name, f"{region.function}::{region.label}", tuple(arrays))


def on_device(lifted: LiftedNest) -> NestOnDevice:
    """What a data region must know of a nest that a GPU runs."""
    bases = _addresses(lifted)
    written = written_buffers(list(leaves(lifted.program)))
    words = (re.findall(r"[A-Za-z_]\w*", bases[name]) for name in written if name in bases)
    return NestOnDevice(lifted.nest.span, frozenset(w for found in words for w in found))


def _addresses(lifted: LiftedNest) -> dict[str, str]:
    """C text of where each array is, and each scalar that is written."""
    return {b.name: b.base or b.name for leaf, _ in leaves(lifted.program) for b in leaf.buffers}
