"""One case at one number of threads: all peers in processes of their own, asked in rounds."""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from benchmarks import compiled
from benchmarks.cases import Case
from benchmarks.compare import difference
from benchmarks.figures import OWN, Figures
from benchmarks.process import Peer
from lowering.machine import this_machine
from tuning.ceilings import Limits
from tuning.measure import median

SERVE = Path(__file__).parent / "peers" / "serve.py"
AVX512 = {"OPENBLAS_CORETYPE": "SkylakeX"}


@dataclass(frozen=True, slots=True)
class PythonPeer:
    """``module`` of ``benchmarks/peers``, and what is in the environment of its process."""

    module: str
    environment: Mapping[str, str] = field(default_factory=dict)


PYTHON = {
    "numba": PythonPeer("numba_loops"),
    "tvm": PythonPeer("tvm_auto"),
    "halide": PythonPeer("halide_auto"),
    "pytorch": PythonPeer("pytorch"),
    "openblas": PythonPeer("openblas"),
    "openblas-512": PythonPeer("openblas", AVX512),
    "mkl": PythonPeer("mkl"),
}
PEERS = ("original", "naive", "naive-fast", "polly", *PYTHON, "default", "tuned")
ALWAYS = "original"  # the others are compared with it


@dataclass(frozen=True, slots=True)
class Settings:
    """``pythons``: of peers by name, for all others under ""; ``limit``: of one answer, in seconds."""

    peers: Sequence[str] = PEERS
    rounds: int = 5
    budget: str = "60s"
    trials: int = 64
    limit: float = 120.0
    pythons: Mapping[str, str] = field(default_factory=dict)

    def python(self, peer: str) -> str:
        return self.pythons.get(peer) or self.pythons.get("") or sys.executable


@dataclass(frozen=True, slots=True)
class Row:
    """``seconds``: medians of the peers that have right results; ``why``: of every other one, why not."""

    case: Case
    threads: int
    seconds: Mapping[str, float]
    why: Mapping[str, str]
    limits: Limits
    bound: float  # seconds that no version can beat
    share_of: str  # "read", "copy" or "update bandwidth", or "FMA peak"
    point: Mapping[str, object]
    samples: Mapping[str, Sequence[float]]
    bounds: Sequence[float] = ()  # as ``bound``, by the limits of each round

    @property
    def figures(self) -> Figures:
        return Figures(
            self.case.name,
            self.threads,
            self.seconds,
            self.why,
            self.bound,
            self.share_of,
            self.samples,
            self.bounds,
        )

    def json(self) -> dict[str, object]:
        return {
            "case": self.case.name,
            "group": self.case.group,
            "macros": self.case.all_macros,
            "threads": self.threads,
            "operations": self.case.operations,
            "bytes": self.case.traffic,
            "seconds": dict(self.seconds),
            "samples": {name: list(values) for name, values in self.samples.items()},
            "missing": dict(self.why),
            "limit_seconds": self.bound,
            "limit_samples": list(self.bounds),
            "limit": self.share_of,
            "limits": asdict(self.limits),
            "configuration": dict(self.point),
        }


def bound(
    case: Case, limits: Limits, is_double: bool, updated: int = 0, written: int = 0
) -> tuple[float, str]:
    """Seconds that no version can beat, and of what.

    ``updated``, ``written``: bytes of outputs that are added to, and of those that are only written.  Memory
    that takes in and gives out has another bandwidth than memory that is only read: what is added to is
    measured against updates in place; what is written, and as much of what is read, against copies.

    >>> from benchmarks.cases import CASES
    >>> bound(CASES[0], Limits(16777216.0, 1.0, 1073741824.0, 1.0), False)
    (2.0, 'FMA peak')
    >>> bound(CASES[0], Limits(4194304.0, 1.0, 1e30, 1.0, update=2097152.0), False, 4194304)
    (6.0, 'update bandwidth')
    >>> bound(CASES[0], Limits(4194304.0, 1048576.0, 1e30, 1.0, move=2097152.0), False, 0, 4194304)
    (6.0, 'copy bandwidth')
    """
    compute = case.operations / (limits.peak_double if is_double else limits.peak_float)
    others = case.traffic - 2 * updated
    copied = 2 * min(written, others - written)
    parts = {
        "read bandwidth": (others - copied) / limits.read,
        "copy bandwidth": copied / max(limits.copy, limits.move),
        "update bandwidth": 2 * updated / limits.update if updated else 0.0,
    }
    memory = sum(parts.values())
    return (compute, "FMA peak") if compute > memory else (memory, max(parts, key=parts.__getitem__))


