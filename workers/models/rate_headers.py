"""What a reply's headers say of the provider's limits, and how they come from the HTTP client to who asks.

LangChain drops the headers, and runs the client in a thread of its own; a box in a context variable is
carried along and filled by our HTTP clients.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from workers.models.retry_after import duration_seconds, number

_box: ContextVar[dict[str, str] | None] = ContextVar("reply_headers", default=None)


@contextmanager
def listening() -> Iterator[dict[str, str]]:
    """While the block runs, the dict holds the headers (names in lower case) of the last reply it caused."""
    headers: dict[str, str] = {}
    token = _box.set(headers)
    try:
        yield headers
    finally:
        _box.reset(token)


def heard(headers: Mapping[str, str]) -> None:
    """To be called by an HTTP client with the headers of each reply."""
    box = _box.get()
    if box is not None:
        box.clear()
        box.update({name.lower(): value.strip() for name, value in headers.items()})


@dataclass(frozen=True)
class Said:
    """Limits a minute and what is left of them; None where the headers say nothing of it."""

    requests: float | None = None
    tokens: float | None = None
    requests_left: float | None = None
    tokens_left: float | None = None


def limits_in(headers: Mapping[str, str]) -> Said:
    """Reads OpenAI's `x-ratelimit-*`. `headers` must have their names in lower case."""
    requests, requests_left = _limit("requests", headers)
    tokens, tokens_left = _limit("tokens", headers)
    return Said(requests, tokens, requests_left, tokens_left)


def _limit(kind: str, headers: Mapping[str, str]) -> tuple[float | None, float | None]:
    limit = number(headers.get(f"x-ratelimit-limit-{kind}", ""))
    left = number(headers.get(f"x-ratelimit-remaining-{kind}", ""))
    reset = duration_seconds(headers.get(f"x-ratelimit-reset-{kind}", ""))
    # A bucket of a minute is full again within a minute. One that needs longer is a day's, which is not
    # for pacing: it is used up at once, and said by a 429.
    if not limit or limit < 1 or (reset is not None and reset > 60):
        return None, None
    return limit, left
