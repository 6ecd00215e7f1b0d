"""The summary of a workbook of results."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from api.results_summary import summary_of

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
PROGRESS: dict[str, Any] = {
    **dict.fromkeys(
        ("rows", "empty_rows", "duplicate_rows", "submitted", "failed", "cancelled", "pending"), 0
    ),
    "answered": 3,
    "gave_up": 1,
    "running": 0,
    "batch_id": 7,
    "name": "n",
    "pipeline": "crag",
    "collection": "c",
    "status": "ended",
    "cost_usd": Decimal("0.25"),
    "rate_per_minute": Decimal("12.5"),
    "submitted_at": START,
    "ended_at": START + timedelta(seconds=90),
}
PLAN: dict[str, Any] = {
    "provider": "local",
    "embedding_model": "m",
    "params": {"k": 4, "filter": {"page": 3}},
    "models": {"answer_generator": "a"},
    "prompts": {},
}


def test_the_facts() -> None:
    source = {"file": "q.xlsx", "sheet": "S", "header_row": None, "notes": ["one", "two"]}
    found = summary_of(PROGRESS, {"plan": PLAN, "source": source})
    assert [label for label, value in found if value is None] == [
        *("Batch", "Questions", "Cost and time", "Plan", "Source")
    ]
    facts = dict(found)
    assert (facts["answered"], facts["gave up"], facts["cost in USD"]) == (3, 1, 0.25)
    assert facts["questions a minute"] == 12.5 and facts["seconds from submission to end"] == 90
    assert facts["submitted at"] == "2026-03-01 12:00:00+00:00"
    assert (facts["k"], facts["filter"], facts["model of answer_generator"]) == (4, '{"page": 3}', "a")
    assert facts["sheet"] == "S" and [value for label, value in found if label == "note"] == ["one", "two"]


def test_a_batch_that_is_open() -> None:
    open_ = PROGRESS | {"ended_at": None, "rate_per_minute": None}
    facts = dict(summary_of(open_, {"plan": PLAN, "source": {}}))
    assert "ended at" not in facts and "questions a minute" not in facts
