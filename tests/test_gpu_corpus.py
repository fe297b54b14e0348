"""Every nest of the corpus on OpenCL: host loops, sequential statements and all, against the original as compiled."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from frontend_c.preprocess import CompileCommand
from frontend_c.read import read
from lifter.lift import LiftedNest, lift
from lowering.point import Point
from mdh_core.diagnostics import Refusal
from mdh_core.source import SourceFile
from mdh_lift import kernels
from mdh_lift import subject as subjects
from mdh_lift.gpu_plans import GpuPlan, gpu_plan
from tests.gpu_emitted import has_opencl_device
from tests.test_corpus import CORPUS, SOURCES, _nests
from tuning.harness import Candidate
from tuning.runner import Limits, Workbench
from tuning.space import valid_points
from tuning.toolchain import Toolchain
from tuning.verify import cases_for, size_ladder, verify

MOST_WORK = 2e6
CONFIGURATIONS = int(os.environ.get("MDH_GPU_CORPUS_CONFIGURATIONS", "0"))  # random ones per nest
SIZES = 6
# an array whose extent the source does not say is indexed with data or under a condition
NOT_COPIED = {
    "avg_pool.c", "game_of_life.c", "gen_histo.c", "masked_sum.c", "spmv_csr.c", "weighted_histogram.c",
}  # fmt: skip


def _sizes(lifted: LiftedNest, usual: dict[str, int]) -> list[dict[str, int]]:
    ladder = size_ladder(subjects.size_ranges(lifted), [16, 32], limit=math.inf, cost=lambda _: 0, at_most=20)
    found: list[dict[str, int]] = []
    for sizes in ladder:
        fits = subjects.repaired(lifted, sizes)
        if fits is not None and subjects.work(lifted, fits) <= MOST_WORK and fits not in found:
            found.append(fits)
    return found[:SIZES] or [subjects.repaired(lifted, usual) or usual]


def _check(source: str, lifted: LiftedNest, bench: Workbench) -> None:
    _check_text(SourceFile(source, (CORPUS / source).read_bytes()), lifted, bench)


def _check_text(text: SourceFile, lifted: LiftedNest, bench: Workbench) -> None:
    usual = kernels.sizes_of(lifted)
    plan = gpu_plan(lifted, "opencl", kernels.parameter_values(lifted, usual))
    for point in _points(plan):
        file = plan.file(point)
        # the original's file has the structure types already
        code = "\n".join(x for x in file.text.splitlines() if not x.startswith(("typedef struct { ", "struct ")))
        candidate = Candidate(code, file.call, kernels.after_text(lifted))
        subject = subjects.subject_of(lifted, text.data, text.path)
        built = bench.build(subject, candidate)
        if not built.ok:  # macros that are undefined behind the function
            expanded = subjects.preprocessed_nest(lifted.nest, text, CompileCommand(directory=str(CORPUS)))
            subject = subjects.subject_of(lifted, text.data, text.path, expanded)
            built = bench.build(subject, candidate)
        assert built.ok, built.reason
        style = subjects.data_style(lifted)
        exact = lifted.nest.directive.fp == "exact"
        cases = cases_for(subject, _sizes(lifted, usual), style=style, seed=1, bitwise=exact)
        summary = verify(bench, subject, built.data["program"], cases, seconds=120)
        assert summary.ok, (text.path, point, summary.outcome)


def _points(plan: GpuPlan) -> Iterator[Point]:
    """The default, and some that a search may try."""
    yield plan.default
    if not plan.space.parameters:
        return
    rng = random.Random(plan.name)
    for _ in range(CONFIGURATIONS):
        yield next(valid_points(plan.space, rng))


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
    toolchain = Toolchain(("gcc",), ("-O2", "-ffp-contract=off"), link=("-lOpenCL",))
    bench = Workbench(toolchain, threads=2, jobs=1, limits=Limits(memory_bytes=1 << 40))
    _check_text(text, lift(nest), bench)


@pytest.mark.parametrize("source", SOURCES)
def test_corpus_on_opencl(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_opencl_device():
        pytest.skip("there is no OpenCL device (pocl-opencl-icd makes the processor one)")
    monkeypatch.setenv("MDH_OPENCL_OPTIONS", "-cl-opt-disable")
    toolchain = Toolchain(("gcc",), ("-O2",), link=("-lOpenCL",))
    limits = Limits(compile_seconds=120, run_seconds=120, memory_bytes=1 << 40)
    bench = Workbench(toolchain, threads=2, jobs=1, limits=limits)
    for lifted in _nests(source).values():
        if not lifted.programs:
            continue
        if source in NOT_COPIED:
            with pytest.raises(Refusal, match="MDH416"):
                _check(source, lifted, bench)
        else:
            _check(source, lifted, bench)
