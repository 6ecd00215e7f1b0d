"""robots.txt, as RFC 9309 has it, and politeness: one request at a time a host, with a pause."""

import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from protego import Protego

from shared.urls import AddressRefused, FetchError, host_of, shown
from workers.stores.web.fetch import USER_AGENT, Fetcher

DELAY = 0.5  # seconds between two requests to a host
MAX_DELAY = 30.0  # a longer Crawl-delay is cut to this
MAX_ROBOTS = 500 * 1024  # bytes; the standard asks for at least as much
_HOSTS = 1000


@dataclass
class Robots:
    """The rules of the hosts that one walk has met. `fetcher` is that of the walk."""

    fetcher: Fetcher
    _rules: dict[str, Protego | FetchError] = field(default_factory=dict)

    def check(self, url: str) -> None:
        """Raises FetchError when the host forbids `url`, or when its rules cannot be read."""
        if not self._of(url).can_fetch(url, USER_AGENT):
            raise FetchError(f"{shown(url)}: refused by the host's robots.txt.")

    def delay(self, url: str) -> float:
        """Seconds to leave between two requests to the host of `url`."""
        asked = self._of(url).crawl_delay(USER_AGENT)
        return max(DELAY, min(float(asked or 0), MAX_DELAY))

    @contextmanager
    def polite(self, url: str) -> Iterator[None]:
        """Around a request: allowed, and in turn. Raises FetchError."""
        self.check(url)
        with turn(url, self.delay(url)):
            yield

    def sitemaps(self, url: str) -> list[str]:
        """What the host of `url` names as its sitemaps."""
        return list(self._of(url).sitemaps)

    def _of(self, url: str) -> Protego:
        site = f"{urlsplit(url).scheme}://{host_of(url)}"
        if site not in self._rules:
            self._rules[site] = self._read(site)
        rules = self._rules[site]
        if isinstance(rules, FetchError):
            raise rules
        return rules

    def _read(self, site: str) -> Protego | FetchError:
        """No robots.txt (4xx) forbids nothing; one that cannot be had forbids all, as the standard says."""
        fetcher = Fetcher(self.fetcher.allow_private, MAX_ROBOTS, 30.0, self.fetcher.resolver)
        try:
            found = fetcher.get(f"{site}/robots.txt", around=lambda url: turn(url, DELAY))
        except AddressRefused as error:
            return error
        except FetchError as error:
            if _answered_4xx(error):
                return Protego.parse("")
            return FetchError(f"{site}: its robots.txt cannot be read, so nothing is fetched there. {error}")
        return Protego.parse(found.body.decode("utf-8", "replace"))


def _answered_4xx(error: FetchError) -> bool:
    return error.status is not None and 400 <= error.status < 500 and error.status != 429


class _Gate:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.last = 0.0  # monotonic time at which the last request ended


_gates: OrderedDict[str, _Gate] = OrderedDict()
_gates_lock = threading.Lock()


@contextmanager
def turn(url: str, delay: float) -> Iterator[None]:
    """Our turn at the host of `url`: nobody else of this process asks it, and `delay` seconds have passed."""
    with _gates_lock:
        gate = _gates.setdefault(host_of(url), _Gate())
        _gates.move_to_end(host_of(url))
        while len(_gates) > _HOSTS:
            _gates.popitem(last=False)
    with gate.lock:
        pause = gate.last + delay - time.monotonic()
        if pause > 0:
            time.sleep(pause)
        try:
            yield
        finally:
            gate.last = time.monotonic()
