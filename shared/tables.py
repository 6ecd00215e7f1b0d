"""The tables, as SQLAlchemy sees them. `docs/history.md` explains them to people who ask in SQL.

`transitions` is partitioned by `month`: the month in which its run's batch was submitted, the same for
all rows of a run, so that the primary key can hold (run, step, branch, attempt) unique and retention
drops whole batches at a time.
"""

from datetime import date, datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ForeignKey,
    Index,
    Integer,
    Numeric,
    PrimaryKeyConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import JSON, JSONB
from sqlalchemy.orm import Mapped, mapped_column

from shared import api_tables as api_tables
from shared.budget_tables import Budget as Budget
from shared.budget_tables import Reservation as Reservation
from shared.knowledge_tables import Collection as Collection
from shared.knowledge_tables import CollectionAlias as CollectionAlias
from shared.knowledge_tables import IngestedDocument as IngestedDocument
from shared.knowledge_tables import IngestFile as IngestFile
from shared.reuse_tables import Flight as Flight
from shared.reuse_tables import Retrieval as Retrieval
from shared.statuses import (
    BatchStatus,
    CallStatus,
    ClaimStatus,
    EventAction,
    GradeLabel,
    RunStatus,
    TransitionStatus,
)
from shared.table_base import Base as Base
from shared.table_base import id_column, now_column
from shared.table_base import one_of as one_of


class Batch(Base):
    __tablename__ = "batches"
    __table_args__ = (
        one_of("status", BatchStatus),
        CheckConstraint("(status IN ('open', 'paused')) = (ended_at IS NULL)", name="ended_at_when_ended"),
        CheckConstraint("status <> 'paused' OR pause_reason IS NOT NULL", name="paused_has_reason"),
        CheckConstraint("weight BETWEEN 0.01 AND 100", name="weight"),
        CheckConstraint("max_in_flight > 0", name="max_in_flight"),
        CheckConstraint("max_cost_usd > 0", name="max_cost_usd"),
        CheckConstraint("max_tokens > 0", name="max_tokens"),
        Index(None, "status", postgresql_where=text("status IN ('open', 'paused')")),
        Index("ix_batches_owner", "owner", "id"),
        Index("ix_batches_callback", "id", postgresql_where=text("callback_url IS NOT NULL")),
    )
    id: Mapped[int] = id_column()
    name: Mapped[str]
    status: Mapped[str] = mapped_column(server_default=BatchStatus.OPEN)
    pipeline: Mapped[str]
    collection: Mapped[str]
    plan: Mapped[dict[str, Any]]  # shared.plan.Plan, frozen at submit; the prompts at first admission
    source: Mapped[dict[str, Any]]  # where the questions came from: file, format, encoding, columns, notes
    row_count: Mapped[int]  # rows of the file, empty ones included
    run_count: Mapped[int]  # distinct questions
    month: Mapped[date]  # first day of the month of submission; the partition of its transitions
    max_cost_usd: Mapped[float | None] = mapped_column(Numeric(14, 8, asdecimal=False))  # NULL: no cap
    max_tokens: Mapped[int | None]  # read and written; NULL: no cap
    submitted_at: Mapped[datetime] = now_column()
    ended_at: Mapped[datetime | None]
    submitted_by: Mapped[str | None]  # a person's or program's name for itself
    pause_reason: Mapped[str | None]  # why it is paused, or was last
    priority: Mapped[int] = mapped_column(Integer, server_default="0")  # the higher is admitted first
    # of batches with the same priority: the share of the window, 2 gets twice what 1 gets
    weight: Mapped[float] = mapped_column(Numeric(6, 2, asdecimal=False), server_default="1")
    max_in_flight: Mapped[int | None] = mapped_column(Integer)  # runs of it at once; NULL: the window's
    owner: Mapped[str | None]  # of the API key it was submitted with; NULL: the command line
    callback_url: Mapped[str | None]  # told when the batch has ended


class BatchRow(Base):
    """One row of the submitted file, in input order. Rows that ask the same question share a run."""

    __tablename__ = "batch_rows"
    __table_args__ = (
        PrimaryKeyConstraint("batch_id", "row_number"),
        CheckConstraint("row_number > 0", name="row_number"),
        Index(None, "run_id"),
    )
    batch_id: Mapped[int] = mapped_column(ForeignKey("batches.id", ondelete="CASCADE"))
    row_number: Mapped[int] = mapped_column(Integer)  # 1-based position among the data rows
    run_id: Mapped[int | None] = mapped_column(BigInteger)  # NULL: the question cell was empty
    original: Mapped[Any] = mapped_column(JSON)  # cells as a list (CSV) or the object (JSONL), order kept
    notes: Mapped[list[str]] = mapped_column(server_default="{}")  # what was mended on the way in


