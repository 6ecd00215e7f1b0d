"""One fetch against a server that behaves badly."""

import gzip
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest

from shared.addresses import FetchError
from tests.fakes.site import Answer, Site
from workers.stores.web import fetch
from workers.stores.web.fetch import Fetcher


@pytest.fixture
def fetcher() -> Fetcher:
    return Fetcher(allow_private=True, max_bytes=100_000, max_seconds=5)


def test_a_page_with_what_the_server_said_of_it(site: Site, fetcher: Fetcher) -> None:
    site.pages["/a?q=1"] = Answer(b"<p>gr\xfc\xdfe", "text/HTML; Charset=ISO-8859-1")
    found = fetcher.get(f"{site.url}/a?q=1#part", {"text/html"})
    assert (found.url, found.content_type, found.charset) == (
        f"{site.url}/a?q=1",
        "text/html",
        "ISO-8859-1",
    )
    assert found.body == b"<p>gr\xfc\xdfe"
    assert site.headers[0]["user-agent"].startswith("cragline/")
    assert site.headers[0]["host"] == f"127.0.0.1:{site.port}"


def test_this_machine_is_refused_without_allow_private(site: Site) -> None:
    for host in ("127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]"):
        with pytest.raises(FetchError, match=r"refused, as its address .* is loopback"):
            Fetcher().get(f"http://{host}:{site.port}/")
    assert site.asked == []


