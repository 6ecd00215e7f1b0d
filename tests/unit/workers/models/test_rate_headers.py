"""The limits that a provider's headers name come through the real clients."""

import pytest

from tests.fakes.openai_server import FakeOpenAI, default_script, rate_limited
from tests.fakes.tavily_server import FakeTavily
from tests.fakes.tavily_server import default_script as web_script
from tests.fakes.trouble import RateLimited
from workers.models.calls import MemoryRecorder
from workers.models.openai import OpenAIQueryRewriter
from workers.models.openai_client import OpenAISettings
from workers.models.openai_embedder import OpenAIEmbedder
from workers.models.rate_headers import Said, heard, limits_in, listening
from workers.stores.tavily import TavilySearch

HEADERS = {
    "x-ratelimit-limit-requests": "500",
    "x-ratelimit-remaining-requests": "499",
    "x-ratelimit-reset-requests": "120ms",
    "x-ratelimit-limit-tokens": "30000",
    "x-ratelimit-remaining-tokens": "29000",
    "x-ratelimit-reset-tokens": "2s",
}


@pytest.mark.parametrize("method", ["json_schema", "function_calling", "json_mode"])
def test_headers_of_a_chat_reply_are_heard_by_who_asked(method: str) -> None:
    """LangChain runs the client in a thread of its own."""
    with FakeOpenAI(RateLimited(500, burst=500).over(default_script)) as fake, listening() as headers:
        settings = OpenAISettings(api_key="k", base_url=fake.base_url, method=method)  # type: ignore[arg-type]
        OpenAIQueryRewriter(settings, "gpt-4.1-mini", MemoryRecorder()).rewrite("How old?")
        assert limits_in(headers) == Said(requests=500, requests_left=499)


def test_headers_of_an_embedding_a_search_and_a_refusal_are_heard() -> None:
    with (
        FakeOpenAI(lambda role, payload: rate_limited("7")) as fake,
        FakeTavily(RateLimited(100, burst=100).over(web_script)) as web,
    ):
        settings = OpenAISettings(api_key="k", base_url=fake.base_url)
        with listening() as headers:
            OpenAIEmbedder(settings, "m").embed_query("x")
            assert headers["content-type"] == "application/json"
        with listening() as headers, pytest.raises(Exception, match="429"):
            OpenAIQueryRewriter(settings, "gpt-4.1-mini", MemoryRecorder()).rewrite("How old?")
        assert headers["retry-after"] == "7"
        with listening() as headers:
            TavilySearch("tvly-key", web.base_url, 5, MemoryRecorder()).search("q", 3)
        assert limits_in(headers).requests == 100


def test_nobody_has_to_listen_and_the_last_reply_counts() -> None:
    heard({"A": "1"})
    with listening() as headers:
        heard({"X-One": " 1 "})
        with listening() as inner:
            heard({"X-Two": "2"})
        assert inner == {"x-two": "2"}
        assert headers == {"x-one": "1"}
        heard({})
        assert headers == {}


def test_limits_a_minute_are_learned() -> None:
    assert limits_in(HEADERS) == Said(500, 30000, 499, 29000)
    assert limits_in({}) == Said()


@pytest.mark.parametrize(
    "change",
    [
        {"x-ratelimit-reset-requests": "8m38.4s"},  # a day's limit
        {"x-ratelimit-limit-requests": "0"},
        {"x-ratelimit-limit-requests": "many"},
        {"x-ratelimit-limit-requests": "-5"},
        {"x-ratelimit-limit-requests": "0.0000001"},  # the time until the next call would have no end
        {"x-ratelimit-limit-requests": "nan"},
    ],
)
def test_what_is_no_limit_a_minute_is_not_learned(change: dict[str, str]) -> None:
    said = limits_in(HEADERS | change)
    assert (said.requests, said.requests_left, said.tokens) == (None, None, 30000)
