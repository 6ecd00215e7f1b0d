"""`/v1/batches`: submit, list, look at one."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from fastapi import APIRouter, BackgroundTasks, Header, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool

from api import uploads
from api.access import BatchId, fair, visible_batch
from api.cli.output import plain
from api.problems import ApiError
from api.schemas import (
    MAX_ID,
    BatchBody,
    BatchDetails,
    BatchOptions,
    BatchPage,
    BatchProgress,
    BatchQuery,
    SubmittedBatch,
)
from api.security import Reader, Submitter
from api.state import ApiState, state_of
from shared import batches, deliveries, history, knowledge
from shared.batches import Row
from shared.budget import Caps
from shared.control import Share
from shared.errors import CraglineError, IntakeError
from shared.keys import Principal
from shared.plan import make_plan, with_filters

if TYPE_CHECKING:
    from api.intake import QuestionFile

router = APIRouter(prefix="/v1/batches", tags=["batches"])
AnyRow = TypeVar("AnyRow", bound=Row)
MAX_JSON = 16_000_000  # bytes of a JSON document, which is in memory while it is read

_BINARY = {"schema": {"type": "string", "format": "binary"}}
_LINES = {"schema": {"type": "string"}}
_BODY = {
    "requestBody": {
        "required": True,
        "description": "One JSON document; or JSON lines, CSV, TSV, plain lines or XLSX as they are, or as "
        "the field `file` of a form, with the options in the query or in fields.",
        "content": {
            "application/json": {"schema": {"$ref": "#/components/schemas/BatchBody"}},
            "application/x-ndjson": _LINES,
            "text/csv": _LINES,
            "text/tab-separated-values": _LINES,
            "text/plain": _LINES,
            uploads.XLSX: _BINARY,
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {"file": {"type": "string", "format": "binary"}},
                }
            },
        },
    }
}


@router.post(
    "",
    status_code=201,
    openapi_extra=_BODY,
    responses={200: {"model": SubmittedBatch, "description": "The same request came before."}},
)
async def submit_batch(
    request: Request,
    response: Response,
    background: BackgroundTasks,
    principal: Submitter,
    query: Annotated[BatchQuery, Query()],
    idempotency_key: Annotated[
        str | None,
        Header(
            min_length=1,
            max_length=200,
            description="The same key with the same content again is the same batch; with other content: 409.",
        ),
    ] = None,
) -> SubmittedBatch:
    """Submit questions. They are taken whole or not at all, and answered in the background."""
    state = state_of(request)
    async with uploads.folder() as folder:
        if uploads.media_type(request) == "application/json":
            if query.model_fields_set:
                raise ApiError(
                    422, "usage", "With a JSON document the options stand in it, not in the query."
                )
            options, sets, file, digest = await _from_json(request, folder)
        else:
            received = await uploads.receive(request, folder, query.filename)
            options, sets = await run_in_threadpool(options_of_form, query, received.fields)
            if len(received.files) != 1:
                count = len(received.files)
                raise ApiError(422, "form", f"There are {count} files in the form; one is taken, as `file`.")
            file, digest = received.files[0], received.digests[0]
        key = None if idempotency_key is None else (idempotency_key, digest_of(options, sets, file, digest))
        submitted = await run_in_threadpool(submit_file, state, principal, options, sets, file, key)
    background.add_task(state.wake_dispatcher)
    response.headers["Location"] = f"/v1/batches/{submitted.batch_id}"
    if submitted.repeated:
        response.status_code = 200
    return submitted


async def _from_json(request: Request, folder: Path) -> tuple[BatchOptions, dict[str, Any], Path, str]:
    remedy = "Send JSON lines (application/x-ndjson), which are read as a stream."
    body = await uploads.small_body(request, MAX_JSON, remedy)
    return await run_in_threadpool(_parsed, body, folder)


def _parsed(body: bytes, folder: Path) -> tuple[BatchOptions, dict[str, Any], Path, str]:
    """The document's questions become a file of JSON lines, so that every format goes one way."""
    try:
        parsed = BatchBody.model_validate_json(body)
    except ValidationError as error:
        raise _invalid(error) from None
    lines = "".join(json.dumps(one, ensure_ascii=True) + "\n" for one in parsed.questions).encode()
    file = folder / "questions.jsonl"
    file.write_bytes(lines)
    options = BatchOptions(**parsed.model_dump(include=set(BatchOptions.model_fields)))
    return options, parsed.settings, file, sha256(lines).hexdigest()


def options_of_form(query: BatchQuery, fields: dict[str, list[str]]) -> tuple[BatchOptions, dict[str, Any]]:
    """The options of the query, and those that the form has fields for. Raises RequestValidationError."""
    given: dict[str, Any] = {
        name: values if name in ("set", "filter") else values[-1] for name, values in fields.items()
    }
    try:
        merged = BatchQuery.model_validate(query.model_dump(exclude_unset=True) | given)
    except ValidationError as error:
        raise _invalid(error) from None
    options = BatchOptions(**merged.model_dump(include=set(BatchOptions.model_fields)))
    return options, with_filters(merged.set, merged.filter)


def _invalid(error: ValidationError) -> RequestValidationError:
    return RequestValidationError(
        [
            {**one, "loc": ("body", *one["loc"])}
            for one in error.errors(include_url=False, include_input=False)
        ]
    )


