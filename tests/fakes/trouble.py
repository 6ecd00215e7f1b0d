"""Providers in trouble: what stands before a script of a fake server, and can be switched while it runs.

limits = RateLimited(per_minute=120)
outage = Outage()
FakeOpenAI(outage.over(limits.over(default_script)))
"""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.fakes.http_fake import Reply

AnyScript = Callable[..., Reply]


class RateLimited:
    """A bucket of `per_minute` calls, of which `burst` may come at once: 429 with Retry-After beyond it, and
    OpenAI's headers on every reply. `silent`: neither headers nor Retry-After, as of many other servers."""

    def __init__(self, per_minute: float, burst: float, *, silent: bool = False) -> None:
        self.per_minute = per_minute
        self.burst = burst
        self.silent = silent
        self.refused = 0
        self._level = burst
        self._at = time.monotonic()
        self._lock = threading.Lock()

    def over(self, script: AnyScript) -> AnyScript:
        def limited(*arguments: Any) -> Reply:
            headers, wait = self._take()
            if wait:
                body = {"error": {"message": "slow down", "type": "requests", "code": "rate_limit_exceeded"}}
                return Reply(status=429, body=body, headers=headers)
            reply = script(*arguments)
            return replace(reply, headers={**headers, **reply.headers})

        return limited

    def _take(self) -> tuple[dict[str, str], float]:
        with self._lock:
            now, per_second = time.monotonic(), self.per_minute / 60
            self._level = min(self.burst, self._level + (now - self._at) * per_second)
            self._at = now
            wait = 0.0 if self._level >= 1 else (1 - self._level) / per_second
            if wait:
                self.refused += 1
            else:
                self._level -= 1
            left = int(self._level)
        if self.silent:
            return {}, wait
        headers = {
            "x-ratelimit-limit-requests": f"{self.per_minute:g}",
            "x-ratelimit-remaining-requests": str(left),
            "x-ratelimit-reset-requests": f"{(self.burst - left) / per_second:.3f}s",
        }
        if wait:
            headers["Retry-After"] = f"{wait:.3f}"
        return headers, wait


class Outage:
    """While it is on, every call gets `reply`: HTTP 503 unless told otherwise."""

    def __init__(self, reply: Reply | None = None) -> None:
        self.reply = reply or Reply(status=503, body={"error": {"message": "overloaded"}})
        self.on = threading.Event()
        self.calls = 0

    def over(self, script: AnyScript) -> AnyScript:
        def perhaps(*arguments: Any) -> Reply:
            if self.on.is_set():
                self.calls += 1
                return self.reply
            return script(*arguments)

        return perhaps
