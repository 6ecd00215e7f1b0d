"""A migrated Postgres, a local store, and a fake embedder."""

import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from api.cli import ingest as command
from shared import ingest as work
from shared.settings import Settings
from shared.stack.testing import Servers
from workers.ingest import ingest_file
from workers.stores.local_owner import own_store
from workers.stores.qdrant import VectorStore


class WordHash:
    """An embedder without a model: each word adds to one of the dimensions. Counts what it embeds."""

    def __init__(self, dimension: int = 256, name: str = "fake/word-hash") -> None:
        self.name = name
        self.dimension = dimension
        self.embedded: list[str] = []
        self.before: Callable[[Sequence[str]], None] = lambda texts: None  # a test may let it fail or wait

    def embed_documents(self, texts: Sequence[str]) -> list[list[float]]:
        self.before(texts)
        self.embedded += texts
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        vector = [0.01] * self.dimension
        for word in text.lower().split():
            vector[int(hashlib.sha256(word.encode()).hexdigest(), 16) % self.dimension] += 1.0
        return vector


@pytest.fixture
def engine(database: Engine) -> Engine:
    return database


@pytest.fixture
def embedder() -> WordHash:
    return WordHash()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[VectorStore]:
    made = own_store(Settings(home=tmp_path / "home", _env_file=None))
    yield made
    made.close()


@pytest.fixture
def run(engine: Engine, store: VectorStore, embedder: WordHash) -> Callable[..., None]:
    """`run(file_id, **other)`: the task, with small chunks."""

    def call(file_id: int, **other: Any) -> None:
        parts: dict[str, Any] = {"store": store, "embedder": embedder, "engine": engine}
        ingest_file(file_id, **(parts | {"chunk_tokens": 30, "chunk_overlap": 5} | other))

    return call


@pytest.fixture
def settings(servers: Servers, tmp_path: Path) -> Settings:
    return Settings(
        home=tmp_path / "home",
        database_url=servers.database_url,
        redis_url=servers.redis_url,
        collection="from-settings",
        _env_file=None,
    )


class Queue:
    """What is published ends here; `deliver` hands it to a worker, unless messages are `lost`."""

    def __init__(self, run: Callable[..., None]) -> None:
        self.run = run
        self.published: list[list[int]] = []
        self.lost = 0
        self.threads: list[threading.Thread] = []

    def wake(self, app: object, ids: list[int]) -> None:
        self.published.append(list(ids))
        if self.lost:
            self.lost -= 1
            return
        thread = threading.Thread(target=lambda: [self.run(one) for one in ids])
        thread.start()
        self.threads.append(thread)


@pytest.fixture
def queue(
    run: Callable[..., None], engine: Engine, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Queue]:
    made = Queue(run)
    monkeypatch.setattr(command, "get_settings", lambda: settings)
    monkeypatch.setattr(command, "get_engine", lambda: engine)
    monkeypatch.setattr(work, "wake", made.wake)
    monkeypatch.setattr(command, "POLL_SECONDS", 0.02)
    yield made
    for thread in made.threads:
        thread.join()
