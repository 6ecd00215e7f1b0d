"""What a cell says, as text: numbers as they are stored, dates in ISO form."""

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import Enum, auto

from shared.clean import clean_text

_ESCAPED = re.compile("_x([0-9A-Fa-f]{4})_")
_LITERAL = re.compile(r'"[^"]*"|\\.|_.|\*.')  # parts of a number format that are shown as they stand
_ELAPSED = re.compile(r"\[(h+|m+|s+)\]", re.IGNORECASE)
_BRACKETS = re.compile(r"\[[^\]]*\]")  # colours, conditions, locales
_CELL = re.compile(r"([A-Za-z]{1,3})(\d{1,7})")
MAX_COLUMNS, MAX_ROWS = 16_384, 1_048_576
_LAST_SERIAL = 2_958_466  # the day after 9999-12-31


class Shown(Enum):
    """How a number format shows a number."""

    NUMBER = auto()
    DATE = auto()
    TIME = auto()
    BOTH = auto()
    ELAPSED = auto()


_BUILT_IN = dict.fromkeys((14, 15, 16, 17, *range(27, 32), 36, *range(50, 55), 57, 58), Shown.DATE)
_BUILT_IN |= dict.fromkeys((18, 19, 20, 21, 32, 33, 34, 35, 45, 47, 55, 56), Shown.TIME)
_BUILT_IN |= {22: Shown.BOTH, 46: Shown.ELAPSED}


def shown_by(number: int, formats: dict[int, str]) -> Shown:
    """How the number format `number` shows a number; `formats` holds those that the workbook defines."""
    if number not in formats:
        return _BUILT_IN.get(number, Shown.NUMBER)
    code = _LITERAL.sub("", formats[number][:1000]).split(";")[0]
    if _ELAPSED.search(code):
        return Shown.ELAPSED
    code = _BRACKETS.sub("", code).lower()
    if code.strip() == "general":
        return Shown.NUMBER
    date, time = bool(set(code) & set("ydgb")), bool(set(code) & set("hs"))
    if not date and not time:
        return Shown.DATE if "m" in code else Shown.NUMBER
    return (Shown.BOTH if time else Shown.DATE) if date else Shown.TIME


def number_text(raw: str, shown: Shown, date_1904: bool) -> str:
    """A stored number as text: the shortest that is the same number, or ISO for a date or time."""
    try:
        value = float(raw)
    except ValueError:
        return raw
    if shown is Shown.NUMBER or not 0 <= value < _LAST_SERIAL:
        return _plain(raw, value)
    if shown is Shown.ELAPSED:
        seconds = round(value * 86_400)
        return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return _moment(value, shown, date_1904) or _plain(raw, value)


def _plain(raw: str, value: float) -> str:
    if value == 0:
        return "0"
    if not value.is_integer():  # not a number, or infinite, is no integer either
        return repr(value)
    if raw.lstrip("-").isdigit():
        return raw
    return str(int(value)) if abs(value) < 1e15 else repr(value)


def _moment(value: float, shown: Shown, date_1904: bool) -> str | None:
    if date_1904:
        start = datetime(1904, 1, 1)
    else:  # Lotus held 1900 for a leap year, and its serial 60, a day that never was, is still there
        if 60 <= value < 61:
            return "1900-02-29"
        start = datetime(1899, 12, 31) if value < 60 else datetime(1899, 12, 30)
    try:
        moment = start + timedelta(seconds=round(value * 86_400))
    except OverflowError:
        return None
    if shown is Shown.TIME and value < 1:
        return moment.strftime("%H:%M:%S")
    if shown is Shown.DATE and value.is_integer():
        return moment.strftime("%Y-%m-%d")
    return moment.isoformat(" ")


def unescape(text: str) -> str:
    """`text` with its `_xHHHH_` escapes undone, and clean."""
    if "_x" in text:
        text = _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text)
        # An emoji may be escaped in two halves.
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return clean_text(text)


def natural(text: str | None) -> int | None:
    """A number of an attribute; None for anything that is not a few plain digits."""
    return int(text) if text and len(text) < 10 and text.isascii() and text.isdigit() else None


def letters(column: int) -> str:
    """The letters of a 1-based column: 1 is A, 28 is AB."""
    result = ""
    while column:
        column, rest = divmod(column - 1, 26)
        result = chr(65 + rest) + result
    return result


def position(reference: str) -> tuple[int, int] | None:
    """(row, column) of a reference such as B7, 1-based; None for anything that no sheet holds."""
    match = _CELL.fullmatch(reference.replace("$", ""))
    if match is None:
        return None
    column = 0
    for letter in match[1].upper():
        column = column * 26 + ord(letter) - 64
    row = int(match[2])
    return (row, column) if column <= MAX_COLUMNS and 0 < row <= MAX_ROWS else None


def area(reference: str) -> tuple[int, int, int, int] | None:
    """(first row, first column, last row, last column) of a reference such as A1:D2 or A1."""
    first, _, last = reference.partition(":")
    start, stop = position(first), position(last or first)
    if start is None or stop is None:
        return None
    return min(start[0], stop[0]), min(start[1], stop[1]), max(start[0], stop[0]), max(start[1], stop[1])


def joined(columns: Iterable[int], most: int = 8) -> str:
    """Columns by their letters: "B, C and 4 more"."""
    names = [letters(column) for column in columns]
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
