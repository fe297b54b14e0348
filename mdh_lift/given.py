"""The values that a user gives to the parameters of a nest: names that exist, values of the right kind.

    {"rows_i": 4, "threads": "i,j"}  ->  a point; else ``ConfigurationError``, which names the parameter

What is known of a parameter are its values in the search space of each program of the nest.  Numbers need not
be among them (a search tries some, any count of rows is right), words do, but for swizzles and instructions.
A value that does nothing beside the others (rows of the dimension whose vectors there are, the lanes of none)
is an error if it was given: whoever gives one expects something of it.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from lowering.gpu_point import gpu_space
from lowering.point import Point, Value
from lowering.space import Space, tuning_space
from mdh_lift.config import ConfigurationError
from mdh_lift.gpu_plans import GpuPlan, plainest
from mdh_lift.kernels import Plan
from tuning.space import allows

_DIMENSIONS = {"threads": "", "vector": "-", "fast": None}  # words are dimensions, or this one
_RULED = ("swizzle", "instruction")  # words that the rules of a GPU judge (MDH608), as there are many
_SWITCHES = ("share", "turn", "past", "fuse", "region", "order")  # no value beyond those of the space
_Known = dict[str, tuple[Value, ...]]


def completed(plan: Plan | GpuPlan, given: Mapping[str, object] | None) -> Point:
    """The default with the values that were given.  Raises ``ConfigurationError``."""
    if not given:
        return plan.default
    known, dims = _known(plan), {d.name for p in plan.lifted.programs for d in p.hom.dims}
    nest = plan.lifted.nest
    where = f"{nest.function}::{nest.label}"
    for name, value in given.items():
        if name not in known:
            near = difflib.get_close_matches(name, list(known), 1, 0.5)
            hint = f"; did you mean `{near[0]}`?" if near else ""
            raise ConfigurationError(f"`{where}` has no parameter `{name}`{hint}")
        problem = _problem(name, value, known[name], dims)
        if problem:
            raise ConfigurationError(f"`{name}` of `{where}` is {value!r}, {problem}")
    point: Point = {**plan.default, **given}  # type: ignore[dict-item]
    for name, rule in _broken(plan, point):
        if name in given:
            raise ConfigurationError(
                f"`{name}` of `{where}` is {point[name]!r}, which does nothing there: {rule} must hold"
            )
    return point


def _broken(plan: Plan | GpuPlan, point: Point) -> list[tuple[str, str]]:
    """The names of a point whose values do nothing, each with what must hold instead."""
    spaces = [plan.space]
    if not isinstance(plan, GpuPlan):  # and the programs that are not searched
        spaces.append(tuning_space(plan.programs, plan.machine, plan.sizes))
    found = []
    for space in spaces:
        whole = {name: plainest(values) for name, values in space.parameters} | point
        one = ((pair, Space(space.parameters, idle=(pair,))) for pair in space.idle)
        found += [pair for pair, alone in one if not allows(alone, whole)]
    return found


def _known(plan: Plan | GpuPlan) -> _Known:
    """Every parameter with its values in any program: those of programs that were fused belong to several."""
    spaces = [plan.space]
    if isinstance(plan, GpuPlan):
        pairs = zip(plan.lifted.programs, plan.sizes, strict=True)
        spaces += [gpu_space(program, plan.device, sizes) for program, sizes in pairs]
        programs = len(plan.sizes)
    else:
        spaces.append(tuning_space(plan.programs, plan.machine, plan.sizes))
        programs = len(plan.programs)
    of_base: _Known = {}
    found: _Known = {}
    parameters = [p for s in spaces for p in s.parameters]
    parameters += [(n, (v,)) for n, v in plan.default.items()]
    if isinstance(plan, GpuPlan):
        parameters.append(("instruction", ("",)))  # is not searched
    for name, values in parameters:
        base = _base(name)
        of_base[base] = (*of_base.get(base, ()), *values)
    for base, values in of_base.items():
        numbered = base.partition("_")[0] in ("width", "steps", "fuse", "region")
        found[base] = values
        if not numbered:
            found |= {f"{base}_at{k}": values for k in range(1, programs)}
    return found


def _base(name: str) -> str:
    head, _, tail = name.rpartition("_at")
    return head if head and tail.isdigit() else name


def _problem(name: str, value: object, known: tuple[Value, ...], dims: set[str]) -> str:
    """What is wrong with a value; empty: nothing."""
    word = _base(name).partition("_")[0]
    if isinstance(known[0], str):
        if not isinstance(value, str):
            return "which is no text"
        if word in _RULED:
            return ""
        allowed = {str(v) for v in known}
        if word in _DIMENSIONS:
            plain = _DIMENSIONS[word]
            parts = value.split(",") if word == "threads" else [value]
            if value == plain or (len(set(parts)) == len(parts) and set(parts) <= dims):
                return ""
            allowed = dims | ({plain} if plain is not None else set())
        elif value in allowed:
            return ""
        several = ", separated by commas" if word == "threads" else ""
        return f"which is none of {', '.join(repr(v) for v in sorted(allowed))}{several}"
    if isinstance(value, bool) or not isinstance(value, int):
        return "which is no whole number"
    least = 0 if 0 in known else 1
    if word in _SWITCHES and value not in known:
        return f"which is none of {', '.join(map(str, sorted(set(known), key=int)))}"
    return f"which is less than {least}" if value < least else ""
