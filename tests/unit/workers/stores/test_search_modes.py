"""Dense, sparse, hybrid and filters through the store: on a local folder, and as a server would be asked."""

import json
import math
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from qdrant_client import models as q

from shared.errors import CraglineError, NotFound
from shared.settings import Settings
from workers.models.roles import Document
from workers.stores.bm25 import passage_vector, question_vector
from workers.stores.chunks import Chunk, split
from workers.stores.loaders import LoadedDocument
from workers.stores.local_owner import own_store
from workers.stores.points import payload_of
from workers.stores.qdrant import WORDS, VectorStore, server_store

TEXTS = [
    "The harbour crane lifts containers.",
    "A pump feeds the reservoir. The pump is red.",
    "The pump house stands by the harbour, and there is much else to be seen on a walk along the quay.",
    "Ravens nest on the crag in spring.",
    "東京都の水道",
]
# the meaning is the fake's: the nearer to the first axis, the nearer to every question
VECTORS = [[1.0, 0.1 * number, 0.0, 0.0] for number in range(len(TEXTS))]
ASKED = [1.0, 0.0, 0.0, 0.0]


def chunk(number: int, **more: Any) -> Chunk:
    text = TEXTS[number]
    document = LoadedDocument(f"/d/a.jsonl#{number}", f"Title {number}", text, None, "/d/a.jsonl", **more)
    return next(split([document], 100, 5))


def fill(store: VectorStore, fields: list[dict[str, Any]] | None = None) -> None:
    store.ensure_collection("docs", 4)
    chunks = [chunk(number, fields=(fields or [{}] * 5)[number]) for number in range(len(TEXTS))]
    store.upsert("docs", chunks, VECTORS)


def numbers(found: list[Document]) -> list[int]:
    return [int(one["source"].rpartition("#")[2]) for one in found]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / "home", _env_file=None)


@pytest.fixture
def store(settings: Settings) -> Iterator[VectorStore]:
    made = own_store(settings)
    yield made
    made.close()


def test_dense_is_by_meaning_alone(store: VectorStore) -> None:
    fill(store)
    assert numbers(store.search("docs", ASKED, 5, text="ravens on the crag")) == [0, 1, 2, 3, 4]


def test_sparse_is_by_words_best_first_and_needs_no_vector(store: VectorStore) -> None:
    fill(store)
    found = store.search("docs", [], 5, text="Which pumps?", mode="sparse")
    assert numbers(found) == [1, 2], "twice in a short text before once in a long one; the others not at all"
    assert all(one["text"] for one in found)
    assert numbers(store.search("docs", [], 1, text="pump", mode="sparse")) == [1]
    assert numbers(store.search("docs", [], 5, text="東京の水", mode="sparse")) == [4]
    assert numbers(store.search("docs", [], 5, text="Title 3", mode="sparse"))[0] == 3


def test_the_sparse_score_is_bm25_with_the_collections_rarity(store: VectorStore) -> None:
    fill(store)
    found = store.search("docs", [], 5, text="red pump", mode="sparse")
    weights = passage_vector("Title 1", TEXTS[1])
    red, pump = question_vector("red"), question_vector("pump")
    expected = 0.0
    for words, frequency in ((red, 1), (pump, 2)):
        expected += weights[next(iter(words))] * math.log((5 - frequency + 0.5) / (frequency + 0.5) + 1)
    assert found[0]["score"] == pytest.approx(expected, abs=1e-4)
    score = found[0]["score"]
    assert score is not None and round(score, 4) == score


def test_a_rare_word_counts_more_than_a_common_one(store: VectorStore) -> None:
    fill(store)
    assert numbers(store.search("docs", [], 5, text="pump ravens", mode="sparse"))[0] == 3


def test_hybrid_brings_both_together(store: VectorStore) -> None:
    fill(store)
    found = store.search("docs", ASKED, 5, text="pump", mode="hybrid")
    assert numbers(found) == [1, 2, 0, 3, 4]
    assert [one["score"] for one in found] == [0.875, 0.675, 0.5, 0.25, 0.2143]
    assert all(one["text"] for one in found)
    assert numbers(store.search("docs", ASKED, 2, text="ravens", mode="hybrid")) == [3, 0]


