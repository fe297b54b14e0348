"""Compiling and running programs that may be wrong: under limits, in parallel, every end an outcome.

Nothing here uses a shell.  A program runs in a session of its own with an empty standard input, few
environment variables, a temporary directory, limits on processor time, address space, files and processes,
and is killed as a group.  What it prints is capped; its results come through a descriptor of their own,
behind a key that only the driver knows.  ``confine.h`` says which system calls it cannot make; where they
cannot be filtered, processes that it left behind are looked for and killed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import resource
import secrets
import shutil
import signal
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import filelock
import platformdirs

from tuning.accelerator import why_not
from tuning.harness import ORIGINAL_ONLY, Candidate, Subject, driver_text, needs_value, subject_text
from tuning.processes import (
    OUTPUT_CAP,
    OUTPUT_FLOOD,
    TEMPORARY,
    TIMED_OUT,
    Ended,
    environment,
    is_left_over,
    kill_marked,
    run_process,
    sweep,
)
from tuning.toolchain import Toolchain, compiler_reason
from tuning.turns import Turns

CACHE_CAP = 512 << 20
PRUNE_INTERVAL = 600.0  # seconds; to look at thousands of entries takes longer than to compile a small one
_SAID = "unit.txt"  # beside a program: what the compiler of the candidate's own file said

OK = "ok"
COMPILE_FAILED = "compile_failed"
CRASHED = "crashed"
WRONG_RESULT = "wrong_result"
NO_MEMORY = "no_memory"
DECLINED = "declined"  # the candidate's guard let the original run at the size to tune for
CUT_OFF = "cut_off"  # much slower than the best so far; not measured to the end
ORIGINAL_FAILED = "original_failed"  # the fault is the nest's or the input's, not the candidate's
FORBIDDEN = "forbidden"  # a system call that no computation needs: processes, files, connections
TAMPERED = "tampered"  # something else than the harness wrote to the descriptor for results
OVER_LIMITS = "over_limits"  # needs more registers than the device has
NOT_GENERATED = "not_generated"  # no code exists for this configuration
UNKNOWN = "unknown"  # replay: nothing is recorded for this configuration
HARNESS_FAILED = "harness_failed"  # compiler missing, descriptor broken, ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a compilation, run or evaluation ended; ``reason`` is one line, ``data`` are plain values."""

    kind: str
    reason: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return self.kind == OK


@dataclass(frozen=True, slots=True)
class Limits:
    compile_seconds: float = 60.0
    run_seconds: float = 30.0
    memory_bytes: int = 16 << 30
    file_bytes: int = 16 << 20


_LOST_RESULTS = 95  # exit status of the driver: see confine.h
_RUN_ENV = ("PATH", "LD_LIBRARY_PATH")
_COMPILE_ENV = (
    *_RUN_ENV,
    "HOME",
    "CPATH",
    "C_INCLUDE_PATH",
    "LIBRARY_PATH",
    "COMPILER_PATH",
    "GCC_EXEC_PREFIX",
)


