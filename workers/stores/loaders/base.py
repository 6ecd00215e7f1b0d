"""What every loader shares: the record it yields, the error it raises, and how bytes become text."""

import codecs
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shared.clean import clean_text
from shared.errors import CraglineError

MAX_WHOLE_FILE = 50 * 1024 * 1024  # bytes; JSONL is streamed and has no such limit
Scalar = str | int | float | bool
_BLOCK = 1 << 20
_CONTROLS = bytes(byte for byte in range(32) if byte not in b"\t\n\r\f\x1b")
_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16: its mark begins with UTF-16's
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


class LoadError(CraglineError):
    """A file cannot be turned into documents; names the file, where in it, and the remedy."""


@dataclass(frozen=True)
class LoadedDocument:
    """A text with its origin. The pages of a PDF share their `source`; `page` is 1-based, else None."""

    source: str  # what it is known by: a path, `path#id` of a record, a URL, `repository:path`
    title: str
    text: str
    page: int | None
    path: str
    first_line: int | None = None  # 1-based line of the file that `text` begins at; None: it has no lines
    language: str | None = None  # as the document itself says (`en`), or what it is programmed in
    description: str | None = None
    markdown: bool = False  # cut at its headings
    code: str | None = None  # cut as code of this language: a value of langchain-text-splitters' Language
    commit: str | None = None  # of the repository it was read from
    cited: str | None = None  # how an answer names it, where that is not `source`
    fields: Mapping[str, Scalar] = field(default_factory=dict)  # of a JSONL record: to filter by


def check_size(path: Path) -> None:
    """Raises LoadError for a file that would have to be held in memory whole and is too big for it."""
    size = path.stat().st_size
    if size > MAX_WHOLE_FILE:
        raise LoadError(
            f"{path}: {size / 1e6:.0f} MB is more than the {MAX_WHOLE_FILE / 1e6:.0f} MB a file may have. "
            "Split it, or turn it into JSONL, which has no limit."
        )


def detect_encoding(path: Path, notes: list[str]) -> str:
    """The codec to open `path` with: by its mark, else UTF-8, UTF-16 without a mark, or cp1252.

    Reads the file in blocks. Raises LoadError for bytes that are no text.
    """
    with path.open("rb") as file:
        head = file.read(64 * 1024)
    for mark, codec in _BOMS:
        if head.startswith(mark):
            return codec
    unmarked = _utf16_without_mark(head)
    if unmarked:
        notes.append(f"read as {unmarked.upper()}, though it has no byte order mark")
        return unmarked
    if _binary(head):
        raise LoadError(f"{path}: this is not text (too many control characters); is the suffix right?")
    if _is_utf8(path):
        return "utf-8"
    if _controls(head) > len(head) / 50 + 1:  # compressed data has about five times as many
        raise LoadError(
            f"{path}: this is not text, neither in UTF-8 nor in Windows-1252; is the suffix right?"
        )
    notes.append("not UTF-8: read as Windows-1252; convert it to UTF-8 if characters look wrong")
    return "cp1252"


def read_text(path: Path, notes: list[str]) -> str:
    """The whole file as clean text with `\\n` line ends. Raises LoadError (too big, no text)."""
    check_size(path)
    codec = detect_encoding(path, notes)
    with path.open(encoding=codec, errors="replace", newline=None) as file:
        return tidy(file.read(), notes)


def tidy(text: str, notes: list[str]) -> str:
    """`text` without what Postgres refuses; a note says when something was replaced."""
    cleaned = clean_text(text)
    if cleaned != text:
        note = "holds NUL characters or lone surrogates, which were replaced by U+FFFD"
        if note not in notes:
            notes.append(note)
    return cleaned


def one(path: Path, title: str, text: str, **more: Any) -> Iterator[LoadedDocument]:
    """The single document of a file, or none when it holds no text. `more` are fields of LoadedDocument."""
    if text.strip():
        yield LoadedDocument(source=str(path), title=title, text=text, page=None, path=str(path), **more)


def _utf16_without_mark(head: bytes) -> str | None:
    """UTF-16 of mostly Latin text has a NUL as nearly every second byte, always on the same side."""
    sample = head[: len(head) // 2 * 2]
    if len(sample) < 4:
        return None
    half = len(sample) / 2
    even, odd = sample[0::2].count(0) / half, sample[1::2].count(0) / half
    if odd > 0.6 and even < 0.1:
        return "utf-16-le"
    if even > 0.6 and odd < 0.1:
        return "utf-16-be"
    return None


def _binary(head: bytes) -> bool:
    """More than a tenth of control characters: a stray NUL in a text is mended, a picture is refused."""
    return _controls(head) > len(head) / 10


def _controls(head: bytes) -> int:
    return len(head) - len(head.translate(None, _CONTROLS))


def _is_utf8(path: Path) -> bool:
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                decoder.decode(block)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True
