"""``python -m benchmarks.python [KERNEL...]``: ``@mdh`` against Numba and NumPy on the same loops.

Every kernel is one function whose outermost loop is a ``prange``.  Each peer runs it in a process of its own:

    mdh      ``@mdh``
    numba    ``@njit(parallel=True)`` that may reorder sums, as ``@mdh`` may: fastmath={"reassoc", "nsz"}
    strict   ``@njit(parallel=True)``
    numpy    what one would write instead of the loops, where that is obvious

``--fp fast`` allows ``@mdh`` (``fp("fast")``) and numba (``fastmath=True``) everything.  The processes are
asked in turn, ``--rounds`` times, each time for calls of at least a tenth of a second, after a pause.
Medians are printed and what the first call took (compilation; for ``@mdh`` also verification, its cache is
empty).  All results are compared.  Numba may belong to another Python: ``--numba-python``; without Numba
there is a dash.

This file runs alone in the processes of the peers and imports no other of this project.
"""

# ruff: noqa: N803 - matrices have capital letters
from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

PEERS = ("mdh", "numba", "strict", "numpy")
LEAST_SECONDS = 0.1  # of the calls of one round
PAUSE_SECONDS = 0.1  # before them: threads of the peer before may spin for as long while they wait for work
prange: Any = range  # each process puts its own here

# --------------------------------------------------------------------------- kernels


def matmul(C, A, B):  # type: ignore[no-untyped-def]
    m, n = C.shape
    kk = A.shape[1]
    for i in prange(m):
        for j in range(n):
            s = np.float32(0.0)
            for k in range(kk):
                s += A[i, k] * B[k, j]
            C[i, j] = s


def matvec(w, M, v):  # type: ignore[no-untyped-def]
    n, m = M.shape
    for i in prange(n):
        s = np.float32(0.0)
        for k in range(m):
            s += M[i, k] * v[k]
        w[i] = s


def dot(x, y):  # type: ignore[no-untyped-def]
    s = 0.0
    for i in prange(len(x)):
        s += x[i] * y[i]
    return s


def jacobi2d(y, x):  # type: ignore[no-untyped-def]
    n, m = x.shape
    for i in prange(1, n - 1):
        for j in range(1, m - 1):
            near = x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1]
            y[i, j] = np.float32(0.2) * (x[i, j] + near)


def axpy(y, x, a):  # type: ignore[no-untyped-def]
    for i in prange(len(x)):
        y[i] += a * x[i]


def softmax(y, x):  # type: ignore[no-untyped-def]
    n, m = x.shape
    for i in prange(n):
        top = x[i, 0]
        for j in range(m):
            top = max(top, x[i, j])
        s = np.float32(0.0)
        for j in range(m):
            y[i, j] = np.exp(x[i, j] - top)
            s += y[i, j]
        for j in range(m):
            y[i, j] /= s


def nbody(acc, pos, mass):  # type: ignore[no-untyped-def]
    n = len(mass)
    for i in prange(n):
        ax = 0.0
        ay = 0.0
        az = 0.0
        for j in range(n):
            dx = pos[j, 0] - pos[i, 0]
            dy = pos[j, 1] - pos[i, 1]
            dz = pos[j, 2] - pos[i, 2]
            r2 = dx * dx + dy * dy + dz * dz + 0.01
            pull = mass[j] / (r2 * math.sqrt(r2))
            ax += pull * dx
            ay += pull * dy
            az += pull * dz
        acc[i, 0] = ax
        acc[i, 1] = ay
        acc[i, 2] = az


def masked_sum(a, mask, limit):  # type: ignore[no-untyped-def]
    s = 0
    for i in prange(len(a)):
        if mask[i] != 0 and a[i] < limit:
            s += np.int64(a[i])  # type: ignore[assignment]
    return s


def syrk(C, A):  # type: ignore[no-untyped-def]
    n, m = A.shape
    for i in prange(n):
        for j in range(i + 1):
            s = 0.0
            for k in range(m):
                s += A[i, k] * A[j, k]
            C[i, j] = s


def black_scholes(call, spot, strike, years, rate, vol):  # type: ignore[no-untyped-def]
    for i in prange(len(spot)):
        root = vol * math.sqrt(years[i])
        d1 = (math.log(spot[i] / strike[i]) + (rate + 0.5 * vol * vol) * years[i]) / root
        d2 = d1 - root
        later = strike[i] * math.exp(-rate * years[i])
        n1 = 0.5 + 0.5 * math.erf(d1 * 0.7071067811865476)
        n2 = 0.5 + 0.5 * math.erf(d2 * 0.7071067811865476)
        call[i] = spot[i] * n1 - later * n2


def _numpy_matmul(C: Any, A: Any, B: Any) -> None:
    np.matmul(A, B, out=C)


