"""Which addresses may be reached: the public internet, and nothing of the network the worker stands in.

A URL is text from outside. Without these rules a page, a redirect or a DNS answer could make the worker
read a router, a database or the metadata service of a cloud, which hands out keys.
"""

import ipaddress
import socket
from collections.abc import Callable
from concurrent.futures import Future, wait
from threading import Thread
from urllib.parse import SplitResult, quote, urlsplit, urlunsplit

from shared.errors import CraglineError

MAX_URL = 2000  # characters
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolver = Callable[[str, int], list[str]]  # host, port -> addresses as text; raises OSError

# public addresses that are not public services: Azure's host agent answers each of its machines here
_METADATA = frozenset({ipaddress.ip_address("168.63.129.16")})
_NAT64 = (ipaddress.ip_network("64:ff9b::/96"), ipaddress.ip_network("64:ff9b:1::/48"))
_COMPATIBLE = ipaddress.ip_network("::/96")


class FetchError(CraglineError):
    """A page was refused or could not be had; names the URL (without secrets) and the reason.

    `status` is what the server answered, None when it did not.
    """

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status

    @property
    def gone(self) -> bool:
        """The server said that there is no such page."""
        return self.status in (404, 410)


def refusal(address: str) -> str | None:
    """Why `address` must not be connected to, None when it is a public one."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return "not an address"
    for embedded in (parsed, *_embedded(parsed)):
        reason = _reason(embedded)
        if reason is not None:
            return reason
    return None


def _embedded(address: Address) -> list[Address]:
    """IPv4 addresses that an IPv6 one leads to: mapped, 6to4, Teredo, NAT64, IPv4-compatible."""
    if isinstance(address, ipaddress.IPv4Address):
        return []
    found: list[Address | None] = [address.ipv4_mapped, address.sixtofour]
    if address.teredo is not None:
        found += address.teredo
    if any(address in network for network in _NAT64) or address in _COMPATIBLE:
        found.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return [one for one in found if one is not None]


def _reason(address: Address) -> str | None:
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return None  # judged by the IPv4 address in it
    kinds = (
        (address.is_unspecified, "unspecified"),
        (address.is_loopback, "loopback"),
        (address.is_link_local, "link-local"),
        (address.is_multicast, "multicast"),
        (address in _METADATA, "metadata service"),
        (address.is_private, "private"),
        (address.is_reserved, "reserved"),
        (not address.is_global, "not public"),  # among them 100.64.0.0/10, carrier-grade NAT
    )
    return next((name for matches, name in kinds if matches), None)


def resolve(host: str, port: int) -> list[str]:
    """The addresses of `host` by the system's resolver, in its order. Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return list(dict.fromkeys(str(one[4][0]) for one in found))


def checked_addresses(
    host: str, port: int, *, allow_private: bool, resolver: Resolver = resolve, timeout: float = 10.0
) -> list[str]:
    """The addresses of `host`, each of which may be connected to.

    One forbidden address among them refuses the host: a mixture is how rebinding is tried. Raises FetchError.
    """
    try:
        addresses = _bounded(lambda: resolver(host, port), timeout)
    except TimeoutError:
        raise FetchError(f"{host}: its name was not resolved within {timeout:.0f} s.") from None
    except (OSError, UnicodeError):
        raise FetchError(f"{host}: there is no host of this name.") from None
    if not addresses:
        raise FetchError(f"{host}: there is no host of this name.")
    for address in addresses:
        reason = refusal(address)
        if reason is not None and not allow_private:
            raise FetchError(
                f"{host}: refused, as its address {address} is {reason}. "
                "--allow-private permits addresses of your own network."
            )
    return addresses


def _bounded(call: Callable[[], list[str]], timeout: float) -> list[str]:
    """`call` in a thread of its own, as the system's resolver knows no time limit."""
    future: Future[list[str]] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001 - handed to the caller
            future.set_exception(error)

    Thread(target=run, name="resolve", daemon=True).start()
    if not wait([future], timeout=max(timeout, 0.01)).done:
        raise TimeoutError
    return future.result()


def checked_url(url: str) -> str:
    """`url` in the form it is fetched and stored in: lower-case host, no default port, no fragment.

    Raises FetchError for another scheme than http and https, for user and password in it, for no host, and
    for what is no URL. The error never quotes a password.
    """
    if len(url) > MAX_URL:
        raise FetchError(f"A URL of {len(url)} characters is too long; {MAX_URL} are allowed.")
    if any(ord(one) < 33 or ord(one) == 127 for one in url):
        raise FetchError(f"{shown(url)}: a URL has no blanks and no control characters.")
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        raise FetchError(f"{shown(url)}: not a URL that can be read.") from None
    if parts.scheme.lower() not in ("http", "https"):
        raise FetchError(f"{shown(url)}: only http:// and https:// are fetched.")
    if "@" in parts.netloc or "\\" in parts.netloc:
        raise FetchError(f"{shown(url)}: a URL must not hold a user name or password.")
    if not host:
        raise FetchError(f"{shown(url)}: there is no host in it.")
    return _rebuilt(parts, _ascii(host, url), port)


def _rebuilt(parts: SplitResult, host: str, port: int | None) -> str:
    scheme = parts.scheme.lower()
    netloc = f"[{host}]" if ":" in host else host
    if port is not None and port != {"http": 80, "https": 443}[scheme]:
        netloc += f":{port}"
    path = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~-._")
    return urlunsplit((scheme, netloc, path, quote(parts.query, safe="/%:@!$&'()*+,;=~-._?"), ""))


def _ascii(host: str, url: str) -> str:
    try:
        return host.lower() if host.isascii() else host.encode("idna").decode("ascii").lower()
    except UnicodeError:
        raise FetchError(f"{shown(url)}: the host's name cannot be read.") from None


def shown(url: str) -> str:
    """`url` for a message: without user, password, query and fragment, printable, and not too long."""
    head, scheme, rest = url.partition("://")
    if not scheme:
        head, rest = "", url
    place, slash, path = rest.partition("/")
    place = place.rpartition("@")[2]
    path = path.split("?")[0].split("#")[0]
    plain = f"{head}{scheme}{place.split('?')[0].split('#')[0]}{slash}{path}"
    return "".join(one if one.isprintable() else "?" for one in plain)[:200]


def host_of(url: str) -> str:
    """Host with port, as one site: `example.com`, `127.0.0.1:8000`."""
    return urlsplit(url).netloc.lower()
