"""Looks at servers that answer in every way, or not at all."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from api.cli import probes

KEY = "sk-s3cr3t-s3cr3t"


class Server(ThreadingHTTPServer):
    status = 200
    asked: tuple[str, str, str]

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        headers = self.headers
        self.server.asked = (self.path, headers.get("Authorization", ""), headers.get("api-key", ""))
        self.send_response(self.server.status)
        self.send_header("Content-Length", "1000000000000")  # never sent: nobody may wait for it
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server(("127.0.0.1", 0), _Handler)
    threading.Thread(target=made.serve_forever, args=(0.02,), daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


@pytest.mark.parametrize(
    ("status", "level", "word"),
    [
        (200, "ok", "answers"),
        (401, "bad", "key refused (401). Look at OPENAI_API_KEY."),
        (403, "bad", "key refused (403)"),
        (404, "note", "Does OPENAI_BASE_URL end in /v1?"),
        (500, "bad", "with an error (500)"),
    ],
)
def test_a_model_server(server: Server, status: int, level: str, word: str) -> None:
    server.status = status
    found, says = probes.models(f"http://127.0.0.1:{server.port}/v1/", KEY)
    assert server.asked == ("/v1/models", f"Bearer {KEY}", "")
    assert found == level
    assert word in says and f"http://127.0.0.1:{server.port}/v1" in says and "s3cr3t" not in says


@pytest.mark.parametrize(
    ("status", "level", "word"),
    [
        (200, "ok", "answers"),
        (401, "bad", "key refused (401). Look at CRAGLINE_QDRANT_API_KEY."),
        (404, "bad", "no Qdrant"),
        (503, "bad", "with an error (503)"),
    ],
)
def test_qdrant(server: Server, status: int, level: str, word: str) -> None:
    server.status = status
    found, says = probes.qdrant(f"http://127.0.0.1:{server.port}", KEY)
    assert server.asked == ("/collections", "", KEY)
    assert found == level
    assert word in says and "s3cr3t" not in says


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("http://u:s3cr3t@127.0.0.1:1/v1", "does not answer"),
        ("http://u:s3cr3t@no-such-host.invalid:1", "does not answer"),
        ("http://u:s3cr3t@127.0.0.1:99999", "n"),
        ("ftp://u:s3cr3t@127.0.0.1", "not a URL"),
        ("http://u:s3cr3t@[", "not a URL"),
        ("http://", "not a URL"),
    ],
)
def test_a_server_that_is_not_there(url: str, word: str) -> None:
    for look in (probes.qdrant, probes.models):
        level, says = look(url, KEY)
        assert level == "bad"
        assert word in says and "s3cr3t" not in says


@pytest.mark.parametrize("key", ["sk-s3cr3t-é", "sk-s3cr3t\nX: y"])
def test_a_key_that_cannot_be_sent(server: Server, key: str) -> None:
    for look in (probes.qdrant, probes.models):
        level, says = look(f"http://127.0.0.1:{server.port}", key)
        assert (level, "cannot be sent" in says, "s3cr3t" in says) == ("bad", True, False)


@pytest.mark.parametrize(
    ("url", "key", "expected"),
    [
        ("http://host", None, "http://host:6333"),
        ("https://host/", None, "https://host:6333"),
        ("https://host:443/x", None, "https://host:443/x"),
        ("localhost:7000", None, "http://localhost:7000"),
        ("host", "k", "https://host:6333"),
        ("http://[", None, "http://["),
    ],
)
def test_the_address_of_qdrant_is_read_as_its_client_reads_it(
    url: str, key: str | None, expected: str
) -> None:
    assert probes._as_the_client_reads(url, key) == expected
