"""The limits of this machine, measured by a small C program of ours: bandwidths, FMA peak, core to core.

    compiler, threads  ->  Ceilings  ->  ceilings.json beside the tuning database, by machine

Measured once (``mdh-lift doctor --bench``).  The roofline of a report is drawn from them, and the cost model
reckons with them (``known_machine``).
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from lowering.machine import Machine, this_machine
from mdh_core.replacing import replace_file
from tuning.fingerprint import fingerprint, machine_class
from tuning.store import default_path
from tuning.toolchain import Toolchain

SOURCE = Path(__file__).with_name("ceilings.c")
SCHEMA_VERSION = 1
FLAGS = ("-O3", "-march=native")
_SECONDS = 300  # for one program
_MEMORY = 1 << 28  # bytes of an array that is in no cache, at least


class CeilingsError(Exception):
    """Nothing could be measured, or what was stored is no such file; the message says why."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes per second, operations per second; of all threads together, the best of seven.

    ``round_trip``: seconds of a line from the first core to the furthest and back; 0 with one thread.
    """

    read: float
    copy: float
    peak_float: float
    peak_double: float
    triad: float = 0.0
    update: float = 0.0  # read and written in place
    move: float = 0.0  # read and written past the caches
    round_trip: float = 0.0


@dataclass(frozen=True, slots=True)
class Level:
    """Bandwidths of one level, ``L1`` … ``memory``, in bytes per second; ``array``: bytes of each array."""

    name: str
    threads: int
    array: int
    read: float
    copy: float
    triad: float


@dataclass(frozen=True, slots=True)
class Peak:
    """Operations per second, an FMA being two."""

    threads: int
    single: float
    double: float


@dataclass(frozen=True, slots=True)
class Ceilings:
    """``machine``: the fingerprint of machine, compiler and flags that they were measured with.

    ``round_trip``: see ``Limits``; 0 where it was not measured.
    """

    machine: str
    levels: tuple[Level, ...]
    peaks: tuple[Peak, ...]
    round_trip: float = 0.0

    def bandwidth(self, level: str = "memory") -> float:
        """Read bandwidth of a level with all threads, in bytes per second."""
        return max((x.read for x in self.levels if x.name == level), default=math.nan)

    def peak(self, kind: str = "single") -> float:
        """Operations per second with all threads; ``kind``: single or double."""
        return max((getattr(x, kind) for x in self.peaks), default=math.nan)

    def rows(self) -> list[tuple[str, str]]:
        """Label and value for people."""
        out = []
        for x in self.levels:
            rates = f"read {_giga(x.read)}, copy {_giga(x.copy)}, triad {_giga(x.triad)} GB/s"
            out.append((x.name, f"{rates} ({_threads(x.threads)})"))
        for p in self.peaks:
            out.append(
                ("FMA peak", f"{_giga(p.single)} f32, {_giga(p.double)} f64 GFLOP/s ({_threads(p.threads)})")
            )
        if self.round_trip:
            out.append(("core to core", f"a cache line there and back in {self.round_trip * 1e9:.0f} ns"))
        return out

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def _giga(v: float) -> str:
    return f"{v / 1e9:.3g}" if v < 1e12 else f"{v / 1e9:.0f}"


def _threads(n: int) -> str:
    return "1 thread" if n == 1 else f"{n} threads"


# --------------------------------------------------------------------------- measuring


def measure_limits(working_set: float = _MEMORY, compiler: str = "gcc", threads: int = 0) -> Limits:
    """Compile and run the measurement (a few seconds), with so many threads; 0: as many as there are cores.

    ``working_set``: bytes that are read again and again.  A case whose data stay in a cache has that
    cache's bandwidth as its limit, so the limit is measured at the case's own size.
    Large arrays ask for pages of 2 MiB, as NumPy's do.  Raises ``CeilingsError``.
    """
    with tempfile.TemporaryDirectory(prefix="mdh-lift-") as directory:
        return _run(_compiled((compiler,), Path(directory)), working_set, threads, huge_pages=True)


def measure(toolchain: Toolchain, threads: int, tell: Callable[[str], None] = lambda what: None) -> Ceilings:
    """Every level with one thread and with all, and the peaks.  Raises ``CeilingsError``."""
    levels: list[Level] = []
    peaks: dict[int, Peak] = {}
    trip = 0.0
    machine = this_machine()
    with tempfile.TemporaryDirectory(prefix="mdh-lift-") as directory:
        program = _compiled(toolchain.cc, Path(directory))
        for n in sorted({1, threads}):
            for name, array in _arrays(machine, n):
                tell(f"{name}, {_threads(n)}")
                found = _run(program, array, n)
                trip = max(trip, found.round_trip)
                levels.append(Level(name, n, array, found.read, found.copy, found.triad))
                before = peaks.get(n, Peak(n, 0.0, 0.0))
                single, double = found.peak_float, found.peak_double
                peaks[n] = Peak(n, max(before.single, single), max(before.double, double))
    return Ceilings(machine_key(toolchain.cc, threads), tuple(levels), tuple(peaks.values()), trip)


def machine_key(cc: Sequence[str], threads: int) -> str:
    return fingerprint(Toolchain(tuple(cc), FLAGS), threads)


def _arrays(machine: Machine, threads: int) -> list[tuple[str, int]]:
    """Bytes of each of the three arrays per level: all fit into this level, but not into the one before."""
    found = [("L1", machine.l1 // 4 * threads), ("L2", machine.l2 // 4 * threads), ("L3", machine.l3 // 4)]
    usable = psutil.virtual_memory().available // 6
    found.append(("memory", min(max(_MEMORY, 2 * machine.l3), usable)))
    kept = found[:1]
    for name, array in found[1:]:
        if array > 2 * kept[-1][1]:
            kept.append((name, array))
    return kept


def _compiled(cc: Sequence[str], directory: Path) -> Path:
    program = directory / "ceilings"
    command = [*cc, *FLAGS, "-w", "-fopenmp", str(SOURCE), "-o", str(program)]
    done = _done(command, None)
    if done.returncode:
        reason = (done.stderr.splitlines() or ["no message"])[0]
        raise CeilingsError(f"`{cc[0]}` does not compile the measurement: {reason}")
    return program


def _run(program: Path, array: float, threads: int, huge_pages: bool = False) -> Limits:
    environment = {**os.environ, **({"OMP_NUM_THREADS": str(threads)} if threads else {})}
    done = _done([str(program), str(int(array)), *(["huge"] if huge_pages else [])], environment)
    if done.returncode:
        raise CeilingsError(f"the measurement ended with status {done.returncode}; memory short?")
    return Limits(**json.loads(done.stdout))


def _done(command: list[str], environment: Mapping[str, str] | None) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=_SECONDS, env=environment, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise CeilingsError(f"`{Path(command[0]).name}` took longer than {_SECONDS} seconds") from None
    except OSError as error:
        raise CeilingsError(f"{Path(command[0]).name}: {error.strerror}") from None


# --------------------------------------------------------------------------- keeping


def stored_at() -> Path:
    """Beside the user's tuning database; ``MDH_LIFT_STORE`` moves both."""
    return default_path().parent / "ceilings.json"


