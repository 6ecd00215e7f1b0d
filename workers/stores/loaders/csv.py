"""CSV: each row is a document, its cells joined as lines `name: value`."""

import csv
import re
from collections.abc import Iterator
from pathlib import Path

from shared.clean import clean_text, one_line
from workers.stores.loaders.base import LoadedDocument, LoadError, detect_encoding, tidy

MAX_CELL = 16 * 1024 * 1024  # characters
_DELIMITERS = ",;\t|"
_TITLES = (
    *("title", "name", "titel", "titre", "subject", "heading", "headline"),
    *("question", "frage", "vraag", "pregunta", "domanda", "pergunta", "질문"),
)
_SEP_LINE = re.compile(r'"?sep=(.)"?', re.IGNORECASE)  # Excel's own hint, a line before the header

csv.field_size_limit(MAX_CELL)  # the module's own limit is 128 kB, and process-wide


def load_csv(path: Path, notes: list[str]) -> Iterator[LoadedDocument]:
    """Rows in order; source = `path#row`, counted from 1 behind the header row.

    The title is the first column called title, name or question, else the file's name. Empty cells and rows are
    left out. The file is read twice, so that a broken end does not leave half of it behind. Raises
    LoadError that names the line: no CSV, or nothing but a header.
    """
    codec = detect_encoding(path, notes)
    header = next(_rows(path, codec), [])
    names = [one_line(clean_text(name), 100) or f"column {place}" for place, name in enumerate(header, 1)]
    count = sum(1 for _ in _rows(path, codec)) - 1
    if count < 1:
        raise LoadError(f"{path}: there is no row below the header. A CSV file begins with a row of names.")
    title_at = next(
        (place for title in _TITLES for place, name in enumerate(names) if name.lower() == title), None
    )
    rows = _rows(path, codec)
    next(rows)
    empty = 0
    for number, cells in enumerate(rows, 1):
        text = _text(names, cells)
        if not text:
            empty += 1
            continue
        titled = cells[title_at] if title_at is not None and title_at < len(cells) else ""
        title = one_line(clean_text(titled), 300) or path.stem
        yield LoadedDocument(f"{path}#{number}", title, tidy(text, notes), None, str(path))
    if empty:
        notes.append(f"{empty} empty rows were left out")


def _text(names: list[str], cells: list[str]) -> str:
    lines = []
    for place, cell in enumerate(cells):
        if cell.strip():
            name = names[place] if place < len(names) else f"column {place + 1}"
            lines.append(f"{name}: {cell.strip()}")
    return "\n".join(lines)


def _rows(path: Path, codec: str) -> Iterator[list[str]]:
    with path.open(encoding=codec, errors="replace", newline="") as file:
        first = file.readline(MAX_CELL)
        hint = _SEP_LINE.fullmatch(first.strip())
        if not hint:
            file.seek(0)
        reader = csv.reader(file, delimiter=hint[1] if hint else _delimiter(first), strict=False)
        try:
            yield from reader
        except csv.Error as error:
            raise LoadError(f"{path}, line {reader.line_num}: not CSV ({error}).") from None


def _delimiter(header: str) -> str:
    """The one that the header row holds most often outside quotes."""
    bare = "".join(header.split('"')[::2])
    return max(_DELIMITERS, key=bare.count)
