"""What `/readyz` looks at: each thing without which questions are taken, but not answered."""

import json
import socket
from collections.abc import Callable

import psycopg
from sqlalchemy import Engine, text
from sqlalchemy.exc import SQLAlchemyError

from api.schemas import Check
from api.state import ApiState
from shared import heartbeats
from shared.db import transaction
from shared.errors import CraglineError
from shared.settings import Settings
from shared.stack.process import HOST
from shared.stack.state import store_owner_path

DEAD_SECONDS = 30.0  # without a sign of life: ten missed ones
_PATIENCE = 2.0  # seconds for an answer
_CONNECT_SECONDS = 3  # for a connection to the database; a whole number, at least 2
_ASK_DATABASE = frozenset({"migrations", "beat", "reconciler", "queue"})

# How long questions have been waiting without one being admitted; NULL when none waits. That a large batch
# waits is in order; that nothing moves is not.
_QUEUE = """
SELECT extract(epoch FROM now() - greatest(
           min(batches.submitted_at), (SELECT max(admitted_at) FROM runs WHERE status = 'running')))
  FROM batches
 WHERE status = 'open'
   AND EXISTS (SELECT FROM runs WHERE runs.batch_id = batches.id AND runs.status = 'pending')
"""


class NotReady(Exception):
    """Why, in words without secrets."""


def examine(state: ApiState) -> list[Check]:
    """Every check. One that fails does not keep the others from being made, but for the database: each of
    those that ask it would wait anew, until whoever asked has gone."""
    checks: list[tuple[str, Callable[[], str]]] = [
        ("database", lambda: _database(state.engine)),
        ("migrations", lambda: _migrations(state.engine)),
        ("redis", lambda: _redis(state.settings)),
        ("store", lambda: _store(state.settings)),
        ("beat", lambda: _alive(state.engine, heartbeats.BEAT)),
        ("reconciler", lambda: _alive(state.engine, heartbeats.RECONCILER)),
        ("queue", lambda: _queue(state.engine, state.settings.api_queue_seconds)),
    ]
    found: dict[str, Check] = {}
    for name, look in checks:
        away = name in _ASK_DATABASE and not found["database"].ready
        found[name] = (
            Check(name=name, ready=False, detail="not known, as the database does not answer")
            if away
            else _checked(name, look)
        )
    return list(found.values())


def _checked(name: str, look: Callable[[], str]) -> Check:
    try:
        return Check(name=name, ready=True, detail=look())
    except (NotReady, CraglineError) as error:
        return Check(name=name, ready=False, detail=str(error))
    except SQLAlchemyError as error:  # its words may quote the address with its user
        return Check(name=name, ready=False, detail=f"The database cannot be asked ({type(error).__name__}).")


def _database(engine: Engine) -> str:
    """By a connection of its own: those of the pool wait for a server that has vanished for much longer."""
    _, values = engine.dialect.create_connect_args(engine.url)
    try:
        with psycopg.connect(**values, connect_timeout=_CONNECT_SECONDS, autocommit=True) as connection:
            connection.execute("SELECT 1")
    except psycopg.Error as error:  # its words may quote the address with its user
        raise NotReady(f"does not answer ({type(error).__name__})") from None
    return "answers"


def _migrations(engine: Engine) -> str:
    from shared.migrate import current_revision, head_revision

    found, head = current_revision(engine), head_revision()
    if found != head:
        raise NotReady(f"at {found}, this version wants {head}: `cragline db upgrade`")
    return str(found)


def _redis(settings: Settings) -> str:
    from redis import Redis
    from redis.exceptions import RedisError

    from shared.queue import redis_url

    try:
        url = redis_url(settings)
        with Redis.from_url(url, socket_timeout=_PATIENCE, socket_connect_timeout=_PATIENCE) as client:
            client.ping()
    except (RedisError, OSError) as error:
        raise NotReady(f"does not answer ({type(error).__name__})") from None
    return "answers"


def _store(settings: Settings) -> str:
    if settings.qdrant_url:
        from api.cli import probes

        key = settings.qdrant_api_key
        level, says = probes.qdrant(settings.qdrant_url, key.get_secret_value() if key else None)
        if level != "ok":
            raise NotReady(says)
        return says
    try:
        port = int(json.loads(store_owner_path(settings.home).read_text(encoding="utf-8"))["port"])
        with socket.create_connection((HOST, port), timeout=_PATIENCE):
            pass
    except (OSError, ValueError, KeyError, TypeError):
        raise NotReady("no worker has the local store open") from None
    return "the local store answers"


def _alive(engine: Engine, name: str) -> str:
    age = heartbeats.ages(engine).get(name)
    if age is None:
        raise NotReady("was never heard of. Do beat and a worker of the queue `control` run?")
    if age > DEAD_SECONDS:
        raise NotReady(f"was last heard of {age:.0f} s ago. Do beat and a worker of the queue `control` run?")
    return f"heard of {age:.0f} s ago"


def queue_age(engine: Engine) -> float:
    """Seconds for which questions wait and none was admitted; 0 when none waits."""
    with transaction(engine) as session:
        return float(session.scalar(text(_QUEUE)) or 0.0)


def _queue(engine: Engine, most: float) -> str:
    age = queue_age(engine)
    if age > most:
        raise NotReady(f"questions wait, and none was admitted for {age:.0f} s (at most {most:.0f})")
    return "moves" if age else "empty"
