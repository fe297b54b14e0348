"""The process of a peer in Python: ``python serve.py MODULE INPUTS OUTPUTS``, as ``serve.c`` for programs.

INPUTS holds ``problem.json`` and a file of bytes per argument.  The case runs once and its results go into
OUTPUTS; a line says how long that took, or what the problem is.  Then every line asks for the seconds of a
call.  Arrays that are read and written get their first values back before every call, outside of its time.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

PAUSE_SECONDS = 0.2  # threads of the peer before may spin a while as they wait for work
LEAST_SECONDS = 0.1  # of the calls of one round
_PAGE, _PLACE, _PLACES = 4096, 576, 7  # bytes; where arrays begin in a page, see ``placed``
Run = Callable[[], Mapping[str, Any] | None]


@dataclass
class Problem:
    """A case as a peer sees it.

    ``operation`` and ``roles`` as in the table of cases; ``extents`` of the operation.
    """

    operation: str
    roles: tuple[str, ...]
    extents: tuple[int, ...]
    arrays: dict[str, Any]
    added: frozenset[str]  # arrays that are read and written
    threads: int
    trials: int  # of a peer that searches

    def role(self, k: int, *shape: int) -> Any:
        """The array of a role; it may be larger than the shape, or end after the last cell that is read."""
        flat = self.arrays[self.roles[k]]
        if not shape:
            return flat
        missing = int(np.prod(shape)) - flat.size
        if missing > 0:
            number = list(self.arrays).index(self.roles[k])
            flat = placed(np.concatenate([flat, np.zeros(missing, flat.dtype)]), number)
        return flat[: int(np.prod(shape))].reshape(shape)

    def value(self, name: str, otherwise: float) -> float:
        return float(self.arrays[name][0]) if name in self.arrays else otherwise

    @property
    def adds(self) -> bool:
        """Is the result added to what is there?"""
        return self.roles[0] in self.added


def read_problem(inputs: Path) -> Problem:
    given = json.loads((inputs / "problem.json").read_text())
    arrays = {}
    for number, a in enumerate(given["arguments"]):
        plain = np.fromfile(inputs / a["name"], np.dtype(a["dtype"]), a["count"])
        arrays[a["name"]] = placed(plain, number)
    added = frozenset(a["name"] for a in given["arguments"] if a["read"] and a["written"])
    return Problem(
        given["operation"], tuple(given["roles"]), tuple(given["extents"]), arrays, added,
        given["threads"], given["trials"],
    )  # fmt: skip


def placed(array: Any, number: int) -> Any:
    """A copy that begins where in a page the programs in C have their argument of that number.

    See ``place_of`` in tuning/driver.c: with a line of the cache, in other sets than the next arrays.
    """
    room = np.empty(array.nbytes + 2 * _PAGE, np.uint8)
    first = -room.ctypes.data % _PAGE + _PLACE * (number % _PLACES)
    found = room[first : first + array.nbytes].view(array.dtype)
    found[:] = array
    return found


def serve(module: str, inputs: Path, outputs: Path) -> None:
    problem = read_problem(inputs)
    try:
        run: Run | None = importlib.import_module(f"benchmarks.peers.{module}").prepare(problem)
    except ImportError as error:
        _tell({"problem": f"missing: {error}"})
        return
    if run is None:
        _tell({"problem": "none"})
        return
    before = {name: problem.arrays[name].copy() for name in problem.added}

    def call() -> tuple[float, Mapping[str, Any] | None]:
        for name, values in before.items():
            problem.arrays[name][:] = values
        started = time.perf_counter()
        value = run()
        return time.perf_counter() - started, value

    first, value = call()
    for name, result in (value or {}).items():
        problem.arrays[name][:] = np.asarray(result).ravel()
    for name, array in problem.arrays.items():
        array.tofile(outputs / name)
    _tell({"first": first})
    for _ in sys.stdin:
        time.sleep(PAUSE_SECONDS)
        if first < LEAST_SECONDS:
            _seconds_per_call(call, PAUSE_SECONDS)  # caches and threads awake
        _tell(_seconds_per_call(call, LEAST_SECONDS))


def _seconds_per_call(call: Callable[[], tuple[float, Any]], least: float) -> float:
    calls, spent = 0, 0.0
    while spent < least:
        spent += call()[0]
        calls += 1
    return spent / calls


def _tell(value: Any) -> None:
    print(json.dumps(value), file=_ANSWERS, flush=True)


if __name__ == "__main__":
    # what libraries print is no answer
    _ANSWERS, sys.stdout = sys.stdout, sys.stderr
    here = Path(__file__).resolve()
    sys.path[0] = str(here.parent.parent.parent)
    serve(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
