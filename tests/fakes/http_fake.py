"""What both fake servers share: a real HTTP server on a free port, a log, and ways to misbehave."""

import hashlib
import json
import socket
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self


@dataclass(frozen=True)
class Reply:
    """One answer of a fake server.

    `body` is sent as JSON, `raw` as it stands (garbage, HTML). `latency` is waited before the first byte.
    `hang`: no byte until the server stops. `cut`: half of the body, then the connection is closed hard.
    `drip`: seconds between single bytes of the body.
    """

    status: int = 200
    body: Any = None
    raw: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)
    latency: float = 0.0
    hang: bool = False
    cut: bool = False
    drip: float = 0.0


@dataclass(frozen=True)
class LoggedRequest:
    role: str
    payload: dict[str, Any]
    headers: dict[str, str]  # names in lower case
    at: float  # time.monotonic()


@dataclass
class Exchange:
    """One request as the server lived it: what a provider would put on the bill, delivered or not."""

    role: str
    key: str  # equal for equal requests
    begun: float  # time.monotonic()
    ended: float | None  # None: still going on
    good: bool  # whether the reply was one to pay for: a whole 200 that was not scripted to misbehave

    def open_at(self, moment: float, grace: float) -> bool:
        """Whether the client could not have put the reply away by then; `grace`: seconds it needs for that."""
        return self.begun <= moment and (self.ended is None or self.ended + grace >= moment)


class FakeServer:
    """A context manager; `root_url` is valid inside. Subclasses answer in `reply_to`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: list[LoggedRequest] = []
        self._exchanges: list[Exchange] = []
        self._stopping = threading.Event()
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None

    def reply_to(self, path: str, payload: dict[str, Any], headers: dict[str, str]) -> tuple[str, Reply]:
        """(the role to log, the reply)."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self, port: int = 0) -> Self:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                fake._handle(self)

            def log_message(self, format: str, *args: Any) -> None:
                """Quiet."""

        class Server(ThreadingHTTPServer):
            request_queue_size = 256  # a burst of clients must not see refused connections
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                """A client that gave up is what the tests want; no traceback for it."""

        self._server = Server(("127.0.0.1", port), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        self._stopping.set()
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join(5)

    @property
    def root_url(self) -> str:
        assert self._server is not None, "the fake server is not running"
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def requests(self) -> list[LoggedRequest]:
        """A copy of all requests so far, in order of arrival."""
        with self._lock:
            return list(self._requests)

    @property
    def exchanges(self) -> list[Exchange]:
        """All so far, in order of arrival."""
        with self._lock:
            return list(self._exchanges)

    @property
    def counts(self) -> Counter[str]:
        """Requests a role."""
        return Counter(request.role for request in self.requests)

    def clear(self) -> None:
        with self._lock:
            self._requests.clear()
            self._exchanges.clear()

    def _handle(self, handler: BaseHTTPRequestHandler) -> None:
        length = int(handler.headers.get("Content-Length") or 0)
        payload = json.loads(handler.rfile.read(length) or b"{}")
        headers = {name.lower(): value for name, value in handler.headers.items()}
        at = time.monotonic()
        try:
            role, reply = self.reply_to(handler.path, payload, headers)
        except Exception as error:  # noqa: BLE001 - a mistake in a script is seen as a failing request
            role, reply = "script_error", Reply(status=501, body={"error": {"message": repr(error)}})
        good = reply.status == 200 and reply.raw is None and not (reply.hang or reply.cut or reply.drip)
        key = hashlib.sha256(json.dumps([role, payload], sort_keys=True).encode()).hexdigest()
        exchange = Exchange(role, key, at, None, good)
        with self._lock:
            self._requests.append(LoggedRequest(role, payload, headers, at))
            self._exchanges.append(exchange)
        try:
            self._send(handler, reply)
        finally:
            exchange.ended = time.monotonic()

    def _send(self, handler: BaseHTTPRequestHandler, reply: Reply) -> None:
        if reply.hang:
            self._stopping.wait()
            handler.close_connection = True
            return
        if reply.latency:
            self._stopping.wait(reply.latency)
        content = reply.raw if reply.raw is not None else json.dumps(reply.body).encode()
        handler.send_response(reply.status)
        headers = {"Content-Type": "application/json", **reply.headers}
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        if reply.cut:
            handler.wfile.write(content[: len(content) // 2])
            handler.wfile.flush()
            handler.connection.shutdown(socket.SHUT_RDWR)
            handler.close_connection = True
        elif reply.drip:
            for position in range(len(content)):
                handler.wfile.write(content[position : position + 1])
                if self._stopping.wait(reply.drip):
                    break
        else:
            handler.wfile.write(content)
