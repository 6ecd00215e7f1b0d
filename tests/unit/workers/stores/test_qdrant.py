"""The store on a local folder, and the errors of a server by a scripted transport."""

import dataclasses
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from shared.errors import CraglineError, DimensionMismatch, NotFound, PermanentError, TransientError
from shared.settings import Settings
from workers.stores import qdrant
from workers.stores.chunks import Chunk, split
from workers.stores.loaders import LoadedDocument
from workers.stores.local_owner import own_store
from workers.stores.qdrant import VectorStore, server_store

SECRET = "key-that-must-not-be-seen"


def chunk(number: int, source: str = "/d/a.txt", page: int | None = None) -> Chunk:
    text = f"passage number {number}"
    return next(split([LoadedDocument(f"{source}#{number}", "title", text, page, source)], 50, 5))


def vector(number: int, dimension: int = 8) -> list[float]:
    made: list[float] = np.random.default_rng(number).normal(size=dimension).tolist()
    return made


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / "home", _env_file=None)


@pytest.fixture
def store(settings: Settings) -> Iterator[VectorStore]:
    made = own_store(settings)
    yield made
    made.close()


def test_what_is_stored_is_found_best_first_with_its_origin(store: VectorStore) -> None:
    store.ensure_collection("docs", 8)
    chunks = [chunk(number, page=number or None) for number in range(5)]
    store.upsert("docs", chunks, [vector(number) for number in range(5)])
    found = store.search("docs", vector(3), 2)
    assert len(found) == 2
    assert found[0] == {
        "id": chunks[3].id,
        "text": "passage number 3",
        "title": "title",
        "source": "/d/a.txt#3",
        "page": 3,
        "score": pytest.approx(1.0, abs=1e-5),
        "origin": "store",
    }
    assert found[1]["score"] is not None and found[1]["score"] < 0.99


def test_of_equally_near_points_the_same_come_first_in_whatever_order_they_were_stored(
    store: VectorStore,
) -> None:
    chunks = [chunk(number) for number in range(60)]
    for name, stored in (("one", chunks), ("other", chunks[::-1])):
        store.ensure_collection(name, 8)
        for each in stored:
            store.upsert(name, [each], [vector(1)])
    found = [[each["id"] for each in store.search(name, vector(1), 3)] for name in ("one", "other")]
    assert found[0] == found[1] == sorted(each.id for each in chunks)[:3]


def test_storing_again_replaces_and_deleting_removes(store: VectorStore) -> None:
    store.ensure_collection("docs", 8)
    chunks = [chunk(number) for number in range(100)]  # more than one request
    for _ in range(2):
        store.upsert("docs", chunks, [vector(number) for number in range(100)])
    assert store.count("docs") == 100
    ids = [one.id for one in chunks]
    store.delete("docs", ids[:30])
    store.delete("docs", [*ids[:30], chunk(1000).id])
    store.delete("docs", [])
    assert store.existing_ids("docs", [*ids, chunk(1000).id]) == set(ids[30:])
    assert store.existing_ids("docs", []) == set()


def test_refresh_changes_what_is_kept_beside_the_vectors_only(store: VectorStore) -> None:
    store.ensure_collection("docs", 8)
    store.upsert("docs", [chunk(1)], [vector(1)])
    store.refresh("docs", [dataclasses.replace(chunk(1), ordinal=7)])
    store.refresh("docs", [])
    point = store._client.retrieve("docs", [chunk(1).id], with_payload=True)[0]
    assert point.payload is not None
    assert point.payload["ordinal"] == 7
    assert point.payload["text"] == "passage number 1"
    assert store.search("docs", vector(1), 1)[0]["score"] == pytest.approx(1.0, abs=1e-5)


def test_a_dropped_collection_is_gone_and_can_be_made_anew_with_another_dimension(store: VectorStore) -> None:
    store.drop("docs")
    store.ensure_collection("docs", 8)
    store.upsert("docs", [chunk(1)], [vector(1)])
    store.drop("docs")
    assert store.dimension_of("docs") is None
    store.ensure_collection("docs", 4)
    assert store.count("docs") == 0


