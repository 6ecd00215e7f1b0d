"""A walk through a site."""

import gzip
from pathlib import Path
from typing import Any

import pytest

from shared.addresses import FetchError
from tests.fakes.site import Answer, Site
from tests.unit.workers.stores.test_loaders import pdf
from workers.stores.loaders import LoadedDocument, LoadError
from workers.stores.web import crawl, page
from workers.stores.web.crawl import Walk
from workers.stores.web.fetch import Fetcher

TEXT = "The relief valve opens when the pressure rises above twelve bar, as the maker's manual says. " * 3


def walk(site: Site, path: str = "/", **options: object) -> tuple[list[LoadedDocument], list[str], Walk]:
    notes: list[str] = []
    made = Walk(site.url + path, notes, Fetcher(allow_private=True), **options)  # type: ignore[arg-type]
    return list(made.documents()), notes, made


def paths(site: Site, documents: list[LoadedDocument]) -> list[str]:
    return [one.source.removeprefix(site.url) for one in documents]


def test_a_page_with_its_title_description_and_language(site: Site) -> None:
    site.article(
        "/", "Valves &amp; pumps", TEXT, "/a", head='<meta name="Description" content="All of them.">'
    )
    [one], notes, _ = walk(site)
    assert (one.source, one.path, one.title) == (f"{site.url}/", f"{site.url}/", "Valves & pumps")
    assert (one.language, one.description, one.page) == ("en", "All of them.", None)
    assert "twelve bar" in one.text and "Menu" not in one.text
    assert notes == []
    assert site.asked == ["/robots.txt", "/"]


def test_links_are_followed_to_a_depth_within_the_host(site: Site) -> None:
    other = Site()
    with other:
        other.article("/x", "Other", TEXT)
        site.article("/", "Start", TEXT, "/a", "b#part", "mailto:me@x.example", f"{other.url}/x", "/pic.PNG")
        site.article("/a", "A", TEXT, "/c", "/", "?page=2")
        site.article("/b", "B", TEXT, "javascript:x()", "http://[broken")
        site.article("/c", "C", TEXT, "/d")
        site.article("/a?page=2", "A2", TEXT)
        assert paths(site, walk(site)[0]) == ["/"]
        assert paths(site, walk(site, depth=1)[0]) == ["/", "/a", "/b"]
        assert paths(site, walk(site, depth=2)[0]) == ["/", "/a", "/b", "/c", "/a?page=2"]
        assert other.asked == []


def test_the_number_of_pages_is_bounded_and_said(site: Site) -> None:
    for number in range(20):
        site.article(f"/{number}", f"Page {number}", TEXT, *[f"/{other}" for other in range(20)])
    documents, notes, _ = walk(site, "/0", depth=5, max_pages=4)
    assert len(documents) == 4
    assert notes == ["stopped at 4 pages (--max-pages); at least 16 more are linked"]


def test_robots_hold_for_the_start_and_for_links(site: Site) -> None:
    site.pages["/robots.txt"] = Answer(b"User-agent: *\nDisallow: /no", "text/plain")
    site.article("/", "Start", TEXT, "/no/x", "/yes")
    site.article("/no/x", "No", TEXT)
    site.article("/yes", "Yes", TEXT)
    with pytest.raises(FetchError, match=r"/no/x: refused by the host's robots\.txt"):
        walk(site, "/no/x")
    documents, notes, _ = walk(site, depth=1)
    assert paths(site, documents) == ["/", "/yes"]
    assert [one for one in notes if "robots.txt" in one] != []
    assert "/no/x" not in site.asked


def test_wishes_in_the_page_are_respected(site: Site) -> None:
    site.article("/", "Start", TEXT, "/hidden", "/dead-end", "/header")
    site.article("/hidden", "H", TEXT, "/below", head='<meta name="robots" content="NOINDEX">')
    site.article("/dead-end", "D", TEXT, "/never", head='<meta name="robots" content="nofollow">')
    site.article("/below", "B", TEXT)
    site.article("/never", "N", TEXT)
    site.pages["/header"] = Answer(
        b"<p>words</p>", headers={"X-Robots-Tag": "otherbot: nofollow"}, content_type="text/html"
    )
    documents, notes, _ = walk(site, depth=3)
    assert paths(site, documents) == ["/", "/dead-end", "/header", "/below"]
    assert any("/hidden: asks not to be indexed" in one for one in notes)


