"""The health checks of the containers, without containers."""

import importlib.util
import os
import socket
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

SOURCE = Path(__file__).resolve().parents[3] / "docker" / "health.py"


@pytest.fixture(scope="module")
def health() -> ModuleType:
    spec = importlib.util.spec_from_file_location("container_health", SOURCE)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class FakeApp:
    def __init__(self, answers: Any) -> None:
        self.answers = answers
        self.asked: list[str] = []
        self.closed = False
        self.control = SimpleNamespace(ping=self.ping)

    def ping(self, destination: list[str], timeout: float) -> Any:
        self.asked = destination
        if isinstance(self.answers, Exception):
            raise self.answers
        return self.answers

    def close(self) -> None:
        self.closed = True


def use(monkeypatch: pytest.MonkeyPatch, answers: Any) -> FakeApp:
    app = FakeApp(answers)
    monkeypatch.setattr("shared.queue.make_app", lambda settings: app)
    return app


def test_a_worker_that_answers_is_healthy(health: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    app = use(monkeypatch, [{"models@here": {"ok": "pong"}}])
    assert health.main(["worker", "models"]) == 0
    assert app.asked == [f"models@{socket.gethostname()}"]
    assert app.closed


def test_a_worker_that_is_silent_is_not(
    health: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use(monkeypatch, [])
    assert health.main(["worker", "models"]) == 1
    assert "does not answer" in capsys.readouterr().out


def test_a_broker_error_is_told_without_its_text(
    health: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    app = use(monkeypatch, ConnectionError("redis://:geheim@redis:6379"))
    assert health.main(["worker", "models"]) == 1
    told = capsys.readouterr()
    assert "ConnectionError" in told.out
    assert "geheim" not in told.out + told.err
    assert app.closed


def test_beat_without_a_schedule_is_not_healthy(health: ModuleType, tmp_path: Path) -> None:
    assert health.main(["beat", str(tmp_path / "schedule")]) == 1


@pytest.mark.parametrize("ending", ["", ".db", ".db-wal"])
def test_beat_is_healthy_while_it_writes(health: ModuleType, tmp_path: Path, ending: str) -> None:
    written = tmp_path / f"schedule{ending}"
    written.touch()
    assert health.main(["beat", str(tmp_path / "schedule")]) == 0
    old = time.time() - 3600
    os.utime(written, (old, old))
    assert health.main(["beat", str(tmp_path / "schedule")]) == 1
    (tmp_path / "schedule.new").touch()  # the newest of its files counts
    assert health.main(["beat", str(tmp_path / "schedule")]) == 0


def test_beats_patience_covers_its_own_interval(health: ModuleType) -> None:
    from celery.beat import Scheduler

    assert Scheduler.sync_every == health.SYNC_SECONDS


@pytest.fixture
def server() -> Iterator[HTTPServer]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(self.server.status if self.path in ("/healthcheck", "/healthz") else 404)  # type: ignore[attr-defined]
            self.end_headers()

        def log_message(self, *words: Any) -> None:
            pass

    made = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=made.serve_forever, daemon=True)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


@pytest.mark.parametrize("part", ["flower", "api"])
def test_a_server_that_answers(health: ModuleType, server: HTTPServer, part: str) -> None:
    port = str(server.server_address[1])
    server.status = 200  # type: ignore[attr-defined]
    assert health.main([part, port]) == 0
    server.status = 500  # type: ignore[attr-defined]
    assert health.main([part, port]) == 1


@pytest.mark.parametrize("part", ["flower", "api"])
def test_a_server_that_is_not_there(health: ModuleType, part: str) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        assert health.main([part, str(probe.getsockname()[1])]) == 1


@pytest.mark.parametrize("words", [[], ["worker"], ["nothing", "x"], ["beat", "a", "b"]])
def test_wrong_usage(health: ModuleType, words: list[str]) -> None:
    assert health.main(words) == 2
