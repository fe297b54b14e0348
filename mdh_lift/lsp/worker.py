"""The server's side of the analysing process: one question at a time, killed when it takes too long.

    worker = Worker(Limits(seconds=20))
    answer = await worker.ask("analyse", path, text, trusted=True)

A question is answered, or ``Stopped`` says why not: out of time, died, or died too often.  The process is
started with the first question and again after it was killed, at most ``Limits.restarts`` times.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from dataclasses import dataclass

import msgspec

from mdh_lift.lsp.child import HEAD, framed, kill_session
from mdh_lift.lsp.values import Answer, Request


@dataclass(frozen=True, slots=True)
class Limits:
    """Of the analysis: ``megabytes`` of address space, ``seconds`` per question, ``bytes`` of a document."""

    seconds: float = 20.0
    megabytes: int = 4096
    bytes: int = 2_000_000
    restarts: int = 5


class Stopped(Exception):  # noqa: N818 - an answer, not an error of ours
    """No answer; the text says why."""


class Worker:
    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.deaths = 0
        self.asked = 0
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()

    @property
    def given_up(self) -> bool:
        return self.deaths > self.limits.restarts

    async def ask(self, task: str, path: str, text: bytes, **rest: object) -> Answer:
        """The answer to one question.  Raises ``Stopped``."""
        if len(text) > self.limits.bytes:
            raise Stopped(f"it has {len(text)} bytes, the limit is {self.limits.bytes}")
        async with self._turn:
            if self.given_up:
                many = f"the analysis was stopped {self.deaths} times"
                raise Stopped(f"{many}; restart the server to try again")
            self.asked += 1
            request = Request(self.asked, task, path, text, **rest)  # type: ignore[arg-type]
            try:
                process = await self._started()
                answer = await asyncio.wait_for(self._exchange(process, request), self.limits.seconds)
            except TimeoutError:
                await self._died()
                raise Stopped(f"the analysis took longer than {self.limits.seconds:g} seconds") from None
            except (OSError, asyncio.IncompleteReadError, msgspec.DecodeError):
                status = await self._died()
                raise Stopped(f"the analysis ended with {_words(status)}") from None
            except asyncio.CancelledError:  # its answer would be taken for that of the next question
                await asyncio.shield(self.close())
                raise
            return answer

    async def _exchange(self, process: asyncio.subprocess.Process, request: Request) -> Answer:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(framed(request))
        await process.stdin.drain()
        (size,) = HEAD.unpack(await process.stdout.readexactly(HEAD.size))
        answer = msgspec.json.decode(await process.stdout.readexactly(size), type=Answer)
        if answer.number != request.number:
            raise OSError("answer to another question")
        return answer

    async def _started(self) -> asyncio.subprocess.Process:
        if self._process is None or self._process.returncode is not None:
            # -P: modules of the working directory, which is the user's tree, are never imported
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", "mdh_lift.lsp.child", str(self.limits.megabytes),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, start_new_session=True,
            )  # fmt: skip
        return self._process

    async def _died(self) -> int:
        """Count the death of the process; its status."""
        self.deaths += 1
        process = self._process
        if process is not None and process.returncode is None:
            with contextlib.suppress(TimeoutError):  # it may be about to say of what it died
                await asyncio.wait_for(process.wait(), 0.2)
        status = process.returncode if process is not None else None
        await self.close()
        return -signal.SIGKILL if status is None else status

    def kill(self) -> asyncio.subprocess.Process | None:
        """Kill the process and all that it started, without waiting for its end."""
        process, self._process = self._process, None
        if process is not None:
            kill_session(process.pid)
        return process

    async def close(self) -> None:
        """The same, and wait."""
        process = self.kill()
        if process is not None:
            await process.wait()


def _words(status: int) -> str:
    return f"exit status {status}" if status >= 0 else signal.Signals(-status).name
