"""What Redis holds of rate limits and circuit breakers: its keys, and how to read them.

`workers.runner.limits` writes them. Nothing here decides what runs: when it is lost, limits are learned anew.
"""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redis import Redis

_PREFIX = "cragline:limits"
INDEX = f"{_PREFIX}:index"  # a set of all targets
BURST = 2.0  # seconds of calls that may be made in one go
PACE_DOUBLES = 10.0  # seconds in which a pace that was lowered after repeated 429s doubles


@dataclass(frozen=True)
class Target:
    """What a provider limits on its own: a model of a server. `server` "" is the provider's own."""

    provider: str
    server: str
    model: str

    @property
    def key(self) -> str:
        return json.dumps([self.provider, self.server, self.model])

    @property
    def keys(self) -> list[str]:
        """Rates (hash), who waits (sorted set), the breaker (hash; one for all models), the index (set)."""
        breaker = json.dumps([self.provider, self.server])
        return [
            f"{_PREFIX}:rate:{self.key}",
            f"{_PREFIX}:queue:{self.key}",
            f"{_PREFIX}:breaker:{breaker}",
            INDEX,
        ]


@dataclass(frozen=True)
class TargetState:
    """One target as it is now. Limits are per minute, and None where none is known."""

    provider: str
    server: str
    model: str
    requests_per_minute: float | None
    tokens_per_minute: float | None
    cooling_seconds: float  # until which nobody calls, because the provider said so; 0: not cooling
    waiting: int  # claims that were put back and are not back yet
    breaker: str  # closed | open | half_open
    breaker_seconds: float  # until the next probe; 0 where none is waited for
    failures: int  # failed calls in a row


def states(client: "Redis") -> list[TargetState]:
    """Every target that was called in the last hour or so, by name. Raises RedisError."""
    seconds, micros = client.time()
    now = float(seconds) + float(micros) / 1e6
    found = []
    for member in sorted(client.smembers(INDEX)):
        target = Target(*json.loads(member))
        rate_key, queue, breaker_key, _ = target.keys
        rate, breaker = _texts(client.hgetall(rate_key)), _texts(client.hgetall(breaker_key))
        if not rate:
            client.srem(INDEX, member)
            continue
        waiting = int(client.zcount(queue, now - BURST, "+inf"))
        found.append(_state(target, rate, breaker, waiting, now))
    return found


def _state(
    target: Target, rate: dict[str, str], breaker: dict[str, str], waiting: int, now: float
) -> TargetState:
    opened = float(breaker.get("open", 0))
    return TargetState(
        provider=target.provider,
        server=target.server,
        model=target.model,
        requests_per_minute=_number(rate, "requests") or _pace(rate, now),
        tokens_per_minute=_number(rate, "tokens"),
        cooling_seconds=max(0.0, float(rate.get("cool", 0)) - now),
        waiting=waiting,
        breaker="closed" if not opened else "open" if opened > now else "half_open",
        breaker_seconds=max(0.0, opened - now),
        failures=int(float(breaker.get("failures", 0))),
    )


def _pace(rate: dict[str, str], now: float) -> float | None:
    """As the script has it: lowered after a 429, doubled again and again, and forgotten at 16 times."""
    pace, since = _number(rate, "pace"), _number(rate, "pace_at")
    if pace is None or since is None:
        return None
    times: float = 2 ** ((now - since) / PACE_DOUBLES)
    return None if times > 16 else pace * times


def _number(fields: dict[str, str], name: str) -> float | None:
    return float(fields[name]) if name in fields else None


def _texts(fields: dict[bytes | str, bytes | str]) -> dict[str, str]:
    def text(value: bytes | str) -> str:
        return value.decode() if isinstance(value, bytes) else value

    return {text(name): text(value) for name, value in fields.items()}
