"""Paired, interleaved measurement, and what may be concluded from it.

Original and candidate run alternately in one process on the same arrays; each round gives a ratio
(original / candidate, so above one is a speedup) in which slow drift of the machine cancels.  The interval of
the median ratio comes from order statistics, so no distribution is assumed.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mdh_core.diagnostics import Diagnostic
from tuning.harness import Subject
from tuning.processes import TIMED_OUT
from tuning.runner import CUT_OFF, DECLINED, HARNESS_FAILED, OK, Outcome, Workbench, case_text
from tuning.verify import DATA

_LEAST_CONFIDENCE = 0.9  # for a speedup to count
Pair = tuple[float, float]  # seconds of original and candidate in one round


def quantile(values: Sequence[float], q: float) -> float:
    """Linear interpolation between order statistics.

    >>> quantile([1, 2, 3, 4], 0.5)
    2.5
    """
    ordered = sorted(values)
    at = q * (len(ordered) - 1)
    below = math.floor(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (at - below) * (ordered[above] - ordered[below])


def median(values: Sequence[float]) -> float:
    return quantile(values, 0.5)


def median_interval(values: Sequence[float], confidence: float) -> tuple[float, float]:
    """Interval of the median from order statistics: exact, without assumptions on the distribution.

    Too few values for the confidence give an unbounded interval.
    """
    n, ordered = len(values), sorted(values)
    rank, below = 0, 0.0  # largest rank k with P(fewer than k of n values below the median) <= (1 - c) / 2
    while rank < n // 2:
        below += math.exp(_log_binomial(n, rank) - n * math.log(2))
        if below > (1 - confidence) / 2:
            break
        rank += 1
    if rank == 0:
        return (0.0, math.inf)
    return ordered[rank - 1], ordered[n - rank]


def _log_binomial(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


@dataclass(frozen=True, slots=True)
class Ratio:
    """Original time / candidate time: above one is a speedup."""

    median: float
    low: float
    high: float
    confidence: float = 0.95
    rounds: int = 0

    @property
    def width(self) -> float:
        """Half the interval, relative to the median."""
        return (self.high - self.low) / (2 * self.median) if self.median else math.inf

    def verdict(self, min_speedup: float = 1.0, too_wide: float = 0.1) -> str:
        """``faster`` | ``not_faster`` | ``noisy``: neither can be said of so wide an interval."""
        if self.low > min_speedup and self.confidence >= _LEAST_CONFIDENCE:
            return "faster"
        unsure = self.width > too_wide or self.confidence < _LEAST_CONFIDENCE
        return "noisy" if self.high > min_speedup and unsure else "not_faster"


def ratio_of(pairs: Sequence[Pair], confidence: float = 0.95) -> Ratio:
    ratios = [original / candidate for original, candidate in pairs if original > 0 and candidate > 0]
    if not ratios:
        return Ratio(1.0, 0.0, math.inf, confidence, 0)
    low, high = median_interval(ratios, confidence)
    if math.isinf(high):  # too few for the confidence: all of them, and what that is worth
        low, high, confidence = min(ratios), max(ratios), 1 - 2.0 ** (1 - len(ratios))
    return Ratio(median(ratios), low, high, confidence, len(ratios))


@dataclass(frozen=True, slots=True)
class Measurement:
    """``outcome`` tells why there may be no (or few) pairs."""

    outcome: Outcome
    pairs: tuple[Pair, ...] = ()
    ratio: Ratio = Ratio(1.0, 0.0, math.inf)

    @property
    def original_seconds(self) -> float:
        return median([p[0] for p in self.pairs]) if self.pairs else math.nan

    @property
    def candidate_seconds(self) -> float:
        return median([p[1] for p in self.pairs]) if self.pairs else math.nan

    @property
    def fault(self) -> Outcome | None:
        """Why the candidate may not be taken: it failed, or no round ended and its speed is unknown."""
        if not self.pairs:
            return Outcome(HARNESS_FAILED, "no round ended") if self.outcome.ok else self.outcome
        return None if self.outcome.kind in (OK, TIMED_OUT) else self.outcome

    def noise(self, name: str, min_speedup: float = 1.0) -> Diagnostic | None:
        """MDH604 where the measurement does not decide."""
        if not self.pairs or self.ratio.verdict(min_speedup) != "noisy":
            return None
        r = self.ratio
        text = f"{name}: the speedup lies between {r.low:.2f} and {r.high:.2f} after {r.rounds} rounds"
        longer = "measure on an idle machine, or for longer: `measure-seconds` of `[tune]` in mdh-lift.toml"
        return Diagnostic("MDH604", text, help=longer)


def repeat_until_stable(
    rounds: Callable[[float], Sequence[Pair] | Outcome],
    budget: float,
    width: float = 0.05,
    clock: Callable[[], float] = time.monotonic,
) -> Measurement:
    """Ask for more rounds (of so many seconds) until the 99 % interval is within ``width``, or time is up."""
    pairs: list[Pair] = []
    started = clock()
    for turn in itertools.count():
        answer = rounds(min(budget, max(0.2, budget / 8)))
        if isinstance(answer, Outcome):
            return Measurement(answer, tuple(pairs), ratio_of(pairs))
        pairs += answer
        enough = turn > 0 and len(pairs) >= 15 and ratio_of(pairs, 0.99).width <= width
        if enough or clock() - started >= budget or not answer:
            break
    return Measurement(Outcome(OK), tuple(pairs), ratio_of(pairs))


def measure(
    bench: Workbench,
    subject: Subject,
    program: str,
    sizes: Mapping[str, int | float],
    *,
    budget: float = 3.0,
    width: float = 0.05,
    least: int = 7,
    data: str = "exact",
    seed: int = 1,
    wall: float = 0.0,
    resident: bool = False,
) -> Measurement:
    """Original against candidate in several processes (so that address layouts vary too).

    At least seven rounds (``least``), whatever the budget, so that there is an interval.  Ends with outcome
    ok, or with how the program failed; a kernel that declines is ``declined``.
    """

    def rounds(seconds: float) -> Sequence[Pair] | Outcome:
        ended = run_bench(
            bench,
            subject,
            program,
            sizes,
            which=3,
            seconds=seconds,
            min_rounds=least,
            hard=60.0,
            data=data,
            seed=seed,
            wall=wall,
            resident=resident,
        )
        if not ended.ok:
            return ended
        return [(t[0], t[1]) for t in ended.data["times"]]

    with bench.measuring():
        return repeat_until_stable(rounds, budget, width)


def run_bench(
    bench: Workbench,
    subject: Subject,
    program: str,
    sizes: Mapping[str, int | float],
    *,
    which: int,
    seconds: float,
    min_rounds: int = 3,
    max_rounds: int = 1000,
    hard: float = 0.0,
    cut_off: float = 0.0,
    data: str = "exact",
    seed: int = 1,
    wall: float = 0.0,
    resident: bool = False,
    timed: bool = True,
) -> Outcome:
    """One timing process: ``which`` 1 original, 2 candidate, 3 both in turn.

    ``resident``: times of a candidate for a GPU are those with its arrays on the device already.
    ``timed``: not where only the results matter (see ``Workbench.run``).

    ``data`` of an ok outcome: ``times`` [[original, candidate], ...], ``first`` (digest, inexact,
    seconds of the first run of each).  ``declined`` and ``cut_off`` are outcomes too.
    """
    settings = {
        "seed": seed,
        "data": DATA.index(data),
        "threads": bench.threads,
        "huge_pages": int(bench.huge_pages),
        "which": which,
        "min_rounds": min_rounds,
        "max_rounds": max_rounds,
        "budget": seconds,
        "hard": hard or 4 * seconds,
        "limit": cut_off if math.isfinite(cut_off) else 0,
        "warm": int(bench.toolchain.accelerator is not None),
        "resident": int(resident and bool(which & 2)),
    }
    text = case_text(0, "bench", subject, sizes, settings)
    if text is None:
        return Outcome(HARNESS_FAILED, "the sizes make no sense for the nest")
    allowed = wall or bench.limits.run_seconds + 6 * seconds
    ended = bench.run(program, [text], seconds=allowed, timed=timed)
    return _bench_outcome(ended)


def _bench_outcome(ended: Outcome) -> Outcome:
    lines = ended.data.get("lines", ())
    first = {line["first"]: line for line in lines if "first" in line}
    data = {**ended.data, "times": [line["t"] for line in lines if "t" in line], "first": first}
    if not ended.ok:
        return Outcome(ended.kind, ended.reason, data)
    if "candidate" in first and not first["candidate"]["handled"]:
        return Outcome(DECLINED, "the kernel's guard let the original run", data)
    cut = next((line for line in lines if "cut" in line), None)
    if cut is not None:
        took = "more than " if "unfinished" in cut else ""
        return Outcome(CUT_OFF, f"one run took {took}{cut['cut']:.3g} s", {**data, "cut_seconds": cut["cut"]})
    return Outcome(OK, data=data)
