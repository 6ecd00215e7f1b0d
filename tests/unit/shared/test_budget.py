"""Which caps are taken, and what is said of one that is reached."""

import pytest

from shared.budget import Caps, Spending, check_caps
from shared.errors import UsageError
from shared.plan import Plan

PLAN = Plan(
    pipeline="rag", collection="c", params={}, provider="openai", models={}, embedder="local",
    embedding_model="local/m", max_attempts=4,
)  # fmt: skip


@pytest.mark.parametrize(
    "caps", [Caps(0.0), Caps(-1.0), Caps(None, 0), Caps(float("nan")), Caps(1e9), Caps(None, 10**18)]
)
def test_caps_that_are_none_are_refused(caps: Caps) -> None:
    with pytest.raises(UsageError, match="--max-"):
        check_caps(PLAN, caps)


def test_a_cost_cap_needs_prices() -> None:
    plan = PLAN.model_copy(update={"models": {"answer_generator": "my-model"}})
    with pytest.raises(UsageError, match=r"price of my-model.*CRAGLINE_MODEL_PRICES=.*--max-tokens"):
        check_caps(plan, Caps(max_cost_usd=1))
    check_caps(plan, Caps(max_tokens=1))
    check_caps(plan.model_copy(update={"prices": {"my-model": (1.0, 2.0)}}), Caps(max_cost_usd=1))
    check_caps(plan.model_copy(update={"provider": "local"}), Caps(max_cost_usd=1))
    embedded = PLAN.model_copy(update={"embedder": "openai", "embedding_model": "openai/mine"})
    with pytest.raises(UsageError, match="mine"):
        check_caps(embedded, Caps(max_cost_usd=1))


def spent(caps: Caps, usd: float = 0.0, tokens: int = 0) -> Spending:
    return Spending(caps, usd, tokens, reserved_usd=0.5, reserved_tokens=50, under_way=1)


def test_what_is_reserved_counts_as_spent() -> None:
    assert spent(Caps()).over(1e6, 10**9) == ""
    assert spent(Caps(max_cost_usd=5), usd=4).over(0.5, 0) == ""
    assert spent(Caps(max_cost_usd=5), usd=4).over(0.51, 0) == (
        "max_cost 5.00 USD reached: 4.00 USD spent, and the next call may cost 0.5100"
    )
    assert spent(Caps(max_tokens=500), tokens=400).over(9.0, 50) == ""
    assert (
        spent(Caps(max_tokens=500), tokens=400).over(9.0, 51).startswith("max_tokens 500 reached: 400 tokens")
    )