def _numpy_matvec(w: Any, M: Any, v: Any) -> None:
    np.matmul(M, v, out=w)


def _numpy_jacobi2d(y: Any, x: Any) -> None:
    near = x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:]
    y[1:-1, 1:-1] = np.float32(0.2) * (x[1:-1, 1:-1] + near)


def _numpy_axpy(y: Any, x: Any, a: Any) -> None:
    y += a * x


def _numpy_softmax(y: Any, x: Any) -> None:
    np.exp(x - x.max(axis=1, keepdims=True), out=y)
    y /= y.sum(axis=1, keepdims=True)


def _numpy_masked_sum(a: Any, mask: Any, limit: Any) -> Any:
    return a[(mask != 0) & (a < limit)].sum(dtype=np.int64)


@dataclass(frozen=True)
class Kernel:
    """A function, its arguments and what NumPy has for it."""

    function: Callable[..., Any]
    size: str
    arguments: Callable[[np.random.Generator], tuple[Any, ...]]
    numpy: Callable[..., Any] | None = None


def _random(rng: np.random.Generator, *shape: int, dtype: Any = np.float32) -> Any:
    return rng.uniform(0.1, 1.0, shape).astype(dtype)


KERNELS = {
    "matmul": Kernel(matmul, "1024³ float32", lambda r: (
        np.zeros((1024, 1024), np.float32), _random(r, 1024, 1024), _random(r, 1024, 1024)), _numpy_matmul),
    "matvec": Kernel(matvec, "4096² float32", lambda r: (
        np.zeros(4096, np.float32), _random(r, 4096, 4096), _random(r, 4096)), _numpy_matvec),
    "dot": Kernel(dot, "2^23 float64", lambda r: (
        _random(r, 1 << 23, dtype=float), _random(r, 1 << 23, dtype=float)), np.dot),
    "jacobi2d": Kernel(jacobi2d, "4096² float32", lambda r: (
        np.zeros((4096, 4096), np.float32), _random(r, 4096, 4096)), _numpy_jacobi2d),
    "axpy": Kernel(axpy, "2^24 float32", lambda r: (
        _random(r, 1 << 24), _random(r, 1 << 24), np.float32(1e-6)), _numpy_axpy),
    "softmax": Kernel(softmax, "4096×1024 float32", lambda r: (
        np.zeros((4096, 1024), np.float32), _random(r, 4096, 1024)), _numpy_softmax),
    "nbody": Kernel(nbody, "4096² float64", lambda r: (
        np.zeros((4096, 3)), _random(r, 4096, 3, dtype=float), _random(r, 4096, dtype=float))),
    "masked_sum": Kernel(masked_sum, "2^24 int32", lambda r: (
        r.integers(0, 1000, 1 << 24).astype(np.int32), r.integers(0, 2, 1 << 24).astype(np.uint8),
        np.int32(700)), _numpy_masked_sum),
    "syrk": Kernel(syrk, "1024²/2 × 512 float64", lambda r: (
        np.zeros((1024, 1024)), _random(r, 1024, 512, dtype=float))),
    "black_scholes": Kernel(black_scholes, "2^21 float64", lambda r: (
        np.zeros(1 << 21), *(_random(r, 1 << 21, dtype=float) for _ in range(3)), 0.02, 0.3)),
}  # fmt: skip

# --------------------------------------------------------------------------- the process of a peer


def peer_function(peer: str, kernel: Kernel, fp: str) -> Callable[..., Any] | None:
    """The kernel as the peer runs it; None where the peer is not there."""
    global prange
    if peer == "numpy":
        return kernel.numpy
    if peer == "mdh":
        import mdh_lift

        lift: Any = mdh_lift
        prange = lift.prange
        clauses = [lift.fp("fast")] if fp == "fast" else []
        decorated: Callable[..., Any] = lift.mdh(*clauses)(kernel.function)
        return decorated
    try:
        import numba  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return None
    prange = numba.prange
    allowed: Any = {"reassoc", "nsz"} if peer == "numba" else False
    made: Callable[..., Any] = numba.njit(parallel=True, fastmath=True if fp == "fast" else allowed)(
        kernel.function
    )
    return made


def serve(peer: str, name: str, fp: str, result: str) -> None:
    """First call, its results into a file; then a time for every line that comes."""
    kernel = KERNELS[name]
    given = kernel.arguments(np.random.default_rng(1))
    function = peer_function(peer, kernel, fp)
    if function is None:
        print("null", flush=True)
        return
    started = time.perf_counter()
    value = function(*given)
    first = time.perf_counter() - started
    np.save(result, given[0] if value is None else np.asarray(value))
    print(json.dumps(first), flush=True)
    for _ in sys.stdin:
        time.sleep(PAUSE_SECONDS)
        _seconds_per_call(function, given, PAUSE_SECONDS)  # caches and threads awake
        print(json.dumps(_seconds_per_call(function, given, LEAST_SECONDS)), flush=True)


