"""The GPUs of this machine as ``Device`` descriptions: what CUDA and OpenCL say of them.

A driver may crash or wait for ever, so it is asked by a small program in a process of its own, with a time
limit: a CUDA one where nvcc is installed, or what CUDACXX or NVCC names instead of it (else ``nvidia-smi``
gives a name whose description is known), a C program for OpenCL.  Where a compiler, a driver or a device is
missing, there is no device: nothing here raises.  Tests run the programs where they can (PoCL is an OpenCL
device) and parse recorded answers.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from lowering.device import A100, DEVICES, GENERIC_OPENCL, H100, H200, Device

COMPILE_SECONDS, ANSWER_SECONDS = 60.0, 30.0
_PLAIN = Device("CUDA")  # what every device since 2016 has at least

CUDA_PROGRAM = r"""
#include <cuda_runtime.h>
#include <stdio.h>
static void tell(const char *name, cudaDeviceAttr what) {
  int value = 0;
  if (cudaDeviceGetAttribute(&value, what, 0) != cudaSuccess) value = 0;
  printf("\"%s\": %d, ", name, value);
}
int main(void) {
  int count = 0;
  cudaDeviceProp p;
  cudaError_t answer = cudaGetDeviceCount(&count);
  if (answer == cudaSuccess && count == 0) return puts("there is none"), 1;
  if (answer == cudaSuccess) answer = cudaGetDeviceProperties(&p, 0);
  if (answer != cudaSuccess) return puts(cudaGetErrorString(answer)), 1;
  printf("{");
  tell("major", cudaDevAttrComputeCapabilityMajor);
  tell("minor", cudaDevAttrComputeCapabilityMinor);
  tell("threads", cudaDevAttrMaxThreadsPerBlock);
  tell("grid", cudaDevAttrMaxGridDimX);
  tell("shared", cudaDevAttrMaxSharedMemoryPerBlock);
  tell("shared_most", cudaDevAttrMaxSharedMemoryPerBlockOptin);
  tell("registers", cudaDevAttrMaxRegistersPerBlock);
  tell("warp", cudaDevAttrWarpSize);
  tell("processors", cudaDevAttrMultiProcessorCount);
  tell("clock", cudaDevAttrClockRate);
  tell("memory_clock", cudaDevAttrMemoryClockRate);
  tell("bus", cudaDevAttrGlobalMemoryBusWidth);
  printf("\"memory\": %llu, \"name\": \"%s\"}\n", (unsigned long long)p.totalGlobalMem, p.name);
  return 0;
}
"""

OPENCL_TELL = r"""
static void tell(cl_device_id device) {
  char name[256] = "";
  size_t threads = 0;
  cl_ulong local = 0, memory = 0;
  cl_uint units = 0;
  clGetDeviceInfo(device, CL_DEVICE_NAME, sizeof name - 1, name, NULL);
  clGetDeviceInfo(device, CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof threads, &threads, NULL);
  clGetDeviceInfo(device, CL_DEVICE_LOCAL_MEM_SIZE, sizeof local, &local, NULL);
  clGetDeviceInfo(device, CL_DEVICE_GLOBAL_MEM_SIZE, sizeof memory, &memory, NULL);
  clGetDeviceInfo(device, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof units, &units, NULL);
  for (char *c = name; *c; c++)
    if (*c == '"' || *c == '\\' || (unsigned char)*c < 32) *c = ' ';
  printf("{\"name\": \"%s\", \"threads\": %zu, \"processors\": %u, ", name, threads, units);
  printf("\"shared\": %llu, ", (unsigned long long)local);
  printf("\"memory\": %llu}\n", (unsigned long long)memory);
}
"""

OPENCL_PROGRAM = r"""
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdio.h>
""" + OPENCL_TELL + r"""
int main(void) {
  cl_platform_id platforms[16];
  cl_uint n = 0;
  if (clGetPlatformIDs(16, platforms, &n) != CL_SUCCESS) return 1;
  for (cl_uint p = 0; p < n && p < 16; p++) {
    cl_device_id devices[16];
    cl_uint m = 0;
    if (clGetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, 16, devices, &m) != CL_SUCCESS) continue;
    for (cl_uint d = 0; d < m && d < 16; d++) tell(devices[d]);
  }
  return 0;
}
"""


def nvcc_command() -> tuple[str, ...]:
    """What compiles CUDA: the command that CUDACXX names (as CMake has it), or NVCC, else nvcc."""
    return tuple(shlex.split(os.environ.get("CUDACXX") or os.environ.get("NVCC") or "nvcc"))


def cuda_libraries(compiler: Sequence[str]) -> tuple[str, ...]:
    """The flags that a C or C++ compiler needs to link what nvcc made."""
    said = _ran([*compiler, "--dryrun", "-x", "cu", os.devnull, "-o", os.devnull], COMPILE_SECONDS)
    line = re.search(r"^#\$ LIBRARIES=(.*)$", said.stderr if said else "", re.MULTILINE)
    if line is None:  # another program than nvcc
        return ("-lstdc++", "-lm")
    return (*shlex.split(line[1]), "-lcudart_static", "-lrt", "-lpthread", "-ldl", "-lstdc++", "-lm")


def cuda_device(nvcc: str = "", smi: str = "nvidia-smi") -> Device | None:
    """The first CUDA device; None where there is none or nothing can ask for it."""
    compiler = [nvcc] if nvcc else nvcc_command()
    if shutil.which(compiler[0]) is not None:
        rows = _answers(CUDA_PROGRAM, "query.cu", compiler, ["g++"], cuda_libraries(compiler))
        if rows:
            return described_cuda(rows[0])
    said = _output([smi, "--query-gpu=name,memory.total,compute_cap", "--format=csv,noheader,nounits"])
    return described_by_name(said)


def nvidia_models(root: Path = Path("/proc/driver/nvidia/gpus")) -> list[str]:
    """What the driver's files say that the CUDA devices are; empty where it says nothing.  Runs nothing."""
    found = []
    for file in sorted(root.glob("*/information")):
        with contextlib.suppress(OSError):
            for line in file.read_text(errors="replace").splitlines():
                label, _, name = line.partition(":")
                if label.strip() == "Model" and name.strip():
                    found.append(name.strip())
    return found