def digest_of(options: BatchOptions, sets: dict[str, Any], file: Path, content: str) -> str:
    """What makes two requests the same: the options, the file's name and its content."""
    told = [options.model_dump(), sets, file.name, content]
    return sha256(json.dumps(told, sort_keys=True, default=str).encode()).hexdigest()


def submit_file(
    state: ApiState,
    principal: Principal,
    options: BatchOptions,
    sets: dict[str, Any],
    file: Path,
    key: tuple[str, str] | None,
) -> SubmittedBatch:
    """Store a file of questions as a batch. `key`: of idempotency, with the digest of what was sent."""
    engine = state.engine
    callback = deliveries.checked_callback(state.settings, options.callback_url)
    request = batches.Request(principal.owner, callback, *(key or (None, "")))
    try:
        # a request that is sent again is answered as before, whatever has changed since
        done = batches.submitted_before(engine, request) if key else None
        if done is None:
            plan = make_plan(state.settings, options.pipeline, sets, options.collection, options.reuse)
            questions = opened(file, options)
            plan = knowledge.resolved(engine, plan)
            batches.check_collection(engine, plan)
            rows = within(questions.rows(), state.settings.api_max_rows)
            name = options.name or file.name
            share = fair(principal, Share(options.priority, options.weight, options.max_in_flight))
            caps = Caps(options.max_cost_usd, options.max_tokens)
            terms = batches.Terms(share, submitted_by=principal.owner, caps=caps)
            done = batches.submit(engine, plan, name, asdict(questions.report), rows, terms, request)
    except batches.OtherBody as error:
        raise ApiError(409, "idempotency-key", str(error)) from None
    except CraglineError as error:
        raise without_folder(file.parent, error) from None
    source = history.batch_details(engine, done.batch_id)["source"]
    return SubmittedBatch(
        batch_id=done.batch_id,
        rows=done.rows,
        questions=done.runs,
        empty_rows=done.empty_rows,
        duplicate_rows=done.duplicate_rows,
        repeated=done.repeated,
        question_column=source.get("question_column"),
        notes=source.get("notes") or [],
    )


def opened(file: Path, options: BatchOptions) -> "QuestionFile":
    """The file as it was understood. Raises IntakeError or UsageError."""
    from api.intake import open_questions  # its readers take a while to import

    return open_questions(file, options.column, sheet=options.sheet, header_row=options.header_row)


def within(rows: Iterator[AnyRow], most: int) -> Iterator[AnyRow]:
    """`rows`, as long as they are no more than `most`. Raises IntakeError."""
    for count, row in enumerate(rows, 1):
        if count > most:
            raise IntakeError(f"row {row.number}: a batch has at most {most:,} rows here. Send it in parts.")
        yield row


def without_folder(folder: Path, error: CraglineError) -> CraglineError:
    """The error without the place of the temporary file, which tells nobody anything."""
    told = str(error)
    if str(folder) in told:
        return type(error)(told.replace(f"{folder}/", ""))
    return error


@router.get("")
def list_batches(
    request: Request,
    principal: Reader,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    cursor: Annotated[
        str | None, Query(max_length=50, description="`next_cursor` of the page before.")
    ] = None,
    status: Annotated[str | None, Query(max_length=50)] = None,
    pipeline: Annotated[str | None, Query(max_length=50)] = None,
    collection: Annotated[str | None, Query(max_length=100)] = None,
    name: Annotated[str | None, Query(max_length=500, description="A part of the name.")] = None,
    owner: Annotated[str | None, Query(max_length=100, description="For admins.")] = None,
) -> BatchPage:
    """Batches, newest first: one's own, and for an admin all of them."""
    wanted = history.Wanted(
        owner=owner if principal.is_admin else principal.owner,
        status=status,
        pipeline=pipeline,
        collection=collection,
        name=name,
        before=_before(cursor),
    )
    rows = history.find_batches(state_of(request).engine, wanted, limit + 1)
    more = len(rows) > limit
    shown = [as_progress(row) for row in rows[:limit]]
    return BatchPage(batches=shown, next_cursor=f"b{shown[-1].batch_id}" if more else None)


def _before(cursor: str | None) -> int | None:
    if cursor is None:
        return None
    number = cursor.removeprefix("b")
    if not (number.isascii() and number.isdecimal() and 0 < int(number) <= MAX_ID):
        raise ApiError(
            422, "cursor", "This cursor is not one of ours. Send `next_cursor` of the page before."
        )
    return int(number)


def as_progress(row: dict[str, Any]) -> BatchProgress:
    return BatchProgress.model_validate(plain(row) | {"open": row["pending"] + row["running"]})


@router.get("/{batch_id}")
def get_batch(request: Request, principal: Reader, batch_id: BatchId) -> BatchDetails:
    """One batch: where it stands, its plan, and where its questions came from."""
    engine = state_of(request).engine
    owner = visible_batch(engine, principal, batch_id)
    row = as_progress(history.progress(engine, batch_id)).model_dump()
    details = history.batch_details(engine, batch_id)
    told = deliveries.of_batch(engine, batch_id)
    return BatchDetails.model_validate(row | details | {"owner": owner, "deliveries": told})
