"""Every nest of the corpus on OpenCL: host loops, sequential statements and all, against the original as compiled."""

from __future__ import annotations

import dataclasses
import math
import os
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from emit.gpu_file import GpuPart, gpu_file
from emit.targets import OPENCL
from frontend_c.preprocess import CompileCommand
from frontend_c.read import read
from lifter.lift import LiftedNest, lift
from lowering.point import Point
from mdh_core.diagnostics import Refusal
from mdh_core.source import SourceFile
from mdh_lift import kernels, nest_sizes
from mdh_lift import subject as subjects
from mdh_lift.gpu_plans import GpuPlan, gpu_plan
from tests.gpu_emitted import has_opencl_device, once
from tests.test_corpus import CORPUS, SOURCES, _nests
from tuning.accelerator import Accelerator
from tuning.harness import Candidate, Subject
from tuning.runner import Limits, Outcome, Workbench
from tuning.space import valid_points
from tuning.toolchain import Toolchain
from tuning.verify import Case, cases_for, size_ladder, verify

MOST_WORK = 2e4
CONFIGURATIONS = int(os.environ.get("MDH_GPU_CORPUS_CONFIGURATIONS", "20"))  # random ones per nest
SIZES = 20
CALLS = 4  # of each configuration, at least
# an array whose extent the source does not say is indexed with data or under a condition on data
NOT_COPIED = {
    "gen_histo.c", "masked_sum.c", "spmv_csr.c", "weighted_histogram.c",
}  # fmt: skip
DEVICE = Accelerator("opencl", ("gcc",), ".c", ("-lOpenCL",), ("MDH_OPENCL_*", "POCL_*"))


@dataclass(frozen=True, slots=True)
class _Numbered(GpuPlan):
    """A plan whose host function has a number in its name, for a file with several points of one nest."""

    number: int = 0
    stem: str = ""

    @property
    def name(self) -> str:
        return f"{self.stem or self.lifted.nest.function}_point_{self.number}"


def _sizes(lifted: LiftedNest, usual: dict[str, int]) -> list[dict[str, int]]:
    ladder = size_ladder(subjects.size_ranges(lifted), [16, 32], limit=math.inf, cost=lambda _: 0, at_most=SIZES)
    found: list[dict[str, int]] = []
    for sizes in ladder:
        fits = subjects.repaired(lifted, sizes)
        if fits is not None and subjects.work(lifted, fits) <= MOST_WORK and fits not in found:
            found.append(fits)
    return found or [subjects.repaired(lifted, usual) or usual]


class _Watched(Workbench):
    """A workbench that knows which calls of its last process the device answered."""

    answered: Sequence[bool] = ()

    def run(self, *arguments: Any, **named: Any) -> Outcome:
        ended = super().run(*arguments, **named)
        self.answered = [bool(line["handled"]) for line in ended.data.get("lines", ()) if "verify" in line]
        return ended

    def handled(self, points: int) -> set[int]:
        """Numbers of the points that the device has run."""
        return {k % points for k, done in enumerate(self.answered) if done}


def _lifted(source: str) -> tuple[list[LiftedNest], tuple[str, ...]]:
    """The nests of a file, and definitions under which what runs is short: many sizes are macros' values."""
    text = (CORPUS / source).read_bytes()
    values = {n: int(v) for n, v in re.findall(r"#ifndef (\w+)\n#define \1 (\d+)\n", text.decode())}
    for percent in (100, 75, 50, 35, 25, 18, 12, 8, 5):
        flags = tuple(f"-D{n}={max(2, v * percent // 100)}" for n, v in values.items()) if percent < 100 else ()
        command = CompileCommand(flags=flags, directory=str(CORPUS))
        nests = [lift(nest) for nest in read(SourceFile(source, text), command).nests]
        nests = [x for x in nests if x.programs]
        if all(subjects.work(x, s) <= MOST_WORK for x in nests for s in _sizes(x, nest_sizes.sizes_of(x))):
            return nests, flags
    raise AssertionError(f"{source}: more work than {MOST_WORK} points with any definition of its sizes")


