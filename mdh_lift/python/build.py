"""From the files of a kernel to a library that was verified: compile, check in another process, load.

The cache holds, per hash of text, compiler, flags and device, the library and the mark that it was verified;
it belongs to the user alone.  No kernel runs in this process before a child has compared it with Python.
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

from emit.targets import OPENMP
from mdh_core.diagnostics import refuse
from mdh_lift.entry import ENTRY, Program
from tuning.accelerator import Accelerator, accelerator

CHECK_SECONDS = 60
COMPILE_SECONDS = 120
_LIBRARY = ("-fPIC", "-shared", "-fwrapv", "-w")
_FLAGS = ("-std=gnu11", "-O3", "-march=native", "-fopenmp", *_LIBRARY)
_DEVICE_MEMORY = Path(__file__).with_name("device_memory.cu")


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


@dataclass(frozen=True, slots=True)
class _Tools:
    """How the files of a program become a library, and all that its text does not say of the result."""

    cc: str
    flags: tuple[str, ...]
    link: tuple[str, ...] = ("-lm",)
    accelerator: Accelerator | None = None  # for the file of a GPU

    @property
    def identity(self) -> tuple[str, ...]:
        """A library that was made and verified with the same is the same."""
        a = self.accelerator
        if a is None:
            return (self.cc, _version(self.cc), *self.flags)
        seen = (f"{n}={v}" for n, v in sorted(a.environment().items()))
        return (self.cc, _version(self.cc), *self.flags, *a.compile, *a.link, a.version, a.device, *seen)


def _tools(program: Program, fp: str) -> _Tools:
    """Raises ``Refusal`` MDH801, MDH805, MDH806 where a compiler or a device is missing."""
    cc = compiler()
    if program.target == OPENMP:
        contract = "fast" if fp == "fast" and not program.exact else "off"
        return _Tools(cc, (*_FLAGS, f"-ffp-contract={contract}"))
    found = accelerator(program.target, (cc,), fp == "exact" or program.rounds, cache_directory())
    return _Tools(cc, ("-std=gnu11", "-O2", *_LIBRARY), (*found.link, "-lm"), found)


def library(program: Program, fp: str, cases: Callable[[], Sequence[Case]]) -> Path:
    """The verified library of a program.

    Raises ``Rejected`` where it cannot be had, ``Refusal`` (MDH801, MDH805, MDH806) where this machine lacks
    what the target needs.
    """
    tools = _tools(program, fp)
    texts = (program.text, *((program.device, _beside(program)) if program.device else ()))
    key = hashlib.sha256("\0".join([*texts, *tools.identity]).encode()).hexdigest()[:32]
    directory = cache_directory()
    target, mark = directory / f"{key}.so", directory / f"{key}.verified"
    if target.exists() and mark.exists():
        return target
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        built = _compile(tools, program, Path(scratch))
        _check(built, program, cases(), Path(scratch))
        built.replace(target)
        mark.touch(mode=0o600)
    return target


def _version(cc: str) -> str:
    stat = Path(cc).resolve().stat()
    return f"{stat.st_size} {stat.st_mtime_ns}"


def _beside(program: Program) -> str:
    """What is compiled behind the kernels: questions about arrays in device memory."""
    return _DEVICE_MEMORY.read_text(encoding="utf-8") if program.target == "cuda" else ""


def _compile(tools: _Tools, program: Program, scratch: Path) -> Path:
    source, built = scratch / "kernel.c", scratch / "kernel.so"
    source.write_text(program.text, encoding="utf-8")
    objects: list[str] = []
    if tools.accelerator is not None:
        device, made = scratch / f"device{tools.accelerator.suffix}", scratch / "device.o"
        device.write_text(f"{program.device}\n{_beside(program)}", encoding="utf-8")
        through = ("-Xcompiler",) if program.target == "cuda" else ()
        command = [*tools.accelerator.compile, *through, "-fPIC", "-w", "-c", str(device), "-o", str(made)]
        _run_compiler(command)
        objects.append(str(made))
    _run_compiler([tools.cc, *tools.flags, str(source), *objects, "-o", str(built), *tools.link])
    return built


def _run_compiler(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=COMPILE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise Rejected("the compiler took too long") from None
    if done.returncode:
        line = next((x for x in done.stderr.splitlines() if "error" in x), done.stderr[:200])
        raise Rejected(f"the kernel does not compile: {line}")


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
            [sys.executable, "-m", "mdh_lift.python.check", str(built), str(request), program.target],
            capture_output=True, text=True, timeout=CHECK_SECONDS * (1 if program.target == OPENMP else 5),
            check=False, env=environment, start_new_session=True,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise Rejected("the kernel took too long on small inputs") from None
    if done.returncode < 0:
        raise Rejected(f"the kernel crashed on small inputs (signal {-done.returncode})")
    if done.returncode:
        text = (done.stdout.strip() or done.stderr.strip() or "?").splitlines()[-1]
        raise Rejected(text)


def load(path: Path) -> ctypes.CDLL:
    """A verified library; its entry is ``entry_of``."""
    return ctypes.CDLL(str(path))


def entry_of(library: ctypes.CDLL) -> Callable[[Any], int]:
    """The function that takes pointers: 1 when it did the work, 0 when it declined."""
    entry = getattr(library, ENTRY)
    entry.argtypes = [ctypes.POINTER(ctypes.c_void_p)]
    entry.restype = ctypes.c_int
    return entry  # type: ignore[no-any-return]
