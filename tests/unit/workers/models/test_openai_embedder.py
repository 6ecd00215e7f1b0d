import pytest

from shared.errors import PermanentError, TransientError
from tests.fakes.http_fake import Reply
from tests.fakes.openai_server import FakeOpenAI, api_error, hashed_vector
from tests.unit.workers.models.conftest import SECRET_KEY, settings_for
from workers.models.calls import MemoryRecorder, UnusableOutput
from workers.models.openai_client import OpenAISettings
from workers.models.openai_embedder import OpenAIEmbedder


def test_vectors_in_order_in_batches_and_recorded_without_vectors(serve, recorder: MemoryRecorder) -> None:
    fake: FakeOpenAI = serve(dimension=32)
    texts = [f"text number{n}" for n in range(300)]
    vectors = OpenAIEmbedder(settings_for(fake), "text-embedding-3-small", recorder).embed_documents(texts)
    assert vectors[257] == pytest.approx(hashed_vector(texts[257], 32))
    assert [len(request.payload["input"]) for request in fake.requests] == [128, 128, 44]
    records = recorder.records
    assert [record.response for record in records] == [None] * 3
    assert not any(record.spec.reusable for record in records)
    assert records[0].spec.role == "embedder"
    assert records[0].input_tokens == 256
    assert records[0].cost_usd == pytest.approx(256 * 0.02 / 1e6)


def test_similar_texts_are_near_in_the_fake() -> None:
    a, b, c = (
        hashed_vector(text, 256) for text in ("red apples grow", "green apples grow", "tax return form")
    )
    assert sum(x * y for x, y in zip(a, b, strict=True)) > 0.5 > sum(x * y for x, y in zip(a, c, strict=True))


def test_nothing_to_embed_asks_nobody(serve) -> None:
    fake = serve()
    assert OpenAIEmbedder(settings_for(fake), "m").embed_documents([]) == []
    assert fake.requests == []


def test_dimension_is_known_or_asked_once(serve) -> None:
    fake = serve(dimension=48)
    ours = OpenAISettings(api_key="k", base_url=None)
    assert OpenAIEmbedder(ours, "text-embedding-3-large").dimension == 3072
    # another server may mean another model by that name
    assert OpenAIEmbedder(settings_for(fake), "text-embedding-3-large").dimension == 48
    fake.clear()
    embedder = OpenAIEmbedder(settings_for(fake), "nomic-embed-text")
    assert (embedder.name, embedder.dimension, embedder.dimension) == ("openai/nomic-embed-text", 48, 48)
    assert len(fake.requests) == 1


def test_texts_are_made_acceptable(serve) -> None:
    fake = serve()
    OpenAIEmbedder(settings_for(fake), "m").embed_documents(["", "a\x00b\ud800", "語" * 50_000])
    empty, hostile, long = fake.requests[0].payload["input"]
    assert (empty, hostile) == (" ", "a\ufffdb\ufffd")
    assert len(long.encode()) <= 20_000 and set(long) == {"語"}


def test_rows_are_sorted_by_index(serve) -> None:
    rows = [{"object": "embedding", "index": index, "embedding": [float(index)]} for index in (1, 0)]
    fake = serve(embedding_replies=lambda payload: Reply(body={"object": "list", "model": "m", "data": rows}))
    assert OpenAIEmbedder(settings_for(fake), "m").embed_documents(["a", "b"]) == [[0.0], [1.0]]


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [{"object": "embedding", "index": 0, "embedding": [1.0]}],
        [{"object": "embedding", "index": n, "embedding": [1.0] * (n + 1)} for n in (0, 1)],
        [{"object": "embedding", "index": 0, "embedding": [1.0]}] * 2,
        [{"object": "embedding", "index": n, "embedding": []} for n in (0, 1)],
        [{"object": "embedding", "index": n, "embedding": [float("nan")]} for n in (0, 1)],
    ],
)
def test_wrong_number_or_width_of_vectors(serve, recorder: MemoryRecorder, rows: list[object]) -> None:
    fake = serve(embedding_replies=lambda payload: Reply(body={"object": "list", "model": "m", "data": rows}))
    with pytest.raises(UnusableOutput):
        OpenAIEmbedder(settings_for(fake), "m", recorder).embed_documents(["a", "b"])
    assert not recorder.records[0].ok


@pytest.mark.parametrize(
    ("reply", "kind", "code"),
    [
        (api_error(401, "invalid_api_key", SECRET_KEY), PermanentError, "bad_key"),
        (api_error(429, "insufficient_quota"), PermanentError, "quota"),
        (api_error(500), TransientError, "server_error"),
        (Reply(hang=True), TransientError, "timeout"),
        (Reply(body={"data": "x"}, cut=True), TransientError, "unreachable"),
        (Reply(raw=b"nonsense"), TransientError, "unusable_output"),
    ],
)
def test_errors(serve, reply: Reply, kind: type[Exception], code: str) -> None:
    fake = serve(embedding_replies=lambda payload: reply)
    with pytest.raises(kind) as caught:
        OpenAIEmbedder(settings_for(fake, timeout=0.5), "m").embed_query("a")
    assert caught.value.code == code  # type: ignore[attr-defined]
    assert SECRET_KEY not in str(caught.value) and caught.value.__context__ is None
    assert len(fake.requests) == 1
