"""Rate limits and circuit breakers that all workers share, kept in Redis."""

import random
import threading
import time
from dataclasses import dataclass
from typing import Any

import structlog
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from shared.errors import CraglineError, Postponed
from shared.limits import Target
from shared.queue import redis_url
from shared.settings import Settings
from workers.models.rate_headers import Said
from workers.runner.limits.local_rate import LocalRate
from workers.runner.limits.scripts import ACQUIRE, FORGET, REPORT

log = structlog.get_logger()

LONGEST_WAIT = 2.0  # seconds that a call waits in its thread; whoever must wait longer is put back
_EARLY = 1.0  # who is put back is asked back a little early, because the reconciler looks every two seconds
_REDIS_PATIENCE = 0.5  # seconds for an answer of Redis
_REDIS_PAUSE = 5.0  # seconds for which Redis is not asked again after it did not answer
_SHARE = 0.25  # of a limit, for one process that cannot know how many others there are
_WINDOW = 120.0  # seconds within which failures in a row count together
_FIRST_PAUSE, _LONGEST_PAUSE = 2.0, 30.0  # of an open breaker
_WHY = {
    "requests": "waiting for the rate limit (requests per minute)",
    "tokens": "waiting for the rate limit (tokens per minute)",
    "cooling": "the provider asked for a pause (HTTP 429)",
    "out": "the provider does not work",
}


class ProviderOut(Postponed):
    """Put back because the breaker is open, or because a probe of it is under way. `lasting`: seconds since the
    first of the failures in a row."""

    failing = True

    def __init__(self, seconds: float, why: str, lasting: float = 0.0) -> None:
        super().__init__(seconds, why)
        self.lasting = lasting


@dataclass(frozen=True)
class Outcome:
    """How a call went, for the limiter. `kind`: ok | limited (429) | out (no or a failing server) | none
    (it was not made). `certain`: no single request can be to blame, as when nobody listens."""

    kind: str
    retry_after: float | None = None
    certain: bool = False


@dataclass(frozen=True)
class Verdict:
    """What a report came to. `failing`: the provider is cooling or out, so that the call was not to blame."""

    failing: bool
    seconds: float = 0.0  # until the caller should come back


class Limiter:
    """One a process; safe to share between threads. Never raises but `Postponed`, and never hangs."""

    def __init__(self, settings: Settings, client: Redis | None = None) -> None:
        self._settings = settings
        self._client = client
        self._local = LocalRate(_SHARE)
        # for the time when Redis is away: what was said last, and when
        self._learned: dict[Target, tuple[Said, float]] = {}
        self._away_until = 0.0
        self._lock = threading.Lock()

    def acquire(
        self, target: Target, caller: str, tokens: int, timeout: float, longest: float = LONGEST_WAIT
    ) -> float:
        """Take a place for a call of `tokens` (an estimate); seconds to wait in the thread before it.

        `caller` names the claim: it is how one that was put back finds its place. `timeout`: seconds that
        the call may take; `longest`: those that it may be told to wait. Raises Postponed, or ProviderOut.
        """
        requests, limit = self._set_limits(target)
        values = [caller, tokens, requests or "", limit or "", longest, timeout, target.key]
        reply = self._run(ACQUIRE, target, values)
        if reply is None:
            return self._acquire_alone(target, tokens, longest)
        verdict, seconds, why = reply[0], float(reply[1]), reply[2]
        if verdict == "later":
            spread = random.uniform(0, 0.3)  # noqa: S311 - spreading, not secrecy
            if why == "out":
                raise ProviderOut(seconds + spread, _WHY[why], lasting=float(reply[3]))
            raise Postponed(max(0.2, seconds - _EARLY) + spread, _WHY[why])
        if verdict == "probe":
            log.info(
                "breaker: one call goes through as a probe", provider=target.provider, server=target.server
            )
        return seconds

    def report(
        self, target: Target, caller: str, run_id: int, outcome: Outcome, unused: int, said: Said
    ) -> Verdict:
        """Tell how the call went: `unused` tokens of the estimate go back (negative: it took more)."""
        self._learn(target, outcome, said)
        values = [
            caller, outcome.kind, unused, _or_blank(outcome.retry_after), _or_blank(said.requests),
            _or_blank(said.tokens), _or_blank(said.requests_left), _or_blank(said.tokens_left),
            self._settings.breaker_failures, _WINDOW, run_id, int(outcome.certain), _FIRST_PAUSE, _LONGEST_PAUSE,
        ]  # fmt: skip
        reply = self._run(REPORT, target, values)
        if reply is None:
            return Verdict(failing=False)
        state, seconds = reply[0], float(reply[1])
        if state == "opened":
            log.warning("breaker open: the provider does not work; its calls wait", **_names(target))
        elif state == "mended":
            log.info("breaker closed: the provider works again", **_names(target))
        failing = outcome.kind == "limited" or (outcome.kind == "out" and state in ("open", "opened"))
        return Verdict(failing, seconds)

    # -- inside ----------------------------------------------------------------------------------------
    def _set_limits(self, target: Target) -> tuple[float | None, float | None]:
        settings = self._settings
        if target.provider == "tavily":
            return settings.searches_per_minute, None
        own = settings.model_limits.get(target.model)
        if own is not None:
            return own.requests, own.tokens
        return settings.requests_per_minute, settings.tokens_per_minute

    def _learn(self, target: Target, outcome: Outcome, said: Said) -> None:
        """As the script does: a limit holds for as long as replies name it."""
        with self._lock:
            _, at = self._learned.get(target, (said, time.monotonic()))
            if said.requests or said.tokens:
                self._learned[target] = said, time.monotonic()
            elif outcome.kind == "ok" and time.monotonic() - at > FORGET:
                del self._learned[target]

    def _acquire_alone(self, target: Target, tokens: int, longest: float) -> float:
        requests, limit = self._set_limits(target)
        with self._lock:
            said, _at = self._learned.get(target, (Said(), 0.0))
        wait = self._local.wait(
            target, tokens, _least(requests, said.requests), _least(limit, said.tokens), longest
        )
        if wait > longest:
            raise Postponed(wait, _WHY["requests"])
        return wait

    def _run(self, script: str, target: Target, values: list[Any]) -> list[str] | None:
        """The script's reply; None while Redis is away."""
        if time.monotonic() < self._away_until:
            return None
        try:
            reply = self._connected().eval(script, len(target.keys), *target.keys, *values)
        except (RedisError, OSError, CraglineError) as error:
            self._note_away(error)
            return None
        with self._lock:
            was_away, self._away_until = self._away_until, 0.0
        if was_away:
            log.info("Redis is back; rate limits are shared again")
        return [part.decode() if isinstance(part, bytes) else str(part) for part in reply]

    def _note_away(self, error: Exception) -> None:
        with self._lock:
            first = self._away_until == 0.0
            self._away_until = time.monotonic() + _REDIS_PAUSE
        if first:
            log.warning(
                "no answer from Redis; rate limits are kept by each process", error=type(error).__name__
            )

    def _connected(self) -> Any:
        with self._lock:
            if self._client is None:
                self._client = Redis.from_url(
                    redis_url(self._settings),
                    socket_timeout=_REDIS_PATIENCE,
                    socket_connect_timeout=_REDIS_PATIENCE,
                    retry=Retry(NoBackoff(), 0),
                )
            return self._client


def _names(target: Target) -> dict[str, str]:
    return {"provider": target.provider, "server": target.server}


def _least(*values: float | None) -> float | None:
    return min((value for value in values if value is not None), default=None)


def _or_blank(value: float | None) -> float | str:
    return "" if value is None else value
