"""The tables and views of the main job.

Why: batches, their rows and runs; the claims that workers compete for; the append-only transitions with
their grades, model calls and web searches; what was ingested. Nothing exists before it.
"""

from pathlib import Path

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001_main_job"
down_revision = None
branch_labels = None
depends_on = None


VIEWS = ("batch_progress", "run_timeline", "node_stats", "grade_history", "lost_runs")
VIEW_FILES = Path(__file__).resolve().parent.parent / "views"

# Submitting makes the month's partition. The advisory lock keeps two submitters from making it twice,
# and the check before it keeps the usual case free of any lock on the parent.
PARTITIONS = """
CREATE FUNCTION ensure_transitions_partition(month date) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    partition text := 'transitions_p' || to_char(month, 'YYYYMM');
BEGIN
    IF to_regclass(partition) IS NOT NULL THEN
        RETURN;
    END IF;
    PERFORM pg_advisory_xact_lock(72260003);
    EXECUTE format(
        'CREATE TABLE IF NOT EXISTS %I PARTITION OF transitions FOR VALUES FROM (%L) TO (%L)',
        partition, month, (month + interval '1 month')::date);
END $$
"""

APPEND_ONLY = """
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'transitions is append-only: % is refused; retention drops whole partitions', TG_OP;
END $$
"""


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.create_table(
        "batches",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), server_default="open", nullable=False),
        sa.Column("pipeline", sa.Text(), nullable=False),
        sa.Column("collection", sa.Text(), nullable=False),
        sa.Column("plan", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("source", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("row_count", sa.BigInteger(), nullable=False),
        sa.Column("run_count", sa.BigInteger(), nullable=False),
        sa.Column("month", sa.Date(), nullable=False),
        sa.Column(
            "submitted_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "(status = 'open') = (ended_at IS NULL)", name=op.f("ck_batches_ended_at_when_ended")
        ),
        sa.CheckConstraint("status IN ('open', 'ended', 'cancelled')", name=op.f("ck_batches_status")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_batches")),
    )
    op.create_index(
        op.f("ix_batches_status"),
        "batches",
        ["status"],
        unique=False,
        postgresql_where=sa.text("status = 'open'"),
    )
    op.create_table(
        "collections",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("embedding_model", sa.Text(), nullable=False),
        sa.Column("dimension", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("dimension > 0", name=op.f("ck_collections_dimension")),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_collections")),
    )
    op.create_table(
        "documents",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("collection", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("content_hash", sa.Text(), nullable=False),
        sa.Column("chunk_ids", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("embedding_model", sa.Text(), nullable=False),
        sa.Column("ingested_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_documents")),
    )
    op.create_index(op.f("ix_documents_collection_path"), "documents", ["collection", "path"], unique=False)
    op.create_index("uq_documents_collection_source", "documents", ["collection", "source"], unique=True)
    op.create_table(
        "ingest_files",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("ingest_id", sa.Text(), nullable=False),
        sa.Column("collection", sa.Text(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), server_default="pending", nullable=False),
        sa.Column("documents", sa.Integer(), server_default="0", nullable=False),
        sa.Column("chunks_added", sa.Integer(), server_default="0", nullable=False),
        sa.Column("chunks_unchanged", sa.Integer(), server_default="0", nullable=False),
        sa.Column("chunks_removed", sa.Integer(), server_default="0", nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("notes", postgresql.ARRAY(sa.Text()), server_default="{}", nullable=False),
        sa.Column("worker", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("touched_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "status IN ('pending', 'running', 'done', 'failed')", name=op.f("ck_ingest_files_status")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ingest_files")),
    )
    op.create_index(op.f("ix_ingest_files_ingest_id"), "ingest_files", ["ingest_id"], unique=False)
    op.create_index(
        "ix_ingest_files_open",
        "ingest_files",
        ["id"],
        unique=False,
        postgresql_where=sa.text("status IN ('pending', 'running')"),
    )
    op.create_table(
        "prompts",
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column(
            "first_seen_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.PrimaryKeyConstraint("role", "version", name=op.f("pk_prompts")),
    )
    op.create_table(
        "transitions",
        sa.Column("month", sa.Date(), nullable=False),
        sa.Column("run_id", sa.BigInteger(), nullable=False),
        sa.Column("batch_id", sa.BigInteger(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("branch", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("came_from", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("goes_to", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("state_update", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("duration_ms", sa.Double(), nullable=False),
        sa.Column("worker", sa.Text(), nullable=True),
        sa.Column("task_id", sa.Text(), nullable=True),
        sa.Column("input_tokens", sa.BigInteger(), nullable=True),
        sa.Column("output_tokens", sa.BigInteger(), nullable=True),
        sa.Column("cost_usd", sa.Numeric(precision=14, scale=8, asdecimal=False), nullable=True),
        sa.Column("error_class", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "status IN ('succeeded', 'retried', 'failed', 'lost', 'skipped')",
            name=op.f("ck_transitions_status"),
        ),
        sa.CheckConstraint("ended_at >= started_at", name=op.f("ck_transitions_ends_after_start")),
        sa.PrimaryKeyConstraint("month", "run_id", "step", "branch", "attempt", name=op.f("pk_transitions")),
        postgresql_partition_by="RANGE (month)",
    )
    op.create_index(op.f("ix_transitions_batch_id_node"), "transitions", ["batch_id", "node"], unique=False)
    op.create_index(op.f("ix_transitions_run_id"), "transitions", ["run_id"], unique=False)
    op.create_index(
        "uq_transitions_one_counts",
        "transitions",
        ["month", "run_id", "step", "branch"],
        unique=True,
        postgresql_where=sa.text("status IN ('succeeded', 'failed', 'skipped')"),
    )
    op.create_table(
        "batch_rows",
        sa.Column("batch_id", sa.BigInteger(), nullable=False),
        sa.Column("row_number", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.BigInteger(), nullable=True),
        sa.Column("original", postgresql.JSON(astext_type=sa.Text()), nullable=False),
        sa.Column("notes", postgresql.ARRAY(sa.Text()), server_default="{}", nullable=False),
        sa.CheckConstraint("row_number > 0", name=op.f("ck_batch_rows_row_number")),
        sa.ForeignKeyConstraint(
            ["batch_id"], ["batches.id"], name=op.f("fk_batch_rows_batch_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("batch_id", "row_number", name=op.f("pk_batch_rows")),
    )
    op.create_index(op.f("ix_batch_rows_run_id"), "batch_rows", ["run_id"], unique=False)
    op.create_table(
        "runs",
        sa.Column("id", sa.BigInteger(), nullable=False),
        sa.Column("batch_id", sa.BigInteger(), nullable=False),
        sa.Column("first_row", sa.Integer(), nullable=False),
        sa.Column("question", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), server_default="pending", nullable=False),
        sa.Column("step", sa.Integer(), server_default="0", nullable=False),
        sa.Column("answer", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("sources", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("web_used", sa.Boolean(), nullable=True),
        sa.Column("notes", postgresql.ARRAY(sa.Text()), server_default="{}", nullable=False),
        sa.Column("admitted_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "(status IN ('answered', 'gave_up', 'failed', 'cancelled')) = (ended_at IS NOT NULL)",
            name=op.f("ck_runs_ended_at_when_ended"),
        ),
        sa.CheckConstraint(
            "status <> 'answered' OR answer IS NOT NULL", name=op.f("ck_runs_answered_has_answer")
        ),
        sa.CheckConstraint("status <> 'failed' OR error IS NOT NULL", name=op.f("ck_runs_failed_has_error")),
        sa.CheckConstraint(
            "status <> 'gave_up' OR reason IS NOT NULL", name=op.f("ck_runs_gave_up_has_reason")
        ),
        sa.CheckConstraint("status <> 'pending' OR step = 0", name=op.f("ck_runs_pending_has_no_step")),
        sa.CheckConstraint(
            "status IN ('pending', 'running', 'answered', 'gave_up', 'failed', 'cancelled')",
            name=op.f("ck_runs_status"),
        ),
        sa.ForeignKeyConstraint(
            ["batch_id"], ["batches.id"], name=op.f("fk_runs_batch_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
    )
    op.create_index("ix_runs_batch_id_first_row", "runs", ["batch_id", "first_row"], unique=False)
    op.create_index("ix_runs_batch_id_status", "runs", ["batch_id", "status"], unique=False)
    op.create_index(
        "ix_runs_pending",
        "runs",
        ["batch_id", "first_row"],
        unique=False,
        postgresql_where=sa.text("status = 'pending'"),
    )
    op.create_index(
        "ix_runs_running", "runs", ["id"], unique=False, postgresql_where=sa.text("status = 'running'")
    )
    op.create_table(
        "claims",
        sa.Column("run_id", sa.BigInteger(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("branch", sa.Integer(), nullable=False),
        sa.Column("width", sa.Integer(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), server_default="ready", nullable=False),
        sa.Column("argument", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("came_from", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("attempt", sa.Integer(), server_default="0", nullable=False),
        sa.Column("lost", sa.Integer(), server_default="0", nullable=False),
        sa.Column("publishes", sa.Integer(), server_default="0", nullable=False),
        sa.Column("not_before", sa.DateTime(timezone=True), nullable=True),
        sa.Column("wake_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("worker", sa.Text(), nullable=True),
        sa.Column("task_id", sa.Text(), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("goes_to", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.CheckConstraint(
            "(status = 'running') = (lease_until IS NOT NULL)", name=op.f("ck_claims_lease_when_running")
        ),
        sa.CheckConstraint("status IN ('ready', 'running', 'done', 'failed')", name=op.f("ck_claims_status")),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_claims_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "step", "branch", name=op.f("pk_claims")),
        postgresql_with={"fillfactor": "50"},
    )
    op.create_index(
        "ix_claims_lease_until",
        "claims",
        ["lease_until"],
        unique=False,
        postgresql_where=sa.text("status = 'running'"),
    )
    op.create_index(
        "ix_claims_wake_at",
        "claims",
        ["wake_at"],
        unique=False,
        postgresql_where=sa.text("status <> 'running'"),
    )
    op.create_table(
        "grades",
        sa.Column("batch_id", sa.BigInteger(), nullable=False),
        sa.Column("run_id", sa.BigInteger(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("branch", sa.Integer(), nullable=False),
        sa.Column("document_id", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("page", sa.Integer(), nullable=True),
        sa.Column("retrieval_score", sa.Double(), nullable=True),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("score", sa.Double(), nullable=True),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("prompt_version", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), server_default="", nullable=False),
        sa.Column("graded_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("label IN ('relevant', 'not_relevant', 'unparsed')", name=op.f("ck_grades_label")),
        sa.CheckConstraint("score BETWEEN 0 AND 1", name=op.f("ck_grades_score")),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_grades_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "step", "branch", name=op.f("pk_grades")),
    )
    op.create_index(op.f("ix_grades_batch_id"), "grades", ["batch_id"], unique=False)
    op.create_index(op.f("ix_grades_document_id"), "grades", ["document_id"], unique=False)
    op.create_table(
        "model_calls",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("batch_id", sa.BigInteger(), nullable=False),
        sa.Column("run_id", sa.BigInteger(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("branch", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("prompt_version", sa.Text(), nullable=False),
        sa.Column("request_hash", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("response", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("error_class", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("input_tokens", sa.BigInteger(), nullable=True),
        sa.Column("output_tokens", sa.BigInteger(), nullable=True),
        sa.Column("cost_usd", sa.Numeric(precision=14, scale=8, asdecimal=False), nullable=True),
        sa.Column("duration_ms", sa.Double(), nullable=False),
        sa.Column("called_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("status IN ('ok', 'error')", name=op.f("ck_model_calls_status")),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_model_calls_run_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_model_calls")),
    )
    op.create_index(op.f("ix_model_calls_batch_id"), "model_calls", ["batch_id"], unique=False)
    op.create_index(op.f("ix_model_calls_run_id"), "model_calls", ["run_id"], unique=False)
    op.create_index(
        "uq_model_calls_paid_once",
        "model_calls",
        ["run_id", "step", "branch", "role", "request_hash"],
        unique=True,
        postgresql_where=sa.text("status = 'ok' AND response IS NOT NULL"),
    )
    op.create_table(
        "web_searches",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("batch_id", sa.BigInteger(), nullable=False),
        sa.Column("run_id", sa.BigInteger(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("branch", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("query", sa.Text(), nullable=False),
        sa.Column("request_hash", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("results", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("error_class", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("cost_usd", sa.Numeric(precision=14, scale=8, asdecimal=False), nullable=True),
        sa.Column("duration_ms", sa.Double(), nullable=False),
        sa.Column("searched_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("status IN ('ok', 'error')", name=op.f("ck_web_searches_status")),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_web_searches_run_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_web_searches")),
    )
    op.create_index(op.f("ix_web_searches_batch_id"), "web_searches", ["batch_id"], unique=False)
    op.create_index(op.f("ix_web_searches_run_id"), "web_searches", ["run_id"], unique=False)
    op.create_index(
        "uq_web_searches_paid_once",
        "web_searches",
        ["run_id", "step", "branch", "request_hash"],
        unique=True,
        postgresql_where=sa.text("status = 'ok'"),
    )
    op.execute(PARTITIONS)
    op.execute(APPEND_ONLY)
    op.execute(
        "CREATE TRIGGER transitions_append_only BEFORE UPDATE OR DELETE ON transitions"
        " FOR EACH ROW EXECUTE FUNCTION refuse_change()"
    )
    op.execute(  # a row trigger does not see a TRUNCATE
        "CREATE TRIGGER transitions_no_truncate BEFORE TRUNCATE ON transitions"
        " FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()"
    )
    for view in VIEWS:
        op.execute((VIEW_FILES / f"{view}_v1.sql").read_text())


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    for view in reversed(VIEWS):
        op.execute(f"DROP VIEW {view}")
    op.drop_index(
        "uq_web_searches_paid_once", table_name="web_searches", postgresql_where=sa.text("status = 'ok'")
    )
    op.drop_index(op.f("ix_web_searches_run_id"), table_name="web_searches")
    op.drop_index(op.f("ix_web_searches_batch_id"), table_name="web_searches")
    op.drop_table("web_searches")
    op.drop_index(
        "uq_model_calls_paid_once",
        table_name="model_calls",
        postgresql_where=sa.text("status = 'ok' AND response IS NOT NULL"),
    )
    op.drop_index(op.f("ix_model_calls_run_id"), table_name="model_calls")
    op.drop_index(op.f("ix_model_calls_batch_id"), table_name="model_calls")
    op.drop_table("model_calls")
    op.drop_index(op.f("ix_grades_document_id"), table_name="grades")
    op.drop_index(op.f("ix_grades_batch_id"), table_name="grades")
    op.drop_table("grades")
    op.drop_index("ix_claims_wake_at", table_name="claims", postgresql_where=sa.text("status <> 'running'"))
    op.drop_index(
        "ix_claims_lease_until", table_name="claims", postgresql_where=sa.text("status = 'running'")
    )
    op.drop_table("claims")
    op.drop_index("ix_runs_running", table_name="runs", postgresql_where=sa.text("status = 'running'"))
    op.drop_index("ix_runs_pending", table_name="runs", postgresql_where=sa.text("status = 'pending'"))
    op.drop_index("ix_runs_batch_id_status", table_name="runs")
    op.drop_index("ix_runs_batch_id_first_row", table_name="runs")
    op.drop_table("runs")
    op.drop_index(op.f("ix_batch_rows_run_id"), table_name="batch_rows")
    op.drop_table("batch_rows")
    op.drop_index(
        "uq_transitions_one_counts",
        table_name="transitions",
        postgresql_where=sa.text("status IN ('succeeded', 'failed', 'skipped')"),
    )
    op.drop_index(op.f("ix_transitions_run_id"), table_name="transitions")
    op.drop_index(op.f("ix_transitions_batch_id_node"), table_name="transitions")
    op.drop_table("transitions")
    op.drop_table("prompts")
    op.drop_index(
        "ix_ingest_files_open",
        table_name="ingest_files",
        postgresql_where=sa.text("status IN ('pending', 'running')"),
    )
    op.drop_index(op.f("ix_ingest_files_ingest_id"), table_name="ingest_files")
    op.drop_table("ingest_files")
    op.drop_index("uq_documents_collection_source", table_name="documents")
    op.drop_index(op.f("ix_documents_collection_path"), table_name="documents")
    op.drop_table("documents")
    op.drop_table("collections")
    op.drop_index(
        op.f("ix_batches_status"), table_name="batches", postgresql_where=sa.text("status = 'open'")
    )
    op.drop_table("batches")
    op.execute("DROP FUNCTION refuse_change")
    op.execute("DROP FUNCTION ensure_transitions_partition")
