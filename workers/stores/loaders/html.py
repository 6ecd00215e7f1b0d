"""HTML: the main text without menus and footers."""

import codecs
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import trafilatura

from shared.clean import one_line
from workers.stores.loaders.base import LoadedDocument, check_size, detect_encoding, one, tidy

MAX_PARSED = 5 * 1024 * 1024  # characters; finding the main text of more takes minutes and gigabytes
_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_.:-]{2,40})", re.IGNORECASE)
_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(?:-[A-Za-z0-9]{1,8}){0,3}")
# codecs of Python's that no page is written in: some take quadratic time, some know no "replace"
_NO_CHARSETS = frozenset({"idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape"})
_SILENT = {"script", "style", "noscript", "template", "svg"}
_BREAKS = {
    "p",
    "div",
    "br",
    "li",
    "tr",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "section",
    "article",
    "table",
    "pre",
}


class _Stripper(HTMLParser):
    """All visible text, title, description and language; cannot tell what is main and what is menu."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self.title = ""
        self.description = ""
        self.language = ""
        self._silent = 0
        self._in_title = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _SILENT:
            self._silent += 1
        elif tag == "html":
            self.language = self.language or (dict(attrs).get("lang") or "").strip()
        elif tag == "meta":
            self._meta({name: value or "" for name, value in attrs})
        elif tag == "title":
            self._in_title = True
        elif tag in _BREAKS:
            self.parts.append("\n")

    def _meta(self, values: dict[str, str]) -> None:
        name = (values.get("name") or values.get("property") or "").lower()
        if name in ("description", "og:description") and not self.description:
            self.description = values.get("content", "")

    def handle_endtag(self, tag: str) -> None:
        if tag in _SILENT:
            self._silent = max(0, self._silent - 1)
        elif tag == "title":
            self._in_title = False
        elif tag in _BREAKS:
            self.parts.append("\n")

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title += data
        elif not self._silent:
            self.parts.append(data)

    def text(self) -> str:
        lines = (one_line(line) for line in "".join(self.parts).split("\n"))
        return "\n".join(line for line in lines if line)


def load_html(path: Path, notes: list[str]) -> Iterator[LoadedDocument]:
    """The main text; where none can be told apart, all text with the tags stripped, and a note."""
    yield from document_of_html(path, notes)


def document_of_html(path: Path, notes: list[str], charset: str | None = None) -> Iterator[LoadedDocument]:
    """The same; `charset` is what a server said of the page's encoding."""
    check_size(path)
    markup = tidy(decoded(path, notes, charset), notes)
    stripper = _Stripper()
    stripper.feed(without_marked_sections(markup))
    stripper.close()
    text = _main_text(markup)
    if not text:
        text = stripper.text()
        if text:
            notes.append("no main text found: all text of the page was taken")
    yield from one(
        path,
        one_line(stripper.title, 300) or path.stem,
        tidy(text, notes),
        language=_LANGUAGE.fullmatch(stripper.language) and stripper.language.lower(),
        description=one_line(stripper.description, 500) or None,
    )


def _main_text(markup: str) -> str:
    if len(markup) > MAX_PARSED:
        return ""
    try:
        found = trafilatura.extract(markup, include_comments=False, include_tables=True, favor_recall=True)
    except Exception:  # noqa: BLE001 - hostile markup; the plain way remains
        return ""
    return (found or "").strip()


def without_marked_sections(markup: str) -> str:
    """`markup` with each `<![` opened as the comment that browsers take it for: HTMLParser knows a few such
    sections, and raises AssertionError at any other."""
    return markup.replace("<![", "<! [")


def decoded(path: Path, notes: list[str], charset: str | None) -> str:
    """As text: by the byte order mark, as UTF-8, as the server or the page itself says."""
    found: list[str] = []
    codec = detect_encoding(path, found)
    data = path.read_bytes()
    inside = _CHARSET.search(data[:4096])
    declared = charset or (inside[1].decode("ascii") if inside else None)
    if codec == "cp1252" and declared and _is_charset(declared):
        return data.decode(declared, errors="replace")
    notes.extend(found)
    return data.decode(codec, errors="replace")


def _is_charset(name: str) -> bool:
    try:
        if codecs.lookup(name).name in _NO_CHARSETS:
            return False
        "".encode(name)  # the likes of "hex" make bytes of bytes
    except LookupError:
        return False
    return True
