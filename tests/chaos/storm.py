"""Bad weather for a running stack: parts are killed, Redis is emptied, at moments drawn from a seed."""

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import psycopg
from redis import Redis
from redis.exceptions import RedisError

from tests.e2e.home import Home


@dataclass(frozen=True)
class Blow:
    """One thing that was done: what, and from when to when its victims could not store what they had."""

    what: str
    begun: float  # time.monotonic()
    ended: float
    at: float  # seconds since 1970, when it began


class Storm:
    """Kills a worker every few seconds, and once in a while something that all depend on."""

    def __init__(self, home: Home, seed: int, *, every: tuple[float, float], others: list[str]) -> None:
        """`every`: seconds between two blows, from and to. `others`: what happens besides killed workers,
        in an order of the seed's, again and again: flush, valkey, postgres, beat."""
        self._home = home
        self._random = random.Random(seed)
        self._every = every
        self._others = others
        self._to_come: list[str] = []
        self._rounds = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._blow, name="storm", daemon=True)
        self.blows: list[Blow] = []
        self.failure: BaseException | None = None

    @property
    def over(self) -> bool:
        """Whether everything it had in mind has happened."""
        return self._rounds > 0

    def __enter__(self) -> "Storm":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)
        if self.failure is not None:
            raise self.failure

    def _blow(self) -> None:
        try:
            while not self._stop.wait(self._random.uniform(*self._every)):
                self._do("worker")
                if self._stop.wait(self._random.uniform(*self._every)):
                    return
                self._do(self._next())
                self._rounds += not self._to_come
        except BaseException as failure:  # noqa: BLE001 - told to who waits
            self.failure = failure

    def _next(self) -> str:
        if not self._to_come:
            self._to_come = self._random.sample(self._others, len(self._others))
        return self._to_come.pop()

    def _do(self, what: str) -> None:
        actions: dict[str, Callable[[], None]] = {
            "worker": self._kill_worker,
            "beat": lambda: self._kill("beat"),
            "flush": self._flush,
            "valkey": lambda: self._kill("valkey"),
            "postgres": self._restart_postgres,
        }
        begun, at = time.monotonic(), time.time()
        actions[what]()
        self.blows.append(Blow(what, begun, time.monotonic(), at))

    def _kill_worker(self) -> None:
        workers = [name for name in self._home.parts() if name.startswith("worker-")]
        self._kill(self._random.choice(workers))

    def _kill(self, name: str) -> None:
        """The whole process group at once, as the kernel does when memory is short."""
        with suppress(ProcessLookupError):  # it is dead already, and not yet started again
            os.killpg(self._home.parts()[name]["pid"], signal.SIGKILL)

    def _flush(self) -> None:
        with suppress(RedisError), Redis.from_url(self._url("valkey"), socket_timeout=5) as client:
            client.flushall()

    def _restart_postgres(self) -> None:
        """Its immediate shutdown; the supervisor starts it again, and it recovers from its log."""
        pid = self._home.parts()["postgres"]["pid"]
        os.kill(pid, signal.SIGQUIT)
        deadline = time.monotonic() + 60
        while self._home.parts()["postgres"]["pid"] == pid or not self._answers():
            assert time.monotonic() < deadline, "Postgres did not come back"
            time.sleep(0.1)

    def _answers(self) -> bool:
        try:
            with psycopg.connect(self._url("postgres"), connect_timeout=2) as connection:
                connection.execute("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

    def _url(self, name: str) -> str:
        return str(self._home.parts()[name]["url"])
