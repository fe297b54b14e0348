"""Every function of corpus/py: what ``@mdh`` computes against plain Python.

    python -m campaigns.python_corpus [NAME...]

Prints a line per program and a summary; exit status 1 if any result differs or nothing could be compared.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
import time
import tomllib
import types
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from frontend_py.directives import Found
from frontend_py.kinds import Array, Scalar
from frontend_py.read import FunctionRead, read_function
from mdh_core.expr import RecordType
from mdh_lift.python import MdhWarning, cases
from mdh_lift.python.call import agree, dtype_of
from mdh_lift.python.decorator import MdhFunction

CORPUS = Path(__file__).parent.parent / "corpus"
SIZES = ((3, 5, 4, 7, 2, 6, 3), (1, 1, 1), (9, 7, 11, 5, 6, 4, 3))  # of one call each


@dataclass
class Outcome:
    """What came of one program."""

    compared: int = 0  # calls
    differences: list[str] = field(default_factory=list)
    warned: list[str] = field(default_factory=list)  # why the loops ran in Python


def programs() -> list[Path]:
    return sorted((CORPUS / "py").glob("*.py"))


def load(path: Path) -> types.ModuleType:
    """A program with the sizes that the manifest has for quick tests."""
    spec = importlib.util.spec_from_file_location(f"twin_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    manifest = tomllib.loads((CORPUS / "manifest.toml").read_text())["program"]
    sizes: dict[str, int] = next((p["sizes"] for p in manifest if p["source"] == f"{path.stem}.c"), {})
    for name, value in sizes.items():
        if isinstance(getattr(module, name, None), int):
            setattr(module, name, value)
    if path.stem == "mcc":  # derived sizes
        for name, value in (("H", module.P + module.R - 1), ("W", module.Q + module.S - 1)):
            if hasattr(module, name):
                setattr(module, name, value)
    return module


def functions(path: Path) -> list[MdhFunction]:
    found = {id(v): v for v in vars(load(path)).values() if isinstance(v, MdhFunction)}
    return list(found.values())


def arguments(f: MdhFunction, number: int = 0) -> list[Any] | None:
    """Small arguments that fit the annotations and what the nest touches."""
    f._ready = f._ready or f._prepare()
    assert f._file is not None and f._node is not None
    found = Found(f._node, f.directive()[0], f._file.span(f._node), dict(f._declared))
    read = read_function(f._file, f._scope(), found)
    if not isinstance(read, FunctionRead):
        return None
    made = cases._inputs(read, SIZES[number], 0)
    assert made is not None
    params, shapes = made
    named = {read.variables.get(k, k): v for k, v in {**params, **shapes}.items()}
    rng = np.random.default_rng(number)
    out: list[Any] = []
    for a in f._node.args.args:
        kind = f._declared[a.arg]
        if isinstance(kind, Array):
            shape: Any = named.get(a.arg)
            if shape is None:
                shape = (4,) * len(kind.extents or ())
            out.append(cases._array(shape, kind.element, rng, number))
        elif a.arg in named:
            out.append(named[a.arg])
        elif isinstance(kind, Scalar) and not isinstance(kind.type, RecordType):
            out.append(dtype_of(kind.type).type(rng.integers(1, 5)))
    return out


def same(a: Any, b: Any) -> bool:
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype.kind == b.dtype.kind and a.shape == b.shape and agree(a, b.astype(a.dtype), False)


def _copies(values: Sequence[Any]) -> list[Any]:
    return [np.array(x, copy=True) if isinstance(x, np.ndarray) else x for x in values]


def _results(value: Any) -> list[Any]:
    return list(value) if isinstance(value, tuple) else [value]


def compare(path: Path) -> Outcome:
    """Call every function of a program on inputs of several sizes, and its original on the same."""
    outcome = Outcome()
    for f in functions(path):
        for number in range(len(SIZES)):
            given = arguments(f, number)
            if given is not None:
                _compare_call(f, given, outcome)
    return outcome


def _compare_call(f: MdhFunction, given: list[Any], outcome: Outcome) -> None:
    assert f._node is not None
    names = [a.arg for a in f._node.args.args]
    ours = _copies(given)
    plain = [f._converts[n].type(x) if n in f._converts else x
             for n, x in zip(names, _copies(given), strict=True)]  # fmt: skip
    near = [np.nextafter(x, x + 1) if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x
            for x in _copies(given)]  # fmt: skip
    with np.errstate(all="ignore"), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            wanted = f.original(*plain)
            f.original(*near)
        except (ArithmeticError, IndexError, ValueError):
            return  # such inputs say nothing
        got = f(*ours)
    outcome.warned += [str(w.message) for w in caught if isinstance(w.message, MdhWarning)]
    arrays = [(x, y) for x, y in zip(near, plain, strict=True) if isinstance(x, np.ndarray)]
    if not all(same(x, y) for x, y in arrays):
        return  # results that hang on the last digits of the inputs
    outcome.compared += 1
    for name, x, y in zip(names, ours, plain, strict=True):
        if isinstance(x, np.ndarray) and not same(x, y):
            outcome.differences.append(f"{f.original.__name__}: `{name}` is {x}, Python has {y}")
    for x, y in zip(_results(got), _results(wanted), strict=True):
        if not ((x is None and y is None) or same(x, y)):
            outcome.differences.append(f"{f.original.__name__} returns {x}, Python {y}")


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m campaigns.python_corpus", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="programs, without .py; default: all")
    names = parser.parse_args(words).names
    chosen = [p for p in programs() if not names or p.stem in names]
    unknown = sorted(set(names) - {p.stem for p in chosen})
    if unknown:
        parser.error(f"no program is called {', '.join(unknown)}")
    wrong = kernels = calls = 0
    for path in chosen:
        started = time.monotonic()
        outcome = compare(path)
        bad = bool(outcome.differences) or not outcome.compared
        wrong += bad
        kernels += not outcome.warned
        calls += outcome.compared
        word = "DIFFERS" if outcome.differences else "not compared" if bad else "ok"
        note = f"  ({outcome.warned[0]})" if outcome.warned else ""
        seconds = time.monotonic() - started
        print(f"{path.stem:<24} {word:<12} {outcome.compared} calls {seconds:6.1f} s{note}", flush=True)
        for line in outcome.differences:
            print(f"    {line}")
    print(f"{len(chosen)} programs, {kernels} with kernels only, {calls} calls compared, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    import os

    with tempfile.TemporaryDirectory(prefix="mdh-lift-") as directory:
        os.environ["MDH_LIFT_CACHE"] = directory
        sys.exit(main())
