"""URLs as they are stored and shown, and those that are refused before anything is asked."""

import pytest

from shared.urls import FetchError, checked_url, host_of, shown


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("HTTP://Example.COM:80", "http://example.com/"),
        ("https://example.com:443/a b".replace(" ", "%20"), "https://example.com/a%20b"),
        ("https://example.com/a?q=1#part", "https://example.com/a?q=1"),
        ("https://example.com:8443/", "https://example.com:8443/"),
        ("https://bücher.example/ä", "https://xn--bcher-kva.example/%C3%A4"),
        ("https://example.com./x", "https://example.com/x"),
        ("http://[::1]:8000/x", "http://[::1]:8000/x"),
    ],
)
def test_the_form_in_which_a_url_is_kept(given: str, kept: str) -> None:
    assert checked_url(given) == kept
    assert checked_url(kept) == kept


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("ftp://example.com/", "only http"),
        ("file:///etc/passwd", "only http"),
        ("gopher://example.com/", "only http"),
        ("javascript:alert(1)", "only http"),
        ("https://", "no host"),
        ("https:///path", "no host"),
        ("https://me:secret-word@example.com/", "user name or password"),
        ("https://me@example.com/", "user name or password"),
        ("https://example.com\\@evil.example/", "user name or password"),
        ("https://example.com/a b", "no blanks"),
        ("https://example.com/a\r\nHost: evil", "no blanks"),
        ("https://example.com/\udcff", "is UTF-8"),
        ("https://example.com:99999/", "no URL|can be read"),
        ("https://[::1/", "no URL|can be read"),
        ("https://example.com/" + "a" * 3000, "too long"),
    ],
)
def test_what_is_refused(given: str, said: str) -> None:
    with pytest.raises(FetchError, match=said) as caught:
        checked_url(given)
    assert "secret-word" not in str(caught.value)


@pytest.mark.parametrize(
    "given",
    ["https://me:secret-word@h.example/x?key=secret-word#secret-word", "me:secret-word@h.example", "x@y:z"],
)
def test_what_is_shown_holds_no_secret(given: str) -> None:
    assert "secret-word" not in shown(given)
    assert "\x1b" not in shown(f"{given}\x1b[31m")


def test_a_site_is_a_host_with_its_port() -> None:
    assert host_of("http://Example.com:8000/x") == "example.com:8000"
