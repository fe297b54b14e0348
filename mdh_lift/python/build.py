"""From the C file of a kernel to a library that was verified: compile, check in another process, load.

The cache holds, per hash of text, compiler and flags, the library and the mark that it was verified; it
belongs to the user alone.  No kernel runs in this process before a child has compared it with Python.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import platformdirs

from mdh_core.diagnostics import refuse
from mdh_lift.entry import ENTRY, Program

CHECK_SECONDS = 60
COMPILE_SECONDS = 120
_FLAGS = ("-std=gnu11", "-O3", "-march=native", "-fopenmp", "-fPIC", "-shared", "-fwrapv", "-w")


@dataclass(frozen=True)
class Case:
    """Inputs in the order of the slots, and what Python makes of them."""

    inputs: tuple[Any, ...]
    expected: tuple[Any, ...]


class Rejected(Exception):  # noqa: N818 - an outcome
    """Why a kernel is not used."""


def cache_directory() -> Path:
    given = os.environ.get("MDH_LIFT_CACHE")
    path = Path(given) if given else Path(platformdirs.user_cache_dir("mdh-lift")) / "python"
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    owner = path.stat().st_uid
    if hasattr(os, "getuid") and owner != os.getuid():
        raise Rejected(f"the cache directory {path} belongs to another user")
    return path


def compiler() -> str:
    for name in (os.environ.get("CC", ""), "gcc", "cc", "clang"):
        if name and (found := shutil.which(name)):
            return found
    raise refuse("MDH801", "no C compiler was found", help="install gcc or clang, or set the variable `CC`")


def library(program: Program, fp: str, cases: Callable[[], Sequence[Case]]) -> Path:
    """The verified library of a program; raises ``Rejected`` where it cannot be had."""
    cc = compiler()
    contract = "fast" if fp == "fast" and not program.exact else "off"
    flags = (*_FLAGS, f"-ffp-contract={contract}")
    key = hashlib.sha256("\0".join([program.text, cc, _version(cc), *flags]).encode()).hexdigest()[:32]
    directory = cache_directory()
    target, mark = directory / f"{key}.so", directory / f"{key}.verified"
    if target.exists() and mark.exists():
        return target
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        built = _compile(cc, flags, program.text, Path(scratch))
        _check(built, program, cases(), Path(scratch))
        built.replace(target)
        mark.touch(mode=0o600)
    return target


def _version(cc: str) -> str:
    stat = Path(cc).resolve().stat()
    return f"{stat.st_size} {stat.st_mtime_ns}"


def _compile(cc: str, flags: Sequence[str], text: str, scratch: Path) -> Path:
    source, built = scratch / "kernel.c", scratch / "kernel.so"
    source.write_text(text, encoding="utf-8")
    try:
        done = subprocess.run(
            [cc, *flags, str(source), "-o", str(built), "-lm"],
            capture_output=True, text=True, timeout=COMPILE_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise Rejected("the compiler took too long") from None
    if done.returncode:
        line = next((x for x in done.stderr.splitlines() if "error" in x), done.stderr[:200])
        raise Rejected(f"the kernel does not compile: {line}")
    return built


def _check(built: Path, program: Program, cases: Sequence[Case], scratch: Path) -> None:
    """Runs the kernel on the cases in a child process."""
    if not cases:
        raise Rejected("no small inputs could be made to verify the kernel with")
    request = scratch / "cases"
    request.write_bytes(pickle.dumps([(c.inputs, c.expected, program.exact) for c in cases]))
    root = str(Path(__file__).resolve().parent.parent.parent)
    environment = {**os.environ, "OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive"}
    path = os.pathsep.join(p for p in (root, environment.get("PYTHONPATH", "")) if p)
    environment["PYTHONPATH"] = path
    try:
        done = subprocess.run(
            [sys.executable, "-m", "mdh_lift.python.check", str(built), str(request)],
            capture_output=True, text=True, timeout=CHECK_SECONDS, check=False, env=environment,
            start_new_session=True,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise Rejected("the kernel took too long on small inputs") from None
    if done.returncode < 0:
        raise Rejected(f"the kernel crashed on small inputs (signal {-done.returncode})")
    if done.returncode:
        text = (done.stdout.strip() or done.stderr.strip() or "?").splitlines()[-1]
        raise Rejected(text)


def load(path: Path) -> Callable[[Any], int]:
    """The entry of a verified library."""
    entry = getattr(ctypes.CDLL(str(path)), ENTRY)
    entry.argtypes = [ctypes.POINTER(ctypes.c_void_p)]
    entry.restype = ctypes.c_int
    return entry  # type: ignore[no-any-return]