class Run(Base):
    __tablename__ = "runs"
    __table_args__ = (
        one_of("status", RunStatus),
        CheckConstraint(
            "(status IN ('answered', 'gave_up', 'failed', 'cancelled')) = (ended_at IS NOT NULL)",
            name="ended_at_when_ended",
        ),
        CheckConstraint(
            "status <> 'pending' OR round > 1 OR step = first_step - 1", name="pending_has_no_step"
        ),
        CheckConstraint("round > 0 AND first_step > 0 AND step >= first_step - 1", name="round_and_steps"),
        CheckConstraint("status <> 'answered' OR answer IS NOT NULL", name="answered_has_answer"),
        CheckConstraint("status <> 'gave_up' OR reason IS NOT NULL", name="gave_up_has_reason"),
        CheckConstraint("status <> 'failed' OR error IS NOT NULL", name="failed_has_error"),
        Index("ix_runs_batch_id_status", "batch_id", "status"),
        Index("ix_runs_batch_id_first_row", "batch_id", "first_row"),
        Index("ix_runs_pending", "batch_id", "first_row", postgresql_where=text("status = 'pending'")),
        Index("ix_runs_running", "id", postgresql_where=text("status = 'running'")),
        Index("ix_runs_reuse_key", "reuse_key", postgresql_where=text("reuse_key IS NOT NULL")),
        Index(None, "forked_from", postgresql_where=text("forked_from IS NOT NULL")),
    )
    id: Mapped[int] = mapped_column(BigInteger, primary_key=True)  # from the sequence runs_id_seq, in blocks
    batch_id: Mapped[int] = mapped_column(ForeignKey("batches.id", ondelete="CASCADE"))
    first_row: Mapped[int] = mapped_column(Integer)  # the first row that asks this question
    question: Mapped[str]
    status: Mapped[str] = mapped_column(server_default=RunStatus.PENDING)
    step: Mapped[int] = mapped_column(Integer, server_default="0")  # current superstep; 0 before the first
    answer: Mapped[str | None]
    reason: Mapped[str | None]  # why it gave up, or by whom it was cancelled
    error: Mapped[str | None]  # what failed: `node: code: message`
    sources: Mapped[list[Any] | None]  # [{title, source, page, origin}], in the order they are cited
    web_used: Mapped[bool | None]
    notes: Mapped[list[str]] = mapped_column(server_default="{}")  # labelled degradations
    collection_version: Mapped[int | None]  # of the collection, when the run was admitted
    reuse_key: Mapped[str | None]  # equal for runs that would come to the same; NULL: not to be taken over
    reused_from: Mapped[int | None]  # the run that this one's answer was taken over from
    saved_usd: Mapped[float | None] = mapped_column(Numeric(14, 8, asdecimal=False))  # what that run cost
    admitted_at: Mapped[datetime | None]  # for the first time
    ended_at: Mapped[datetime | None]
    round: Mapped[int] = mapped_column(Integer, server_default="1")  # one more for each retry
    # The step its present course began with; a pending run whose `step` is not below it enters that step again.
    first_step: Mapped[int] = mapped_column(Integer, server_default="1")
    forked_from: Mapped[int | None]  # the run whose course it goes on from
    inherited: Mapped[list[Any] | None]  # of a fork: [{run_id, month, first, before}], the steps it builds on


