"""https: the certificate is checked against the name, though the connection goes to the checked address."""

import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpcore
import pytest

from shared.addresses import FetchError
from tests.fakes.site import Site
from workers.stores import git
from workers.stores.git import opened
from workers.stores.loaders import LoadError
from workers.stores.web.fetch import Fetcher

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate of `site.example` with its key, signed by itself."""
    path = tmp_path / "site.pem"
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=site.example"
    words += f" -addext subjectAltName=DNS:site.example -keyout {path}.key -out {path}"
    subprocess.run(["openssl", *words.split()], check=True, capture_output=True)
    return path


@pytest.fixture
def site(certificate: Path) -> Iterator[Site]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, f"{certificate}.key")
    with Site(context) as made:
        made.article("/", "Title", "Text")
        yield made


def here(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


def test_a_certificate_that_nobody_vouches_for_is_refused(site: Site) -> None:
    with pytest.raises(FetchError, match="its certificate is not valid"):
        Fetcher(allow_private=True, resolver=here).get(f"https://site.example:{site.port}/")
    assert site.asked == []


def test_a_trusted_certificate_holds_for_its_name_only(
    site: Site, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ssl.create_default_context(cafile=str(certificate))
    real = httpcore.ConnectionPool.__init__

    def trusting(self: httpcore.ConnectionPool, **words: object) -> None:
        real(self, ssl_context=context, **words)  # type: ignore[arg-type]

    monkeypatch.setattr(httpcore.ConnectionPool, "__init__", trusting)
    fetcher = Fetcher(allow_private=True, resolver=here)
    assert b"Title" in fetcher.get(f"https://site.example:{site.port}/").body
    with pytest.raises(FetchError, match="its certificate is not valid"):
        fetcher.get(f"https://other.example:{site.port}/")


def test_git_connects_to_the_address_that_was_checked(site: Site) -> None:
    """No resolver knows the name: what git complains of is the certificate of the server it was led to."""
    with (
        pytest.raises(LoadError, match=r"could not fetch 'HEAD' \(.*certificate"),
        opened(f"git+https://site.example:{site.port}/o/r", allow_private=True, resolver=here),
    ):
        pass
    assert git._version() >= (2, 37)
