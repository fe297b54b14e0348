"""How a candidate's own file for a GPU is compiled, linked and run, and whether there is a device for it.

The user's file keeps its compiler and flags; the generated file beside it has an ``Accelerator``: nvcc
for CUDA (another program by the environment variables CUDACXX, as CMake has it, or NVCC), the C compiler for
OpenCL.
Devices are asked by a probe that is compiled and run in a process of its own: drivers may hang, print, or
end their process.

    accelerator("opencl", ("gcc",))        raises MDH805: no compiler, MDH806: no device
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from lowering.device import GENERIC_OPENCL, H100, Device
from mdh_core.diagnostics import refuse
from tuning import devices, ptxas

_SECONDS = 60.0
_REFUSED_OPTIONS = 2  # exit status of the probe
_PROBES = {
    "cuda": devices.CUDA_PROGRAM,
    "opencl": """#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>
"""
    + devices.OPENCL_TELL
    + """
static int takes(cl_device_id device, const char *options)
{
  static char log[4096];
  const char *text = "__kernel void probe(__global int *a) { *a = 0; }";
  cl_int answer;
  cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &answer);
  if (answer != CL_SUCCESS) return 1; /* no matter of options */
  cl_program program = clCreateProgramWithSource(context, 1, &text, NULL, &answer);
  if (answer != CL_SUCCESS) return 1;
  if (clBuildProgram(program, 1, &device, options, NULL, NULL) == CL_SUCCESS) return 1;
  clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, sizeof log - 1, log, NULL);
  return puts(*log ? log : "it says nothing"), 0;
}
int main(void)
{
  cl_platform_id platforms[16];
  cl_uint several = 0, number = 0, wanted = 0;
  const char *asked = getenv("MDH_OPENCL_DEVICE");
  if (asked) {
    char *end;
    wanted = (cl_uint)strtoul(asked, &end, 10);
    if (end == asked || *end) return puts("MDH_OPENCL_DEVICE is no number"), 1;
  }
  if (clGetPlatformIDs(16, platforms, &several) != CL_SUCCESS) several = 0;
  for (cl_uint p = 0; p < several && p < 16; p++) {
    cl_device_id devices[16];
    cl_uint count = 0;
    if (clGetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, 16, devices, &count) != CL_SUCCESS) continue;
    for (cl_uint d = 0; d < count && d < 16; d++)
      if (number++ == wanted) {
        if (getenv("MDH_OPENCL_OPTIONS") && !takes(devices[d], getenv("MDH_OPENCL_OPTIONS"))) return 2;
        return tell(devices[d]), 0;
      }
  }
  return printf("of %u devices, number %u is asked for\\n", number, wanted), 1;
}
""",
}
_SUFFIX = {"cuda": ".cu", "opencl": ".c"}
_VARIABLES = {
    "cuda": ("CUDA_*", "MDH_SHIM_*", "MDH_FIBERS", "NVIDIA_*"),
    "opencl": ("MDH_OPENCL_*", "OCL_*", "OPENCL_*", "POCL_*"),
}
_INSTALL = {
    "cuda": "install the CUDA toolkit, or name its compiler in CUDACXX",
    "opencl": "install OpenCL's headers and loader (opencl-c-headers and ocl-icd-opencl-dev in Debian)",
}
_DRIVER = {
    "cuda": "`--target openmp` needs none; CUDACXX may name a compiler that runs CUDA on the processor",
    "opencl": "`--target openmp` needs none; pocl-opencl-icd makes the processor a device",
}


@dataclass(frozen=True, slots=True)
class Accelerator:
    """What a candidate's own file needs.

    compile    argument list; ``-c FILE -o OBJECT`` follows
    suffix     of the file
    link       flags behind the objects
    variables  of the environment that its programs may see; a star at the end stands for any rest
    version    of the compiler, first line
    device     as the driver calls it
    limits     of the device, that candidates must keep; None: none
    described  what the probe said of the device
    """

    target: str
    compile: tuple[str, ...]
    suffix: str
    link: tuple[str, ...]
    variables: tuple[str, ...]
    version: str = ""
    device: str = ""
    limits: Device | None = None
    described: Device | None = field(default=None, repr=False)

    def environment(self) -> dict[str, str]:
        """The variables of the present environment that programs may see."""
        return {n: v for n, v in os.environ.items() if any(_matches(n, p) for p in self.variables)}


def _matches(name: str, pattern: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def why_not(by: Accelerator, text: str, said: str) -> str | None:
    """Why a file does not fit the device, from what its compiler said (ptxas' report); None where it may."""
    return None if by.limits is None else ptxas.why_not(ptxas.parsed(said, text), by.limits)


def accelerator(
    target: str, cc: tuple[str, ...], exact: bool = False, kept: Path | None = None
) -> Accelerator:
    """The compiler and the device of a target, ``cuda`` or ``opencl``.

    ``cc``: the C compiler, which compiles files for OpenCL and the probe.  ``exact``: no contraction of
    products and sums.  ``kept``: a directory of the user's own in which the probe stays for later processes,
    as nvcc takes seconds to compile it.  Raises ``Refusal`` MDH805 where files cannot be compiled, MDH806
    without a device.
    """
    variables = tuple(sorted(_environment(target).items()))
    found = _accelerator(target, _compiler(target, cc), variables, kept)
    return replace(found, compile=(*found.compile, *_contraction(target, exact)))


def _environment(target: str) -> dict[str, str]:
    asked = Accelerator(target, (), "", (), _VARIABLES[target])
    return asked.environment()


def with_limits(by: Accelerator) -> Accelerator:
    """With the limits of the device that a program will find; where it cannot be asked, of a usual one."""
    usual = H100 if by.target == "cuda" else GENERIC_OPENCL
    return replace(by, limits=by.described or usual)


@cache
def _accelerator(
    target: str, compiler: tuple[str, ...], variables: tuple[tuple[str, str], ...], kept: Path | None
) -> Accelerator:
    """``variables``: those that may choose another device."""
    version = _run([*compiler, "--version"])
    if version is None or version.returncode != 0:
        raise refuse("MDH805", f"the compiler `{' '.join(compiler)}` for {target} cannot be run",
                     help=_INSTALL[target])  # fmt: skip
    made = Accelerator(
        target,
        _compile(target, compiler),
        _SUFFIX[target],
        devices.cuda_libraries(compiler) if target == "cuda" else ("-lOpenCL", "-pthread"),
        _VARIABLES[target],
        _version_of(version.stdout),
    )
    described = _device(made, dict(variables), kept)
    return replace(made, device=described.name, described=described)


def stated(target: str, cc: tuple[str, ...], version: str, device: str, exact: bool = False) -> Accelerator:
    """As ``accelerator``, of a GPU compiler and a device that a record names: nothing is started, and nothing
    can be compiled with it."""
    words = (*_compile(target, _compiler(target, cc)), *_contraction(target, exact))
    return Accelerator(target, words, _SUFFIX[target], (), _VARIABLES[target], version, device)


def _compiler(target: str, cc: tuple[str, ...]) -> tuple[str, ...]:
    return devices.nvcc_command() if target == "cuda" else cc


def _compile(target: str, compiler: tuple[str, ...]) -> tuple[str, ...]:
    return (*compiler, "-O3", "-arch=native", "-Xptxas", "-v") if target == "cuda" else (*compiler, "-O2")


def _contraction(target: str, exact: bool) -> tuple[str, ...]:
    return ("-fmad=false",) if exact and target == "cuda" else ()


def _version_of(text: str) -> str:
    """The line of ``--version`` that names the release."""
    lines = text.splitlines() or [""]
    return next((line for line in lines if "release" in line), lines[0]).strip()


def _device(made: Accelerator, variables: dict[str, str], kept: Path | None) -> Device:
    """The device, by a program of our own.  Raises MDH805, MDH806."""
    with tempfile.TemporaryDirectory(prefix="mdh-lift-", dir=kept) as directory:
        if kept is None:
            program = _probe(made, Path(directory))
        else:
            words = (_PROBES[made.target], *made.compile, *made.link, made.version)
            program = kept / f"probe-{hashlib.sha256(repr(words).encode()).hexdigest()[:16]}"
            if not program.exists():
                _probe(made, Path(directory)).replace(program)
        inherited = {n: v for n, v in os.environ.items() if n in ("PATH", "LD_LIBRARY_PATH")}
        ran = _run([str(program)], {**inherited, **variables})
    if ran is not None and ran.returncode == _REFUSED_OPTIONS:
        options = variables.get("MDH_OPENCL_OPTIONS", "")
        raise refuse("MDH805", f"the compiler of OpenCL does not take MDH_OPENCL_OPTIONS=`{options[:80]}`",
                     notes=tuple(row for row in ran.stdout.splitlines() if row.strip())[:8],
                     help="correct the variable, or unset it")  # fmt: skip
    rows = devices.rows_in(ran.stdout) if ran is not None and ran.returncode == 0 else []
    if not rows:
        reason = (ran.stdout if ran else "").strip() or "the driver gives no answer"
        raise refuse("MDH806", f"there is no device for {made.target}: {reason[:200]}",
                     help=_DRIVER[made.target])  # fmt: skip
    of_row = devices.described_cuda if made.target == "cuda" else devices.described_opencl
    return of_row(rows[0])


def _probe(made: Accelerator, directory: Path) -> Path:
    """The program that asks for the device.  Raises MDH805."""
    source, thing, program = (directory / n for n in (f"probe{made.suffix}", "probe.o", "probe"))
    source.write_text(_PROBES[made.target])
    compiled = _run([*made.compile, "-c", str(source), "-o", str(thing)])
    if compiled is not None and compiled.returncode == 0:
        linker = made.compile[0] if made.target == "opencl" else "g++"
        compiled = _run([linker, str(thing), "-o", str(program), *made.link])
    if compiled is None or compiled.returncode != 0:
        lines = compiled.stderr.splitlines() if compiled else []
        reason = next((line for line in lines if "error" in line), (lines or ["no answer"])[-1])
        raise refuse("MDH805", f"files for {made.target} cannot be compiled: {reason.strip()[:200]}",
                     help=_INSTALL[made.target])  # fmt: skip
    return program


def _run(
    command: list[str], environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str] | None:
    """A finished process; None where it cannot be started or takes too long."""
    try:
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=_SECONDS, env=environment, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