def test_rebinding_changes_nothing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name is public when it is checked and this machine afterwards: the socket goes where the check was."""
    answers = iter([["93.184.215.14"], ["127.0.0.1"], ["127.0.0.1"]])
    asked: list[str] = []
    connected: list[str] = []

    def resolver(host: str, port: int) -> list[str]:
        asked.append(host)
        return next(answers)

    def connect(address: Any, *args: Any, **more: Any) -> socket.socket:
        connected.append(address[0])
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "create_connection", connect)
    with pytest.raises(FetchError, match="connection failed"):
        Fetcher(resolver=resolver).get(f"http://rebind.example:{site.port}/")
    assert asked == ["rebind.example"]
    assert connected == ["93.184.215.14"]


def test_each_redirect_is_checked_anew(site: Site) -> None:
    site.pages["/"] = Answer(status=302, headers={"Location": f"http://inside.example:{site.port}/secret"})
    site.pages["/secret"] = "secret"
    # what a test cannot do is serve from a public address; so the start is let through by name
    checked: list[str] = []

    def resolver(host: str, port: int) -> list[str]:
        checked.append(host)
        return ["127.0.0.1"]

    assert Fetcher(allow_private=True, resolver=resolver).get(f"http://start.example:{site.port}/").body == (
        b"secret"
    )
    assert checked == ["start.example", "inside.example"]


@pytest.mark.parametrize(
    ("location", "said"),
    [
        ("http://169.254.169.254/latest/meta-data/", "link-local"),
        ("http://[::ffff:10.0.0.1]/", "private"),
        ("http://2130706433/", "loopback|no host"),
        ("file:///etc/passwd", "only http"),
        ("gopher://x.example/", "only http"),
        ("http://me:secret-word@x.example/", "user name or password"),
        ("http://[", "not a URL"),
        ("//[x]/", "not a URL"),
    ],
)
def test_a_redirect_leads_nowhere_else(
    site: Site, monkeypatch: pytest.MonkeyPatch, location: str, said: str
) -> None:
    site.pages["/"] = Answer(status=301, headers={"Location": location})
    real = fetch.checked_addresses

    def first_is_public(host: str, port: int, **more: Any) -> list[str]:
        return ["127.0.0.1"] if host == "start.example" else real(host, port, **more)

    monkeypatch.setattr(fetch, "checked_addresses", first_is_public)
    with pytest.raises(FetchError, match=said) as caught:
        Fetcher().get(f"http://start.example:{site.port}/")
    assert "secret-word" not in str(caught.value)


def test_redirects_end(site: Site, fetcher: Fetcher) -> None:
    site.pages["/"] = Answer(status=307, headers={"Location": "/"})
    with pytest.raises(FetchError, match="more than 5 redirects"):
        fetcher.get(f"{site.url}/")
    assert len(site.asked) == 6


def test_a_status_is_told(site: Site, fetcher: Fetcher) -> None:
    site.pages["/gone"] = Answer(status=410)
    site.pages["/broken"] = Answer(status=503)
    for path, status, gone in (("/none", 404, True), ("/gone", 410, True), ("/broken", 503, False)):
        with pytest.raises(FetchError, match=str(status)) as caught:
            fetcher.get(site.url + path)
        assert caught.value.gone is gone


def endless(stream: Any) -> None:
    stream.write(b"HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n\r\n")
    while True:
        stream.write(b"x" * 65536)


def chatty_headers(stream: Any) -> None:
    stream.write(b"HTTP/1.1 200 OK\r\n")
    for number in range(10_000):
        stream.write(b"X-%d: %s\r\n" % (number, b"y" * 1000))


def drip(stream: Any) -> None:
    stream.write(b"HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n\r\n")
    while True:
        stream.write(b"x")
        stream.flush()
        time.sleep(0.05)


def drip_headers(stream: Any) -> None:
    for byte in b"HTTP/1.0 200 OK\r\n" + b"X: y\r\n" * 1000:
        stream.write(bytes([byte]))
        stream.flush()
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (endless, "more than the 0 MB"),
        (chatty_headers, "connection failed"),
        (drip, "no whole answer within 1 s"),
        (drip_headers, "no whole answer within 1 s"),
        (lambda stream: None, "connection failed"),
        (lambda stream: time.sleep(3), "no whole answer|connection failed"),
        (lambda stream: stream.write(b"SSH-2.0-OpenSSH\r\n"), "connection failed"),
        (
            lambda stream: stream.write(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nshort"),
            "connection failed",
        ),
    ],
)
def test_a_server_cannot_hold_us(site: Site, write: Callable[[Any], None], said: str) -> None:
    site.pages["/"] = Answer(write=write)
    begun = time.monotonic()
    with pytest.raises(FetchError, match=said):
        Fetcher(allow_private=True, max_bytes=100_000, max_seconds=1).get(site.url)
    assert time.monotonic() - begun < 2.5


def test_a_length_that_is_too_much_is_refused_unread(site: Site, fetcher: Fetcher) -> None:
    site.pages["/"] = Answer(b"", headers={"Content-Length": "100001"})
    with pytest.raises(FetchError, match="more than the"):
        fetcher.get(site.url)


def test_compression_is_undone_but_a_bomb_is_not(site: Site, fetcher: Fetcher) -> None:
    def packed(body: bytes, encoding: str = "gzip") -> Answer:
        return Answer(body, headers={"Content-Encoding": encoding})

    text = b"<p>hello</p>" * 100
    site.pages["/ok"] = packed(gzip.compress(text))
    site.pages["/bomb"] = packed(gzip.compress(b"\0" * 300_000_000))
    site.pages["/cut"] = packed(gzip.compress(text)[:-9])
    site.pages["/junk"] = packed(b"not gzip")
    site.pages["/br"] = packed(b"xxx", "br")
    site.pages["/twice"] = packed(gzip.compress(gzip.compress(text)), "gzip, gzip")
    assert fetcher.get(f"{site.url}/ok").body == text
    for path, said in (
        ("/bomb", "more than the"),
        ("/cut", "compression is broken"),
        ("/junk", "compression is broken"),
        ("/br", "not asked for"),
        ("/twice", "not asked for"),
    ):
        with pytest.raises(FetchError, match=said):
            fetcher.get(site.url + path)


def test_a_bomb_is_never_held_in_memory(site: Site, fetcher: Fetcher) -> None:
    import tracemalloc

    site.pages["/"] = Answer(gzip.compress(b"\0" * 300_000_000), headers={"Content-Encoding": "gzip"})
    tracemalloc.start()
    with pytest.raises(FetchError):
        fetcher.get(site.url)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3_000_000


def test_other_kinds_of_content_are_refused(site: Site, fetcher: Fetcher) -> None:
    site.pages["/"] = Answer(b"\x89PNG", "image/png")
    with pytest.raises(FetchError, match="'image/png' is no kind of page"):
        fetcher.get(site.url, {"text/html"})
    assert fetcher.get(site.url).body == b"\x89PNG"


def test_the_environment_has_no_say(
    site: Site, fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password secret-word\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    site.pages["/"] = Answer(b"x", headers={"Set-Cookie": "a=b", "Refresh": "0; url=/other"})
    fetcher.get(site.url)
    fetcher.get(site.url)
    assert not {"authorization", "cookie", "referer"} & set(site.headers[1])
    assert site.asked == ["/", "/"]
