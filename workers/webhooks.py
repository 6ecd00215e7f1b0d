"""Tells the `callback_url` of each ended batch, once it has said yes.

What is to be told is a row of `webhook_deliveries`, written after the batch's last commit, so no news is
lost with a worker or a message. A try is claimed by moving `next_at` on before it begins: a worker that dies
in it is followed by another when that time has come. Receivers may so hear a thing twice; `webhook-id` stays.

The call follows the public scheme of Standard Webhooks: `webhook-id`, `webhook-timestamp` and
`webhook-signature`, which is `v1,` and the base64 HMAC-SHA256 of `id.timestamp.body`. Every address is
checked as that of a page that is fetched; redirects are not followed.
"""

import base64
import hmac
import json
import threading
import time
from binascii import Error as NotBase64
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import httpcore
import structlog
from sqlalchemy import Engine, text

from shared import history
from shared.addresses import Resolver, resolve
from shared.clean import one_line
from shared.db import transaction
from shared.errors import NotFound
from shared.settings import Settings
from shared.statuses import DeliveryStatus
from shared.urls import AddressRefused, FetchError, shown
from workers.stores.web.fetch import USER_AGENT, Fetcher, Guarded

log = structlog.get_logger()
MAX_ATTEMPTS = 12  # with the pauses below, over about eight hours
_FIRST_PAUSE, _LONGEST_PAUSE = 30, 3600  # seconds
_SECONDS = 10.0  # for one call, its connection included; below the first pause
_AT_ONCE = 20  # calls of one tick, and
_TICK = 15.0  # seconds after which a tick makes no further one
_ticking = threading.Lock()  # receivers that never answer hold one thread of a process, not all of them
_GONE = 410  # the receiver says: never again

_ENQUEUE = """
INSERT INTO webhook_deliveries (batch_id, batch_ended_at, url)
SELECT id, ended_at, callback_url
  FROM batches
 WHERE callback_url IS NOT NULL AND ended_at IS NOT NULL
   AND NOT EXISTS (SELECT FROM webhook_deliveries AS told
                    WHERE told.batch_id = batches.id AND told.batch_ended_at = batches.ended_at)
ON CONFLICT DO NOTHING
"""
_CLAIM = """
UPDATE webhook_deliveries
   SET attempts = attempts + 1,
       next_at = now() + make_interval(secs => least(:longest, :first * power(2, least(attempts, 20))))
 WHERE id IN (SELECT id FROM webhook_deliveries WHERE status = 'pending' AND next_at <= now()
               ORDER BY next_at LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING id, batch_id, batch_ended_at, url, attempts
"""
_NOTE = """
UPDATE webhook_deliveries
   SET status = :status, last_status = :code, last_error = :error,
       ended_at = CASE WHEN :status <> 'pending' THEN now() END
 WHERE id = :id AND status = 'pending' AND attempts = :attempts
"""


@dataclass(frozen=True)
class Outcome:
    """What came of one try."""

    code: int | None = None  # HTTP status, when there was an answer
    error: str | None = None  # None: delivered
    final: bool = False  # another try cannot help


def deliver(engine: Engine, settings: Settings, *, resolver: Resolver = resolve) -> int:
    """Write down what is to be told, and make the tries that are due; how many those were.

    One thread of a process at a time; the others leave it to that one, and to the next tick.
    """
    if not _ticking.acquire(blocking=False):
        return 0
    try:
        return _deliver(engine, settings, resolver)
    finally:
        _ticking.release()


def _deliver(engine: Engine, settings: Settings, resolver: Resolver) -> int:
    deadline = time.monotonic() + _TICK
    with transaction(engine) as session:
        session.execute(text(_ENQUEUE))
    for made in range(_AT_ONCE):
        # one by one: what is claimed and then waits for slow receivers would be claimed by others meanwhile
        with transaction(engine) as session:
            row = session.execute(text(_CLAIM), {"longest": _LONGEST_PAUSE, "first": _FIRST_PAUSE}).first()
        if row is None:
            return made
        outcome = _attempt(engine, settings, row, resolver)
        status = _status(outcome, row.attempts)
        with transaction(engine) as session:
            told = {"status": status, "code": outcome.code, "error": outcome.error}
            session.execute(text(_NOTE), told | {"id": row.id, "attempts": row.attempts})
        log.info("webhook", batch_id=row.batch_id, attempt=row.attempts, status=status, answer=outcome.code)
        if time.monotonic() > deadline:
            return made + 1
    return _AT_ONCE


