"""What the machine code of emitted CUDA needs: registers, spills, shared memory, as ptxas reports them.

In: a file as nvcc compiles it and a device.  Out: ``Resources`` by kernel, and the reason for which a
candidate should not even run.  Parsing is tested on recorded reports and, where nvcc is installed, on files
that spill and that do not.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lowering.device import Device
from tuning.devices import nvcc_command

_ENTRY = re.compile(r"(?:Compiling entry function|Function properties for) '?([\w$.]+)'?")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+)(?:\+(\d+))? bytes smem")
_KERNEL = re.compile(r"__global__\s+void\s+__launch_bounds__\(\s*(\d+)[^)]*\)\s+(\w+)\s*\(")
_WARP_REGISTERS = 256  # are given to a warp together


@dataclass(frozen=True, slots=True)
class Resources:
    """Of one kernel: 32-bit registers of a thread, bytes that do not fit in them, shared memory of a block.

    ``threads``: of a block, as ``__launch_bounds__`` says; 0 where it does not.
    """

    kernel: str
    registers: int
    spilled: int = 0  # bytes stored and loaded
    frame: int = 0  # bytes of local memory of a thread
    shared: int = 0
    threads: int = 0


def report(
    path: Path, arch: str, nvcc: str = "", flags: tuple[str, ...] = ("-O3",), seconds: float = 120
) -> dict[str, Resources]:
    """Compile a file for ``arch`` ("sm_90") and say what its kernels need.

    Raises ``OSError`` where nvcc cannot be run, and ``ValueError`` with what it said where the file does not
    compile.
    """
    compiler = [nvcc] if nvcc else nvcc_command()
    if shutil.which(compiler[0]) is None:
        raise FileNotFoundError(f"{compiler[0]} was not found")
    with tempfile.TemporaryDirectory(prefix="mdh-lift-") as directory:
        words = [*compiler, *flags, f"-arch={arch}", "-Xptxas", "-v", "-cubin", str(path)]
        words += ["-o", str(Path(directory, "a.cubin"))]
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=seconds)
        except subprocess.TimeoutExpired:
            raise ValueError(f"nvcc takes longer than {seconds:.0f} s") from None
    if done.returncode != 0:
        raise ValueError((done.stderr or done.stdout).strip()[:2000])
    return parsed(done.stdout + done.stderr, path.read_text())


def parsed(said: str, source: str = "") -> dict[str, Resources]:
    """What ``-Xptxas -v`` said, by kernel: by the names of ``source``, or as the linker knows them.

    >>> said = '''ptxas info    : Compiling entry function '_Z5dot_0PKf' for 'sm_90'
    ... ptxas info    : Function properties for _Z5dot_0PKf
    ...     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
    ... ptxas info    : Used 40 registers, used 1 barriers, 2048 bytes smem, 380 bytes cmem[0]'''
    >>> parsed(said, "static __global__ void __launch_bounds__(256, 1)\\ndot_0(const float *x)")["dot_0"]
    Resources(kernel='dot_0', registers=40, spilled=0, frame=0, shared=2048, threads=256)
    """
    names = {name: int(unit) for unit, name in _KERNEL.findall(source)}
    frames: dict[str, tuple[int, int]] = {}
    found: dict[str, Resources] = {}
    entry, current = "", ""
    for line in said.splitlines():
        if named := _ENTRY.search(line):
            current = named[1]
            entry = current if "Compiling entry function" in line else entry
        elif frame := _FRAME.search(line):
            frames[current] = (int(frame[1]), int(frame[2]) + int(frame[3]))
        elif entry and (used := _USED.search(line)):
            shared = _SHARED.search(line)
            size = sum(int(x) for x in shared.groups() if x) if shared else 0
            # a mangled name has the length of each name before it
            name = next((n for n in names if re.search(rf"(?<!\d){len(n)}{n}", entry)), entry)
            frame_bytes, spilled = frames.get(entry, (0, 0))
            found[name] = Resources(name, int(used[1]), spilled, frame_bytes, size, names.get(name, 0))
            entry = ""
    return found


def why_not(resources: Mapping[str, Resources], device: Device) -> str | None:
    """Why kernels are not worth running, or cannot run, on a device; None where nothing speaks against it.

    >>> from lowering.device import H100
    >>> why_not({"k": Resources("k", 96, threads=1024)}, H100)
    'k: 96 registers of 1024 threads are 98304, of 65536'
    """
    for r in resources.values():
        threads = -(-r.threads // device.warp) * device.warp
        granted = -(-r.registers * device.warp // _WARP_REGISTERS) * _WARP_REGISTERS // device.warp
        if r.spilled:
            return f"{r.kernel}: {r.spilled} bytes of registers are spilled"
        if r.registers > device.thread_registers:
            return f"{r.kernel}: {r.registers} registers of a thread, of {device.thread_registers}"
        if granted * threads > device.registers:
            taken = f"{r.registers} registers of {r.threads} threads are {granted * threads}"
            return f"{r.kernel}: {taken}, of {device.registers}"
        if r.threads > device.block_threads:
            return f"{r.kernel}: {r.threads} threads of a block, of {device.block_threads}"
        if r.shared > device.shared_most:
            return f"{r.kernel}: {r.shared} bytes of shared memory, of {device.shared_most}"
    return None


__all__ = ["Resources", "parsed", "report", "why_not"]
