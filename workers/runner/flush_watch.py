"""Notices that messages are gone: Redis was flushed or restarted, another server is behind the same name, or a
worker took them while Postgres was away.

A key of ours says which server (its run id) holds the messages in flight. Where it is missing or names
another, what was published may be gone, and the reconciler need not wait for anything to be overdue.
"""

from collections.abc import Callable
from typing import Any

MARKER = "cragline:messages-of"
_HEALING = "healing"


def heal_if_forgotten(redis: Any, heal: Callable[[], object]) -> bool:
    """Call `heal` if `redis` is not the server, or not the memory, that it was. True: it was called.

    Raises redis errors, and what `heal` raises; then the next call tries again.
    """
    server = str(redis.info("server")["run_id"])
    if redis.get(MARKER) in (server, server.encode()):  # as text or as bytes, as the client was set up
        return False
    redis.set(MARKER, _HEALING)
    heal()
    # Only where it is still there: a flush during the healing must be seen by the next call.
    redis.set(MARKER, server, xx=True)
    return True


def were_dropped(redis: Any) -> None:
    """To be called by a worker that could do nothing with its messages: they are published again at the next
    look. Raises redis errors."""
    redis.delete(MARKER)
