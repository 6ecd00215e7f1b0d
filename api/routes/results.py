"""`/v1/batches/{id}/results`: the rows as they came with their answers, streamed."""

import re
from collections.abc import Iterator
from tempfile import TemporaryFile
from typing import IO, Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Query, Request
from fastapi.responses import StreamingResponse

from api.access import BatchId, visible_batch
from api.batch_results import result_layout, result_rows
from api.problems import ApiError
from api.results import ResultRow, csv_lines, jsonl_lines
from api.results_summary import summary_of
from api.results_xlsx import write_xlsx
from api.security import Reader
from api.state import state_of
from api.uploads import XLSX
from shared import history

router = APIRouter(prefix="/v1/batches", tags=["results"])
Format = Literal["csv", "jsonl", "xlsx"]
MEDIA_TYPES: dict[Format, str] = {"csv": "text/csv", "jsonl": "application/x-ndjson", "xlsx": XLSX}
_ALSO: dict[str, Format] = {"application/jsonl": "jsonl", "application/ndjson": "jsonl"}
_CHUNK = 64 * 1024  # characters sent at once
_NOT_PLAIN = re.compile(r"[^\w.-]+", re.ASCII)


@router.get(
    "/{batch_id}/results",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "One record a row, in the order of the file.",
            "content": {
                "text/csv": {"schema": {"type": "string"}},
                "application/x-ndjson": {"schema": {"type": "string"}},
                XLSX: {"schema": {"type": "string", "format": "binary"}},
            },
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
    raw: Annotated[
        bool, Query(description="CSV: cells as they are, also those that a spreadsheet would run.")
    ] = False,
) -> StreamingResponse:
    """The answers in input order. Of a batch that has not ended, what there is so far."""
    engine = state_of(request).engine
    visible_batch(engine, principal, batch_id)
    chosen = format or negotiated(request.headers.get("accept", ""))
    row, details = history.progress(engine, batch_id), history.batch_details(engine, batch_id)
    header, names, width = result_layout(engine, batch_id, details["source"])
    rows = result_rows(engine, batch_id)
    kind = MEDIA_TYPES[chosen]
    if chosen == "xlsx":
        body = _workbook(header, rows, width, summary_of(row, details))
    else:
        kind += "; charset=utf-8"
        lines = csv_lines(header, rows, width=width, raw=raw) if chosen == "csv" else jsonl_lines(names, rows)
        first = next(
            lines, ""
        )  # what cannot be read fails here, where it can still become a problem document
        body = _chunks(("\ufeff" if bom and chosen == "csv" else "") + first, lines)
    headers = {"Content-Disposition": _attachment(row["name"], batch_id, chosen), "Vary": "Accept"}
    return StreamingResponse(body, media_type=kind, headers=headers)


def _workbook(
    header: list[str], rows: Iterator[ResultRow], width: int, summary: list[tuple[str, Any]]
) -> Iterator[bytes]:
    """A workbook is a zip, whose parts are only known when it is whole: made on disk, then sent."""
    out = TemporaryFile()  # noqa: SIM115 - closed by the generator, once it is sent
    try:
        write_xlsx(out, header, rows, width=width, summary=summary)
        out.seek(0)
    except BaseException:
        out.close()
        raise
    return _sent(out)


def _sent(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while block := file.read(_CHUNK):
            yield block


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
