"""The child that runs a kernel for the first time: ``python -m mdh_lift.python.check LIBRARY CASES``.

Exit status 0: all cases agree with what Python computed; 1: they do not, or the kernel declined.
"""

from __future__ import annotations

import pickle
import resource
import sys
from pathlib import Path

import numpy as np

from mdh_lift.python.build import load
from mdh_lift.python.call import agree, pointers

_MEMORY = 8 << 30
_SECONDS = 50


def main(arguments: list[str]) -> int:
    for limit, value in (
        (resource.RLIMIT_AS, _MEMORY),
        (resource.RLIMIT_CPU, _SECONDS),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(limit, (value, value))
    entry = load(Path(arguments[0]))
    done = 0
    for n, (inputs, expected, exact) in enumerate(pickle.loads(Path(arguments[1]).read_bytes())):
        values = [np.array(x, copy=True) for x in inputs]
        if entry(pointers(values)) != 1:
            if any(x.tobytes() != y.tobytes() for x, y in zip(values, inputs, strict=True)):
                print(f"the kernel declined case {n} and wrote something all the same")
                return 1
            continue
        done += 1
        for k, (got, wanted) in enumerate(zip(values, expected, strict=True)):
            if wanted is not None and not agree(got, np.asarray(wanted), exact):
                print(f"the kernel computed something else than Python in case {n}, value {k}")
                return 1
    if not done:
        print("the kernel declined all small inputs, so it could not be verified")
    return 0 if done else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
