"""Whole programs of a suite, original against ported: built in copies of the tree, run in turn, compared.

    tree -> copy without what is spliced, copy with it -> build both -> run both in turn -> same output? ratio

The commands are those of the configuration, as argument lists; nothing is built or run in the tree itself.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mdh_core.diagnostics import Refusal
from mdh_lift import config as configuration
from mdh_lift.scoreboard import Interval, Program
from mdh_lift.splice import original

_SKIPPED = shutil.ignore_patterns(".git", ".hg", ".svn", ".mdh-lift", "__pycache__", ".venv", "node_modules")
_NUMBER = re.compile(rb"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf)\b", re.IGNORECASE)
_MOST_OUTPUT = 64 << 20


class _FailedError(Exception):
    """A program cannot be compared; the message says why."""


@dataclass(frozen=True, slots=True)
class _Ran:
    output: bytes
    seconds: float


def compared(
    root: Path,
    program: configuration.Program,
    suite: configuration.Suite,
    changes: Mapping[str, bytes | None],
) -> Program:
    """One program.  ``changes``: files of the ported tree by absolute path (None: no such file)."""
    with tempfile.TemporaryDirectory(prefix="mdh-lift-suite-") as directory:
        places = [Path(directory, which) for which in ("original", "ported")]
        try:
            for place, ported in zip(places, (False, True), strict=True):
                _copy(root.resolve(), place, changes, ported)
                if program.build:
                    _run(program.build, place / program.directory, suite.seconds, "build")
            return _measured(program, suite, [p / program.directory for p in places])
        except _FailedError as failed:
            return Program(program.name, "failed", str(failed).replace(directory, "..."))


def _copy(root: Path, place: Path, changes: Mapping[str, bytes | None], ported: bool) -> None:
    """The tree with the changes, or as it was before anything was spliced."""
    try:
        shutil.copytree(root, place, symlinks=True, ignore=_SKIPPED)
        if not ported:
            for path in [p for p in place.rglob("*.c") if p.is_file() and not p.is_symlink()]:
                data = path.read_bytes()
                bare = original(data).data if b"mdh-lift begin" in data else data
                if bare != data:
                    path.write_bytes(bare)
            return
        for name, new in changes.items():
            path = Path(name)
            if not path.is_relative_to(root):
                continue
            path = place / path.relative_to(root)
            if new is None:
                path.unlink(missing_ok=True)
            else:
                path.write_bytes(new)
    except (OSError, shutil.Error) as error:
        raise _FailedError(f"the tree cannot be copied: {error}") from None
    except Refusal as refusal:
        raise _FailedError(refusal.diagnostic.message) from None


def _run(command: Sequence[str], directory: Path, seconds: float, what: str) -> _Ran:
    """Raises ``_FailedError`` for everything but exit status 0."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        started = time.monotonic()
        try:
            child = subprocess.Popen(
                list(command),
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        except OSError as error:
            raise _FailedError(f"{what} `{command[0]}`: {error.strerror}") from None
        try:
            status = child.wait(seconds)
        except subprocess.TimeoutExpired:
            raise _FailedError(f"{what} took longer than {seconds:g} s") from None
        finally:
            _kill_group(child)
        took = time.monotonic() - started
        err.seek(0)
        said = err.read(2000).decode(errors="replace").strip().splitlines()
        if status != 0:
            how = signal.Signals(-status).name if status < 0 else f"exit status {status}"
            raise _FailedError(f"{what} ended with {how}" + (f": {said[0]}" if said else ""))
        if out.seek(0, os.SEEK_END) > _MOST_OUTPUT:
            raise _FailedError(f"{what} printed more than {_MOST_OUTPUT >> 20} MiB")
        out.seek(0)
        return _Ran(out.read(), took)


def _kill_group(child: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _measured(program: configuration.Program, suite: configuration.Suite, places: Sequence[Path]) -> Program:
    from tuning.measure import median, median_interval, ratio_of
    from tuning.runner import default_cache_dir
    from tuning.turns import Turns

    def once(place: Path) -> _Ran:
        return _run(program.run, place, suite.seconds, "run")

    first, second, ported = once(places[0]), once(places[0]), once(places[1])
    if not _same(program.compare, first.output, second.output, places[0], suite.seconds):
        raise _FailedError("two runs of the original print different things")
    if not _same(program.compare, first.output, ported.output, places[0], suite.seconds):
        return Program(program.name, "different output", _difference(first.output, ported.output))
    pairs = []
    with Turns(default_cache_dir()).alone():
        for _ in range(max(1, suite.rounds)):
            pairs.append((once(places[0]).seconds, once(places[1]).seconds))
    times = []
    for k in (0, 1):
        own = [p[k] for p in pairs]
        low, high = median_interval(own, 0.95)
        times.append(
            Interval.rounded(median(own), *((min(own), max(own)) if math.isinf(high) else (low, high)))
        )
    r = ratio_of(pairs)
    return Program(
        program.name, "same output", "", times[0], times[1], Interval.rounded(r.median, r.low, r.high)
    )


# --------------------------------------------------------------------------- outputs


def _same(how: str | float | list[str], a: bytes, b: bytes, directory: Path, seconds: float) -> bool:
    if isinstance(how, str):
        return a == b
    if isinstance(how, list):
        with tempfile.TemporaryDirectory(prefix="mdh-lift-") as place:
            files = [Path(place, name) for name in ("original", "ported")]
            for file, data in zip(files, (a, b), strict=True):
                file.write_bytes(data)
            try:
                _run([*how, *map(str, files)], directory, seconds, "compare")
            except _FailedError as failed:
                if "exit status" not in str(failed):
                    raise
                return False
            return True
    return agree(a, b, float(how))


def agree(a: bytes, b: bytes, tolerance: float) -> bool:
    """Is the text the same, and are numbers in it within a relative tolerance?

    >>> agree(b"sum 1.0001", b"sum 1.0002", 1e-3), agree(b"sum 1", b"sum 1.1", 1e-3)
    (True, False)
    """
    if _NUMBER.split(a) != _NUMBER.split(b):
        return False
    pairs = zip(_NUMBER.findall(a), _NUMBER.findall(b), strict=True)
    return all(_near(float(x), float(y), tolerance) for x, y in pairs)


def _near(x: float, y: float, tolerance: float) -> bool:
    if math.isnan(x) or math.isnan(y):
        return math.isnan(x) and math.isnan(y)
    return x == y or abs(x - y) <= tolerance * max(abs(x), abs(y))


def _difference(a: bytes, b: bytes) -> str:
    """The first lines that differ."""
    for k, (x, y) in enumerate(zip(a.split(b"\n"), b.split(b"\n"), strict=False), 1):
        if x != y:
            shown = [line[:60].decode(errors="replace") for line in (x, y)]
            return f"line {k} of the output is `{shown[1]}` instead of `{shown[0]}`"
    return "one output is longer than the other"
