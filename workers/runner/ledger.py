"""The Postgres side of "paid once": a call's result is stored before anything depends on it.

Calls of a provider that costs money are committed on their own, at once. Those of the local models cost
nothing to repeat, so they wait for the transaction that completes their node.
"""

import threading
from collections.abc import Callable
from typing import Any

from sqlalchemy import Engine, null, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from shared.clean import clean_json, clean_text
from shared.db import transaction
from shared.errors import CallError
from shared.logs import redact
from shared.statuses import CallStatus
from shared.tables import ModelCall, WebSearch
from workers.models.calls import CallRecord, perform_recorded, request_hash
from workers.models.roles import CallResult, CallSpec
from workers.runner.claims import Usage, Won
from workers.runner.limits.gate import Gate, Held

WEB_ROLE = "web_search"
# Seconds that all calls of one task may wait in its thread: its claim is kept alive for so long only. What
# was paid before it is put back is stored, so nothing is lost by that.
WAITING = 20.0


class Ledger:
    """The CallRecorder of one claimed task. Thread-safe, though a node is usually one thread."""

    def __init__(self, engine: Engine, won: Won, gate: Gate | None = None) -> None:
        self._engine = engine
        self._won = won
        self._gate = gate
        self._lock = threading.Lock()
        self._waited = 0.0
        self._buffered: list[dict[str, Any]] = []
        self._counted: set[tuple[str, str]] = set()  # calls that are in the sums below
        self._tokens_in: int | None = None
        self._tokens_out: int | None = None
        self._cost: float | None = None

    # -- CallRecorder ----------------------------------------------------------------------------------
    def call(self, spec: CallSpec, perform: Callable[[], CallResult]) -> Any:
        paid = spec.provider != "local"
        key = request_hash(spec)
        if paid and spec.reusable:
            stored = self._stored(spec, key)
            if stored is not None:
                return stored[0]
        if not paid or self._gate is None:
            return self._perform(spec, perform, key, None)
        with self._gate.hold(spec, self._won, WAITING - self._waited) as held:
            self._waited += held.waited
            return self._perform(spec, perform, key, held)

    # -- what the runner asks afterwards ---------------------------------------------------------------
    def usage(self) -> Usage:
        return Usage(self._tokens_in, self._tokens_out, self._cost)

    def write_buffered(self, session: Session) -> None:
        """Local calls, in the transaction that completes their node."""
        if self._buffered:
            session.execute(insert(ModelCall).on_conflict_do_nothing(), self._buffered)

    # -- inside ----------------------------------------------------------------------------------------
    def _perform(self, spec: CallSpec, perform: Callable[[], CallResult], key: str, held: Held | None) -> Any:
        prices = self._won.plan.prices
        return perform_recorded(spec, perform, lambda record: self._keep(record, key, held), prices)

    def _key(self) -> dict[str, int]:
        return {"run_id": self._won.run_id, "step": self._won.step, "branch": self._won.branch}

    def _stored(self, spec: CallSpec, key: str) -> tuple[Any] | None:
        """The response of an earlier attempt, in a tuple, because None is a response too."""
        table: Any = WebSearch if spec.role == WEB_ROLE else ModelCall
        column = WebSearch.results if spec.role == WEB_ROLE else ModelCall.response
        query = select(column, table.attempt, table.cost_usd, *_tokens(table)).filter_by(**self._key())
        query = query.where(table.request_hash == key)
        query = query.where(table.status == CallStatus.OK)
        if spec.role != WEB_ROLE:
            query = query.where(ModelCall.role == spec.role)
        with transaction(self._engine) as session:
            row = session.execute(query).one_or_none()
        if row is None:
            return None
        # this attempt was put back after the call, and what it cost then is in no transition yet
        if row[1] == self._won.attempt and (spec.role, key) not in self._counted:
            self._counted.add((spec.role, key))
            self._add(row[3], row[4], None if row[2] is None else float(row[2]))
        return (row[0],)

    def _keep(self, record: CallRecord, key: str, held: Held | None) -> None:
        spec = record.spec
        self._counted.add((spec.role, key))
        self._add(record.input_tokens, record.output_tokens, record.cost_usd)
        row: dict[str, Any] = {
            **self._key(),
            "batch_id": self._won.batch_id,
            "attempt": self._won.attempt,
            "provider": spec.provider,
            "request_hash": key,
            "status": CallStatus.OK if record.ok else CallStatus.ERROR,
            "error_class": record.error_class,
            "error": None if record.error is None else clean_text(record.error),
            "cost_usd": record.cost_usd,
            "duration_ms": record.duration_ms,
        }
        if spec.role == WEB_ROLE:
            row |= {
                "query": clean_text(str(spec.request.get("query", ""))),
                "results": clean_json(record.response),
            }
            self._commit(WebSearch, row, record, held)
            return
        row |= {
            "node": self._won.node,
            "role": spec.role,
            "model": spec.model,
            "prompt_version": spec.prompt_version,
            "response": clean_json(record.response),
            "input_tokens": record.input_tokens,
            "output_tokens": record.output_tokens,
        }
        if spec.provider == "local":
            with self._lock:
                self._buffered.append(row)
        else:
            self._commit(ModelCall, row, record, held)

    def _add(self, tokens_in: int | None, tokens_out: int | None, cost: float | None) -> None:
        with self._lock:
            if tokens_in is not None:
                self._tokens_in = (self._tokens_in or 0) + tokens_in
            if tokens_out is not None:
                self._tokens_out = (self._tokens_out or 0) + tokens_out
            if cost is not None:
                self._cost = (self._cost or 0.0) + cost

    def _commit(self, table: Any, row: dict[str, Any], record: CallRecord, held: Held | None) -> None:
        with transaction(self._engine) as session:
            # A slow worker whose claim was taken over may have stored the same call a moment ago.
            session.execute(insert(table).on_conflict_do_nothing(), [row])
            if held is not None:
                held.settle(session, record)


def _tokens(table: Any) -> list[Any]:
    if table is WebSearch:
        return [null(), null()]
    return [table.input_tokens, table.output_tokens]


def describe(error: BaseException) -> str:
    """An error for the history: `code: message` of our own call errors, `Class: message` of others."""
    if isinstance(error, CallError):
        return clean_text(f"{error.code}: {error}")[:2000]
    if isinstance(error, SQLAlchemyError):  # its words hold the statement's values: questions, documents
        return f"database: {type(error).__name__}: {type(getattr(error, 'orig', None)).__name__}"
    return redact(clean_text(f"{type(error).__name__}: {error}"))[:2000]
