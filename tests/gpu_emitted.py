"""Compile emitted GPU files and run them on this machine: OpenCL on whatever device there is, CUDA on the CPU."""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from emit.gpu_file import GpuFile
from emit.gpu_render import emit_gpu
from emit.request import KernelRequest
from emit.targets import CUDA, OPENCL, Target
from lowering.device import GENERIC_OPENCL, H100, Device
from lowering.machine import GENERIC
from mdh_core.evaluate import Value
from mdh_core.expr import Affine
from mdh_core.interpreter import BufferValue
from mdh_core.ir import MdhProgram
from tests.emitted import Case, answers_of, compare, program_text, unique_functions
from tuning.cuda_on_cpu import command, translated

DEVICE_OF: dict[str, Device] = {"cuda": H100, "opencl": GENERIC_OPENCL}


def with_all_extents(program: MdhProgram, buffers: Mapping[str, BufferValue]) -> MdhProgram:
    """The program with every extent known: what cannot be told otherwise could not be copied."""
    found = []
    for b in program.buffers:
        extents = tuple(
            Affine.number(n) if e is None else e for e, n in zip(b.extents, buffers[b.name].extents, strict=True)
        )
        found.append(replace(b, extents=extents))
    return replace(program, buffers=tuple(found))


def file_of(case: Case, name: str, target: Target) -> GpuFile:
    request = KernelRequest(name, case.program.name, (case.program,), (case.configuration,), GENERIC)
    return emit_gpu(request, target, case.machine.model, DEVICE_OF[target.name])


def _header(file: GpuFile) -> str:
    """The header, with a mark of what the file does: kernels that differ in their names only are the same."""
    mark = hashlib.sha256(file.text.replace(file.name, "kernel").encode()).hexdigest()
    return f"/* {mark} */\n{file.header}"


def run_opencl(cases: list[Case], directory: Path, timeout: float = 300) -> list[tuple[int, dict[str, list[Value]]]]:
    cases = unique_functions(cases)
    files: list[GpuFile] = []

    def emitted(case: Case, name: str) -> tuple[str, str]:
        file = file_of(case, name, OPENCL)
        files.append(file)
        return _header(file), file.call

    (directory / "main.c").write_text(program_text(cases, emitted))
    sources = [directory / "main.c"]
    for file in files:
        sources.append(directory / f"{file.name}.c")
        sources[-1].write_text(file.text)
    program = directory / "cases"
    flags = ("-O0", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-Wno-unused-variable")
    built = subprocess.run(
        ["gcc", *flags, *map(str, sources), "-o", str(program), "-lOpenCL", "-lm"],
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr[:4000]
    return answers_of(cases, program, timeout, {**os.environ, "MDH_OPENCL_OPTIONS": "-cl-opt-disable"})


def run_cuda(
    cases: list[Case], directory: Path, timeout: float = 300, **environment: str
) -> list[tuple[int, dict[str, list[Value]]]]:
    """On the CPU; races, divergent barriers and indices outside end the run (``tuning/cuda_on_cpu.h``)."""
    cases = unique_functions(cases)
    files: list[GpuFile] = []

    def emitted(case: Case, name: str) -> tuple[str, str]:
        file = file_of(case, name, CUDA)
        files.append(file)
        return _header(file), file.call

    (directory / "main.c").write_text(program_text(cases, emitted))
    included = dict.fromkeys(row for file in files for row in file.text.splitlines() if row.startswith("#include"))
    texts = [*included]
    for k, file in enumerate(files):
        texts += [f"namespace file_{k} {{", file.text, "}"]
    (directory / "cases.cpp").write_text(translated("\n".join(texts)))
    program = directory / "cases"
    flags = ("-O0", "-w", "-c")
    for line in (
        ["gcc", *flags, str(directory / "main.c"), "-o", str(directory / "main.o")],
        command("g++", directory / "cases.cpp", str(program), str(directory / "main.o")),
    ):
        built = subprocess.run(line, capture_output=True, text=True, timeout=600)
        assert built.returncode == 0, built.stderr[:4000]
    return answers_of(cases, program, timeout, {**os.environ, "MDH_SHUFFLES": "values", **environment})


def check_cuda(
    cases: Sequence[tuple[Case, Mapping[str, BufferValue]]], directory: Path, **environment: str
) -> None:
    compare(cases, run_cuda([case for case, _ in cases], directory, **environment))


def has_opencl_device() -> bool:
    try:
        loader = ctypes.CDLL("libOpenCL.so.1")
    except OSError:
        return False
    count = ctypes.c_uint(0)
    return loader.clGetPlatformIDs(0, None, ctypes.byref(count)) == 0 and count.value > 0


def check_opencl(cases: Sequence[tuple[Case, Mapping[str, BufferValue]]], directory: Path) -> None:
    compare(cases, run_opencl([case for case, _ in cases], directory))


__all__ = ["CUDA", "OPENCL", "check_cuda", "check_opencl", "file_of", "has_opencl_device", "run_cuda", "run_opencl", "with_all_extents"]
