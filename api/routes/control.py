"""`/v1/batches/{id}/pause` and its like: what `cragline batch pause` does, by the same code."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Body, Request

from api.access import BatchId, visible_batch
from api.schemas import Act, ActDone, NewShare
from api.security import Submitter
from api.state import state_of
from shared import control
from shared.control import Done, Share
from shared.keys import Principal

router = APIRouter(prefix="/v1/batches", tags=["control"])
Why = Annotated[Act | None, Body()]


@router.post("/{batch_id}/pause")
def pause_batch(request: Request, principal: Submitter, batch_id: BatchId, act: Why = None) -> ActDone:
    """Begin nothing new; what is under way ends its node. Pausing again changes nothing."""
    return _act(control.pause, request, principal, batch_id, act)


@router.post("/{batch_id}/resume")
def resume_batch(request: Request, principal: Submitter, batch_id: BatchId, act: Why = None) -> ActDone:
    """Go on with a paused batch."""
    done = _act(control.resume, request, principal, batch_id, act)
    state_of(request).wake_dispatcher()
    return done


@router.post("/{batch_id}/cancel")
def cancel_batch(request: Request, principal: Submitter, batch_id: BatchId, act: Why = None) -> ActDone:
    """End it for good: open questions become `cancelled`, answers stay."""
    return _act(control.cancel, request, principal, batch_id, act)


@router.post("/{batch_id}/priority")
def reprioritise_batch(request: Request, principal: Submitter, batch_id: BatchId, share: NewShare) -> ActDone:
    """Change how a batch shares the window with others."""
    engine = state_of(request).engine
    visible_batch(engine, principal, batch_id)
    wanted = Share(share.priority, share.weight, share.max_in_flight)
    actor = principal.owner
    return ActDone(**asdict(control.reprioritise(engine, batch_id, wanted, actor=actor, reason=share.reason)))


def _act(
    verb: Callable[..., Done], request: Request, principal: Principal, batch_id: int, act: Act | None
) -> ActDone:
    engine = state_of(request).engine
    visible_batch(engine, principal, batch_id)
    return ActDone(
        **asdict(verb(engine, batch_id, actor=principal.owner, reason=act.reason if act else None))
    )
