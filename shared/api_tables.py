"""Tables of the HTTP API: who may, what was already asked, who was told, and who is alive."""

from datetime import datetime

from sqlalchemy import CheckConstraint, ForeignKey, Index, Integer, Numeric, PrimaryKeyConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from shared.statuses import DeliveryStatus
from shared.table_base import Base, id_column, now_column, one_of


class ApiKey(Base):
    """A key of the HTTP API. The key itself is shown once and kept nowhere."""

    __tablename__ = "api_keys"
    __table_args__ = (
        CheckConstraint(
            "cardinality(scopes) > 0 AND scopes <@ ARRAY['submit', 'read', 'admin']", name="scopes"
        ),
        Index("uq_api_keys_token_hash", "token_hash", unique=True),
    )
    id: Mapped[int] = id_column()
    name: Mapped[str]  # what it is for, in a person's words
    owner: Mapped[str]  # whose batches it submits and sees
    scopes: Mapped[list[str]]  # submit, read, admin (which includes both, and sees every batch)
    token_start: Mapped[str]  # the first characters, to tell keys apart
    token_hash: Mapped[str]  # SHA-256 of the whole key; it is 32 random bytes, so no salt is needed
    created_at: Mapped[datetime] = now_column()
    last_used_at: Mapped[datetime | None]  # to the minute
    revoked_at: Mapped[datetime | None]


class IdempotencyKey(Base):
    """A batch that was submitted with an `Idempotency-Key`: the same request again finds it here."""

    __tablename__ = "idempotency_keys"
    __table_args__ = (PrimaryKeyConstraint("owner", "key"), Index(None, "batch_id"))
    owner: Mapped[str]
    key: Mapped[str]
    body_hash: Mapped[str]  # SHA-256 of what was submitted
    # NULL only within the transaction that submits
    batch_id: Mapped[int | None] = mapped_column(ForeignKey("batches.id", ondelete="CASCADE"))
    created_at: Mapped[datetime] = now_column()


class WebhookDelivery(Base):
    """The news that a batch has ended, for its `callback_url`; one for each time it ended."""

    __tablename__ = "webhook_deliveries"
    __table_args__ = (
        one_of("status", DeliveryStatus),
        Index("uq_webhook_deliveries_end", "batch_id", "batch_ended_at", unique=True),
        Index("ix_webhook_deliveries_next_at", "next_at", postgresql_where=text("status = 'pending'")),
    )
    id: Mapped[int] = id_column()
    batch_id: Mapped[int] = mapped_column(ForeignKey("batches.id", ondelete="CASCADE"))
    batch_ended_at: Mapped[datetime]
    url: Mapped[str]
    status: Mapped[str] = mapped_column(server_default=DeliveryStatus.PENDING)
    attempts: Mapped[int] = mapped_column(Integer, server_default="0")  # tries begun so far
    next_at: Mapped[datetime] = now_column()  # no try before then
    last_status: Mapped[int | None] = mapped_column(Integer)  # HTTP status of the last answer
    last_error: Mapped[str | None]
    created_at: Mapped[datetime] = now_column()
    ended_at: Mapped[datetime | None]  # delivered, or given up


class Heartbeat(Base):
    """When a part that has no port of its own was last heard of."""

    __tablename__ = "heartbeats"
    name: Mapped[str] = mapped_column(primary_key=True)  # beat, reconciler
    at: Mapped[datetime] = now_column()


class MetricSum(Base):
    """Sums over the transitions up to `metric_state.summed_to`, for `/metrics`."""

    __tablename__ = "metric_sums"
    __table_args__ = (PrimaryKeyConstraint("pipeline", "node", "outcome", "error_class", "bucket"),)
    pipeline: Mapped[str]
    node: Mapped[str]
    outcome: Mapped[str]  # the status of the transitions
    error_class: Mapped[str]  # empty where there is none
    bucket: Mapped[int] = mapped_column(Integer)  # of the latency histogram: 0 is the fastest
    attempts: Mapped[int]
    seconds: Mapped[float]
    input_tokens: Mapped[int]
    output_tokens: Mapped[int]
    cost_usd: Mapped[float] = mapped_column(Numeric(18, 8, asdecimal=False))


class MetricState(Base):
    """One row: the transaction id up to which transitions are in `metric_sums`."""

    __tablename__ = "metric_state"
    __table_args__ = (CheckConstraint("id = 1", name="one_row"),)
    id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    summed_to: Mapped[int]
