"""A file dropped on the page: first what was found in it, then a batch. By the same code as the API's."""

import secrets
from pathlib import Path
from typing import Any

from fastapi import BackgroundTasks, Request, Response
from fastapi.responses import RedirectResponse
from starlette.concurrency import run_in_threadpool

from api import uploads
from api.problems import ApiError
from api.routes.batches import digest_of, opened, options_of_form, submit_file, within, without_folder
from api.schemas import BatchOptions, BatchQuery
from api.state import ApiState, state_of
from api.web.access import Changer, Viewer, from_script, page_router
from api.web.render import page
from shared import knowledge
from shared.errors import CraglineError
from shared.plan import PIPELINES, make_plan

router = page_router()
_LINES = ("set", "filter")  # fields with one entry a line


@router.get("/upload")
def upload_page(request: Request, principal: Viewer) -> Response:
    state = state_of(request)
    collections = knowledge.list_collections(state.engine)
    names = sorted({one["name"] for one in collections} | {a for one in collections for a in one["aliases"]})
    return page(
        request,
        "upload.html",
        principal,
        pipelines=sorted(PIPELINES, key=lambda name: (name != "crag", name)),
        collections=names,
        collection=state.settings.collection,
        endings=".csv,.tsv,.tab,.txt,.jsonl,.ndjson,.json,.xlsx,.xlsm,.zip",
        once=secrets.token_urlsafe(16),
    )


@router.post("/upload/look")
async def look(request: Request, principal: Changer) -> Response:
    """What the file would become; nothing is stored."""
    state = state_of(request)
    async with uploads.folder() as folder:
        options, sets, file, _, _ = await _received(request, folder)
        found = await run_in_threadpool(_looked, state, options, sets, file)
    template = "found.html" if from_script(request) else "found_page.html"
    return page(request, template, principal, found=found)


def _looked(state: ApiState, options: BatchOptions, sets: dict[str, Any], file: Path) -> dict[str, Any]:
    from api.intake.preview import preview

    try:
        make_plan(
            state.settings, options.pipeline, sets, options.collection
        )  # settings that are wrong say so now
        found = opened(file, options)
        # no further than a batch may go: a small zip may hold more rows than can be counted in an hour
        return preview(found, within(found.rows(), state.settings.api_max_rows))
    except CraglineError as error:
        raise without_folder(file.parent, error) from None


@router.post("/upload")
async def upload(request: Request, background: BackgroundTasks, principal: Changer) -> Response:
    state = state_of(request)
    async with uploads.folder() as folder:
        options, sets, file, digest, once = await _received(request, folder)
        key = (f"page-{once}", digest_of(options, sets, file, digest)) if once else None
        submitted = await run_in_threadpool(submit_file, state, principal, options, sets, file, key)
    background.add_task(state.wake_dispatcher)
    place = f"/batches/{submitted.batch_id}"
    if from_script(request):
        return Response(status_code=204, headers={"HX-Redirect": place})
    return RedirectResponse(place, 303)


async def _received(
    request: Request, folder: Path
) -> tuple[BatchOptions, dict[str, Any], Path, str, str | None]:
    """Options, settings, the file, its digest, and the form's number, which tells a second click from a new
    form. Fields that were left empty count as left out."""
    if uploads.media_type(request) != "multipart/form-data":
        raise ApiError(415, "media-type", "Choose a file in the form of the page.")
    received = await uploads.receive(request, folder, None)
    fields: dict[str, list[str]] = {}
    for name, values in received.fields.items():
        entries = [line for value in values for line in value.splitlines()] if name in _LINES else values
        kept = [entry.strip() for entry in entries if entry.strip()]
        if kept:
            fields[name] = kept
    once = fields.pop("once", [None])[-1]
    options, sets = await run_in_threadpool(options_of_form, BatchQuery.model_validate({}), fields)
    if len(received.files) != 1:
        raise ApiError(422, "form", "Choose one file with questions.")
    return options, sets, received.files[0], received.digests[0], once
