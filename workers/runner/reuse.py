"""Identical work is done once: what makes two pieces of work identical, and who does it while both wait.

A result that may be taken over carries a `reuse_key`, which holds the plan's scope in it: a batch that
says `batch` has keys of its own, and those that say `all` share theirs. So a lookup is one key in one index,
and what a batch does not offer cannot be found by another. The collection and the server are in the key,
too: what was asked about one collection is not found from another, however equal the words.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from shared.db import transaction
from shared.errors import Postponed
from shared.statuses import GradeLabel
from workers.models.roles import CallSpec
from workers.runner.claims import Won

# A grade is a verdict, and one is enough whatever the model's temperature; the web has none.
_ANY_TEMPERATURE = ("relevance_grader", "web_search")
# Roles that are asked again within a run to bring something else than before.
WRITERS = ("answer_generator", "query_rewriter", "feedback_writer", "apology_writer")
_WAIT = 0.5, 5.0  # seconds, the least and the most, until a postponed task looks again


@dataclass(frozen=True)
class Found:
    """A stored result, and what it cost. `id` is the row it is taken over from; None: this task's own."""

    response: Any
    cost_usd: float | None = None
    id: int | None = None
    attempt: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None


def key_of(won: Won, *identity: Any) -> str | None:
    """64 hex digits, equal for work with equal results that this batch may share; None: it shares nothing."""
    plan = won.plan
    if plan.reuse == "off":
        return None
    scope: Any = ["all", plan.reuse_owner] if plan.reuse == "all" else won.batch_id
    return digest(scope, plan.collection, plan.server, *identity)


def digest(*identity: Any) -> str:
    """64 hex digits of JSON values."""
    canonical = json.dumps(identity, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()


def call_key(won: Won, spec: CallSpec, request_hash: str) -> str | None:
    """The `reuse_key` of a call; None for one whose result is this task's alone."""
    if not spec.reusable or not (spec.deterministic or spec.role in _ANY_TEMPERATURE):
        return None
    return key_of(won, "call", request_hash)


def worth_sharing(response: Any) -> bool:
    """Whether others should get it: a verdict that could not be read is better asked for again."""
    if response is None:
        return False
    if not isinstance(response, dict):
        return True
    return response.get("label") != GradeLabel.UNPARSED and response.get("passed", True) is not None


@dataclass
class InTheAir:
    """The right to do a piece of work alone, until it lands."""

    key: str
    won: Won
    landed: bool = False

    def land(self, session: Session) -> None:
        """Best in the transaction that stores the result."""
        self.landed = True
        session.execute(_LAND, {"key": self.key, **_holder(self.won)})


@contextmanager
def once(
    engine: Engine, won: Won, key: str | None, look: Callable[[Session], Found | None]
) -> Iterator[tuple[Found | None, InTheAir | None]]:
    """What `look` finds, or None: then the block is to do the work, and nobody else does it meanwhile.

    Raises Postponed where somebody else is at it. No thread waits here, and nobody who has a flight waits
    for another, so there is no deadlock. When the block ends, however it ends, the next one may try.
    """
    with transaction(engine) as session:
        found = look(session)
    if found is not None or key is None:
        yield found, None
        return
    flight = InTheAir(key, won)
    with transaction(engine) as session:
        wait = _take_off(session, key, won)
        # The one who was at it before may have stored its result and landed since `look` looked.
        found = look(session) if wait is None else None
        if found is not None:
            flight.land(session)
    if wait is not None:
        raise Postponed(wait, "another task makes the same call")
    try:
        yield found, flight
    finally:
        if not flight.landed:
            with transaction(engine) as session:
                flight.land(session)


# A flight whose task is not running, or not within its lease, is nobody's.
_LIVE = """
EXISTS (SELECT FROM claims
         WHERE (claims.run_id, claims.step, claims.branch, claims.attempt)
             = (flights.run_id, flights.step, flights.branch, flights.attempt)
           AND claims.status = 'running' AND claims.lease_until > now())
"""
_TAKE_OFF = text(
    f"""
    INSERT INTO flights (key, run_id, step, branch, attempt, since)
    VALUES (:key, :run_id, :step, :branch, :attempt, clock_timestamp())
        ON CONFLICT (key) DO UPDATE
       SET (run_id, step, branch, attempt, since)
         = (excluded.run_id, excluded.step, excluded.branch, excluded.attempt, excluded.since)
     WHERE (flights.run_id, flights.step, flights.branch) = (:run_id, :step, :branch) OR NOT {_LIVE}
    RETURNING key
    """  # noqa: S608 - a constant of this module
)
_AGE = text("SELECT extract(epoch FROM clock_timestamp() - since) FROM flights WHERE key = :key")
_LAND = text(
    "DELETE FROM flights WHERE (key, run_id, step, branch, attempt) = (:key, :run_id, :step, :branch, :attempt)"
)


def _take_off(session: Session, key: str, won: Won) -> float | None:
    """None: it is ours. Else the seconds after which to look again, more the longer it has been in the air."""
    if session.execute(_TAKE_OFF, {"key": key, **_holder(won)}).one_or_none() is not None:
        return None
    age = session.scalar(_AGE, {"key": key})
    least, most = _WAIT
    return min(max(float(age or 0) / 2, least), most)


def _holder(won: Won) -> dict[str, int]:
    return {"run_id": won.run_id, "step": won.step, "branch": won.branch, "attempt": won.attempt}


_SWEEP = text(f"DELETE FROM flights WHERE since < now() - interval '10 minutes' AND NOT {_LIVE}")  # noqa: S608


def sweep(engine: Engine) -> None:
    """Forget the flights of lost tasks that nobody asked for again."""
    with transaction(engine) as session:
        session.execute(_SWEEP)
