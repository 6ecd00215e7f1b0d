"""The enums and the CHECK constraints that are made from them."""

from enum import StrEnum

import pytest
from sqlalchemy import CheckConstraint

from shared import statuses
from shared.statuses import DISPOSITIONS, RunStatus
from shared.tables import Base, one_of

ENUMS = [
    value
    for value in vars(statuses).values()
    if isinstance(value, type) and issubclass(value, StrEnum) and value is not StrEnum
]
CHECKED = {
    "batches.status": statuses.BatchStatus,
    "runs.status": statuses.RunStatus,
    "claims.status": statuses.ClaimStatus,
    "transitions.status": statuses.TransitionStatus,
    "events.action": statuses.EventAction,
    "grades.label": statuses.GradeLabel,
    "model_calls.status": statuses.CallStatus,
    "web_searches.status": statuses.CallStatus,
    "ingest_files.status": statuses.FileStatus,
    "ingest_files.kind": statuses.WorkKind,
    "webhook_deliveries.status": statuses.DeliveryStatus,
}


def test_dispositions_are_the_statuses_that_are_neither_pending_nor_running() -> None:
    assert set(DISPOSITIONS) == set(RunStatus) - {RunStatus.PENDING, RunStatus.RUNNING}


def test_every_enum_is_behind_a_constraint() -> None:
    assert set(ENUMS) == set(CHECKED.values())


def test_every_status_column_is_in_this_list() -> None:
    columns = {
        f"{table.name}.{column.name}"
        for table in Base.metadata.tables.values()
        for column in table.columns
        if column.name in ("status", "label", "kind", "action")
    }
    assert columns == set(CHECKED)


@pytest.mark.parametrize("place", CHECKED)
def test_the_constraint_lists_exactly_the_values(place: str) -> None:
    table, column = place.split(".")
    texts = [
        str(c.sqltext) for c in Base.metadata.tables[table].constraints if isinstance(c, CheckConstraint)
    ]
    assert str(one_of(column, CHECKED[place]).sqltext) in texts
    for value in CHECKED[place]:
        assert f"'{value}'" in str(one_of(column, CHECKED[place]).sqltext)
