"""How other processes search the local store: JSON lines over 127.0.0.1, read-only, with a token.

One request a line: {"token", "op", "name", ...}; one answer a line: {"ok": value} or
{"error": {"kind", "message"}}. Messages are bounded and every wait has an end.
"""

import hmac
import json
import secrets
import socket
import socketserver
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

from shared.clean import clean_json
from shared.errors import (
    CallError,
    CraglineError,
    DimensionMismatch,
    NotFound,
    PermanentError,
    TransientError,
)
from shared.plan import Retrieval
from workers.models.roles import Document
from workers.stores.bm25 import MAX_CHARS
from workers.stores.qdrant import VectorStore, unreachable

HOST = "127.0.0.1"
MAX_REQUEST = 1 << 20  # bytes; a vector of 4,096 numbers takes about 90 kB
MAX_ANSWER = 32 << 20
MAX_CONNECTIONS = 32
MAX_K = 1000
TIMEOUT = 30.0  # seconds to wait for the other side
_IDS = 5000  # ids in one request, well below MAX_REQUEST

_MODES: dict[str, Retrieval] = {mode: mode for mode in get_args(Retrieval)}
_KINDS: dict[str, type[CraglineError]] = {
    "NotFound": NotFound,
    "DimensionMismatch": DimensionMismatch,
    "CraglineError": CraglineError,
}


class OwnerService:
    """Answers on a port of its own until `stop`."""

    def __init__(self, store: VectorStore) -> None:
        self.token = secrets.token_urlsafe(32)
        self._server = _Server(store, self.token)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.05},
            name="store-service",
            daemon=True,
        )
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = MAX_CONNECTIONS
    allow_reuse_address = True

    def __init__(self, store: VectorStore, token: str) -> None:
        self.store = store
        self.token = token
        self.places = threading.BoundedSemaphore(MAX_CONNECTIONS)
        super().__init__((HOST, 0), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self.places.acquire(blocking=False):
            self.shutdown_request(request)  # the client reads the end of the stream, and may try again
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no event; the default prints a traceback."""


class _Handler(socketserver.StreamRequestHandler):
    timeout = TIMEOUT
    server: _Server

    def handle(self) -> None:
        while line := self.rfile.readline(MAX_REQUEST + 1):
            if len(line) > MAX_REQUEST:
                return
            request = _parsed(line)
            token = request.get("token") if request else None
            if request is None or not isinstance(token, str):
                return
            if not hmac.compare_digest(token.encode("utf-8", "replace"), self.server.token.encode()):
                return  # says nothing to whoever has no token
            self.wfile.write(json.dumps(_answer(self.server.store, request)).encode() + b"\n")


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        request = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return request if isinstance(request, dict) else None


def _answer(store: VectorStore, request: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"ok": clean_json(_perform(store, request))}
    except CallError as error:
        return {"error": {"kind": "transient" if error.transient else "permanent", "message": str(error)}}
    except CraglineError as error:
        kind = type(error).__name__
        return {"error": {"kind": kind if kind in _KINDS else "CraglineError", "message": str(error)}}
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError):
        return {"error": {"kind": "permanent", "message": "The request cannot be understood."}}
    except Exception as error:  # noqa: BLE001 - the client shall have an answer, and no traceback of ours
        return {
            "error": {
                "kind": "transient",
                "message": f"The owner of the store failed: {type(error).__name__}.",
            }
        }


def _perform(store: VectorStore, request: dict[str, Any]) -> Any:
    name = str(request["name"])
    operations: dict[str, Callable[[], Any]] = {
        "search": lambda: store.search(
            name,
            [float(number) for number in request["vector"]],
            min(max(int(request["k"]), 1), MAX_K),
            text=str(request["text"]),
            mode=_MODES[request["mode"]],
            filters={str(key): [str(one) for one in values] for key, values in request["filters"].items()},
        ),
        "count": lambda: store.count(name),
        "dimension_of": lambda: store.dimension_of(name),
        "existing_ids": lambda: sorted(store.existing_ids(name, [str(one) for one in request["ids"]])),
    }
    return operations[str(request["op"])]()


class OwnerClient:
    """A SearchableStore in another process. Each call is a connection, so threads need no lock."""

    def __init__(self, port: int, token: str) -> None:
        self._port = port
        self._token = token

    def search(
        self,
        name: str,
        vector: Sequence[float],
        k: int,
        *,
        text: str = "",
        mode: Retrieval = "dense",
        filters: Mapping[str, Sequence[str]] | None = None,
    ) -> list[Document]:
        wanted = {key: list(values) for key, values in (filters or {}).items()}
        found: list[Document] = self._ask(
            "search", name, vector=list(vector), k=k, text=text[:MAX_CHARS], mode=mode, filters=wanted
        )
        return found

    def dimension_of(self, name: str) -> int | None:
        found = self._ask("dimension_of", name)
        return None if found is None else int(found)

    def count(self, name: str) -> int:
        return int(self._ask("count", name))

    def existing_ids(self, name: str, ids: Sequence[str]) -> set[str]:
        known: set[str] = set()
        for start in range(0, len(ids), _IDS):
            known.update(self._ask("existing_ids", name, ids=list(ids[start : start + _IDS])))
        return known

    def alive(self) -> bool:
        """Whether somebody listens at the owner's address."""
        try:
            socket.create_connection((HOST, self._port), timeout=TIMEOUT).close()
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Nothing to close."""

    def _ask(self, op: str, name: str, **arguments: Any) -> Any:
        request = json.dumps({"token": self._token, "op": op, "name": name, **arguments}).encode() + b"\n"
        if len(request) > MAX_REQUEST:
            raise PermanentError("The request is too big.", code="store_refused", where="qdrant")
        try:
            with socket.create_connection((HOST, self._port), timeout=TIMEOUT) as connection:
                connection.sendall(request)
                with connection.makefile("rb") as stream:
                    line = stream.readline(MAX_ANSWER + 1)
        except OSError as error:
            raise unreachable(f"its owner does not answer ({type(error).__name__})") from None
        if not line.endswith(b"\n"):
            raise unreachable("its owner closed the connection")
        answer = json.loads(line)
        if "ok" in answer:
            return answer["ok"]
        raise _error(answer["error"])


def _error(error: dict[str, str]) -> Exception:
    kind, message = error["kind"], error["message"]
    if kind == "transient":
        return TransientError(message, code="store_unreachable", where="qdrant")
    if kind == "permanent":
        return PermanentError(message, code="store_refused", where="qdrant")
    return _KINDS[kind](message)