def _status(outcome: Outcome, attempts: int) -> DeliveryStatus:
    if outcome.error is None:
        return DeliveryStatus.DELIVERED
    return DeliveryStatus.FAILED if outcome.final or attempts >= MAX_ATTEMPTS else DeliveryStatus.PENDING


def _attempt(engine: Engine, settings: Settings, row: Any, resolver: Resolver) -> Outcome:
    if settings.webhook_secret is None:
        return Outcome(error="this worker has no CRAGLINE_WEBHOOK_SECRET to sign with")
    try:
        progress = history.progress(engine, row.batch_id)
    except NotFound:
        return Outcome(error="the batch is gone", final=True)
    if progress["ended_at"] != row.batch_ended_at:  # its next end is told by a row of its own
        return Outcome(error="the batch was retried before this end of it could be told", final=True)
    body = json.dumps(payload(progress), ensure_ascii=False).encode()
    delivery_id = f"crag_delivery_{row.id}"
    headers = signed(settings.webhook_secret.get_secret_value(), delivery_id, body, int(time.time()))
    fetcher = Fetcher(settings.webhook_allow_private, max_seconds=_SECONDS, resolver=resolver)
    return post(fetcher, row.url, headers, body)


def payload(row: dict[str, Any]) -> dict[str, Any]:
    """What is told of a row of `batch_progress`: counts and times, no question and no answer."""
    counts = {name: row[name] for name in ("rows", *history.COUNTS)}
    return {
        "type": "batch.ended",
        "timestamp": datetime.now(UTC).isoformat(),
        "data": {
            "batch_id": row["batch_id"],
            "name": row["name"],
            "status": row["status"],
            "pipeline": row["pipeline"],
            **counts,
            "cost_usd": float(row["cost_usd"] or 0),
            "submitted_at": row["submitted_at"].isoformat(),
            "ended_at": row["ended_at"].isoformat() if row["ended_at"] else None,
        },
    }


def signed(secret: str, delivery_id: str, body: bytes, timestamp: int) -> dict[str, str]:
    """The headers of a call. A secret that begins with `whsec_` is base64, as the scheme has it."""
    key = secret.encode()
    if secret.startswith("whsec_"):
        with suppress(NotBase64):  # a secret that only looks like it
            key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    content = f"{delivery_id}.{timestamp}.".encode() + body
    digest = base64.b64encode(hmac.new(key, content, sha256).digest()).decode()
    return {
        "webhook-id": delivery_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": f"v1,{digest}",
        "Content-Type": "application/json",
        "User-Agent": USER_AGENT,
        "Connection": "close",
    }


def post(fetcher: Fetcher, url: str, headers: dict[str, str], body: bytes) -> Outcome:
    """One call, whose answer is not read beyond its status."""
    backend = Guarded(fetcher, time.monotonic() + fetcher.max_seconds)
    timeouts = dict.fromkeys(("connect", "read", "write", "pool"), fetcher.max_seconds)
    try:
        with (
            httpcore.ConnectionPool(network_backend=backend, max_keepalive_connections=0) as pool,
            pool.stream(
                "POST",
                url,
                headers=[*headers.items(), ("Content-Length", str(len(body)))],
                content=body,
                extensions={"timeout": timeouts},
            ) as answer,
        ):
            code = answer.status
    except AddressRefused:
        return Outcome(error=f"{shown(url)}: refused, its address is not a public one", final=True)
    except FetchError as error:
        return Outcome(error=one_line(str(error), 300))
    except (httpcore.TimeoutException, TimeoutError):
        return Outcome(error=f"no answer within {fetcher.max_seconds:.0f} s")
    except (httpcore.NetworkError, httpcore.ProtocolError, OSError) as error:
        return Outcome(error=f"the connection failed ({type(error).__name__})")
    if 200 <= code < 300:
        return Outcome(code)
    return Outcome(code, f"the receiver answered {code}", final=code == _GONE)
