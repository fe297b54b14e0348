"""How the user's file is compiled and linked: verdicts and times are about exactly these commands.

Where a candidate has a file of its own, that is compiled by the same compiler, or for a GPU by an
``Accelerator``, and linked to it.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property

from tuning.accelerator import Accelerator

_TAKES_ARGUMENT = ("-o", "-MF", "-MT", "-MQ")
_DROPPED = ("-c", "-S", "-E", "-M", "-MM", "-MD", "-MMD", "-MP", "-MG", "-pedantic-errors", "-pipe")


def usable_flags(flags: Sequence[str]) -> tuple[str, ...]:
    """A compile command's flags without outputs, dependency files and warnings made errors."""
    kept: list[str] = []
    skip = False
    for flag in flags:
        if skip or flag in _TAKES_ARGUMENT:
            skip = not skip
            continue
        if flag not in _DROPPED and not flag.startswith(("-Werror", "-o")):
            kept.append(flag)
    return tuple(kept)


_MEANING = (
    *("-fsigned-char", "-funsigned-char", "-fsigned-bitfields", "-funsigned-bitfields", "-fshort-"),
    *("-fwrapv", "-fpack-struct", "-fms-extensions", "-fplan9-extensions", "-fgnu89-inline"),
    *("-fgnu-keywords", "-fsingle-precision-constant", "-finput-charset", "-fexec-charset"),
    *("-fwide-exec-charset", "-fblocks", "-fdollars", "-ffreestanding", "-fno-common", "-fcommon"),
    *("-fno-builtin", "-m32", "-m64", "-mx32", "-mabi"),
)
_WITH_NEXT = ("-mllvm", "-Xclang", "-Xlinker", "-Xassembler", "-z")


def plain_flags(flags: Sequence[str], machine: bool = False) -> tuple[str, ...]:
    """The flags that give a program its meaning: macros, headers, language, types; nothing that optimises.

    ``machine``: also those that select instructions, for text that names them.

    >>> plain_flags(("-O3", "-march=native", "-ffast-math", "-DN=4", "-I", "include", "-fwrapv", "-flto"))
    ('-DN=4', '-I', 'include', '-fwrapv')
    """
    kept: list[str] = []
    skip = False
    for flag in usable_flags(flags):
        dropped = skip or flag in _WITH_NEXT or _is_no_meaning(flag, machine)
        skip = not skip and flag in _WITH_NEXT
        if not dropped:
            kept.append(flag)
    return tuple(kept)


def _is_no_meaning(flag: str, machine: bool) -> bool:
    if flag.startswith(_MEANING):
        return False
    if machine and flag.startswith("-m"):
        return False
    kept = ("-std", "-pthread", "-Wp,")
    dropped = ("-O", "-f", "-m", "-g", "-W", "-p", "--coverage", "-s", "-rdynamic")
    return flag.startswith(dropped) and not flag.startswith(kept)


# Functions that the nest does not need are dropped by the linker, and what only they miss is no error.
_UNNEEDED = ("-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections")


@dataclass(frozen=True)
class Toolchain:
    """The user's compiler and flags: verdicts and times are about exactly these, plus ``-fopenmp``."""

    cc: tuple[str, ...] = ("gcc",)
    flags: tuple[str, ...] = ("-O2",)
    cwd: str = "."
    link: tuple[str, ...] = ()
    openmp: bool = True
    accelerator: Accelerator | None = None

    @cached_property
    def version(self) -> str:
        return _compiler_version(self.cc)

    def command(
        self, subject: str, objects: Sequence[str], dependencies: str, output: str, quote_dir: str
    ) -> list[str]:
        """Compile the subject and link it with the driver and a candidate's own file."""
        openmp = ["-fopenmp"] if self.openmp else []
        return [
            *self.cc,
            *usable_flags(self.flags),
            *openmp,
            "-w",
            *(["-iquote", quote_dir] if quote_dir else []),
            *("-MMD", "-MF", dependencies, "-MT", "x"),
            *("-x", "c", subject, "-x", "none", *objects, "-o", output),
            *self.link,
            *(self.accelerator.link if self.accelerator else ()),
            "-lm",
            "-ldl",
            *_UNNEEDED,
        ]

    @property
    def unit_command(self) -> list[str]:
        """What compiles a candidate's own file for the processor; the flags are those of the subject."""
        openmp = ["-fopenmp"] if self.openmp else []
        return [*self.cc, *usable_flags(self.flags), *openmp, "-w", *_UNNEEDED[:2]]

    def plain_command(
        self, machine: bool, subject: str, dependencies: str, output: str, quote_dir: str
    ) -> list[str]:
        """A shared library without optimisation."""
        return [
            *self.cc,
            *plain_flags(self.flags, machine),
            *("-O0", "-ffp-contract=off", "-fPIC", "-shared", "-fvisibility=hidden", "-Wl,-Bsymbolic", "-w"),
            *(["-iquote", quote_dir] if quote_dir else []),
            *("-MMD", "-MF", dependencies, "-MT", "x"),
            *("-x", "c", subject, "-x", "none", "-o", output),
            *self.link,
            "-lm",
            *_UNNEEDED,
        ]

    def driver_command(self, source: str, output: str) -> list[str]:
        abi = [f for f in self.flags if f in ("-m32", "-m64", "-mx32") or f.startswith("-mabi")]
        return [*self.cc, *abi, "-O2", "-w", "-x", "c", "-c", source, "-o", output]


@cache
def _compiler_version(cc: tuple[str, ...]) -> str:
    try:
        done = subprocess.run(
            [*cc, "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    return lines[0].strip() if done.returncode == 0 and lines else ""


def compiler_reason(stderr: bytes) -> str:
    """The first error a compiler printed, in one line."""
    text = stderr.decode("utf-8", "replace")
    errors = [line for line in text.splitlines() if re.search(r"\berror\b|undefined reference", line)]
    return (errors or text.splitlines() or ["the compiler failed without a message"])[0].strip()[:400]
