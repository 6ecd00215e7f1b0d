"""A cluster of real workers with scripted OpenAI and Tavily servers, shared by the tests of a module."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.stack.testing import Servers
from tests.conftest import drop_database, make_database
from tests.fakes.openai_server import FakeOpenAI
from tests.fakes.tavily_server import FakeTavily
from tests.integration.cluster import Cluster
from tests.integration.scenario import DOCUMENTS
from tests.integration.scenarios import chat_script, web_script


@pytest.fixture(scope="module")
def openai() -> Iterator[FakeOpenAI]:
    with FakeOpenAI(chat_script) as fake:
        yield fake


@pytest.fixture(scope="module")
def tavily() -> Iterator[FakeTavily]:
    with FakeTavily(web_script) as fake:
        yield fake


@pytest.fixture(scope="module")
def cluster(
    servers: Servers, openai: FakeOpenAI, tavily: FakeTavily, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """One worker on all queues and beat. Collection `docs` has the scenarios' documents, `hollow` none."""
    name, url = make_database(servers)
    home = tmp_path_factory.mktemp("cluster")
    made = Cluster(
        home,
        url,
        servers.redis_url.removesuffix("/0") + f"/{_next_redis()}",
        OPENAI_API_KEY="sk-test-0123456789abcdef",
        OPENAI_BASE_URL=openai.base_url,
        TAVILY_API_KEY="tvly-test-0123456789",
        CRAGLINE_TAVILY_BASE_URL=tavily.base_url,
        CRAGLINE_EMBEDDING_MODEL="fake-embedding",
    )
    try:
        made.start()
        made.ingest(write_documents(home / "docs.jsonl", DOCUMENTS), "docs")
        hollow = write_documents(home / "hollow.jsonl", {"Doc Z": "This will be taken out again."})
        made.ingest(hollow, "hollow")
        made.ingest(write_documents(hollow, {}), "hollow")
        openai.clear()
        yield made
    finally:
        made.close()
        drop_database(servers, name)


_used = iter(range(1, 16))


def _next_redis() -> int:
    return next(_used)


def write_documents(path: Path, documents: dict[str, str]) -> Path:
    lines = [json.dumps({"id": title, "title": title, "text": text}) for title, text in documents.items()]
    path.write_text("\n".join(lines) + "\n" if lines else "")
    return path