def test_a_sitemap_and_an_index_of_them(site: Site) -> None:
    def listed(*places: str, root: str = "urlset") -> bytes:
        inner = "".join(f"<url><loc> {place} </loc></url>" for place in places)
        return f'<?xml version="1.0"?><{root}>{inner}</{root}>'.encode()

    site.article("/", "Start", TEXT)
    for name in ("a", "b", "c"):
        site.article(f"/{name}", name, TEXT, "/linked")
    site.pages["/sitemap.xml"] = Answer(
        listed(f"{site.url}/one.xml", f"{site.url}/two.xml.gz", "https://x.example/", root="sitemapindex")
    )
    site.pages["/one.xml"] = Answer(
        listed(f"{site.url}/a", "http://169.254.169.254/x", f"{site.url}/b?x&amp;y")
    )
    site.pages["/two.xml.gz"] = Answer(gzip.compress(listed(f"{site.url}/c")), "application/gzip")
    documents, notes, _ = walk(site, sitemap=True)
    assert paths(site, documents) == ["/", "/a", "/c"]
    assert any("a sitemap on another host" in one for one in notes)
    assert any("/b" in one and "404" in one for one in notes)


def test_a_sitemap_that_is_a_bomb_is_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.article("/", "Start", TEXT)
    site.pages["/sitemap.xml"] = Answer(gzip.compress(b"<loc>" * 10_000_000), "application/gzip")
    documents, notes, _ = walk(site, sitemap=True)
    assert len(documents) == 1
    assert any("when unpacked" in one for one in notes)


def test_an_endless_index_of_sitemaps_ends(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crawl, "MAX_SITEMAPS", 3)
    site.article("/", "Start", TEXT)
    for number in range(10):
        name = "/sitemap.xml" if number == 0 else f"/{number}.xml"
        site.pages[name] = Answer(f"<sitemapindex><loc>{site.url}/{number + 1}.xml</loc>".encode())
    walk(site, sitemap=True)
    assert [one for one in site.asked if one.endswith(".xml")] == ["/sitemap.xml", "/1.xml", "/2.xml"]


def test_trouble_with_a_page_is_noted_and_the_walk_goes_on(site: Site) -> None:
    site.article("/", "Start", TEXT, "/none", "/image", "/away", "/empty", "/good", "/moved", "/bad.pdf")
    site.pages["/image"] = Answer(b"\x89PNG", "image/png")
    site.pages["/away"] = Answer(status=302, headers={"Location": "http://other.example:1/"})
    site.pages["/empty"] = "<html></html>"
    site.pages["/moved"] = Answer(status=301, headers={"Location": "/good"})
    site.pages["/bad.pdf"] = Answer(b"%PDF-1.7 nothing", "application/pdf")
    site.article("/good", "Good", TEXT)
    documents, notes, _ = walk(site, depth=1)
    assert paths(site, documents) == ["/", "/good"]
    said = "\n".join(notes)
    for words in (
        "/none: the server answered 404",
        "image/png",
        "other.example",
        "/empty: no text",
        "not a PDF",
    ):
        assert words in said
    assert "/tmp" not in said


def test_a_start_that_cannot_be_had_is_an_error(site: Site) -> None:
    with pytest.raises(FetchError, match="404"):
        walk(site, "/none")
    assert walk(site, "/none", missing_start=True)[0] == []


def test_the_host_of_the_walk_is_where_the_start_led(site: Site) -> None:
    with Site() as moved:
        site.pages["/"] = Answer(status=301, headers={"Location": f"{moved.url}/home"})
        moved.article("/home", "Home", TEXT, "/a", f"{site.url}/old")
        moved.article("/a", "A", TEXT)
        moved.pages["/robots.txt"] = Answer(b"User-agent: *\nDisallow: /a", "text/plain")
        documents, notes, _ = walk(site, depth=1)
        assert [one.source for one in documents] == [f"{moved.url}/home"]
        assert any("robots.txt" in one for one in notes)
        assert site.asked == ["/robots.txt", "/"]


