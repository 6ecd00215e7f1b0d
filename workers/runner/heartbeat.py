"""Keeps alive the leases of the claims this process works on.

A node that runs longer than its timeout is let go: its lease runs out and another attempt begins, and
what the stuck thread may still bring is dropped at the compare-and-set.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import structlog
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from shared.db import transaction
from workers.runner import claims
from workers.runner.claims import Won

log = structlog.get_logger()


class Heartbeat:
    def __init__(self, engine: Engine, every: float, lease: float) -> None:
        self._engine = engine
        self._every = every
        self._lease = lease
        self._held: dict[int, tuple[Won, float]] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    @contextmanager
    def holding(self, won: Won, timeout: float) -> Iterator[None]:
        """Renew `won` while the block runs, for `timeout` seconds at most."""
        key = id(won)
        with self._lock:
            self._held[key] = (won, time.monotonic() + timeout)
            if self._thread is None:
                self._thread = threading.Thread(target=self._beat, name="claim-heartbeat", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._lock:
                del self._held[key]

    def _beat(self) -> None:
        while not self._stopped.wait(self._every):
            now = time.monotonic()
            with self._lock:
                held = [won for won, deadline in self._held.values() if now < deadline]
            if not held:
                continue
            try:
                with transaction(self._engine) as session:
                    claims.renew(session, held, self._lease)
            except SQLAlchemyError as error:
                # Postgres away: leases run out and the work is done again, which is what they are for.
                log.warning("heartbeat failed", error=type(error).__name__)

    def stop(self) -> None:
        self._stopped.set()
