"""robots.txt, and one request at a time."""

import threading
import time
from itertools import pairwise

import pytest

from shared.addresses import FetchError
from tests.fakes.site import Answer, Site
from workers.stores.web import robots
from workers.stores.web.fetch import Fetcher
from workers.stores.web.robots import Robots, turn


@pytest.fixture
def rules() -> Robots:
    return Robots(Fetcher(allow_private=True))


def text(body: str, status: int = 200) -> Answer:
    return Answer(body.encode(), "text/plain", status)


def test_what_is_forbidden_is_refused_with_its_reason(site: Site, rules: Robots) -> None:
    site.pages["/robots.txt"] = text(
        "User-agent: *\nDisallow: /private/\nDisallow: /*.cgi$\nAllow: /private/ok"
    )
    rules.check(f"{site.url}/open")
    rules.check(f"{site.url}/private/ok")
    for path in ("/private/x", "/a/b.cgi"):
        with pytest.raises(FetchError, match=r"refused by the host's robots\.txt"):
            rules.check(site.url + path)
    assert site.asked == ["/robots.txt"]


def test_rules_for_us_by_name(site: Site, rules: Robots) -> None:
    site.pages["/robots.txt"] = text("User-agent: cragline\nDisallow: /\n\nUser-agent: *\nDisallow:")
    with pytest.raises(FetchError, match="refused"):
        rules.check(f"{site.url}/x")


@pytest.mark.parametrize("status", [401, 403, 404, 410])
def test_none_forbids_nothing(site: Site, rules: Robots, status: int) -> None:
    site.pages["/robots.txt"] = text("", status)
    rules.check(f"{site.url}/x")


@pytest.mark.parametrize("status", [429, 500, 503])
def test_one_that_cannot_be_had_forbids_all_and_is_asked_for_once(
    site: Site, rules: Robots, status: int
) -> None:
    site.pages["/robots.txt"] = text("", status)
    for _ in range(3):
        with pytest.raises(FetchError, match=r"robots\.txt cannot be read, so nothing is fetched there"):
            rules.check(f"{site.url}/x")
    assert site.asked == ["/robots.txt"]


def test_nobody_there_forbids_all() -> None:
    with pytest.raises(FetchError, match=r"robots\.txt cannot be read"):
        Robots(Fetcher(allow_private=True)).check("http://127.0.0.1:1/x")


def test_an_address_that_is_refused_is_called_so(site: Site) -> None:
    with pytest.raises(FetchError, match=r"^127\.0\.0\.1: refused, as its address") as caught:
        Robots(Fetcher()).check(f"{site.url}/x")
    assert "robots" not in str(caught.value)


def test_junk_is_no_rule(site: Site, rules: Robots) -> None:
    site.pages["/robots.txt"] = Answer(bytes(range(256)) * 100, "image/png")
    rules.check(f"{site.url}/x")


def test_a_delay_that_is_asked_for_is_kept_within_reason(site: Site, rules: Robots) -> None:
    site.pages["/robots.txt"] = text("User-agent: *\nCrawl-delay: 2\nSitemap: https://x.example/s.xml")
    assert rules.delay(f"{site.url}/x") == 2
    assert rules.sitemaps(f"{site.url}/x") == ["https://x.example/s.xml"]
    other = Robots(rules.fetcher)
    site.pages["/robots.txt"] = text("User-agent: *\nCrawl-delay: 86400")
    assert other.delay(f"{site.url}/x") == robots.MAX_DELAY


def test_one_at_a_time_with_a_pause() -> None:
    times: list[tuple[float, float]] = []

    def ask() -> None:
        with turn("http://one.example/x", 0.05):
            begun = time.monotonic()
            time.sleep(0.02)
            times.append((begun, time.monotonic()))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    times.sort()
    for (_, ended), (begun, _) in pairwise(times):
        assert begun - ended >= 0.045


def test_other_hosts_do_not_wait() -> None:
    with turn("http://slow.example/", 60), turn("http://other.example/", 0.0):
        pass
