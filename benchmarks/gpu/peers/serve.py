"""The process of a peer in Python: ``python serve.py MODULE FLUSH DEVICE``, cases on the standard input.

MODULE has ``prepare(operation, extents, arrays)``: functions without arguments that compute the case and
return the result, the fastest of which counts; or none.  The first result of each is compared with that of
``torch_calls``.
"""

from __future__ import annotations

import importlib
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

RUNS, LONGEST_SECONDS = 30, 3.0
WARM, WARM_SECONDS = 3, 0.1  # clocks rise while the device works
TOLERANCE = 1e-4  # of the largest value


def main(module: str, flush: int, device: str) -> None:
    try:
        import torch

        peer, library = importlib.import_module(module), importlib.import_module("torch_calls")
    except ImportError as error:
        _tell({"problem": f"missing: {error}"})
        return
    if device == "cuda" and not torch.cuda.is_available():
        _tell({"problem": "PyTorch sees no device"})
        return
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    written = torch.empty(flush, dtype=torch.int8, device=device) if flush else None
    for line in sys.stdin:
        case = json.loads(line)
        answer: dict[str, object] = {"case": case["case"]}
        try:
            with torch.no_grad():
                answer |= _measured(peer, library, case["operation"], case["extents"], written, device)
        except Exception as error:  # whatever a library raises is the answer
            answer["problem"] = f"{type(error).__name__}: {error}"[:300]
        _tell(answer)
        if device == "cuda":
            torch.cuda.empty_cache()


def _measured(
    peer: Any, library: Any, operation: str, extents: Sequence[int], written: Any, device: str
) -> Mapping[str, object]:
    problems, best = [], None
    for k in range(len(peer.prepare(operation, extents, library.arrays(operation, extents, "meta")))):
        try:
            run = peer.prepare(operation, extents, library.arrays(operation, extents, device))[k]
            got = run()
            want = library.prepare(operation, extents, library.arrays(operation, extents, device))[0]()
            if not _same(got, want):
                problems.append("wrong")
                continue
            del got, want
            times = _times(run, written, device)
        except Exception as error:
            problems.append(f"{type(error).__name__}: {error}"[:300])
            continue
        if best is None or statistics.median(times) < statistics.median(best):
            best = times
    if best is not None:
        return {"ms": best}
    return {"problem": "; ".join(problems) or "none"}


def _same(got: Any, want: Any) -> bool:
    if got.shape != want.shape:
        return False
    if not want.dtype.is_floating_point:
        return bool((got.to(want.dtype) == want).all())
    scale = float(want.abs().max()) if want.numel() else 0.0
    return bool((got - want).abs().max() <= TOLERANCE * scale)


def _times(run: Callable[[], Any], written: Any, device: str) -> list[float]:
    """Milliseconds of runs behind a write that leaves nothing of the data in the caches."""
    import torch

    times: list[float] = []
    started, runs = time.perf_counter(), 0
    while len(times) < RUNS and (not times or time.perf_counter() - started < LONGEST_SECONDS):
        runs += 1
        if device != "cuda":
            began = time.perf_counter()
            run()
            spent = 1e3 * (time.perf_counter() - began)
        else:
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            if written is not None:
                written.zero_()
            first.record()
            run()
            last.record()
            torch.cuda.synchronize()
            spent = first.elapsed_time(last)
        if runs > WARM and time.perf_counter() - started > WARM_SECONDS:
            times.append(spent)
    return times


def _tell(value: object) -> None:
    print(json.dumps(value), file=_ANSWERS, flush=True)


_ANSWERS = sys.stdout
if __name__ == "__main__":
    sys.stdout = sys.stderr  # what libraries print is no answer
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "cuda")
