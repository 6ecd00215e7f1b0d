"""PDF: one document a page, so that an answer can cite the page."""

import logging
from collections.abc import Iterator
from pathlib import Path

from pypdf import PageObject, PdfReader
from pypdf.errors import DependencyError

from shared.clean import one_line
from workers.stores.loaders.base import LoadedDocument, LoadError, check_size, tidy

MAX_PAGES = 10_000
MAX_PAGE = 1_000_000  # characters; no page that is meant to be read holds a hundredth of it

logging.getLogger("pypdf").setLevel(logging.ERROR)  # it warns about every oddity of every page


def load_pdf(path: Path, notes: list[str]) -> Iterator[LoadedDocument]:
    """Pages with text, in order. Raises LoadError: encrypted, broken, huge, or no text at all (scanned)."""
    check_size(path)
    with path.open("rb") as file:
        reader = _open(path, file)
        title = _title(reader) or path.stem
        total, empty, unread = len(reader.pages), 0, 0
        if total > MAX_PAGES:
            raise LoadError(f"{path}: {total} pages are more than the {MAX_PAGES} a PDF may have. Split it.")
        for number in range(1, total + 1):
            text = _page_text(reader, number)
            if text is None:
                unread += 1
            elif not text.strip():
                empty += 1
            elif len(text) > MAX_PAGE:
                unread += 1
            else:
                yield LoadedDocument(str(path), title, tidy(text, notes), number, str(path))
    if unread == total and total:
        raise LoadError(f"{path}: none of its {total} pages can be read; the PDF is broken.")
    if empty + unread == total:
        raise LoadError(f"{path}: no text on its {total} pages (scanned?). Run it through OCR first.")
    if empty:
        notes.append(f"{empty} of {total} pages hold no text")
    if unread:
        notes.append(f"{unread} of {total} pages could not be read")


def _open(path: Path, file: object) -> PdfReader:
    try:
        reader = PdfReader(file)  # type: ignore[arg-type]
        # many files are encrypted with an empty password, only to forbid printing
        locked = reader.is_encrypted and not reader.decrypt("")
        if not locked:
            len(reader.pages)
    except DependencyError:
        locked = True
    except Exception as error:  # noqa: BLE001 - a broken file can raise anything
        raise LoadError(f"{path}: not a PDF that can be read ({one_line(str(error), 120)}).") from None
    if locked:
        raise LoadError(f"{path}: the PDF is protected by a password. Save it without one first.")
    return reader


def _title(reader: PdfReader) -> str:
    try:
        return one_line(tidy(str((reader.metadata and reader.metadata.title) or ""), []), 300)
    except Exception:  # noqa: BLE001 - a broken title is no reason to refuse the text
        return ""


def _page_text(reader: PdfReader, number: int) -> str | None:
    """The text of a 1-based page, None when it cannot be read."""
    try:
        page: PageObject = reader.pages[number - 1]
        return page.extract_text()
    except Exception:  # noqa: BLE001 - a broken page can raise anything; the others may be fine
        return None