class Cache:
    """Finished programs by content.  An entry also names the headers it was made from, with their hashes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)

    def find(self, key: str) -> Path | None:
        entry = self.root / key
        try:
            headers: dict[str, str] = json.loads((entry / "headers.json").read_bytes())
        except (OSError, ValueError):
            return None
        if any(_file_hash(path) != digest for path, digest in headers.items()):
            return None
        with suppress(OSError):
            os.utime(entry)
        return entry

    def add(self, key: str, made: Path, headers: Iterable[str]) -> Path:
        """Move a directory of finished files into the cache; whoever comes second uses the first one's."""
        (made / "headers.json").write_text(json.dumps({h: _file_hash(h) for h in sorted(headers)}))
        entry = self.root / key
        for _ in range(3):
            try:
                made.rename(entry)
                break
            except OSError:
                if self.find(key) is not None:
                    break
                stale = Path(tempfile.mkdtemp(dir=self.root, prefix=f"stale-{os.getpid()}-"))
                with suppress(OSError):
                    entry.rename(stale / "entry")
                shutil.rmtree(stale, ignore_errors=True)
        return entry

    def prune(self, cap: int = CACHE_CAP) -> None:
        """Drop the entries longest unused until the rest fits."""
        total, now = 0, time.time()
        for used, size, entry in sorted(self._entries(), reverse=True):
            total += size
            unfinished = entry.name.startswith(("tmp-", "stale-"))
            if is_left_over(entry.name) or (now - used > 86400 if unfinished else total > cap):
                shutil.rmtree(entry, ignore_errors=True)

    def prune_at_times(self) -> None:
        """``prune``, unless some process has within ``PRUNE_INTERVAL``."""
        stamp = self.root.with_name(f"{self.root.name}.pruned")
        with suppress(OSError):
            if 0 <= time.time() - stamp.stat().st_mtime < PRUNE_INTERVAL:
                return
        with suppress(OSError):
            stamp.touch()
        self.prune()

    def _entries(self) -> Iterator[tuple[float, int, Path]]:
        with os.scandir(self.root) as entries:
            for entry in entries:
                with suppress(OSError), os.scandir(entry.path) as files:  # others may remove what we look at
                    size = sum(f.stat().st_size for f in files)
                    yield entry.stat().st_mtime, size, Path(entry.path)


def _file_hash(path: str) -> str:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return ""


def _dependencies(path: Path, but: str, cwd: str) -> list[str]:
    """Files named by a make rule, without the source itself; absolute."""
    try:
        text = path.read_text("utf-8", "surrogateescape").replace("\\\n", " ").partition(":")[2]
    except OSError:
        return []
    names = [re.sub(r"\\(.)", r"\1", n).replace("$$", "$") for n in re.findall(r"(?:\\.|\S)+", text)]
    return [str(Path(cwd).absolute() / n) for n in names if n != but]


# --------------------------------------------------------------------------- the workbench


def default_cache_dir() -> Path:
    chosen = os.environ.get("MDH_LIFT_CACHE_DIR")
    return Path(chosen) if chosen else Path(platformdirs.user_cache_dir("mdh-lift"))


