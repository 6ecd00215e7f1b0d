"""How commands speak: tables for people, JSON for scripts. Text from files is escaped on its way out."""

import json
import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, TypeGuard

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from shared.clean import clean_text, one_line
from shared.errors import NotFound

CELL = 60  # characters of a text shown in a table
_BIGINT = 2**63  # a number beyond it is no row's, and Postgres would not even look
_HEX = "\\x"  # how Postgres writes a bytea

WIDE = 200  # columns where there is no terminal whose width could be asked


def in_bigint(kind: str) -> Callable[[int], int]:
    """A check of an argument that is the number of a batch or run. Raises NotFound."""

    def check(number: int) -> int:
        if not -_BIGINT <= number < _BIGINT:
            raise NotFound(f"There is no {kind} {number}.")
        return number

    return check


def address(url: str) -> str:
    """Scheme, host, port and path of a URL, or of what was meant as one. User, password and query are left
    out: each of them may be a secret."""
    scheme, mark, rest = url.partition("://")
    scheme, rest = (scheme + mark, rest) if mark else ("", url)
    return scheme + re.split(r"[?#]", rest.rpartition("@")[2])[0].rstrip("/")


def console() -> Console:
    out = Console()
    return out if out.is_terminal else Console(width=WIDE)


def plain(value: Any) -> Any:
    """`value` as a JSON value: times in ISO 8601, numbers as numbers."""
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, (Decimal, float)) and not math.isfinite(value):
        return str(value)  # JSON has no NaN and no infinity
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _HEX + bytes(value).hex()
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (str, int, float, bool)) or value is None:
        return value
    return str(value)


def csv_cell(value: Any) -> Any:
    """`value` for a CSV file: nested values and truth values as JSON, NULL as nothing."""
    shown = plain(value)
    return json.dumps(shown, ensure_ascii=False) if isinstance(shown, (dict, list, bool)) else shown


def print_json(value: Any) -> None:
    sys.stdout.write(clean_text(json.dumps(plain(value), ensure_ascii=False)) + "\n")


def printable(text: str) -> str:
    """`text` without control characters but line ends: an escape sequence in a file's name or in an answer
    would steer the terminal."""
    return "".join(c if c.isprintable() or c == "\n" else " " for c in clean_text(text))


def cell(value: Any, width: int | None = CELL) -> Text:
    """A value for a table: one line, never read as markup, control characters taken out."""
    if value is None:
        return Text("")
    if isinstance(value, datetime):
        shown = value.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    elif isinstance(value, (dict, list)):
        shown = _names(value) if _is_flat(value) else json.dumps(plain(value), ensure_ascii=False)
    elif isinstance(value, bool):
        shown = str(value).lower()
    elif isinstance(value, float):
        shown = f"{value:.3f}".rstrip("0").rstrip(".")
    elif isinstance(value, (bytes, bytearray, memoryview)):
        shown = str(plain(value))
    elif isinstance(value, Decimal):
        shown = f"{value.normalize():f}"
    else:
        shown = str(value)
    return Text(one_line(printable(shown), width))


def _is_flat(value: Any) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _names(values: list[str]) -> str:
    """`a, b, b, b` as `a, b x3`: a fan-out leads to one node many times."""
    return ", ".join(name if count == 1 else f"{name} x{count}" for name, count in Counter(values).items())


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    title: str | None = None,
    width: int | None = CELL,
) -> Table:
    """Columns of numbers stand to the right, as in every ledger."""
    made = Table(
        title=title, title_justify="left", header_style="bold", box=SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    kept = list(rows)
    for position, column in enumerate(columns):
        numbers = bool(kept) and all(_is_number(row[position]) for row in kept)
        made.add_column(Text(column), overflow="fold", justify="right" if numbers else "left")
    for row in kept:
        made.add_row(*(cell(value, width) for value in row))
    return made


def print_rows(
    out: Console, columns: Sequence[str], rows: Sequence[Sequence[Any]], *, width: int | None = CELL
) -> None:
    """A table; or, where so many columns would be squeezed to a few letters each, one record after the other."""
    if rows and sum(_least_width(rows, n, name) for n, name in enumerate(columns)) > out.width:
        for number, row in enumerate(rows, 1):
            out.print(table(("", f"row {number}"), list(zip(columns, row, strict=True)), width=width))
        return
    out.print(table(columns, rows, width=width))


def _least_width(rows: Sequence[Sequence[Any]], position: int, name: str) -> int:
    """What a column needs to be read with ease: its name, and up to 12 characters of its longest value."""
    longest = max(len(cell(row[position]).plain) for row in rows)
    return max(len(name), min(longest, 12)) + 2


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, (int, float, Decimal)) and not isinstance(value, bool))


def duration(seconds: float | None) -> str:
    """`2 h 05 min`, `3 min 10 s`, `45 s`."""
    if seconds is None:
        return "?"
    whole = int(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    if whole >= 60:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole} s"
