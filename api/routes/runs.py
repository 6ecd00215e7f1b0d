"""`/v1/runs/{id}`: one question's way through its pipeline."""

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Request
from sqlalchemy import Engine

from api.access import RunId, visible_batch
from api.cli.output import plain
from api.schemas import Fork, Forked, RunDetails
from api.security import Reader, Submitter
from api.state import state_of
from shared import history, rework
from shared.errors import NotFound
from shared.keys import Principal

router = APIRouter(prefix="/v1/runs", tags=["runs"])


@router.get("/{run_id}")
def get_run(request: Request, principal: Reader, run_id: RunId) -> RunDetails:
    """A run with its timeline: every node, branch and attempt, from where to where, with the grades."""
    engine = state_of(request).engine
    details = visible_run(engine, principal, run_id)
    more = {"timeline": history.timeline(engine, run_id), "open": history.open_claims(engine, run_id)}
    return RunDetails.model_validate(plain(details | more))


@router.post("/{run_id}/fork", status_code=201)
def fork_run(request: Request, principal: Submitter, run_id: RunId, fork: Fork) -> Forked:
    """What if: go on from the middle of a run, with other numbers, as a new run in a batch of its own."""
    state = state_of(request)
    visible_run(state.engine, principal, run_id)
    made = rework.fork(
        state.engine,
        run_id,
        fork.step,
        state.settings,
        fork.settings,
        actor=principal.owner,
        reason=fork.reason,
    )
    state.wake_dispatcher()
    return Forked.model_validate(plain(asdict(made)))


def visible_run(engine: Engine, principal: Principal, run_id: int) -> dict[str, Any]:
    """The run, when `principal` may see its batch. Raises NotFound, in the same words for both cases."""
    details = history.run_details(engine, run_id)
    try:
        visible_batch(engine, principal, details["batch_id"])
    except NotFound:
        raise NotFound(
            f"There is no run {run_id}. The results of a batch name the run of each row."
        ) from None
    return details
