"""Batches that pause, are retried and forked; events; shares of the window.

Why: people stop, resume, cancel, retry and reorder batches, and each such act is a row. A run that is
retried goes into its next round: `transitions.round` keeps "one attempt counts" true in each of them. New
columns have constant defaults, so no table is rewritten; the unique index of `transitions` is built anew,
which reads it once.
"""

from pathlib import Path

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0003_control"
down_revision = "0002_knowledge"
branch_labels = None
depends_on = None

VIEW_FILES = Path(__file__).resolve().parent.parent / "views"
ACTIONS = (
    "action IN ('submitted', 'paused', 'resumed', 'cancelled', 'retried', 'reprioritised', 'forked', 'ended',"
    " 'dropped')"
)
COUNTING = sa.text("status IN ('succeeded', 'failed', 'skipped')")


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DROP VIEW batch_progress")
    op.execute("DROP VIEW lost_runs")
    _batches()
    _runs()
    _transitions()
    op.add_column("claims", sa.Column("earlier", sa.Integer(), server_default="0", nullable=False))
    op.create_table(
        "events",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("batch_id", sa.BigInteger(), nullable=False),
        sa.Column("run_id", sa.BigInteger(), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("detail", postgresql.JSONB(astext_type=sa.Text()), server_default="{}", nullable=False),
        sa.CheckConstraint(ACTIONS, name=op.f("ck_events_action")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
    )
    op.create_index(op.f("ix_events_batch_id_id"), "events", ["batch_id", "id"], unique=False)
    op.create_index(
        op.f("ix_events_run_id"), "events", ["run_id"], postgresql_where=sa.text("run_id IS NOT NULL")
    )
    for view in ("batch_progress_v2", "lost_runs_v2"):
        op.execute((VIEW_FILES / f"{view}.sql").read_text())


def _batches() -> None:
    op.add_column("batches", sa.Column("submitted_by", sa.Text(), nullable=True))
    op.add_column("batches", sa.Column("pause_reason", sa.Text(), nullable=True))
    op.add_column("batches", sa.Column("priority", sa.Integer(), server_default="0", nullable=False))
    op.add_column("batches", sa.Column("weight", sa.Numeric(6, 2), server_default="1", nullable=False))
    op.add_column("batches", sa.Column("max_in_flight", sa.Integer(), nullable=True))
    _replace_checks(
        "batches",
        status="status IN ('open', 'paused', 'ended', 'cancelled')",
        ended_at_when_ended="(status IN ('open', 'paused')) = (ended_at IS NULL)",
    )
    op.create_check_constraint(
        op.f("ck_batches_paused_has_reason"), "batches", "status <> 'paused' OR pause_reason IS NOT NULL"
    )
    op.create_check_constraint(op.f("ck_batches_weight"), "batches", "weight BETWEEN 0.01 AND 100")
    op.create_check_constraint(op.f("ck_batches_max_in_flight"), "batches", "max_in_flight > 0")
    op.drop_index(op.f("ix_batches_status"), table_name="batches")
    op.create_index(
        op.f("ix_batches_status"),
        "batches",
        ["status"],
        postgresql_where=sa.text("status IN ('open', 'paused')"),
    )


def _runs() -> None:
    op.add_column("runs", sa.Column("round", sa.Integer(), server_default="1", nullable=False))
    op.add_column("runs", sa.Column("first_step", sa.Integer(), server_default="1", nullable=False))
    op.add_column("runs", sa.Column("forked_from", sa.BigInteger(), nullable=True))
    op.add_column("runs", sa.Column("inherited", postgresql.JSONB(astext_type=sa.Text()), nullable=True))
    _replace_checks("runs", pending_has_no_step="status <> 'pending' OR round > 1 OR step = first_step - 1")
    op.create_check_constraint(
        op.f("ck_runs_round_and_steps"),
        "runs",
        "round > 0 AND first_step > 0 AND step >= first_step - 1",
    )
    op.create_index(
        op.f("ix_runs_forked_from"),
        "runs",
        ["forked_from"],
        postgresql_where=sa.text("forked_from IS NOT NULL"),
    )


def _transitions() -> None:
    op.add_column("transitions", sa.Column("round", sa.Integer(), server_default="1", nullable=False))
    _replace_checks(
        "transitions", status="status IN ('succeeded', 'retried', 'failed', 'lost', 'skipped', 'cancelled')"
    )
    _one_counts(["month", "run_id", "step", "branch", "round"])


def _one_counts(columns: list[str]) -> None:
    op.drop_index("uq_transitions_one_counts", table_name="transitions")
    op.create_index(
        "uq_transitions_one_counts", "transitions", columns, unique=True, postgresql_where=COUNTING
    )


def _replace_checks(table: str, **checks: str) -> None:
    for name, condition in checks.items():
        op.drop_constraint(op.f(f"ck_{table}_{name}"), table, type_="check")
        op.create_check_constraint(op.f(f"ck_{table}_{name}"), table, condition)


# What the version before could not read: it would take pending runs of a later round for new ones.
_DOWN = (
    "UPDATE batches SET status = 'open' WHERE status = 'paused'",
    "DELETE FROM claims USING runs WHERE runs.id = claims.run_id AND (round > 1 OR forked_from IS NOT NULL)",
    "UPDATE runs SET status = 'cancelled', ended_at = now()"
    " WHERE status IN ('pending', 'running') AND (round > 1 OR forked_from IS NOT NULL)",
    "DROP TRIGGER transitions_append_only ON transitions",  # before 15, disabling it leaves the partitions'
    "DELETE FROM transitions WHERE status = 'cancelled'",
    "DELETE FROM transitions USING transitions AS later"
    " WHERE (later.month, later.run_id, later.step, later.branch)"
    "     = (transitions.month, transitions.run_id, transitions.step, transitions.branch)"
    "   AND later.round > transitions.round",
    "CREATE TRIGGER transitions_append_only BEFORE UPDATE OR DELETE ON transitions"
    " FOR EACH ROW EXECUTE FUNCTION refuse_change()",
)


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DROP VIEW batch_progress")
    op.execute("DROP VIEW lost_runs")
    op.drop_table("events")
    for statement in _DOWN:
        op.execute(statement)
    _one_counts(["month", "run_id", "step", "branch"])
    _replace_checks("transitions", status="status IN ('succeeded', 'retried', 'failed', 'lost', 'skipped')")
    op.drop_column("transitions", "round")
    op.drop_column("claims", "earlier")
    op.drop_index(op.f("ix_runs_forked_from"), table_name="runs")
    op.drop_constraint(op.f("ck_runs_round_and_steps"), "runs", type_="check")
    _replace_checks("runs", pending_has_no_step="status <> 'pending' OR step = 0")
    for column in ("round", "first_step", "forked_from", "inherited"):
        op.drop_column("runs", column)
    op.drop_index(op.f("ix_batches_status"), table_name="batches")
    op.create_index(
        op.f("ix_batches_status"), "batches", ["status"], postgresql_where=sa.text("status = 'open'")
    )
    for name in ("paused_has_reason", "weight", "max_in_flight"):
        op.drop_constraint(op.f(f"ck_batches_{name}"), "batches", type_="check")
    _replace_checks(
        "batches",
        status="status IN ('open', 'ended', 'cancelled')",
        ended_at_when_ended="(status = 'open') = (ended_at IS NULL)",
    )
    for column in ("submitted_by", "pause_reason", "priority", "weight", "max_in_flight"):
        op.drop_column("batches", column)
    for view in ("batch_progress_v1", "lost_runs_v1"):
        op.execute((VIEW_FILES / f"{view}.sql").read_text())
