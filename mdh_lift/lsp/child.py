"""The process that analyses: requests on its standard input, answers on its standard output.

    8 bytes of length, JSON of ``Request``  ->  8 bytes of length, JSON of ``Answer``

It may be killed at any time, and it kills itself and what it started when its standard input ends, even while
it is busy: a server that died leaves nothing behind.  All that it starts stays in its session, by which it is
found.  Limits: address space; time is the server's to watch.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import struct
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import BinaryIO

import msgspec

from mdh_lift.lsp.values import Answer, Request

HEAD = struct.Struct(">Q")


def framed(message: msgspec.Struct) -> bytes:
    data = msgspec.json.encode(message)
    return HEAD.pack(len(data)) + data


def main(arguments: list[str]) -> None:
    """``child.py MEGABYTES``: analyse until the input ends."""
    if os.getsid(0) != os.getpid():
        os.setsid()
    limit = int(arguments[0]) << 20
    if limit:
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        least = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(resource.RLIMIT_AS, (least, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints does not disturb the answers
    work = os.pipe()
    threading.Thread(target=_forward, args=(sys.stdin.buffer, work[1]), daemon=True).start()
    with os.fdopen(work[0], "rb") as requests:
        _serve(requests, out)


def _forward(source: BinaryIO, sink: int) -> None:
    """Requests to the main thread; when they end, so does all that runs here."""
    while data := os.read(source.fileno(), 1 << 16):
        view = memoryview(data)
        while view:
            view = view[os.write(sink, view) :]
    kill_session(os.getpid())


def kill_session(leader: int) -> None:
    """Kill a process and all others of the session that it leads; itself last, so that none is left over."""
    for _ in range(20):  # what is found may start others before it dies
        others = [pid for pid in _processes() if pid not in (leader, os.getpid()) and _session(pid) == leader]
        for pid in others:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not others:
            break
        time.sleep(0.005)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(leader, signal.SIGKILL)


def _processes() -> list[int]:
    """All processes that are alive; those that wait for their parent to notice are not."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            if (entry / "stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X"):
                found.append(int(entry.name))
    return found


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except (ProcessLookupError, PermissionError):
        return -1


def _serve(requests: BinaryIO, out: BinaryIO) -> None:
    from mdh_lift.lsp.tasks import Tasks  # imports are under the limit, too

    tasks = Tasks()
    decoder = msgspec.json.Decoder(Request)
    while head := requests.read(HEAD.size):
        request = decoder.decode(requests.read(HEAD.unpack(head)[0]))
        try:
            answer = tasks.answer(request)
        except MemoryError:
            answer = Answer(request.number, problem="the analysis needs more memory than it may have")
        except Exception as error:
            trace = "".join(traceback.format_exception(error))
            answer = Answer(request.number, problem=f"internal error: {type(error).__name__}", trace=trace)
        out.write(framed(answer))
        out.flush()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        os.chdir(Path("/"))
        main(sys.argv[1:])
