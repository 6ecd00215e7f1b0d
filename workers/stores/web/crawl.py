"""A walk through the pages of one host: the start, what it links to, what its sitemap lists."""

import html
import re
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from shared.clean import counted
from shared.urls import FetchError, checked_url, host_of, joined, shown
from workers.stores.loaders.base import LoadedDocument, LoadError
from workers.stores.web.fetch import Fetched, Fetcher
from workers.stores.web.page import PAGE_TYPES, Page, read_page
from workers.stores.web.robots import Robots

MAX_SITEMAPS = 50
MAX_IN_LINE = 50_000  # URLs that wait
_NAMED = 20  # pages named in the notes
# possessive throughout: a sitemap is hostile text, and a pattern that tries again holds up the whole process
_LOC = re.compile(r"<loc>\s*+(?:<!\[CDATA\[)?+\s*+([^<\]]{1,4000}+)(?:\]\]>)?+\s*+</loc>", re.IGNORECASE)
_NO_PAGE = re.compile(
    r"\.(?:jpe?g|png|gif|webp|svg|ico|css|js|mjs|json|xml|rss|atom|zip|gz|tgz|bz2|xz|7z|exe|dmg|iso|mp[34]|"
    r"webm|avi|mov|wav|ogg|woff2?|ttf|eot|docx?|xlsx?|pptx?)$",
    re.IGNORECASE,
)


@dataclass
class Walk:
    """The pages of one host, in the order they are found. `notes` tells what was left out, and why.

    `depth` is how many links away from the start; `max_pages` bounds the requests for pages.
    Raises FetchError when the start itself cannot be had, except that `missing_start` only notes a page
    that is gone, so that a prune can go on.
    """

    start: str
    notes: list[str]
    fetcher: Fetcher
    depth: int = 0
    sitemap: bool = False
    max_pages: int = 100
    missing_start: bool = False
    visited: set[str] = field(default_factory=set)
    found: set[str] = field(default_factory=set)  # where pages were in the end
    _left_out: list[str] = field(default_factory=list)
    _host: str = ""

    def __post_init__(self) -> None:
        self.start = checked_url(self.start)
        self._robots = Robots(self.fetcher)
        self._line: deque[tuple[str, int]] = deque()
        self._known: set[str] = set()

    def documents(self) -> Iterator[LoadedDocument]:
        """The documents of all pages. A page that cannot be had is noted, and the walk goes on."""
        self._known.add(self.start)
        self._line.append((self.start, 0))
        while self._line and len(self.visited) < self.max_pages:
            url, depth = self._line.popleft()
            first = not self.visited
            self.visited.add(url)
            try:
                page = self._page(url, first)
            except (FetchError, LoadError) as error:
                gone = isinstance(error, FetchError) and error.gone
                if first and not (gone and self.missing_start):
                    raise
                self._left_out.append(str(error))
                continue
            if first and self.sitemap:
                for listed in self._listed():
                    self._put(listed, self.depth)
            if page is None:
                continue
            if depth < self.depth and page.follow:
                for link in page.links:
                    self._put(link, depth + 1)
            yield from page.documents
        self._tell()

    def gone(self, sources: Iterable[str]) -> list[str]:
        """Those of `sources` (URLs of earlier walks) that their server says are gone, each asked for now."""
        gone = []
        still = unclear = 0
        for url in sorted(sources):
            try:
                self.fetcher.get(url, around=self._robots.polite)
                still += 1
            except FetchError as error:
                if error.gone:
                    gone.append(url)
                else:
                    unclear += 1
        if still:
            self.notes.append(f"{counted(still, 'earlier page')} not met on this walk, but still there: kept")
        if unclear:
            self.notes.append(f"{counted(unclear, 'earlier page')} could not be asked for: kept")
        return gone

    def _page(self, url: str, first: bool) -> Page | None:
        """The page at `url`; None when it is a page we have, wishes not to be indexed, or left the host."""
        fetched = self.fetcher.get(url, PAGE_TYPES, self._robots.polite)
        if first:
            self._host = host_of(fetched.url)
        elif host_of(fetched.url) != self._host:
            self._left_out.append(f"{shown(url)}: leads to another host ({host_of(fetched.url)}).")
            return None
        if fetched.url in self.found:
            return None
        self._known.add(fetched.url)
        self.visited.add(fetched.url)
        page = read_page(fetched, self.notes, shown(fetched.url))
        if not page.index:
            self._left_out.append(f"{shown(url)}: asks not to be indexed (robots: noindex).")
            return Page([], page.links, page.follow, False)
        self.found.add(fetched.url)
        return page

    def _put(self, link: str, depth: int) -> None:
        try:
            url = checked_url(link)
        except FetchError:
            return  # mailto:, javascript:, or worse
        if self._host and host_of(url) != self._host:
            return
        if url in self._known or len(self._line) >= MAX_IN_LINE or _NO_PAGE.search(urlsplit(url).path):
            return
        self._known.add(url)
        self._line.append((url, depth))

    def _listed(self) -> Iterator[str]:
        """The pages in the host's sitemaps: those that robots.txt names, else /sitemap.xml."""
        site = f"{urlsplit(self.start).scheme}://{self._host}"
        line = deque(self._robots.sitemaps(site + "/") or [f"{site}/sitemap.xml"])
        asked: set[str] = set()
        while line and len(asked) < MAX_SITEMAPS:
            try:
                url = joined(site, line.popleft())
                if url in asked:
                    continue
                asked.add(url)
                if host_of(checked_url(url)) != self._host:
                    raise FetchError(f"{shown(url)}: a sitemap on another host.")
                text = _sitemap_text(
                    self.fetcher.get(url, around=self._robots.polite), self.fetcher.max_bytes
                )
            except FetchError as error:
                self._left_out.append(f"sitemap: {error}")
                continue
            # read by pattern: no XML parser, so no entities that could grow
            places = [html.unescape(one).strip() for one in _LOC.findall(text)]
            if "<sitemapindex" in text[:2000].lower():
                line.extend(places)
            else:
                yield from places

    def _tell(self) -> None:
        if self._line:
            self.notes.append(
                f"stopped at {self.max_pages} pages (--max-pages); at least {len(self._line)} more are linked"
            )
        for text in self._left_out[:_NAMED]:
            self.notes.append(f"left out: {text}")
        if len(self._left_out) > _NAMED:
            self.notes.append(f"left out: {len(self._left_out) - _NAMED} more pages")


def _sitemap_text(fetched: Fetched, limit: int) -> str:
    """The text of a sitemap, a .gz one as well. Raises FetchError for one that inflates beyond `limit`."""
    body = fetched.body
    if body[:2] == b"\x1f\x8b":
        inflater = zlib.decompressobj(wbits=31)
        try:
            body = inflater.decompress(body, limit)
        except zlib.error:
            raise FetchError(f"{shown(fetched.url)}: its compression is broken.") from None
        if inflater.unconsumed_tail:
            raise FetchError(f"{shown(fetched.url)}: more than {limit / 1e6:.0f} MB when unpacked.")
    return body.decode("utf-8", "replace")
