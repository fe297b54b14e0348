"""``python -m benchmarks.seeds [CASE...]``: whether a tuned result is found again.

Every case is searched once with each of ``--seeds``.  What the searches chose, and the default, then run in
processes of their own, asked in turn.  Printed are the default's time, the fastest and the slowest winner's,
and how many times as long the slowest takes: the median over the rounds, in each of which winners are
compared with each other.  1.00 means that the searches chose the same configuration.

Kernels are compared with the original before their times count, as in any search; nothing is recorded.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.aligned import aligned
from benchmarks.cases import Case
from benchmarks.compiled import Missing, Prepared, prepare, program_of, searched
from benchmarks.each import add_arguments, chosen, told
from benchmarks.process import Peer
from lowering.point import Point
from tuning.measure import median

USUAL = ("matmul_1024", "conv2d_4096", "mcc_resnet50_1", "seidel_2d", "jacobi1d")
_LIMIT = 120.0  # seconds for an answer


@dataclass(frozen=True, slots=True)
class Found:
    """Seconds per round of the default and of each seed's winner; configurations that each search tried."""

    case: str
    default: tuple[float, ...]
    winners: tuple[tuple[float, ...], ...]
    tried: tuple[int, ...]

    @property
    def medians(self) -> list[float]:
        return [median(w) for w in self.winners]

    @property
    def apart(self) -> float:
        """How many times as long as the fastest winner the slowest takes."""
        middles = self.medians
        fast, slow = middles.index(min(middles)), middles.index(max(middles))
        rounds = zip(self.winners[slow], self.winners[fast], strict=True)
        return max(1.0, median([s / f for s, f in rounds]))


def found_again(case: Case, threads: int, budget: str, seeds: Sequence[int], rounds: int) -> Found:
    """Search with each seed, then time; raises ``Missing`` where a search or a program of it fails."""
    prepared = prepare(case).with_threads(threads)
    points, tried = [dict(prepared.work.plan.default)], []
    for seed in seeds:
        result = searched(prepared, budget, seed)
        if result.winner is None:
            raise Missing(str(result.problem or result.reasons))
        points.append(dict(result.winner.point))
        tried.append(len(result.evaluations))
    default, *winners = _in_turn(prepared, threads, points, rounds)
    return Found(case.name, default, tuple(winners), tuple(tried))


def _in_turn(
    prepared: Prepared, threads: int, points: Sequence[Point], rounds: int
) -> list[tuple[float, ...]]:
    """Seconds per round of each point.  Equal points share a process: two differ by their pages."""
    different: list[Point] = []
    for point in points:
        if point not in different:
            different.append(point)
    with tempfile.TemporaryDirectory(prefix="mdh-lift-bench-") as scratch:
        spec = Path(scratch, "spec")
        spec.write_text(prepared.spec(threads))
        peers: list[Peer] = []
        try:
            for k, point in enumerate(different):
                made = program_of(prepared, point, Path(scratch, f"program{k}"))
                outputs = Path(scratch, f"results{k}")
                command = [str(made), str(spec), str(outputs), "candidate"]
                peers.append(Peer(str(k), command, threads, outputs, {}, _LIMIT))
            for _ in range(rounds):
                for peer in peers:
                    peer.round()
        finally:
            for peer in peers:
                peer.end()
        if failed := next((p.problem for p in peers if p.problem), ""):
            raise Missing(failed)
    return [tuple(peers[different.index(point)].seconds) for point in points]


def table(found: Sequence[Found]) -> str:
    lines = [("case", "default", "fastest", "slowest", "tried", "slowest / fastest")]
    for f in found:
        times = (median(f.default), min(f.medians), max(f.medians))
        tried = "+".join(map(str, f.tried))
        lines.append((f.case, *(f"{1e3 * t:.3g}" for t in times), tried, f"{f.apart:.3f}"))
    return aligned(lines)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.seeds", description=__doc__.splitlines()[0])
    add_arguments(parser, ", ".join(USUAL))
    parser.add_argument("--budget", default="2m", help="of each search (2m)")
    parser.add_argument("--seeds", default="1,2", metavar="N,...", help="of the searches (1,2)")
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args(words)
    try:
        seeds = [int(s) for s in given.seeds.split(",")]
    except ValueError:
        parser.error(f"--seeds {given.seeds}: no numbers")

    def measure(case: Case) -> Found:
        return found_again(case, given.threads, given.budget, seeds, given.rounds)

    told(chosen(parser, given, USUAL), measure, table, given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
