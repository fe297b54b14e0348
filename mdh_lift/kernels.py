"""From a lifted nest to the text that is spliced: sizes to tune for, the kernel, what runs after it."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass

from emit.c_text import affine_text
from emit.render import Kernel, KernelRequest, emit_openmp
from lifter.lift import FinalIterator, LiftedNest
from lowering.machine import Machine, this_machine
from lowering.parameters import Configuration
from lowering.space import Point, configuration_at, default_point
from mdh_core.diagnostics import refuse
from mdh_core.expr import Affine, ScalarType
from mdh_core.ir import MdhProgram, Param, Size
from mdh_core.show import show
from mdh_lift.c_value import NotAnInteger, names_in, value

# extent of every dimension whose size is a parameter, by the number of such dimensions
_USUAL_EXTENTS = {1: 1 << 23, 2: 2048, 3: 512, 4: 96, 5: 40}
_MANY_DIMENSIONS = 16
_MOST_POINTS = 1 << 27
_NO_EXTENT = 64  # of a parameter that is no size
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Plan:
    """A lifted nest, values of its integer parameters, and the extents that follow (one dict per program)."""

    lifted: LiftedNest
    machine: Machine
    params: Mapping[str, int]
    sizes: tuple[dict[str, int], ...]
    lines: str = ""  # "gemm.c:12-18"

    @property
    def programs(self) -> tuple[MdhProgram, ...]:
        return self.lifted.programs

    @property
    def default(self) -> Point:
        """The cost model's first choice."""
        return default_point(self.programs, self.machine, self.sizes)

    def configurations(self, point: Point) -> tuple[Configuration, ...]:
        return configuration_at(self.programs, self.machine, self.sizes, point)

    def kernel(self, point: Point, described: bool = True) -> Kernel:
        """The OpenMP kernel with a point of the search space.

        ``described``: the header names the configuration.  A search leaves that out, so that points that
        give the same code give the same text and are measured once.
        """
        nest = self.lifted.nest
        configuration = "configuration: " + ", ".join(f"{k}={v}" for k, v in point.items())
        return emit_openmp(
            KernelRequest(
                kernel_name(nest.function, nest.label),
                f"{nest.function}::{nest.label}",
                self.programs,
                self.configurations(point),
                self.machine,
                self.lines,
                nest.directive.noalias,
                nest.directive.assume,
                (
                    *(line for p in self.programs for line in expression(p, "->", "o").splitlines()),
                    *(textwrap.wrap(configuration, 100) if described else ()),
                ),
            )
        )


def expression(program: MdhProgram, arrow: str = "\u21a6", after: str = "\u2218") -> str:
    """The MDH expression; with other signs for the arrow of an index function and for composition."""
    return show(program).replace("\u21a6", arrow).replace("\u2218", after)


def plan(lifted: LiftedNest, lines: str = "") -> Plan:
    """A plan for the directive's first ``sizes`` clause, or for usual sizes."""
    try:
        params = parameter_values(lifted, sizes_of(lifted))
    except (NotAnInteger, KeyError) as error:
        reason = f"the value of {error} is not known"
        raise refuse(
            "MDH804", f"`{lifted.nest.name}` cannot be run by itself: {reason}", lifted.nest.span
        ) from None
    return Plan(lifted, this_machine(), params, tuple(p.sizes(params) for p in lifted.programs), lines)


# --------------------------------------------------------------------------- sizes


def is_derived(p: Param) -> bool:
    """Is the parameter computed from variables, instead of being one?"""
    return bool(p.value) and _IDENTIFIER.fullmatch(p.value) is None


def variables_of(lifted: LiftedNest) -> dict[str, Param]:
    """Variables that the nest's parameters stand for, and a parameter that tells the type of each."""
    params = lifted.nest.params
    found = {p.value or p.name: p for p in params if not is_derived(p)}
    known = {p.name for p in params}
    for p in params:
        if is_derived(p):
            found |= {name: p for name in names_in(p.value) if name not in found and name not in known}
    return found


