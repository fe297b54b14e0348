"""Programs of candidates: by nvcc for a device, or for the processor by ``tuning/cuda_on_cpu.py``.

A program is three objects: the nest (C), the emitted file behind ``resident.h`` (CUDA), and
``tuning/driver.c`` with ``time.c`` (C).  Needs Python's standard library only.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from benchmarks.cases import CORPUS
from benchmarks.gpu.plan import Planned
from lowering.device import Device
from tuning import cuda_on_cpu, ptxas
from tuning.devices import nvcc_command
from tuning.harness import driver_text

HERE = Path(__file__).parent
SECONDS = 180.0  # of one compilation
_running: set[int] = set()
_lock = threading.Lock()


class Failed(Exception):  # noqa: N818 - a reason, for the table
    """Something does not compile, does not run, or is not worth running."""


def run(words: Sequence[str], seconds: float, given: str = "", to: IO[str] | None = None) -> tuple[str, str]:
    """Standard output and errors of a command in a session of its own; raises ``Failed``.

    ``to``: where the output goes instead, so that it stays where the command fails.
    """
    try:
        process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=to or subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            errors="replace", env={**os.environ, "NVIDIA_TF32_OVERRIDE": "0"}, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise Failed(f"{words[0]}: {error.strerror}") from None
    with _lock:
        _running.add(process.pid)
    try:
        said, errors = process.communicate(given, timeout=max(seconds, 0.1))
    except BaseException as stopped:
        _end(process.pid)
        process.communicate()
        if isinstance(stopped, subprocess.TimeoutExpired):
            raise Failed(f"takes longer than {seconds:.0f} s") from None
        raise
    finally:
        with _lock:
            _running.discard(process.pid)
    if process.returncode != 0:
        told = (errors.strip() or (said or "").strip())[-400:]
        raise Failed(f"ends with {process.returncode}: {told}" if told else f"ends with {process.returncode}")
    return said or "", errors


def end_all() -> None:
    """End every command that still runs."""
    with _lock:
        for group in _running:
            _end(group)


def _end(group: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class Toolchain:
    """For a device by nvcc; for the processor (``device`` is None) by g++.

    ``work``: where programs are made
    """

    work: Path
    device: Device | None
    nvcc: tuple[str, ...] = field(default_factory=nvcc_command)
    gcc: str = "gcc"
    resident: str = field(default_factory=lambda: (HERE / "resident.h").read_text())

    # ------------------------------------------------------------------ what all cases share

    def drivers(self) -> None:
        """``time.o`` and ``serve.o``: the ends of all programs."""
        for name, end in (("time", HERE / "time.c"), ("serve", HERE.parent / "serve.c")):
            source = self.work / f"{name}.c"
            source.write_bytes(b"#define main mdh_driver_main\n" + driver_text() + b"\n" + end.read_bytes())
            run([self.gcc, "-O2", "-w", "-c", str(source), "-o", str(source.with_suffix(".o"))], SECONDS)

    def plain(self, source: Path, *link: str) -> Path:
        """A program that is one file of CUDA."""
        program = self.work / source.stem
        if self.device is None:
            translated = self.work / f"{source.stem}.cpp"
            translated.write_text(cuda_on_cpu.translated(source.read_text()))
            run(cuda_on_cpu.command("g++", translated, program, "-w", *link), SECONDS)
        else:
            words = [*self.nvcc, "-O3", f"-arch={self.device.arch}", str(source), "-o", str(program), *link]
            run(words, SECONDS)
        return program

    # ------------------------------------------------------------------ one case

    def reference(self, case: Planned, folder: Path) -> Path:
        """The program that gives the inputs and the expected results."""
        program = self._folder(case) / "reference"
        words = [self.gcc, "-O3", "-march=native", "-fopenmp", "-w", *case.defines, "-iquote", str(CORPUS)]
        words += [str(folder / "reference.c"), str(self.work / "serve.o"), "-o", str(program), "-lm", "-ldl"]
        run(words, SECONDS)
        return program

    def subject(self, case: Planned, folder: Path) -> Path:
        made = self._folder(case) / "subject.o"
        words = [self.gcc, "-O2", "-w", *case.defines, "-iquote", str(CORPUS), "-c"]
        run([*words, str(folder / "subject.c"), "-o", str(made)], SECONDS)
        return made

    def candidate(self, case: Planned, folder: Path, number: int) -> Path:
        """The program of a point; raises ``Failed`` where its registers speak against it, too."""
        program = self._folder(case) / str(number)
        text = (folder / f"{number}.cu").read_text()
        both = f'{self.resident}\n#line 1 "{number}.cu"\n{text}'
        objects = [str(program.parent / "subject.o"), str(self.work / "time.o")]
        if self.device is None:
            source = program.with_suffix(".cpp")
            source.write_text(cuda_on_cpu.translated(both))
            run(cuda_on_cpu.command("g++", source, program, "-w", *objects, "-ldl"), SECONDS)
            return program
        source, made = program.with_suffix(".cu"), program.with_suffix(".o")
        source.write_text(both)
        flags = ["-O3", f"-arch={self.device.arch}"]
        if re.search(r"^ \* nvcc .*-fmad=false", text, re.MULTILINE):
            flags.append("-fmad=false")
        _, said = run([*self.nvcc, *flags, "-Xptxas", "-v", "-c", str(source), "-o", str(made)], SECONDS)
        reason = ptxas.why_not(ptxas.parsed(said, text), self.device)
        if reason is not None and number > 0:  # the default is told how it does in any case
            raise Failed(reason)
        run([*self.nvcc, flags[1], str(made), *objects, "-o", str(program), "-lm", "-ldl"], SECONDS)
        return program

    def _folder(self, case: Planned) -> Path:
        folder = self.work / case.name
        folder.mkdir(exist_ok=True)
        return folder
