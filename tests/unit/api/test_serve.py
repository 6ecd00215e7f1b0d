"""How the server is started: who is let in without a key, and where bodies are kept while they are read."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api import serve
from api.security import is_loopback
from shared.settings import get_settings


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """Runs `main` with these words; gives the application and what uvicorn was told."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CRAGLINE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(serve, "configure_logging", lambda settings: None)
    get_settings.cache_clear()

    def start(*words: str) -> tuple[Any, dict[str, Any]]:
        told: list[Any] = []
        monkeypatch.setattr(serve.uvicorn, "run", lambda app, **more: told.append((app, more)))
        monkeypatch.setattr("sys.argv", ["serve", "--port", "8585", *words])
        assert serve.main() == 0
        return told[0]

    yield start
    get_settings.cache_clear()


@pytest.mark.parametrize(
    ("words", "open_"),
    [
        (("--embedded",), True),
        (("--embedded", "--host", "127.0.0.1"), True),
        (("--embedded", "--host", "0.0.0.0"), False),  # everybody could ask without a key
        (("--embedded", "--host", "::"), False),
        ((), False),
    ],
)
def test_only_the_embedded_api_on_loopback_asks_no_key(started: Any, words: Any, open_: bool) -> None:
    app, _ = started(*words)
    assert app.state.cragline.open_on_loopback is open_


def test_headers_that_anybody_can_write_are_not_believed_and_queries_not_logged(started: Any) -> None:
    _, told = started()
    assert (told["proxy_headers"], told["access_log"]) == (False, False)


def test_bodies_are_kept_in_the_home_and_old_ones_removed(started: Any, tmp_path: Path) -> None:
    spool = tmp_path / "home" / "spool"
    for name, age in (("old", 90_000), ("new", 10)):
        (spool / name).mkdir(parents=True)
        os.utime(spool / name, (os.stat(spool / name).st_atime, os.stat(spool / name).st_mtime - age))
    started()
    assert tempfile.gettempdir() == str(spool)
    assert [path.name for path in spool.iterdir()] == ["new"]


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost", "LocalHost"])
def test_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["", "0.0.0.0", "::", "10.0.0.1", "localhost.example", "127.0.0.1.nip.io", "127.1"]
)
def test_not_loopback(host: str) -> None:
    assert not is_loopback(host)
