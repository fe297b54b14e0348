"""What is emitted for CUDA is accepted by nvcc for sm_90: kernels by ptxas too, host functions without a warning.

Of every program of the catalogue and every nest of the corpus the default and a few points that a search may try.
Many are one file, in namespaces of their own, as nvcc needs a second for its headers alone.  Whether they compute what
they should is told on the CPU (``test_gpu.py``, ``test_gpu_corpus.py``); what they cost, by ``test_gpu.py``.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from emit.gpu_file import GpuFile, gpu_file
from emit.targets import CUDA
from lowering.device import H100
from lowering.gpu_point import gpu_configuration, gpu_default, gpu_space
from lowering.machine import CUDA as CUDA_MODEL
from lowering.machine import GENERIC
from lowering.point import Point
from mdh_core.diagnostics import Refusal
from mdh_lift import nest_sizes
from mdh_lift.gpu_plans import gpu_plan
from tests.catalogue import EVERYTHING
from tests.emitted import Case
from tests.gpu_emitted import file_of, with_parameters
from tests.test_corpus import SOURCES, _nests
from tests.test_gpu_corpus import NOT_COPIED, numbered_parts
from tuning.space import valid_points

CONFIGURATIONS = int(os.environ.get("MDH_GPU_NVCC_CONFIGURATIONS", "1"))  # random ones per program or nest
EXTENT = 96
GROUPS = 16  # files, half of them of the catalogue

pytestmark = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")


def _of_catalogue(name: str) -> GpuFile:
    p = with_parameters(EVERYTHING[name])
    large = {d.name: EXTENT for d in p.hom.dims}
    space, rng = gpu_space(p, H100, large), random.Random(name)
    points: list[Point] = [gpu_default(p, H100, large)]
    points += [next(valid_points(space, rng)) for _ in range(CONFIGURATIONS if space.parameters else 0)]
    parts = []
    for k, point in enumerate(points):
        c = gpu_configuration(p, CUDA_MODEL, large, point)
        case = Case(p, c, {}, {}, replace(GENERIC, model=CUDA_MODEL))
        parts += file_of(case, f"{name}_{k}", CUDA).parts
    return gpu_file(name, parts, CUDA)


def _of_corpus(source: str) -> Iterator[GpuFile]:
    for lifted in _nests(source).values():
        if not lifted.programs:
            continue
        plan = gpu_plan(lifted, "cuda", nest_sizes.parameter_values(lifted, nest_sizes.sizes_of(lifted)))
        rng = random.Random(plan.name)
        points = [plan.default]
        points += [next(valid_points(plan.space, rng)) for _ in range(CONFIGURATIONS if plan.space.parameters else 0)]
        if source in NOT_COPIED:
            with pytest.raises(Refusal, match="MDH416"):
                numbered_parts(plan, points)
        else:
            stem = re.sub(r"\W", "_", f"{source}_{lifted.nest.function}_{lifted.nest.label}")
            yield gpu_file(stem, numbered_parts(plan, points, stem), CUDA)


def _accepted(files: list[GpuFile], directory: Path) -> None:
    """By front end, ptxas and the compiler of the host; warnings, but of what is not used, are errors."""
    includes = dict.fromkeys(row for f in files for row in f.text.splitlines() if row.startswith("#include"))
    texts = [*includes]
    for file in files:
        own = [row for row in file.text.splitlines() if not row.startswith("#include")]
        texts += [f"namespace mdh_{file.name} {{", *own, "}"]
    source = directory / "all.cu"
    source.write_text("\n".join([*texts, ""]))
    line = ["nvcc", "-arch=sm_90", "-O1", "-Xptxas", "-O0", "-Werror", "all-warnings", "-diag-suppress", "177"]
    done = subprocess.run([*line, "-c", str(source), "-o", str(directory / "all.o")], capture_output=True, text=True, timeout=900)
    if done.returncode == 0:
        return
    rows = (source.read_text() + "\n").split("\n")
    number = re.search(r"all\.cu\((\d+)\)", done.stderr)
    within = rows[: int(number[1])] if number else []
    where = next((row for row in reversed(within) if row.startswith("namespace mdh_")), "")
    raise AssertionError(f"cuda: nvcc does not compile {where}\n{done.stderr[:4000]}")


@pytest.mark.parametrize("group", range(GROUPS // 2))
def test_nvcc_accepts_the_catalogue(group: int, tmp_path: Path) -> None:
    _accepted([_of_catalogue(name) for name in [*EVERYTHING][group :: GROUPS // 2]], tmp_path)


@pytest.mark.parametrize("group", range(GROUPS // 2))
def test_nvcc_accepts_the_corpus(group: int, tmp_path: Path) -> None:
    _accepted([f for source in SOURCES[group :: GROUPS // 2] for f in _of_corpus(source)], tmp_path)
