"""`/v1/batches/{id}/progress`: progress as server-sent events, until the batch has ended."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from hashlib import sha256
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request, Response
from fastapi.responses import StreamingResponse
from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool

from api.access import BatchId, visible_batch
from api.problems import ApiError
from api.routes.batches import as_progress
from api.security import Reader
from api.state import ApiState, state_of
from shared import history
from shared.errors import NotFound
from shared.statuses import BatchStatus

router = APIRouter(prefix="/v1/batches", tags=["batches"])
POLL_SECONDS = 1.0
SPARE = 10  # a look that takes long, because the batch is large, is followed by so many times its length
ALIVE_SECONDS = 15.0  # a comment that keeps proxies from closing a silent stream
MAX_STREAMS = 200  # of one process: each looks at the database every second or less
_OVER = (BatchStatus.ENDED, BatchStatus.CANCELLED)


@router.get(
    "/{batch_id}/progress",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "Events `progress` (data: BatchProgress), at last `end` with the same data.",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        },
        204: {"description": "`Last-Event-ID` is the end already: do not come back."},
    },
)
async def watch_batch(
    request: Request,
    principal: Reader,
    batch_id: BatchId,
    last_event_id: Annotated[str | None, Header(max_length=100)] = None,
) -> Response:
    """Progress as server-sent events: one when something has changed, and one at the end, which closes it."""
    state = state_of(request)
    if state.streams >= MAX_STREAMS:
        raise ApiError(
            429, "streams", "Too many progress streams are open. Ask for the batch now and then instead."
        )
    engine = state.engine
    await run_in_threadpool(visible_batch, engine, principal, batch_id)

    def look() -> dict[str, Any]:
        return as_progress(history.progress(engine, batch_id)).model_dump(mode="json")

    first = await run_in_threadpool(look)
    if is_over(first) and last_event_id == event_id(first):
        return Response(status_code=204)
    return StreamingResponse(
        _counted(state, events(look, first, last_event_id)),
        media_type="text/event-stream",
        headers={"X-Accel-Buffering": "no"},  # nginx would keep the events back
    )


async def _counted(state: ApiState, stream: AsyncIterator[str]) -> AsyncIterator[str]:
    state.streams += 1
    try:
        async for event in stream:
            yield event
    finally:
        state.streams -= 1


async def events(look: Any, row: dict[str, Any], seen: str | None) -> AsyncIterator[str]:
    """The stream. It is closed from outside when the client has gone."""
    said = time.monotonic()
    yield "retry: 3000\n\n"
    while True:
        now = event_id(row)
        if now != seen or is_over(row):
            kind = "end" if is_over(row) else "progress"
            yield f"id: {now}\nevent: {kind}\ndata: {json.dumps(row, ensure_ascii=False)}\n\n"
            seen, said = now, time.monotonic()
        elif time.monotonic() - said >= ALIVE_SECONDS:
            yield ": alive\n\n"
            said = time.monotonic()
        if is_over(row):
            return
        row = await _next(look, row)


async def _next(look: Any, row: dict[str, Any]) -> dict[str, Any]:
    """The next look; the row as it was while the database is away. A batch that is gone has ended."""
    await asyncio.sleep(POLL_SECONDS)
    begun = time.monotonic()
    try:
        found: dict[str, Any] = await run_in_threadpool(look)
    except NotFound:
        return row | {"status": BatchStatus.CANCELLED}
    except SQLAlchemyError:
        return row
    await asyncio.sleep(min(30.0, (time.monotonic() - begun) * SPARE))
    return found


def is_over(row: dict[str, Any]) -> bool:
    return row["status"] in _OVER


def event_id(row: dict[str, Any]) -> str:
    """The same for the same state of a batch, whichever process tells it. The pace alone is no news."""
    told = {key: value for key, value in row.items() if key not in ("rate_per_minute", "eta_seconds")}
    return sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]
