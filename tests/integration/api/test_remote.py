"""The command line's `--server`, against a real HTTP server; and what only a real one shows."""

import csv
import io
import json
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from sqlalchemy import Engine
from structlog.testing import capture_logs
from typer.testing import CliRunner

from api.cli.main import app as cli
from api.cli.remote import Server, ServerAway
from api.cli.remote_results import fetch_results
from api.routes import progress
from shared.errors import Conflict, CraglineError, NotFound, UsageError
from shared.settings import Settings, get_settings
from tests.integration.api.conftest import Api
from tests.integration.api.test_reading import answer_all
from tests.integration.api.test_submit import CSV, QUESTIONS
from tests.integration.cluster import read_rows


@pytest.fixture(scope="module")
def url(settings: Settings, engine: Engine) -> Iterator[str]:
    """The API on a port of this machine, where everybody needs a key."""
    app = Api(settings.model_copy(update={"api_rate": 100_000}), engine).app
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(10)
    assert not thread.is_alive()


@pytest.fixture
def use_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """Sets CRAGLINE_API_KEY for what follows."""
    monkeypatch.chdir(tmp_path)

    def use(token: str) -> None:
        monkeypatch.setenv("CRAGLINE_API_KEY", token)
        get_settings.cache_clear()

    yield use
    get_settings.cache_clear()


@pytest.fixture
def there(url: str, api: Api, use_key: Any) -> Server:
    use_key(api.key("remote"))
    return Server(url)


def test_a_file_goes_there_and_its_results_come_back(there: Server, engine: Engine, tmp_path: Path) -> None:
    file = tmp_path / "my questions.csv"
    file.write_text(CSV)
    made = there.submit(file, {"pipeline": "rag", "set": ["k=7"], "filter": None, "name": None})
    batch_id = made["batch_id"]
    row = there.progress(batch_id)
    assert (row["name"], row["owner"], row["plan"]["params"]["k"]) == ("my questions.csv", "remote", 7)
    answer_all(engine, batch_id)
    for name in ("out.csv", "out.jsonl", "out.xlsx"):
        fetch_results(there, batch_id, tmp_path / name, json=False)
    table = csv.DictReader(io.StringIO((tmp_path / "out.csv").read_text(encoding="utf-8-sig")))
    assert [line["question"] for line in table] == QUESTIONS
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    assert [json.loads(line)["answer"] for line in lines] == ["Old."] * 2
    assert zipfile.is_zipfile(tmp_path / "out.xlsx")
    with pytest.raises(UsageError):
        fetch_results(there, batch_id, tmp_path / "out.pdf", json=False)


def test_acts_and_pages(there: Server, tmp_path: Path) -> None:
    (tmp_path / "q.txt").write_text("Why?\nHow?\n")
    made = [there.submit(tmp_path / "q.txt", {})["batch_id"] for _ in range(3)]
    assert there.act(made[0], "pause", reason="r").status == "paused"
    assert there.act(made[0], "resume", reason=None, max_cost_usd=None, max_tokens=None).changed
    assert there.act(made[0], "cancel", reason=None).runs == 2
    assert [row["batch_id"] for row in there.batches(2)] == made[:0:-1]


@pytest.mark.parametrize(
    ("ask", "kind", "says"),
    [
        (lambda there: there.progress(987_654_321), NotFound, "There is no batch 987654321."),
        (lambda there: there.get("/v1/runs/987654321"), NotFound, "There is no run"),
        (lambda there: there.get("/v1/batches", limit=0), UsageError, "query.limit"),
        (lambda there: there.get("/nope"), NotFound, "openapi.json"),
        (lambda there: there.submit(Path("nope.csv"), {}), NotFound, "no such file"),
    ],
)
def test_problems_there_are_errors_here(there: Server, ask: Any, kind: Any, says: str) -> None:
    with pytest.raises(kind) as caught:
        ask(there)
    assert type(caught.value) is kind
    assert says in str(caught.value)


