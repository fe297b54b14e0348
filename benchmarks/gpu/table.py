"""What a call found, as a table: one row for each case."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.gpu import peers
from benchmarks.gpu.plan import Planned
from benchmarks.gpu.run import Limits, Result

HEADS = ("case", "default", "tuned", "rate", "of limit", *(f"{name} /" for name in peers.NAMES), "points")
NOTE = """\
default, tuned: ms, medians, data on the device, nothing in its caches
of limit: of the measured copy bandwidth or FMA peak, whichever allows less
peers: their time over that of tuned; above 1, tuned is faster
points: timed with right results / rejected; -: not there, or not measured"""


def bound(case: Planned, limits: Limits) -> tuple[float, str]:
    """Seconds that nothing beats by these limits, and which of them says so; 0 where none is known.

    >>> dot = Planned("dot", "dot", (4,), 8, 32, (), ())
    >>> bound(dot, Limits(copy=16.0, peak=8.0)), bound(dot, Limits(copy=64.0, peak=8.0)), bound(dot, Limits())
    ((2.0, 'copy'), (1.0, 'FMA'), (0.0, ''))
    """
    memory = case.traffic / limits.copy if limits.copy else 0.0
    compute = case.operations / limits.peak if limits.peak else 0.0
    if not memory and not compute:
        return 0.0, ""
    return max((memory, "copy"), (compute, "FMA"))


def rate(case: Planned, seconds: float, limits: Limits) -> str:
    """TFLOP/s where arithmetic is what bounds a case, else GB/s."""
    if bound(case, limits)[1] == "FMA":
        return f"{case.operations / seconds / 1e12:.3g} TFLOP/s"
    return f"{case.traffic / seconds / 1e9:.4g} GB/s"


def table(results: Sequence[Result], limits: Limits) -> str:
    rows = [list(HEADS), *(_cells(r, limits) for r in results)]
    widths = [max(len(row[k]) for row in rows) for k in range(len(HEADS))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(x.rjust(w) for x, w in zip(row[1:], widths[1:], strict=True))]
        lines.append("  ".join(cells).rstrip())
    known = f"copy {limits.copy / 1e9:.5g} GB/s, FMA peak {limits.peak / 1e12:.4g} TFLOP/s"
    return "\n".join([*lines, known if limits.copy else "limits were not measured", NOTE])


def _cells(r: Result, limits: Limits) -> list[str]:
    times, best = r.times, r.best
    cells = [r.case.name, f"{times[0]:.4g}" if 0 in times else "-"]
    if best is None:
        cells += ["-", "-", "-", *(f"({r.peers[n]:.4g} ms)" if n in r.peers else "-" for n in peers.NAMES)]
    else:
        seconds = times[best] / 1e3
        least, of = bound(r.case, limits)
        cells += [f"{times[best]:.4g}", rate(r.case, seconds, limits)]
        cells.append(f"{100 * least / seconds:.0f}% {of}" if least else "-")
        cells += [f"{r.peers[n] / times[best]:.2f}" if n in r.peers else "-" for n in peers.NAMES]
    return [*cells, f"{len(r.milliseconds)}/{len(r.rejected)}" if not r.problem else "-"]