def _seconds_per_call(function: Callable[..., Any], given: Sequence[Any], least: float) -> float:
    calls, spent = 0, 0.0
    while spent < least:
        started = time.perf_counter()
        function(*given)
        spent += time.perf_counter() - started
        calls += 1
    return spent / calls


# --------------------------------------------------------------------------- the run


class Peer:
    """The process of one peer for one kernel."""

    def __init__(self, peer: str, name: str, python: str, fp: str, threads: int, scratch: Path) -> None:
        self.result = scratch / f"{name}-{peer}.npy"
        count = str(threads)
        paths = (str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH", ""))
        environment = os.environ | {
            "OMP_NUM_THREADS": count, "NUMBA_NUM_THREADS": count, "OPENBLAS_NUM_THREADS": count,
            "MDH_LIFT_CACHE": str(scratch / "cache"),
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        }  # fmt: skip
        words = [python, __file__, "--serve", peer, str(self.result), "--fp", fp, name]
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
        )
        self.first: float | None = self._answer()
        self.seconds: list[float] = []

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def round(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.seconds.append(self._answer())

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def run_kernel(name: str, rounds: int, numba: str, fp: str, threads: int) -> dict[str, Any]:
    """Seconds of all peers, by their names; what is missing is not there."""
    with tempfile.TemporaryDirectory(prefix="mdh-lift-") as scratch:
        peers = {}
        for peer in PEERS:
            if peer == "strict" and fp == "fast":
                continue
            python = numba if peer in ("numba", "strict") else sys.executable
            made = Peer(peer, name, python, fp, threads, Path(scratch))
            if made.first is not None:
                peers[peer] = made
        for _ in range(rounds):
            for p in peers.values():
                p.round()
        for p in peers.values():
            p.end()
        return {
            "kernel": name,
            "size": KERNELS[name].size,
            "seconds": {k: statistics.median(p.seconds) for k, p in peers.items()},
            "first": {k: p.first for k, p in peers.items()},
            "agree": _agree([np.load(p.result) for p in peers.values()]),
        }


def _agree(results: list[Any]) -> bool:
    return all(np.allclose(r, results[0], rtol=1e-3, atol=1e-6) for r in results)


def table(rows: Iterable[dict[str, Any]]) -> str:
    """Milliseconds and ratios, as Markdown."""
    heads = ("kernel", "@mdh", "Numba", "Numba, strict", "NumPy", "Numba / @mdh", "NumPy / @mdh",
             "first call: @mdh, Numba")  # fmt: skip
    lines = [f"| {' | '.join(heads)} |", "|" + " --- |" * len(heads)]
    for row in rows:
        seconds, first = row["seconds"], row["first"]
        cells = [f"{row['kernel']}, {row['size']}"]
        cells += [_number(seconds.get(p), 1e3) for p in PEERS]
        cells += [_number(seconds.get(p), 1 / seconds["mdh"]) for p in ("numba", "numpy")]
        cells.append(f"{_number(first.get('mdh'))} s, {_number(first.get('numba'))} s")
        lines.append("| " + " | ".join(cells) + " |" + ("" if row["agree"] else " RESULTS DIFFER"))
    return "\n".join(lines)


def _number(value: float | None, factor: float = 1.0) -> str:
    return "-" if value is None else f"{value * factor:.3g}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.python")
    parser.add_argument("kernels", nargs="*", metavar="KERNEL", help=f"of {', '.join(KERNELS)}; default: all")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--fp", choices=["default", "fast"], default="default")
    parser.add_argument(
        "--numba-python", default=sys.executable, metavar="PATH", help="the Python that has Numba"
    )
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--serve", nargs=2, metavar=("PEER", "FILE"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    unknown = set(given.kernels) - set(KERNELS)
    if unknown:
        parser.error(f"no kernel is called {', '.join(sorted(unknown))}")
    if given.serve:
        serve(given.serve[0], given.kernels[0], given.fp, given.serve[1])
        return 0
    rows = []
    for name in given.kernels or KERNELS:
        rows.append(run_kernel(name, given.rounds, given.numba_python, given.fp, given.threads))
        print(table(rows[-1:]).splitlines()[-1], file=sys.stderr, flush=True)
    print(table(rows))
    if given.json:
        Path(given.json).write_text(json.dumps(rows, indent=2) + "\n")
    return 0 if all(row["agree"] for row in rows) else 1


if __name__ == "__main__":
    if sys.path and Path(sys.path[0]).resolve() == Path(__file__).resolve().parent:
        del sys.path[0]  # `benchmarks/` itself
    sys.exit(main())
