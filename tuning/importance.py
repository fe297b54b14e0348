"""Which tuning parameters explain the spread of the times that a search measured.

    steps of a search  ->  Importance: for each parameter that was varied, the share that it explains alone

The share is that of the variance of log(time): 1 - (variance within the groups of equal values) / (variance
of all), both with their degrees of freedom (epsilon squared), so that a parameter without effect has a share
around zero however many values it has.  Shares of different parameters need not add up to one: parameters
interact, and a search does not try all combinations alike.
Shown right on made-up times (tests/test_importance.py).
"""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from tuning.records import SEARCH, Step

FEWEST = 10  # configurations with a time, below which nothing is said
PER_VALUE = 2  # configurations per value of a parameter, on average, below which nothing is said of it


@dataclass(frozen=True, slots=True)
class Share:
    """``values``: how many different ones were timed; ``share``: 0 to 1, None where times are too few."""

    parameter: str
    values: int
    share: float | None


@dataclass(frozen=True, slots=True)
class Importance:
    """``evaluations``: configurations that had a time, on which all shares rest; largest share first."""

    evaluations: int
    shares: tuple[Share, ...]


def importance(steps: Iterable[Step]) -> Importance:
    """Of the last time of each configuration of a search; parameters with one value only are left out."""
    last = {s.configuration: s for s in steps if s.phase == SEARCH and s.ok and s.seconds > 0}
    points = [s.point for s in last.values()]
    times = [math.log(s.seconds) for s in last.values()]
    found = []
    for name in dict.fromkeys(name for p in points for name in p):
        values = [json.dumps(p.get(name), sort_keys=True) for p in points]
        different = len(set(values))
        if different > 1:
            enough = len(times) >= max(FEWEST, PER_VALUE * different)
            found.append(Share(name, different, explained(values, times) if enough else None))
    found.sort(key=lambda x: (math.inf if x.share is None else -x.share, x.parameter))
    return Importance(len(times), tuple(found))


def explained(groups: Sequence[Hashable], values: Sequence[float]) -> float:
    """The share of the variance of values that their groups explain, 0 to 1; more values than groups.

    >>> explained("aabb", [1.0, 1.0, 2.0, 2.0]), explained("abab", [1.0, 1.0, 2.0, 2.0])
    (1.0, 0.0)
    """
    of: dict[Hashable, list[float]] = {}
    for group, value in zip(groups, values, strict=True):
        of.setdefault(group, []).append(value)
    whole = _squares(values) / (len(values) - 1)
    within = math.fsum(_squares(own) for own in of.values()) / (len(values) - len(of))
    return max(0.0, 1 - within / whole) if whole > 0 else 0.0


def _squares(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.fsum((v - mean) ** 2 for v in values)
