"""The news of a batch's end, as rows: what is to be told, to whom, and how it went. Workers send it."""

import ipaddress
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy import Engine, text

from shared.addresses import refusal
from shared.db import transaction
from shared.errors import UsageError
from shared.settings import Settings
from shared.urls import checked_url, shown


def checked_callback(settings: Settings, url: str | None) -> str | None:
    """`url` as it is stored. Raises UsageError when nothing could sign the call, FetchError for a URL that
    is not called: another scheme, a password in it, an address of one's own network."""
    if url is None:
        return None
    if settings.webhook_secret is None:
        raise UsageError(
            "callback_url: calls are signed, but there is no secret. Set CRAGLINE_WEBHOOK_SECRET for the API "
            "and the workers."
        )
    checked = checked_url(url)
    host = urlsplit(checked).hostname or ""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return checked  # a name: what it leads to is looked at when it is called
    reason = refusal(host)
    if reason is not None and not settings.webhook_allow_private:
        raise UsageError(
            f"callback_url: {host} is refused, as it is {reason}. CRAGLINE_WEBHOOK_ALLOW_PRIVATE permits it."
        )
    return checked


def of_batch(engine: Engine, batch_id: int) -> list[dict[str, Any]]:
    """How far the news of each end of a batch has come, oldest first."""
    query = """
    SELECT url, status, attempts, last_status, last_error, next_at, ended_at
      FROM webhook_deliveries WHERE batch_id = :id ORDER BY id
    """
    with transaction(engine) as session:
        rows = [dict(row) for row in session.execute(text(query), {"id": batch_id}).mappings()]
    return [row | {"url": shown(row["url"])} for row in rows]  # what stands behind `?` may be a secret