def run_case(case: Case, threads: int, settings: Settings, measure: Callable[[], Limits]) -> Row:
    """Build, start, compare and time all peers; raises ``Missing`` where the case has no original.

    ``measure``: the limits at this moment.  They are asked for in every round, as what memory gives on a
    shared machine changes within minutes, and a search may lie between the first peer's start and its times.
    """
    prepared = compiled.prepare(case).with_threads(threads)
    taken: list[Limits] = []
    with tempfile.TemporaryDirectory(prefix="mdh-lift-bench-") as scratch:
        started: dict[str, Peer] = {}
        try:
            why, points = _start(prepared, threads, settings, Path(scratch), started)
            for k in range(settings.rounds):
                taken.append(measure())
                for name in in_order(list(started), k):
                    started[name].round()
                    if started[name].problem:
                        why[name] = started[name].problem
        finally:
            for peer in started.values():
                peer.end()
    timed = {name: peer for name, peer in started.items() if name not in why and peer.seconds}
    if "default" in started and points.get("tuned") == points["default"]:
        # one program: two processes of it differ by their pages only
        if "default" in timed:
            timed["tuned"] = timed["default"]
        elif "default" in why:
            why["tuned"] = why["default"]
    seconds = {name: median(timed[name].seconds) for name in PEERS if name in timed}
    samples = {name: timed[name].seconds for name in seconds}
    limits = middle(taken or [measure()])
    (least, share_of), *each = (
        bound(case, x, prepared.is_double, *prepared.stored) for x in (limits, *taken)
    )
    bounds = [x for x, _ in each]
    point = points.get("tuned", {})
    return Row(case, threads, seconds, why, limits, least, share_of, point, samples, bounds)


def in_order(names: Sequence[str], k: int) -> list[str]:
    """Who is asked first, second and so on in round ``k``: by chance, and in every run the same.

    One that always comes after the same other, or last, may get less of the machine (seen: half as much).

    >>> rounds = [in_order(["original", "numba", "default"], k) for k in range(20)]
    >>> {len(set(r)) for r in rounds}, {r[-1] for r in rounds} == set(rounds[0])
    ({3}, True)
    """
    return random.Random(k).sample(list(names), len(names))


def middle(taken: Sequence[Limits]) -> Limits:
    """The medians of several measurements, each figure by itself.

    >>> middle([Limits(1.0, 7.0, 1.0, 1.0), Limits(3.0, 5.0, 1.0, 1.0), Limits(2.0, 6.0, 1.0, 1.0)]).copy
    6.0
    """
    return Limits(**{f.name: median([getattr(x, f.name) for x in taken]) for f in fields(Limits)})


def _start(
    prepared: compiled.Prepared, threads: int, settings: Settings, scratch: Path, started: dict[str, Peer]
) -> tuple[dict[str, str], dict[str, dict[str, object]]]:
    """Start all peers whose first results are right; why the others are not there; mdh-lift's points.

    Where the search ends with the default, that process is both.
    """
    case, why = prepared.case, dict[str, str]()
    points: dict[str, dict[str, object]] = {}
    spec, original = scratch / "spec", scratch / "results" / ALWAYS
    inputs = original / "inputs"
    inputs.mkdir(parents=True)
    for name in (ALWAYS, *(p for p in PEERS if p in settings.peers and p != ALWAYS)):
        used = 1 if name == ALWAYS else threads
        spec.write_text(prepared.spec(used))
        outputs = scratch / "results" / name
        try:
            if name in PYTHON:
                command, extra = _python(name, case, settings, inputs, outputs)
            else:
                words, chosen = compiled.build(name, prepared, settings.budget, scratch)
                command = [words[0], str(spec), str(outputs), words[1]] + ["dump"] * (name == ALWAYS)
                extra = {}
                if name in OWN:
                    points[name] = dict(chosen or {})
                if name == "tuned" and "default" in started and points["tuned"] == points["default"]:
                    continue
        except compiled.Missing as missing:
            why[name] = str(missing)
            if name == ALWAYS:
                raise
            continue
        peer = started[name] = Peer(name, command, used, outputs, extra, settings.limit)
        if name == ALWAYS:
            if peer.problem:
                raise compiled.Missing(f"the original {peer.problem}")
            _describe(prepared, threads, settings, inputs)
        _judge(prepared, peer, inputs, original, why)
        if name in why:
            peer.end()
            del started[name]
        if name != ALWAYS:
            shutil.rmtree(outputs, ignore_errors=True)
    return why, points


def _python(
    name: str, case: Case, settings: Settings, inputs: Path, outputs: Path
) -> tuple[list[str], dict[str, str]]:
    peer = PYTHON[name]
    if not case.operation or (peer.environment == AVX512 and this_machine().vector_bytes < 64):
        raise compiled.Missing("none")
    words = [settings.python(name), str(SERVE), peer.module, str(inputs), str(outputs)]
    return words, dict(peer.environment)


def _judge(
    prepared: compiled.Prepared, peer: Peer, inputs: Path, original: Path, why: dict[str, str]
) -> None:
    """Note why a peer that has started is not timed."""
    if peer.problem:
        why[peer.name] = peer.problem if peer.problem != "failed" else f"failed: {peer.errors.strip()[-300:]}"
    elif not peer.first.get("handled", 1) and peer.name in ("default", "tuned"):
        why[peer.name] = "declined"
    else:
        wrong = difference(prepared.arguments, inputs, original, peer.outputs, prepared.case.loose)
        if wrong:
            why[peer.name] = f"wrong: {wrong}"


def _describe(prepared: compiled.Prepared, threads: int, settings: Settings, inputs: Path) -> None:
    """The case for the peers in Python."""
    case = prepared.case
    described = {
        "operation": case.operation,
        "roles": case.roles,
        "extents": case.dimensions,
        "arguments": [asdict(a) for a in prepared.arguments if os.path.lexists(inputs / a.name)],
        "threads": threads,
        "trials": settings.trials,
    }
    (inputs / "problem.json").write_text(json.dumps(described))
