"""Which recorded machine is most like this one: same system, instruction set and target, then the nearest.

    fingerprint, cache sizes -> Kind;  distance(Kind, Kind) -> a tuple that compares

Nearness is about what a configuration was chosen by: first the instructions (microarchitecture), then the
number of threads, then the caches.  Compiler and flags do not count.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_FINGERPRINT = re.compile(
    r"(?P<system>[^-]+)-(?P<isa>[^-]+)-(?P<micro>.+)-(?P<used>\d+)of(?P<all>\d+)t"
    r"(?:-(?P<target>cuda|opencl))?-[0-9a-f]+"
)
_UNKNOWN = 1000.0  # features that differ from those of a microarchitecture without a description
Distance = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Kind:
    """A machine class: what a fingerprint says in words, and bytes of the caches by level, where known."""

    system: str
    isa: str
    microarchitecture: str
    threads: int
    target: str
    caches: Mapping[int, int] = field(default_factory=dict)

    @property
    def words(self) -> str:
        many = f"{self.threads} thread{'s' * (self.threads != 1)}"
        return f"{self.microarchitecture}, {many}" + (f", {self.target}" * (self.target != "openmp"))


def kind_of(fingerprint: str, machine: Mapping[str, Any] | None = None) -> Kind | None:
    """The class of a fingerprint; ``machine``: what the lock file says of it (``l1``, ``l2``, ``l3``: bytes).

    None for text that is no fingerprint.
    """
    found = _FINGERPRINT.fullmatch(fingerprint)
    if found is None:
        return None
    caches = {k: (machine or {}).get(f"l{k}") for k in (1, 2, 3)}
    known = {k: v for k, v in caches.items() if isinstance(v, int) and v > 0}
    target = found["target"] or "openmp"
    return Kind(found["system"], found["isa"], found["micro"], int(found["used"]), target, known)


def distance(here: Kind, there: Kind) -> Distance | None:
    """How far another machine is; smaller is nearer.  None where nothing can be taken over."""
    if (here.system, here.isa, here.target) != (there.system, there.isa, there.target):
        return None
    both = here.caches.keys() & there.caches.keys()
    caches = sum(abs(math.log2(here.caches[k] / there.caches[k])) for k in both)
    threads = abs(math.log2(max(1, here.threads) / max(1, there.threads)))
    return (_instructions(here.microarchitecture, there.microarchitecture), threads, caches)


def _instructions(a: str, b: str) -> float:
    """Number of features that only one of two microarchitectures has; half of one for the name alone."""
    if a == b:
        return 0.0
    import archspec.cpu

    if a not in archspec.cpu.TARGETS or b not in archspec.cpu.TARGETS:
        return _UNKNOWN
    return 0.5 + len(set(archspec.cpu.TARGETS[a].features) ^ set(archspec.cpu.TARGETS[b].features))
