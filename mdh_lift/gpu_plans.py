"""From a lifted nest to files for a GPU: kernels, a host function and its header.

A point has the parameters of every program (``lowering.gpu_point``), those of the k-th (k > 0) with the
suffix ``_atk``.  Programs are as they were lifted: neither fused nor with host loops in blocks, which pays on
caches that a GPU does not have.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass

from emit.gpu_render import GpuFile, emit_gpu
from emit.request import KernelRequest
from emit.targets import TARGETS, Target
from lifter.lift import LiftedNest
from lowering.device import GENERIC_OPENCL, H100, Device
from lowering.gpu_point import gpu_configuration, gpu_default
from lowering.instructions import TABLE
from lowering.machine import CUDA, OPENCL, SystemModel, this_machine
from lowering.parameters import Configuration, why_not_legal
from lowering.point import Point, own_values
from mdh_core.diagnostics import refuse
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
        """The file and its header.

        Raises ``Refusal`` where arrays cannot be copied (MDH416), or the point is not legal (MDH418).
        """
        nest, model = self.lifted.nest, MODELS[self.target.name]
        for program, c in zip(self.lifted.programs, self.configurations(point), strict=True):
            reason = why_not_legal(c, program, model)
            if c.instruction and all(row.name != c.instruction for row in TABLE):
                reason = f"there is no instruction called `{c.instruction}`"
            if reason is not None and point != self.default:
                raise refuse("MDH418", f"the configuration is not legal: {reason}", nest.directive_span)
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
        return emit_gpu(request, self.target, model, self.device)


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