def sizes_of(lifted: LiftedNest) -> dict[str, int]:
    """A value for every integer variable: that of the first ``sizes`` clause, or one that makes some work."""
    dims = {d.name for p in lifted.programs for d in p.hom.dims if d.size.constant is None}
    extent = _USUAL_EXTENTS.get(max(1, len(dims)), _MANY_DIMENSIONS)
    sizes = _sizes_with(lifted, extent)
    while extent > 1 and _points(lifted, sizes) > _MOST_POINTS:
        extent //= 2
        sizes = _sizes_with(lifted, extent)
    return sizes


def _sizes_with(lifted: LiftedNest, extent: int) -> dict[str, int]:
    shaping = _shaping(lifted)
    clause = dict(lifted.nest.directive.sizes[0]) if lifted.nest.directive.sizes else {}
    values = {}
    for name, param in variables_of(lifted).items():
        if isinstance(param.type, ScalarType) and param.type.is_integer:
            is_size = param.name in shaping or is_derived(param)
            values[name] = clause.get(name, extent if is_size else _NO_EXTENT)
    return values


def _shaping(lifted: LiftedNest) -> set[str]:
    """Names in extents of dimensions and buffers, and in index functions (leading dimensions)."""
    found: list[Affine] = [d.size.span for p in lifted.programs for d in p.hom.dims]
    for b in (*lifted.nest.buffers, *(b for p in lifted.programs for b in p.buffers)):
        found += [e for e in b.extents if e is not None]
    for p in lifted.programs:
        found += [x for a in p.inp.accesses for x in a.index] + [x for s in p.out.stores for x in s.index]
    return {name for a in found for name in a.names}


def _points(lifted: LiftedNest, sizes: Mapping[str, int]) -> int:
    """Iteration points of the largest program."""
    params = parameter_values(lifted, sizes)
    return max((math.prod(p.sizes(params).values()) for p in lifted.programs), default=0)


def parameter_values(lifted: LiftedNest, sizes: Mapping[str, int | float]) -> dict[str, int]:
    """Values of all integer parameters by their names in the programs, from those of the variables.

    Raises ``NotAnInteger`` or ``KeyError`` where one cannot be told.
    """
    known = {name: int(v) for name, v in sizes.items()}
    found: dict[str, int] = {}
    for p in lifted.nest.params:
        if isinstance(p.type, ScalarType) and p.type.is_integer:
            found[p.name] = value(p.value, known | found) if is_derived(p) else known[p.value or p.name]
    return found


def kernel_name(function: str, label: str) -> str:
    """A C identifier: ``gemm_0_mdh``."""
    return re.sub(r"\W", "_", f"{function}_{label}_mdh", flags=re.ASCII)


# --------------------------------------------------------------------------- final values of iterators


def after_text(lifted: LiftedNest) -> str:
    """C statements that give iterators declared before the nest the values that the loops leave in them."""
    names = {p.name: p.value for q in lifted.programs for p in q.params if p.value and p.value != p.name}
    names |= {p.name: p.value for p in lifted.nest.params if p.value and p.value != p.name}
    return " ".join(_final(f, names) for f in lifted.iterators_final)


def _final(f: FinalIterator, names: Mapping[str, str]) -> str:
    lower = affine_text(f.lower, dict(names), atom=True)
    size = _size(f.size, names)
    step = size if f.step == 1 else f"{f.step} * ({size})"
    value = step if lower == "0" else f"{lower} + {step}"
    conditions = [f"({_span(s, names)}) > 0" for s in f.outer if (s.constant or 0) <= 0]
    statement = f"{f.name} = {value};"
    return f"if ({' && '.join(conditions)}) {statement}" if conditions else statement


def _span(size: Size, names: Mapping[str, str]) -> str:
    return affine_text(size.span, dict(names))


def _size(size: Size, names: Mapping[str, str]) -> str:
    if size.constant is not None:
        return str(size.constant)
    span = _span(size, names)
    rounded = span if size.step == 1 else f"(({span}) + {size.step - 1}) / {size.step}"
    return f"(({span}) > 0 ? {rounded} : 0)"
