"""``python -m benchmarks.choice [CASE...]``: how good the cost model's choices are.

For every case a search of ``--budget`` begins with the model's default and its favourites and goes on from
there; the fastest configurations, the default among them, are then timed in turn, and the default stays the
best unless another is surely faster (``tuning.race``).  Printed are the default's time, that of the best of
the model's favourites (17 with one way to join neighbours), that of the best found, how many were tried, and
the shares of the best that default and favourites reach: 1.00 means that nothing was surely faster.  Below
stand geometric means and the least of both.

Kernels are compared with the original before their times count, as in any search; nothing is recorded.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.aligned import aligned
from benchmarks.cases import Case
from benchmarks.compiled import Missing, prepare, searched
from benchmarks.each import add_arguments, chosen, told
from tuning.results import TuneResult
from tuning.search import FAVOURITES, Evaluation


@dataclass(frozen=True, slots=True)
class Choice:
    """Seconds of the default, of the best favourite and of the best found; configurations tried."""

    case: str
    default: float
    favourite: float
    best: float
    tried: int

    @property
    def shares(self) -> tuple[float, float]:
        """Of the best found, what the default and the best favourite reach."""
        return self.best / self.default, self.best / self.favourite


def choice(case: Case, threads: int, budget: str) -> Choice:
    """Search the space of a case; raises ``Missing`` where nothing could be timed."""
    prepared = prepare(case).with_threads(threads)
    return judged(case.name, searched(prepared, budget), len(prepared.work.plan.starts))


def judged(name: str, result: TuneResult, starts: int) -> Choice:
    """``starts``: configurations that the search began with, the default first, before the favourites."""
    if result.search is None or not result.search.leaders or not result.evaluations[0].ok:
        raise Missing(str(result.problem or result.reasons))
    raced = {e.text: e.seconds for e in result.search.leaders}
    best = result.search.leaders[0].seconds

    def time(e: Evaluation) -> float:
        """In turn with the best; of one that was not among the last, what it took alone, but no less."""
        return raced.get(e.text, max(best, e.seconds))

    own = [time(e) for e in result.evaluations[: starts + FAVOURITES] if e.ok]
    return Choice(name, time(result.evaluations[0]), min(own), best, len(result.evaluations))


def table(found: Sequence[Choice]) -> str:
    lines = [("case", "default", "favourites", "best", "tried", "best / default", "best / favourites")]
    for c in found:
        times = [f"{1e3 * t:.3g}" for t in (c.default, c.favourite, c.best)]
        lines.append((c.case, times[0], times[1], times[2], str(c.tried), *(f"{s:.2f}" for s in c.shares)))
    if found:
        columns = list(zip(*(c.shares for c in found), strict=True))
        means = [math.exp(sum(map(math.log, x)) / len(x)) for x in columns]
        lines.append(("geometric mean", "", "", "", "", *(f"{m:.3f}" for m in means)))
        lines.append(("least", "", "", "", "", *(f"{min(x):.2f}" for x in columns)))
    return aligned(lines)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.choice", description=__doc__.splitlines()[0])
    add_arguments(parser, "all")
    parser.add_argument("--budget", default="60s", help="of the search, per case (60s)")
    given = parser.parse_args(words)
    told(chosen(parser, given), lambda case: choice(case, given.threads, given.budget), table, given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
