"""What the HTTP API needs: keys, owners, repeated requests, webhooks, and signs of life.

Why: a request is let in by a key that is stored as its hash, and a batch belongs to the key's owner. A
request that is sent twice must not become two batches. A batch that has ended is told to its
`callback_url`, from rows, so that no news is lost. Readiness needs to know when beat and the reconciler
were last heard of. For the metrics, `transitions.recorded_in` is the id of the inserting transaction: what
is new since the last look is found without reading the rest, and added to `metric_sums`. The column is
added without a default, which rewrites nothing; older rows keep NULL, and its BRIN index takes kilobytes.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0006_api"
down_revision = "0005_history"
branch_labels = None
depends_on = None

_NOW = sa.text("now()")
_TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.add_column("batches", sa.Column("owner", sa.Text(), nullable=True))
    op.add_column("batches", sa.Column("callback_url", sa.Text(), nullable=True))
    op.create_index(op.f("ix_batches_owner"), "batches", ["owner", "id"])
    op.create_index(
        "ix_batches_callback", "batches", ["id"], postgresql_where=sa.text("callback_url IS NOT NULL")
    )
    op.add_column("transitions", sa.Column("recorded_in", sa.BigInteger(), nullable=True))
    op.alter_column(
        "transitions", "recorded_in", server_default=sa.text("((pg_current_xact_id())::text)::bigint")
    )
    op.create_index(
        op.f("ix_transitions_recorded_in"),
        "transitions",
        ["recorded_in"],
        postgresql_using="brin",
        postgresql_with={"autosummarize": "on"},
    )
    _keys()
    _deliveries()
    _metrics()
    op.create_table(
        "heartbeats",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("at", _TIME, server_default=_NOW, nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_heartbeats")),
    )


def _keys() -> None:
    op.create_table(
        "api_keys",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("scopes", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("token_start", sa.Text(), nullable=False),
        sa.Column("token_hash", sa.Text(), nullable=False),
        sa.Column("created_at", _TIME, server_default=_NOW, nullable=False),
        sa.Column("last_used_at", _TIME, nullable=True),
        sa.Column("revoked_at", _TIME, nullable=True),
        sa.CheckConstraint(
            "cardinality(scopes) > 0 AND scopes <@ ARRAY['submit', 'read', 'admin']",
            name=op.f("ck_api_keys_scopes"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
    )
    op.create_index("uq_api_keys_token_hash", "api_keys", ["token_hash"], unique=True)
    op.create_table(
        "idempotency_keys",
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("body_hash", sa.Text(), nullable=False),
        sa.Column("batch_id", sa.BigInteger(), nullable=True),
        sa.Column("created_at", _TIME, server_default=_NOW, nullable=False),
        sa.ForeignKeyConstraint(
            ["batch_id"], ["batches.id"], name=op.f("fk_idempotency_keys_batch_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("owner", "key", name=op.f("pk_idempotency_keys")),
    )
    op.create_index(op.f("ix_idempotency_keys_batch_id"), "idempotency_keys", ["batch_id"])


def _metrics() -> None:
    op.create_table(
        "metric_sums",
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("pipeline", "node", "outcome")),
        sa.Column("error_class", sa.Text(), nullable=False),
        sa.Column("bucket", sa.Integer(), nullable=False),
        sa.Column("attempts", sa.BigInteger(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in ("input_tokens", "output_tokens")),
        sa.Column("cost_usd", sa.Numeric(18, 8), nullable=False),
        sa.PrimaryKeyConstraint(
            "pipeline", "node", "outcome", "error_class", "bucket", name=op.f("pk_metric_sums")
        ),
    )
    op.create_table(
        "metric_state",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("summed_to", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_metric_state_one_row")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_metric_state")),
    )
    op.execute("INSERT INTO metric_state (id, summed_to) VALUES (1, 0)")


def _deliveries() -> None:
    op.create_table(
        "webhook_deliveries",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("batch_id", sa.BigInteger(), nullable=False),
        sa.Column("batch_ended_at", _TIME, nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), server_default="pending", nullable=False),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("next_at", _TIME, server_default=_NOW, nullable=False),
        sa.Column("last_status", sa.Integer(), nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("created_at", _TIME, server_default=_NOW, nullable=False),
        sa.Column("ended_at", _TIME, nullable=True),
        sa.CheckConstraint(
            "status IN ('pending', 'delivered', 'failed')", name=op.f("ck_webhook_deliveries_status")
        ),
        sa.ForeignKeyConstraint(
            ["batch_id"], ["batches.id"], name=op.f("fk_webhook_deliveries_batch_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhook_deliveries")),
    )
    op.create_index(
        "uq_webhook_deliveries_end", "webhook_deliveries", ["batch_id", "batch_ended_at"], unique=True
    )
    op.create_index(
        "ix_webhook_deliveries_next_at",
        "webhook_deliveries",
        ["next_at"],
        postgresql_where=sa.text("status = 'pending'"),
    )


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_table("heartbeats")
    op.drop_table("metric_state")
    op.drop_table("metric_sums")
    op.drop_table("webhook_deliveries")
    op.drop_table("idempotency_keys")
    op.drop_table("api_keys")
    op.drop_index(op.f("ix_transitions_recorded_in"), table_name="transitions")
    op.drop_column("transitions", "recorded_in")
    op.drop_index("ix_batches_callback", table_name="batches")
    op.drop_index(op.f("ix_batches_owner"), table_name="batches")
    op.drop_column("batches", "callback_url")
    op.drop_column("batches", "owner")
