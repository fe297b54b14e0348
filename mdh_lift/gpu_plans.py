"""From a lifted nest to files for a GPU: kernels, a host function and its header.

A point has the parameters of every program (``lowering.gpu_point``), those of the k-th (k > 0) with the
suffix ``_atk``.  Programs are as they were lifted: neither fused nor with host loops in blocks, which pays on
caches that a GPU does not have.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass

from emit.gpu_file import GpuFile, GpuPart, RegionArray, RegionPart, gpu_file
from emit.gpu_render import gpu_part
from emit.host_text import leaves
from emit.interface_text import written_buffers
from emit.request import KernelRequest
from emit.targets import TARGETS, Target
from frontend_c.data_regions import DataRegion, NestOnDevice
from lifter.lift import LiftedNest
from lowering.device import GENERIC_OPENCL, H100, Device
from lowering.gpu_point import gpu_configuration, gpu_default
from lowering.machine import CUDA, OPENCL, SystemModel, this_machine
from lowering.parameters import Configuration
from lowering.point import Point, own_values
from mdh_lift import iterations, kernels

MODELS: Mapping[str, SystemModel] = {"cuda": CUDA, "opencl": OPENCL}
USUAL: Mapping[str, Device] = {"cuda": H100, "opencl": GENERIC_OPENCL}  # where no device is named


@dataclass(frozen=True, slots=True)
class GpuPlan:
    """A lifted nest, a target, a device, and the extents of its programs at the sizes to choose for."""

    lifted: LiftedNest
    target: Target
    device: Device
    sizes: tuple[dict[str, int], ...]
    lines: str = ""
    macros: frozenset[str] = frozenset()

    @property
    def default(self) -> Point:
        """The choice without a search."""
        point: Point = {}
        for k, (program, sizes) in enumerate(zip(self.lifted.programs, self.sizes, strict=True)):
            suffix = f"_at{k}" if k else ""
            point |= {n + suffix: v for n, v in gpu_default(program, self.device, sizes).items()}
        return point

    def configurations(self, point: Point) -> tuple[Configuration, ...]:
        return tuple(
            gpu_configuration(program, MODELS[self.target.name], sizes, own_values(point, k))
            for k, (program, sizes) in enumerate(zip(self.lifted.programs, self.sizes, strict=True))
        )

    def file(self, point: Point) -> GpuFile:
        """A file for this nest alone; raises as ``part``."""
        part = self.part(point)
        return gpu_file(part.name, [part], self.target)

    def part(self, point: Point) -> GpuPart:
        """For a file with other nests (``gpu_file``).

        Raises ``Refusal`` where arrays cannot be copied (MDH416) or names mean something else (MDH417).
        """
        nest = self.lifted.nest
        described = "configuration: " + ", ".join(f"{k}={v}" for k, v in point.items())
        request = KernelRequest(
            kernels.kernel_name(nest.function, nest.label),
            f"{nest.function}::{nest.label}",
            self.lifted.program,
            self.configurations(point),
            this_machine(),
            self.lines,
            nest.directive.noalias,
            nest.directive.assume,
            (
                *kernels.outline(self.lifted.program, lambda p: kernels.expression(p, "->", "o")),
                *textwrap.wrap(described, 100),
            ),
            self.lifted.temporaries,
            nest.params,
            self.macros,
        )
        return gpu_part(request, self.target, MODELS[self.target.name], self.device)


def gpu_plan(
    lifted: LiftedNest,
    target: str,
    params: Mapping[str, int],
    lines: str = "",
    macros: frozenset[str] = frozenset(),
    device: Device | None = None,
) -> GpuPlan:
    """A plan for values of the integer parameters; without a device, for a usual one."""
    sizes = iterations.sizes_at(lifted.program, params)
    return GpuPlan(lifted, TARGETS[target], device or USUAL[target], sizes, lines, macros)


def region_part(region: DataRegion, target: str) -> RegionPart:
    """The two functions of a data region: ``jacobi_data0_mdh_begin`` and ``_end``."""
    reserved = TARGETS[target].reserved
    arrays = [RegionArray(n.name + "_" * (n.name in reserved), n.name, n.clause) for n in region.names]
    name = kernels.kernel_name(region.function, region.label)
    return RegionPart(name, f"{region.function}::{region.label}", tuple(arrays))


def on_device(lifted: LiftedNest) -> NestOnDevice:
    """What a data region must know of a nest that a GPU runs."""
    placed = list(leaves(lifted.program))
    bases = {b.name: b.base or b.name for leaf, _ in placed for b in leaf.buffers}
    words = (re.findall(r"[A-Za-z_]\w*", bases[name]) for name in written_buffers(placed) if name in bases)
    return NestOnDevice(lifted.nest.span, frozenset(w for found in words for w in found))
