"""`/v1/collections` and `/v1/ingests`: what questions are answered from."""

import os
import re
import shutil
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, BackgroundTasks, Request
from fastapi import Path as InPath
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool

from api import uploads
from api.files import atomic_binary
from api.problems import ApiError
from api.schemas import (
    CollectionDetails,
    CollectionFacts,
    IngestBody,
    IngestProgress,
    IngestStarted,
    PathNote,
)
from api.security import Reader, Submitter, is_local
from api.state import ApiState, state_of
from shared import ingest, knowledge
from shared.errors import UsageError
from shared.keys import Principal
from shared.sources import SUFFIXES, Options

router = APIRouter(prefix="/v1", tags=["knowledge"])
MAX_JSON = 1_000_000  # bytes
Name = Annotated[str, InPath(min_length=1, max_length=100)]
_REMOTE = re.compile(r"(?:git\+)?https?://", re.IGNORECASE)
_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": {"$ref": "#/components/schemas/IngestBody"}},
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {
                        "file": {"type": "array", "items": {"type": "string", "format": "binary"}},
                        "collection": {"type": "string"},
                    },
                }
            },
        },
    }
}


@router.get("/collections")
def list_collections(request: Request, principal: Reader) -> list[CollectionFacts]:
    """Every collection."""
    return [CollectionFacts(**row) for row in knowledge.list_collections(state_of(request).engine)]


@router.get("/collections/{name}")
def get_collection(request: Request, principal: Reader, name: Name) -> CollectionDetails:
    """One collection, or the one that an alias stands for, with what it was filled from."""
    row = knowledge.show_collection(state_of(request).engine, name)
    if not principal.is_admin:  # their numbers are of others' batches
        row["open_batches"] = []
    return CollectionDetails(**row)


@router.post("/ingests", status_code=202, openapi_extra=_BODY)
async def start_ingest(request: Request, background: BackgroundTasks, principal: Submitter) -> IngestStarted:
    """Bring files or pages into a collection: upload files as a form, or name addresses in JSON."""
    state = state_of(request)
    if uploads.media_type(request) == "multipart/form-data":
        async with uploads.folder() as folder:
            received = await uploads.receive(request, folder, None)
            made = await run_in_threadpool(_take_files, state, received)
    else:
        body = await uploads.small_body(request, MAX_JSON, "Name fewer addresses at once.")
        made = await run_in_threadpool(_take_body, state, principal, is_local(request), body)
    background.add_task(state.publish, lambda: ingest.wake(state.queue, made.file_ids))
    return IngestStarted(ingest_id=made.ingest_id, collection=made.collection, files=len(made.file_ids))


def _take_body(state: ApiState, principal: Principal, local: bool, body: bytes) -> ingest.Ingest:
    try:
        given = IngestBody.model_validate_json(body)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False)
        raise RequestValidationError([{**one, "loc": ("body", *one["loc"])} for one in problems]) from None
    if given.paths and not (principal.is_admin and local):
        raise ApiError(403, "paths", "Paths are for admins on the machine itself. Upload the files instead.")
    if given.prune and not principal.is_admin:
        raise ApiError(403, "scope", "Pruning removes documents: it needs a key with the scope 'admin'.")
    odd = next((url for url in given.urls if not _REMOTE.match(url)), None)
    if odd is not None:
        raise UsageError(
            "urls: each begins with https://, http:// or git+https://. Files are uploaded as a form."
        )
    options = Options(
        tuple(given.include),
        tuple(given.exclude),
        given.depth,
        given.sitemap,
        given.max_pages,
        prune=given.prune,
    )
    for path in given.paths:
        if not os.path.isabs(path):
            raise UsageError(f"paths: {path!r} is not absolute.")
    sources: list[Path | str] = [*given.urls, *map(Path, given.paths)]
    return ingest.create(state.engine, sources, given.collection or state.settings.collection, options)


def _take_files(state: ApiState, received: uploads.Received) -> ingest.Ingest:
    """Files get a lasting place, which is their identity: the same name again replaces the document."""
    unknown = sorted(set(received.fields) - {"collection"})
    if unknown:
        raise UsageError(f"The form has the fields `file` and `collection`, not {unknown[0]!r}.")
    if not received.files:
        raise UsageError("There is no file in the form. Send one or more as `file`.")
    for file in received.files:
        if file.suffix.lower() not in SUFFIXES:
            raise UsageError(f"{file.name}: only {', '.join(sorted(SUFFIXES))} can be ingested.")
    name = received.fields.get("collection", [state.settings.collection])[-1]
    ingest.check_collection_name(name)
    place = _uploads(state) / knowledge.resolve(state.engine, name)
    place.mkdir(mode=0o755, parents=True, exist_ok=True)
    kept = []
    for file in received.files:
        # in one move: a worker may be reading the old one, and somebody else be sending a new one
        with file.open("rb") as sent, atomic_binary(place / file.name) as kept_as:
            shutil.copyfileobj(sent, kept_as)
        kept.append(place / file.name)
    return ingest.create(state.engine, kept, name)


@router.get("/ingests/{ingest_id}")
def get_ingest(
    request: Request, principal: Reader, ingest_id: Annotated[str, InPath(max_length=100)]
) -> IngestProgress:
    """How far an ingest has come."""
    state = state_of(request)
    now = ingest.progress(state.engine, ingest_id)
    counts = {
        name: getattr(now, name)
        for name in IngestProgress.model_fields
        if name not in ("ingest_id", "errors", "notes")
    }
    return IngestProgress(
        ingest_id=ingest_id,
        errors=[_note(state, path, note) for path, note in now.failures],
        notes=[_note(state, path, note) for path, note in now.notes],
        **counts,
    )


def _note(state: ApiState, path: str, note: str) -> PathNote:
    """What is said of a file; of an uploaded one without its place on this machine."""
    place = f"{_uploads(state)}/"
    return PathNote(path=path.removeprefix(place), note=note.replace(place, ""))


def _uploads(state: ApiState) -> Path:
    return state.settings.home / "uploads"
