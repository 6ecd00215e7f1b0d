"""The Postgres side of "paid once": a call's result is stored before anything depends on it.

Calls of a provider that costs money are committed on their own, at once. Those of the local models cost
nothing to repeat, and neither does taking over a stored result, so these rows wait for the transaction
that completes their node.
"""

import threading
from collections.abc import Callable
from typing import Any

from sqlalchemy import ColumnElement, Engine, exists, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from shared.clean import clean_json, clean_text
from shared.db import commit_patiently
from shared.errors import CallError
from shared.logs import redact
from shared.statuses import CallStatus
from shared.tables import ModelCall, WebSearch
from workers.models.calls import CallRecord, perform_recorded, request_hash
from workers.models.roles import CallResult, CallSpec, Document, RetrievalSpec
from workers.runner import reuse
from workers.runner.claims import Usage, Won
from workers.runner.limits.gate import Gate, Held
from workers.runner.retrievals import Retrievals
from workers.runner.reuse import Found, InTheAir
from workers.runner.reuse_lookup import WEB_ROLE, stored

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
        self._buffered: dict[Any, list[dict[str, Any]]] = {}  # by table
        self._counted: set[str] = set()  # request hashes of the calls that `usage` knows of
        self._tokens_in: int | None = None
        self._tokens_out: int | None = None
        self._cost: float | None = None
        self._retrievals = Retrievals(engine, won, spent=lambda: self._cost)

    # -- CallRecorder ----------------------------------------------------------------------------------
    def call(self, spec: CallSpec, perform: Callable[[], CallResult]) -> Any:
        key = request_hash(spec)
        if spec.provider == "local" or not spec.reusable:
            return self._perform(spec, perform, key)
        shared = reuse.call_key(self._won, spec, key)
        with reuse.once(
            self._engine, self._won, shared, lambda session: stored(session, self._won, spec, key, shared)
        ) as (found, flight):
            if found is None:
                return self._perform(spec, perform, key, flight)
        self._take_over(spec, key, found)
        return found.response

    def retrieval(self, spec: RetrievalSpec, perform: Callable[[], list[Document]]) -> list[Document]:
        if not spec.embedding_model or spec.embedding_model.startswith("local/"):
            return perform()  # nothing is paid, and looking it up would take as long
        return self._retrievals.find(spec, perform)

    # -- what the runner asks afterwards ---------------------------------------------------------------
    def usage(self) -> Usage:
        return Usage(self._tokens_in, self._tokens_out, self._cost)

    def write_buffered(self, session: Session) -> None:
        """What cost nothing, in the transaction that completes its node."""
        for table, rows in self._buffered.items():
            session.execute(insert(table).on_conflict_do_nothing(), rows)
        self._retrievals.write_buffered(session)

    # -- inside ----------------------------------------------------------------------------------------
    def _perform(
        self, spec: CallSpec, perform: Callable[[], CallResult], key: str, flight: InTheAir | None = None
    ) -> Any:
        """The response of a call that is made now, through the gate where it is paid."""
        prices = self._won.plan.prices

        def keep(record: CallRecord, held: Held | None = None) -> None:
            self._keep(record, key, held, flight)

        if spec.provider == "local" or self._gate is None:
            return perform_recorded(spec, perform, keep, prices)
        with self._gate.hold(spec, self._won, WAITING - self._waited) as held:
            self._waited += held.waited
            return perform_recorded(spec, perform, lambda record: keep(record, held), prices)

    def _keep(self, record: CallRecord, key: str, held: Held | None, flight: InTheAir | None) -> None:
        self._counted.add(key)
        self._add(record.input_tokens, record.output_tokens, record.cost_usd)
        table, row = self._row(record.spec, key, record.response)
        row |= {
            "status": CallStatus.OK if record.ok else CallStatus.ERROR,
            "error_class": record.error_class,
            "error": None if record.error is None else clean_text(record.error),
            "cost_usd": record.cost_usd,
            "duration_ms": record.duration_ms,
            "reuse_key": flight.key
            if flight and record.ok and reuse.worth_sharing(record.response)
            else None,
        }
        if table is ModelCall:
            row |= {"input_tokens": record.input_tokens, "output_tokens": record.output_tokens}
        if record.spec.provider == "local":
            self._buffer(table, row)
        else:
            self._commit(table, row, record, held, flight)

    def _take_over(self, spec: CallSpec, key: str, found: Found) -> None:
        if found.id is None:
            # put back after the call, this attempt has no record yet
            if found.attempt == self._won.attempt and key not in self._counted:
                self._counted.add(key)
                self._add(found.input_tokens, found.output_tokens, found.cost_usd)
            return
        table, row = self._row(spec, key, found.response)
        row |= {"status": CallStatus.OK, "cost_usd": 0, "duration_ms": 0}
        self._buffer(table, row | {"reused_from": found.id, "saved_usd": found.cost_usd})

    def _row(self, spec: CallSpec, key: str, response: Any) -> tuple[Any, dict[str, Any]]:
        """The table of a call, and what is known of it before it is made, with its response."""
        row: dict[str, Any] = {
            "run_id": self._won.run_id,
            "step": self._won.step,
            "branch": self._won.branch,
            "batch_id": self._won.batch_id,
            "attempt": self._won.attempt,
            "provider": spec.provider,
            "request_hash": key,
        }
        if spec.role == WEB_ROLE:
            query = clean_text(str(spec.request.get("query", "")))
            return WebSearch, row | {"query": query, "results": clean_json(response)}
        row |= {"node": self._won.node, "role": spec.role, "model": spec.model}
        return ModelCall, row | {"prompt_version": spec.prompt_version, "response": clean_json(response)}

    def _buffer(self, table: Any, row: dict[str, Any]) -> None:
        with self._lock:
            self._buffered.setdefault(table, []).append(row)

    def _add(self, tokens_in: int | None, tokens_out: int | None, cost: float | None) -> None:
        with self._lock:
            if tokens_in is not None:
                self._tokens_in = (self._tokens_in or 0) + tokens_in
            if tokens_out is not None:
                self._tokens_out = (self._tokens_out or 0) + tokens_out
            if cost is not None:
                self._cost = (self._cost or 0.0) + cost

    def _commit(
        self, table: Any, row: dict[str, Any], record: CallRecord, held: Held | None, flight: InTheAir | None
    ) -> None:
        def store(session: Session, again: bool) -> None:
            if again and session.scalar(select(_is_there(table, row))):
                return
            # A slow worker whose claim was taken over may have stored the same call a moment ago.
            session.execute(insert(table).on_conflict_do_nothing(), [row])
            if held is not None:
                held.settle(session, record)
            if flight is not None:
                flight.land(session)

        # It is paid: as long as it is only in this thread, the thread's most useful work is to wait.
        commit_patiently(self._engine, store)


def _is_there(table: Any, row: dict[str, Any]) -> ColumnElement[bool]:
    """Whether just this record of a call is stored; its duration tells it from others of the same attempt."""
    names = ("run_id", "step", "branch", "attempt", "request_hash", "status", "duration_ms")
    return exists().where(*(getattr(table, name) == row[name] for name in names))


def describe(error: BaseException) -> str:
    """An error for the history: `code: message` of our own call errors, `Class: message` of others."""
    if isinstance(error, CallError):
        return clean_text(f"{error.code}: {error}")[:2000]
    if isinstance(error, SQLAlchemyError):  # its words hold the statement's values: questions, documents
        return f"database: {type(error).__name__}: {type(getattr(error, 'orig', None)).__name__}"
    return redact(clean_text(f"{type(error).__name__}: {error}"))[:2000]
