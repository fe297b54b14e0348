"""What machine and compiler measurements belong to.  No host name, no path, no time."""

from __future__ import annotations

import hashlib
import platform
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import archspec.cpu
import psutil

from tuning.toolchain import Toolchain, usable_flags


@dataclass(frozen=True, slots=True)
class Machine:
    system: str
    isa: str
    microarchitecture: str
    cores: int
    threads: int
    caches: tuple[str, ...]  # "L1 48K", ..., one per level, data or unified
    memory_gib: int  # rounded to a power of two


@cache
def machine() -> Machine:
    memory = max(1, round(psutil.virtual_memory().total / (1 << 30)))
    return Machine(
        platform.system().lower(),
        platform.machine(),
        archspec.cpu.host().name,
        psutil.cpu_count(logical=False) or 1,
        psutil.cpu_count() or 1,
        _caches(Path("/sys/devices/system/cpu/cpu0/cache")),
        1 << (memory - 1).bit_length(),
    )


def _caches(root: Path) -> tuple[str, ...]:
    found: list[str] = []
    for index in sorted(root.glob("index*")):
        try:
            kind, level, size = ((index / n).read_text().strip() for n in ("type", "level", "size"))
        except OSError:
            continue
        if kind != "Instruction":
            found.append(f"L{level} {size}")
    return tuple(found)


def machine_class(threads: int) -> str:
    """What fingerprints of this machine begin with: ``linux-x86_64-icelake-2of4t``."""
    m = machine()
    return f"{m.system}-{m.isa}-{m.microarchitecture}-{threads}of{m.threads}t"


def fingerprint(toolchain: Toolchain, threads: int) -> str:
    """What must match for reuse: ``linux-x86_64-icelake-2of4t-1f3a9c0b``; last: caches, compiler, flags.

    For a GPU ``linux-x86_64-icelake-2of4t-cuda-0b1f3a9c``; its digest is also of device, compiler and flags.
    """
    flags = sorted(f for f in usable_flags(toolchain.flags) if not f.startswith(("-I", "-i")))
    rest = repr((machine().caches, toolchain.version, flags, toolchain.openmp))
    host = machine_class(threads)
    gpu = toolchain.accelerator
    if gpu is not None:
        host += f"-{gpu.target}"
        rest += repr((gpu.device, gpu.version, gpu.compile[1:]))
    return f"{host}-{hashlib.sha256(rest.encode()).hexdigest()[:8]}"


def description(toolchain: Toolchain, threads: int) -> dict[str, object]:
    """The parts in words, for reports and the store."""
    return {**asdict(machine()), "compiler": toolchain.version, "used_threads": threads}
