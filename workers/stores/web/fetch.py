"""One safe GET: every connection goes to an address that was checked, and every amount has a limit.

httpcore is used bare, so that nothing happens behind our back: no proxy and no password file from the
environment, no cookies, no redirect and no decompression that is not ours.
"""

import re
import time
import zlib
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

import httpcore

from shared.addresses import Resolver, checked_addresses, resolve
from shared.urls import FetchError, checked_url, joined, shown

USER_AGENT = f"cragline/{version('cragline')}"
MAX_BYTES = 10 * 1024 * 1024  # of a body, after decompression
MAX_SECONDS = 60.0  # of one fetch, redirects included
MAX_REDIRECTS = 5
_READ_SECONDS = 20.0  # of silence
_REDIRECTS = (301, 302, 303, 307, 308)
_CHARSET = re.compile(r"charset\s*=\s*[\"']?([A-Za-z0-9_.:-]{2,40})", re.IGNORECASE)

# entered around each request, those after a redirect too: it may wait, or refuse with FetchError
Around = Callable[[str], AbstractContextManager[Any]]


@dataclass(frozen=True)
class Fetched:
    """An answer of status 200. `url` is where the redirects ended; `body` is decompressed."""

    url: str
    content_type: str  # lower case, without parameters; empty when the server named none
    charset: str | None
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)  # names in lower case


@dataclass(frozen=True)
class Fetcher:
    """Fetches pages. Holds no connection, so it may be used from any thread."""

    allow_private: bool = False
    max_bytes: int = MAX_BYTES
    max_seconds: float = MAX_SECONDS
    resolver: Resolver = resolve

    def get(
        self, url: str, types: Iterable[str] | None = None, around: Around = lambda url: nullcontext()
    ) -> Fetched:
        """The page at `url`. `types` are the content types that are taken; None takes all.

        What `around` waits does not count as time of the fetch. Raises FetchError for whatever is not a page
        within the limits.
        """
        budget = self.max_seconds
        here = checked_url(url)
        for _ in range(MAX_REDIRECTS + 1):
            with around(here):
                begun = time.monotonic()
                found = self._once(here, types, begun + budget)
                budget -= time.monotonic() - begun
            if isinstance(found, Fetched):
                return found
            here = checked_url(joined(here, found))
        raise FetchError(f"{shown(url)}: more than {MAX_REDIRECTS} redirects.")

    def _once(self, url: str, types: Iterable[str] | None, deadline: float) -> Fetched | str:
        """The page, or where its server sends us."""
        backend = Guarded(self, deadline)
        headers = {
            "User-Agent": USER_AGENT,
            "Accept": "*/*",
            "Accept-Encoding": "gzip",
            "Connection": "close",
        }
        timeouts = {"connect": _READ_SECONDS, "read": _READ_SECONDS, "write": _READ_SECONDS}
        try:
            with (
                httpcore.ConnectionPool(network_backend=backend, max_keepalive_connections=0) as pool,
                pool.stream(
                    "GET",
                    url,
                    headers=list(headers.items()),
                    extensions={"timeout": timeouts},
                ) as answer,
            ):
                return self._answered(url, answer, types)
        except (httpcore.TimeoutException, TimeoutError):
            raise FetchError(f"{shown(url)}: no whole answer within {self.max_seconds:.0f} s.") from None
        except (httpcore.NetworkError, httpcore.ProtocolError, OSError) as error:
            raise FetchError(f"{shown(url)}: the connection failed ({_kind(error)}).") from None

    def _answered(self, url: str, answer: httpcore.Response, types: Iterable[str] | None) -> Fetched | str:
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in answer.headers}
        status = answer.status
        if status in _REDIRECTS and headers.get("location"):
            return headers["location"]
        if status != 200:
            raise FetchError(f"{shown(url)}: the server answered {status}.", status=status)
        kind = headers.get("content-type", "")
        content_type = kind.partition(";")[0].strip().lower()
        if types is not None and content_type and content_type not in types:
            raise FetchError(f"{shown(url)}: {content_type[:60]!r} is no kind of page that can be ingested.")
        charset = _CHARSET.search(kind)
        body = self._body(url, answer, headers)
        return Fetched(url, content_type, charset[1] if charset else None, body, headers)

    def _body(self, url: str, answer: httpcore.Response, headers: dict[str, str]) -> bytes:
        encoding = headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ("identity", "", "gzip", "x-gzip"):
            raise FetchError(f"{shown(url)}: sent as {encoding[:30]!r}, which was not asked for.")
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length) > self.max_bytes:
            raise self._too_big(url)
        inflater = zlib.decompressobj(wbits=31) if "gzip" in encoding else None
        body = bytearray()
        try:
            for block in answer.iter_stream():
                # never more than one byte above the limit is inflated, whatever the archive promises
                room = self.max_bytes + 1 - len(body)
                body += inflater.decompress(block, room) if inflater else block
                if len(body) > self.max_bytes:
                    raise self._too_big(url)
        except zlib.error:
            raise FetchError(f"{shown(url)}: its compression is broken.") from None
        if inflater and not inflater.eof:
            raise FetchError(f"{shown(url)}: its compression is broken.")
        return bytes(body)

    def _too_big(self, url: str) -> FetchError:
        return FetchError(f"{shown(url)}: more than the {self.max_bytes / 1e6:.0f} MB that a page may have.")


class Guarded(httpcore.NetworkBackend):
    """Connects only to an address it has checked itself, and ends everything at the deadline.

    The name is resolved once, here; the socket is then opened to that very address, so a second DNS
    answer can change nothing. TLS still checks the certificate against the name.
    """

    def __init__(self, fetcher: Fetcher, deadline: float) -> None:
        self._fetcher = fetcher
        self._deadline = deadline
        self._inner = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Any = None,
    ) -> httpcore.NetworkStream:
        addresses = checked_addresses(
            host,
            port,
            allow_private=self._fetcher.allow_private,
            resolver=self._fetcher.resolver,
            timeout=left(self._deadline, timeout),
        )
        failed: Exception | None = None
        for address in addresses:
            try:
                stream = self._inner.connect_tcp(
                    address, port, left(self._deadline, timeout), local_address, socket_options
                )
                return _Timed(stream, self._deadline)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failed = error
        assert failed is not None, "there is at least one address"
        raise failed

    def sleep(self, seconds: float) -> None:
        raise NotImplementedError("nothing is tried again here")


class _Timed(httpcore.NetworkStream):
    """A stream on which a server that sends byte after byte, slowly, does not get more time by it."""

    def __init__(self, inner: httpcore.NetworkStream, deadline: float) -> None:
        self._inner = inner
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, left(self._deadline, timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, left(self._deadline, timeout))

    def close(self) -> None:
        with suppress(OSError):
            self._inner.close()

    def start_tls(
        self, ssl_context: Any, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        inner = self._inner.start_tls(ssl_context, server_hostname, left(self._deadline, timeout))
        return _Timed(inner, self._deadline)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


def left(deadline: float, timeout: float | None) -> float:
    """Seconds that one step may take. Raises httpcore.TimeoutException when there are none."""
    remaining = deadline - time.monotonic()
    if remaining <= 0:
        raise httpcore.ReadTimeout("out of time")
    return min(remaining, _READ_SECONDS if timeout is None else timeout)


def _kind(error: Exception) -> str:
    """A word for a person; the certificate's trouble is worth its own."""
    return "its certificate is not valid" if "CERTIFICATE" in str(error).upper() else type(error).__name__
