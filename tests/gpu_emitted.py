"""Compile emitted GPU files and run them on this machine: OpenCL on whatever device there is, CUDA on the CPU."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from emit.gpu_file import GpuFile, GpuPart, gpu_file
from emit.gpu_render import emit_gpu
from emit.request import KernelRequest
from emit.targets import CUDA, OPENCL, Target
from lowering.device import GENERIC_OPENCL, H100, Device
from lowering.machine import GENERIC
from mdh_core.evaluate import Value
from mdh_core.expr import INT64, Affine
from mdh_core.interpreter import BufferValue
from mdh_core.ir import MdhProgram, Param
from tests.emitted import Case, answers_of, compare, described, program_text, records_of, unique_functions
from tuning.cuda_on_cpu import command, translated

_HERE = Path(__file__).parent
CXX = "clang++" if shutil.which("clang++") else "g++"  # the quicker one without optimisation
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


def with_parameters(p: MdhProgram) -> MdhProgram:
    """The program with parameters as the extents of its buffers."""
    found, params = [], list(p.params)
    for b in p.buffers:
        names = [f"{b.name}_n{t}" for t in range(b.rank)]
        params += [Param(n, INT64, n, "long") for n in names]
        found.append(replace(b, extents=tuple(map(Affine.of, names)), base=b.name, restrict=True))
    return replace(p, buffers=tuple(found), params=tuple(params))


def file_of(case: Case, name: str, target: Target) -> GpuFile:
    request = KernelRequest(name, case.program.name, (case.program,), (case.configuration,), GENERIC)
    return emit_gpu(request, target, case.machine.model, DEVICE_OF[target.name])


@dataclass(frozen=True)
class _Batch:
    """Some cases as files of a GPU: one for all cases of a program, each case a nest of it.

    programs of equal text, but for their names, are one nest.  ``stands_for`` tells which case's nest a case calls.
    """

    files: tuple[GpuFile, ...]
    headers: tuple[str, ...]
    calls: tuple[str, ...]
    stands_for: tuple[int, ...]


def batch_of(cases: Sequence[Case], target: Target) -> _Batch:
    families: dict[str, list[GpuPart]] = {}
    known: dict[str, int] = {}
    headers, calls, stands_for = [], [], []
    for k, case in enumerate(cases):
        (part,) = file_of(case, f"kernel_{k}", target).parts
        mark = _mark(part)
        if records_of(case.program) or case.program.functions:
            mark += str(k)  # their names are those of the case
        stands_for.append(known.setdefault(mark, k))
        if stands_for[-1] == k:
            families.setdefault(case.program.name, []).append(part)
        headers.append(f"/* {mark} */\n{part.prototype};\n")
        calls.append(part.call)
    files = [gpu_file(f"family_{n}", parts, target) for n, parts in enumerate(families.values())]
    return _Batch(tuple(files), tuple(headers), tuple(calls), tuple(stands_for))


def _mark(part: GpuPart) -> str:
    """What a nest does: nests that differ in their names only are the same."""
    text = repr((part.prototype, part.texts, part.head, part.body, part.memory, part.records, part.functions))
    return hashlib.sha256(re.sub(rf"\b{part.name}\b|\b{part.name}(?=_)", "kernel", text).encode()).hexdigest()


def _main_text(cases: list[Case], batch: _Batch) -> str:
    def emitted(_: Case, name: str) -> tuple[str, str]:
        k = int(name.removeprefix("kernel_"))
        return batch.headers[k], batch.calls[k]

    return program_text(cases, emitted)


def _built(line: Sequence[str], cases: Sequence[Case], target: Target) -> None:
    built = subprocess.run(line, capture_output=True, text=True, timeout=600)
    if built.returncode == 0:
        return
    named = sorted({int(k) for k in re.findall(r"\bkernel_(\d+)", built.stderr)})
    about = "\n".join(described(cases[k]) for k in named[:3] if k < len(cases))
    raise AssertionError(f"{target.name}: does not compile\n{about}\n{built.stderr[:4000]}")


def run_opencl(cases: list[Case], directory: Path, timeout: float = 900) -> list[tuple[int, dict[str, list[Value]]]]:
    """One program, and one text of OpenCL for each program's cases (``opencl_once.h``)."""
    cases = unique_functions(cases)
    batch = batch_of(cases, OPENCL)
    (directory / "main.c").write_text(_main_text(cases, batch))
    sources = [directory / "main.c"]
    for file in batch.files:
        (directory / f"{file.name}.c").write_text(file.text)
        sources.append(directory / f"{file.name}_once.c")
        sources[-1].write_text(once(file.parts, f'#include "{file.name}.c"'))
    program = directory / "cases"
    flags = ("-O0", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-Wno-unused-variable")
    _built(["gcc", *flags, *map(str, sources), "-o", str(program), "-lOpenCL", "-lm"], cases, OPENCL)
    return answers_of(cases, program, timeout, {**os.environ, "MDH_OPENCL_OPTIONS": "-cl-opt-disable"}, OPENCL.name)


def once(parts: Sequence[GpuPart], text: str) -> str:
    """A C file whose texts of OpenCL are compiled together, as each call of the compiler reads long headers.

    text   the file of the parts, or an ``#include`` of it
    """
    rows = ["#define CL_TARGET_OPENCL_VERSION 120", "#define CL_USE_DEPRECATED_OPENCL_1_2_APIS"]
    rows += [(_HERE / "opencl_once.h").read_text(), text]
    rows += [f"static int once_count(void) {{ return {len(parts)}; }}"]
    rows += ["static const char *const *once_texts(void)", "{", "  static const char *const texts[] = {"]
    for k, part in enumerate(parts):
        own = [*(name.removeprefix("struct ") for name, _ in part.records), *(f"mdh_f_{name}" for name, _ in part.functions)]
        begin = "".join(f"#define {r} {r}_{k}\\n" for r in own) + "#pragma OPENCL FP_CONTRACT ON\\n"
        end = "".join(f"#undef {r}\\n" for r in own)
        rows.append(f'    "{begin}", {part.name}_source, "{end}",')
    return "\n".join([*rows, "  };", "  return texts;", "}", ""])


def run_cuda(
    cases: list[Case], directory: Path, timeout: float = 900, **environment: str
) -> list[tuple[int, dict[str, list[Value]]]]:
    """On the CPU; races, divergent barriers and indices outside end the run (``tuning/cuda_on_cpu.h``)."""
    cases = unique_functions(cases)
    batch = batch_of(cases, CUDA)
    (directory / "main.c").write_text(_main_text(cases, batch))
    included = dict.fromkeys(row for file in batch.files for row in file.text.splitlines() if row.startswith("#include"))
    texts = [*included]
    for file in batch.files:
        texts += [f"namespace {file.name} {{", file.text, "}"]
    (directory / "cases.cpp").write_text(translated("\n".join(texts)))
    program = directory / "cases"
    _built(["gcc", "-O0", "-w", "-c", str(directory / "main.c"), "-o", str(directory / "main.o")], cases, CUDA)
    line = command(CXX, directory / "cases.cpp", str(program), str(directory / "main.o"))
    _built([*line, "-O0"], cases, CUDA)  # most run for less time than they are compiled
    return answers_of(cases, program, timeout, {**os.environ, "MDH_SHUFFLES": "values", **environment}, CUDA.name)


def check_cuda(
    cases: Sequence[tuple[Case, Mapping[str, BufferValue]]], directory: Path, **environment: str
) -> None:
    compare(cases, run_cuda([case for case, _ in cases], directory, **environment), CUDA.name)


def has_opencl_device() -> bool:
    try:
        loader = ctypes.CDLL("libOpenCL.so.1")
    except OSError:
        return False
    count = ctypes.c_uint(0)
    return loader.clGetPlatformIDs(0, None, ctypes.byref(count)) == 0 and count.value > 0


def check_opencl(cases: Sequence[tuple[Case, Mapping[str, BufferValue]]], directory: Path) -> None:
    compare(cases, run_opencl([case for case, _ in cases], directory), OPENCL.name)


__all__ = ["CUDA", "OPENCL", "check_cuda", "check_opencl", "file_of", "has_opencl_device", "run_cuda", "run_opencl", "with_all_extents", "with_parameters"]