class Claim(Base):
    """The compare-and-set target: one row per unfinished (run, step, branch).

    A worker may run a node only after moving its row from ready to running. Rows go away when the step
    is joined, so this table stays as small as the window.
    """

    __tablename__ = "claims"
    __table_args__ = (
        PrimaryKeyConstraint("run_id", "step", "branch"),
        one_of("status", ClaimStatus),
        CheckConstraint("(status = 'running') = (lease_until IS NOT NULL)", name="lease_when_running"),
        Index("ix_claims_wake_at", "wake_at", postgresql_where=text("status <> 'running'")),
        Index("ix_claims_lease_until", "lease_until", postgresql_where=text("status = 'running'")),
        # updated several times in its short life: leave room on the page for HOT updates
        {"postgresql_with": {"fillfactor": "50"}},
    )
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"))
    step: Mapped[int] = mapped_column(Integer)
    branch: Mapped[int] = mapped_column(Integer)
    width: Mapped[int] = mapped_column(Integer)  # branches of this step; 1 = no fan-out
    node: Mapped[str]
    status: Mapped[str] = mapped_column(server_default=ClaimStatus.READY)
    argument: Mapped[dict[str, Any] | None]  # the Send's payload; NULL: the node sees the whole state
    came_from: Mapped[list[str]]  # nodes of the step before
    attempt: Mapped[int] = mapped_column(Integer, server_default="0")  # tries begun so far
    earlier: Mapped[int] = mapped_column(Integer, server_default="0")  # those of them in earlier rounds
    lost: Mapped[int] = mapped_column(Integer, server_default="0")  # tries whose worker was lost
    # tries that do not count towards the cap: the provider was failing, or refusing everybody
    forgiven: Mapped[int] = mapped_column(Integer, server_default="0")
    failing_since: Mapped[datetime | None]  # when it was first found to be
    publishes: Mapped[int] = mapped_column(Integer, server_default="0")
    not_before: Mapped[datetime | None]  # a retry's pause: no claim before then
    wake_at: Mapped[datetime] = now_column()  # when the reconciler looks at it (ready: publish; done: join)
    worker: Mapped[str | None]
    task_id: Mapped[str | None]
    started_at: Mapped[datetime | None]
    lease_until: Mapped[datetime | None]
    goes_to: Mapped[list[Any] | None]  # set when done: [{node, argument?}], what this branch leads to


class Transition(Base):
    """The append-only record of one attempt of one node. A trigger refuses UPDATE and DELETE."""

    __tablename__ = "transitions"
    __table_args__ = (
        PrimaryKeyConstraint("month", "run_id", "step", "branch", "attempt"),
        one_of("status", TransitionStatus),
        CheckConstraint("ended_at >= started_at", name="ends_after_start"),
        Index(None, "batch_id", "node"),
        Index(None, "run_id"),
        Index(
            "uq_transitions_one_counts",
            "month",
            "run_id",
            "step",
            "branch",
            "round",
            unique=True,
            postgresql_where=text("status IN ('succeeded', 'failed', 'skipped')"),
        ),
        Index(None, "recorded_in", postgresql_using="brin", postgresql_with={"autosummarize": "on"}),
        {"postgresql_partition_by": "RANGE (month)"},
    )
    month: Mapped[date]
    run_id: Mapped[int]
    batch_id: Mapped[int]
    step: Mapped[int] = mapped_column(Integer)
    branch: Mapped[int] = mapped_column(Integer)
    attempt: Mapped[int] = mapped_column(Integer)
    node: Mapped[str]
    status: Mapped[str]
    came_from: Mapped[list[str]]
    goes_to: Mapped[list[str]]  # next nodes; {} where the attempt did not succeed
    state_update: Mapped[dict[str, Any] | None]  # the node's partial update
    started_at: Mapped[datetime]
    ended_at: Mapped[datetime]
    duration_ms: Mapped[float]
    worker: Mapped[str | None]
    task_id: Mapped[str | None]
    input_tokens: Mapped[int | None]
    output_tokens: Mapped[int | None]
    cost_usd: Mapped[float | None] = mapped_column(Numeric(14, 8, asdecimal=False))
    error_class: Mapped[str | None]
    error: Mapped[str | None]
    recorded_in: Mapped[int | None] = mapped_column(  # id of the inserting transaction
        server_default=text("((pg_current_xact_id())::text)::bigint")
    )
    round: Mapped[int] = mapped_column(Integer, server_default="1")  # `runs.round` at the time


class Grade(Base):
    """The verdict on one document for one question."""

    __tablename__ = "grades"
    __table_args__ = (
        PrimaryKeyConstraint("run_id", "step", "branch"),
        one_of("label", GradeLabel),
        CheckConstraint("score BETWEEN 0 AND 1", name="score"),
        Index(None, "batch_id"),
        Index(None, "document_id"),
    )
    batch_id: Mapped[int]
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"))
    step: Mapped[int] = mapped_column(Integer)
    branch: Mapped[int] = mapped_column(Integer)  # the document's rank in the retrieval, from 0
    document_id: Mapped[str]
    title: Mapped[str]
    source: Mapped[str]
    page: Mapped[int | None] = mapped_column(Integer)
    retrieval_score: Mapped[float | None]
    label: Mapped[str]
    score: Mapped[float | None]
    model: Mapped[str]
    prompt_version: Mapped[str]
    detail: Mapped[str] = mapped_column(server_default="")
    graded_at: Mapped[datetime] = now_column()


