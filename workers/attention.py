"""A worker that is up, has nothing to do, and takes no messages though there are some, ends.

A consumer that has lost its connection in an unlucky moment can wait for ever. Whoever keeps the worker starts
it again, as it would after a crash; an idle one has nothing to lose.
"""

import os
import threading
from collections.abc import Callable
from typing import Any

import structlog
from celery import Celery
from celery.worker import state
from redis.exceptions import RedisError

log = structlog.get_logger()
_EVERY = 10.0  # seconds between two looks
_LOOKS = 6  # in a row at which it was deaf


class Attention:
    """Looks from time to time whether messages that wait for this worker are taken by it."""

    def __init__(self, idle: Callable[[], bool], waiting: Callable[[], bool], looks: int = _LOOKS) -> None:
        """`waiting`: whether there are messages that an idle worker would take. May raise RedisError."""
        self._idle = idle
        self._waiting = waiting
        self._looks = looks
        self._deaf = 0
        self._heard = False

    def heard(self) -> None:
        """To be called at each message."""
        self._heard = True

    def is_lost(self) -> bool:
        """One look; whether it was the last of too many in a row."""
        heard, self._heard = self._heard, False
        try:
            deaf = not heard and self._idle() and self._waiting()
        except RedisError:  # nobody hears anything
            deaf = False
        self._deaf = self._deaf + 1 if deaf else 0
        return self._deaf >= self._looks

    def watch(self, lost: Callable[[], object]) -> None:
        """Look every few seconds, in a thread of its own, and call `lost` once."""

        def look() -> None:
            pause = threading.Event()
            while not pause.wait(_EVERY):
                if self.is_lost():
                    lost()
                    return

        threading.Thread(target=look, name="attention", daemon=True).start()


def of_worker(app: Celery, consumer: Any) -> Attention:
    """That of this process. Queues that it was told to leave alone do not count."""

    def waiting() -> bool:
        taken = [name for name in app.amqp.queues.consume_from if _consumes(consumer, name)]
        return any(app.backend.client.llen(name) for name in taken)

    return Attention(lambda: not state.reserved_requests, waiting)


def _consumes(consumer: Any, queue: str) -> bool:
    channel = consumer.task_consumer  # None while it connects
    return channel is None or bool(channel.consuming_from(queue))


def end() -> None:
    """Without farewells: the thread that would take them is the one that does not come back."""
    log.error("no message was taken for a minute, though there are some; the worker ends")
    os._exit(1)
