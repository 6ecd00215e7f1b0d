from collections.abc import Callable, Iterator

import pytest

from tests.fakes.openai_server import FakeOpenAI, Script, default_script
from workers.models.calls import MemoryRecorder
from workers.models.openai_client import Method, OpenAISettings
from workers.models.roles import Document

SECRET_KEY = "sk-very-secret-key-0123456789"


@pytest.fixture
def recorder() -> MemoryRecorder:
    return MemoryRecorder()


@pytest.fixture
def serve() -> Iterator[Callable[..., FakeOpenAI]]:
    """Starts a fake for a script; stopped after the test."""
    started: list[FakeOpenAI] = []

    def start(script: Script = default_script, **options: object) -> FakeOpenAI:
        fake = FakeOpenAI(script, **options)  # type: ignore[arg-type]
        started.append(fake.start())
        return fake

    yield start
    for fake in started:
        fake.stop()


def settings_for(fake: FakeOpenAI, method: Method = "json_schema", timeout: float = 10.0) -> OpenAISettings:
    return OpenAISettings(api_key=SECRET_KEY, base_url=fake.base_url, timeout=timeout, method=method)


def document(text: str, title: str = "T") -> Document:
    return Document(id="1", text=text, title=title, source="s", page=None, score=0.5, origin="store")
