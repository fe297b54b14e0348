"""What was measured of one case at one number of threads, and how mdh-lift compares in it.

Peers answer once a round, and what memory gives on a shared machine may change by a factor of two
from one round to the next.  So two of them are compared round by round: a ratio is the median of the ratios
of all rounds, not that of two medians, which may be of different rounds.  Files that have no rounds have
ratios of medians.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tuning.measure import median

OWN = ("default", "tuned")  # mdh-lift's


@dataclass(frozen=True, slots=True)
class Figures:
    """Times in seconds: ``seconds`` and ``limit`` are medians, ``samples`` and ``limits`` have one per round.

    missing  of every other peer, why it has no time
    of       what limits the case: "FMA peak", "read bandwidth" ...
    """

    case: str
    threads: int
    seconds: Mapping[str, float]
    missing: Mapping[str, str]
    limit: float
    of: str
    samples: Mapping[str, Sequence[float]] = field(default_factory=dict)
    limits: Sequence[float] = ()

    def best_other(self, own: str = "default") -> str | None:
        """The peer that comes nearest to ``own``, or is furthest ahead of it."""
        others = [n for n in self.seconds if n not in OWN]
        if own in self.seconds:
            return min(others, key=lambda n: self._ratio(n, own), default=None)
        return min(others, key=self.seconds.__getitem__, default=None)

    def gain(self, own: str, over: str = "") -> float | None:
        """How many times as fast ``own`` is as the best of the others, or as one of them."""
        theirs = over or self.best_other(own)
        if own not in self.seconds or theirs not in self.seconds:
            return None
        return self._ratio(theirs, own)

    def share(self, own: str) -> float:
        """Of what the limit allows."""
        return _by_rounds(self.limits, self.samples.get(own, ())) or self.limit / self.seconds[own]

    def _ratio(self, theirs: str, own: str) -> float:
        ratio = _by_rounds(self.samples.get(theirs, ()), self.samples.get(own, ()))
        return ratio or self.seconds[theirs] / self.seconds[own]


def _by_rounds(theirs: Sequence[float], mine: Sequence[float]) -> float | None:
    """The median of the ratios of all rounds; None where there are none, or a round has one figure only."""
    if not mine or len(theirs) != len(mine):
        return None
    return median([a / b for a, b in zip(theirs, mine, strict=True)])


def recorded(text: str) -> list[Figures]:
    """The rows of one file; ``ValueError`` where it has none that ``python -m benchmarks --json`` wrote."""
    try:
        return [
            Figures(
                r["case"],
                r["threads"],
                r["seconds"],
                r["missing"],
                r["limit_seconds"],
                r["limit"],
                r.get("samples", {}),
                r.get("limit_samples", ()),
            )
            for r in json.loads(text)
        ]
    except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
        raise ValueError(f"no figures of `python -m benchmarks --json`: {error!r}") from None
