"""The process of one peer: it runs once, writes results, then answers every line with seconds per call."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

FIRST_SECONDS = 1200.0  # until the first answer: some peers compile or search before it
THREADS = (
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "HL_NUM_THREADS",
    "TVM_NUM_THREADS",
)  # fmt: skip


class Peer:
    """``problem`` says why a peer does not answer; empty as long as it does.

    first    what its first line said
    seconds  of a call, one value per round
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        threads: int,
        outputs: Path,
        environment: Mapping[str, str],
        limit: float,
    ) -> None:
        self.name, self.outputs, self.limit = name, outputs, limit
        self.first: dict[str, Any] = {}
        self.seconds: list[float] = []
        self.problem = ""
        outputs.mkdir(parents=True, exist_ok=True)
        counts = {key: str(threads) for key in THREADS}
        self._errors = (outputs / ".errors").open("wb")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, **counts, **environment},
            start_new_session=True,
        )
        self._rest = b""
        try:
            answer = self._answer(FIRST_SECONDS)
        except BaseException:  # nobody else knows of the process yet
            self.end("slow")
            raise
        if isinstance(answer, dict) and "problem" in answer:
            self.end(str(answer["problem"]))
        elif isinstance(answer, dict):
            self.first = answer

    def round(self) -> None:
        if self.problem:
            return
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(b"\n")
            self._process.stdin.flush()
        answer = self._answer(self.limit)
        if isinstance(answer, float):
            self.seconds.append(answer)

    def _answer(self, seconds: float) -> Any:
        """The next line that is JSON; None and a problem where there is none in time."""
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        with selectors.DefaultSelector() as waiting:
            waiting.register(descriptor, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                if not waiting.select(seconds):
                    self.end("slow")
                    return None
                more = os.read(descriptor, 1 << 16)
                if not more:
                    self.end("failed")
                    return None
                self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        return json.loads(line)

    @property
    def errors(self) -> str:
        """The end of what it wrote to its standard error."""
        return (self.outputs / ".errors").read_text(errors="replace")[-2000:]

    def end(self, problem: str = "") -> None:
        """Stop the process; ``problem`` is why, where it does so early."""
        self.problem = self.problem or problem
        if self._process.poll() is None:
            assert self._process.stdin is not None
            with suppress(BrokenPipeError):
                self._process.stdin.close()
            try:
                self._process.wait(0 if problem == "slow" else 10)
            except subprocess.TimeoutExpired:
                with suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)  # and processes that it began
                self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()
