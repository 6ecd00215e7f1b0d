"""What a call costs, by the list prices of `prices.json`. An unknown price is None, never a guess."""

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

_FILE = Path(__file__).parent / "prices.json"
_SNAPSHOT = re.compile(r"-(?:\d{4}-\d{2}-\d{2}|\d{4})$")  # gpt-4.1-mini-2025-04-14, gpt-4-0613

Prices = Mapping[str, tuple[float, float]]  # model -> USD per million tokens, read and written


@lru_cache(maxsize=1)
def _prices() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(_FILE.read_text(encoding="utf-8"))
    return content


def prices_as_of() -> str:
    """The date the prices were written down, YYYY-MM-DD."""
    return str(_prices()["as_of"])


def token_prices(model: str, own: Prices | None = None) -> tuple[float, float] | None:
    """USD per million tokens, read and written. `own` prices go before the list; None: nobody knows.

    A dated snapshot costs what its base model costs.
    """
    if own and model in own:
        return own[model]
    tokens: dict[str, list[float]] = _prices()["tokens"]
    found = tokens.get(model) or tokens.get(_SNAPSHOT.sub("", model))
    return (found[0], found[1]) if found else None


def cost_usd(
    model: str, input_tokens: int | None, output_tokens: int | None, own: Prices | None = None
) -> float | None:
    """USD for the tokens of one call. None for an unknown model, or when the provider named no tokens."""
    prices = token_prices(model, own)
    if prices is None or (input_tokens is None and output_tokens is None):
        return None
    return ((input_tokens or 0) * prices[0] + (output_tokens or 0) * prices[1]) / 1_000_000


def search_cost_usd(provider: str) -> float | None:
    """USD of one basic web search; None for an unknown provider."""
    price: float | None = _prices()["searches"].get(f"{provider}/search")
    return price
