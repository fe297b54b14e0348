"""The decorator ``@mdh``: every twin of the corpus against plain Python, errors, fallbacks, caching."""

from __future__ import annotations

import importlib.util
import re
import sys
import tomllib
import types
import warnings
from pathlib import Path
from typing import Any

import pytest

np = pytest.importorskip("numpy", minversion="2.0")

import mdh_lift  # noqa: E402
from frontend_py.directives import Found  # noqa: E402
from frontend_py.kinds import Array, Scalar  # noqa: E402
from frontend_py.read import FunctionRead, read_function  # noqa: E402
from mdh_core.expr import RecordType  # noqa: E402
from mdh_lift import MdhWarning, mdh  # noqa: E402
from mdh_lift.python import cases as case_module  # noqa: E402
from mdh_lift.python.call import dtype_of  # noqa: E402
from mdh_lift.python.check import agree  # noqa: E402
from mdh_lift.python.decorator import MdhFunction  # noqa: E402

ROOT = Path(__file__).parent.parent
TWINS = sorted((ROOT / "corpus" / "py").glob("*.py"))
MANIFEST = tomllib.loads((ROOT / "corpus" / "manifest.toml").read_text())["program"]


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MDH_LIFT_CACHE", str(tmp_path_factory.mktemp("kernels")))
        yield


def load(path: Path) -> types.ModuleType:
    """A twin with the sizes that the manifest has for quick tests."""
    spec = importlib.util.spec_from_file_location(f"twin_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sizes = next((p["sizes"] for p in MANIFEST if p["source"] == f"{path.stem}.c"), {})
    for name, value in sizes.items():
        if isinstance(getattr(module, name, None), int):
            setattr(module, name, value)
    for name in ("H", "W"):  # derived sizes of mcc
        if path.stem == "mcc" and hasattr(module, name):
            setattr(module, name, module.P + module.R - 1 if name == "H" else module.Q + module.S - 1)
    return module


def functions(path: Path) -> list[MdhFunction]:
    found = {id(v): v for v in vars(load(path)).values() if isinstance(v, MdhFunction)}
    return list(found.values())


def arguments(f: MdhFunction, number: int = 0) -> list[Any] | None:
    """Small arguments that fit the annotations and what the nest touches."""
    f._ready = f._ready or f._prepare()
    assert f._file is not None and f._node is not None
    scope = f._scope()
    found = Found(f._node, f.directive()[0], f._file.span(f._node), dict(f._declared))
    read = read_function(f._file, scope, found)
    if not isinstance(read, FunctionRead):
        return None
    made = case_module._inputs(read, ((3, 5, 4, 7, 2, 6, 3), (1, 1, 1), (9, 7, 11, 5, 6, 4, 3))[number], 0)
    assert made is not None
    params, shapes = made
    named = {read.variables.get(k, k): v for k, v in {**params, **shapes}.items()}
    rng = np.random.default_rng(number)
    out: list[Any] = []
    for a in f._node.args.args:
        kind = f._declared[a.arg]
        if isinstance(kind, Array):
            shape = named.get(a.arg)
            if shape is None:
                shape = (4,) * len(kind.extents or ())
            out.append(case_module._array(shape, kind.element, rng, number))
        elif a.arg in named:
            out.append(named[a.arg])
        elif isinstance(kind, Scalar) and not isinstance(kind.type, RecordType):
            out.append(dtype_of(kind.type).type(rng.integers(1, 5)))
    return out


def same(a: Any, b: Any) -> bool:
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype.kind == b.dtype.kind and a.shape == b.shape and agree(a, b.astype(a.dtype), False)


@pytest.mark.parametrize("path", TWINS, ids=lambda p: p.stem)
def test_twin_computes_what_plain_python_computes(path: Path) -> None:
    for f in functions(path):
        for number in range(3):
            given = arguments(f, number)
            if given is None:
                continue
            ours = [np.array(x, copy=True) if isinstance(x, np.ndarray) else x for x in given]
            plain = [np.array(x, copy=True) if isinstance(x, np.ndarray) else x for x in given]
            plain = [f._converts[a.arg].type(x) if a.arg in f._converts else x
                     for a, x in zip(f._node.args.args, plain, strict=True)]  # fmt: skip
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("error")
                warnings.simplefilter("default", MdhWarning)
                wanted = f.original(*plain)
                got = f(*ours)
            for x, y in zip(ours, plain, strict=True):
                if not isinstance(x, np.ndarray):
                    continue
                assert same(x, y), (f.__name__, number, x, y)
            results = [got] if not isinstance(got, tuple) else list(got)
            expected = [wanted] if not isinstance(wanted, tuple) else list(wanted)
            for x, y in zip(results, expected, strict=True):
                assert x is None and y is None or same(x, y), (f.__name__, x, y)
