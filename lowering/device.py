"""What a GPU allows: the limits that every mapping must keep, and the figures that a cost model needs.

A description stands for a device that is not there: spaces are built, and code is emitted, without one.
Figures are those of the vendors' data sheets and programming guides.  ``tuning/devices.py`` reads the same
from a device that is there.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Device:
    """Limits of one block (work-group) and of the device.

    block_threads  threads of a block
    shared         bytes of shared (local) memory of a block that need no permission
    shared_most    bytes of shared memory of a block at most
    registers      32-bit registers of a block; of a thread, at most ``thread_registers``
    warp           threads that run together; 1 where that is not known
    processors     multiprocessors (compute units)
    grid           blocks of a launch
    memory         bytes of global memory
    bandwidth      bytes per second of global memory
    peak           single-precision operations per second
    arch           of the machine code, as nvcc calls it: ``sm_90``; empty where there is none
    """

    name: str
    block_threads: int = 1024
    shared: int = 48 << 10
    shared_most: int = 48 << 10
    registers: int = 1 << 16
    thread_registers: int = 255
    warp: int = 32
    processors: int = 16
    grid: int = (1 << 31) - 1
    memory: int = 4 << 30
    bandwidth: float = 2.0e11
    peak: float = 4.0e12
    arch: str = ""


H100 = Device(
    "H100", shared_most=227 << 10, processors=132, memory=80 << 30, bandwidth=3.35e12, peak=6.7e13,
    arch="sm_90",
)
H200 = Device(
    "H200", shared_most=227 << 10, processors=132, memory=141 << 30, bandwidth=4.8e12, peak=6.7e13,
    arch="sm_90",
)
A100 = Device(
    "A100", shared_most=163 << 10, processors=108, memory=40 << 30, bandwidth=1.555e12, peak=1.95e13,
    arch="sm_80",
)
GENERIC_OPENCL = Device("OpenCL", block_threads=256, shared=32 << 10, shared_most=32 << 10, warp=1)
DEVICES = {d.name.lower(): d for d in (H100, H200, A100, GENERIC_OPENCL)}
