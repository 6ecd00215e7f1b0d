"""Identical work is done once.

Why: a result that somebody has paid for is found again by its `reuse_key`, and the row that takes it over
says from where and what that saved. Retrievals get a table, because a query's embedding is paid. A
collection gets a version, so that what was found in an older one is not taken over. `flights` says who is
making which call, so that a second task waits for it instead of paying too.
"""

from pathlib import Path

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0007_reuse"
down_revision = "0006_api"
branch_labels = None
depends_on = None

VIEW_FILES = Path(__file__).resolve().parent.parent / "views"
REUSED = ("runs", "model_calls", "web_searches")


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("CREATE SEQUENCE collection_versions")
    op.add_column(
        "collections",
        sa.Column(
            "version",
            sa.BigInteger(),
            server_default=sa.text("nextval('collection_versions')"),
            nullable=False,
        ),
    )
    op.add_column("runs", sa.Column("collection_version", sa.BigInteger(), nullable=True))
    for table in REUSED:
        op.add_column(table, sa.Column("reuse_key", sa.Text(), nullable=True))
        op.add_column(table, sa.Column("reused_from", sa.BigInteger(), nullable=True))
        op.add_column(table, sa.Column("saved_usd", sa.Numeric(14, 8, asdecimal=False), nullable=True))
        op.create_index(
            f"ix_{table}_reuse_key",
            table,
            ["reuse_key"],
            unique=False,
            postgresql_where=sa.text("reuse_key IS NOT NULL"),
        )
    _create_retrievals()
    op.create_table(
        "flights",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("run_id", sa.BigInteger(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("branch", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_flights")),
        prefixes=["UNLOGGED"],
    )
    op.execute("DROP VIEW batch_progress")
    op.execute((VIEW_FILES / "batch_progress_v4.sql").read_text())


def _create_retrievals() -> None:
    op.create_table(
        "retrievals",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("batch_id", sa.BigInteger(), nullable=False),
        sa.Column("run_id", sa.BigInteger(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("branch", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("collection", sa.Text(), nullable=False),
        sa.Column("collection_version", sa.BigInteger(), nullable=False),
        sa.Column("query", sa.Text(), nullable=False),
        sa.Column("k", sa.Integer(), nullable=False),
        sa.Column("mode", sa.Text(), nullable=False),
        sa.Column("filters", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=False),
        sa.Column("request_hash", sa.Text(), nullable=False),
        sa.Column("documents", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=True),
        sa.Column("cost_usd", sa.Numeric(14, 8, asdecimal=False), nullable=True),
        sa.Column("duration_ms", sa.Double(), nullable=False),
        sa.Column("reuse_key", sa.Text(), nullable=True),
        sa.Column("reused_from", sa.BigInteger(), nullable=True),
        sa.Column("saved_usd", sa.Numeric(14, 8, asdecimal=False), nullable=True),
        sa.Column(
            "retrieved_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_retrievals_run_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_retrievals")),
    )
    op.create_index(
        "uq_retrievals_once", "retrievals", ["run_id", "step", "branch", "request_hash"], unique=True
    )
    op.create_index(op.f("ix_retrievals_batch_id"), "retrievals", ["batch_id"], unique=False)
    op.create_index(
        "ix_retrievals_reuse_key",
        "retrievals",
        ["reuse_key", "collection_version"],
        unique=False,
        postgresql_where=sa.text("reuse_key IS NOT NULL"),
    )


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DROP VIEW batch_progress")
    op.drop_table("flights")
    op.drop_table("retrievals")
    for table in REUSED:
        op.drop_index(f"ix_{table}_reuse_key", table_name=table)
        for column in ("saved_usd", "reused_from", "reuse_key"):
            op.drop_column(table, column)
    op.drop_column("runs", "collection_version")
    op.drop_column("collections", "version")
    op.execute("DROP SEQUENCE collection_versions")
    op.execute((VIEW_FILES / "batch_progress_v3.sql").read_text())
