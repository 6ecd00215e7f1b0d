"""What a call may come to, before it is made."""

import threading
from dataclasses import dataclass
from typing import Any

from shared.prices import Prices
from workers.models.calls import CallRecord, call_cost_usd
from workers.models.roles import CallSpec

_BYTES_A_TOKEN = 3.0  # fewer than in most languages, so that estimates are rather too high
_AROUND = 250  # tokens of the schema and the form of a request
_FIRST_GUESS = 600  # tokens written, of a role that has not answered yet
_NO_WRITERS = ("embedder", "web_search")


@dataclass(frozen=True)
class Estimate:
    """`cost_usd` is None where no price is known."""

    input_tokens: int
    output_tokens: int
    cost_usd: float | None

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


class Estimates:
    """Learns how much each role of each model writes: the most of late. Safe to share between threads."""

    def __init__(self, max_output_tokens: int | None = None) -> None:
        self._bound = max_output_tokens
        self._written: dict[tuple[str, str], float] = {}
        self._lock = threading.Lock()

    def of(self, spec: CallSpec, prices: Prices) -> Estimate:
        if spec.role == "web_search":
            return Estimate(0, 0, call_cost_usd(spec, None, None))
        read = round((spec.size or _size(spec.request)) / _BYTES_A_TOKEN) + _AROUND
        written = 0 if spec.role in _NO_WRITERS else self._output(spec)
        return Estimate(read, written, call_cost_usd(spec, read, written, prices))

    def _output(self, spec: CallSpec) -> int:
        if self._bound is not None:
            return self._bound  # what a cap can rely on
        with self._lock:
            return round(self._written.get((spec.role, spec.model), _FIRST_GUESS))

    def learn(self, record: CallRecord) -> None:
        if record.output_tokens is None:
            return
        key = (record.spec.role, record.spec.model)
        with self._lock:
            before = self._written.get(key)
            wanted = record.output_tokens * 1.25 + 10
            # up at once, down slowly: one long answer is a sign of others
            self._written[key] = wanted if before is None else max(wanted, before * 0.98)


def _size(value: Any) -> int:
    """Bytes of all texts in a JSON value."""
    if isinstance(value, str):
        return len(value.encode("utf-8", "replace"))
    if isinstance(value, dict):
        return sum(_size(item) for item in value.values())
    if isinstance(value, list):
        return sum(_size(item) for item in value)
    return 0
