"""Caps on cost and tokens, and attempts that do not count.

Why: a batch with `--max-cost` or `--max-tokens` reserves each call before it is made, so that the cap holds
however many workers there are. `budgets` holds what such a batch has spent, `reservations` what its calls
under way may cost. `claims.forgiven` counts the attempts that met a provider which failed or refused
everybody, and `claims.failing_since` bounds how long that goes on.
"""

from pathlib import Path

import sqlalchemy as sa
from alembic import op

revision = "0004_limits"
down_revision = "0003_control"
branch_labels = None
depends_on = None

VIEW_FILES = Path(__file__).resolve().parent.parent / "views"


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.add_column("batches", sa.Column("max_cost_usd", sa.Numeric(14, 8), nullable=True))
    op.add_column("batches", sa.Column("max_tokens", sa.BigInteger(), nullable=True))
    op.create_check_constraint(op.f("ck_batches_max_cost_usd"), "batches", "max_cost_usd > 0")
    op.create_check_constraint(op.f("ck_batches_max_tokens"), "batches", "max_tokens > 0")
    op.add_column("claims", sa.Column("forgiven", sa.Integer(), server_default="0", nullable=False))
    op.add_column("claims", sa.Column("failing_since", sa.DateTime(timezone=True), nullable=True))
    op.create_table(
        "budgets",
        sa.Column("batch_id", sa.BigInteger(), nullable=False),
        sa.Column("spent_usd", sa.Numeric(14, 8), server_default="0", nullable=False),
        sa.Column("spent_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.ForeignKeyConstraint(
            ["batch_id"], ["batches.id"], name=op.f("fk_budgets_batch_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("batch_id", name=op.f("pk_budgets")),
        postgresql_with={"fillfactor": "50"},
    )
    op.create_table(
        "reservations",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("batch_id", sa.BigInteger(), nullable=False),
        sa.Column("run_id", sa.BigInteger(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("branch", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("cost_usd", sa.Numeric(14, 8), nullable=False),
        sa.Column("tokens", sa.BigInteger(), nullable=False),
        sa.Column("made_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["batch_id"], ["batches.id"], name=op.f("fk_reservations_batch_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_reservations")),
    )
    op.create_index(op.f("ix_reservations_batch_id"), "reservations", ["batch_id"], unique=False)
    op.execute("DROP VIEW batch_progress")
    op.execute((VIEW_FILES / "batch_progress_v3.sql").read_text())


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DROP VIEW batch_progress")
    op.execute((VIEW_FILES / "batch_progress_v2.sql").read_text())
    op.drop_table("reservations")
    op.drop_table("budgets")
    op.drop_column("claims", "failing_since")
    op.drop_column("claims", "forgiven")
    op.drop_constraint(op.f("ck_batches_max_tokens"), "batches", type_="check")
    op.drop_constraint(op.f("ck_batches_max_cost_usd"), "batches", type_="check")
    op.drop_column("batches", "max_tokens")
    op.drop_column("batches", "max_cost_usd")
