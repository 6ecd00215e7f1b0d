"""A .json file: a list of objects or strings, or an object that holds one; comments and trailing commas
are passed over, because people write them."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from api.intake.columns import choose, evidence
from api.intake.encoding import Encoding
from api.intake.jsonl import Decoder, object_row, string_row
from api.intake.model import InputRow, IntakeReport
from shared.errors import IntakeError, UsageError

MAX_BYTES = 128 * 2**20  # it is parsed as a whole, and takes about six times its size in memory
_DEPTH = 3  # objects within objects in which the list is looked for
_SAMPLE = 100
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TRAILING = re.compile(r'"(?:[^"\\]|\\.)*"|,(?=\s*[\]}])', re.DOTALL)
_NOT_SPACE = re.compile(r"[^\n]")


def without_comments(text: str) -> str:
    """`text` with comments and trailing commas blanked out, every other character at its place."""

    def blank(match: "re.Match[str]") -> str:
        return match[0] if match[0].startswith('"') else _NOT_SPACE.sub(" ", match[0])

    return _TRAILING.sub(blank, _TOKEN.sub(blank, text))


def open_json(
    path: Path, encoding: Encoding, column: str | None
) -> tuple[IntakeReport, list[Any], str | None]:
    """The report, the items, and the field that holds the question (None: strings)."""
    value, notes = _load(path, encoding)
    where, items = _find_list(path, value, column)
    said = [f'The questions are in the list "{where}".'] if where else []
    said += notes + ([encoding.note] if encoding.note else [])
    if isinstance(items[0], str):
        if column is not None:
            raise UsageError(f"{path}: the list holds plain strings, so there is no column. Omit --column.")
        report = IntakeReport(
            path.name, "json", encoding.name, None, ["question"], ["question"], "question", False, said
        )
        return report, items, None
    if not isinstance(items[0], dict) or not items[0]:
        raise IntakeError(f"{path}: item 1 of the list is neither an object with fields nor a string.")
    keys = list(dict.fromkeys(key for item in items[:_SAMPLE] if isinstance(item, dict) for key in item))
    choice = choose(str(path), keys, column, _longest(items, keys))
    field = keys[choice.index]
    said += [choice.note] if choice.note else []
    report = IntakeReport(path.name, "json", encoding.name, None, keys, keys, field, choice.guessed, said)
    return report, items, field


def json_rows(path: Path, items: list[Any], field: str | None) -> Iterator[InputRow]:
    """A row for each item of the list."""
    for number, item in enumerate(items, start=1):
        place, notes = f"{path}: item {number}", list[str]()
        yield (
            string_row(item, number, place, notes)
            if field is None
            else object_row(item, number, field, place, notes)
        )


def _load(path: Path, encoding: Encoding) -> tuple[Any, list[str]]:
    if path.stat().st_size > MAX_BYTES:
        raise IntakeError(
            f"{path}: a .json file is read as a whole, and this has more than {MAX_BYTES:,} bytes. "
            "Write one object a line, and name the file .jsonl."
        )
    text = path.read_bytes()[encoding.mark :].decode(encoding.codec, "replace")
    try:
        return Decoder().decode(text)
    except (ValueError, RecursionError):
        plain = without_comments(text)
    try:
        value, more = Decoder().decode(plain)
    except json.JSONDecodeError as error:
        hint = " One object a line is a .jsonl file." if "Extra data" in error.msg else ""
        raise IntakeError(
            f"{path}: not JSON ({error.msg} at line {error.lineno}, character {error.colno}). Mend it.{hint}"
        ) from None
    except (ValueError, RecursionError):
        raise IntakeError(
            f"{path}: JSON nested too deeply, or a number of too many digits. Mend it."
        ) from None
    return value, [*more, "Comments or trailing commas were passed over."]


def _find_list(path: Path, value: Any, column: str | None) -> tuple[str, list[Any]]:
    """The list of questions in `value`, with the way to it; "" when it is the value itself."""
    found = list(_lists(value, "", 0))
    if not found:
        raise IntakeError(
            f"{path}: there is no list of objects or strings in it. "
            'Write a list such as [{"question": "..."}], or one object a line in a .jsonl file.'
        )
    if len(found) > 1:
        speaking = [(where, items) for where, items in found if _speaks(where, items, column)]
        if len(speaking) != 1:
            names = ", ".join(f'"{where}"' for where, _ in (speaking or found)[:10])
            raise IntakeError(
                f"{path}: several lists could hold the questions: {names}. Leave one of them in the file."
            )
        found = speaking
    return found[0]


def _lists(value: Any, where: str, depth: int) -> Iterator[tuple[str, list[Any]]]:
    if isinstance(value, list):
        if value and isinstance(value[0], (dict, str)):
            yield where, value
    elif isinstance(value, dict) and depth < _DEPTH:
        for key, item in value.items():
            yield from _lists(item, f"{where}.{key}" if where else key, depth + 1)


def _speaks(where: str, items: list[Any], column: str | None) -> bool:
    if isinstance(items[0], str):
        return column is None and evidence(where.rpartition(".")[2]) is not None
    if column is not None:
        return column in items[0]
    return any(evidence(key) is not None for key in items[0])


def _longest(items: list[Any], keys: list[str]) -> str | None:
    """The key with the most text in the first items."""
    sizes = dict.fromkeys(keys, 0)
    for item in items[:_SAMPLE]:
        for key, value in item.items() if isinstance(item, dict) else ():
            sizes[key] += len(value) if isinstance(value, str) else 0
    return max(sizes, key=lambda key: sizes[key]) if any(sizes.values()) else None