def _check(source: str, lifted: LiftedNest, bench: _Watched, flags: tuple[str, ...]) -> None:
    _check_text(SourceFile(source, (CORPUS / source).read_bytes()), lifted, bench, flags)


def _check_text(text: SourceFile, lifted: LiftedNest, bench: _Watched, flags: tuple[str, ...] = ()) -> None:
    """All points in one program, where the calls of the candidate go to one after the other."""
    usual = nest_sizes.sizes_of(lifted)
    plan = gpu_plan(lifted, "opencl", nest_sizes.parameter_values(lifted, usual))
    points = list(_points(plan))
    candidate = _candidate(plan, points)
    subject = subjects.subject_of(lifted, text.data, text.path)
    built = bench.build(subject, candidate)
    if not built.ok:  # macros that are undefined behind the function
        expanded = subjects.preprocessed_nest(lifted.nest, text, CompileCommand(flags=flags, directory=str(CORPUS)))
        subject = subjects.subject_of(lifted, text.data, text.path, expanded)
        built = bench.build(subject, candidate)
    assert built.ok, built.reason
    style = subjects.data_style(lifted)
    exact = lifted.nest.directive.fp == "exact"
    cases = cases_for(subject, _sizes(lifted, usual), style=style, seed=1, bitwise=exact)
    calls = _calls(subject, lifted, cases, len(points), random.Random(text.path))
    summary = verify(bench, subject, built.data["program"], calls, seconds=600, enough=600)
    if not summary.ok:
        wrong = [p for k, p in enumerate(points) if not _is_right(bench, subject, built.data["program"], cases, k)]
        raise AssertionError(f"opencl: {text.path} {plan.name}: {summary.outcome}; wrong alone: {wrong}")
    declined = [p for k, p in enumerate(points) if k not in bench.handled(len(points))]
    assert not declined, f"opencl: {text.path} {plan.name}: never run on the device: {declined}"


