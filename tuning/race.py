"""Which of a few candidates is the fastest, where a known one stays unless another surely beats it.

A search times its candidates at different moments, so its best are those that were timed in lucky ones.
Here all are timed in turn, in rounds; in each, a candidate's time is divided by that of the *incumbent*, in
which slow drift of the machine cancels.  After a few rounds the worse half leaves, then half of what is left,
until one challenger remains beside the incumbent; rounds go on until the interval of its ratio (order
statistics, ``tuning.measure``) is narrow or without 1.

    times in turn  ->  for each candidate the time that it surely does not exceed, relative to the incumbent

A challenger's figure is the incumbent's time multiplied with the upper end of the ratio's interval: the one
with the least figure is what to take, and the incumbent's own wins where nothing is sure.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from tuning.measure import median, median_interval, quantile

_FIRST = 3  # rounds before the first leave, and between departures
_MOST = 25
_CONFIDENCE = 0.99
_NARROW = 0.01  # half the width of an interval, relative, at which a race is over
_LOW_QUANTILE = 0.2


def race(
    sample: Callable[[int], float],
    count: int,
    incumbent: int = 0,
    seconds: float = 10.0,
    clock: Callable[[], float] = time.monotonic,
) -> list[float]:
    """Seconds that each of ``count`` candidates surely does not exceed beside the incumbent's.

    ``sample(k)`` times the k-th once (infinite: it failed, and is out).  At least three rounds are run, then
    as many as begin within ``seconds``.
    """
    started = clock()
    times: list[list[float]] = [[] for _ in range(count)]
    running = list(range(count))
    while len(running) > 1 or not times[incumbent]:
        rounds = len(times[incumbent])
        for k in running if rounds % 2 == 0 else reversed(running):
            times[k].append(sample(k))
        rounds += 1
        running = [k for k in running if k == incumbent or math.isfinite(times[k][-1])]
        if math.isinf(times[incumbent][-1]):
            break
        if rounds % _FIRST == 0:
            running = _better_half(times, running, incumbent)
        late = rounds >= _MOST or clock() - started >= seconds
        if rounds >= _FIRST and (late or _decided(times, running, incumbent)):
            break
    return [_sure(times, k, incumbent) for k in range(count)]


def _ratios(times: Sequence[Sequence[float]], k: int, incumbent: int) -> list[float]:
    """Of the rounds that a candidate took part in: its time over the incumbent's."""
    return [a / b for a, b in zip(times[k], times[incumbent], strict=False)]


def _better_half(times: Sequence[Sequence[float]], running: Sequence[int], incumbent: int) -> list[int]:
    """The incumbent and the better half of the challengers, at least one."""
    challengers = [k for k in running if k != incumbent]
    stay = sorted(challengers, key=lambda k: median(_ratios(times, k, incumbent)))
    return [incumbent, *sorted(stay[: max(1, (len(stay) + 1) // 2)])]


def _decided(times: Sequence[Sequence[float]], running: Sequence[int], incumbent: int) -> bool:
    if len(running) != 2:
        return False
    ratios = _ratios(times, next(k for k in running if k != incumbent), incumbent)
    low, high = _bounds(ratios)
    return high < 1 - _NARROW or low > 1 or (high - low) / 2 <= _NARROW


def _sure(times: Sequence[Sequence[float]], k: int, incumbent: int) -> float:
    known = [t for t in times[incumbent] if math.isfinite(t)]
    if any(math.isinf(t) for t in times[k]):
        return math.inf
    if not known:  # nothing to compare with
        return median(times[k]) if times[k] else math.inf
    base = quantile(known, _LOW_QUANTILE)
    if k == incumbent:
        return base
    ratios = _ratios(times, k, incumbent)
    return base * _bounds(ratios)[1]


def _bounds(ratios: Sequence[float]) -> tuple[float, float]:
    """Of the median; too few rounds for an interval: as far beyond all as they lie apart."""
    low, high = median_interval(ratios, _CONFIDENCE)
    apart = max(ratios) - min(ratios)
    return (low, high) if math.isfinite(high) else (min(ratios) - apart, max(ratios) + apart)