def test_a_question_without_words_leaves_the_meaning(store: VectorStore) -> None:
    fill(store)
    for text in ("", "who is it?", "\x00\ud800"):
        assert store.search("docs", [], 5, text=text, mode="sparse") == []
        assert numbers(store.search("docs", ASKED, 3, text=text, mode="hybrid")) == [0, 1, 2]


def test_no_passage_has_a_word(store: VectorStore) -> None:
    fill(store)
    assert store.search("docs", [], 5, text="zeppelin", mode="sparse") == []
    store.ensure_collection("empty", 4)
    for mode in ("dense", "sparse", "hybrid"):
        assert store.search("empty", ASKED, 5, text="pump", mode=mode) == []  # type: ignore[arg-type]


def test_absent_collections_are_said_to_be_absent(store: VectorStore) -> None:
    for mode in ("dense", "sparse", "hybrid"):
        with pytest.raises(NotFound, match="--collection docs"):
            store.search("docs", ASKED, 5, text="pump", mode=mode)  # type: ignore[arg-type]


# -- filters -----------------------------------------------------------------------------------------

FIELDS: list[dict[str, Any]] = [
    {"lang": "nl", "year": 2024, "open": True},
    {"lang": "nl", "year": 2025, "open": False},
    {"lang": "de", "year": 2024.0, "price": 0.5},
    {"lang": "de", "year": "2024"},
    {"lang": "true", "year": 2**60},
]


@pytest.mark.parametrize("mode", ["dense", "hybrid"])
@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, [0, 1, 2, 3, 4]),
        ({"title": ["Title 2"]}, [2]),
        ({"title": ["title 2"]}, []),  # compared as it is
        ({"source": ["/d/a.jsonl#1", "/d/a.jsonl#4"]}, [1, 4]),
        ({"path": ["/d/a.jsonl"]}, [0, 1, 2, 3, 4]),
        ({"page": ["1"]}, []),
        ({"language": ["nl"]}, []),
        ({"fields.lang": ["nl"]}, [0, 1]),
        ({"fields.lang": ["nl", "de"], "fields.year": ["2024"]}, [0, 2, 3]),  # 2024, 2024.0 and "2024"
        ({"fields.open": ["true"]}, [0]),
        ({"fields.lang": ["true"]}, [4]),
        ({"fields.price": ["0.50"]}, [2]),
        ({"fields.year": [str(2**60)]}, [4]),
        ({"fields.year": [str(2**60 + 1)]}, []),
        ({"fields.year": ["nan"]}, []),
        ({"fields.year": ["1e400"]}, []),
        ({"fields.nothing": ["x"]}, []),
    ],
)
def test_filters(store: VectorStore, mode: Any, filters: dict[str, list[str]], expected: list[int]) -> None:
    fill(store, FIELDS)
    found = store.search("docs", ASKED, 5, text="zeppelin", mode=mode, filters=filters)
    assert numbers(found) == expected


def test_filters_hold_for_words_too(store: VectorStore) -> None:
    fill(store, FIELDS)
    found = store.search("docs", [], 5, text="pump", mode="sparse", filters={"fields.lang": ["de"]})
    assert numbers(found) == [2]


def test_the_page_of_a_pdf(store: VectorStore) -> None:
    store.ensure_collection("docs", 4)
    pages = [LoadedDocument("/d/a.pdf", "A", f"page {n}", n, "/d/a.pdf") for n in (1, 2, 3)]
    store.upsert("docs", list(split(pages, 50, 5)), VECTORS[:3])
    found = store.search("docs", ASKED, 5, filters={"page": ["2", "3"]})
    assert [one["page"] for one in found] == [2, 3]


def test_what_stays_is_brought_up_to_date(store: VectorStore) -> None:
    fill(store, FIELDS)
    store.refresh("docs", [chunk(1, fields={"lang": "fr"})])
    store.refresh("docs", [])
    assert numbers(store.search("docs", ASKED, 5, filters={"fields.lang": ["fr"]})) == [1]
    assert store.search("docs", ASKED, 5, filters={"fields.year": ["2025"]}) == [], (
        "a field that went is gone"
    )


# -- collections of earlier versions -------------------------------------------------------------------


