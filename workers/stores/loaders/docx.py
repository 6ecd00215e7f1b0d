"""Word documents: text under its headings, tables as lines of text."""

import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from shared.clean import one_line
from workers.stores.loaders.base import LoadedDocument, LoadError, check_size, tidy

MAX_INFLATED = 200 * 1024 * 1024  # bytes of all parts of the archive together
_OLE = b"\xd0\xcf\x11\xe0"  # what an encrypted .docx is wrapped into, and what an old .doc is
# what may stand around a paragraph, a row, a cell or a run: form fields, links, insertions
_WRAPPERS = (
    "sdt", "sdtContent", "customXml", "smartTag", "hyperlink", "fldSimple", "ins", "moveTo",
)  # fmt: skip
_TABLE = ("tbl", "tr", "tc")


def load_docx(path: Path, notes: list[str]) -> Iterator[LoadedDocument]:
    """One part for each stretch of text under a heading; its title is the path of headings that leads to it.

    Raises LoadError: protected by a password, no Word document, unpacks to too much, or no text.
    """
    check_size(path)
    _check_archive(path)
    from docx import Document  # slow to import

    try:
        document = Document(str(path))
        properties = document.core_properties
        title, language = str(properties.title or ""), str(properties.language or "")
        blocks = list(_blocks(document))
    except Exception as error:  # noqa: BLE001 - a broken archive can raise anything
        raise LoadError(f"{path}: not a Word document that can be read ({type(error).__name__}).") from None
    name = one_line(title, 300) or _first_title(blocks) or path.stem
    count = 0
    for headings, text in _stretches(blocks):
        shown = headings[1:] if headings[:1] == [name] else headings
        part_title = tidy(" > ".join([name, *shown]), notes)
        yield LoadedDocument(
            str(path), part_title, tidy(text, notes), None, str(path), language=language.lower() or None
        )
        count += 1
    if not count:
        raise LoadError(f"{path}: no text in it (only pictures?). Save it as PDF and run that through OCR.")


def _check_archive(path: Path) -> None:
    with path.open("rb") as file:
        head = file.read(4)
    if head == _OLE:
        raise LoadError(
            f"{path}: protected by a password, or an old .doc. Save it as .docx without one first."
        )
    try:
        with zipfile.ZipFile(path) as archive:
            # zipfile never inflates more of a part than its directory says
            total = sum(part.file_size for part in archive.infolist())
    except (zipfile.BadZipFile, ValueError, NotImplementedError):
        raise LoadError(f"{path}: not a Word document that can be read (no archive).") from None
    if total > MAX_INFLATED:
        raise LoadError(
            f"{path}: unpacks to {total / 1e6:.0f} MB, more than the {MAX_INFLATED / 1e6:.0f} MB allowed."
        )


def _blocks(document: Any) -> Iterator[tuple[int | None, str]]:
    """(level of a heading or None, text) in reading order; level 0 is the document's title."""
    from docx.text.paragraph import Paragraph

    for block in _within(document.element.body, ("p", "tbl")):
        if _kind(block) == "tbl":
            yield None, "\n".join(_table_lines(block))
        elif (text := _text(block)).strip():
            yield _level(Paragraph(block, document)), text


def _level(paragraph: Any) -> int | None:
    style = paragraph.style.name if paragraph.style is not None else ""
    if style == "Title":
        return 0
    word, _, number = (style or "").partition(" ")
    return int(number) if word == "Heading" and number.isdecimal() else None


def _table_lines(table: Any) -> Iterator[str]:
    """`cell | cell` for each row. Read from the XML: the library's own cells take quadratic time."""
    for row in _within(table, ("tr",)):
        cells = [
            one_line(" ".join(_text(one) for one in _within(cell, ("p",), (*_WRAPPERS, *_TABLE))))
            for cell in _within(row, ("tc",))
        ]
        if any(cells):
            yield " | ".join(cells)


def _text(paragraph: Any) -> str:
    """With links, forms and insertions not yet accepted; without what was deleted, and without text boxes."""
    return "".join(run.text for run in _within(paragraph, ("r",)))


def _within(element: Any, kinds: Sequence[str], through: Sequence[str] = _WRAPPERS) -> Iterator[Any]:
    """The elements of these kinds in reading order, those in wrappers included, which the library leaves out."""
    for child in element:
        kind = _kind(child)
        if kind in kinds:
            yield child
        elif kind in through:
            yield from _within(child, kinds, through)


def _kind(element: Any) -> str:
    """The name of its tag, without a namespace; empty for a comment."""
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def _first_title(blocks: list[tuple[int | None, str]]) -> str:
    return next((one_line(text, 300) for level, text in blocks if level in (0, 1)), "")


def _stretches(blocks: list[tuple[int | None, str]]) -> Iterator[tuple[list[str], str]]:
    """(headings from the outermost, text) for each stretch of text that stands under the same headings."""
    path: list[tuple[int, str]] = []
    body: list[str] = []
    for level, text in [*blocks, (0, "")]:
        if level is None:
            body.append(text)
            continue
        if any(part.strip() for part in body):
            yield [name for _, name in path], "\n\n".join(body)
        body = []
        while path and path[-1][0] >= level:
            path.pop()
        path.append((level, one_line(text, 300)))
