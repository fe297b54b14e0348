"""``python -m benchmarks [CASE...]``: every case against its limit, the original and its peers.

Peers: the original (serial), naive OpenMP, Polly, Numba, TVM, Halide, PyTorch, OpenBLAS (also with its
AVX-512 kernels), MKL, and mdh-lift by default and tuned.  Each runs in a process of its own on the same
inputs; all of them are asked in each of ``--rounds`` rounds, and medians are printed: of the times, and of
the ratios of each round.  Results are compared with the original's; a peer with wrong ones is not timed.  A
peer that is not installed, or has nothing for a case, is a dash.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks.aligned import aligned
from benchmarks.cases import CASES, DEFAULT, GROUPS, Case
from benchmarks.compiled import Missing
from benchmarks.figures import OWN
from benchmarks.plot import chart
from benchmarks.run import ALWAYS, PEERS, PYTHON, Row, Settings, run_case
from mdh_core.replacing import replace_file
from tuning.ceilings import Limits, measure_limits

_SAID = ("wrong", "slow", "declined", "failed")  # what is more than a dash


def table(rows: Sequence[Row], peers: Sequence[str]) -> str:
    """Milliseconds; the best of the others over mdh-lift; mdh-lift's share of the limit."""
    heads = ["case", "threads", "limit", *peers, "best other", "/ mdh-lift", "of limit"]
    lines = [heads, *(_cells(row, peers) for row in rows)]
    return aligned(lines) + "\ntimes in ms; of limit: the limit over mdh-lift's time; medians of all rounds"


def _cells(row: Row, peers: Sequence[str]) -> list[str]:
    own, figures = next((name for name in reversed(OWN) if name in row.seconds), ""), row.figures
    best, gain = figures.best_other(own) or "-", figures.gain(own)
    ratio = "-" if gain is None else f"{gain:.2f}"
    share = f"{100 * figures.share(own):.0f}% {row.share_of.split()[0]}" if own else "-"
    times = [_cell(row, name) for name in peers]
    return [row.case.name, str(row.threads), f"{1e3 * row.bound:.3g}", *times, best, ratio, share]


def _cell(row: Row, peer: str) -> str:
    if peer in row.seconds:
        return f"{1e3 * row.seconds[peer]:.3g}"
    reason = row.why.get(peer, "")
    return next((word for word in _SAID if reason.startswith(word)), "-")


def _selected(parser: argparse.ArgumentParser, names: Sequence[str], groups: Sequence[str]) -> list[Case]:
    known = {c.name: c for c in CASES}
    for name in names:
        if name not in known:
            parser.error(f"unknown case {name}; --list shows all")
    chosen = set(names) | {c.name for c in CASES if c.group in groups}
    return [c for c in CASES if c.name in (chosen or DEFAULT)]


def _pythons(parser: argparse.ArgumentParser, everywhere: str, given: Sequence[str]) -> dict[str, str]:
    found = {"": everywhere}
    for pair in given:
        name, equals, path = pair.partition("=")
        if not equals or name not in PYTHON:
            parser.error(f"--peer-python takes NAME=PATH, NAME one of {', '.join(PYTHON)}")
        found[name] = path
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", metavar="CASE", help="default: five of them; --list shows all")
    parser.add_argument("--group", action="append", default=[], choices=GROUPS, help="all cases of a group")
    parser.add_argument("--list", action="store_true", help="print all cases by group")
    parser.add_argument("--small", action="store_true", help="at the small sizes of the tests: does it work?")
    parser.add_argument("--threads", default="2", metavar="N,...", help="numbers of threads (2)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--budget", default="60s", help="of the search, per case and number of threads (60s)")
    parser.add_argument("--no-tune", action="store_true", help="only mdh-lift's default")
    parser.add_argument("--tvm-trials", type=int, default=64, metavar="N", help="of MetaSchedule (64)")
    parser.add_argument("--limit", type=float, default=120.0, metavar="S", help="of a peer's answer (120 s)")
    parser.add_argument("--peers", metavar="NAME,...", help=f"only these of {', '.join(PEERS)}")
    parser.add_argument("--peers-python", default="", metavar="PATH", help="the Python that has the peers")
    parser.add_argument("--peer-python", action="append", default=[], metavar="NAME=PATH", help="of one peer")
    parser.add_argument("--json", metavar="FILE", help="write all figures")
    parser.add_argument("--plot", metavar="FILE.svg", help="draw all figures")
    return parser


def main(words: Sequence[str] | None = None) -> int:
    parser = _parser()
    given = parser.parse_args(words)
    if given.list:
        for group in GROUPS:
            print(f"{group}: {' '.join(c.name for c in CASES if c.group == group)}")
        return 0
    peers = given.peers.split(",") if given.peers else list(PEERS)
    if unknown := set(peers) - set(PEERS):
        parser.error(f"unknown peer {', '.join(sorted(unknown))}")
    peers = [p for p in PEERS if (p in peers or p == ALWAYS) and not (given.no_tune and p == "tuned")]
    pythons = _pythons(parser, given.peers_python, given.peer_python)
    settings = Settings(peers, given.rounds, given.budget, given.tvm_trials, given.limit, pythons)
    rows: list[Row] = []
    if given.json:
        try:
            _write(Path(given.json), rows)  # before hours have passed
        except OSError as error:
            parser.error(f"--json {given.json}: {error.strerror}")
    for case in _selected(parser, given.cases, given.group):
        chosen = case.small() if given.small else case
        for threads in map(int, given.threads.split(",")):
            measure = partial(measure_limits, max(chosen.traffic, 1 << 16), threads=threads)
            _tell(case, threads, measure())
            try:
                rows.append(run_case(chosen, threads, settings, measure))
            except Missing as missing:
                print(f"{case.name}: {missing}", file=sys.stderr)
                continue
            for name, why in rows[-1].why.items():
                print(f"  {name}: {why}", file=sys.stderr)
            print(table(rows[-1:], peers).splitlines()[1], file=sys.stderr, flush=True)
            if given.json:  # now, as it may be long until the last case
                _write(Path(given.json), rows)
    print(table(rows, peers))
    if given.plot:
        drawn = [(f"{r.case.name}, {r.threads} thr.", r.seconds) for r in rows]
        Path(given.plot).write_text(chart(drawn, "Share of the fastest version"))
    return 1 if any(why.startswith("wrong") for r in rows for n, why in r.why.items() if n in OWN) else 0


def _write(file: Path, rows: Sequence[Row]) -> None:
    replace_file(file, (json.dumps([r.json() for r in rows], indent=2) + "\n").encode())


def _tell(case: Case, threads: int, limits: Limits) -> None:
    copy = max(limits.copy, limits.move)
    nanoseconds = limits.round_trip * 1e9
    trip = f", a line from core to core and back {nanoseconds:.0f} ns" if nanoseconds else ""
    print(
        f"{case.name}, {threads} threads: read {limits.read / 1e9:.1f} GB/s, "
        f"copy {copy / 1e9:.1f}, update {limits.update / 1e9:.1f} GB/s at this size, FMA peak "
        f"{limits.peak_float / 1e9:.0f} GFLOP/s f32, {limits.peak_double / 1e9:.0f} f64{trip}",
        file=sys.stderr,
    )


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # peers are in sessions of their own: end them
    sys.exit(main())
