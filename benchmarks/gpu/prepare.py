"""Lift cases and emit what is to be compiled and measured: the default, and points of its search space.

Points are the default, points that differ from it in one parameter, in two, and random ones, whose text
differs from all others'.  All are legal and keep the constraints of the device that they are chosen for.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks import compiled
from benchmarks.cases import Case
from benchmarks.gpu.plan import Plan, Planned, Point, write
from lowering.device import Device
from lowering.gpu_point import gpu_space
from lowering.machine import CUDA
from lowering.parameters import why_not_legal
from lowering.point import suffix_of
from lowering.space import Space
from mdh_core.diagnostics import Refusal
from mdh_lift import kernels, nest_sizes
from mdh_lift.gpu_plans import GpuPlan, gpu_plan
from mdh_lift.pipeline import macros_of
from tuning.harness import Candidate, subject_text
from tuning.space import valid_points, variations

CORES = 16  # that the kernel for processors is chosen for; it runs with as many as there are
_OF_ONE, _OF_TWO = 0.6, 0.8  # shares of the points: one parameter changed; at most two; the rest is random


def prepare(
    cases: Sequence[Case], directory: Path, device: Device, points: int, small: bool = False, seed: int = 0
) -> tuple[Plan, dict[str, str]]:
    """Write a folder for ``run``; also says why cases are left out."""
    planned, missing = [], {}
    directory.mkdir(parents=True, exist_ok=True)
    for case in cases:
        try:
            planned.append(_prepared(case.small() if small else case, directory, device, points, seed))
        except (compiled.Missing, Refusal) as reason:
            missing[case.name] = str(reason)
    plan = Plan(device.name, small, tuple(planned))
    write(plan, directory)
    return plan, missing


def _prepared(case: Case, directory: Path, device: Device, points: int, seed: int) -> Planned:
    found = compiled.prepare(case).with_threads(CORES)
    work, folder = found.work, directory / case.name
    folder.mkdir(exist_ok=True)
    (folder / "spec").write_text(found.spec(CORES))
    on_processors = work.plan.candidate(work.plan.default)
    (folder / "reference.c").write_bytes(subject_text(work.subject, on_processors))
    lifted = work.nest.lifted
    assert lifted is not None
    params = nest_sizes.parameter_values(lifted, work.variables)
    plan = gpu_plan(lifted, "cuda", params, macros=macros_of(work.report), device=device)
    file = plan.file(plan.default)
    candidate = Candidate(file.header, file.call, kernels.after_text(lifted))
    (folder / "subject.c").write_bytes(subject_text(work.subject, candidate))
    chosen = []
    for text, point in itertools.islice(_texts(plan, random.Random(f"{seed} {case.name}")), points + 1):
        (folder / f"{len(chosen)}.cu").write_text(text)
        chosen.append(point)
    return Planned(
        case.name, case.operation, tuple(case.dimensions), case.operations, case.traffic, case.defines,
        tuple(chosen),
    )  # fmt: skip


def _texts(plan: GpuPlan, rng: random.Random) -> Iterator[tuple[str, Point]]:
    """Different files and their points, the default first; every point has every parameter."""
    seen: set[str] = set()
    call = plan.file(plan.default).call
    for point in itertools.chain([_whole(plan)], _points(plan, rng)):
        try:
            legal = all(
                why_not_legal(c, p, CUDA) is None
                for c, p in zip(plan.configurations(point), plan.lifted.programs, strict=True)
            )
            file = plan.file(point) if legal else None
        except (Refusal, ValueError):
            continue
        if file is None or file.call != call:
            continue
        code = re.sub(r"/\*.*?\*/", "", file.text, flags=re.DOTALL)  # a comment has the point
        if code not in seen:
            seen.add(code)
            yield file.text, point


def _points(plan: GpuPlan, rng: random.Random, most: int = 2000) -> Iterator[Point]:
    """Near the default and anywhere, mixed, so that the first few have some of each."""
    whole, spaces = _whole(plan), _spaces(plan)
    if not spaces:
        return
    near = [(suffix, s, _variations(s, _own(whole, suffix, s), rng)) for suffix, s in spaces]
    for _ in range(most):
        suffix, space, changed = rng.choice(near)
        kind = rng.random()
        if kind < _OF_ONE and changed:
            point = changed.pop()
        elif kind < _OF_TWO:
            ones = _variations(space, _own(whole, suffix, space), rng)
            twos = _variations(space, ones[0], rng) if ones else []
            if not twos:
                continue
            point = twos[0]
        else:
            point = next(valid_points(space, rng), None)
            if point is None:
                continue
        yield {**whole, **{name + suffix: value for name, value in point.items()}}


def _spaces(plan: GpuPlan) -> list[tuple[str, Space]]:
    """Of the programs that have one, with what stands behind the names of their parameters."""
    found = []
    for k, (program, sizes) in enumerate(zip(plan.lifted.programs, plan.sizes, strict=True)):
        space = gpu_space(program, plan.device, sizes)
        if space.parameters:
            found.append((suffix_of(k), space))
    return found


def _whole(plan: GpuPlan) -> Point:
    """The default with what it leaves open."""
    found = dict(plan.default)
    for suffix, space in _spaces(plan):
        found |= {name + suffix: value for name, value in _own(found, suffix, space).items()}
    return found


def _own(whole: Point, suffix: str, space: Space) -> dict[str, int | str]:
    """A point within a space; what it leaves open has its plainest value there."""
    return {name: whole.get(name + suffix, _plain(name, values)) for name, values in space.parameters}


def _plain(name: str, values: Sequence[int | str]) -> int | str:
    least = 0 if name.startswith(("share_", "turn_", "pad_", "part_")) else 1
    return least if least in values else values[0]


def _variations(space: Space, point: dict[str, int | str], rng: random.Random) -> list[dict[str, int | str]]:
    found = list(variations(space, point))
    rng.shuffle(found)
    return found
