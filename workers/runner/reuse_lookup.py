"""Where the stored result of a call is looked for: first this task's own, then anybody's that may be shared.

One query a call, by two indexes.
"""

from datetime import timedelta
from typing import Any

from sqlalchemy import and_, exists, func, literal, null, select, union_all
from sqlalchemy.orm import Session, aliased

from shared.statuses import CallStatus
from shared.tables import ModelCall, WebSearch
from workers.models.roles import CallSpec
from workers.runner.claims import Won
from workers.runner.reuse import WRITERS, Found

WEB_ROLE = "web_search"


def stored_call(
    session: Session, won: Won, spec: CallSpec, request_hash: str, key: str | None
) -> Found | None:
    """The response of a model call."""
    own = and_(_own(ModelCall, won, request_hash), ModelCall.role == spec.role)
    fresh = ModelCall.called_at > func.now() - timedelta(days=won.plan.reuse_days)
    shared = and_(ModelCall.reuse_key == key, fresh)
    if spec.role in WRITERS:  # asked a second time in this run: to bring something else
        before = aliased(ModelCall)
        asked = exists().where(
            before.run_id == won.run_id, before.request_hash == request_hash, before.status == CallStatus.OK
        )
        shared = and_(shared, ~asked)
    return _found(session, ModelCall, ModelCall.response, own, shared, key)


def stored_search(
    session: Session, won: Won, spec: CallSpec, request_hash: str, key: str | None
) -> Found | None:
    """The results of a web search."""
    fresh = WebSearch.searched_at > func.now() - timedelta(hours=won.plan.reuse_web_hours)
    shared = and_(WebSearch.reuse_key == key, fresh)
    return _found(session, WebSearch, WebSearch.results, _own(WebSearch, won, request_hash), shared, key)


def _own(table: Any, won: Won, request_hash: str) -> Any:
    return and_(
        table.run_id == won.run_id,
        table.step == won.step,
        table.branch == won.branch,
        table.request_hash == request_hash,
        table.status == CallStatus.OK,
    )


def _found(
    session: Session, table: Any, response: Any, own: Any, shared: Any, key: str | None
) -> Found | None:
    mine = select(
        response.label("response"), null().label("id"), null().label("cost"), literal(0).label("turn")
    )
    query: Any = mine.where(own)
    if key is not None:
        # the oldest: everybody takes the same one, however many were made before reuse was on
        theirs = select(response, table.id, table.cost_usd, literal(1)).where(shared)
        query = union_all(query, theirs.order_by(table.id).limit(1)).order_by("turn").limit(1)
    row = session.execute(query).first()
    return None if row is None else Found(row[0], row[1], None if row[2] is None else float(row[2]))
