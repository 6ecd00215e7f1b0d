"""`/v1/batches/{id}/results`: the rows as they came with their answers, streamed."""

import re
from collections.abc import Iterator
from typing import Annotated, Literal
from urllib.parse import quote

from fastapi import APIRouter, Query, Request
from fastapi.responses import StreamingResponse
from sqlalchemy import Engine

from api.access import BatchId, visible_batch
from api.batch_results import result_layout, result_rows
from api.problems import ApiError
from api.results import csv_lines, jsonl_lines
from api.security import Reader
from api.state import state_of
from shared import history

router = APIRouter(prefix="/v1/batches", tags=["results"])
Format = Literal["csv", "jsonl"]
MEDIA_TYPES: dict[Format, str] = {"csv": "text/csv", "jsonl": "application/x-ndjson"}
_ALSO: dict[str, Format] = {"application/jsonl": "jsonl", "application/ndjson": "jsonl"}
_CHUNK = 64 * 1024  # characters sent at once
_NOT_PLAIN = re.compile(r"[^\w.-]+", re.ASCII)


@router.get(
    "/{batch_id}/results",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "One record a row, in the order of the file.",
            "content": {kind: {"schema": {"type": "string"}} for kind in MEDIA_TYPES.values()},
        }
    },
)
def get_results(
    request: Request,
    principal: Reader,
    batch_id: BatchId,
    format: Annotated[
        Format | None, Query(description="Left out: the `Accept` header decides, CSV where it takes all.")
    ] = None,
    bom: Annotated[
        bool, Query(description="CSV: begin with a byte order mark, without which Excel misreads UTF-8.")
    ] = False,
) -> StreamingResponse:
    """The answers in input order. Of a batch that has not ended, what there is so far."""
    engine = state_of(request).engine
    visible_batch(engine, principal, batch_id)
    chosen = format or negotiated(request.headers.get("accept", ""))
    name = history.progress(engine, batch_id)["name"]
    lines = _lines(engine, batch_id, chosen)
    first = next(lines)  # what cannot be read fails here, where it can still become a problem document
    start = "\ufeff" if bom and chosen == "csv" else ""
    return StreamingResponse(
        _chunks(start + first, lines),
        media_type=f"{MEDIA_TYPES[chosen]}; charset=utf-8",
        headers={"Content-Disposition": _attachment(name, batch_id, chosen), "Vary": "Accept"},
    )


def _lines(engine: Engine, batch_id: int, chosen: Format) -> Iterator[str]:
    header, names, width = result_layout(engine, batch_id)
    rows = result_rows(engine, batch_id)
    return csv_lines(header, rows, width=width) if chosen == "csv" else jsonl_lines(names, rows)


def _chunks(first: str, lines: Iterator[str]) -> Iterator[bytes]:
    """Lines together, because each piece that is sent costs a change of threads."""
    block, size = [first], len(first)
    for line in lines:
        block.append(line)
        size += len(line)
        if size >= _CHUNK:
            yield "".join(block).encode()
            block, size = [], 0
    yield "".join(block).encode()


def negotiated(accept: str) -> Format:
    """The format that an `Accept` header likes best. Raises ApiError 406 when it takes none of ours."""
    best: tuple[float, int, Format] | None = None
    for place, part in enumerate(accept.split(",") if accept.strip() else ["*/*"]):
        kind, *parameters = (one.strip().lower() for one in part.split(";"))
        found = _format_of(kind)
        weight = next((_weight(one[2:]) for one in parameters if one.startswith("q=")), 1.0)
        if found is not None and weight > 0 and (best is None or (weight, -place) > best[:2]):
            best = (weight, -place, found)
    if best is None:
        takes = ", ".join(MEDIA_TYPES.values())
        raise ApiError(406, "not-acceptable", f"Results are {takes}. Accept one of them, or say ?format=.")
    return best[2]


def _format_of(kind: str) -> Format | None:
    if kind in ("*/*", "text/*"):
        return "csv"
    if kind == "application/*":
        return "jsonl"
    return next((form for form, ours in MEDIA_TYPES.items() if ours == kind), _ALSO.get(kind))


def _weight(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _attachment(name: str, batch_id: int, chosen: Format) -> str:
    """`Content-Disposition` with a name for old clients, and the whole one in UTF-8."""
    stem = name.rpartition(".")[0] or name
    plain = _NOT_PLAIN.sub("_", stem)[:100].strip("_.") or "batch"
    full = quote(f"{stem[:100]}-results-{batch_id}.{chosen}", safe="")
    return f"attachment; filename=\"{plain}-results-{batch_id}.{chosen}\"; filename*=UTF-8''{full}"
