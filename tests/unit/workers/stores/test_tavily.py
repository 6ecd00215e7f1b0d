"""Web search, through the real client against a scripted server."""

import traceback
from collections.abc import Callable, Iterator

import pytest

from shared.errors import CallError, PermanentError, TransientError
from tests.fakes.http_fake import Reply
from tests.fakes.tavily_server import FakeTavily, Script, api_error, default_script, results
from workers.models.calls import MemoryRecorder
from workers.stores.tavily import TavilySearch

KEY = "tvly-very-secret-0123456789"
QUERY = "river Leiden private"


@pytest.fixture
def serve() -> Iterator[Callable[..., FakeTavily]]:
    started: list[FakeTavily] = []

    def start(script: Script = default_script) -> FakeTavily:
        started.append(FakeTavily(script).start())
        return started[-1]

    yield start
    for fake in started:
        fake.stop()


def search_of(fake: FakeTavily, timeout: float = 10.0) -> tuple[TavilySearch, MemoryRecorder]:
    recorder = MemoryRecorder()
    return TavilySearch(KEY, fake.base_url, timeout, recorder), recorder


def test_results_become_documents_and_are_recorded(serve) -> None:
    fake = serve()
    search, recorder = search_of(fake)
    documents = search.search(QUERY, 2)
    assert documents[0] == {
        "id": documents[0]["id"],
        "text": f"The web says about {QUERY}: fact number 1.",
        "title": f"Result 1 for {QUERY}",
        "source": "https://example.org/1",
        "page": None,
        "score": 0.9,
        "origin": "web",
    }
    ids = [document["id"] for document in documents]
    assert len(set(ids)) == 2 and all(id.startswith("web:") for id in ids)
    assert [document["id"] for document in search.search(QUERY, 2)] == ids, "the same result, the same id"
    record = recorder.records[0]
    assert (record.spec.role, record.spec.provider, record.spec.model) == ("web_search", "tavily", "search")
    assert record.spec.request == {"query": QUERY, "k": 2}
    assert record.response == documents
    assert record.cost_usd == pytest.approx(0.008)
    assert fake.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert "x-tavily-access-mode" not in fake.requests[0].headers


