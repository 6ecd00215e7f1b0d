"""The rate of one process alone, for as long as Redis is away."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from shared.limits import BURST, Target


@dataclass
class _Bucket:
    level: float
    at: float


class LocalRate:
    """Token buckets in memory. Each process takes a `share` (0..1) of a limit, as it knows of no other."""

    def __init__(self, share: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._share = share
        self._clock = clock
        self._buckets: dict[tuple[Target, str], _Bucket] = {}
        self._lock = threading.Lock()

    def wait(
        self,
        target: Target,
        tokens: int,
        requests_limit: float | None,
        tokens_limit: float | None,
        longest: float,
    ) -> float:
        """Seconds until the call may be made. Up to `longest` its place is taken; beyond, it is not."""
        with self._lock:
            wanted = [
                # at most a minute's worth, as in Redis: a limit of 1 is looked at again soon
                (self._bucket(target, kind, rate), rate, min(cost, max(1.0, 60 * rate)))
                for kind, limit, cost in (("requests", requests_limit, 1), ("tokens", tokens_limit, tokens))
                if limit and (rate := limit * self._share / (60 + BURST))
            ]
            wait = max((_wait(bucket, rate, cost) for bucket, rate, cost in wanted), default=0.0)
            if wait <= longest:
                for bucket, _rate, cost in wanted:
                    bucket.level -= cost
        return wait

    def _bucket(self, target: Target, kind: str, rate: float) -> _Bucket:
        now, full = self._clock(), max(1.0, rate * BURST)
        bucket = self._buckets.setdefault((target, kind), _Bucket(full, now))
        bucket.level = min(full, bucket.level + (now - bucket.at) * rate)
        bucket.at = now
        return bucket


def _wait(bucket: _Bucket, rate: float, cost: float) -> float:
    return max(0.0, (min(cost, max(1.0, rate * BURST)) - bucket.level) / rate)
