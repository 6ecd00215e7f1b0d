"""Reading what models write when they were asked for JSON: fenced, wrapped in prose, with loose types."""

import json
import math
import re
from typing import Any

_LEADING_VERDICT = re.compile(r"[\s\W_]*(yes|no|true|false)\b", re.IGNORECASE)
_NAMED_VERDICT = re.compile(
    r"\b(?:binary_score|relevant|answer|verdict|grade)\W{1,6}(yes|no|true|false)\b", re.IGNORECASE
)
_YES = frozenset({"yes", "y", "true", "1", "relevant"})
_NO = frozenset({"no", "n", "false", "0", "not relevant", "not_relevant", "irrelevant"})
_MAX_CHARS = 200_000  # of hostile output; the answers wanted are a few hundred characters
_MAX_TRIES = 50  # opening braces tried


def json_object(text: str, wanted: str) -> dict[str, Any] | None:
    """The first JSON object in `text` that has the key `wanted`, wherever it stands; else None."""
    text = text[:_MAX_CHARS]
    decoder = json.JSONDecoder(strict=False)  # a raw newline inside a string is a common slip
    at = -1
    for _ in range(_MAX_TRIES):
        at = text.find("{", at + 1)
        if at < 0:
            return None
        try:
            value, _end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and wanted in value:
            return value
    return None


def yes_no(value: Any) -> bool | None:
    """True or False for booleans, 1 and 0, and the words for them in any case; None for anything else."""
    if isinstance(value, bool):
        return value
    if isinstance(value, (int, float)) and value in (0, 1):
        return bool(value)
    if isinstance(value, str):
        word = value.strip().strip(".!\"'`*").strip().lower()
        if word in _YES:
            return True
        if word in _NO:
            return False
    return None


def yes_no_in_prose(text: str) -> bool | None:
    """The verdict of a text that begins with yes or no, or names one (`relevant: yes`). None if both occur.

    A "no" somewhere in a sentence is not a verdict.
    """
    leading = _LEADING_VERDICT.match(text)
    if leading:
        return yes_no(leading.group(1))
    named = {yes_no(word) for word in _NAMED_VERDICT.findall(text)}
    return named.pop() if len(named) == 1 else None


def unit_score(value: Any) -> float | None:
    """A number in 0..1, also written as text; None for anything else, NaN and out of range included."""
    if isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and 0.0 <= number <= 1.0 else None


def whole_numbers(value: Any) -> list[int]:
    """The whole numbers in a list such as [1, "2", "[3]", 4.0] or a text such as "1, 3", each once."""
    items = value if isinstance(value, list) else [value]
    found: list[int] = []
    for item in items[:1000]:
        if isinstance(item, bool):
            continue
        if isinstance(item, int):
            found.append(item)
        elif isinstance(item, float) and item.is_integer():
            found.append(int(item))
        elif isinstance(item, str):
            found += [int(digits) for digits in re.findall(r"\d{1,6}", item[:1000])]
    return list(dict.fromkeys(found))