@dataclass
class Workbench:
    """Where programs are built and run: toolchain, limits, threads, cache.

    ``huge_pages``: the arrays of programs that are timed ask for them, as NumPy's do.
    """

    toolchain: Toolchain = field(default_factory=Toolchain)
    limits: Limits = field(default_factory=Limits)
    threads: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))
    jobs: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))
    cache_dir: Path = field(default_factory=default_cache_dir)
    huge_pages: bool = False
    turns: Turns | None = None  # with other processes of the same run

    @cached_property
    def _cache(self) -> Cache:
        cache = Cache(Path(self.cache_dir) / "programs")
        cache.prune_at_times()
        sweep()
        return cache

    def build(self, subject: Subject, candidate: Candidate) -> Outcome:
        """Compile and link; ``data["program"]`` is the path of the executable."""
        directory = Path(subject.directory or Path(subject.path).parent).absolute()
        return self._build_text(
            subject_text(subject, candidate), str(directory) if directory.is_dir() else "", candidate.unit
        )

    def build_plain(self, subject: Subject) -> Outcome:
        """The original nest without optimisation; ``data["library"]`` is the path of a shared library."""
        if not self.toolchain.version:
            return self._no_compiler()
        directory = Path(subject.directory or Path(subject.path).parent).absolute()
        quote_dir = str(directory) if directory.is_dir() else ""
        text = subject_text(subject, ORIGINAL_ONLY)
        cwd = str(Path(self.toolchain.cwd).absolute())
        built = Outcome(COMPILE_FAILED)
        for machine in (False, True):
            made_by = self.toolchain.plain_command(machine, "s", "d", "o", quote_dir)
            chain = repr((made_by, cwd, self.toolchain.version))
            key = "plain-" + hashlib.sha256(chain.encode() + b"\0" + text).hexdigest()
            entry = self._cache.find(key)
            if entry is not None:
                return Outcome(OK, data={"library": str(entry / "library.so")})
            built = self._compile_plain(key, text, machine, quote_dir)
            if built.kind != COMPILE_FAILED:
                break
        return built

    def _compile_plain(self, key: str, text: bytes, machine: bool, quote_dir: str) -> Outcome:
        with self._making() as made:
            source, rule, output = made / "subject.c", made / "rule.d", made / "library.so"
            source.write_bytes(text)
            command = self.toolchain.plain_command(machine, str(source), str(rule), str(output), quote_dir)
            ended = self._run_compiler(command, made)
            if ended.killed or ended.status != 0:
                return Outcome(ended.killed or COMPILE_FAILED, compiler_reason(ended.stderr))
            entry = self._cache.add(key, made, _dependencies(rule, str(source), self.toolchain.cwd))
        return Outcome(OK, data={"library": str(entry / "library.so")})

    def build_many(self, subject: Subject, candidates: Sequence[Candidate]) -> list[Outcome]:
        if not candidates:
            return []
        self._driver()  # once, before all would make it
        if self.turns is not None:
            self.turns.pause()
        with ThreadPoolExecutor(max(1, self.jobs)) as pool:
            return list(pool.map(lambda c: self.build(subject, c), candidates))

    def _build_text(self, text: bytes, quote_dir: str, unit: str) -> Outcome:
        if not self.toolchain.version:
            return self._no_compiler()
        chain = repr(
            (self.toolchain, str(Path(self.toolchain.cwd).absolute()), self.toolchain.version, quote_dir)
        )
        parts = (chain.encode(), text, unit.encode())
        key = hashlib.sha256(driver_text() + b"\0".join(parts)).hexdigest()
        entry = self._cache.find(key)
        if entry is not None:
            return self._built(entry, unit, cached=True)
        driver = self._driver()
        return self._compile(key, text, driver.data["object"], quote_dir, unit) if driver.ok else driver

    def _no_compiler(self) -> Outcome:
        return Outcome(HARNESS_FAILED, f"the compiler {' '.join(self.toolchain.cc)} cannot be run")

    def _driver(self) -> Outcome:
        if not self.toolchain.version:
            return self._no_compiler()
        text = driver_text()
        chain = repr((self.toolchain.driver_command("s", "o"), self.toolchain.version))
        key = "driver-" + hashlib.sha256(chain.encode() + text).hexdigest()
        entry = self._cache.find(key)
        if entry is None:
            with self._making() as made:
                (made / "driver.c").write_bytes(text)
                command = self.toolchain.driver_command(str(made / "driver.c"), str(made / "driver.o"))
                ended = self._run_compiler(command, made)
                if ended.status != 0 or ended.killed:
                    return Outcome(
                        HARNESS_FAILED, "the driver does not compile: " + compiler_reason(ended.stderr)
                    )
                entry = self._cache.add(key, made, ())
        return Outcome(OK, data={"object": str(entry / "driver.o")})

    def _compile(self, key: str, text: bytes, driver: str, quote_dir: str, unit: str) -> Outcome:
        with self._making() as made:
            source, output = made / "subject.c", made / "program"
            source.write_bytes(text)
            rule = made / "rule.d"
            objects = [driver]
            commands: list[list[str]] = []
            if unit:
                commands, own = self._unit(unit, made)
                objects.append(own)
            commands.append(self.toolchain.command(str(source), objects, str(rule), str(output), quote_dir))
            for command in commands:
                ended = self._run_compiler(command, made)
                if ended.killed:
                    return Outcome(ended.killed, f"the compiler was stopped after {ended.seconds:.0f} s")
                if ended.status != 0:
                    return Outcome(COMPILE_FAILED, compiler_reason(ended.stderr))
                if "-c" in command:
                    (made / _SAID).write_bytes(ended.stderr)
            headers = _dependencies(rule, str(source), self.toolchain.cwd)
            entry = self._cache.add(key, made, headers)
        return self._built(entry, unit, cached=False)

    def _built(self, entry: Path, unit: str, cached: bool) -> Outcome:
        """``over_limits`` is why the device would run the program badly, if at all; empty otherwise."""
        by, reason = self.toolchain.accelerator, None
        if unit and by is not None:
            with suppress(OSError):
                reason = why_not(by, unit, (entry / _SAID).read_text("utf-8", "replace"))
        data = {"program": str(entry / "program"), "cached": cached, "over_limits": reason or ""}
        return Outcome(OK, data=data)

    def _unit(self, text: str, made: Path) -> tuple[list[list[str]], str]:
        """The command that compiles a candidate's own file, and the object that it makes."""
        by = self.toolchain.accelerator
        source, own = made / (f"unit{by.suffix}" if by is not None else "unit.c"), str(made / "unit.o")
        source.write_text(text)
        compiler = list(by.compile) if by is not None else self.toolchain.unit_command
        return [[*compiler, "-c", str(source), "-o", own]], own

    @contextmanager
    def _making(self) -> Iterator[Path]:
        made = Path(tempfile.mkdtemp(dir=self._cache.root, prefix=f"tmp-{os.getpid()}-"))
        try:
            yield made
        finally:
            shutil.rmtree(made, ignore_errors=True)

    def _run_compiler(self, command: list[str], temporary: Path) -> Ended:
        seconds = self.limits.compile_seconds
        return run_process(
            command,
            cwd=self.toolchain.cwd,
            env=environment(_COMPILE_ENV, str(temporary)),
            seconds=seconds,
            limits={resource.RLIMIT_CPU: int(seconds) + 2, resource.RLIMIT_CORE: 0},
        )

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """One measurement at a time on this machine."""
        if self.turns is not None:
            with self.turns.alone():
                yield
            return
        Path(self.cache_dir).mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(str(Path(self.cache_dir) / "measure.lock")):
            yield

    def run(
        self,
        program: str,
        cases: Sequence[str],
        *,
        seconds: float = 0.0,
        threads: int = 0,
        timed: bool = True,
        enough: float = 0.0,
    ) -> Outcome:
        """Run the cases (see ``driver.c``) of a program; ``data["lines"]`` are the results.

        ``enough``: seconds after which no further comparison begins; 0: all are made.

        Where nothing is ``timed``, threads that wait leave the cores to others: many short parallel regions
        would take very long on a busy machine.
        """
        wall = seconds or self.limits.run_seconds
        threads = threads or self.threads
        if self.turns is not None and not timed:
            self.turns.pause()
        confine = self.toolchain.accelerator is None  # a driver of GPUs opens devices and starts compilers
        key = secrets.token_hex(16)
        with tempfile.TemporaryDirectory(
            prefix=f"{TEMPORARY}{os.getpid()}-", ignore_cleanup_errors=True
        ) as directory:
            spec = Path(directory) / "spec"
            spec.write_text(f"enough {enough}\n" + "".join(cases))
            env = environment(_RUN_ENV, directory, OMP_NUM_THREADS=str(threads), OMP_DYNAMIC="false")
            if self.toolchain.accelerator is not None:
                env |= self.toolchain.accelerator.environment()
            if not timed:
                env["OMP_WAIT_POLICY"] = "passive"
            ended = run_process(
                [program, str(spec), "{fd}", "key=0"],
                cwd=directory,
                env=env,
                seconds=wall,
                results=True,
                given=_limits_line(key, self.limits, wall, threads, confine),
            )
            if _confined(ended, key) != 1:
                kill_marked(directory)
        return classify(ended, key)