def test_what_is_known_of_a_chunk_is_kept_with_it(store: VectorStore) -> None:
    store.ensure_collection("docs", 8)
    known = replace(chunk(1), lines="3-9", language="python", commit="c" * 40, cited="r@c:a.py", title="a.py")
    store.upsert("docs", [known, chunk(2)], [vector(1), vector(2)])
    found = store.search("docs", vector(1), 1)[0]
    assert (found["title"], found["source"]) == ("a.py:3-9", "r@c:a.py")
    plain = store._client.retrieve("docs", [chunk(2).id], with_payload=True)[0].payload or {}
    assert not {"lines", "language", "commit", "description"} & set(plain)


def test_an_absent_collection_says_how_to_make_it(store: VectorStore) -> None:
    assert store.dimension_of("docs") is None
    for call in (
        lambda: store.search("docs", vector(1), 3),
        lambda: store.count("docs"),
        lambda: store.existing_ids("docs", [chunk(1).id]),
        lambda: store.upsert("docs", [chunk(1)], [vector(1)]),
    ):
        with pytest.raises(NotFound, match="cragline ingest PATH --collection docs"):
            call()
    store.delete("docs", [chunk(1).id])


def test_an_empty_collection_finds_nothing(store: VectorStore) -> None:
    store.ensure_collection("docs", 8)
    assert store.search("docs", vector(1), 3) == []
    assert store.count("docs") == 0


def test_another_dimension_is_refused_with_both_named(store: VectorStore) -> None:
    store.ensure_collection("docs", 8)
    store.ensure_collection("docs", 8)
    for call in (
        lambda: store.ensure_collection("docs", 12),
        lambda: store.search("docs", vector(1, 12), 3),
        lambda: store.upsert("docs", [chunk(1)], [vector(1, 12)]),
    ):
        with pytest.raises(
            DimensionMismatch, match=r"8 numbers.*makes 12.*--collection.*CRAGLINE_EMBEDDINGS"
        ):
            call()
    assert store.dimension_of("docs") == 8
    assert store.count("docs") == 0


def test_a_collection_made_by_others_is_refused(store: VectorStore) -> None:
    vectors = {"image": qdrant.q.VectorParams(size=8, distance=qdrant.q.Distance.COSINE)}
    store._client.create_collection("foreign", vectors_config=vectors)
    with pytest.raises(CraglineError, match="not made by Cragline"):
        store.ensure_collection("foreign", 8)


def test_a_closed_store_says_so(store: VectorStore) -> None:
    store.ensure_collection("docs", 8)
    store.close()
    store.close()
    with pytest.raises(TransientError, match="closed") as caught:
        store.search("docs", vector(1), 1)
    assert (caught.value.code, caught.value.where) == ("store_unreachable", "qdrant")


def test_many_threads_write_and_search_and_nothing_is_lost(settings: Settings) -> None:
    store = own_store(settings)
    store.ensure_collection("docs", 8)

    def work(thread: int) -> None:
        for start in range(thread * 100, thread * 100 + 100, 10):
            numbers = range(start, start + 10)
            store.upsert(
                "docs", [chunk(number) for number in numbers], [vector(number) for number in numbers]
            )
            assert store.search("docs", vector(start), 1)[0]["text"] == f"passage number {start}"

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(work, range(12)))
    store.close()
    reopened = own_store(settings)
    try:
        assert reopened.count("docs") == 1200
        assert reopened.search("docs", vector(777), 1)[0]["text"] == "passage number 777"
    finally:
        reopened.close()


WRITER = """
import sys
from pathlib import Path
from shared.settings import Settings
from tests.unit.workers.stores.test_qdrant import chunk, vector
from workers.stores.local_owner import own_store
store = own_store(Settings(home=Path(sys.argv[1]), _env_file=None))
store.ensure_collection("docs", 8)
for number in range(100_000):
    store.upsert("docs", [chunk(number)], [vector(number)])
    print(number, flush=True)
"""


def test_a_killed_owner_loses_nothing_that_was_stored(settings: Settings) -> None:
    root = Path(__file__).resolve().parents[4]
    command = [sys.executable, "-c", WRITER, str(settings.home)]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        last = -1
        for line in writer.stdout:
            last = int(line)
            if last == 50:
                os.kill(writer.pid, signal.SIGKILL)
    assert last >= 50
    assert (settings.home / "qdrant-owner.json").exists()  # stale now
    store = own_store(settings)
    try:
        assert store.count("docs") in (last + 1, last + 2)
        assert len(store.existing_ids("docs", [chunk(number).id for number in range(last + 1)])) == last + 1
    finally:
        store.close()