def opencl_devices(compiler: str = "gcc") -> list[Device]:
    """All OpenCL devices, in the order in which ``MDH_OPENCL_DEVICE`` numbers them."""
    rows = _answers(OPENCL_PROGRAM, "query.c", [compiler], [compiler], ["-lOpenCL"])
    return [described_opencl(row) for row in rows]


def asked_number() -> int:
    """The number of the OpenCL device that emitted files take: of MDH_OPENCL_DEVICE.

    What is no number is that of no device.
    """
    asked = os.environ.get("MDH_OPENCL_DEVICE", "0").strip()
    return int(asked) if asked.isdecimal() else sys.maxsize


def this_device(target: str, number: int = 0) -> Device | None:
    """The device of this machine that a file for ``target`` runs on: "cuda", or "opencl" with its number."""
    if target == "cuda":
        return cuda_device()
    found = opencl_devices()
    return found[number] if number < len(found) else None


def described_cuda(row: dict[str, int | str]) -> Device:
    """From an answer of the CUDA program; clocks are in kHz, the bus in bits.

    >>> row = {"name": "NVIDIA H200", "memory": 1, "major": 9, "minor": 0, "threads": 1024,
    ...        "grid": 2147483647, "shared": 49152, "shared_most": 232448, "registers": 65536,
    ...        "warp": 32, "processors": 132, "clock": 1980000, "memory_clock": 3201000, "bus": 6016}
    >>> device = described_cuda(row)
    >>> device.arch, device.shared_most, f"{device.bandwidth:.3g} {device.peak:.3g}"
    ('sm_90', 232448, '4.81e+12 6.69e+13')
    """
    value = {key: int(x) for key, x in row.items() if key != "name"}
    major, minor = value["major"], value["minor"]
    lanes = 128 if major >= 9 or (major == 8 and minor > 0) else 64
    clock, memory_clock = value.get("clock", 0), value.get("memory_clock", 0)
    return Device(
        str(row["name"]),
        block_threads=value["threads"] or _PLAIN.block_threads,
        shared=value["shared"] or _PLAIN.shared,
        shared_most=max(value["shared_most"], value["shared"]) or _PLAIN.shared_most,
        registers=value["registers"] or _PLAIN.registers,
        warp=value["warp"] or _PLAIN.warp,
        processors=value["processors"] or _PLAIN.processors,
        grid=value["grid"] or _PLAIN.grid,
        memory=value["memory"],
        bandwidth=2e3 * memory_clock * value.get("bus", 0) / 8 or _PLAIN.bandwidth,
        peak=2e3 * clock * lanes * value["processors"] or _PLAIN.peak,
        arch=f"sm_{major}{minor}",
    )


