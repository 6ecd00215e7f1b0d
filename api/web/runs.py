"""One run: its graph with the way it took, its timeline, and everything it saw."""

from fastapi import Request, Response

from api.access import RunId
from api.routes.runs import visible_run
from api.state import state_of
from api.web.access import Viewer, page_router
from api.web.graph import picture, way_of
from api.web.render import page
from api.web.story import story
from shared import browse, history
from shared.statuses import DISPOSITIONS

router = page_router()


@router.get("/runs/{run_id}")
def run_page(request: Request, principal: Viewer, run_id: RunId) -> Response:
    engine = state_of(request).engine
    run = visible_run(engine, principal, run_id)
    timeline = history.timeline(engine, run_id)
    claims = history.open_claims(engine, run_id)
    before, after = (
        browse.neighbours(engine, run["batch_id"], run["rows"][0]) if run["rows"] else (None, None)
    )
    told = story(run["question"], timeline, browse.run_grades(engine, run_id))
    return page(
        request,
        "run.html",
        principal,
        run=run,
        ended=run["status"] in DISPOSITIONS,
        picture=picture(run["pipeline"], way_of(timeline, claims)),
        story=told,
        # what a search brought stands there with its grades already
        shown_steps={found.step for found in told.found},
        searches=browse.run_searches(engine, run_id),
        open=claims,
        before=before,
        after=after,
    )
