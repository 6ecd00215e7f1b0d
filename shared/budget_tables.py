"""What batches with a cap on cost or tokens have spent, and what their calls under way may cost."""

from datetime import datetime

from sqlalchemy import ForeignKey, Index, Integer, Numeric
from sqlalchemy.orm import Mapped, mapped_column

from shared.table_base import Base, id_column, now_column


class Budget(Base):
    """What a batch with a cap has spent. Batches without a cap have no row.

    A row of its own, because it changes with each call, and `batches` is read by everybody.
    """

    __tablename__ = "budgets"
    __table_args__ = ({"postgresql_with": {"fillfactor": "50"}},)
    batch_id: Mapped[int] = mapped_column(ForeignKey("batches.id", ondelete="CASCADE"), primary_key=True)
    spent_usd: Mapped[float] = mapped_column(Numeric(14, 8, asdecimal=False), server_default="0")
    spent_tokens: Mapped[int] = mapped_column(server_default="0")


class Reservation(Base):
    """What a call under way may cost. Gone when the call is stored, or its claim is lost."""

    __tablename__ = "reservations"
    __table_args__ = (Index(None, "batch_id"),)
    id: Mapped[int] = id_column()
    batch_id: Mapped[int] = mapped_column(ForeignKey("batches.id", ondelete="CASCADE"))
    run_id: Mapped[int]
    step: Mapped[int] = mapped_column(Integer)
    branch: Mapped[int] = mapped_column(Integer)
    attempt: Mapped[int] = mapped_column(Integer)
    role: Mapped[str]
    cost_usd: Mapped[float] = mapped_column(Numeric(14, 8, asdecimal=False))
    tokens: Mapped[int]
    made_at: Mapped[datetime] = now_column()
