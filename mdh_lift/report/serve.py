"""A page on the loopback interface, behind a token in the URL; nothing else is served."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def serve(page: bytes, tell: Callable[[str], None]) -> None:
    """Serve until interrupted; ``tell`` gets the URL: a port that is free, a token that nobody can guess."""
    token = secrets.token_urlsafe(24)
    with server(page, token) as running:
        tell(f"http://127.0.0.1:{running.server_address[1]}/{token}/")
        running.serve_forever()


def server(page: bytes, token: str) -> ThreadingHTTPServer:
    """Bound to 127.0.0.1; every path but ``/TOKEN/`` and every method but GET and HEAD is an error."""

    class Handler(BaseHTTPRequestHandler):
        server_version = "mdh-lift"
        sys_version = ""

        def do_GET(self) -> None:
            self._answer(True)

        def do_HEAD(self) -> None:
            self._answer(False)

        def _answer(self, body: bool) -> None:
            host = (self.headers.get("Host") or "").rpartition(":")[0]
            known = secrets.compare_digest(self.path.encode("utf-8", "replace"), f"/{token}/".encode())
            if not known or host not in ("127.0.0.1", "localhost"):  # no name of others leads here
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(page)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.send_header("X-Frame-Options", "DENY")
            self.end_headers()
            if body:
                self.wfile.write(page)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Nothing: the token would be in it."""

    return ThreadingHTTPServer(("127.0.0.1", 0), Handler)