@pytest.mark.parametrize("key", ["", "   "])
def test_a_missing_key_is_an_error_and_never_keyless(
    serve, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    fake = serve()
    monkeypatch.setenv("TAVILY_API_KEY", "from-the-environment")
    with pytest.raises(PermanentError) as caught:
        TavilySearch(key, fake.base_url, 5, MemoryRecorder())
    assert caught.value.code == "no_key" and fake.requests == []


def test_never_more_than_k_and_the_query_is_cut(serve) -> None:
    many = [{"title": "t", "url": "u", "content": f"c{n}", "score": 0.5} for n in range(30)]
    fake = serve(lambda payload: results(*many))
    search, _ = search_of(fake)
    assert len(search.search("word " * 500, 4)) == 4
    assert fake.requests[0].payload["max_results"] == 4
    assert len(fake.requests[0].payload["query"]) <= 390


def test_hostile_results(serve) -> None:
    found = [
        {"title": "a\x00b\n c", "url": "https://x/\ud800", "content": " text\x00 ", "score": "high"},
        {"title": None, "url": "https://y", "content": "only text", "score": None},
        {"title": "no text", "url": "https://z", "content": "  "},
        {"title": "no content", "url": "https://z"},
        "not even a result",
        {"title": "long", "url": 5, "content": "x" * 100_000, "score": 0.1},
    ]
    search, _ = search_of(serve(lambda payload: results(*found)))
    first, second, third = search.search(QUERY, 10)
    assert (first["title"], first["source"], first["text"], first["score"]) == (
        "a\ufffdb c",
        "https://x/\ufffd",
        "text\ufffd",
        None,
    )
    assert second["title"] == "https://y"
    assert len(third["text"]) == 20_000 and third["source"] == ""


def test_no_results_is_an_empty_list(serve) -> None:
    search, recorder = search_of(serve(lambda payload: results()))
    assert search.search(QUERY, 3) == []
    assert recorder.records[0].ok


ECHO = f"you sent {KEY} and {QUERY}"


@pytest.mark.parametrize(
    ("reply", "kind", "code", "retry_after"),
    [
        (api_error(401, ECHO), PermanentError, "bad_key", None),
        (api_error(403, ECHO), PermanentError, "quota", None),
        (api_error(432, ECHO), PermanentError, "quota", None),
        (api_error(433, ECHO), PermanentError, "quota", None),
        (api_error(400, ECHO), PermanentError, "bad_request", None),
        (api_error(404, ECHO), PermanentError, "bad_request", None),
        (api_error(429, ECHO, headers={"Retry-After": "12"}), TransientError, "rate_limited", 12.0),
        (api_error(429, ECHO), TransientError, "rate_limited", None),
        (api_error(500, ECHO), TransientError, "server_error", None),
        (api_error(503, ECHO, headers={"Retry-After": "4"}), TransientError, "server_error", 4.0),
        (Reply(status=502, raw=b"<html>"), TransientError, "server_error", None),
        (Reply(raw=b"<html>not json</html>"), TransientError, "unusable_output", None),
        (Reply(body=["a", "list"]), TransientError, "unusable_output", None),
        (Reply(body={"results": "none"}), TransientError, "unusable_output", None),
        (results({"content": "x"}, cut=True), TransientError, "unreachable", None),
    ],
)
def test_errors_have_our_class_and_code_and_leak_nothing(
    serve, reply: Reply, kind: type[CallError], code: str, retry_after: float | None
) -> None:
    fake = serve(lambda payload: reply)
    search, recorder = search_of(fake)
    with pytest.raises(CallError) as caught:
        search.search(QUERY, 3)
    error = caught.value
    assert isinstance(error, kind)
    assert (error.code, error.retry_after, error.where) == (code, retry_after, "tavily")
    assert len(fake.requests) == 1
    shown = "".join(traceback.format_exception(error)) + repr(error) + str(recorder.records[0].error)
    assert KEY not in shown and QUERY not in shown
    assert error.__cause__ is None and error.__context__ is None
    assert recorder.records[0].ok is False


@pytest.mark.parametrize(
    "reply", [Reply(hang=True), results(latency=5), results({"content": "x"}, drip=0.05)]
)
def test_hang_latency_and_slow_drip_end_at_the_timeout(serve, reply: Reply) -> None:
    search, _ = search_of(serve(lambda payload: reply), timeout=0.4)
    with pytest.raises(TransientError) as caught:
        search.search(QUERY, 3)
    assert caught.value.code == "timeout"


def test_nobody_listens() -> None:
    with FakeTavily() as fake:
        search, _ = search_of(fake)
    with pytest.raises(TransientError) as caught:
        search.search(QUERY, 3)
    assert caught.value.code == "unreachable"


def test_the_wait_of_an_earlier_reply_is_not_remembered(serve) -> None:
    replies = [api_error(429, headers={"Retry-After": "9"}), api_error(429)]
    search, _ = search_of(serve(lambda payload: replies.pop(0)))
    waits = []
    for _ in range(2):
        with pytest.raises(TransientError) as caught:
            search.search(QUERY, 3)
        waits.append(caught.value.retry_after)
    assert waits == [9.0, None]


def test_a_result_that_comes_twice_is_one_and_an_endless_score_is_none(serve) -> None:
    found = [
        {"title": "t", "url": "u", "content": "same", "score": 0.9},
        {"title": "t", "url": "u", "content": "same", "score": 0.8},
        {"title": "t", "url": "u", "content": "other", "score": float("inf")},
        {"title": "t", "url": "u", "content": "third", "score": 10**400},
    ]
    search, _ = search_of(serve(lambda payload: results(*found)))
    assert [(one["text"], one["score"]) for one in search.search(QUERY, 10)] == [
        ("same", 0.9),
        ("other", None),
        ("third", None),
    ]
