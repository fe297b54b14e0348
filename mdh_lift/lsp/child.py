"""The process that analyses: requests on its standard input, answers on its standard output.

    8 bytes of length, JSON of ``Request``  ->  8 bytes of length, JSON of ``Answer``

It may be killed at any time, and it kills itself and what it started when its standard input ends, even while
it is busy: a server that died leaves nothing behind.  Limits: address space; time is the server's to watch.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import struct
import sys
import threading
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
    if os.getpgrp() != os.getpid():  # the group is what is killed
        os.setpgid(0, 0)
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
    """Requests to the main thread; when they end, so does the group."""
    while data := os.read(source.fileno(), 1 << 16):
        view = memoryview(data)
        while view:
            view = view[os.write(sink, view) :]
    with contextlib.suppress(ProcessLookupError):
        os.killpg(0, signal.SIGKILL)


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
