"""The Postgres side of "paid once": a call's result is stored before anything depends on it.

Calls of a provider that costs money are committed on their own, at once. Those of the local models cost
nothing to repeat, so they wait for the transaction that completes their node.
"""

import threading
from collections.abc import Callable
from typing import Any

from sqlalchemy import Engine, select
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

WEB_ROLE = "web_search"


class Ledger:
    """The CallRecorder of one claimed task. Thread-safe, though a node is usually one thread."""

    def __init__(self, engine: Engine, won: Won) -> None:
        self._engine = engine
        self._won = won
        self._lock = threading.Lock()
        self._buffered: list[dict[str, Any]] = []
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
        return perform_recorded(spec, perform, lambda record: self._keep(record, key))

    # -- what the runner asks afterwards ---------------------------------------------------------------
    def usage(self) -> Usage:
        return Usage(self._tokens_in, self._tokens_out, self._cost)

    def write_buffered(self, session: Session) -> None:
        """Local calls, in the transaction that completes their node."""
        if self._buffered:
            session.execute(insert(ModelCall).on_conflict_do_nothing(), self._buffered)

    # -- inside ----------------------------------------------------------------------------------------
    def _key(self) -> dict[str, int]:
        return {"run_id": self._won.run_id, "step": self._won.step, "branch": self._won.branch}

    def _stored(self, spec: CallSpec, key: str) -> tuple[Any] | None:
        """The response of an earlier attempt, in a tuple, because None is a response too."""
        table: Any = WebSearch if spec.role == WEB_ROLE else ModelCall
        column = WebSearch.results if spec.role == WEB_ROLE else ModelCall.response
        query = select(column).filter_by(**self._key()).where(table.request_hash == key)
        query = query.where(table.status == CallStatus.OK)
        if spec.role != WEB_ROLE:
            query = query.where(ModelCall.role == spec.role)
        with transaction(self._engine) as session:
            row = session.execute(query).one_or_none()
        return None if row is None else (row[0],)

    def _keep(self, record: CallRecord, key: str) -> None:
        spec = record.spec
        self._add(record)
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
            self._commit(WebSearch, row)
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
            self._commit(ModelCall, row)

    def _add(self, record: CallRecord) -> None:
        with self._lock:
            if record.input_tokens is not None:
                self._tokens_in = (self._tokens_in or 0) + record.input_tokens
            if record.output_tokens is not None:
                self._tokens_out = (self._tokens_out or 0) + record.output_tokens
            if record.cost_usd is not None:
                self._cost = (self._cost or 0.0) + record.cost_usd

    def _commit(self, table: Any, row: dict[str, Any]) -> None:
        with transaction(self._engine) as session:
            # A slow worker whose claim was taken over may have stored the same call a moment ago.
            session.execute(insert(table).on_conflict_do_nothing(), [row])


def describe(error: BaseException) -> str:
    """An error for the history: `code: message` of our own call errors, `Class: message` of others."""
    if isinstance(error, CallError):
        return clean_text(f"{error.code}: {error}")[:2000]
    if isinstance(error, SQLAlchemyError):  # its words hold the statement's values: questions, documents
        return f"database: {type(error).__name__}: {type(getattr(error, 'orig', None)).__name__}"
    return redact(clean_text(f"{type(error).__name__}: {error}"))[:2000]