class ModelCall(Base):
    """One call of a model, stored before anything depends on its result."""

    __tablename__ = "model_calls"
    __table_args__ = (
        one_of("status", CallStatus),
        Index(
            "uq_model_calls_paid_once",
            "run_id",
            "step",
            "branch",
            "role",
            "request_hash",
            unique=True,
            # a call without a stored response (an embedding) cannot be reused, so it may be paid again
            postgresql_where=text("status = 'ok' AND response IS NOT NULL"),
        ),
        Index(None, "batch_id"),
        Index(None, "run_id"),
        Index("ix_model_calls_reuse_key", "reuse_key", postgresql_where=text("reuse_key IS NOT NULL")),
    )
    id: Mapped[int] = id_column()
    batch_id: Mapped[int]
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"))
    step: Mapped[int] = mapped_column(Integer)
    branch: Mapped[int] = mapped_column(Integer)
    attempt: Mapped[int] = mapped_column(Integer)
    node: Mapped[str]
    role: Mapped[str]
    provider: Mapped[str]
    model: Mapped[str]
    prompt_version: Mapped[str]
    request_hash: Mapped[str]
    status: Mapped[str]
    response: Mapped[Any | None] = mapped_column(JSONB(none_as_null=True))
    error_class: Mapped[str | None]
    error: Mapped[str | None]
    input_tokens: Mapped[int | None]
    output_tokens: Mapped[int | None]
    cost_usd: Mapped[float | None] = mapped_column(Numeric(14, 8, asdecimal=False))  # NULL: no known price
    duration_ms: Mapped[float]
    reuse_key: Mapped[str | None]  # equal for calls that bring the same; NULL: not to be taken over
    reused_from: Mapped[int | None]  # the row of this table whose result was taken over, for nothing
    saved_usd: Mapped[float | None] = mapped_column(Numeric(14, 8, asdecimal=False))  # what that one cost
    called_at: Mapped[datetime] = now_column()


class WebSearch(Base):
    """One web search, stored before anything depends on its result."""

    __tablename__ = "web_searches"
    __table_args__ = (
        one_of("status", CallStatus),
        Index(
            "uq_web_searches_paid_once",
            "run_id",
            "step",
            "branch",
            "request_hash",
            unique=True,
            postgresql_where=text("status = 'ok'"),
        ),
        Index(None, "batch_id"),
        Index(None, "run_id"),
        Index("ix_web_searches_reuse_key", "reuse_key", postgresql_where=text("reuse_key IS NOT NULL")),
    )
    id: Mapped[int] = id_column()
    batch_id: Mapped[int]
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"))
    step: Mapped[int] = mapped_column(Integer)
    branch: Mapped[int] = mapped_column(Integer)
    attempt: Mapped[int] = mapped_column(Integer)
    provider: Mapped[str]
    query: Mapped[str]
    request_hash: Mapped[str]
    status: Mapped[str]
    results: Mapped[list[Any] | None]  # [{title, source, text, score}]
    error_class: Mapped[str | None]
    error: Mapped[str | None]
    cost_usd: Mapped[float | None] = mapped_column(Numeric(14, 8, asdecimal=False))
    duration_ms: Mapped[float]
    reuse_key: Mapped[str | None]  # equal for calls that bring the same; NULL: not to be taken over
    reused_from: Mapped[int | None]  # the row of this table whose result was taken over, for nothing
    saved_usd: Mapped[float | None] = mapped_column(Numeric(14, 8, asdecimal=False))  # what that one cost
    searched_at: Mapped[datetime] = now_column()


class Event(Base):
    """What was done to a batch or a run: by whom, when and why. No foreign keys: the event that a batch was
    dropped outlives it."""

    __tablename__ = "events"
    __table_args__ = (
        one_of("action", EventAction),
        Index(None, "batch_id", "id"),
        Index(None, "run_id", postgresql_where=text("run_id IS NOT NULL")),
    )
    id: Mapped[int] = id_column()
    batch_id: Mapped[int]
    run_id: Mapped[int | None]  # NULL: the whole batch
    at: Mapped[datetime] = now_column()
    actor: Mapped[str]  # a person's or program's name for itself; `system`: Cragline
    action: Mapped[str]
    reason: Mapped[str | None]
    detail: Mapped[dict[str, Any]] = mapped_column(server_default="{}")  # what exactly, by action


class Prompt(Base):
    """Each prompt text that was ever used, by role and version, so that a call can be explained later."""

    __tablename__ = "prompts"
    __table_args__ = (PrimaryKeyConstraint("role", "version"),)
    role: Mapped[str]
    version: Mapped[str]  # first 12 hex digits of the text's SHA-256
    text: Mapped[str]
    first_seen_at: Mapped[datetime] = now_column()