def _limits_line(key: str, limits: Limits, wall: float, threads: int, confine: bool) -> bytes:
    """What ``confine.h`` reads: key, address space, processor time, size of files, core, tasks, filter."""
    values = (
        limits.memory_bytes + threads * (192 << 20),  # stacks and malloc arenas are reserved per thread
        int(wall * (threads + 1)) + 2,
        limits.file_bytes,
        0,
        _tasks_on_machine() + threads + 128,
        int(confine),
    )
    return f"{key} {' '.join(map(str, values))}\n".encode()


def _confined(ended: Ended, key: str) -> int:
    lines, _ = _lines_of(ended.results, key)
    return int(next((line["confined"] for line in lines if "confined" in line), 0))


def _tasks_on_machine() -> int:
    try:
        return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    except (OSError, ValueError, IndexError):
        return 4096


def classify(ended: Ended, key: str = "") -> Outcome:
    """What the end of a harness program means; ``key`` is what its lines begin with."""
    lines, foreign = _lines_of(ended.results, key)
    phase = next((line["phase"] for line in reversed(lines) if "phase" in line), "")
    case = next((line["case"] for line in reversed(lines) if "case" in line), -1)
    data = {"lines": lines, "phase": phase, "case": case, "seconds": ended.seconds}
    kind, reason = _ending(ended, lines, foreign)
    if phase == "original" and kind in (CRASHED, TIMED_OUT, OUTPUT_FLOOD, FORBIDDEN, TAMPERED):
        return Outcome(ORIGINAL_FAILED, f"the original nest: {reason}", {**data, "how": kind})
    return Outcome(kind, reason, data)


