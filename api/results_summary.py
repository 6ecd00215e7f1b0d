"""What the last sheet of a workbook of results says of the batch."""

import json
from datetime import datetime
from typing import Any

_COUNTS = ("rows", "empty_rows", "duplicate_rows", "submitted", "answered", "gave_up", "failed", "cancelled")
_OPEN = ("pending", "running")
_TIMES = ("submitted_at", "ended_at")
_SOURCE = ("file", "format", "encoding", "sheet", "header_row", "question_column")


def summary_of(progress: dict[str, Any], details: dict[str, Any]) -> list[tuple[str, Any]]:
    """(label, value) pairs of a row of `batch_progress` and of the batch's plan and source, as
    `write_xlsx` takes them; a heading has the value None."""
    plan, source = details["plan"], details["source"]
    found: list[tuple[str, Any]] = [("Batch", None)]
    found += [(key, progress[key]) for key in ("batch_id", "name", "pipeline", "collection", "status")]
    found += [("Questions", None)]
    found += [(key.replace("_", " "), progress[key]) for key in (*_COUNTS, *_OPEN)]
    found += [("Cost and time", None), ("cost in USD", float(progress["cost_usd"] or 0))]
    rate = progress["rate_per_minute"]
    found += [("questions a minute", float(rate))] if rate is not None else []
    found += [(key.replace("_", " "), _time(progress[key])) for key in _TIMES if progress[key] is not None]
    if progress["ended_at"] is not None:
        seconds = (progress["ended_at"] - progress["submitted_at"]).total_seconds()
        found.append(("seconds from submission to end", round(seconds, 1)))
    found += [("Plan", None), ("provider", plan["provider"]), ("embeddings", plan["embedding_model"])]
    found += [(key, _text(value)) for key, value in plan["params"].items()]
    found += [(f"model of {role}", model) for role, model in plan["models"].items()]
    found += [(f"prompt of {role}", version) for role, version in plan["prompts"].items()]
    found += [("Source", None)]
    found += [(key.replace("_", " "), source[key]) for key in _SOURCE if source.get(key) is not None]
    return found + [("note", note) for note in source.get("notes") or []]


def _time(moment: datetime) -> str:
    return moment.isoformat(" ", timespec="seconds")


def _text(value: Any) -> Any:
    return value if isinstance(value, (str, int, float)) else json.dumps(value, ensure_ascii=False)
