"""A fetched page as documents: its main text, title, description and language, and where it links to."""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from shared.clean import one_line
from shared.urls import FetchError, joined, shown
from workers.stores.loaders.base import LoadedDocument, LoadError
from workers.stores.loaders.html import decoded, document_of_html, without_marked_sections
from workers.stores.loaders.pdf import load_pdf
from workers.stores.loaders.text import load_markdown, load_text
from workers.stores.web.fetch import USER_AGENT, Fetched

_HTML = ("text/html", "application/xhtml+xml")
_PDF = "application/pdf"
_MARKDOWN = ("text/markdown", "text/x-markdown")
PAGE_TYPES = frozenset({*_HTML, _PDF, *_MARKDOWN, "text/plain"})
MAX_LINKS = 5000  # of one page


@dataclass(frozen=True)
class Page:
    documents: list[LoadedDocument]
    links: list[str]  # absolute, as they stand there
    follow: bool  # whether the page lets its links be followed
    index: bool  # whether the page lets itself be kept


def read_page(fetched: Fetched, notes: list[str], name: str) -> Page:
    """The page as documents whose source is its URL. Notes are said of `name`. Raises LoadError."""
    said: list[str] = []
    scan = _Scan(fetched.url)
    documents = [
        replace(one, source=fetched.url, path=fetched.url, first_line=None)
        for one in _loaded(fetched, said, scan)
    ]
    if not documents:
        said.append("no text on this page")
    notes.extend(f"{name}: {text}" for text in said)
    rules = f"{scan.rules},{_header_rules(fetched.headers.get('x-robots-tag', ''))}"
    wishes = {one.strip().lower() for one in rules.split(",")}
    return Page(documents, scan.links, not wishes & {"nofollow", "none"}, not wishes & {"noindex", "none"})


def _kind(fetched: Fetched) -> str:
    if fetched.content_type:
        return fetched.content_type
    return _PDF if fetched.body.startswith(b"%PDF-") else "text/html"


def _loaded(fetched: Fetched, notes: list[str], scan: "_Scan") -> Iterator[LoadedDocument]:
    """Through the loaders of files, so that a page and the same page as a file give the same text; `scan`
    reads the same characters, so that no odd encoding hides a page's wishes."""
    kind = _kind(fetched)
    stem = unquote(Path(urlsplit(fetched.url).path).stem) or urlsplit(fetched.url).netloc
    suffix = ".pdf" if kind == _PDF else ".md" if kind in _MARKDOWN else ".txt"
    with tempfile.TemporaryDirectory(prefix="cragline-page-") as folder:
        file = Path(folder) / f"{one_line(stem, 80).replace('/', '_').replace(chr(0), '_') or 'page'}{suffix}"
        file.write_bytes(fetched.body)
        try:
            if kind in _HTML:
                scan.feed(without_marked_sections(decoded(file, [], fetched.charset)))
                yield from document_of_html(file, notes, charset=fetched.charset)
            elif kind == _PDF:
                yield from load_pdf(file, notes)
            else:
                yield from (load_markdown if kind in _MARKDOWN else load_text)(file, notes)
        except LoadError as error:
            raise LoadError(str(error).replace(str(file), shown(fetched.url))) from None
        except Exception as error:  # noqa: BLE001 - hostile bytes; the site's other pages may be fine
            raise LoadError(
                f"{shown(fetched.url)}: a page that cannot be read ({type(error).__name__})."
            ) from None


def _header_rules(value: str) -> str:
    """The rules of an X-Robots-Tag that are for everybody or for us."""
    agent, colon, rules = value.partition(":")
    if colon and "," not in agent and " " not in agent.strip():
        return rules if agent.strip().lower() in USER_AGENT else ""
    return value


class _Scan(HTMLParser):
    """Links and the robots rules of a page."""

    def __init__(self, url: str) -> None:
        super().__init__(convert_charrefs=True)
        self._base = url
        self.links: list[str] = []
        self.rules = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag == "base" and values.get("href"):
            self._base = self._joined(values["href"]) or self._base
        elif tag == "meta" and values.get("name", "").lower() in ("robots", "cragline"):
            self.rules += f",{values.get('content', '')}"
        elif tag == "a" and values.get("href") and len(self.links) < MAX_LINKS:
            if "nofollow" in values.get("rel", "").lower().split():
                return
            link = self._joined(values["href"].strip())
            if link:
                self.links.append(link)

    def _joined(self, href: str) -> str:
        try:
            return joined(self._base, href)
        except FetchError:
            return ""
