"""A web server whose pages a test writes; it remembers who asked for what, and when."""

import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self


@dataclass
class Answer:
    body: bytes = b""
    content_type: str = "text/html; charset=utf-8"
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    write: Callable[[Any], None] | None = None  # writes the whole answer by itself, to the raw stream


class Site:
    """`pages[path]` is an Answer, or a string of HTML. Unknown paths are 404."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.pages: dict[str, Answer | str] = {}
        self.asked: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.times: list[float] = []
        self.open = 0
        self.most_open = 0
        self._lock = threading.Lock()
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site._serve(self)

            def handle(self) -> None:
                with suppress(OSError):  # a client that went away, in the middle of TLS too
                    super().handle()

            def log_message(self, format: str, *args: Any) -> None:
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        if tls:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def article(self, path: str, title: str, text: str, *links: str, head: str = "") -> None:
        """A page with a main text long enough to be found, and links."""
        anchors = "".join(f'<a href="{link}">{link}</a> ' for link in links)
        self.pages[path] = (
            f'<html lang="en"><head><title>{title}</title>{head}</head><body><nav>Menu {anchors}</nav>'
            f"<article><h1>{title}</h1><p>{text}</p></article></body></html>"
        )

    def _serve(self, request: BaseHTTPRequestHandler) -> None:
        with self._lock:
            self.asked.append(request.path)
            self.headers.append({name.lower(): value for name, value in request.headers.items()})
            self.times.append(time.monotonic())
            self.open += 1
            self.most_open = max(self.most_open, self.open)
        try:
            found = self.pages.get(request.path, Answer(b"no such page", status=404))
            answer = found if isinstance(found, Answer) else Answer(found.encode())
            if answer.write:
                answer.write(request.wfile)
                return
            request.send_response(answer.status)
            if answer.content_type:
                request.send_header("Content-Type", answer.content_type)
            for name, value in {"Content-Length": str(len(answer.body)), **answer.headers}.items():
                request.send_header(name, value)
            request.end_headers()
            request.wfile.write(answer.body)
        except OSError:
            pass  # the client has had enough
        finally:
            with self._lock:
                self.open -= 1
