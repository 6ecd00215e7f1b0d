"""What a file of questions would become, before anything is stored."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from api.intake.model import InputRow, QuestionFile
from shared.clean import question_key

SHOWN = 5
_COUNTED = 1_000_000  # distinct questions that are told apart; beyond, the count of repeats is a lower bound


def preview(questions: QuestionFile, rows_read: Iterator[InputRow] | None = None) -> dict[str, Any]:
    """The report (JSON value) with counts of rows, and the first questions.

    Reads the file to its end, or `rows_read`, its rows as far as they are wanted. Raises IntakeError for a row
    that cannot be read.
    """
    seen: set[int] = set()
    rows = empty = repeated = noted = 0
    first: list[dict[str, Any]] = []
    for row in questions.rows() if rows_read is None else rows_read:
        rows += 1
        noted += bool(row.notes)
        if row.question is None:
            empty += 1
            continue
        key = hash(question_key(row.question))
        repeated += key in seen
        if len(seen) < _COUNTED:
            seen.add(key)
        if len(first) < SHOWN:
            first.append({"row": row.number, "question": row.question, "notes": row.notes})
    counts = {"rows": rows, "empty_rows": empty, "duplicate_rows": repeated, "rows_with_notes": noted}
    return asdict(questions.report) | counts | {"questions": rows - empty - repeated, "first": first}
