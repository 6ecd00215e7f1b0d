"""What each paid call passes: is the batch open, is there money, does the provider work, is it our turn."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from shared.errors import CallError, TransientError
from shared.limits import Target
from shared.settings import Settings
from workers.models.calls import CallRecord
from workers.models.rate_headers import Said, limits_in, listening
from workers.models.roles import CallSpec
from workers.runner.claims import Won
from workers.runner.limits import reservations
from workers.runner.limits.estimates import Estimate, Estimates
from workers.runner.limits.limiter import LONGEST_WAIT, Limiter, Outcome, ProviderOut, Verdict

# Said of a server as a whole; a 500, like a timeout, may be one question's doing.
_OVERLOADED = (502, 503, 504, 529)
_OUT = ("unreachable", "timeout", "server_error")
WEB = "web_search"


@dataclass
class Held:
    """A call that was let through. `record` is set by `settle`, in the transaction that stores the call."""

    won: Won
    estimate: Estimate
    reservation: int | None
    waited: float = 0.0  # seconds, in the thread
    record: CallRecord | None = field(default=None)

    def settle(self, session: Session, record: CallRecord) -> None:
        self.record = record
        reservations.settle(session, self.reservation, self.won, self.estimate, record)


class Gate:
    """One a process; safe to share between threads. Without a limiter only the budget is looked at."""

    def __init__(self, engine: Engine, settings: Settings, limiter: Limiter | None = None) -> None:
        self._engine = engine
        self._settings = settings
        self._limiter = limiter
        self._estimates = Estimates(settings.max_output_tokens)

    @contextmanager
    def hold(self, spec: CallSpec, won: Won, longest: float = LONGEST_WAIT) -> Iterator[Held]:
        """Around one paid call. Raises Postponed before it; marks the error of one that was not to blame.

        `longest`: seconds that may be waited in the thread.

        What is reserved is settled by `Held.settle`; where that failed, the reconciler gives it back.
        """
        target = Target(spec.provider, won.plan.server if spec.provider == "openai" else "", spec.model)
        estimate = self._estimates.of(spec, won.plan.prices)
        wait = self._acquire(target, spec, won, estimate, min(longest, LONGEST_WAIT))
        try:
            reservation = reservations.reserve(self._engine, won, spec.role, estimate)
        except BaseException:
            self._report(target, won, Outcome("none"), estimate.tokens, Said())
            raise
        held = Held(won, estimate, reservation, wait)
        if wait:
            time.sleep(wait)
        with listening() as headers:
            try:
                yield held
            except CallError as error:
                verdict = self._report(target, won, outcome_of(error), _unused(held), limits_in(headers))
                self._excuse(error, spec, won, verdict)
                raise
            except BaseException:
                self._report(target, won, Outcome("ok"), _unused(held), limits_in(headers))
                raise
        self._report(target, won, Outcome("ok"), _unused(held), limits_in(headers))
        if held.record is not None:
            self._estimates.learn(held.record)

    # -- inside ----------------------------------------------------------------------------------------
    def _acquire(self, target: Target, spec: CallSpec, won: Won, estimate: Estimate, longest: float) -> float:
        if self._limiter is None:
            return 0.0
        timeout = self._settings.web_timeout if spec.role == WEB else self._settings.model_timeout
        try:
            return self._limiter.acquire(target, _caller(won), estimate.tokens, timeout, longest)
        except ProviderOut as out:
            if self._is_over(spec, won, out):
                raise TransientError(
                    "the provider does not work", code="provider_out", where=target.provider
                ) from out
            raise

    def _is_over(self, spec: CallSpec, won: Won, out: ProviderOut) -> bool:
        """Whether the patience with a provider that is out has ended: nobody waits for ever, probe or not.

        A run can go on without the web, so its patience is that of its step. For a model the outage itself must
        have lasted as long: a step may have met an earlier one, and have waited for its turn since.
        """
        if spec.role == WEB:
            return won.failing_for >= self._settings.web_patience_seconds
        return min(won.failing_for, out.lasting) >= self._settings.patience_seconds

    def _report(self, target: Target, won: Won, outcome: Outcome, unused: int, said: Said) -> Verdict:
        if self._limiter is None:
            return Verdict(failing=False)
        return self._limiter.report(target, _caller(won), won.run_id, outcome, unused, said)

    def _excuse(self, error: CallError, spec: CallSpec, won: Won, verdict: Verdict) -> None:
        """An attempt that met a provider in trouble does not count, for as long as patience lasts."""
        if not verdict.failing or not isinstance(error, TransientError):
            return
        settings = self._settings
        patience = settings.web_patience_seconds if spec.role == WEB else settings.patience_seconds
        error.counts = won.failing_for >= patience
        error.retry_after = max(error.retry_after or 0.0, verdict.seconds)


def _caller(won: Won) -> str:
    return f"{won.run_id}.{won.step}.{won.branch}"


def outcome_of(error: CallError) -> Outcome:
    """What a failed call says of its provider."""
    if error.code == "rate_limited":
        return Outcome("limited", retry_after=error.retry_after)
    if error.code in _OUT:
        return Outcome("out", certain=error.code == "unreachable" or error.status in _OVERLOADED)
    return Outcome("ok")  # it answered, whatever it said


def _unused(held: Held) -> int:
    """Tokens of the estimate that were not used; 0 where nobody knows."""
    record = held.record
    if record is None or (record.input_tokens is None and record.output_tokens is None):
        return held.estimate.tokens if record is not None and not record.ok else 0
    return held.estimate.tokens - (record.input_tokens or 0) - (record.output_tokens or 0)
