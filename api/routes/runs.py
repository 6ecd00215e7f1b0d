"""`/v1/runs/{id}`: one question's way through its pipeline."""

from fastapi import APIRouter, Request

from api.access import RunId, visible_batch
from api.schemas import RunDetails
from api.security import Reader
from api.state import state_of
from shared import history
from shared.errors import NotFound

router = APIRouter(prefix="/v1/runs", tags=["runs"])


@router.get("/{run_id}")
def get_run(request: Request, principal: Reader, run_id: RunId) -> RunDetails:
    """A run with its timeline: every node, branch and attempt, from where to where, with the grades."""
    engine = state_of(request).engine
    details = history.run_details(engine, run_id)
    try:
        visible_batch(engine, principal, details["batch_id"])
    except NotFound:
        # in the words for a run that does not exist
        raise NotFound(
            f"There is no run {run_id}. The results of a batch name the run of each row."
        ) from None
    more = {"timeline": history.timeline(engine, run_id), "open": history.open_claims(engine, run_id)}
    return RunDetails.model_validate(details | more)
