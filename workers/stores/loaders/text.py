"""Plain text and Markdown."""

import re
from collections.abc import Iterator
from pathlib import Path

from workers.stores.loaders.base import LoadedDocument, one, read_text
from workers.stores.markdown import sections

_FRONT_MATTER = re.compile(
    r"\A---[ \t]*\n(?P<head>.*?)^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE
)
_FRONT_TITLE = re.compile(r"^title:[ \t]*(?P<title>.+)$", re.MULTILINE)


def load_text(path: Path, notes: list[str]) -> Iterator[LoadedDocument]:
    yield from one(path, path.stem, read_text(path, notes), first_line=1)


def load_markdown(path: Path, notes: list[str]) -> Iterator[LoadedDocument]:
    """Front matter is dropped; the title is the first heading, else the front matter's, else the name."""
    text = read_text(path, notes)
    title, first_line = "", 1
    front = _FRONT_MATTER.match(text)
    if front:
        text = text[front.end() :]
        first_line += front[0].count("\n")
        named = _FRONT_TITLE.search(front["head"])
        title = named["title"].strip().strip("\"'") if named else ""
    first = next((section.headings[-1] for section in sections(text) if section.headings), "")
    yield from one(path, first or title or path.stem, text, first_line=first_line, markdown=True)
