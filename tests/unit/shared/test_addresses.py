"""Which addresses are refused, whatever they are written as and whatever DNS says."""

import socket
import time

import pytest

from shared.addresses import FetchError, checked_addresses, refusal, resolve


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("127.0.0.1", "loopback"),
        ("127.255.255.254", "loopback"),
        ("::1", "loopback"),
        ("0.0.0.0", "unspecified"),
        ("0.1.2.3", "private"),
        ("::", "unspecified"),
        ("10.0.0.1", "private"),
        ("172.16.0.1", "private"),
        ("172.31.255.255", "private"),
        ("192.168.1.1", "private"),
        ("fd00:ec2::254", "private"),
        ("fc00::1", "private"),
        ("169.254.169.254", "link-local"),
        ("fe80::1", "link-local"),
        ("fe80::1%eth0", "link-local"),
        ("100.64.0.1", "not public"),
        ("100.100.100.200", "not public"),
        ("224.0.0.1", "multicast"),
        ("ff02::1", "multicast"),
        ("240.0.0.1", "private"),
        ("255.255.255.255", "private"),
        ("192.0.2.1", "private"),
        ("198.18.0.1", "private"),
        ("168.63.129.16", "metadata service"),
        ("::ffff:127.0.0.1", "loopback"),
        ("::ffff:169.254.169.254", "link-local"),
        ("::ffff:10.0.0.1", "private"),
        ("::ffff:a9fe:a9fe", "link-local"),
        ("::127.0.0.1", None),  # refused, whatever the word
        ("64:ff9b::7f00:1", "loopback"),
        ("64:ff9b::a9fe:a9fe", "link-local"),
        ("64:ff9b:1::a00:1", None),
        ("2002:7f00:1::", None),
        ("2002:a9fe:a9fe::1", None),
        ("2001:0:4136:e378:8000:63bf:3fff:fdd2", None),
        ("not an address", "not an address"),
    ],
)
def test_refused(address: str, reason: str | None) -> None:
    said = refusal(address)
    assert said is not None
    assert reason is None or said == reason


@pytest.mark.parametrize(
    "address", ["93.184.215.14", "1.1.1.1", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"]
)
def test_public(address: str) -> None:
    assert refusal(address) is None


def test_one_forbidden_address_refuses_the_host() -> None:
    with pytest.raises(FetchError, match=r"10\.0\.0\.7 is private.*--allow-private"):
        checked_addresses(
            "mixed.example", 80, allow_private=False, resolver=lambda host, port: ["1.1.1.1", "10.0.0.7"]
        )
    assert checked_addresses(
        "mixed.example", 80, allow_private=True, resolver=lambda host, port: ["1.1.1.1", "10.0.0.7"]
    ) == ["1.1.1.1", "10.0.0.7"]


@pytest.mark.parametrize("host", ["2130706433", "0x7f000001", "017700000001", "127.1", "0"])
def test_odd_spellings_of_loopback_are_judged_by_what_they_resolve_to(host: str) -> None:
    try:
        addresses = resolve(host, 80)
    except OSError:
        return  # a system that does not take them is safe as well
    assert all(refusal(one) for one in addresses)
    with pytest.raises(FetchError):
        checked_addresses(host, 80, allow_private=False)


def test_no_host_and_a_slow_resolver_are_said() -> None:
    def unknown(host: str, port: int) -> list[str]:
        raise socket.gaierror(-2, "Name or service not known")

    def slow(host: str, port: int) -> list[str]:
        time.sleep(1)
        return ["1.1.1.1"]

    with pytest.raises(FetchError, match="no host of this name"):
        checked_addresses("x.example", 80, allow_private=False, resolver=unknown)
    with pytest.raises(FetchError, match="no host of this name"):
        checked_addresses("x.example", 80, allow_private=False, resolver=lambda host, port: [])
    begun = time.monotonic()
    with pytest.raises(FetchError, match="not resolved within"):
        checked_addresses("x.example", 80, allow_private=False, resolver=slow, timeout=0.1)
    assert time.monotonic() - begun < 0.8
