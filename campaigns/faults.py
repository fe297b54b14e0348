"""Running the command's writing verbs in child processes in which chosen calls fail or kill.

``preloaded`` starts this process anew with ``faults.c``; a ``Scene`` is a directory with files before and
after one verb; ``Scene.trial`` forks, arms, runs the verb as the command does, and says what came of it.
What takes long and writes nothing (lifting, search, verification) is done once, and its result given to the
verb; reading and everything from the database and the lock file on is the product's own code.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from emit.gpu_file import GpuFile
from mdh_lift import beside, cli, pipeline, recorded, verbs
from mdh_lift.files import Change, read_source
from mdh_lift.improve import Improvement
from mdh_lift.splice import SplicePart, splice
from tuning import lock as locks
from tuning.store import Context, Record, Store

_MARK = "MDH_LIFT_FAULTS"
ONCE, FROM_THEN_ON, KILL_BEFORE, KILL_AFTER, KILL_IN_WRITE, HALF_WRITE = range(6)
KILLS = {"before": KILL_BEFORE, "after": KILL_AFTER, "in a write": KILL_IN_WRITE}

SOURCE = b"""#include <stddef.h>
void axpy(float *restrict y, const float *restrict x, float a, size_t n)
{
#pragma mdh
    for (size_t i = 0; i < n; i++)
        y[i] = a * x[i] + y[i];
}
"""
_OLDER = beside._signed("f_cuda_mdh.cu", "f.c", "/* older kernels */")
_RECORDS = 5  # in the database from the start


def preloaded(module: str) -> ctypes.CDLL:
    """The library, which is there when the process is started with it; starts ``python -m module`` so."""
    path = os.environ.get(_MARK)
    if path is not None and Path(path).exists():
        library = ctypes.CDLL(path)
        library.fault_name.restype = ctypes.c_char_p
        library.fault_count.restype = ctypes.c_long
        library.fault_arm.argtypes = [ctypes.c_char_p, ctypes.c_long, ctypes.c_int, ctypes.c_int]
        return library
    with tempfile.TemporaryDirectory(prefix="faults-") as directory:
        made = str(Path(directory, "faults.so"))
        source = str(Path(__file__).with_name("faults.c"))
        subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", made, source, "-ldl"], check=True)
        environment = {**os.environ, "LD_PRELOAD": made, _MARK: made}
        command = [sys.executable, "-m", module, *sys.argv[1:]]
        raise SystemExit(subprocess.run(command, env=environment, check=False).returncode)


@contextlib.contextmanager
def quick_directory() -> Iterator[str]:
    """A new directory in memory where there is one: synchronising a disk is what takes longest."""
    memory = "/dev/shm"
    place = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="faults-", dir=place) as made:
        yield made


@dataclass(frozen=True, slots=True)
class Ended:
    """How a child ended: exit status, or minus the signal; what it printed; the calls it had made."""

    status: int
    text: str
    calls: int
    call: str


@dataclass
class Scene:
    """Files before a verb, the verb, and the files after it; names relative to the directory.

    work       what runs in the child; returns an exit status
    again      the next command, which puts right what is half done
    loose      names whose bytes may be anything that can be read (the database)
    """

    name: str
    before: Mapping[str, bytes]
    work: Callable[[Path], int]
    after: dict[str, bytes] = field(default_factory=dict)
    loose: tuple[str, ...] = ()

    def restore(self, directory: Path) -> None:
        shutil.rmtree(directory, ignore_errors=True)
        for name, data in self.before.items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_bytes(data)

    def content(self, directory: Path) -> dict[str, bytes]:
        return {
            str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("*") if p.is_file()
        }

    def count(self, library: ctypes.CDLL, directory: Path) -> int:
        """Calls of an undisturbed run; its files are what the others are held against."""
        self.restore(directory)
        with contextlib.chdir(directory):
            pipeline.check_source(read_source("f.c"))
        ended = self.trial(library, directory, 0, 0, ONCE)
        assert ended.status in (0, 1), ended
        self.after = self.content(directory)
        return ended.calls

    def trial(self, library: ctypes.CDLL, directory: Path, at: int, error: int, mode: int) -> Ended:
        started = self.start(library, directory, at, error, mode)
        return started.wait()

    def start(self, library: ctypes.CDLL, directory: Path, at: int, error: int, mode: int) -> Child:
        log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by the child's record
        read_end, write_end = os.pipe()
        pid = os.fork()
        if pid:
            os.close(write_end)
            return Child(pid, log, read_end)
        status = 99
        try:
            os.close(read_end)
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
            sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), write_through=True)
            sys.stderr = io.TextIOWrapper(io.FileIO(2, "w", closefd=False), write_through=True)
            os.chdir(directory)
            os.write(write_end, b"ready\n")
            library.fault_arm(os.fsencode(directory), at, error, mode)
            status = self.work(directory)
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1
        except BaseException:
            traceback.print_exc()
        finally:
            calls, call = library.fault_count(), library.fault_name().decode()
            library.fault_arm(b"", 0, 0, 0)
            os.write(write_end, f"{calls} {call}\n".encode())
            os._exit(status & 255)
        raise AssertionError


@dataclass
class Child:
    pid: int
    log: Any
    pipe: int

    def ready(self) -> None:
        """Returns when it is about to begin."""
        assert os.read(self.pipe, 6) == b"ready\n"
        self._begun = True

    _begun: bool = False

    def wait(self) -> Ended:
        if not self._begun:
            self.ready()
        with os.fdopen(self.pipe, "rb") as pipe:
            told = pipe.read().decode()
        _, status = os.waitpid(self.pid, 0)
        self.log.seek(0)
        text = self.log.read().decode("utf-8", "replace")
        self.log.close()
        calls, _, call = told.strip().partition(" ")
        return Ended(os.waitstatus_to_exitcode(status), text, int(calls or 0), call)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)


# --------------------------------------------------------------------------- the verbs


def command(*arguments: str) -> int:
    """The command in this process, as its entry point runs it."""
    try:
        cli.cli.main([*arguments], prog_name="mdh-lift")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    return 0


def _record(number: int) -> tuple[Context, Record]:
    context = Context("f.c::axpy::0", "hash", "machine", "n", "-O2", "gcc")
    return context, Record(f"{{{number}}}", "ok", times=(0.1, 0.2), text_hash=str(number), created=1.0)


def _entry() -> locks.Entry:
    return locks.Entry("f.c::axpy::0", "machine", "n", "hash", {"point": {"a": 1}}, "text", seed=3)


def _part(with_file: bool) -> SplicePart:
    inside = '#include "f_cuda_mdh.h"' if with_file else "static int axpy_kernel(void) { return 0; }"
    call = "axpy_cuda()" if with_file else "axpy_kernel()"
    start = SOURCE.index(b"void axpy")
    return SplicePart("axpy::0", start, SOURCE.index(b"    for") + 4, inside, call, source="0123456789abcdef")


def _change(path: str, with_file: bool, data: bytes | None = None) -> Change:
    data = SOURCE if data is None else data
    change = Change(path, data, splice(data, [_part(with_file)]))
    if not with_file:
        return change
    made = GpuFile("f_cuda_mdh", "/* kernels */\n" * 50, "int axpy_cuda(void);\n", "all:\n", ())
    return replace(change, beside=tuple(beside.files(path, made, "cuda", force=True)))


@contextlib.contextmanager
def _known_improvement(with_file: bool, records: bool) -> Iterator[None]:
    """The search and the verification give this."""
    name = "f.c::axpy::0"

    def improved(session: Any, report: Any, nest: Any, options: Any, stage: str) -> Any:
        def work() -> Improvement:
            if records:
                with recorded.store_of(options) as store:
                    for number in range(3):
                        store.add(*_record(100 + number))
            return Improvement(name, "", part=_part(with_file), entries=(_entry(),))

        return session.attempt(report.source.path, work)

    def changed(report: Any, *_: Any, **__: Any) -> Change:
        return _change(report.source.path, with_file, report.source.data)

    kept = verbs._improved, pipeline.splice_file, verbs.describe
    verbs.describe = lambda *_: ""
    verbs._improved, pipeline.splice_file = improved, changed
    try:
        yield
    finally:
        verbs._improved, pipeline.splice_file, verbs.describe = kept


def _improving(*arguments: str, with_file: bool = False, records: bool = False) -> Callable[[Path], int]:
    def work(_: Path) -> int:
        with _known_improvement(with_file, records):
            return command(*arguments)

    return work


def scenes(workshop: Path) -> list[Scene]:
    """All of them; files that take a run to make are made in ``workshop``."""
    files_of: dict[str, dict[str, bytes]] = {}
    for name, with_file in (("one", False), ("several", True)):
        directory = workshop / name
        directory.mkdir()
        path = directory / "f.c"
        path.write_bytes(SOURCE)
        change = _change(str(path), with_file)
        for part in change.all:
            beside.write(part, str(path))
        files_of[name] = {p.name: p.read_bytes() for p in directory.iterdir()}
    database = workshop / "tune.sqlite"
    with Store(database) as store:
        for number in range(_RECORDS):
            store.add(*_record(number))
    locks.update(workshop / "mdh-lift.lock", [replace(_entry(), nest="other.c::f::0")])
    lock = (workshop / "mdh-lift.lock").read_bytes()
    plain = {"f.c": SOURCE, "mdh-lift.toml": b""}
    stored = {**plain, ".mdh-lift/tune.sqlite": database.read_bytes(), "mdh-lift.lock": lock}
    loose = (".mdh-lift/tune.sqlite", ".mdh-lift/tune.sqlite.lock", ".mdh-lift/tune.sqlite-journal")

    several = {**plain, **files_of["several"]}
    older = {**files_of["several"], "f_cuda_mdh.cu": _OLDER, "f.c": files_of["one"]["f.c"]}
    again = _improving("splice", "-w", "--force", "f.c", with_file=True)

    def output(_: Path) -> int:
        return command("check", "--format", "json", "-o", "out.json", "f.c")

    return [
        Scene("splice", plain, _improving("splice", "-w", "f.c")),
        Scene("splice of several", plain, _improving("splice", "-w", "f.c", with_file=True)),
        Scene("splice of several again", {**plain, **older}, again),
        Scene("revert", {**plain, **files_of["one"]}, lambda _: command("revert", "-w", "f.c")),
        Scene("revert of several", several, lambda _: command("revert", "-w", "f.c")),
        Scene("tune", stored, _improving("tune", "f.c", records=True), loose=loose),
        Scene("output", {**plain, "out.json": b"{}\n"}, output, loose=("out.json",)),
        Scene("first tune", plain, _improving("tune", "f.c", records=True), loose=loose),
    ]  # fmt: skip


_lifted: dict[bytes, Any] = {}
_lift = pipeline.check_source


def _check_source(source: Any, options: Any = None) -> Any:
    """What was lifted before is known; children only ever see what their parent saw."""
    if source.data not in _lifted:
        _lifted[source.data] = _lift(source, options)
    return _lifted[source.data]


pipeline.check_source = _check_source


# --------------------------------------------------------------------------- what must hold


def faults_now(scene: Scene, directory: Path) -> list[str]:
    """Right after the verb was stopped: every file is the old or the new one, and the database is whole."""
    found = []
    now = scene.content(directory)
    for name in sorted({*scene.before, *scene.after} - set(scene.loose)):
        if now.get(name) not in (scene.before.get(name), scene.after.get(name)):
            found.append(f"{name} is neither old nor new")
    found += _database_faults(scene, directory / ".mdh-lift/tune.sqlite")
    if "out.json" in scene.before:
        json.loads(now["out.json"])  # of this run, or the old one; never a part
    lock = directory / "mdh-lift.lock"
    if lock.exists():
        locks.parse(lock.read_text())
    return found


def _database_faults(scene: Scene, path: Path) -> list[str]:
    if not path.exists():
        return ["the database is gone"] if ".mdh-lift/tune.sqlite" in scene.before else []
    if not path.stat().st_size and ".mdh-lift/tune.sqlite" not in scene.before:
        return []
    try:
        with Store(path) as store:
            known = {r.configuration for r in store.all(_record(0)[0])}
    except Exception as error:
        return [f"the database cannot be used: {error}"]
    with contextlib.closing(sqlite3.connect(path)) as connection:
        whole = connection.execute("PRAGMA integrity_check").fetchone()[0]
    lost = {f"{{{n}}}" for n in range(_RECORDS)} - known if ".mdh-lift/tune.sqlite" in scene.before else set()
    return ([] if whole == "ok" else [f"the database: {whole}"]) + [f"lost record {r}" for r in sorted(lost)]


def strange(scene: Scene, directory: Path) -> set[str]:
    """Names of files that are there neither before nor after the verb."""
    return set(scene.content(directory)) - {*scene.before, *scene.after, *scene.loose}


def faults_later(library: ctypes.CDLL, scene: Scene, directory: Path) -> list[str]:
    """After the same verb once more, undisturbed: what it makes, and nothing besides.

    Where all files are the old ones, or all are the new ones, that is known.
    """
    here = {n: d for n, d in scene.content(directory).items() if n not in scene.loose}
    ends = [{n: d for n, d in f.items() if n not in scene.loose} for f in (scene.before, scene.after)]
    if here in ends:
        return []
    ended = scene.trial(library, directory, 0, 0, ONCE)
    found = [] if ended.status in (0, 1) else [f"the next run ends with {ended.status}: {ended.text}"]
    now = scene.content(directory)
    found += [f"{n} is not as it should be" for n, d in scene.after.items()
              if n not in scene.loose and now.get(n) != d]  # fmt: skip
    found += [f"{name} should be gone" for name in sorted(set(now) - {*scene.after, *scene.loose})]
    return found + _database_faults(scene, directory / ".mdh-lift/tune.sqlite")