def described_by_name(said: str) -> Device | None:
    """From a line of ``nvidia-smi``: name, MiB, compute capability.

    >>> device = described_by_name("NVIDIA H200, 143771, 9.0")
    >>> device.processors, device.memory >> 30, device.arch
    (132, 140, 'sm_90')
    >>> described_by_name("No devices were found")
    """
    parts = [part.strip() for part in said.strip().partition("\n")[0].split(",")]
    if len(parts) != 3 or not parts[1].isdigit():
        return None
    name, mebibytes, capability = parts
    known = next((d for d in (H200, H100, A100) if d.name in name), _PLAIN)
    arch = f"sm_{capability.replace('.', '')}"
    return replace(known, name=name, memory=int(mebibytes) << 20, arch=arch)


def described_opencl(row: dict[str, int | str]) -> Device:
    """From an answer of the OpenCL program; what OpenCL does not say is that of the generic description."""
    local = int(row["shared"]) or GENERIC_OPENCL.shared
    return replace(
        GENERIC_OPENCL,
        name=str(row["name"]).strip(),
        block_threads=int(row["threads"]) or GENERIC_OPENCL.block_threads,
        shared=local,
        shared_most=local,
        memory=int(row["memory"]),
        processors=int(row["processors"]) or 1,
    )


def device_named(name: str, target: str) -> Device | None:
    """A description by its name, or what this machine has (``this``); None where that is nothing.

    Raises ``KeyError`` for a name that nothing has.
    """
    return this_device(target, asked_number()) if name == "this" else DEVICES[name]


def _answers(
    program: str, file: str, compiler: Sequence[str], linker: Sequence[str], link: Sequence[str]
) -> list[dict[str, int | str]]:
    """Lines of JSON that a program prints; none where it does not compile, or fails."""
    if shutil.which(compiler[0]) is None:
        return []
    with tempfile.TemporaryDirectory(prefix="mdh-lift-") as directory:
        source, thing, made = (Path(directory, name) for name in (file, "query.o", "query"))
        source.write_text(program)
        if _run([*compiler, "-c", str(source), "-o", str(thing)], COMPILE_SECONDS) is None:
            return []
        if _run([*linker, str(thing), "-o", str(made), *link], COMPILE_SECONDS) is None:
            return []
        return rows_in(_output([str(made)]))


def rows_in(said: str) -> list[dict[str, int | str]]:
    """What a program answered, without what a driver printed."""
    found = []
    for line in said.splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:  # a driver prints what it likes
            continue
    return [row for row in found if isinstance(row, dict)]


def _output(words: Sequence[str]) -> str:
    return _run(words, ANSWER_SECONDS) or ""


def _run(words: Sequence[str], seconds: float) -> str | None:
    """The standard output; None where the command is not there, fails, or takes too long."""
    done = _ran(words, seconds)
    return done.stdout if done is not None and done.returncode == 0 else None


def _ran(words: Sequence[str], seconds: float) -> subprocess.CompletedProcess[str] | None:
    try:
        return subprocess.run(
            words, capture_output=True, timeout=seconds, stdin=subprocess.DEVNULL, errors="replace", text=True
        )
    except (OSError, subprocess.TimeoutExpired):
        return None


__all__ = ["asked_number", "cuda_device", "cuda_libraries", "described_by_name", "described_cuda",
           "described_opencl", "device_named", "nvcc_command", "opencl_devices", "rows_in",
           "this_device"]  # fmt: skip
