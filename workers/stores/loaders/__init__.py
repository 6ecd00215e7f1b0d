"""Files in, documents out: `load(path)` picks the loader by the file's suffix."""

from collections.abc import Callable, Iterator
from pathlib import Path

from workers.stores.loaders.base import LoadedDocument, LoadError
from workers.stores.loaders.csv import load_csv
from workers.stores.loaders.docx import load_docx
from workers.stores.loaders.html import load_html
from workers.stores.loaders.jsonl import load_jsonl
from workers.stores.loaders.pdf import load_pdf
from workers.stores.loaders.text import load_markdown, load_text

__all__ = ["LOADERS", "LoadError", "LoadedDocument", "load"]

# the suffixes are those of shared.ingest.SUFFIXES, which chooses the files; a test holds them together
LOADERS: dict[str, Callable[[Path, list[str]], Iterator[LoadedDocument]]] = {
    ".txt": load_text,
    ".md": load_markdown,
    ".html": load_html,
    ".htm": load_html,
    ".pdf": load_pdf,
    ".docx": load_docx,
    ".jsonl": load_jsonl,
    ".csv": load_csv,
}


def load(path: Path, notes: list[str] | None = None) -> Iterator[LoadedDocument]:
    """The documents of a file, in order; documents that share a `source` (a PDF's pages) are neighbours.

    What was odd but could be mended is appended to `notes` in words. Raises LoadError (a CraglineError)
    when the file cannot be read, and then at the first `next` where that is at all possible.
    """
    loader = LOADERS.get(path.suffix.lower())
    if loader is None:
        raise LoadError(f"{path}: this kind of file is not known; known are {', '.join(LOADERS)}.")
    try:
        yield from loader(path, [] if notes is None else notes)
    except FileNotFoundError:
        raise LoadError(f"{path}: the file is not there (the worker must see the same files).") from None
    except OSError as error:
        raise LoadError(f"{path}: cannot be read ({error.strerror or type(error).__name__}).") from None
