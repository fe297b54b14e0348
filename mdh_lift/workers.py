"""Jobs in processes of their own, several at a time; one that dies or takes too long ends alone.

    run(jobs, work, 2)  ->  (job, message), (job, message), ..., (job, Ended("", ...)), ...

``work(job, send)`` runs in a forked child; what it sends, plain values, arrives in the parent in order.
Children die with the parent, however it ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import selectors
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

J = TypeVar("J")
Message = dict[str, Any]
Send = Callable[[Message], None]
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


@dataclass(frozen=True, slots=True)
class Ended:
    """The last message of a job; ``reason`` is empty where it came to its end."""

    reason: str = ""


@dataclass
class _Child(Generic[J]):
    job: J
    pid: int
    pipe: int
    started: float = field(default_factory=time.monotonic)
    rest: bytes = b""


def run(
    jobs: Sequence[J], work: Callable[[J, Send], None], at_once: int, seconds: float = 0.0
) -> Iterator[tuple[J, Message | Ended]]:
    """Every job in order, ``at_once`` of them side by side, each for so many seconds (0: without limit)."""
    waiting = deque(jobs)
    running: dict[int, _Child[J]] = {}
    selector = selectors.DefaultSelector()
    try:
        while waiting or running:
            while waiting and len(running) < max(1, at_once):
                child = _start(waiting.popleft(), work, list(running))
                running[child.pipe] = child
                selector.register(child.pipe, selectors.EVENT_READ)
            for key, _ in selector.select(0.5 if seconds else None):
                child = running[key.fd]
                data = os.read(child.pipe, 1 << 20)
                *lines, child.rest = (child.rest + data).split(b"\n")
                for line in lines:
                    yield child.job, json.loads(line)
                if not data:
                    selector.unregister(child.pipe)
                    del running[child.pipe]
                    yield child.job, Ended(_reap(child))
            for child in [c for c in running.values() if seconds and time.monotonic() - c.started > seconds]:
                selector.unregister(child.pipe)
                del running[child.pipe]
                _kill(child)
                yield child.job, Ended(f"it took longer than {seconds:g} s")
    finally:
        selector.close()
        for child in running.values():
            _kill(child)


def _start(job: J, work: Callable[[J, Send], None], others: Sequence[int]) -> _Child[J]:
    pipe, write = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        status = 70
        try:
            _die_with(parent)
            for fd in (pipe, *others):
                os.close(fd)
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
            work(job, lambda message: _send(write, message))
            status = 0
        except BaseException as error:
            with contextlib.suppress(BaseException):
                os.write(2, f"mdh-lift: {type(error).__name__}: {error}\n".encode(errors="backslashreplace"))
        finally:
            os._exit(status)
    os.close(write)
    return _Child(job, pid, pipe)


def _die_with(parent: int) -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(70)


def _send(pipe: int, message: Message) -> None:
    rest = memoryview(json.dumps(message).encode() + b"\n")
    while rest:
        rest = rest[os.write(pipe, rest) :]


def _reap(child: _Child[J]) -> str:
    os.close(child.pipe)
    code = os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1])
    if code == 0:
        return ""
    return f"its process ended with {signal.Signals(-code).name if code < 0 else f'exit status {code}'}"


def _kill(child: _Child[J]) -> None:
    """The process and all that it started."""
    import psutil

    with contextlib.suppress(psutil.Error):
        for inner in psutil.Process(child.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                inner.kill()
    with contextlib.suppress(ProcessLookupError):
        os.kill(child.pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(child.pid, 0)
    os.close(child.pipe)
