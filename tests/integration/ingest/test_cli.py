"""`cragline ingest` with a worker played by a thread."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from sqlalchemy import Engine
from typer.testing import CliRunner, Result

from api.cli import ingest as command
from shared import ingest as work
from shared.errors import CraglineError, NotFound, UsageError
from shared.queue import make_app
from shared.settings import Settings
from shared.stack.testing import Servers
from tests.integration.ingest.conftest import Queue
from workers.models.minilm import MiniLM
from workers.stores.qdrant import VectorStore

Run = Callable[..., None]


def call(*arguments: str | Path) -> Result:
    app = typer.Typer()
    app.command()(command.ingest)
    return CliRunner().invoke(app, [str(one) for one in arguments])


def folder(path: Path) -> Path:
    path.mkdir()
    (path / "a.md").write_text("# Pumps\nPumps pump [water].")
    (path / "b.txt").write_bytes("Größe".encode("cp1252"))
    (path / "c.pptx").write_text("x")
    return path


def test_a_file_without_text_is_noted(queue: Queue, tmp_path: Path) -> None:
    path = folder(tmp_path / "docs")
    for name in ("empty.txt", "blank.md", "no.jsonl"):
        (path / name).write_text("" if name == "empty.txt" else " \n\n")
    for _ in range(2):  # the second time the others are unchanged, which is not the same
        said = json.loads(call(path, "--json").output)
        without = [Path(note["path"]).name for note in said["notes"] if note["note"] == "holds no text"]
        assert (sorted(without), said["done"], said["documents"]) == (
            ["blank.md", "empty.txt", "no.jsonl"],
            5,
            2,
        )


def test_a_summary_in_words(queue: Queue, tmp_path: Path) -> None:
    result = call(folder(tmp_path / "docs"))
    assert result.exit_code == 0, result.output
    assert (
        "2 of 2 files ingested into 'from-settings': 2 documents; chunks: 2 added, 0 unchanged, 0 removed."
        in result.output
    )
    assert "Left out of the folders: 1 file (1 .pptx)." in result.output
    assert "b.txt: not UTF-8" in result.output
    assert "\x1b" not in result.output


def test_a_summary_as_json_and_a_failed_file(queue: Queue, tmp_path: Path) -> None:
    bad = folder(tmp_path / "docs") / "[bold]bad.jsonl"
    bad.write_text("{broken")
    result = call(tmp_path / "docs", "--collection", "named", "--json")
    assert result.exit_code == 1
    said = json.loads(result.stdout)
    assert (said["collection"], said["files"], said["done"], said["failed"]) == ("named", 3, 2, 1)
    assert (said["documents"], said["chunks_added"], said["skipped"]) == (2, 2, {".pptx": 1})
    assert [one["path"] for one in said["errors"]] == [str(bad)]
    assert "line 1: not JSON" in said["errors"][0]["error"]

    words = call(tmp_path / "docs", "--collection", "named")
    assert words.exit_code == 1
    assert f"{bad}, line 1" in words.output  # square brackets are text, not markup


def test_again_skips_what_is_unchanged(queue: Queue, tmp_path: Path) -> None:
    docs = folder(tmp_path / "docs")
    call(docs)
    said = json.loads(call(docs, "--json").stdout)
    assert (said["chunks_added"], said["chunks_unchanged"]) == (0, 2)


def test_a_lost_message_is_published_again(
    queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "REPUBLISH_SECONDS", 0.1)
    queue.lost = 1
    assert call(folder(tmp_path / "docs")).exit_code == 0
    assert len(queue.published) >= 2
    assert queue.published[1] == queue.published[0]


def test_no_worker_is_said_and_the_files_stay_in_line(
    queue: Queue, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "NOBODY_SECONDS", 0.2)
    queue.lost = 1000
    result = call(folder(tmp_path / "docs"))
    assert isinstance(result.exception, command.NobodyThere)
    assert "cragline up -d" in str(result.exception)
    assert "Still in line" in str(result.exception) and "2 files" in str(result.exception)
    assert work.unclaimed(engine) == queue.published[0]


def test_a_worker_busy_with_other_files_is_waited_for(
    queue: Queue, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from workers.ingest import claim

    (tmp_path / "other.txt").write_text("x")
    other = work.create(engine, [tmp_path / "other.txt"], "docs")
    claim(engine, other.file_ids[0])
    made = work.create(engine, [folder(tmp_path / "docs")], "docs")
    ticks = iter(range(10_000))
    looks = 0

    def show(now: work.Progress) -> None:
        nonlocal looks
        looks += 1
        if looks == 50:  # 50 looks, many times NOBODY_SECONDS by this clock
            for one in made.file_ids:
                queue.run(one)

    ended = command.follow(
        engine,
        made.ingest_id,
        lambda ids: None,
        show,
        sleep=lambda seconds: None,
        clock=lambda: next(ticks) * 10.0,
    )
    assert ended.done == 2


def test_control_c_leaves_the_workers_at_it(
    queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "follow", interrupted)
    result = call(folder(tmp_path / "docs"))
    assert result.exit_code == 130
    assert "the workers go on" in result.output


def test_nothing_is_written_for_a_wrong_call(queue: Queue, engine: Engine, tmp_path: Path) -> None:
    docs = folder(tmp_path / "docs")
    (tmp_path / "empty").mkdir()
    for arguments, error in [
        ((docs, tmp_path / "gone"), NotFound),
        ((docs, docs / "c.pptx"), work.CannotIngest),
        ((docs, "--collection", "../x"), UsageError),
        ((tmp_path / "empty",), work.CannotIngest),
    ]:
        assert isinstance(call(*arguments).exception, error)
    assert work.unclaimed(engine) == []
    assert queue.published == []


def test_messages_hold_ids_only(servers: Servers, settings: Settings) -> None:
    import redis

    client = redis.Redis.from_url(servers.redis_url)
    client.delete("retrieval")
    work.wake(make_app(settings), [11, 12])
    messages = [json.loads(one) for one in client.lrange("retrieval", 0, -1)]
    assert sorted(one["headers"]["kwargsrepr"] for one in messages) == ["{'file_id': 11}", "{'file_id': 12}"]
    assert {one["headers"]["task"] for one in messages} == {"ingest.file"}
    client.delete("retrieval")


def test_a_queue_that_is_down_is_said(settings: Settings) -> None:
    nowhere = settings.model_copy(update={"redis_url": "redis://:secret-word@127.0.0.1:1/0"})
    app = make_app(Settings(home=settings.home, redis_url=nowhere.redis_url, _env_file=None))
    with pytest.raises(CraglineError, match="queue cannot be reached") as caught:
        command._publish(app, [1])
    assert "secret-word" not in str(caught.value)


def test_with_the_local_model(engine: Engine, store: VectorStore, run: Run, tmp_path: Path) -> None:
    texts = {
        "valves": "A relief valve opens when the pressure is above twelve bar.",
        "cats": "Cats sleep for most of the day and hunt at dawn.",
        "taxes": "Income above the threshold is taxed at forty percent.",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.md").write_text(f"# {name}\n{text}")
    model = MiniLM()
    for file_id in work.create(engine, [tmp_path], "docs").file_ids:
        run(file_id, embedder=model)
    found = store.search("docs", model.embed_query("At what pressure does the valve open?"), 3)
    assert found[0]["title"] == "valves"
    assert (found[0]["score"] or 0) > 0.5 > (found[1]["score"] or 0)