def load(path: Path | None = None) -> dict[str, Ceilings]:
    """What was measured, by machine; empty where there is no file.  Raises ``CeilingsError``."""
    path = path or stored_at()
    try:
        content = json.loads(path.read_text("utf-8"))
        if content["schema_version"] != SCHEMA_VERSION:
            raise CeilingsError(f"{path}: written by another version; measure again with `doctor --bench`")
        return {key: _ceilings(key, value) for key, value in content["machines"].items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CeilingsError(f"{path}: no such measurements ({error}); remove the file") from None


def _ceilings(machine: str, value: Mapping[str, Any]) -> Ceilings:
    levels = tuple(Level(**x) for x in value["levels"])
    peaks = tuple(Peak(**x) for x in value["peaks"])
    return Ceilings(machine, levels, peaks, float(value.get("round_trip", 0.0)))


def save(ceilings: Ceilings, path: Path | None = None) -> None:
    """Beside those of other machines, in one step.  Raises ``CeilingsError``; then the file is as it was."""
    path = path or stored_at()
    try:
        known = load(path)
    except CeilingsError:
        known = {}  # nothing that anybody could use
    machines = {key: value.as_json() for key, value in {**known, ceilings.machine: ceilings}.items()}
    text = json.dumps({"schema_version": SCHEMA_VERSION, "machines": machines}, sort_keys=True, indent=2)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, text.encode() + b"\n")
    except OSError as error:
        raise CeilingsError(f"{path}: {error.strerror}") from None


def matching(known: Mapping[str, Ceilings], machine: str) -> Ceilings | None:
    """Those of the machine of a fingerprint; the compiler and its flags, the last part, may be others."""
    if machine in known:
        return known[machine]
    return next((c for key, c in sorted(known.items()) if hardware(key) == hardware(machine)), None)


def known_machine() -> Machine:
    """This machine, with what was measured on it in place of estimates."""
    machine = this_machine()
    try:
        found = matching(load(), f"{machine_class(machine.cores)}-")
    except CeilingsError:  # `doctor` and `report` tell it
        found = None
    return machine if found is None else with_figures(machine, found)


def with_figures(machine: Machine, found: Ceilings) -> Machine:
    """The machine with measured rates; a level that was not measured keeps its estimate."""

    def of_one_core(name: str, threads: int) -> float:
        rates = (x.read / x.threads for x in found.levels if x.name == name and x.threads == threads)
        return max(rates, default=0.0)

    most = max((p.threads for p in found.peaks), default=1)
    lanes = machine.vector_bytes // 4
    peak = max((p.single / p.threads for p in found.peaks if p.threads == most), default=0.0)
    return replace(
        machine,
        rate=peak / lanes or machine.rate,
        l2_bandwidth=of_one_core("L2", 1) or machine.l2_bandwidth,
        l3_bandwidth=of_one_core("L3", most) or machine.l3_bandwidth,
        bandwidth=of_one_core("memory", most) * most or machine.bandwidth,
        core_bandwidth=max(of_one_core("memory", 1) or machine.core_bandwidth, of_one_core("memory", most)),
    )


def hardware(machine: str) -> str:
    """A fingerprint without its last part, which is of caches, compiler and flags."""
    return machine.rpartition("-")[0]