def test_an_ended_batch_cannot_be_paused_from_here_either(
    there: Server, engine: Engine, tmp_path: Path
) -> None:
    (tmp_path / "q.txt").write_text("Why?\n")
    batch_id = there.submit(tmp_path / "q.txt", {})["batch_id"]
    answer_all(engine, batch_id)
    with pytest.raises(Conflict):
        there.act(batch_id, "pause", reason=None)


def test_without_a_valid_key_the_variable_is_named(url: str, use_key: Any) -> None:
    use_key("crag_" + "x" * 43)
    with pytest.raises(CraglineError) as caught:
        Server(url).batches(1)
    assert "CRAGLINE_API_KEY" in str(caught.value)
    assert "xxx" not in str(caught.value)


@pytest.mark.parametrize(
    "place", ["cragline.example", "ftp://h", "http://", "http://u:hunter2@h", "http://["]
)
def test_what_is_no_address_is_refused(place: str) -> None:
    with pytest.raises(UsageError) as caught:
        Server(place)
    assert "hunter2" not in str(caught.value)


def test_a_server_that_is_away_is_told_by_its_address(use_key: Any) -> None:
    use_key("k")
    with pytest.raises(ServerAway, match=r"http://127\.0\.0\.1:9 does not answer.*cragline up"):
        Server("http://127.0.0.1:9").batches(1)


def test_a_check_never_submits(there: Server, tmp_path: Path) -> None:
    (tmp_path / "q.txt").write_text("Why?\n")
    before = there.batches(1)
    done = CliRunner().invoke(cli, ["submit", str(tmp_path / "q.txt"), "--check", "--server", there.url])
    assert done.exit_code != 0
    assert there.batches(1) == before


# -- what only a real server shows --------------------------------------------------------------------------
def test_a_client_that_leaves_stops_its_stream(url: str, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "POLL_SECONDS", 0.01)
    headers = {"Authorization": f"Bearer {api.key('leaver')}"}
    body = {"questions": QUESTIONS}
    batch_id = httpx.post(f"{url}/v1/batches", headers=headers, json=body).json()["batch_id"]
    closed = threading.Event()
    real = progress.events

    async def watched(*given: Any) -> Any:
        try:
            async for one in real(*given):
                yield one
        finally:
            closed.set()

    monkeypatch.setattr(progress, "events", watched)
    with httpx.stream("GET", f"{url}/v1/batches/{batch_id}/progress", headers=headers) as answer:
        lines = answer.iter_lines()  # kept: a generator that is dropped closes the stream
        next(lines)
        assert not closed.is_set()
    assert closed.wait(10)


def test_an_upload_that_breaks_off_leaves_nothing(
    url: str, api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    headers = {"Authorization": f"Bearer {api.key('breaker')}", "Content-Type": "text/csv"}

    def broken() -> Iterator[bytes]:
        yield b"question\nWhy?\n"
        while not list(tmp_path.iterdir()):  # the server has begun
            time.sleep(0.01)
        raise RuntimeError("the client dies")

    with capture_logs() as lines:
        with pytest.raises(RuntimeError):
            httpx.post(f"{url}/v1/batches", headers=headers, content=broken())
        deadline = time.monotonic() + 10
        while list(tmp_path.iterdir()) or not lines:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert [line["log_level"] for line in lines] == ["info"]  # no mistake of ours
    assert read_rows(api.engine, "SELECT 1 FROM batches WHERE owner = 'breaker'") == []


def test_a_slow_submit_holds_up_nobody_else(url: str, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop stays free while a batch is stored."""
    from shared import batches

    began, go_on = threading.Event(), threading.Event()
    real = batches.submit

    def slow(*given: Any) -> Any:
        began.set()
        assert go_on.wait(20)
        return real(*given)

    monkeypatch.setattr(batches, "submit", slow)
    headers = {"Authorization": f"Bearer {api.key('slow')}"}
    answers: list[int] = []

    def post() -> None:
        sent = httpx.post(f"{url}/v1/batches", headers=headers, json={"questions": ["q"]}, timeout=30)
        answers.append(sent.status_code)

    thread = threading.Thread(target=post)
    thread.start()
    assert began.wait(10)
    assert httpx.get(f"{url}/healthz", timeout=10).status_code == 200
    assert answers == []
    go_on.set()
    thread.join(20)
    assert answers == [201]
