"""What a call may come to: rather too much than too little, and learned from what came."""

import pytest

from workers.models.calls import CallRecord
from workers.models.roles import CallSpec
from workers.runner.limits.estimates import Estimates


def spec(text: str = "", role: str = "answer_generator", provider: str = "openai", size: int = 0) -> CallSpec:
    request = {"system": "", "human": text}
    return CallSpec(role, provider, "gpt-4.1-mini", "v", request, size=size)


def learned(made: Estimates, *outputs: int | None) -> int:
    for tokens in outputs:
        made.learn(CallRecord(spec(), "x", 100, tokens, 0.0, 1.0))
    return made.of(spec(), {}).output_tokens


@pytest.mark.parametrize("text", ["How old is the crag? " * 50, "这座岩壁有多少年历史？" * 50, "Ü" * 500])
def test_the_request_is_estimated_by_its_length_in_any_script(text: str) -> None:
    found = Estimates().of(spec(text), {})
    assert found.input_tokens >= len(text.encode()) / 4
    assert found.input_tokens <= len(text.encode()) / 3 + 300
    assert found.cost_usd is not None and found.cost_usd > 0


def test_what_is_written_is_the_most_of_late() -> None:
    made = Estimates()
    assert learned(made) == 600
    assert learned(made, 100) == 135
    assert learned(made, 1000) == 1260
    assert 1000 < learned(made, *[10] * 10) < 1260
    assert learned(made, *[10] * 300) < 50
    assert learned(made, None) < 50


def test_a_bound_on_what_is_written_is_what_counts() -> None:
    made = Estimates(max_output_tokens=300)
    assert learned(made, 5000) == 300


def test_embeddings_by_their_texts_and_searches_by_their_price() -> None:
    made = Estimates()
    embedding = made.of(spec(role="embedder", size=30_000), {})
    assert embedding.output_tokens == 0 and embedding.input_tokens >= 10_000
    search = made.of(CallSpec("web_search", "tavily", "search", "none", {"query": "q"}), {})
    assert (search.tokens, search.cost_usd) == (0, 0.008)


def test_prices_of_ones_own_go_first_and_an_unknown_one_is_none() -> None:
    own = CallSpec("answer_generator", "openai", "mine", "v", {"human": "x"})
    assert Estimates().of(own, {}).cost_usd is None
    assert Estimates().of(own, {"mine": (0.0, 1000.0)}).cost_usd == pytest.approx(0.6)
