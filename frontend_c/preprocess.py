"""Running ``cc -E`` on text, without a shell, with limits, and with GNU words out of the way.

The text goes in through standard input, so that a file with a hole in it (``hole.py``) needs no
place on disk; ``-iquote`` and the working directory make ``#include "x.h"`` mean what it means for
the file itself.  Only flags that change what the preprocessor sees are kept; flags that make a
compiler run other code are named and dropped, since a look at a file must not run any.  A command that is
``buffer_only`` starts no compiler at all (``buffer_only.py``).
``-DMDH_LIFT_OFF`` makes a file with spliced code read as its original.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import tempfile
import threading
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from frontend_c import compilers
from frontend_c.buffer_only import buffer_text
from mdh_core.diagnostics import Diagnostic, refuse
from mdh_core.source import NO_SPAN, SourceFile, Span

TIME_LIMIT = 60.0  # seconds
OUTPUT_LIMIT = 128 * 2**20  # bytes
STDIN_NAME = "<stdin>"

# What GNU headers use and the parser does not know.  Sizes of some types change, which is
# harmless: only names of types are taken from headers.
SHIMS = (
    "__attribute__(x)=", "__attribute(x)=", "__extension__=", "__asm__(...)=", "__asm(...)=",
    "__declspec(x)=", "__restrict=restrict", "__restrict__=restrict", "__inline=inline",
    "__inline__=inline", "__const=const", "__const__=const", "__volatile__=volatile",
    "__volatile=volatile", "__signed__=signed", "__signed=signed", "__alignof__=_Alignof",
    "__thread=", "__builtin_va_list=int", "__float128=double", "_Float128=double",
    "_Float16=float", "__bf16=float", "_Float32=float", "_Float64=double", "_Float32x=double",
    "_Float64x=double", "_Nullable=", "_Nonnull=", "_Noreturn=",
)  # fmt: skip

_WITH_ARGUMENT = ("-I", "-isystem", "-iquote", "-idirafter", "-include", "-imacros", "-D", "-U")
_PATHS = ("-I", "-isystem", "-iquote", "-idirafter", "-include", "-imacros")
_KEPT = re.compile(r"-(std=.*|ansi|m(?!llvm).*|f(no-)?(un)?signed-char|fopenmp|pthread)$")
_TWO_WORDS = frozenset((
    "-o", "-x", "-MF", "-MT", "-MQ", "-Xclang", "-Xpreprocessor", "-Xassembler", "-Xlinker", "-wrapper",
    "-specs", "-B", "-L", "-l", "-arch", "-target", "-T", "-u", "-z", "-mllvm", "-load", "--param",
    "-aux-info", "-dumpbase",
))  # fmt: skip
_RUNS_CODE = re.compile(
    r"(-fplugin|-fpass-plugin|-load|-?-specs|-wrapper|@|-B|-Xclang|-Xpreprocessor|-Wp,|-no-integrated-cpp)"
)
_MESSAGE = re.compile(
    r"^(?P<file>[^\n:]+):(?P<line>\d+):(?:(?P<col>\d+):)? (?:fatal )?error: (?P<text>.*)$", re.M
)


@dataclass(frozen=True, slots=True)
class CompileCommand:
    """How a file is compiled: compiler, flags without input and output, working directory."""

    compiler: str = ""
    flags: tuple[str, ...] = ()
    directory: str = "."
    buffer_only: bool = False  # start nothing: read the text alone
    trees: tuple[str, ...] = ()  # the project that the command comes with; none: the user gave it


def find_compiler(trees: tuple[str, ...] = ()) -> str:
    """Path of cc, gcc or clang, whichever comes first; not inside of ``trees``."""
    path = _find_compiler(os.environ.get("PATH", os.defpath), trees)
    if not path:
        raise refuse("MDH801", "no C compiler was found", help="install gcc or clang")
    return path


@cache
def _find_compiler(_path: str, trees: tuple[str, ...]) -> str:
    return next((p for name in ("cc", "gcc", "clang") if (p := compilers.search(name, trees))), "")


def analysis_compiler(command: CompileCommand) -> str:
    """The command's compiler if it is one by name that may be started, else any compiler.

    A project may name any program; only compilers outside of it are started (``compilers.py``).
    """
    path = None
    if compilers.is_reader(command.compiler) and not compilers.why_not(command.compiler, command.trees):
        path = compilers.found(command.compiler, command.trees)
    return path or find_compiler(command.trees)


def compiler_not_started(command: CompileCommand, code: str = "MDH824") -> Diagnostic | None:
    """MDH824 (MDH829 where it is needed) if the project names a compiler that is not started."""
    reason = compilers.why_not(command.compiler, command.trees)
    if not reason:
        return None
    return Diagnostic(
        code,
        f"the project's compiler `{command.compiler}` is not started: {reason}",
        notes=("a compile database or a configuration file may not choose which program runs",),
        help="name the compiler yourself, after `--`",
    )


def analysis_flags(command: CompileCommand) -> tuple[tuple[str, ...], tuple[Diagnostic, ...]]:
    """Flags that matter for reading, paths made absolute, and a warning for each dangerous one."""
    kept: list[str] = []
    warnings: list[Diagnostic] = []
    flags = list(command.flags)
    while flags:
        flag = flags.pop(0)
        option = next((o for o in _WITH_ARGUMENT if flag.startswith(o)), None)
        if flag.startswith(("-include-pch", "-Bsymbolic")):
            continue
        if option is not None:
            argument = flag[len(option) :] or (flags.pop(0) if flags else "")
            if option in ("-include", "-imacros") and _is_special(Path(command.directory, argument)):
                warnings.append(_dropped(f"{option} {argument}"))
                continue
            kept += _with_argument(option, argument, command.directory)
        elif _RUNS_CODE.match(flag):
            warnings.append(_dropped(flag))
        elif _KEPT.match(flag):
            kept.append(flag)
        if flag in _TWO_WORDS and flags:
            flags.pop(0)
    return tuple(kept), tuple(warnings)


def _with_argument(option: str, argument: str, directory: str) -> list[str]:
    if option in _PATHS:
        path = Path(directory, argument).absolute()
        searched = option in ("-include", "-imacros") and not path.exists()
        argument = _no_file_of_flags(argument) if searched else str(path)
    return [option + argument] if option in ("-I", "-D", "-U") else [option, argument]


def _no_file_of_flags(argument: str) -> str:
    """Compilers read flags from the file behind an `@` at the start of a word."""
    return f"./{argument}" if argument.startswith("@") else argument


def _is_special(path: Path) -> bool:
    """A device, a pipe, a socket: reading it may never end."""
    try:
        return path.exists() and not path.is_file()
    except (OSError, ValueError):
        return True


def _dropped(flag: str) -> Diagnostic:
    return Diagnostic(
        "MDH002",
        f"flag `{flag}` is ignored while reading",
        severity="warning",
        notes=("it would make the compiler run or read something else than the file",),
        help="pass what it stands for as plain -I, -D and -std flags",
    )


@dataclass(frozen=True, slots=True)
class _Outcome:
    status: int
    out: bytes
    errors: str
    limit: str = ""  # which limit was hit


def _run(arguments: list[str], data: bytes, directory: str) -> _Outcome:
    """Run a program on ``data`` as its standard input; at most so long, at most so much output."""
    environment = {**os.environ, "LC_ALL": "C"}
    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as stderr:
        stdin.write(data)
        stdin.seek(0)
        process = subprocess.Popen(
            arguments, stdin=stdin, stdout=subprocess.PIPE, stderr=stderr, cwd=directory,
            env=environment, process_group=0,
        )  # fmt: skip
        late = threading.Event()

        def kill() -> None:
            late.set()
            _kill_group(process.pid)

        timer = threading.Timer(TIME_LIMIT, kill)
        timer.start()
        try:
            assert process.stdout is not None
            out = process.stdout.read(OUTPUT_LIMIT + 1)
            if len(out) > OUTPUT_LIMIT:
                _kill_group(process.pid)
            process.stdout.close()
            status = process.wait()
        finally:
            timer.cancel()
        stderr.seek(0)
        errors = stderr.read(2**20).decode("utf-8", "replace")
    limit = "time" if late.is_set() else "output" if len(out) > OUTPUT_LIMIT else ""
    return _Outcome(status, out, errors, limit)


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def preprocess(
    source: SourceFile, command: CompileCommand, data: bytes | None = None, dump: str = ""
) -> bytes:
    """What ``cc -E`` prints for the file (or for ``data`` in its place); a ``Refusal`` on errors.

    ``dump``: "-dM" for the definitions of all macros instead, "-dD" for those as well, where they stand.
    """
    if command.buffer_only:
        return b"" if dump else buffer_text(source.data if data is None else data)
    folder = str(Path(os.path.realpath(Path(command.directory, source.path))).parent)
    if not Path(folder).is_dir():
        folder = str(Path(command.directory).absolute())
    flags, _ = analysis_flags(command)
    arguments = [analysis_compiler(command), "-E", "-x", "c", *flags, "-iquote", folder, "-w"]
    arguments += [f"-D{shim}" for shim in SHIMS] + ["-DMDH_LIFT_OFF", *([dump] if dump else []), "-"]
    try:
        outcome = _run(arguments, source.data if data is None else data, folder)
    except OSError as error:
        raise refuse(
            "MDH801", f"the compiler cannot be started: {error.strerror}", file=source.path
        ) from error
    if outcome.limit:
        raise refuse("MDH002", f"the preprocessor exceeds the {outcome.limit} limit", file=source.path)
    if outcome.status:
        raise refuse_with_message(source, outcome.errors, folder)
    return outcome.out


def refuse_with_message(source: SourceFile, errors: str, folder: str = "") -> Exception:
    """MDH002 at the place of the compiler's first error; ``folder`` is where the compiler ran."""
    found = _MESSAGE.search(errors)
    if found is None:
        lines = errors.strip().splitlines()
        return refuse("MDH002", "the preprocessor failed", file=source.path, notes=tuple(lines[:1]))
    line, text = int(found["line"]), found["text"].strip()
    here = found["file"] == STDIN_NAME
    span = _text_of_line(source, line) if here else NO_SPAN
    missing = re.match(r"'?([^':]+)'?(?:: No such file or directory| file not found)", text)
    return refuse(
        "MDH002",
        f"header `{missing[1]}` is not found" if missing else f"preprocessing failed: {text}",
        span,
        file=source.path if here else _as_named(source, found["file"], folder),
        line=line,
        help="name its directory: `-- cc -I DIR`" if missing else "give the file's own flags after `-- cc`",
    )


def _as_named(source: SourceFile, header: str, folder: str) -> str:
    """A header's name, from where the source's name counts from; the compiler ran in ``folder``."""
    path = os.path.realpath(Path(folder, header))
    parent = Path(source.path).parent
    above = os.path.normpath(Path(folder, *[".."] * len(parent.parts)))
    if not folder or parent.is_absolute() or ".." in parent.parts or not Path(path).is_relative_to(above):
        return path if folder else header
    return os.path.relpath(path, above)


def _text_of_line(source: SourceFile, line: int) -> Span:
    """A line without its indentation."""
    if not 1 <= line <= source.line_count:
        return NO_SPAN
    span = source.line_span(line)
    text = source.data[span.start : span.end]
    return Span(span.end - len(text.lstrip()), span.end)