def _calls(
    subject: Subject, lifted: LiftedNest, cases: Sequence[Case], points: int, rng: random.Random
) -> list[Case]:
    """What the points are given in turn: the largest sizes each, others that the nest's guards let pass, and what
    they may turn away."""
    passing = [c for c in cases if c.overlap is None]
    largest = max(passing, key=lambda c: subjects.work(lifted, {n: int(v) for n, v in c.sizes.items()}))
    several = [rng.sample(passing, len(passing)) for _ in range(-(-CALLS * points // len(passing)))]
    others = [c for cs in several for c in cs][: (CALLS - 1) * points]
    return [*[largest] * points, *others, *(c for c in cases if c.overlap is not None)]


def numbered_parts(plan: GpuPlan, points: Sequence[Point], stem: str = "") -> list[GpuPart]:
    """A nest of a file for each point; functions are ``<stem>_point_<k>``, by default with that of the nest."""
    fields = {f.name: getattr(plan, f.name) for f in dataclasses.fields(plan)}
    return [_Numbered(**fields, number=k, stem=stem).part(p, described=False) for k, p in enumerate(points)]


def _candidate(plan: GpuPlan, points: Sequence[Point]) -> Candidate:
    parts = numbered_parts(plan, points)
    file = gpu_file(plan.name, parts, OPENCL)
    # the original's file has the structure types already
    kept = [x for x in file.text.splitlines() if not x.startswith(("typedef struct { ", "struct "))]
    turn = f"""
static int turn_now;
static int turn_next(void)
{{
  static int calls;
  const char *only = getenv("MDH_OPENCL_OPTIONS");
  turn_now = only && strstr(only, "ONLY=") ? atoi(strstr(only, "ONLY=") + 5) : calls++ % {len(points)};
  return turn_now;
}}
"""
    calls = " : ".join(f"turn_now == {k} ? ({part.call})" for k, part in enumerate(parts))
    return Candidate(once(parts, "\n".join(kept)) + turn, f"(turn_next(), {calls} : 0)", kernels.after_text(plan.lifted))


def _is_right(bench: Workbench, subject: Subject, program: str, cases: Sequence[Case], only: int) -> bool:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MDH_OPENCL_OPTIONS", f"-cl-opt-disable -DONLY={only}")
        return verify(bench, subject, program, cases, seconds=120).ok


def _points(plan: GpuPlan) -> Iterator[Point]:
    """The default, and some that a search may try; each once."""
    tried = [plan.default]
    yield plan.default
    rng = random.Random(plan.name)
    for _ in range(CONFIGURATIONS if plan.space.parameters else 0):
        point = next(valid_points(plan.space, rng))
        if point not in tried:
            tried.append(point)
            yield point


OWN = {
    "signed absolute values": """void f(int n, const int x[n], long y[n])
{
#pragma mdh
    for (int i = 0; i < n; i++) y[i] = (abs(x[i]) - 5) / 2 - labs((long)x[i] - 3) / 2;
}
""",
    "each operation is rounded": """void f(int n, const float x[n], const float y[n], float z[n])
{
#pragma mdh fp(exact)
    for (int i = 0; i < n; i++) z[i] = x[i] * y[i] + x[i] * 1.1f;
}
""",
    "a row outside of what is declared": """void f(int n, int m, const float a[restrict n][m], float b[restrict m])
{
#pragma mdh
    for (int j = 0; j < m; j++) {
        float s = a[0][j];
        for (int i = 1; i < n; i++) s += a[i][j];
        b[j] = s;
    }
}
""",
    "an iterator that is a field of threadIdx": """void f(int n, int m, float a[n], float b[n])
{
#pragma mdh noalias(a, b)
    for (int y = 0; y < m; y++) {
        for (int x = 0; x < y; x++)
            for (int i = 0; i < n; i++) a[i] = a[i] * 0.5f + x;
        for (int i = 0; i < n; i++) b[i] += a[i];
    }
}
""",
}


@pytest.mark.parametrize("name", OWN)
def test_own_nests_on_opencl(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_opencl_device():
        pytest.skip("there is no OpenCL device (pocl-opencl-icd makes the processor one)")
    monkeypatch.setenv("MDH_OPENCL_OPTIONS", "-cl-opt-disable")
    (tmp_path / "own.c").write_text("#include <stdlib.h>\n" + OWN[name])
    text = SourceFile("own.c", (tmp_path / "own.c").read_bytes())
    (nest,) = read(text, CompileCommand(directory=str(tmp_path))).nests
    toolchain = Toolchain(("gcc",), ("-O0", "-ffp-contract=off"), accelerator=DEVICE)
    bench = _Watched(toolchain, threads=2, jobs=1, limits=Limits(memory_bytes=1 << 40))
    _check_text(text, lift(nest), bench)


@pytest.mark.parametrize("source", SOURCES)
def test_corpus_on_opencl(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_opencl_device():
        pytest.skip("there is no OpenCL device (pocl-opencl-icd makes the processor one)")
    monkeypatch.setenv("MDH_OPENCL_OPTIONS", "-cl-opt-disable")
    nests, flags = _lifted(source)
    toolchain = Toolchain(("gcc",), ("-O0", *flags), accelerator=DEVICE)
    limits = Limits(compile_seconds=120, run_seconds=120, memory_bytes=1 << 40)
    bench = _Watched(toolchain, threads=2, jobs=1, limits=limits)
    assert nests or not any(x.programs for x in _nests(source).values())
    for lifted in nests:
        if source in NOT_COPIED:
            with pytest.raises(Refusal, match="MDH416"):
                _check(source, lifted, bench, flags)
        else:
            _check(source, lifted, bench, flags)
