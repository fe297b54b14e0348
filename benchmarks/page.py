"""``python -m benchmarks.page FILE.json...``: what ``python -m benchmarks --json`` wrote, as Markdown.

One row for each case and number of threads, in the order of ``--list``; of a case in several files, the last
counts.  The best of all others has a column, with its name; each of ``--peers`` has one of its own.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.cases import CASES
from benchmarks.figures import OWN, Figures, recorded
from benchmarks.run import PEERS


def page(rows: Sequence[Figures], peers: Sequence[str] = ()) -> str:
    """A table of milliseconds, and a line of geometric means below it where there is anything to compare."""
    own = [name for name in OWN if any(name in r.seconds for r in rows)]
    several = len({r.threads for r in rows}) > 1
    heads = ["case", *(["threads"] if several else []), "limit", *peers, "best other", *own]
    heads += [f"best other / {name}" for name in own] + ["of the limit"]
    lines = [heads, ["---"] * len(heads)]
    for r in rows:
        best = r.best_other()
        cells = [r.case, *([str(r.threads)] if several else []), _ms(r.limit)]
        cells += [_time(r, p) for p in peers]
        cells += [f"{_ms(r.seconds[best])} {best}" if best else "-", *(_time(r, n) for n in own)]
        cells += [_ratio(r.gain(n)) for n in own]
        share = max((r.share(n) for n in own if n in r.seconds), default=None)
        cells.append(f"{100 * share:.0f} % of {r.of}" if share else "-")
        lines.append(cells)
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    means = _means(rows, own, peers)
    return f"{table}\n\nGeometric means: {means}." if means else table


def _means(rows: Sequence[Figures], own: Sequence[str], peers: Sequence[str]) -> str:
    said = []
    for name in own:
        for over in ("", *peers):
            gains = [g for r in rows if (g := r.gain(name, over)) is not None]
            if gains:
                mean = math.exp(sum(map(math.log, gains)) / len(gains))
                theirs = over or "the best other"
                said.append(f"{theirs} / {name} {mean:.2f} ({len(gains)}, least {min(gains):.2f})")
    return ", ".join(said)


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g}" if seconds < 1 else f"{1e3 * seconds:.0f}"


def _time(r: Figures, name: str) -> str:
    if name in r.seconds:
        return _ms(r.seconds[name])
    return "wrong" if r.missing.get(name, "").startswith("wrong") else "-"


def _ratio(gain: float | None) -> str:
    return "-" if gain is None else f"{gain:.2f}"


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page", description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", metavar="FILE.json")
    parser.add_argument("--peers", default="", metavar="NAME,...", help="a column for each of these")
    given = parser.parse_args(words)
    peers = given.peers.split(",") if given.peers else []
    if unknown := set(peers) - set(PEERS):
        parser.error(f"unknown peer {', '.join(sorted(unknown))}")
    found: dict[tuple[str, int], Figures] = {}
    for name in given.files:
        try:
            for row in recorded(Path(name).read_text()):
                found[row.case, row.threads] = row
        except (OSError, ValueError) as error:
            parser.error(f"{name}: {error}")
    if not found:
        parser.error("no figures in these files")
    order = {c.name: k for k, c in enumerate(CASES)}
    rows = sorted(found.values(), key=lambda r: (order.get(r.case, len(order)), r.threads))
    print(page(rows, peers))
    return 0


if __name__ == "__main__":
    sys.exit(main())
