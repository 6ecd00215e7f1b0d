"""The limiter for work that has no claim: ingest waits where it stands."""

import time
from collections.abc import Callable
from typing import Any

from shared.errors import CallError, Postponed, TransientError
from shared.limits import Target
from shared.prices import Prices
from workers.models.rate_headers import limits_in, listening
from workers.models.roles import CallResult, CallSpec, Document, RetrievalSpec
from workers.runner.limits.estimates import Estimates
from workers.runner.limits.gate import outcome_of
from workers.runner.limits.limiter import Limiter, Outcome, ProviderOut

_LOOK_AGAIN = 5.0  # seconds, at most


class WaitingRecorder:
    """`roles.CallRecorder` that keeps no record: each call waits for its turn, however long. Errors pass through;
    a provider that is known not to work is a TransientError without a call.

    `name` tells the work from others in the line.
    """

    def __init__(self, limiter: Limiter, server: str, name: str, timeout: float) -> None:
        self._limiter = limiter
        self._server = server
        self._name = name
        self._timeout = timeout
        self._estimates = Estimates()
        self._no_prices: Prices = {}

    def call(self, spec: CallSpec, perform: Callable[[], CallResult]) -> Any:
        target = Target(spec.provider, self._server, spec.model)
        tokens = self._estimates.of(spec, self._no_prices).tokens
        time.sleep(self._turn(target, tokens))
        with listening() as headers:
            try:
                result = perform()
            except CallError as error:
                self._limiter.report(target, self._name, 0, outcome_of(error), tokens, limits_in(headers))
                raise
        used = (result.input_tokens or tokens) + (result.output_tokens or 0)
        self._limiter.report(target, self._name, 0, Outcome("ok"), tokens - used, limits_in(headers))
        return result.response

    def retrieval(self, spec: RetrievalSpec, perform: Callable[[], list[Document]]) -> list[Document]:
        return perform()

    def _turn(self, target: Target, tokens: int) -> float:
        while True:
            try:
                return self._limiter.acquire(target, self._name, tokens, self._timeout)
            except ProviderOut as out:  # not for ever: a file that cannot be taken is told, and tried again
                raise TransientError(
                    str(out), code="provider_out", where=target.provider, retry_after=out.seconds
                ) from out
            except Postponed as later:
                time.sleep(min(later.seconds, _LOOK_AGAIN))
