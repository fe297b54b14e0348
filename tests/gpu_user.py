"""A user's program with emitted GPU files: what is spliced by hand is compiled with all warnings, and run."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from emit.gpu_file import GpuFile, RegionArray, RegionPart, gpu_file
from emit.targets import TARGETS
from frontend_c.read import CompileCommand, read
from lifter.lift import lift
from mdh_core.source import SourceFile
from mdh_lift import nest_sizes
from mdh_lift.gpu_plans import gpu_plan
from tuning.cuda_on_cpu import command, translated

WARNINGS = ("-Wall", "-Wextra", "-Werror")


def region(name: str, **clauses: str) -> RegionPart:
    """A data region: ``copy="A B"``."""
    arrays = [RegionArray(a, a, clause) for clause, names in clauses.items() for a in names.split()]
    return RegionPart(name, name, tuple(arrays))


def file_of_nests(
    text: str, target: str, name: str = "nests_mdh", regions: tuple[RegionPart, ...] = ()
) -> GpuFile:
    """One file with all nests of a C file."""
    found = []
    for nest in read(SourceFile("user.c", text.encode()), CompileCommand()).nests:
        lifted = lift(nest)
        assert not [d for d in lifted.diagnostics if d.severity == "error"], lifted.diagnostics
        plan = gpu_plan(lifted, target, nest_sizes.parameter_values(lifted, nest_sizes.sizes_of(lifted)))
        found.append(plan.part(plan.default))
    return gpu_file(name, found, TARGETS[target], regions)


@dataclass(frozen=True, slots=True)
class Built:
    """A program of a user's C file and an emitted file."""

    program: Path

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.program), *arguments], capture_output=True, text=True, timeout=120,
            env={**os.environ, "MDH_OPENCL_OPTIONS": "-cl-opt-disable", **environment},
        )  # fmt: skip


def build(directory: Path, main: str, file: GpuFile, target: str, *options: str) -> Built:
    """Compiles as a user would, every file on its own; CUDA for the processor."""
    (directory / "main.c").write_text(main)
    (directory / f"{file.name}.h").write_text(file.header)
    (directory / f"{file.name}.mk").write_text(file.make)
    program, main_object = directory / "program", str(directory / "main.o")
    _run(directory, "gcc", "-O1", *WARNINGS, "-c", "main.c", "-o", main_object)
    source = directory / f"{file.name}{TARGETS[target].suffix}"
    source.write_text(file.text)
    if target == "cuda":
        (directory / "translated.cpp").write_text(translated(file.text))
        _run(directory, *command("g++", directory / "translated.cpp", program, main_object), *options)
    else:
        own = str(directory / "file.o")
        _run(directory, "gcc", "-O1", *WARNINGS, "-c", source.name, "-o", own)
        _run(directory, "gcc", main_object, own, "-o", str(program), *options, "-lOpenCL", "-lm")
    return Built(program)


def nvcc(directory: Path, file: GpuFile) -> None:
    """Compiles with nvcc, where it is installed; kernels and host functions."""
    if shutil.which("nvcc") is None:
        return
    source = directory / f"{file.name}.cu"
    source.write_text(file.text)
    warnings = ",".join(("-Wall", "-Wextra", "-Werror"))
    _run(directory, "nvcc", "-O1", "-arch=sm_90", "-Werror", "all-warnings", "-Xcompiler", warnings, "-c", source.name, "-o", "nvcc.o")


def _run(directory: Path, *line: object) -> None:
    done = subprocess.run([*map(str, line)], cwd=directory, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[:4000]