_EVENTS = {"no_memory": NO_MEMORY, "forbidden": FORBIDDEN}


def _ending(ended: Ended, lines: list[dict[str, Any]], foreign: bool) -> tuple[str, str]:
    event = next((line for line in lines if "event" in line), None)
    if event is not None:
        return _EVENTS.get(event["event"], HARNESS_FAILED), str(event["detail"])
    if foreign:
        return TAMPERED, "it wrote to the descriptor for results"
    if ended.killed == OUTPUT_FLOOD:
        return OUTPUT_FLOOD, f"more than {OUTPUT_CAP} bytes of output"
    if ended.killed == TIMED_OUT or ended.status == -signal.SIGXCPU:
        return TIMED_OUT, f"not finished after {ended.seconds:.1f} s"
    if ended.status == -signal.SIGKILL:
        return NO_MEMORY, "killed from outside, most likely because memory ran out"
    if ended.status == -signal.SIGSYS:
        return FORBIDDEN, "a system call of another architecture, or while the signal for it was blocked"
    if ended.status < 0:
        return CRASHED, f"signal {-ended.status} ({_signal_name(-ended.status)})"
    if ended.status == 127 and not lines:
        return HARNESS_FAILED, "the program does not start: " + ended.stderr.decode(
            "utf-8", "replace"
        ).strip()[-200:]
    if ended.status == _LOST_RESULTS:
        return CRASHED, "it closed the descriptor for results, or a copy of the process went on"
    if not any("done" in line for line in lines):
        return CRASHED, f"ended with status {ended.status} before its results were complete"
    return OK, ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


def _lines_of(raw: bytes, key: str) -> tuple[list[dict[str, Any]], bool]:
    """The driver's lines, each behind the key and a blank, and whether there is anything else."""
    head = f"{key} ".encode() if key else b""
    lines: list[dict[str, Any]] = []
    foreign = False
    for line in raw.splitlines():
        if not line.startswith(head):
            foreign = True
            continue
        with suppress(ValueError):
            value = json.loads(line.removeprefix(head))
            if isinstance(value, dict):
                lines.append(value)
    return lines, foreign


# --------------------------------------------------------------------------- cases as text


def case_text(
    number: int, mode: str, subject: Subject, sizes: Mapping[str, int | float], settings: Mapping[str, object]
) -> str | None:
    """One case of the driver's specification; None where the sizes make no sense for the nest."""
    integers = {name: int(value) for name, value in sizes.items() if isinstance(value, int)}
    counts = subject.counts(integers)
    if counts is None or any(n < 0 for n in counts.values()):
        return None
    given = {a.name for a in subject.args if needs_value(a)}
    lines = [f"case {number} {mode}", f"set length {max(1, subject.length(integers))}"]
    lines += [f"set {key} {value}" for key, value in settings.items()]
    lines += [f"p {name} {value}" for name, value in sizes.items() if name in given]
    lines += [f"c {name} {count}" for name, count in counts.items()]
    lines += [f"d {name} {step}" for name, step in subject.diagonals(integers).items()]
    lines += [
        f"{'ba'[x.ascending]} {name} {x.below} {x.first}" for name, x in subject.indices(integers).items()
    ]
    return "\n".join(lines) + "\nend\n"
