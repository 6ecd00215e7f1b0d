"""Text is cleaned once, where it enters.

Postgres refuses NUL in text and jsonb, and lone surrogates cannot be encoded as UTF-8 at all. Both are
replaced by U+FFFD, so that a reader can see that something stood there.
"""

import re
import unicodedata
from collections.abc import Container
from typing import Any

MAX_TEXT = 16 * 2**20  # characters of a line or cell; keeps memory bounded when one never ends
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_REFUSED = re.compile("[\x00\ud800-\udfff]")
_SPACE = re.compile(r"\s+")


def clean_text(text: str) -> str:
    """`text` with NUL bytes and lone surrogates replaced by U+FFFD; otherwise unchanged."""
    return _REFUSED.sub(REPLACEMENT, text)


def needs_cleaning(text: str) -> bool:
    return _REFUSED.search(text) is not None


def clean_json(value: Any) -> Any:
    """A JSON value whose every string, keys included, is clean."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {clean_text(str(key)): clean_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean_json(item) for item in value]
    return value


def one_line(text: str, width: int | None = None) -> str:
    """`text` with runs of white space folded to one blank, cut to `width` characters with an ellipsis."""
    folded = _SPACE.sub(" ", text).strip()
    if width is not None and len(folded) > width:
        return folded[: width - 1].rstrip() + "…"
    return folded


def counted(count: int, what: str) -> str:
    """`1 file`, `2,000 files`, `2 batches`."""
    return f"{count:,} {what}{('es' if what.endswith('ch') else 's') * (count != 1)}"


def question_key(question: str) -> str:
    """What makes two questions of a batch the same: NFC, white space folded. Case counts."""
    return one_line(unicodedata.normalize("NFC", question))


def free_name(name: str, taken: Container[str]) -> str:
    """`name`, with the prefix `cragline_` as often as it takes to be free."""
    while name in taken:
        name = f"cragline_{name}"
    return name
