"""The abstract system model, and the facts of a real machine that a cost model needs.

    model ::= SystemModel(name, memory: layer+, core: layer+)      # mdh.md 4.1, outermost first
    layer ::= Layer(name, role)

An abstract system model is a pair of memory layers and core layers; sizes and core counts are not
part of it.  ``role`` says what a generator makes of a loop on the layer: ``sequential`` (a loop),
``unrolled`` (a loop written out, its data in registers), ``blocks`` (of a GPU's grid: they share nothing but
global memory), ``threads`` (split among cores that share memory), ``lanes`` (one vector instruction).
Capacities live in ``Machine`` and ``lowering.device``.
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from pathlib import Path

LINE = 64  # bytes that caches and memory exchange


@dataclass(frozen=True, slots=True)
class Layer:
    name: str
    role: str  # sequential | unrolled | blocks | threads | lanes


@dataclass(frozen=True, slots=True)
class SystemModel:
    name: str
    memory: tuple[Layer, ...]
    core: tuple[Layer, ...]

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Memory layers first, then core layers, each outermost first (mdh.md 4.1)."""
        return self.memory + self.core

    @property
    def depth(self) -> int:
        """L, the number of layers."""
        return len(self.memory) + len(self.core)

    def layer(self, name: str) -> int:
        return next(k for k, layer in enumerate(self.layers) if layer.name == name)


def _memory(*names: str) -> tuple[Layer, ...]:
    return tuple(Layer(n, "unrolled" if n in ("RM", "REG", "PM") else "sequential") for n in names)


def _threads(*names: str) -> tuple[Layer, ...]:
    return tuple(Layer(n, "blocks" if n in ("SMX", "CU") else "threads") for n in names)


SIMD = Layer("SIMD", "lanes")
ARTIFICIAL = SystemModel("artificial", _memory("HM", "L1"), _threads("COR"))
OPENMP = SystemModel("OpenMP", _memory("MM", "L2", "L1"), _threads("COR"))
OPENMP_L3 = SystemModel("OpenMP+L3", _memory("MM", "L3", "L2", "L1"), _threads("COR"))
OPENMP_L3_SIMD = SystemModel(
    "OpenMP+L3+SIMD", _memory("MM", "L3", "L2", "L1"), (*_threads("COR"), SIMD)
)
OPENMP_SIMD = SystemModel("OpenMP+SIMD", _memory("MM", "L2", "L1"), (*_threads("COR"), SIMD))
# The register file as a memory layer of its own, as RM in the GPU models: what the default uses.
OPENMP_REG_SIMD = SystemModel(
    "OpenMP+REG+SIMD", _memory("MM", "L2", "L1", "REG"), (*_threads("COR"), SIMD)
)
CUDA = SystemModel("CUDA", _memory("DM", "SM", "RM"), _threads("SMX", "CC"))
CUDA_WRP = SystemModel("CUDA+WRP", _memory("DM", "SM", "RM"), _threads("SMX", "WRP", "CC"))
OPENCL = SystemModel("OpenCL", _memory("GM", "LM", "PM"), _threads("CU", "PE"))
MULTI_GPU = SystemModel(
    "Multi-GPU", _memory("HM", "DM", "SM", "RM"), _threads("GPU", "SMX", "CC")
)
MULTI_NODE_MULTI_GPU = SystemModel(
    "Multi-Node-Multi-GPU",
    _memory("NM", "HM", "DM", "SM", "RM"),
    _threads("NOD", "GPU", "SMX", "CC"),
)
MODELS = {
    m.name: m
    for m in (
        ARTIFICIAL,
        OPENMP,
        OPENMP_L3,
        OPENMP_SIMD,
        OPENMP_L3_SIMD,
        OPENMP_REG_SIMD,
        CUDA,
        CUDA_WRP,
        OPENCL,
        MULTI_GPU,
        MULTI_NODE_MULTI_GPU,
    )
}


