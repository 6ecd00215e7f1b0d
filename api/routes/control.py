"""`/v1/batches/{id}/pause` and its like: what `cragline batch pause` does, by the same code."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Body, Query, Request

from api.access import BatchId, fair, visible_batch
from api.cli.output import plain
from api.schemas import Act, ActDone, Again, Event, NewShare, Resumption
from api.security import Reader, Submitter
from api.state import state_of
from shared import control, history, rework
from shared.budget import Caps
from shared.control import Done, Share
from shared.keys import Principal

router = APIRouter(prefix="/v1/batches", tags=["control"])
Why = Annotated[Act | None, Body()]


@router.post("/{batch_id}/pause")
def pause_batch(request: Request, principal: Submitter, batch_id: BatchId, act: Why = None) -> ActDone:
    """Begin nothing new; what is under way ends its node. Pausing again changes nothing."""
    return _act(control.pause, request, principal, batch_id, act)


@router.post("/{batch_id}/resume")
def resume_batch(
    request: Request,
    principal: Submitter,
    batch_id: BatchId,
    act: Annotated[Resumption | None, Body()] = None,
) -> ActDone:
    """Go on with a paused batch, if wanted with another cap."""
    state, act = state_of(request), act or Resumption()
    visible_batch(state.engine, principal, batch_id)
    caps = Caps(act.max_cost_usd, act.max_tokens)
    done = control.resume(state.engine, batch_id, actor=principal.owner, reason=act.reason, caps=caps)
    state.wake_dispatcher()
    return ActDone(**asdict(done))


@router.post("/{batch_id}/retry")
def retry_batch(
    request: Request, principal: Submitter, batch_id: BatchId, again: Annotated[Again | None, Body()] = None
) -> ActDone:
    """Do ended runs again, by default those that failed. What they did before stays in the history."""
    state, again = state_of(request), again or Again()
    visible_batch(state.engine, principal, batch_id)
    done = rework.retry(
        state.engine,
        batch_id,
        rework.Chosen(tuple(again.dispositions), again.error_class, again.node, again.since),
        actor=principal.owner,
        reason=again.reason,
        from_failed_node=again.from_failed_node,
        dry_run=again.dry_run,
    )
    state.wake_dispatcher()
    return ActDone(**asdict(done))


@router.get("/{batch_id}/events")
def list_events(
    request: Request,
    principal: Reader,
    batch_id: BatchId,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 100,
    runs: Annotated[bool, Query(description="With a line for each retried run.")] = False,
) -> list[Event]:
    """What was done to a batch: when, by whom, and why. The newest, oldest first."""
    engine = state_of(request).engine
    visible_batch(engine, principal, batch_id)
    return [Event.model_validate(plain(row)) for row in history.events(engine, batch_id, limit, runs=runs)]


@router.post("/{batch_id}/cancel")
def cancel_batch(request: Request, principal: Submitter, batch_id: BatchId, act: Why = None) -> ActDone:
    """End it for good: open questions become `cancelled`, answers stay."""
    return _act(control.cancel, request, principal, batch_id, act)


@router.post("/{batch_id}/priority")
def reprioritise_batch(request: Request, principal: Submitter, batch_id: BatchId, share: NewShare) -> ActDone:
    """Change how a batch shares the window with others."""
    engine = state_of(request).engine
    visible_batch(engine, principal, batch_id)
    wanted = fair(principal, Share(share.priority, share.weight, share.max_in_flight))
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
