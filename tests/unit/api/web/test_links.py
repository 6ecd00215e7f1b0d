"""Only http(s) addresses become links, and a login leads nowhere else."""

import pytest

from api.web.links import own_path, safe_link
from tests.integration.api.web.data import BAD_LINKS


@pytest.mark.parametrize(
    "source",
    [
        "https://example.org/a?b=c#d",
        "http://example.org",
        "HTTPS://EXAMPLE.ORG/",
        "https://example.org/عقد",
        "http://[::1]:80/x",
    ],
)
def test_addresses_of_pages_become_links(source: str) -> None:
    assert safe_link(source) == source


@pytest.mark.parametrize(
    "source",
    [
        *BAD_LINKS,
        "",
        "https://",
        "http:///x",
        "https://[x",
        "https://a\u200b.b/",
        "x" * 3000,
        None,
        7,
        ["https://a.b"],
    ],
)
def test_anything_else_stays_text(source: object) -> None:
    assert safe_link(source) is None


@pytest.mark.parametrize("path", ["/", "/batches/3?status=failed&words=%20x", "/runs/5"])
def test_a_path_here_is_gone_to(path: str) -> None:
    assert own_path(path) == path


@pytest.mark.parametrize(
    "given",
    [
        None,
        "",
        "x",
        "https://evil.example",
        "//evil.example",
        "/\\evil.example",
        "/a\\b",
        "/a\r\nSet-Cookie: x",
        "/" * 600,
    ],
)
def test_anywhere_else_is_the_front_page(given: str | None) -> None:
    assert own_path(given) == "/"
