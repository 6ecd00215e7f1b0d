"""What all tables share: the base class with its types and names, and columns that come again."""

from datetime import date, datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Date,
    DateTime,
    Double,
    Identity,
    MetaData,
    Text,
    func,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}


class Base(DeclarativeBase):
    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map = {  # noqa: RUF012 - SQLAlchemy's own spelling
        str: Text,
        int: BigInteger,
        float: Double,
        bool: Boolean,
        datetime: DateTime(timezone=True),
        date: Date,
        dict[str, Any]: JSONB(none_as_null=True),  # a jsonb `null` would not be found by IS NULL
        list[Any]: JSONB(none_as_null=True),
        list[str]: ARRAY(Text),
    }


def one_of(column: str, enum: type[StrEnum], name: str | None = None) -> CheckConstraint:
    """A CHECK that `column` holds a value of `enum`."""
    values = ", ".join(f"'{member.value}'" for member in enum)
    return CheckConstraint(f"{column} IN ({values})", name=name or column)


def id_column() -> Mapped[int]:
    return mapped_column(BigInteger, Identity(always=True), primary_key=True)


def now_column() -> Mapped[datetime]:
    return mapped_column(DateTime(timezone=True), server_default=func.now())