def make_old(store: VectorStore, count: int = len(TEXTS)) -> None:
    """As it was made before there were words."""
    store._client.create_collection("docs", q.VectorParams(size=4, distance=q.Distance.COSINE))
    points = [
        q.PointStruct(id=chunk(n).id, vector=VECTORS[n], payload=payload_of(chunk(n), "2026-01-01"))
        for n in range(count)
    ]
    store._client.upsert("docs", points)


def test_an_old_collection_is_searched_by_meaning_and_otherwise_says_what_to_do(store: VectorStore) -> None:
    make_old(store)
    assert numbers(store.search("docs", ASKED, 2)) == [0, 1]
    for mode in ("sparse", "hybrid"):
        with pytest.raises(
            CraglineError, match=r"earlier version.*cragline ingest PATH --collection docs.*dense"
        ):
            store.search("docs", ASKED, 2, text="pump", mode=mode)  # type: ignore[arg-type]


def test_ingest_adds_the_words_of_an_old_collection(settings: Settings) -> None:
    store = own_store(settings)
    make_old(store)
    store.ensure_collection("docs", 4)
    assert numbers(store.search("docs", [], 5, text="pump", mode="sparse")) == [1, 2]
    assert numbers(store.search("docs", ASKED, 5)) == [0, 1, 2, 3, 4], "the vectors are as they were"
    store.close()
    again = own_store(settings)
    try:
        assert numbers(again.search("docs", [], 5, text="pump", mode="sparse")) == [1, 2]
    finally:
        again.close()