# -- a server ----------------------------------------------------------------------------------------


class Scripted(BaseHTTPRequestHandler):
    """Answers every request with what its server was told to."""

    def answer(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        self.rfile.read(length)
        self.server.seen.append((self.command, self.path, self.headers.get("api-key")))  # type: ignore[attr-defined]
        status, headers, body, wait = self.server.script  # type: ignore[attr-defined]
        time.sleep(wait)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = answer

    def log_message(self, *args: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Scripted)
        self.script: tuple[int, dict[str, str], bytes, float] = (200, {}, b"{}", 0)
        self.seen: list[tuple[str, str, str | None]] = []


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as made:
        threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield made
        made.shutdown()


@pytest.fixture
def remote(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[VectorStore]:
    monkeypatch.setattr(qdrant, "TIMEOUT", 1)
    url = f"http://127.0.0.1:{server.server_address[1]}"
    settings = Settings(home=tmp_path, qdrant_url=url, qdrant_api_key=SECRET, _env_file=None)
    with pytest.warns(UserWarning, match="insecure"):
        made = server_store(settings)
    made._dimensions["docs"] = 8
    yield made
    made.close()


@pytest.mark.parametrize(
    ("status", "headers", "error", "code"),
    [
        (401, {}, PermanentError, "store_auth"),
        (403, {}, PermanentError, "store_auth"),
        (400, {}, PermanentError, "store_refused"),
        (500, {}, TransientError, "store_unreachable"),
        (503, {}, TransientError, "store_unreachable"),
        (429, {}, TransientError, "store_unreachable"),
        (429, {"Retry-After": "7"}, TransientError, "store_unreachable"),
        (200, {}, PermanentError, "store_refused"),
    ],
)
def test_what_a_server_answers_decides_whether_to_try_again(
    server: Server,
    remote: VectorStore,
    status: int,
    headers: dict[str, str],
    error: type[Exception],
    code: str,
) -> None:
    server.script = (status, headers, f'"{SECRET} <html>"'.encode(), 0)
    with pytest.raises(error) as caught:
        remote.search("docs", vector(1), 3)
    assert isinstance(caught.value, (TransientError, PermanentError))
    assert (caught.value.code, caught.value.where) == (code, "qdrant")
    assert caught.value.retry_after == (7.0 if headers else None)
    assert SECRET not in str(caught.value)
    assert caught.value.__suppress_context__
    assert server.seen[0] == ("POST", "/collections/docs/points/query", SECRET)


def test_a_collection_the_server_does_not_know(server: Server, remote: VectorStore) -> None:
    server.script = (404, {}, b'{"status": {"error": "Not found"}}', 0)
    with pytest.raises(NotFound, match="cragline ingest PATH --collection docs"):
        remote.search("docs", vector(1), 3)
    assert "docs" not in remote._dimensions


def test_a_slow_server_is_given_up(server: Server, remote: VectorStore) -> None:
    server.script = (200, {}, b"{}", 1.5)
    with pytest.raises(TransientError, match="no answer within") as caught:
        remote.count("docs")
    assert caught.value.code == "store_unreachable"


def test_no_server_there(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://user:{SECRET}@127.0.0.1:{taken.getsockname()[1]}"
        settings = Settings(home=tmp_path, qdrant_url=url, _env_file=None)
        store = server_store(settings)
        with pytest.raises(TransientError, match="cannot be reached") as caught:
            store.ensure_collection("docs", 8)
    assert caught.value.code == "store_unreachable"
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("url", [f"ftp://{SECRET}@x", f"{SECRET}:::", f"http://[{SECRET}"])
def test_a_url_that_is_none_is_refused_without_being_quoted(tmp_path: Path, url: str) -> None:
    with pytest.raises((CraglineError, TransientError, PermanentError)) as caught:
        server_store(Settings(home=tmp_path, qdrant_url=url, _env_file=None)).count("docs")
    assert SECRET not in str(caught.value)
