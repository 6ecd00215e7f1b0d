"""Whole runs taken over across batches: the same question, plan and version of the collection.

Only between batches that both say `all`, and when a run is admitted: it ends at once with the disposition,
answer and sources of a run that came to them itself. Its one transition says from which.
"""

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from sqlalchemy import case, null, select, text
from sqlalchemy.orm import Session

from shared.clean import question_key
from shared.plan import Plan
from shared.tables import Batch, Collection, Run
from workers.runner import reuse

NODE = "reuse"  # the node of the one transition of a run that was taken over
# What a plan says of how a run is paid for and tried, not of what it comes to.
_NOT_DECIDING = {"reuse", "reuse_days", "reuse_web_hours", "max_attempts", "prices"}
# Notes of a run that came to its end by a fault, which the next one may not meet.
_FAULTS = ("_failed", "_unparsed", "_unusable")  # how their labels end


def run_key(plan: Plan, collection_version: int, question: str) -> str:
    """Equal for runs that would come to the same: question, plan, collection and this version of Cragline."""
    deciding = plan.model_dump(exclude=_NOT_DECIDING)
    return reuse.digest("run", version("cragline"), deciding, collection_version, question_key(question))


def key_at_the_end(state: dict[str, Any]) -> Any:
    """The `reuse_key` of a run that ends now, as SQL: its own, unless it is not to be taken over.

    A run during which the collection changed has seen no one version of it.
    """
    if any(note.partition(":")[0].endswith(_FAULTS) for note in state.get("notes", [])):
        return null()
    now = (
        select(Collection.version)
        .join(Batch, Batch.collection == Collection.name)
        .where(Batch.id == Run.batch_id)
        .correlate(Run)
        .scalar_subquery()
    )
    return case((Run.collection_version == now, Run.reuse_key))


def take_over(session: Session, runs: Sequence[Any], plans: dict[int, Plan]) -> set[int]:
    """End those of the pending `runs` that need not be made: their ids. `runs` are locked, and rows of id,
    batch_id, question, round and inherited.

    The others get the version of their collection and their key. A run that is tried again is tried, and
    neither it nor a fork is taken over by others: its course is not that of its plan alone.
    """
    ended: set[int] = set()
    for batch_id, plan in plans.items():
        now = session.scalar(select(Collection.version).where(Collection.name == plan.collection))
        if now is None:
            continue
        mine = [run for run in runs if run.batch_id == batch_id]
        shared = plan.reuse == "all"
        keys = [
            run_key(plan, now, run.question) if shared and run.round == 1 and not run.inherited else None
            for run in mine
        ]
        values = {"runs": [run.id for run in mine], "keys": keys, "version": now}
        if shared:
            ended |= set(session.scalars(_TAKE_OVER, values | {"age": _oldest(plan), "node": NODE}))
        session.execute(_REMEMBER, values)
    return ended


def _oldest(plan: Plan) -> float:
    """Seconds. A run that may ask the web is as old as what the web said."""
    days = plan.reuse_days
    if plan.params.get("web_search") == "on":
        days = min(days, plan.reuse_web_hours / 24)
    return days * 86400


_REMEMBER = text(
    """
    UPDATE runs SET collection_version = :version, reuse_key = mine.key, reused_from = NULL, saved_usd = NULL
      FROM unnest(CAST(:runs AS bigint[]), CAST(:keys AS text[])) AS mine (id, key)
     WHERE runs.id = mine.id AND runs.status = 'pending'
    """
)
# What a run cost is what its calls cost, and what they would have cost if they had not been taken over.
_TAKE_OVER = text(
    """
    WITH taken AS (
        UPDATE runs
           SET status = original.status, step = 1, answer = original.answer, reason = original.reason,
               sources = original.sources, web_used = original.web_used, notes = original.notes,
               reused_from = original.id, collection_version = :version,
               admitted_at = clock_timestamp(), ended_at = clock_timestamp(),
               saved_usd = (
                   SELECT sum(coalesce(spent.cost_usd, 0) + coalesce(spent.saved_usd, 0))
                     FROM (SELECT cost_usd, saved_usd FROM model_calls WHERE run_id = original.id
                            UNION ALL
                           SELECT cost_usd, saved_usd FROM web_searches WHERE run_id = original.id
                            UNION ALL
                           SELECT NULL, saved_usd FROM retrievals WHERE run_id = original.id) AS spent)
          FROM unnest(CAST(:runs AS bigint[]), CAST(:keys AS text[])) AS mine (id, key)
         CROSS JOIN LATERAL (
               SELECT * FROM runs AS ended
                WHERE ended.reuse_key = mine.key AND ended.status IN ('answered', 'gave_up')
                  AND ended.ended_at > now() - make_interval(secs => :age)
                ORDER BY ended.ended_at DESC LIMIT 1) AS original
         -- who forks a run wants it made
         WHERE runs.id = mine.id AND runs.status = 'pending' AND runs.forked_from IS NULL
        RETURNING runs.id, runs.batch_id, runs.status, runs.admitted_at, runs.ended_at,
                  original.id AS from_run, original.batch_id AS from_batch)
    INSERT INTO transitions (month, run_id, batch_id, step, branch, attempt, node, status, came_from, goes_to,
                             state_update, started_at, ended_at, duration_ms)
    SELECT batches.month, taken.id, taken.batch_id, 1, 0, 1, :node, 'succeeded', '{__start__}', '{__end__}',
           jsonb_build_object(
               'reused_from', jsonb_build_object('run', taken.from_run, 'batch', taken.from_batch),
               'disposition', taken.status),
           taken.admitted_at, taken.ended_at, 0
      FROM taken JOIN batches ON batches.id = taken.batch_id
    RETURNING run_id
    """
)