def test_an_addition_that_was_cut_short_is_finished(
    store: VectorStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_old(store)
    with monkeypatch.context() as patched:
        patched.setattr("workers.stores.qdrant._BATCH", 2)
        real, calls = store._client.update_vectors, []

        def dies(*args: Any, **kwargs: Any) -> Any:
            calls.append(1)
            if len(calls) == 2:
                raise KeyboardInterrupt
            return real(*args, **kwargs)

        patched.setattr(store._client, "update_vectors", dies)
        with pytest.raises(KeyboardInterrupt):
            store.ensure_collection("docs", 4)
    store.ensure_collection("docs", 4)
    for number, word in enumerate(["crane", "reservoir", "quay", "ravens", "東京"]):
        assert numbers(store.search("docs", [], 5, text=word, mode="sparse")) == [number]


def test_points_without_a_word_do_not_keep_the_addition_going(store: VectorStore) -> None:
    store._client.create_collection("docs", q.VectorParams(size=4, distance=q.Distance.COSINE))
    points = [q.PointStruct(id=n, vector=VECTORS[0], payload={"text": "!"}) for n in range(200)]
    store._client.upsert("docs", points)
    store.ensure_collection("docs", 4)
    assert store._completed == {"docs"}


def test_a_chunk_without_a_word_is_stored(store: VectorStore) -> None:
    store.ensure_collection("docs", 4)
    lone = next(split([LoadedDocument("/d/x", "a", "a b c the", None, "/d/x")], 50, 5))
    store.upsert("docs", [lone], [ASKED])
    assert store.search("docs", ASKED, 5, text="pump", mode="hybrid")[0]["text"] == "a b c the"


# -- a server ------------------------------------------------------------------------------------------


class Recording(BaseHTTPRequestHandler):
    """Answers from `server.replies` by the end of the path, and keeps what it was sent."""

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = self.path.partition("?")[0]
        sent: list[Any] = self.server.seen  # type: ignore[attr-defined]
        sent.append((self.command, path, json.loads(body) if body else None))
        status, result = self.server.reply(self.command, path, sent[-1][2])  # type: ignore[attr-defined]
        data = json.dumps({"result": result, "status": "ok", "time": 0.0}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = answer

    def log_message(self, *args: object) -> None:
        pass


IDS = ["00000000-0000-0000-0000-00000000000" + letter for letter in "abc"]


class Server(ThreadingHTTPServer):
    """A Qdrant server as far as these tests go; `old`: from before words could be added to a collection."""

    daemon_threads = True

    def __init__(self, worded: bool = True, old: bool = False) -> None:
        super().__init__(("127.0.0.1", 0), Recording)
        self.worded, self.old = worded, old
        self.seen: list[tuple[str, str, Any]] = []

    def reply(self, command: str, path: str, body: Any) -> tuple[int, Any]:
        if path.endswith("/exists"):
            return 200, {"exists": True}
        if path == "/collections/docs":
            params: dict[str, Any] = {"vectors": {"size": 4, "distance": "Cosine"}}
            if self.worded:
                params["sparse_vectors"] = {WORDS: {"modifier": "idf"}}
            return 200, _info(params)
        if path.endswith("/points/query"):
            order = [IDS[1], IDS[2]] if body.get("using") == WORDS else IDS[:2]
            points = [{"id": one, "version": 1, "score": 0.9 - n / 10} for n, one in enumerate(order)]
            return 200, {"points": points}
        if command == "POST" and path == "/collections/docs/points":
            return 200, [{"id": one, "payload": {"text": one[-1]}} for one in body["ids"]]
        if path.endswith("/points/scroll"):
            return 200, {"points": [], "next_page_offset": None}
        if f"/vectors/{WORDS}" in path:
            if self.old:
                return 404, None
            self.worded = True
        return 200, {"operation_id": 1, "status": "completed"}

    def asked(self, end: str) -> list[Any]:
        return [body for _, path, body in self.seen if path.endswith(end)]


def _info(params: dict[str, Any]) -> dict[str, Any]:
    hnsw = {"m": 16, "ef_construct": 100, "full_scan_threshold": 10000}
    optimizer = {
        "deleted_threshold": 0.2,
        "vacuum_min_vector_number": 1000,
        "default_segment_number": 0,
        "flush_interval_sec": 5,
    }
    config = {"params": params, "hnsw_config": hnsw, "optimizer_config": optimizer}
    return {
        "status": "green", "optimizer_status": "ok", "segments_count": 1, "config": config, "payload_schema": {}
    }  # fmt: skip


def serving(server: Server, tmp_path: Path) -> VectorStore:
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    return server_store(Settings(home=tmp_path, qdrant_url=url, _env_file=None))


def test_a_server_is_asked_for_both_rankings_and_then_for_the_best(tmp_path: Path) -> None:
    with Server() as server:
        store = serving(server, tmp_path)
        found = store.search("docs", ASKED, 2, text="red pumps", mode="hybrid", filters={"page": ["3"]})
        dense, sparse = server.asked("/points/query")
        server.shutdown()
    assert [one["text"] for one in found] == ["b", "a"]
    assert [one["score"] for one in found] == [0.875, 0.5]
    assert dense["query"] == {"nearest": ASKED} and not dense.get("using")
    assert sparse["using"] == WORDS
    words = {"indices": list(question_vector("red pump")), "values": [1.0, 1.0]}
    assert sparse["query"] == {"nearest": words}
    for request in (dense, sparse):
        assert request["limit"] == 50 + 16, "and some more, among which ties are broken"
        assert request["filter"] == {"must": [{"key": "page", "match": {"any": [3]}}]}
        assert request["with_payload"] is False


def test_a_server_gets_both_vectors(tmp_path: Path) -> None:
    with Server() as server:
        store = serving(server, tmp_path)
        store.ensure_collection("docs", 4)
        store.upsert("docs", [chunk(1)], [ASKED])
        point = server.asked("/collections/docs/points")[-1]["points"][0]
        server.shutdown()
    words = passage_vector("Title 1", TEXTS[1])
    assert point["vector"] == {"": ASKED, WORDS: {"indices": list(words), "values": list(words.values())}}
    assert (point["payload"]["path"], point["payload"]["fields"]) == ("/d/a.jsonl", {})


def test_a_server_is_told_to_make_room_for_words(tmp_path: Path) -> None:
    with Server(worded=False) as server:
        store = serving(server, tmp_path)
        store.ensure_collection("docs", 4)
        made = [(command, path, body) for command, path, body in server.seen if f"/vectors/{WORDS}" in path]
        server.shutdown()
    assert len(made) == 1
    assert made[0][2] == {"sparse": {"modifier": "idf"}}


def test_a_server_too_old_for_words_is_filled_without_and_searching_says_so(tmp_path: Path) -> None:
    with Server(worded=False, old=True) as server:
        store = serving(server, tmp_path)
        store.ensure_collection("docs", 4)
        store.upsert("docs", [chunk(1)], [ASKED])
        assert list(server.asked("/collections/docs/points")[-1]["points"][0]["vector"]) == [""]
        with pytest.raises(CraglineError, match="no words to search"):
            store.search("docs", ASKED, 2, text="pump", mode="hybrid")
        server.shutdown()
