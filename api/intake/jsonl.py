"""JSON Lines: an object with a question field on each line, or a plain JSON string."""

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from api.intake.encoding import Encoding
from api.intake.lines import Lines, as_question, open_lines
from api.intake.model import InputRow
from shared.clean import clean_json, clean_text, one_line
from shared.errors import IntakeError

_SHOWN = 60  # characters of a key or number in a note
# Escapes whose characters Postgres refuses; a pair of surrogates is fine, so the value decides.
_SUSPECT = re.compile(r"\\u(?:0000|[dD][89a-fA-F])")


class Decoder:
    """Parses JSON, and notes what the value no longer says.

    JSON has no NaN and no infinity, and neither has Postgres, so they become null. An object has a key
    once, and a number with a point is a double.
    """

    def __init__(self) -> None:
        self._notes: dict[str, None] = {}  # each once, in the order in which they came up
        self._decoder = json.JSONDecoder(
            parse_constant=self._null, parse_float=self._float, object_pairs_hook=self._object
        )

    def _null(self, _: str) -> None:
        self._notes["NaN or infinity replaced by null"] = None

    def _float(self, text: str) -> float | None:
        value = float(text)
        if math.isinf(value):
            self._null(text)
            return None
        if not _same_number(text, kept := repr(value)):
            self._notes[f"the number {one_line(text, _SHOWN)} is kept as {kept}"] = None
        return value

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        if len(value) != len(pairs):
            for key, count in Counter(key for key, _ in pairs).items():
                if count > 1:
                    times = "twice" if count == 2 else f"{count} times"
                    shown = one_line(clean_text(key), _SHOWN)
                    self._notes[f"the key '{shown}' stands {times}; the last is taken"] = None
        return value

    def decode(self, text: str) -> tuple[Any, list[str]]:
        """The clean value of `text`, and notes on what was changed."""
        self._notes = {}
        value: Any = self._decoder.decode(text)
        notes = list(self._notes)
        if _SUSPECT.search(text) and (clean := clean_json(value)) != value:
            notes.append("NUL or lone surrogate replaced")
            value = clean
        return value, notes


def _same_number(text: str, kept: str) -> bool:
    if text == kept:
        return True
    try:
        return Decimal(text) == Decimal(kept)
    except InvalidOperation:  # an exponent beyond every bound, on a number that is kept as zero
        return not re.search("[1-9]", re.split("[eE]", text)[0])


def _values(lines: Lines, path: Path) -> Iterator[tuple[int, Any, list[str]]]:
    """(line, value, notes) of every line that is not blank."""
    decoder = Decoder()
    for line in lines:
        _, notes = lines.take()
        if not line.strip():
            continue
        place = f"{path}: line {lines.number}"
        try:
            value, more = decoder.decode(line)
        except json.JSONDecodeError as error:
            hint = " One object a line is needed, not one over several lines." if lines.number == 1 else ""
            raise IntakeError(
                f"{place}: not JSON ({error.msg} at character {error.colno}). Mend or remove this line.{hint}"
            ) from None
        except (ValueError, RecursionError):
            raise IntakeError(
                f"{place}: JSON nested too deeply, or a number of too many digits. Mend or remove this line."
            ) from None
        if isinstance(value, list):
            raise IntakeError(
                f'{place}: a JSON list. Write one object a line, such as {{"question": "..."}}.'
            )
        yield lines.number, value, notes + more


def first_value(path: Path, encoding: Encoding) -> dict[str, Any] | str:
    """The first object or string. Raises IntakeError when there is none."""
    with open_lines(path, encoding, universal=True) as lines:
        for line, value, _ in _values(lines, path):
            if isinstance(value, str) or (isinstance(value, dict) and value):
                return value
            raise IntakeError(f"{path}: line {line}: neither an object with fields nor a string.")
    raise IntakeError(f"{path}: the file holds nothing but blank lines. It needs at least one question.")


def jsonl_rows(path: Path, encoding: Encoding, field: str | None) -> Iterator[InputRow]:
    """A row for each line that is not blank. `field` None: the lines are strings."""
    with open_lines(path, encoding, universal=True) as lines:
        for number, (line, value, notes) in enumerate(_values(lines, path), start=1):
            place = f"{path}: row {number} (line {line})"
            yield (
                string_row(value, number, place, notes)
                if field is None
                else object_row(value, number, field, place, notes)
            )


def string_row(value: Any, number: int, place: str, notes: list[str]) -> InputRow:
    """The row of a JSON string. Raises IntakeError, naming `place`, for anything else."""
    if not isinstance(value, str):
        raise IntakeError(f"{place}: not a string, as those before it are. Mend or remove it.")
    return InputRow(number, as_question(value), [value], notes)


def object_row(value: Any, number: int, field: str, place: str, notes: list[str]) -> InputRow:
    """The row of a JSON object. Raises IntakeError, naming `place`, for anything else."""
    if not isinstance(value, dict):
        raise IntakeError(f"{place}: not an object, as those before it are. Mend or remove it.")
    return InputRow(number, _question(value, field, place, notes), value, notes)


def _question(value: dict[str, Any], field: str, place: str, notes: list[str]) -> str | None:
    """The question of one object; adds to `notes`."""
    if field not in value:
        notes.append(f'no field "{field}"')
        return None
    question = value[field]
    if question is None:
        return None
    if isinstance(question, str):
        return as_question(question)
    if isinstance(question, (int, float)) and not isinstance(question, bool):
        notes.append("the question is a number")
        return str(question)
    kind = {list: "a list", dict: "an object", bool: "true or false"}[type(question)]
    raise IntakeError(
        f'{place}: "{field}" is {kind}, not text. Mend it, or name another field with --column.'
    )
