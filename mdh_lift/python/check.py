"""The child that runs a kernel for the first time: ``python -m mdh_lift.python.check LIBRARY CASES TARGET``.

Exit status 0: all cases agree with what Python computed; 1: they do not, or the kernel declined.  A kernel
for CUDA runs on arrays of the host, and on arrays in device memory.
"""

from __future__ import annotations

import ctypes
import pickle
import resource
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from emit.targets import OPENMP
from mdh_lift.python.build import entry_of, load
from mdh_lift.python.call import agree, pointers

_MEMORY = 8 << 30
_SECONDS = 50

Values = Sequence[np.ndarray[Any, Any]]
Run = Callable[[Values], int]


def main(arguments: list[str]) -> int:
    path, cases, target = arguments
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if target == OPENMP:  # drivers of GPUs reserve more addresses than there is memory, and compile
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
    library = load(Path(path))
    entry = entry_of(library)
    given = pickle.loads(Path(cases).read_bytes())
    done, wrong = _compared(given, lambda values: entry(pointers(values)))
    if not done and not wrong:
        wrong = "the kernel declined all small inputs, so it could not be verified"
    if target == "cuda" and not wrong:  # where it declines these, it does so at every call
        _, wrong = _compared(given, lambda values: _in_device_memory(library, entry, values))
        wrong = wrong and f"{wrong}, with arrays in device memory"
    if wrong:
        print(wrong)
    return 1 if wrong else 0


def _compared(cases: Sequence[Any], run: Run) -> tuple[int, str]:
    """How many cases the kernel took, and what is wrong."""
    done = 0
    for n, (inputs, expected, exact) in enumerate(cases):
        values = [np.array(x, copy=True) for x in inputs]
        before = [x.tobytes() for x in values]  # a copy of a record may have other bytes between its fields
        if run(values) != 1:
            if [x.tobytes() for x in values] != before:
                return done, f"the kernel declined case {n} and wrote something all the same"
            continue
        done += 1
        for k, (got, wanted) in enumerate(zip(values, expected, strict=True)):
            if wanted is not None and not agree(got, np.asarray(wanted), exact):
                return done, f"the kernel computed something else than Python in case {n}, value {k}"
    return done, ""


def _in_device_memory(library: ctypes.CDLL, entry: Callable[[Any], int], values: Values) -> int:
    """The same with the arrays of one dimension and more in device memory."""
    library.mdh_held_new.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    library.mdh_held_new.restype = ctypes.c_void_p
    library.mdh_held_back.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    addresses = [v.ctypes.data for v in values]
    moved = {k: library.mdh_held_new(v.ctypes.data, v.nbytes) for k, v in enumerate(values) if v.ndim}
    for k, address in moved.items():
        addresses[k] = address
    if None in addresses:
        return 0
    answer = entry((ctypes.c_void_p * len(addresses))(*addresses))
    for k, address in moved.items():
        if not library.mdh_held_back(values[k].ctypes.data, address, values[k].nbytes):
            return 0
    return answer


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
