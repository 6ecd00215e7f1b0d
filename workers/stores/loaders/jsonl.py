"""JSONL: one record a line, `{"text": ..., "id": ..., "title": ...}`; other fields are ignored.

The file is read twice, line by line: first it is checked from end to end, so that a bad line near the
end does not leave half of the file behind, then it is handed out.
"""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shared.clean import clean_text, one_line
from workers.stores.loaders.base import LoadedDocument, LoadError, detect_encoding, tidy

MAX_LINE = 16 * 1024 * 1024  # characters


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
        )
    if counts["empty"]:
        notes.append(f"{counts['empty']} records without text were left out")
    if counts["twice"]:
        notes.append(f"{counts['twice']} records repeat an earlier id; their line number was added to it")


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


def _name(value: object) -> str:
    """The id as it is shown in a source; empty when there is none."""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        return ""
    return one_line(clean_text(str(value)), 300)
