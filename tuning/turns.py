"""Several processes that work side by side, and stand still while one of them measures.

    worker A   working   | waits |  working ...     all hold the room in common; who measures waits until it
    worker B   working | measures | working ...     is empty, and keeps the others out

Two file locks: the gate, which everybody takes to get in and a measurement keeps, and the room.  The system
gives both back when a process dies, however it dies.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import filelock

GATE = "measure.lock"  # that of ``Workbench.measuring``
ROOM = "working.lock"


class Turns:
    """For one process.  ``directory`` must be the same for all, and on this machine."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._gate = filelock.FileLock(str(directory / GATE))
        self._room = os.open(directory / ROOM, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._inside = False

    def enter(self) -> None:
        """Begin to work; waits while somebody measures or is about to."""
        with self._gate:
            fcntl.flock(self._room, fcntl.LOCK_SH)
        self._inside = True

    def leave(self) -> None:
        fcntl.flock(self._room, fcntl.LOCK_UN)
        self._inside = False

    def pause(self) -> None:
        """A moment at which others may measure; nothing where this process is not at work."""
        if self._inside:
            self.leave()
            self.enter()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Nobody else works meanwhile."""
        working = self._inside
        if working:
            self.leave()
        try:
            with self._gate:
                fcntl.flock(self._room, fcntl.LOCK_EX)
                try:
                    yield
                finally:
                    fcntl.flock(self._room, fcntl.LOCK_UN)
        finally:
            if working:
                self.enter()
