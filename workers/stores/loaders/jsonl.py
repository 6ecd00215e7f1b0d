"""JSONL: one record a line, `{"text": ..., "id": ..., "title": ...}`; other plain fields are kept to filter by.

The file is read twice, line by line: first it is checked from end to end, so that a bad line near the
end does not leave half of the file behind, then it is handed out.
"""

import json
import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shared.clean import clean_text, one_line
from shared.filters import MAX_VALUE, is_field_name
from workers.stores.loaders.base import LoadedDocument, LoadError, Scalar, detect_encoding, tidy

MAX_LINE = 16 * 1024 * 1024  # characters
MAX_FIELDS = 32  # of a record
MAX_LEFT_OUT = 100  # names remembered for the note
_OWN = ("id", "title", "text")  # these have a place of their own


def load_jsonl(path: Path, notes: list[str]) -> Iterator[LoadedDocument]:
    """Records in order; source = `path#id`, or `path#<line>` where there is no id.

    Raises LoadError naming the line: no JSON, no object, no `text`. Records without text are left out
    and counted in a note.
    """
    codec = detect_encoding(path, notes)
    for _ in _records(path, codec):
        pass
    seen: set[str] = set()
    counts: Counter[str] = Counter()
    left_out: Counter[str] = Counter()  # fields that cannot be filtered by
    for number, record in _records(path, codec):
        if not record["text"].strip():
            counts["empty"] += 1
            continue
        name = _name(record.get("id")) or str(number)
        if name in seen:
            counts["twice"] += 1
            name = f"{name}@{number}"
        seen.add(name)
        title = record.get("title")
        yield LoadedDocument(
            source=f"{path}#{name}",
            title=one_line(tidy(title, notes), 300)
            if isinstance(title, str) and title.strip()
            else path.stem,
            text=tidy(record["text"], notes),
            page=None,
            path=str(path),
            fields=_fields(record, left_out),
        )
    if counts["empty"]:
        notes.append(f"{counts['empty']} records without text were left out")
    if counts["twice"]:
        notes.append(f"{counts['twice']} records repeat an earlier id; their line number was added to it")
    if left_out:
        names = ", ".join(name for name, _ in left_out.most_common(8))
        notes.append(f"fields that cannot be filtered by, and are not kept: {names}")


def _records(path: Path, codec: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """(1-based line, record) of every line that is not blank."""
    with path.open(encoding=codec, errors="replace", newline=None) as file:
        number = 0
        while line := file.readline(MAX_LINE + 1):
            number += 1
            if len(line) > MAX_LINE:
                raise LoadError(f"{path}, line {number}: longer than {MAX_LINE // 2**20} million characters.")
            if line.strip():
                yield number, _record(path, number, line)


def _record(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else type(error).__name__
        raise LoadError(
            f"{path}, line {number}: not JSON ({reason}). One object a line is expected."
        ) from None
    if not isinstance(record, dict):
        raise LoadError(f'{path}, line {number}: an object is expected, such as {{"text": "..."}}.')
    if not isinstance(record.get("text"), str):
        fields = ", ".join(one_line(clean_text(str(key)), 30) for key in list(record)[:8]) or "none"
        raise LoadError(f"{path}, line {number}: no `text` string in the object (its fields: {fields}).")
    return record


def _fields(record: dict[str, Any], left_out: Counter[str]) -> dict[str, Scalar]:
    """The fields to filter by: short names, plain values. Of the others, the names are counted."""
    kept: dict[str, Scalar] = {}
    for name, value in record.items():
        if name in _OWN or value is None:
            continue
        scalar = _scalar(value)
        if scalar is None or not is_field_name(name) or len(kept) >= MAX_FIELDS:
            if len(left_out) < MAX_LEFT_OUT:
                left_out[one_line(clean_text(name), 30)] += 1
        else:
            kept[name] = scalar
    return kept


def _scalar(value: object) -> Scalar | None:
    """None for what Qdrant could not compare: lists, objects, long texts, numbers out of range."""
    if isinstance(value, str):
        return clean_text(value).strip() if len(value) <= MAX_VALUE else None
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return None


def _name(value: object) -> str:
    """The id as it is shown in a source; empty when there is none."""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        return ""
    return one_line(clean_text(str(value)), 300)
