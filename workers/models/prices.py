"""What a call costs, by the list prices of `prices.json`. An unknown price is None, never a guess."""

import json
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from workers.models.roles import CallSpec

_FILE = Path(__file__).parent / "prices.json"
_SNAPSHOT = re.compile(r"-(?:\d{4}-\d{2}-\d{2}|\d{4})$")  # gpt-4.1-mini-2025-04-14, gpt-4-0613


@lru_cache(maxsize=1)
def _prices() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(_FILE.read_text(encoding="utf-8"))
    return content


def prices_as_of() -> str:
    """The date the prices were written down, YYYY-MM-DD."""
    return str(_prices()["as_of"])


def _token_prices(model: str) -> list[float] | None:
    tokens: dict[str, list[float]] = _prices()["tokens"]
    return tokens.get(model) or tokens.get(_SNAPSHOT.sub("", model))


def cost_usd(model: str, input_tokens: int | None, output_tokens: int | None) -> float | None:
    """USD for the tokens of one call. None for an unknown model, or when the provider named no tokens.

    A dated snapshot costs what its base model costs.
    """
    prices = _token_prices(model)
    if prices is None or (input_tokens is None and output_tokens is None):
        return None
    return ((input_tokens or 0) * prices[0] + (output_tokens or 0) * prices[1]) / 1_000_000


def search_cost_usd(provider: str) -> float | None:
    """USD of one basic web search; None for an unknown provider."""
    price: float | None = _prices()["searches"].get(f"{provider}/search")
    return price


def call_cost_usd(spec: CallSpec, input_tokens: int | None, output_tokens: int | None) -> float | None:
    """USD of a recorded call: local models are free, a web search has one price, others count tokens."""
    if spec.provider == "local":
        return 0.0
    if spec.role == "web_search":
        return search_cost_usd(spec.provider)
    return cost_usd(spec.model, input_tokens, output_tokens)
