"""The mean of several speedups, with an interval that follows from theirs.

    (median, low, high) of each  ->  the same of the geometric mean, or None where none is usable

Ratios are taken as independent, and each side of an interval as so many standard errors of a logarithm.  The
two sides are kept apart: a speedup whose whole interval is below 1 has, alone, a mean whose interval is.
What comes out says how well the mean of these was measured, not how others would fare.
Used by the scoreboard of ``port`` and by the report; shown right by tests/test_port.py and test_report.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

Bounds = tuple[float, float, float]  # median, low, high


def geometric_mean(ratios: Iterable[Bounds]) -> Bounds | None:
    """Of the ratios with positive, finite bounds.

    >>> [round(v, 6) for v in geometric_mean([(2, 1, 3), (8, 8, 8)])]
    [4.0, 2.828427, 4.898979]
    """
    usable = [r for r in ratios if r[0] > 0 and r[1] > 0 and math.isfinite(r[2])]
    if not usable:
        return None
    n = len(usable)
    mean = math.fsum(math.log(m) for m, _, _ in usable) / n
    below = math.hypot(*(math.log(m / low) for m, low, _ in usable)) / n
    above = math.hypot(*(math.log(high / m) for m, _, high in usable)) / n
    return math.exp(mean), math.exp(mean - below), math.exp(mean + above)
