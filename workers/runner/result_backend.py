"""The Redis result backend, less what a batch system must not keep.

Chords need the backend to count finished header tasks, and nothing else: results are rows in Postgres.
The stock backend also subscribes to a channel for each task launched inside a task, and never
unsubscribes (60 chords of 20 left 1,200 subscriptions), stores one key a task for a day, and keeps each result
object of a chord's header in memory until its result is heard of, which here is never (5 KB a chord of two).
"""

from typing import Any

from celery.backends.redis import RedisBackend
from celery.backends.redis import ResultConsumer as RedisResultConsumer


class QuietResultConsumer(RedisResultConsumer):
    """Nobody waits for a result here, so nothing is subscribed to."""

    def start(self, *_args: Any, **_kwargs: Any) -> None: ...

    def consume_from(self, _task_id: str) -> None: ...


class QuietRedisBackend(RedisBackend):
    ResultConsumer = QuietResultConsumer

    def add_pending_result(self, result: Any, *_args: Any, **_kwargs: Any) -> Any:
        """Not kept: nobody waits for it. A group's result registers each of its parts here when it is made."""
        return result

    def _store_result(self, _task_id: str, result: Any, *_args: Any, **_kwargs: Any) -> Any:
        """Not stored. The chord's part is counted apart from this, in `on_chord_part_return`."""
        return result
