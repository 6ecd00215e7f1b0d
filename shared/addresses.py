"""Which addresses may be reached: the public internet, and nothing of the network the worker stands in.

A URL is text from outside. Without these rules a page, a redirect or a DNS answer could make the worker
read a router, a database or the metadata service of a cloud, which hands out keys.
"""

import ipaddress
import socket
from collections.abc import Callable
from concurrent.futures import Future, wait
from threading import Thread

from shared.urls import AddressRefused, FetchError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolver = Callable[[str, int], list[str]]  # host, port -> addresses as text; raises OSError

# public addresses that are not public services: Azure's host agent answers each of its machines here
_METADATA = frozenset({ipaddress.ip_address("168.63.129.16")})
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_COMPATIBLE = ipaddress.ip_network("::/96")


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
    if address in _NAT64 or address in _COMPATIBLE:
        found.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return [one for one in found if one is not None]


def _reason(address: Address) -> str | None:
    if isinstance(address, ipaddress.IPv6Address) and (address.ipv4_mapped or address in _NAT64):
        return None  # judged by the IPv4 address in it, which is where it leads
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
            raise AddressRefused(
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
