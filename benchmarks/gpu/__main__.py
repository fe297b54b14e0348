"""``python -m benchmarks.gpu [CASE...]``: cases on a CUDA device, against its limits and its libraries.

Three ways: everything here; ``--prepare DIR`` here and ``--run DIR`` on a machine that has the device,
where nothing but Python, nvcc and gcc is needed; ``--dry-run`` on the processor at the sizes of quick
tests.  A call keeps to ``--deadline`` seconds and prints what it has by then.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.gpu import peers
from benchmarks.gpu.cases import CASES
from benchmarks.gpu.plan import Plan, Unusable, read
from benchmarks.gpu.run import Run, Settings, as_json
from benchmarks.gpu.table import table
from lowering.device import DEVICES, H200, Device
from tuning.devices import cuda_device, nvcc_command

MOST_BYTES = 64 << 20  # of a folder that is to be carried
NO_DEVICE = 4


def _seconds(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text} is no time: 90s, 5m")
    return float(match[1]) * (60 if match[2] == "m" else 1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("cases", nargs="*", metavar="CASE", help="default: all; --list shows them")
    parser.add_argument("--list", action="store_true", help="print the cases")
    parser.add_argument(
        "--budget", type=_seconds, default=20.0, metavar="20s", help="of the search, per case"
    )
    parser.add_argument("--deadline", type=_seconds, default=450.0, metavar="450s", help="of the whole call")
    parser.add_argument(
        "--points", type=int, default=48, metavar="N", help="of the search space, per case (48)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the choice of points")
    parser.add_argument("--no-tune", action="store_true", help="only the choice without a search")
    parser.add_argument("--prepare", metavar="DIR", help="write what is needed to DIR, and run nothing")
    parser.add_argument("--run", metavar="DIR", help="measure what --prepare wrote")
    parser.add_argument(
        "--dry-run", action="store_true", help="on the processor, small: does everything work?"
    )
    parser.add_argument(
        "--device", choices=[*DEVICES, "this"], help="to choose points for (this, or an H200)"
    )
    parser.add_argument("--peers", metavar="NAME,...", help=f"only these of {', '.join(peers.NAMES)}")
    parser.add_argument(
        "--peers-python", default=sys.executable, metavar="PATH", help="the Python that has them"
    )
    parser.add_argument("--json", metavar="FILE", help="write all figures")
    return parser


def main(words: Sequence[str] | None = None) -> int:
    parser = _parser()
    given = parser.parse_args(words)
    if given.list:
        print("\n".join(c.name for c in CASES))
        return 0
    chosen = given.peers.split(",") if given.peers is not None else list(peers.NAMES)
    if unknown := set(chosen) - {*peers.NAMES, ""}:
        parser.error(f"unknown peer {', '.join(sorted(unknown))}")
    if unknown := set(given.cases) - {c.name for c in CASES}:
        parser.error(f"unknown case {', '.join(sorted(unknown))}; --list shows all")
    if given.prepare is not None:
        return _prepare(given, Path(given.prepare), _named(given.device) or H200)
    if shutil.which("gcc") is None:
        return _stop("gcc was not found")
    device = None if given.dry_run else cuda_device()
    if device is None and not given.dry_run:
        return _stop(
            "no CUDA device was found: --prepare DIR here and --run DIR where there is one, or --dry-run"
        )
    if device is not None and shutil.which(nvcc_command()[0]) is None:
        return _stop(f"{nvcc_command()[0]} was not found")
    settings = Settings(given.budget, given.deadline, chosen, given.peers_python, tell=_tell)
    with tempfile.TemporaryDirectory(prefix="mdh-lift-gpu-") as made:
        directory = Path(given.run) if given.run is not None else Path(made)
        if given.run is None and (
            status := _prepare(given, directory, _named(given.device) or device or H200)
        ):
            return status
        try:
            plan = read(directory)
        except Unusable as why:
            return _stop(str(why))
        if given.cases:
            plan = Plan(plan.device, plan.small, tuple(c for c in plan.cases if c.name in given.cases))
        return _measure(Run(directory, plan, device, settings), given.json)


def _named(name: str | None) -> Device | None:
    return None if name is None else cuda_device() if name == "this" else DEVICES[name]


def _prepare(given: argparse.Namespace, directory: Path, device: Device) -> int:
    try:
        from benchmarks.gpu.prepare import prepare
    except ImportError as error:  # what emits needs more than Python
        return _stop(f"cases cannot be prepared here ({error}): --prepare DIR elsewhere, --run DIR here")
    cases = [c for c in CASES if not given.cases or c.name in given.cases]
    points = 0 if given.no_tune else given.points
    plan, missing = prepare(cases, directory, device, points, given.dry_run, given.seed)
    for name, why in missing.items():
        _tell(f"{name}: {why}")
    size = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
    count = sum(len(c.points) for c in plan.cases)
    _tell(f"{len(plan.cases)} cases, {count} points for {plan.device}, {size / (1 << 20):.1f} MiB")
    if size > MOST_BYTES:
        return _stop(f"more than {MOST_BYTES >> 20} MiB: fewer cases or --points")
    return 0 if plan.cases else 1


def _measure(call: Run, file: str | None) -> int:
    """Print and write what there is, however the call ends."""
    interrupted = False
    try:
        call.execute()
    except KeyboardInterrupt:
        interrupted = True
    print(table(call.results, call.limits), flush=True)
    if call.device is None:
        print("on the processor, at the sizes of quick tests: these times say nothing of a device")
    if file:
        Path(file).write_text(json.dumps(as_json(call), indent=1) + "\n")
    wrong = [r for r in call.results if any(why.startswith("wrong") for why in r.rejected.values())]
    for r in wrong:
        print(
            f"{r.case.name}: "
            + "; ".join(f"point {k}: {w}" for k, w in r.rejected.items() if w.startswith("wrong"))
        )
    if interrupted:
        return 130
    return 1 if wrong or any(r.problem or not r.milliseconds for r in call.results) else 0


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _stop(why: str) -> int:
    _tell(why)
    return NO_DEVICE


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _interrupt)
    sys.exit(main())
