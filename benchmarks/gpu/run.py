"""Measure a prepared folder: limits, peers, the defaults, then a search, until a deadline.

Processors compile all the time; the device does one thing at a time, in a process of its own.  What is
known when the time is over is the result.  Needs Python's standard library, nvcc, gcc; peers need what they
are made of.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.gpu import peers
from benchmarks.gpu.build import HERE, Failed, Toolchain, end_all, run
from benchmarks.gpu.plan import Plan, Planned, Point
from lowering.device import Device

RUNS, MOST_RUNS = 10, 100
FINAL_RUNS = 30
FINALISTS = 3
EARLY = 8  # compilations of each case before its default is timed
CUT_OFF = 4.0  # times the best: no reason to measure longer
CANDIDATE_SECONDS = 60.0
REFERENCE_SECONDS = 150.0
RESERVE = 0.12  # of the deadline: for the finalists


@dataclass(frozen=True, slots=True)
class Settings:
    """Seconds; ``budget``: of the device for the search of one case; ``deadline``: of the whole call."""

    budget: float = 20.0
    deadline: float = 450.0
    peers: Sequence[str] = peers.NAMES
    python: str = sys.executable
    peer_seconds: float = 100.0
    tell: Callable[[str], None] = print


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes per second of a copy, single-precision operations per second; 0 where they are not known."""

    copy: float = 0.0
    peak: float = 0.0


@dataclass
class Result:
    """What is known of one case.

    milliseconds  medians, by number of the point; ``final``: once more, of the best few and the default
    rejected      why, by number of the point
    peers         medians in milliseconds, by name; ``why``: of the others
    problem       why nothing of the case could be measured
    """

    case: Planned
    milliseconds: dict[int, float] = field(default_factory=dict)
    final: dict[int, float] = field(default_factory=dict)
    rejected: dict[int, str] = field(default_factory=dict)
    samples: dict[str, list[float]] = field(default_factory=dict)
    peers: dict[str, float] = field(default_factory=dict)
    why: dict[str, str] = field(default_factory=dict)
    problem: str = ""

    @property
    def times(self) -> Mapping[int, float]:
        """What was measured once is not compared with what was measured longer."""
        return self.final or self.milliseconds

    @property
    def best(self) -> int | None:
        return min(self.times, key=lambda k: self.times[k], default=None)


@dataclass
class _Search:
    """A case on its way: what is being compiled, what is compiled, and how long the device was taken."""

    result: Result
    folder: Path
    reference: Future[Path]
    subject: Future[Path]
    left: list[int]
    compiling: dict[int, Future[Path]] = field(default_factory=dict)
    programs: dict[int, Path] = field(default_factory=dict)
    spent: float = 0.0

    @property
    def points(self) -> Sequence[Point]:
        return self.result.case.points

    def next(self) -> int:
        """The point that differs in the fewest parameters from the best that is known."""
        best = self.points[self.result.best or 0]
        chosen = min(self.left, key=lambda k: (distance(self.points[k], best), k))
        self.left.remove(chosen)
        return chosen


def distance(a: Point, b: Point) -> int:
    """How many parameters differ.

    >>> distance({"threads_i": 8, "fast": "i"}, {"threads_i": 4, "rows_i": 2, "fast": "i"})
    2
    """
    return sum(a.get(name) != b.get(name) for name in {*a, *b})


