"""Starting programs that may be wrong, reading what they write, and removing what they leave.

Argument lists in, ``Ended`` values out: a program runs in a session of its own, with an empty standard input
and few environment variables; what it writes is capped; it is killed as a group.  Shown right by
``tests/test_hostile.py``, which starts programs that try to escape.
"""

from __future__ import annotations

import os
import re
import resource
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

OUTPUT_CAP = 1 << 20
RESULT_CAP = 16 << 20
TEMPORARY = "mdh-lift-"  # directories of runs: mdh-lift-PID-...
TIMED_OUT = "timed_out"
OUTPUT_FLOOD = "output_flood"


@dataclass(frozen=True, slots=True)
class Ended:
    """A finished process: its status (negative: signal), why we killed it, and what it wrote."""

    status: int
    killed: str  # "" | "timed_out" | "output_flood"
    stdout: bytes
    stderr: bytes
    results: bytes = b""
    seconds: float = 0.0


def environment(names: Iterable[str], temporary: str, **extra: str) -> dict[str, str]:
    kept = {n: os.environ[n] for n in names if n in os.environ}
    return {**kept, "LC_ALL": "C", "TMPDIR": temporary, **extra}


def run_process(
    argv: Sequence[str],
    *,
    cwd: str,
    env: Mapping[str, str],
    seconds: float,
    results: bool = False,
    limits: Mapping[int, int] | None = None,
    given: bytes | None = None,
) -> Ended:
    """Run to the end or kill the group.  ``{fd}`` in an argument becomes the result descriptor's number.

    ``given``: standard input, at most what a pipe holds; None: empty.
    """
    read_end, write_end = os.pipe() if results else (-1, -1)
    try:
        started = time.monotonic()
        process = subprocess.Popen(
            [a.replace("{fd}", str(write_end)) for a in argv] if results else list(argv),
            cwd=cwd,
            env=dict(env),
            stdin=subprocess.DEVNULL if given is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(write_end,) if results else (),
            start_new_session=True,
        )
        if given is not None and process.stdin is not None:
            with suppress(BrokenPipeError), process.stdin as stdin:
                stdin.write(given)
        for which, value in (limits or {}).items():
            with suppress(OSError, ValueError):
                resource.prlimit(process.pid, which, (value, value))
    except BaseException:
        if results:
            os.close(read_end)
        raise
    finally:
        if results:
            os.close(write_end)
    assert process.stdout is not None and process.stderr is not None
    result_pipe = os.fdopen(read_end, "rb", buffering=0) if results else None
    pipes = [(process.stdout, OUTPUT_CAP), (process.stderr, OUTPUT_CAP)]
    pipes += [(result_pipe, RESULT_CAP)] if result_pipe else []
    try:
        killed, texts = _watch(process, pipes, started + seconds)
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # not yet waited for, so the group is still ours
        process.wait()
        for pipe, _ in pipes:
            pipe.close()
    return Ended(
        process.returncode,
        killed,
        texts[0],
        texts[1],
        texts[2] if results else b"",
        time.monotonic() - started,
    )


def _watch(
    process: subprocess.Popen[bytes], pipes: Sequence[tuple[IO[bytes], int]], deadline: float
) -> tuple[str, list[bytes]]:
    """Collect output until the process ends, time is up, or it wrote too much."""
    chunks: list[list[bytes]] = [[] for _ in pipes]
    sizes = [0] * len(pipes)
    with selectors.DefaultSelector() as selector:
        pidfd = os.pidfd_open(process.pid)
        try:
            selector.register(pidfd, selectors.EVENT_READ, -1)
            for k, (pipe, _) in enumerate(pipes):
                os.set_blocking(pipe.fileno(), False)
                selector.register(pipe, selectors.EVENT_READ, k)
            ended, killed = False, ""
            while not ended and not killed:
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    killed = TIMED_OUT
                for key, _ in selector.select(max(0.0, remaining)):
                    ended = ended or key.data == -1
                    if key.data >= 0 and not _drain(
                        key.fd, chunks[key.data], sizes, key.data, pipes[key.data][1]
                    ):
                        selector.unregister(key.fileobj)
                if any(size > cap for size, (_, cap) in zip(sizes, pipes, strict=True)):
                    killed = OUTPUT_FLOOD
        finally:
            os.close(pidfd)
    for k, (pipe, cap) in enumerate(pipes):
        _drain(pipe.fileno(), chunks[k], sizes, k, cap)
    if not killed and any(size > cap for size, (_, cap) in zip(sizes, pipes, strict=True)):
        killed = OUTPUT_FLOOD
    return killed, [b"".join(c) for c in chunks]


def _drain(fd: int, chunks: list[bytes], sizes: list[int], k: int, cap: int) -> bool:
    """Read what is there, keeping at most ``cap`` bytes; False at end of file."""
    while sizes[k] <= cap:
        try:
            data = os.read(fd, 1 << 16)
        except BlockingIOError:
            return True
        if not data:
            return False
        sizes[k] += len(data)
        chunks.append(data)
    return True


# --------------------------------------------------------------------------- what is left behind


def is_left_over(name: str) -> bool:
    """Is it a directory of a process that is no more?  ``mdh-lift-PID-...``, ``tmp-PID-...``"""
    m = re.fullmatch(rf"(?:{TEMPORARY}|tmp-|stale-)(\d+)-\w+", name)
    if m is None:
        return False
    try:
        os.kill(int(m[1]), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False


def sweep() -> int:
    """Remove what runs that were killed left in the directory for temporary files; how many."""
    removed = 0
    with suppress(OSError):
        for entry in Path(tempfile.gettempdir()).glob(f"{TEMPORARY}*"):
            with suppress(OSError):
                ours = entry.lstat().st_uid == os.getuid() and not entry.is_symlink()
                if ours and is_left_over(entry.name):
                    shutil.rmtree(entry, ignore_errors=True)
                    removed += 1
    return removed


def kill_marked(directory: str) -> int:
    """Kill all processes that were started with this directory for temporary files; how many there were.

    Who leaves its session and its parent still has its environment.
    """
    mark = b"TMPDIR=" + os.fsencode(directory)
    killed = 0
    for _ in range(100):
        found = 0
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            with suppress(OSError):
                handle = os.pidfd_open(int(entry.name))
                try:
                    if mark in (entry / "environ").read_bytes().split(b"\0"):
                        signal.pidfd_send_signal(handle, signal.SIGKILL)
                        found += 1
                finally:
                    os.close(handle)
        killed += found
        if not found:
            break
        time.sleep(0.005)
    return killed
