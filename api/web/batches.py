"""The list of batches, and one batch: its progress, its questions, its nodes, and what may be done to it."""

from typing import Annotated, Any, Literal

from fastapi import Form, Path, Query, Request, Response
from fastapi.responses import RedirectResponse

from api.access import BatchId, visible_batch
from api.routes import control
from api.schemas import MAX_ID, Act, Again, Resumption
from api.state import state_of
from api.web.access import Changer, Viewer, from_script, page_router
from api.web.histogram import charts
from api.web.render import card, page
from shared import browse, history
from shared.errors import NotFound
from shared.history import Wanted
from shared.keys import Principal
from shared.statuses import BatchStatus, RunStatus

router = page_router()
PAGE = 20  # batches
QUESTIONS = 50
EVENTS = 50
Before = Annotated[int | None, Query(ge=1, le=MAX_ID)]
BatchStatusAsked = Annotated[Literal["open", "paused", "ended", "cancelled", ""], Query()]
RunStatusAsked = Annotated[
    Literal["pending", "running", "answered", "gave_up", "failed", "cancelled", ""], Query()
]
Words = Annotated[str, Query(max_length=200)]


@router.get("/")
def batches_page(
    request: Request,
    principal: Viewer,
    before: Before = None,
    status: BatchStatusAsked = "",
    name: Words = "",
) -> Response:
    values = _list(request, principal, before, status, name)
    # the page keeps itself fresh by asking for the same address, of which the script takes its part
    template = "batch_list.html" if from_script(request) else "batches.html"
    return page(request, template, principal, **values)


def _list(
    request: Request, principal: Principal, before: int | None, status: str, name: str
) -> dict[str, Any]:
    state = state_of(request)
    owner = None if principal.is_admin else principal.owner
    wanted = Wanted(owner=owner, status=status or None, name=name or None, before=before)
    heads = browse.batch_heads(state.engine, wanted, PAGE + 1)
    shown = heads[:PAGE]
    rows = state.figures.of(state.engine, shown)
    return {
        "cards": [card(head, rows.get(head["batch_id"])) for head in shown],
        "next": shown[-1]["batch_id"] if len(heads) > PAGE else None,
        "before": before,
        "status": status,
        "name": name,
        "statuses": [one.value for one in BatchStatus],
    }


@router.get("/batches/{batch_id}")
def batch_page(
    request: Request,
    principal: Viewer,
    batch_id: BatchId,
    after: Annotated[int, Query(ge=0, le=2**31 - 1)] = 0,
    status: RunStatusAsked = "",
    words: Words = "",
    part: Annotated[Literal["card", "questions", "events", ""], Query()] = "",
) -> Response:
    """`part`: only that of the page, for the script that keeps it fresh."""
    engine = state_of(request).engine
    visible_batch(engine, principal, batch_id)
    values: dict[str, Any] = {"batch_id": batch_id, "after": after, "status": status, "words": words}
    if part == "events":
        return page(request, "events.html", principal, **values, events=_events(request, batch_id))
    if part != "questions":
        values["card"] = _card(request, batch_id)
    if part == "card":
        return page(request, "batch_card.html", principal, **values, here=True)
    values["questions"] = browse.questions(
        engine, batch_id, after=after, status=status or None, words=words.strip(), limit=QUESTIONS
    )
    values |= {"searched": browse.SEARCHED, "statuses": [one.value for one in RunStatus]}
    if part == "questions":
        return page(request, "questions.html", principal, **values)
    details = history.batch_details(engine, batch_id)
    values |= {"plan": details["plan"], "source": details["source"]}
    values["events"] = _events(request, batch_id)
    return page(request, "batch.html", principal, **values, here=True)


def _events(request: Request, batch_id: int) -> list[dict[str, Any]]:
    """What was done to the batch, newest first."""
    return history.events(state_of(request).engine, batch_id, EVENTS)[::-1]


def _card(request: Request, batch_id: int) -> dict[str, Any]:
    state = state_of(request)
    head = browse.batch_head(state.engine, batch_id)
    if head is None:
        raise NotFound(f"There is no batch {batch_id}.")
    return card(head, state.figures.of(state.engine, [head]).get(batch_id))


@router.get("/batches/{batch_id}/nodes")
def nodes_page(request: Request, principal: Viewer, batch_id: BatchId) -> Response:
    engine = state_of(request).engine
    visible_batch(engine, principal, batch_id)
    latencies, every = browse.node_latencies(engine, batch_id)
    head = browse.batch_head(engine, batch_id)
    return page(request, "nodes.html", principal, head=head, charts=charts(latencies), every=every)


@router.post("/batches/{batch_id}/{verb}")
def act(
    request: Request,
    principal: Changer,
    batch_id: BatchId,
    verb: Annotated[Literal["pause", "resume", "cancel", "retry"], Path()],
    here: Annotated[bool, Form()] = False,
) -> Response:
    """What the API's endpoints of these names do. `here`: asked for on the batch's own page."""
    if verb == "resume":
        control.resume_batch(request, principal, batch_id, Resumption())
    elif verb == "retry":
        control.retry_batch(request, principal, batch_id, Again())
    else:
        ours = {"pause": control.pause_batch, "cancel": control.cancel_batch}[verb]
        ours(request, principal, batch_id, Act())
    state_of(request).figures.forget(batch_id)
    if not from_script(request):
        return RedirectResponse(f"/batches/{batch_id}", 303)
    return page(
        request, "batch_card.html", principal, card=_card(request, batch_id), batch_id=batch_id, here=here
    )