class Run:
    """One call: ``results`` and ``limits`` fill up as it goes on, and stay when it is interrupted."""

    def __init__(self, directory: Path, plan: Plan, device: Device | None, settings: Settings) -> None:
        self.directory, self.plan, self.device, self.settings = directory, plan, device, settings
        self.results = [Result(case) for case in plan.cases]
        self.limits = Limits()
        self.ends = time.monotonic() + settings.deadline
        self.flush = 256 << 20 if device is not None else 0

    @property
    def left(self) -> float:
        """Seconds until the deadline."""
        return self.ends - time.monotonic()

    def execute(self) -> None:
        """Everything, as far as time allows."""
        workers = max(1, len(os.sched_getaffinity(0)) - 2)
        with tempfile.TemporaryDirectory(prefix="mdh-lift-gpu-") as work:
            pool = ThreadPoolExecutor(workers)
            try:
                self._execute(Toolchain(Path(work), self.device), pool, workers)
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
                end_all()
                pool.shutdown(wait=True)

    def _execute(self, tools: Toolchain, pool: ThreadPoolExecutor, workers: int) -> None:
        try:
            tools.drivers()
        except Failed as failed:
            for result in self.results:
                result.problem = f"the driver of programs: {failed}"
            return
        limits = pool.submit(tools.plain, HERE / "limits.cu")
        wanted = self.device is not None and "cublas" in self.settings.peers
        cublas = pool.submit(tools.plain, HERE / "peers" / "cublas.cu", "-ldl") if wanted else None
        searches = [self._begin(tools, pool, result) for result in self.results]
        self._compile(tools, pool, searches, EARLY * len(searches))  # while peers have the device
        self._measure_limits(limits)
        self._measure_peers(cublas, tools.work)
        for s in searches:
            self._default(s)
        searches = [s for s in searches if not s.result.problem]
        self._search(tools, pool, searches, workers)
        for s in searches:
            self._finalists(s)

    # ------------------------------------------------------------------ what everything is compared with

    def _measure_limits(self, program: Future[Path]) -> None:
        size = ("1073741824", "32768") if self.device is not None else ("65536", "4")
        try:
            said, _ = run([str(self._within(program)), *size], min(60.0, self.left))
            self.limits = Limits(**json.loads(said))
        except (Failed, ValueError, TypeError) as failed:
            self.settings.tell(f"limits: {failed}")

    def _measure_peers(self, cublas: Future[Path] | None, work: Path) -> None:
        for name in peers.NAMES:
            if name not in self.settings.peers or self.device is None:
                continue
            seconds = min(self.settings.peer_seconds, self.left / 3)
            started = time.monotonic()
            try:
                program = self._within(cublas) if name == "cublas" and cublas is not None else None
                command = peers.command(name, program, self.settings.python, self.flush)
                answers = peers.ask(name, command, self.plan.cases, seconds, work)
            except Failed as failed:
                answers = {case.name: str(failed) for case in self.plan.cases}
            for result in self.results:
                answer = answers.get(result.case.name, "no answer")
                if isinstance(answer, str):
                    result.why[name] = answer
                else:
                    result.peers[name] = statistics.median(answer)
                    result.samples[name] = answer
            known = sum(name in r.peers for r in self.results)
            self.settings.tell(f"{name}: {known} cases in {time.monotonic() - started:.0f} s")
            for why in {r.why[name] for r in self.results if r.why.get(name, "none") != "none"}:
                self.settings.tell(f"  {name}: {why}")

    # ------------------------------------------------------------------ one case

    def _begin(self, tools: Toolchain, pool: ThreadPoolExecutor, result: Result) -> _Search:
        case, folder = result.case, self.directory / result.case.name
        reference = pool.submit(self._expected, tools, case, folder)
        subject = pool.submit(tools.subject, case, folder)
        search = _Search(result, folder, reference, subject, list(range(1, len(case.points))))
        search.compiling[0] = pool.submit(self._candidate, tools, search, 0)
        return search

    def _candidate(self, tools: Toolchain, s: _Search, number: int) -> Path:
        s.subject.result()  # began before
        return tools.candidate(s.result.case, s.folder, number)

    def _expected(self, tools: Toolchain, case: Planned, folder: Path) -> Path:
        """Inputs and expected results: by the nest where that is quick, else by the kernel on processors."""
        program = tools.reference(case, folder)
        results = tools.work / case.name / "results"
        (results / "inputs").mkdir(parents=True)
        which = "original" if max(case.operations, case.traffic) < 1 << 28 else "candidate"
        for used in dict.fromkeys((which, "original")):
            words = [str(program), str(folder / "spec"), str(results), used, "dump"]
            said, _ = run(words, min(REFERENCE_SECONDS, self.left))
            if json.loads(said)["handled"]:
                return results
        raise Failed("the reference does not run")

    def _default(self, s: _Search) -> None:
        case = s.result.case
        try:
            self._within(s.reference)
        except Failed as failed:
            s.result.problem = f"no expected results: {failed}"
            self.settings.tell(f"{case.name}: {s.result.problem}")
            return
        try:
            s.programs[0] = self._within(s.compiling.pop(0))
            self._evaluate(s, 0)
        except Failed as failed:
            s.result.rejected[0] = str(failed)
        ms = s.result.milliseconds.get(0)
        self.settings.tell(f"{case.name}: default {'-' if ms is None else f'{ms:.4g} ms'}"
                           f"{'; ' + s.result.rejected[0] if 0 in s.result.rejected else ''}")  # fmt: skip

    def _evaluate(self, s: _Search, number: int, runs: int = RUNS) -> None:
        """Time a point; raises ``Failed`` where it has wrong results or does not run.

        With the usual number of runs, one that is much slower than the best is cut off.
        """
        results = s.reference.result()
        best = min(s.result.milliseconds.values(), default=0.0)
        limit = CUT_OFF * best if best and runs == RUNS else 1e3 * CANDIDATE_SECONDS
        words = [str(s.programs[number]), str(s.folder / "spec"), str(results / "inputs"), str(results)]
        words += [str(self.flush), str(runs), str(MOST_RUNS), f"{limit:.6g}"]
        started = time.monotonic()
        try:
            said, errors = run(words, min(CANDIDATE_SECONDS, self.left))
        finally:
            s.spent += time.monotonic() - started
        try:
            answer = json.loads(said.strip().splitlines()[-1])
        except (ValueError, IndexError):
            raise Failed(f"no answer: {errors.strip()[-200:]}") from None
        if "problem" in answer:
            told = errors.strip().splitlines()
            raise Failed(answer["problem"] + (f" ({told[-1][:200]})" if told else ""))
        s.result.milliseconds[number] = statistics.median(answer["ms"])
        s.result.samples[f"point {number}"] = answer["ms"]

    def _finalists(self, s: _Search) -> None:
        """The best few once more, longer: the least of many medians flatters."""
        first = dict(s.result.milliseconds)
        ranked = sorted(first, key=lambda k: first[k])
        found: dict[int, float] = {}
        for number in dict.fromkeys([*ranked[:FINALISTS], *([0] if 0 in first else [])]):
            if self.left < 5 or len(ranked) == 1:
                break
            try:
                self._evaluate(s, number, FINAL_RUNS)
                found[number] = s.result.milliseconds[number]
            except Failed as failed:
                del s.result.milliseconds[number]
                s.result.rejected[number] = f"a second time: {failed}"
        s.result.final = found

    # ------------------------------------------------------------------ all cases in turn

    def _search(
        self, tools: Toolchain, pool: ThreadPoolExecutor, searches: list[_Search], workers: int
    ) -> None:
        reserve = RESERVE * self.settings.deadline
        while self.left > reserve:
            active = [s for s in searches if s.spent < self.settings.budget and (s.left or s.compiling)]
            if not active:
                return
            self._compile(tools, pool, active, 2 * workers)
            worked = False
            for s in active:
                ready = next((k for k, f in s.compiling.items() if f.done()), None)
                if ready is None or self.left < reserve:
                    continue
                worked = True
                try:
                    s.programs[ready] = s.compiling.pop(ready).result()
                    self._evaluate(s, ready)
                    if s.result.best == ready:
                        self.settings.tell(f"{s.result.case.name}: {s.result.milliseconds[ready]:.4g} ms "
                                           f"(point {ready})")  # fmt: skip
                except Failed as failed:
                    s.result.rejected[ready] = str(failed)
            if not worked:
                waiting = [f for s in active for f in s.compiling.values()]
                wait(waiting, max(0.0, self.left - reserve), FIRST_COMPLETED)

    def _compile(self, tools: Toolchain, pool: ThreadPoolExecutor, active: list[_Search], most: int) -> None:
        """As many compilations as there are workers twice over, the same number for each case."""
        while True:
            wanting = [s for s in active if s.left]
            if not wanting or sum(len(s.compiling) for s in active) >= most:
                return
            s = min(wanting, key=lambda s: len(s.compiling))
            number = s.next()
            s.compiling[number] = pool.submit(self._candidate, tools, s, number)

    def _within(self, future: Future[Path]) -> Path:
        """What a worker makes; raises ``Failed`` where the time is over before."""
        try:
            return future.result(max(self.left, 0.1))
        except (TimeoutError, CancelledError):
            raise Failed("no time") from None


def as_json(done: Run) -> Mapping[str, object]:
    """All figures: medians and samples in milliseconds, limits per second."""
    return {
        "device": None if done.device is None else done.device.name,
        "small": done.plan.small,
        "limits": {"copy": done.limits.copy, "peak": done.limits.peak},
        "cases": [
            {
                "case": r.case.name,
                "operations": r.case.operations,
                "bytes": r.case.traffic,
                "default": r.times.get(0),
                "tuned": None if r.best is None else r.times[r.best],
                "point": None if r.best is None else dict(r.case.points[r.best]),
                "peers": r.peers,
                "missing": r.why,
                "milliseconds": {str(k): t for k, t in r.milliseconds.items()},
                "rejected": {str(k): why for k, why in r.rejected.items()},
                "samples": r.samples,
                "problem": r.problem,
            }
            for r in done.results
        ],
    }
