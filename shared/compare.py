"""Two batches side by side, and one batch under other settings. Both are functions of the schema `history`,
so that the command line, the API and a person's own SQL say the same."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import psycopg
from psycopg.types.json import Jsonb
from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError

from shared.db import transaction
from shared.errors import NotFound, UsageError
from shared.plan import checked_sets

KINDS = ("disposition", "answer", "sources", "grades", "documents", "cost")


@dataclass
class Difference:
    """Counts over the rows of a `batch_diff`, gathered while they pass by."""

    both: int = 0
    only_in_a: int = 0
    only_in_b: int = 0
    changed: Counter[str] = field(default_factory=Counter)  # by kind, among those asked by both
    moves: Counter[tuple[str, str]] = field(
        default_factory=Counter
    )  # (disposition in A, in B) where they differ
    cost_a: Decimal = Decimal(0)
    cost_b: Decimal = Decimal(0)

    def see(self, row: dict[str, Any]) -> None:
        self.cost_a += row["cost_a"] or 0
        self.cost_b += row["cost_b"] or 0
        if row["run_a"] is None:
            self.only_in_b += 1
        elif row["run_b"] is None:
            self.only_in_a += 1
        else:
            self.both += 1
            self.changed.update(row["changed"])
            if "disposition" in row["changed"]:
                self.moves[row["disposition_a"], row["disposition_b"]] += 1

    def counts(self) -> dict[str, Any]:
        """All of it as a JSON value."""
        return {
            "in_both": self.both,
            "only_in_a": self.only_in_a,
            "only_in_b": self.only_in_b,
            **{f"{kind}_changed": self.changed[kind] for kind in KINDS},
            "moves": {f"{before} -> {after}": count for (before, after), count in self.moves.most_common()},
            "cost_a": self.cost_a,
            "cost_b": self.cost_b,
        }


def batch_diff(engine: Engine, a: int, b: int) -> Iterator[dict[str, Any]]:
    """The rows of `history.batch_diff`, streamed, in the order of A's file. Raises NotFound."""
    with engine.connect().execution_options(stream_results=True, max_row_buffer=1000) as connection:
        for batch_id in (a, b):
            if connection.scalar(text("SELECT 1 FROM batches WHERE id = :id"), {"id": batch_id}) is None:
                raise NotFound(f"There is no batch {batch_id}. `cragline batch list` shows those there are.")
        for row in connection.execute(text("SELECT * FROM history.batch_diff(:a, :b)"), {"a": a, "b": b}):
            yield dict(row._mapping)


def what_if(engine: Engine, batch_id: int, sets: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of `history.what_if`: one for each run of the batch that came to a decision.

    `sets` are settings as `--set` gives them. Raises NotFound, and UsageError for a setting that is wrong or
    that stored grades cannot tell about.
    """
    with transaction(engine) as session:
        pipeline = session.scalar(text("SELECT pipeline FROM batches WHERE id = :id"), {"id": batch_id})
        if pipeline is None:
            raise NotFound(f"There is no batch {batch_id}. `cragline batch list` shows those there are.")
        settings = Jsonb(checked_sets(pipeline, sets))
        try:
            found = session.execute(
                text("SELECT * FROM history.what_if(:id, :settings)"), {"id": batch_id, "settings": settings}
            )
            return [dict(row._mapping) for row in found]
        except DBAPIError as error:
            if isinstance(error.orig, psycopg.errors.InvalidParameterValue):
                said = error.orig.diag
                hint = f" {said.message_hint}." if said.message_hint else ""
                raise UsageError(f"{said.message_primary}.{hint}") from None
            raise


def node_costs(engine: Engine, batch_id: int) -> list[dict[str, Any]]:
    """What each node of the batch cost: the measurements that the estimates of `what_if` rest on."""
    query = text("SELECT * FROM history.node_costs(:id) ORDER BY cost_usd DESC NULLS LAST, node")
    with transaction(engine) as session:
        return [dict(row._mapping) for row in session.execute(query, {"id": batch_id})]


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What the rows of a `what_if` come to, as a JSON value."""
    other = [row for row in rows if row["other_way"]]
    priced = [row["cost_change_usd"] for row in other if row["cost_change_usd"] is not None]
    return {
        "runs": len(rows),
        "other_way": len(other),
        "other_knowledge_only": sum(row["other_knowledge"] and not row["other_way"] for row in rows),
        "ways": [
            {"before": before, "now": now, "runs": count}
            for (before, now), count in Counter(
                (row["way_before"], row["way_now"]) for row in other
            ).most_common()
        ],
        "cost_change_usd": sum(priced, Decimal(0)) if priced or not other else None,
        "runs_without_estimate": len(other) - len(priced),
        "not_known": dict(Counter(words for row in rows for words in row["not_known"]).most_common()),
    }
