"""A client of the language server that says exactly what it is told to: messages over the standard streams.

    with Client(["mdh-lift", "lsp"], directory) as client:
        client.start(trusted=True)
        client.open(path, text)
        told = client.diagnostics(path, version=1)

Requests of the server are answered with null; of an edit it is said that it was applied.  No answer within
``seconds`` is a ``TimeoutError``.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

Message = dict[str, Any]


class Client:
    def __init__(
        self, command: Sequence[str | Path], directory: Path, environment: Mapping[str, str] | None = None,
        seconds: float = 120.0,
    ) -> None:  # fmt: skip
        self.directory, self.seconds = directory, seconds
        self.process = subprocess.Popen(
            command, cwd=directory, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**os.environ, **(environment or {})},
        )  # fmt: skip
        assert self.process.stdin and self.process.stdout and self.process.stderr
        self._in = self.process.stdin
        self._came: queue.Queue[Message | None] = queue.Queue()
        self.errors: list[bytes] = []
        self._readers = [
            threading.Thread(target=self._read, args=(self.process.stdout,), daemon=True),
            threading.Thread(target=self._drain, args=(self.process.stderr,), daemon=True),
        ]
        for reader in self._readers:
            reader.start()
        self._asked = 0

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for reader in self._readers:
            reader.join(10)
        for stream in (self._in, self.process.stdout, self.process.stderr):
            assert stream is not None
            with contextlib.suppress(OSError):  # what was buffered for a process that is gone
                stream.close()

    def _read(self, out: BinaryIO) -> None:
        while header := out.readline():
            size = 0
            while header.strip():
                name, _, value = header.partition(b":")
                size = int(value) if name.strip().lower() == b"content-length" else size
                header = out.readline()
            self._came.put(json.loads(out.read(size)))
        self._came.put(None)

    def _drain(self, errors: BinaryIO) -> None:
        self.errors += iter(errors.readline, b"")

    # ------------------------------------------------------------------ messages

    def send(self, **message: Any) -> None:
        data = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._in.write(b"Content-Length: %d\r\n\r\n" % len(data) + data)
        self._in.flush()

    def next(self) -> Message:
        """The next message that is no request; these are answered."""
        while True:
            try:
                message = self._came.get(timeout=self.seconds)
            except queue.Empty:
                raise TimeoutError(f"no message within {self.seconds:g} seconds") from None
            if message is None:
                raise EOFError(b"".join(self.errors).decode(errors="replace"))
            if "id" not in message or "method" not in message:
                return message
            applied = {"applied": True} if message["method"] == "workspace/applyEdit" else None
            self.send(id=message["id"], result=applied)

    def ask(self, method: str, params: object = None) -> Any:
        """The result of a request; its error is a ``RuntimeError``."""
        self._asked += 1
        self.send(id=self._asked, method=method, params=params)
        while (message := self.next()).get("id") != self._asked:
            pass
        if "error" in message:
            raise RuntimeError(message["error"])
        return message["result"]

    # ------------------------------------------------------------------ what editors do

    def start(self, **options: object) -> Any:
        root = self.directory.as_uri()
        abilities = {"textDocument": {"publishDiagnostics": {"versionSupport": True}}}
        found = self.ask(
            "initialize",
            {"processId": os.getpid(), "rootUri": root, "capabilities": abilities,
             "initializationOptions": options, "workspaceFolders": [{"uri": root, "name": "tree"}]},
        )  # fmt: skip
        self.send(method="initialized", params={})
        return found

    def open(self, path: Path, text: str, language: str = "c") -> None:
        document = {"uri": path.as_uri(), "languageId": language, "version": 1, "text": text}
        self.send(method="textDocument/didOpen", params={"textDocument": document})

    def change(self, path: Path, version: int, place: tuple[int, int], new: str) -> None:
        """Put text at a line and a character, both from 0."""
        at = {"line": place[0], "character": place[1]}
        self.send(
            method="textDocument/didChange",
            params={"textDocument": {"uri": path.as_uri(), "version": version},
                    "contentChanges": [{"range": {"start": at, "end": at}, "text": new}]},
        )  # fmt: skip

    def diagnostics(self, path: Path, version: int) -> list[Message]:
        """What is told about a version of a document."""
        while True:
            message = self.next()
            params = message.get("params") or {}
            told = message.get("method") == "textDocument/publishDiagnostics"
            if told and params["uri"] == path.as_uri() and params.get("version") == version:
                return list(params["diagnostics"])

    def stop(self) -> int:
        """The exit status after an orderly end."""
        self.ask("shutdown")
        self.send(method="exit")
        return self.process.wait(self.seconds)
