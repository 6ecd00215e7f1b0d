"""What is recorded of a call, and the recorder that keeps it in memory.

A recorder that keeps calls in a database builds on `CallRecord` and `request_hash`.
"""

import hashlib
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shared.errors import CallError, TransientError
from shared.prices import Prices, cost_usd, search_cost_usd
from workers.models.roles import CallResult, CallSpec, Document, RetrievalSpec


class UnusableOutput(TransientError):
    """The model answered, and was paid, but its answer is of no use. Says what the answer cost.

    `code` is "unusable_output", or "truncated" when the model stopped at its output limit.
    """

    def __init__(
        self,
        message: str,
        *,
        where: str,
        code: str = "unusable_output",
        input_tokens: int | None = None,
        output_tokens: int | None = None,
    ) -> None:
        super().__init__(message, code=code, where=where)
        self.input_tokens = input_tokens
        self.output_tokens = output_tokens


_PERHAPS_PAID = ("timeout", "unusable_output", "truncated")
_MOST_TOKENS = 100_000_000  # of one call; no model reads or writes as many


def told_usage(input_tokens: Any, output_tokens: Any) -> tuple[int | None, int | None]:
    """The tokens of a call as its server told them; None for what cannot be: negative, absurd, a word.

    Such a number would be refused by the database when the call is paid already, or give a budget money back.
    Nothing read and nothing written is what the client makes of a usage without numbers.
    """
    told = _count(input_tokens), _count(output_tokens)
    return (None, None) if not any(told) else told


def _count(value: Any) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value <= _MOST_TOKENS else None


@dataclass(frozen=True)
class CallRecord:
    """One call as it went. `response` is None after an error, and for calls that are not reusable."""

    spec: CallSpec
    response: Any
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None  # None: no known price, or no known tokens
    duration_ms: float
    error_class: str | None = None
    error: str | None = None
    code: str | None = None  # the short word of a `CallError`

    @property
    def ok(self) -> bool:
        return self.error_class is None

    @property
    def perhaps_paid(self) -> bool:
        """Whether a provider may have put it on the bill: it answered, or was about to when we gave up."""
        return self.ok or self.code in _PERHAPS_PAID


def request_hash(spec: CallSpec) -> str:
    """64 hex digits, equal for equal (role, provider, model, prompt_version, request)."""
    identity = [spec.role, spec.provider, spec.model, spec.prompt_version, spec.request]
    canonical = json.dumps(identity, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()


def call_cost_usd(
    spec: CallSpec, input_tokens: int | None, output_tokens: int | None, own: Prices | None = None
) -> float | None:
    """USD of a recorded call: local models are free, a web search has one price, others count tokens."""
    if spec.provider == "local":
        return 0.0
    if spec.role == "web_search":
        return search_cost_usd(spec.provider)
    return cost_usd(spec.model, input_tokens, output_tokens, own)


def perform_recorded(
    spec: CallSpec,
    perform: Callable[[], CallResult],
    keep: Callable[[CallRecord], None],
    prices: Prices | None = None,
) -> Any:
    """Runs `perform`, hands its record to `keep` (also when it raises), and returns its response.

    `prices` go before the list prices.
    """
    started = time.perf_counter()
    try:
        result = perform()
    except Exception as error:
        keep(_failed(spec, error, (time.perf_counter() - started) * 1000, prices))
        raise
    input_tokens, output_tokens = told_usage(result.input_tokens, result.output_tokens)
    keep(
        CallRecord(
            spec=spec,
            response=result.response,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            cost_usd=call_cost_usd(spec, input_tokens, output_tokens, prices),
            duration_ms=(time.perf_counter() - started) * 1000,
        )
    )
    return result.response


def _failed(spec: CallSpec, error: Exception, duration_ms: float, prices: Prices | None) -> CallRecord:
    input_tokens = output_tokens = None
    if isinstance(error, UnusableOutput):
        input_tokens, output_tokens = told_usage(error.input_tokens, error.output_tokens)
    paid = input_tokens is not None or output_tokens is not None
    # Only our own errors are known to hold neither a key nor a question; of others the class must do.
    message = f"{error.code}: {error}" if isinstance(error, CallError) else "unexpected error"
    return CallRecord(
        spec=spec,
        response=None,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cost_usd=call_cost_usd(spec, input_tokens, output_tokens, prices) if paid else None,
        duration_ms=duration_ms,
        error_class=type(error).__name__,
        error=message,
        code=error.code if isinstance(error, CallError) else None,
    )


class MemoryRecorder:
    """`roles.CallRecorder` that performs every call and keeps the records in order of their ends.

    There is no second attempt in process, so nothing is reused. Safe to share between threads.
    """

    def __init__(self) -> None:
        self._records: list[CallRecord] = []
        self._lock = threading.Lock()

    @property
    def records(self) -> list[CallRecord]:
        """A copy."""
        with self._lock:
            return list(self._records)

    def call(self, spec: CallSpec, perform: Callable[[], CallResult]) -> Any:
        return perform_recorded(spec, perform, self._keep)

    def retrieval(self, spec: RetrievalSpec, perform: Callable[[], list[Document]]) -> list[Document]:
        return perform()

    def _keep(self, record: CallRecord) -> None:
        with self._lock:
            self._records.append(record)
