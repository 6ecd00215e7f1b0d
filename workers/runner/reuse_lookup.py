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


def stored(session: Session, won: Won, spec: CallSpec, request_hash: str, key: str | None) -> Found | None:
    """The response of a model call, or the results of a web search. `key` None: only this task's own."""
    table, response, tokens = _columns(spec)
    columns = [response, table.cost_usd, table.attempt, *tokens]
    own = select(*columns, null().label("id"), literal(0).label("turn")).where(
        table.run_id == won.run_id,
        table.step == won.step,
        table.branch == won.branch,
        table.request_hash == request_hash,
        table.status == CallStatus.OK,
    )
    query: Any = own if table is WebSearch else own.where(ModelCall.role == spec.role)
    if key is not None:
        # the oldest: everybody takes the same one, should there be more than one
        theirs = select(*columns, table.id, literal(1)).where(_shared(won, spec, request_hash, key))
        query = union_all(query, theirs.order_by(table.id).limit(1)).order_by("turn").limit(1)
    row = session.execute(query).first()
    if row is None:
        return None
    response, cost, attempt, tokens_in, tokens_out, found_id, _ = row
    return Found(response, None if cost is None else float(cost), found_id, attempt, tokens_in, tokens_out)


def _columns(spec: CallSpec) -> tuple[Any, Any, list[Any]]:
    """The table, its column of responses, and its columns of tokens, sent and received."""
    if spec.role == WEB_ROLE:
        return WebSearch, WebSearch.results, [null().label("input_tokens"), null().label("output_tokens")]
    return ModelCall, ModelCall.response, [ModelCall.input_tokens, ModelCall.output_tokens]


def _shared(won: Won, spec: CallSpec, request_hash: str, key: str) -> Any:
    if spec.role == WEB_ROLE:
        oldest = func.now() - timedelta(hours=won.plan.reuse_web_hours)
        return and_(WebSearch.reuse_key == key, WebSearch.searched_at > oldest)
    oldest = func.now() - timedelta(days=won.plan.reuse_days)
    shared = and_(ModelCall.reuse_key == key, ModelCall.called_at > oldest)
    if spec.role not in WRITERS:
        return shared
    before = aliased(ModelCall)  # asked a second time in this run: to bring something else
    asked = exists().where(
        before.run_id == won.run_id,
        before.role == spec.role,
        before.request_hash == request_hash,
        before.status == CallStatus.OK,
    )
    return and_(shared, ~asked)