_ZEN_L3 = 4e10  # bytes per second that a core has from an AMD processor's last cache, at least
_OWN_L2 = 2 / 3  # of other processors' second caches; measured on products with one of 2 MiB
_PER_CORE, _MOST_BANDWIDTH = 1.25e10, 2e11  # bytes per second from memory; measured with 2 and with 16 cores
_SHARE = 8 << 20  # of the last cache, per core: what processors with many cores have at least


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine as the cost model sees it.

    vector_bytes  width of one vector register
    registers     number of vector registers
    l1, l2, l3    bytes per core (l3: shared)
    own_l2        share of the second cache in which blocks of reductions stay: where going back to the last
                  cache is slow, it shows that other guests' threads on the core take a part
    stack         bytes of private scratch that a kernel may put on a thread's stack
    rate          operations per second of one lane of one core, where a multiply-add is two
    l2_bandwidth  bytes per second that one core has from its second cache
    l3_bandwidth  and from the last one, while the others read, too
    bandwidth     bytes per second that all cores together have from memory
    core_bandwidth  and the most that one core has
    huge_pages    whether large arrays lie in pages of 2 MiB, see ``has_huge_pages``

    Rates and bandwidths are estimates unless they were measured (``tuning.ceilings``).
    """

    name: str
    cores: int
    vector_bytes: int
    registers: int
    l1: int
    l2: int
    l3: int
    stack: int = 1 << 19
    rate: float = 1.2e10
    l2_bandwidth: float = 1 / 6e-12
    l3_bandwidth: float = 1 / 6e-11
    bandwidth: float = 2.5e10
    core_bandwidth: float = 1.8e10
    huge_pages: bool = False
    own_l2: float = 1.0
    model: SystemModel = OPENMP_REG_SIMD

    def __hash__(self) -> int:
        """Of a few fields: it is a part of the key of whatever the cost model remembers."""
        return hash((self.name, self.cores, self.vector_bytes, self.bandwidth))

    def bandwidth_of(self, cores: float) -> float:
        """Bytes per second that so many cores at work have from memory."""
        return min(self.bandwidth, cores * self.core_bandwidth)

    @property
    def last(self) -> int:
        """Bytes from which on arrays are taken to come from memory: large caches are shared with others."""
        return min(self.l3 // 2, self.cores * _SHARE)


GENERIC = Machine("generic-x86_64", 4, 32, 16, 32 << 10, 512 << 10, 8 << 20)


def _cache_bytes(level: int) -> int | None:
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            if int((index / "level").read_text()) != level:
                continue
            if (index / "type").read_text().strip() == "Instruction":
                continue
            text = (index / "size").read_text().strip()
        except (OSError, ValueError):
            continue
        return int(text.rstrip("KM")) * (1 << (20 if text.endswith("M") else 10))
    return None


def has_huge_pages(asked: bool) -> bool:
    """Whether large arrays get pages of 2 MiB from the system: without asking, or as programs that ask do.

    NumPy asks for all arrays of 4 MiB or more; ``malloc`` does not.
    """
    try:
        policy = Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text()
    except OSError:
        return False
    return "[always]" in policy or (asked and "[madvise]" in policy)


@functools.cache
def this_machine() -> Machine:
    """The machine we run on: cores from the affinity mask, caches from sysfs, vectors from its flags."""
    import archspec.cpu
    import archspec.cpu.detect

    host = archspec.cpu.host()
    features = set(host.features)
    vendor = archspec.cpu.detect.detected_info().vendor  # also where no model is recognised
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    wide = "avx512f" in features
    vector_bytes = 64 if wide else 32 if "avx2" in features or "avx" in features else 16
    return Machine(
        host.name,
        cores,
        vector_bytes,
        32 if wide or "neon" in features or "asimd" in features else 16,
        _cache_bytes(1) or GENERIC.l1,
        _cache_bytes(2) or GENERIC.l2,
        _cache_bytes(3) or GENERIC.l3,
        l3_bandwidth=_ZEN_L3 if vendor == "AuthenticAMD" else GENERIC.l3_bandwidth,
        own_l2=1.0 if vendor == "AuthenticAMD" else _OWN_L2,
        bandwidth=min(_MOST_BANDWIDTH, max(2, cores) * _PER_CORE),
        huge_pages=has_huge_pages(asked=False),
    )
