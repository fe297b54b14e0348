"""Work that may not end, in a child that can be killed.

The analysis of a nest is bounded by the number of isl operations and of attempts, but no bound on time
follows from that.  ``each_within`` runs it in a forked child, takes the results one by one as they come,
and kills the child when the next one takes too long; the work behind it goes on in a new child.

Where the platform cannot fork, the work is done in this process without a limit.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import struct
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar, cast

T = TypeVar("T")
R = TypeVar("R")


class TooLong:
    """The answer for work that was killed."""


class Broken:
    """The answer for work whose child died; ``reason`` says of what."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


def each_within(
    seconds: float, work: Callable[[T], R], items: Sequence[T]
) -> Iterator[R | TooLong | Broken]:
    """``work(item)`` for every item in order, each within a wall time.

    Results must be picklable.  An exception of the work is raised here as it was there.
    """
    if not hasattr(os, "fork") or seconds <= 0 or not items:
        yield from map(work, items)
        return
    first = 0
    while first < len(items):
        child = _Child(work, items[first:])
        try:
            while first < len(items):
                answer = child.next(seconds)
                first += 1
                if isinstance(answer, BaseException):
                    raise answer
                yield cast(R | TooLong | Broken, answer)
                if isinstance(answer, TooLong | Broken):
                    break
        finally:
            child.kill()


class _Child:
    def __init__(self, work: Callable[[T], R], items: Sequence[T]) -> None:
        self.pipe, write = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                os.close(self.pipe)
                signal.signal(signal.SIGINT, signal.SIG_DFL)
                for item in items:
                    _send(write, _answer(work, item))
                status = 0
            finally:
                os._exit(status)
        os.close(write)

    def next(self, seconds: float) -> object:
        until = time.monotonic() + seconds
        head = self.read(8, until)
        if not isinstance(head, bytes):
            return head
        body = self.read(struct.unpack("q", head)[0], until + 10)
        return pickle.loads(body) if isinstance(body, bytes) else body

    def read(self, count: int, until: float) -> bytes | TooLong | Broken:
        out = bytearray()
        while len(out) < count:
            ready, _, _ = select.select([self.pipe], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                return TooLong()
            part = os.read(self.pipe, min(1 << 20, count - len(out)))
            if not part:
                return Broken(self.why())
            out += part
        return bytes(out)

    def why(self) -> str:
        pid, self.pid = self.pid, 0
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return signal.Signals(-code).name if code < 0 else f"exit status {code}"

    def kill(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self.pipe)
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.pid, 0)
            self.pid = 0


def _answer(work: Callable[[T], R], item: T) -> bytes:
    try:
        return pickle.dumps(work(item), pickle.HIGHEST_PROTOCOL)
    except BaseException as error:  # raised again by the parent
        return pickle.dumps(error, pickle.HIGHEST_PROTOCOL)


def _send(pipe: int, data: bytes) -> None:
    rest = memoryview(struct.pack("q", len(data)) + data)
    while rest:
        rest = rest[os.write(pipe, rest) :]