def test_pages_of_other_kinds(site: Site, tmp_path: object) -> None:
    from pathlib import Path

    site.article("/", "Start", TEXT, "/m.pdf", "/n.md", "/o.txt")
    file = pdf(Path(str(tmp_path)) / "x.pdf", "first page", "second page", title="Manual")
    site.pages["/m.pdf"] = Answer(file.read_bytes(), "application/pdf")
    site.pages["/n.md"] = Answer(b"# Notes\nSome text.", "text/markdown")
    site.pages["/o.txt"] = Answer(b"Plain words.", "text/plain")
    documents, _, _ = walk(site, depth=1)
    told = [(one.source.removeprefix(site.url), one.title, one.page, one.first_line) for one in documents[1:]]
    assert told == [
        ("/m.pdf", "Manual", 1, None),
        ("/m.pdf", "Manual", 2, None),
        ("/n.md", "Notes", None, None),
        ("/o.txt", "o", None, None),
    ]
    assert documents[3].markdown


def test_a_scanned_pdf_as_the_start_says_so(site: Site, tmp_path: object) -> None:
    from pathlib import Path

    site.pages["/s.pdf"] = Answer(pdf(Path(str(tmp_path)) / "x.pdf", "").read_bytes(), "application/pdf")
    with pytest.raises(LoadError, match=r"http://127.*s\.pdf: no text on its 1 pages \(scanned\?\)"):
        walk(site, "/s.pdf")


def test_only_what_its_server_calls_gone_is_gone(site: Site) -> None:
    site.article("/", "Start", TEXT)
    site.article("/unlinked", "U", TEXT)
    site.pages["/down"] = Answer(status=500)
    site.pages["/gone"] = Answer(status=410)
    _, notes, made = walk(site)
    earlier = [f"{site.url}/{name}" for name in ("unlinked", "down", "gone", "none")]
    assert made.gone(earlier) == [f"{site.url}/gone", f"{site.url}/none"]
    assert notes == [
        "1 earlier page not met on this walk, but still there: kept",
        "1 earlier page could not be asked for: kept",
    ]


def test_one_request_at_a_time(site: Site) -> None:
    site.article("/", "Start", TEXT, *[f"/{number}" for number in range(6)])
    for number in range(6):
        site.article(f"/{number}", "x", TEXT)
    walk(site, depth=1)
    assert site.most_open == 1


def test_a_hostile_page_costs_only_itself(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.article("/", "Start", TEXT, "/nowhere", "/marked", "/crash", "/good")
    site.pages["/robots.txt"] = Answer(b"Sitemap: http://[\nSitemap: /map.xml", "text/plain")
    site.pages["/map.xml"] = Answer(f"<loc>http://[</loc><loc>{site.url}/listed</loc>".encode())
    site.pages["/nowhere"] = Answer(status=302, headers={"Location": "http://["})
    site.article("/marked", "Marked", TEXT + "<![foo[ x ]]> <![ ]>", "/beyond")
    site.article("/crash", "Crash", TEXT)
    for name in ("good", "beyond", "listed"):
        site.article(f"/{name}", name, TEXT)
    real = page.document_of_html

    def crashing(file: Path, *more: Any, **options: Any) -> Any:
        if file.stem == "crash":
            raise KeyError("a parser's own bug")
        return real(file, *more, **options)

    monkeypatch.setattr(page, "document_of_html", crashing)
    documents, notes, _ = walk(site, depth=2, sitemap=True)
    assert paths(site, documents) == ["/", "/listed", "/marked", "/good", "/beyond"]
    said = "\n".join(notes)
    assert "http://[: not a URL" in said and "/crash: a page that cannot be read (KeyError)" in said


@pytest.mark.parametrize("charset", ["x-unknown", "hex", "undefined", "idna", "punycode", "unicode_escape"])
def test_an_odd_charset_hides_no_wish(site: Site, charset: str) -> None:
    site.article("/", "Start", TEXT, "/secret", "/good")
    site.article("/secret", "Secret", TEXT + " caf\xe9", head='<meta name="robots" content="noindex">')
    body = str(site.pages["/secret"]).encode("latin-1")
    site.pages["/secret"] = Answer(body, f"text/html; charset={charset}")
    site.article("/good", "Good", TEXT)
    documents, notes, _ = walk(site, depth=1)
    assert paths(site, documents) == ["/", "/good"]
    assert any("/secret: asks not to be indexed" in one for one in notes)
