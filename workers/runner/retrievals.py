"""Searches of a collection whose query embedding is paid: stored with what they brought, and found again.

Which version of the collection counts is looked at when the search is made, so that a batch sees what was
ingested between two of its runs. A result that was found in another version is never taken over.
"""

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from sqlalchemy import Engine, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from shared.clean import clean_json, clean_text
from shared.db import commit_patiently
from shared.tables import Retrieval
from workers.models.roles import Document, RetrievalSpec
from workers.runner import reuse
from workers.runner.claims import Won
from workers.runner.reuse import Found, InTheAir

# Another number when a search of the same documents begins to bring others.
SEARCH = 1

# The collection's version, and this task's own documents, or else anybody's that may be taken over.
_LOOK = text(
    """
    SELECT collections.version, found.documents, found.id, found.cost_usd
      FROM collections
      LEFT JOIN LATERAL (
           SELECT documents, NULL::bigint AS id, NULL::numeric AS cost_usd
             FROM retrievals
            WHERE (run_id, step, branch, request_hash) = (:run_id, :step, :branch, :hash)
              AND documents IS NOT NULL
            UNION ALL
           (SELECT documents, id, cost_usd
              FROM retrievals
             WHERE reuse_key = :key AND collection_version = collections.version
               AND retrieved_at > now() - make_interval(secs => 86400 * :days)
             ORDER BY id LIMIT 1)
            ORDER BY id NULLS FIRST LIMIT 1) AS found ON true
     WHERE collections.name = :collection
    """
)


class Retrievals:
    """The searches of one claimed task. `spent` says what its calls have cost so far, in USD."""

    def __init__(self, engine: Engine, won: Won, spent: Callable[[], float | None]) -> None:
        self._engine = engine
        self._won = won
        self._spent = spent
        self._version: int | None = None
        self._buffered: list[dict[str, Any]] = []

    def find(self, spec: RetrievalSpec, perform: Callable[[], list[Document]]) -> list[Document]:
        """What was found before in the collection as it is now, or what `perform` finds, stored."""
        key = reuse.key_of(self._won, "retrieval", SEARCH, asdict(spec))
        if key is None:
            return perform()
        row = self._row(spec, key)
        with reuse.once(self._engine, self._won, key, lambda session: self._look(session, row)) as (
            found,
            flight,
        ):
            if found is None:
                return self._performed(row, perform, flight)
        if found.id is not None:
            taken = {"reuse_key": None, "reused_from": found.id, "saved_usd": found.cost_usd}
            self._buffered.append(row | taken | {"collection_version": self._version, "duration_ms": 0})
        documents: list[Document] = found.response
        return documents

    def write_buffered(self, session: Session) -> None:
        """What was taken over, in the transaction that completes the node."""
        if self._buffered:
            session.execute(insert(Retrieval).on_conflict_do_nothing(), self._buffered)

    def _row(self, spec: RetrievalSpec, key: str) -> dict[str, Any]:
        return {
            "batch_id": self._won.batch_id,
            "run_id": self._won.run_id,
            "step": self._won.step,
            "branch": self._won.branch,
            "attempt": self._won.attempt,
            "collection": spec.collection,
            "query": clean_text(spec.query),
            "k": spec.k,
            "mode": spec.mode,
            "filters": clean_json(spec.filters),
            "request_hash": reuse.digest(asdict(spec)),
            "reuse_key": key,
        }

    def _look(self, session: Session, row: dict[str, Any]) -> Found | None:
        wanted = {name: row[name] for name in ("run_id", "step", "branch", "collection")}
        wanted |= {"hash": row["request_hash"], "key": row["reuse_key"], "days": self._won.plan.reuse_days}
        found = session.execute(_LOOK, wanted).one_or_none()
        self._version = None if found is None else found.version
        if found is None or found.documents is None:
            return None
        cost = None if found.cost_usd is None else float(found.cost_usd)
        return Found(found.documents, cost, found.id)

    def _performed(
        self, row: dict[str, Any], perform: Callable[[], list[Document]], flight: InTheAir | None
    ) -> list[Document]:
        version, before, started = self._version, self._spent(), time.perf_counter()
        documents = perform()
        after = self._spent()
        row |= {
            "collection_version": version,
            "documents": clean_json(documents),
            "cost_usd": None if after is None else after - (before or 0.0),
            "duration_ms": (time.perf_counter() - started) * 1000,
        }
        if version is not None:  # a collection that is not known has no versions to tell apart

            def store(session: Session, _again: bool) -> None:
                session.execute(insert(Retrieval).on_conflict_do_nothing(), [row])
                if flight is not None:
                    flight.land(session)

            commit_patiently(self._engine, store)
        return documents
