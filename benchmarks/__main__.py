"""``python -m benchmarks [CASE...]``: original, naive OpenMP and mdh-lift, interleaved, against the limits.

For every case a nest of the corpus is compiled four ways with the same flags (``-O3 -march=native``):

    original   as written, serial
    naive      the same with ``#pragma omp parallel for`` before the outermost loop
    default    mdh-lift, the cost model's choice
    tuned      mdh-lift after a search with the given budget

All four are timed in turn, ``--rounds`` times, each in its own process on the same inputs; medians are
printed, and the share of the machine's measured read bandwidth or FMA peak (``limits.py``).
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from benchmarks.limits import Limits, measure_limits
from frontend_c.preprocess import CompileCommand
from lowering.space import tuning_space
from mdh_lift import improve, pipeline
from mdh_lift.config import Config
from tuning.budget import parse_budget
from tuning.harness import Candidate
from tuning.measure import median, run_bench

CORPUS = Path(__file__).parent.parent / "corpus"


@dataclass(frozen=True, slots=True)
class Case:
    """A nest of the corpus at one size.

    defines   macros of the file; sizes: values of the nest's integer variables
    clause    of the naive directive (a reduction, where the outermost loop is one)
    work      operations; traffic: bytes that must be moved; the nearer limit of the two counts
    """

    name: str
    source: str
    function: str
    sizes: dict[str, int]
    work: float
    traffic: float
    defines: tuple[str, ...] = ()
    clause: str = ""
    label: str = "0"
    type: str = "float"


def _cube(n: int) -> tuple[str, ...]:
    return (f"-DM={n}", f"-DN={n}", f"-DK={n}")


_CCSDT = {"na": 24, "nb": 16, "nc": 16, "nd": 16, "ne": 24, "nf": 16, "ng": 24}
CASES = [
    Case("dot_2^24", "dot.c", "dot", {"n": 1 << 24}, 2 * 2**24, 8 * 2**24, clause=" reduction(+:sum)"),
    Case("matvec_4096", "matvec.c", "matvec", {"n": 4096, "k_max": 4096}, 2 * 4096**2, 4 * 4096**2),
    Case("matmul_1024", "matmul.c", "matmul", {}, 2 * 1024**3, 12 * 1024**2, _cube(1024)),
    Case("jacobi3d_256", "jacobi3d.c", "jacobi3d", {"n1": 254, "n2": 254, "n3": 254},
         7 * 254**3, 4 * (256**3 + 254**3)),
    Case("conv2d_4096", "conv2d.c", "conv2d", {"rows": 4096, "cols": 4096, "frows": 5, "fcols": 5},
         50 * 4096**2, 4 * (4100**2 + 4096**2), label="conv"),
    Case("matmul_1000", "matmul.c", "matmul", {}, 2 * 1000**3, 12 * 1000**2, _cube(1000)),
    Case("matmul_t_1024", "matmul_t.c", "matmul_transposed", {"m": 1024, "n": 1024, "kk": 1024},
         2 * 1024**3, 24 * 1024**2, type="double"),
    Case("scan_2^24", "scan.c", "prefix_sum", {"n": 1 << 24}, 2**24, 8 * 2**24),
    Case("ccsdt_gdab_efgc", "ccsdt_abcdef_gdab_efgc.c", "contract_gdab_efgc", _CCSDT,
         2.0 * math.prod(_CCSDT.values()), 4.0 * 24 * 16**3 * 24 * 16),
]  # fmt: skip
DEFAULT = ("dot_2^24", "matvec_4096", "matmul_1024", "jacobi3d_256", "conv2d_4096")


@dataclass(frozen=True, slots=True)
class Row:
    case: Case
    seconds: dict[str, float]  # medians
    limit: float  # seconds
    share_of: str  # "read bandwidth" or "FMA peak"
    point: dict[str, object]

    def json(self) -> dict[str, object]:
        return {
            "case": self.case.name,
            "seconds": self.seconds,
            "limit_seconds": self.limit,
            "limit": self.share_of,
            "configuration": self.point,
        }


def run_case(case: Case, limits: Limits, budget: str, rounds: int) -> Row:
    """Measure one case."""
    tune = msgspec.structs.replace(Config().tune, budget=budget)
    options = pipeline.Options(msgspec.structs.replace(Config(), tune=tune), resume=False)
    command = CompileCommand("", ("-O3", "-march=native", *case.defines), ".")
    path = str(CORPUS / case.source)
    report = pipeline.check_file(path, replace(options, command=command))
    nest = next(n for n in report.nests if n.name.endswith(f"{case.function}::{case.label}"))
    work = improve.prepare(report, nest, options, case.sizes)
    plan = work.plan
    space = tuning_space(plan.programs, plan.machine, plan.sizes)
    result = improve.tuned(work, space, parse_budget(budget), "bench", lambda *_: None)
    if result.winner is None:
        raise SystemExit(f"{case.name}: nothing survived: {result.problem or result.reasons}")
    after = "\n#pragma omp parallel for" + case.clause + "\n" + work.subject.nest.decode()
    candidates = {
        "naive": Candidate("", "1", after),
        "default": improve.candidate(plan, plan.default),
        "tuned": result.winner.candidate,
    }
    programs = {name: _built(work, c) for name, c in candidates.items()}
    seconds = _interleaved(work, programs, rounds)
    peak = limits.peak_float if case.type == "float" else limits.peak_double
    compute, memory = case.work / peak, case.traffic / limits.read
    share = "FMA peak" if compute > memory else "read bandwidth"
    return Row(case, seconds, max(compute, memory), share, dict(result.winner.point))


def _built(work: improve.Work, candidate: Candidate) -> str:
    built = work.bench.build(work.subject, candidate)
    if not built.ok:
        raise SystemExit(f"{work.nest.name}: {built.kind}: {built.reason}")
    return str(built.data["program"])


def _interleaved(work: improve.Work, programs: dict[str, str], rounds: int) -> dict[str, float]:
    """Medians of the original and of every program, each run in turn."""
    times: dict[str, list[float]] = {"original": [], **{name: [] for name in programs}}
    for _ in range(rounds):
        for name in times:
            program = programs.get(name) or programs["tuned"]
            which = 1 if name == "original" else 2
            ended = run_bench(
                work.bench, work.subject, program, work.variables, which=which, seconds=0.3, wall=120
            )
            if not ended.ok:
                raise SystemExit(f"{work.nest.name}: {name}: {ended.kind}: {ended.reason}")
            times[name] += [t[0 if name == "original" else 1] for t in ended.data["times"]]
    return {name: median(values) for name, values in times.items()}


def table(rows: list[Row]) -> str:
    head = f"{'case':<18}{'limit':>10}{'original':>11}{'naive':>10}{'default':>10}{'tuned':>10}"
    lines = [head + f"{'naive/tuned':>13}{'default':>9}{'tuned':>7}  of"]
    for r in rows:
        s = r.seconds
        cells = [r.limit, s["original"], s["naive"], s["default"], s["tuned"]]
        widths = (10, 11, 10, 10, 10)
        text = "".join(f"{1e3 * x:>{w - 1}.3g} " for x, w in zip(cells, widths, strict=True))
        shares = f"{s['naive'] / s['tuned']:>12.2f}"
        shares += f"{100 * r.limit / s['default']:>8.0f}%{100 * r.limit / s['tuned']:>6.0f}%"
        lines.append(f"{r.case.name:<18}{text}{shares}  {r.share_of}")
    return "\n".join([*lines, "times in ms, medians; shares are limit / time"])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", metavar="CASE", help="default: the first five; --list shows all")
    parser.add_argument("--budget", default="60s", help="of the search, per case (60s)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", metavar="FILE", help="write all figures")
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(c.name for c in CASES))
        return
    known = {c.name: c for c in CASES}
    unknown = [name for name in arguments.cases if name not in known]
    if unknown:
        parser.error(f"unknown case {unknown[0]}; one of {', '.join(known)}")
    rows, measured = [], {}
    for name in arguments.cases or DEFAULT:
        limits = measured[name] = measure_limits(known[name].traffic)
        print(
            f"{name}: read {limits.read / 1e9:.1f} GB/s, copy {limits.copy / 1e9:.1f} GB/s at this size, "
            f"FMA peak {limits.peak_float / 1e9:.0f} GFLOP/s f32, {limits.peak_double / 1e9:.0f} f64",
            file=sys.stderr,
        )
        rows.append(run_case(known[name], limits, arguments.budget, arguments.rounds))
        print(table(rows[-1:]).splitlines()[1], file=sys.stderr)
    print(table(rows))
    if arguments.json:
        known_limits = {name: msgspec.to_builtins(x) for name, x in measured.items()}
        data = {"limits": known_limits, "cases": [r.json() for r in rows]}
        Path(arguments.json).write_text(json.dumps(data, indent=2) + "\n")


if __name__ == "__main__":
    main()
