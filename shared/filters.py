"""`--filter key=value`: which passages a search may find, as it is typed and as a plan keeps it.

Several keys must all match; several values of one key are alternatives. Values are compared whole.
"""

import re
from collections.abc import Sequence

from shared.clean import clean_text, one_line
from shared.errors import UsageError

Filters = dict[str, list[str]]  # key -> the values it may have

KEYS = ("title", "source", "path", "page", "language")
FIELDS = "fields."  # the fields of a JSONL record are `fields.<name>`
MAX_VALUES = 100
MAX_VALUE = 1000  # characters
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")  # what every version of Qdrant takes as a part of a payload key
_PAGE = re.compile(r"[1-9][0-9]{0,8}")


def is_field_name(name: str) -> bool:
    """Whether a record's field of this name can be kept and filtered by."""
    return _NAME.fullmatch(name) is not None


def parse_filters(items: Sequence[str]) -> Filters:
    """`["page=3", "fields.lang=nl", "page=4"]` as a dict. Raises UsageError naming what is wrong."""
    found: Filters = {}
    for item in items:
        key, equals, value = item.partition("=")
        key, value = key.strip(), clean_text(value.strip())
        shown = one_line(clean_text(item), 80)
        if not equals or not key:
            raise UsageError(f"--filter takes key=value, not {shown!r}.")
        _check(key, value, shown)
        values = found.setdefault(key, [])
        if value not in values:
            values.append(value)
    if sum(map(len, found.values())) > MAX_VALUES:
        raise UsageError(f"At most {MAX_VALUES} values can be filtered by at once.")
    return found


def _check(key: str, value: str, shown: str) -> None:
    if key not in KEYS and not (key.startswith(FIELDS) and is_field_name(key.removeprefix(FIELDS))):
        raise UsageError(
            f"--filter {shown!r}: there is nothing of that name to filter by. There are: {', '.join(KEYS)}, "
            "and fields.NAME for a field of a JSONL record (letters, digits, '_' and '-')."
        )
    if not value:
        raise UsageError(f"--filter {shown!r}: the value is empty.")
    if len(value) > MAX_VALUE:
        raise UsageError(f"--filter {shown!r}: the value is longer than {MAX_VALUE} characters.")
    if key == "page" and not _PAGE.fullmatch(value):
        raise UsageError(f"--filter {shown!r}: a page is a whole number, counted from 1.")


def as_text(filters: Filters) -> str:
    """For a reader: `page=3|4, fields.lang=nl`."""
    return ", ".join(f"{key}={'|'.join(values)}" for key, values in filters.items())
