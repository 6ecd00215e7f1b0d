"""The tables behind "identical work is done once": what retrievals brought, and who is making which call."""

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, Integer, Numeric, text
from sqlalchemy.orm import Mapped, mapped_column

from shared.table_base import Base, id_column, now_column


class Retrieval(Base):
    """One search of a collection whose query embedding costs money, with what it brought."""

    __tablename__ = "retrievals"
    __table_args__ = (
        Index("uq_retrievals_once", "run_id", "step", "branch", "request_hash", unique=True),
        Index(None, "batch_id"),
        Index(
            "ix_retrievals_reuse_key",
            "reuse_key",
            "collection_version",
            postgresql_where=text("reuse_key IS NOT NULL"),
        ),
    )
    id: Mapped[int] = id_column()
    batch_id: Mapped[int]
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"))
    step: Mapped[int] = mapped_column(Integer)
    branch: Mapped[int] = mapped_column(Integer)
    attempt: Mapped[int] = mapped_column(Integer)
    collection: Mapped[str]
    collection_version: Mapped[int]  # read before the search: what was found may be newer, never older
    query: Mapped[str]
    k: Mapped[int] = mapped_column(Integer)
    mode: Mapped[str]  # dense, sparse or hybrid
    filters: Mapped[dict[str, Any]]
    request_hash: Mapped[str]
    documents: Mapped[list[Any] | None]  # best first, as the node got them; NULL: those of `reused_from`
    cost_usd: Mapped[float | None] = mapped_column(
        Numeric(14, 8, asdecimal=False)
    )  # its embedding; also there
    duration_ms: Mapped[float]
    reuse_key: Mapped[str | None]  # equal for searches that bring the same; NULL: not to be taken over
    reused_from: Mapped[int | None]  # the row of this table whose documents were taken over, for nothing
    saved_usd: Mapped[float | None] = mapped_column(Numeric(14, 8, asdecimal=False))  # what that one cost
    retrieved_at: Mapped[datetime] = now_column()


class Flight(Base):
    """A call that a task is making at this moment, so that a second task waits for its result.

    It counts only while its task's claim is running within its lease. The table is not logged: emptied by a
    crash of Postgres, it says that nobody is making any call, which is true then.
    """

    __tablename__ = "flights"
    __table_args__ = {"prefixes": ["UNLOGGED"]}  # noqa: RUF012 - SQLAlchemy's own spelling
    key: Mapped[str] = mapped_column(primary_key=True)
    run_id: Mapped[int]
    step: Mapped[int] = mapped_column(Integer)
    branch: Mapped[int] = mapped_column(Integer)
    attempt: Mapped[int] = mapped_column(Integer)
    since: Mapped[datetime] = now_column()
