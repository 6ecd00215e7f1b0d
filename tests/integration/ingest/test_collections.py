"""`cragline collection ...`, and aliases at submit."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, func, update
from typer.testing import CliRunner, Result

from api.cli import collection as command
from shared import batches, knowledge
from shared import ingest as work
from shared.db import transaction
from shared.errors import NotFound, UsageError
from shared.plan import Plan, make_plan
from shared.settings import Settings
from shared.tables import Batch, Collection
from tests.integration.ingest.conftest import Queue, WordHash
from tests.integration.ingest.test_cli import call as ingest
from tests.integration.ingest.test_ingest_file import listed
from workers.stores.qdrant import VectorStore


@dataclass(frozen=True)
class Row:
    number: int
    question: str | None
    original: Any = None
    notes: list[str] = field(default_factory=list)


@pytest.fixture
def filled(queue: Queue, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Queue:
    """Two collections, `old` and `new`, of one document each."""
    monkeypatch.setattr(command, "get_engine", lambda: engine)
    for name in ("old", "new"):
        (tmp_path / f"{name}.txt").write_text(f"Text of the {name} one.")
        assert ingest(tmp_path / f"{name}.txt", "-c", name).exit_code == 0
    return queue


def call(*words: str, **more: Any) -> Result:
    return CliRunner().invoke(command.app, list(words), **more)


def plan(collection: str) -> Plan:
    made = make_plan(Settings(_env_file=None, models="local"), "rag", {}, collection)
    return made.model_copy(update={"embedding_model": "fake/word-hash"})


def submit(engine: Engine, collection: str) -> int:
    resolved = knowledge.resolved(engine, plan(collection))
    batches.check_collection(engine, resolved)
    return batches.submit(engine, resolved, "b", {}, [Row(1, "Why?")]).batch_id


def test_list_and_show(filled: Queue, engine: Engine, tmp_path: Path) -> None:
    rows = json.loads(call("list", "--json").stdout)
    assert [(one["name"], one["documents"], one["chunks"], one["aliases"]) for one in rows] == [
        ("new", 1, 1, []),
        ("old", 1, 1, []),
    ]
    assert "fake/word-hash" in call("list").output
    shown = json.loads(call("show", "old", "--json").stdout)
    assert shown["dimension"] == 256
    assert [(one["source"], one["documents"]) for one in shown["sources"]] == [(str(tmp_path / "old.txt"), 1)]
    assert isinstance(call("show", "none").exception, NotFound)
    assert "There are: new, old" in str(call("show", "none").exception)


def test_an_empty_list_says_how_to_begin(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "get_engine", lambda: engine)
    assert "cragline ingest PATH" in call("list").output


def test_describe(filled: Queue, engine: Engine) -> None:
    assert call("describe", "old", "  Pumps,\n valves\x00 ").exit_code == 0
    with transaction(engine) as session:
        row = session.get(Collection, "old")
        assert row is not None
        assert row.description == "Pumps, valves\N{REPLACEMENT CHARACTER}"
    call("describe", "old", "")
    assert json.loads(call("show", "old", "--json").stdout)["description"] is None
    assert isinstance(call("describe", "none", "x").exception, NotFound)
    assert isinstance(call("describe", "old", "x" * 2001).exception, UsageError)


def test_an_alias_is_resolved_at_submit_and_switched_for_later_batches(filled: Queue, engine: Engine) -> None:
    assert call("alias", "handbook", "old").output.strip() == "'handbook' stands for 'old' now."
    first = submit(engine, "handbook")
    assert "Before: 'old'" in call("alias", "handbook", "new").output
    second = submit(engine, "handbook")
    with transaction(engine) as session:
        planned = {one.id: (one.collection, one.plan["collection"]) for one in session.query(Batch)}
    assert planned == {first: ("old", "old"), second: ("new", "new")}
    assert json.loads(call("show", "handbook", "--json").stdout)["aliases"] == ["handbook"]
    assert call("alias", "handbook", "--remove").exit_code == 0
    with pytest.raises(NotFound):
        submit(engine, "handbook")


def test_ingest_into_an_alias_fills_what_it_points_to(filled: Queue, engine: Engine, tmp_path: Path) -> None:
    call("alias", "handbook", "old")
    (tmp_path / "more.txt").write_text("More.")
    assert "ingested into 'old'" in ingest(tmp_path / "more.txt", "-c", "handbook").output
    assert len(listed(engine, "old")) == 2


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("alias", "old", "new"), UsageError),
        (("alias", "a", "none"), NotFound),
        (("alias", "b", "handbook"), UsageError),
        (("alias", "../x", "new"), UsageError),
        (("alias", "a"), UsageError),
        (("alias", "a", "new", "--remove"), UsageError),
        (("alias", "none", "--remove"), NotFound),
        (("delete", "handbook", "--yes"), UsageError),
        (("delete", "old", "--yes"), UsageError),
        (("delete", "none", "--yes"), NotFound),
    ],
)
def test_what_is_refused(
    filled: Queue, engine: Engine, words: tuple[str, ...], error: type[Exception]
) -> None:
    call("alias", "handbook", "old")
    assert isinstance(call(*words).exception, error)
    assert len(listed(engine, "old")) == 1


def test_delete_asks_and_a_worker_does_it(
    filled: Queue, engine: Engine, store: VectorStore, embedder: WordHash, tmp_path: Path
) -> None:
    assert call("delete", "old", input="n\n").exit_code == 1
    assert store.count("old") == 1
    published = len(filled.published)
    result = call("delete", "old", input="y\n")
    assert result.exit_code == 0, result.output
    assert "'old' is deleted: 1 document, 1 chunk." in result.output
    assert len(filled.published) == published + 1
    assert store.dimension_of("old") is None
    assert [one["name"] for one in knowledge.list_collections(engine)] == ["new"]
    assert listed(engine, "old") == {}
    with pytest.raises(NotFound):
        store.search("old", embedder.embed_query("x"), 1)
    ingest(tmp_path / "old.txt", "-c", "old")
    assert store.count("old") == 1


def test_delete_refuses_while_an_open_batch_was_planned_with_it(filled: Queue, engine: Engine) -> None:
    batch = submit(engine, "old")
    for status in ("open", "paused"):
        with transaction(engine) as session:
            session.execute(
                update(Batch)
                .where(Batch.id == batch)
                .values(status=status, pause_reason="x" if status == "paused" else None)
            )
        refused = call("delete", "old", "--yes").exception
        assert isinstance(refused, UsageError)
        assert str(batch) in str(refused) and "--force" in str(refused)
    assert call("delete", "old", "--yes", "--force").exit_code == 0
    other = submit(engine, "new")
    with transaction(engine) as session:
        session.execute(update(Batch).where(Batch.id == other).values(status="ended", ended_at=func.now()))
    assert call("delete", "new", "--yes").exit_code == 0


def test_delete_refuses_while_it_is_being_filled(filled: Queue, engine: Engine, tmp_path: Path) -> None:
    made = work.create(engine, [tmp_path / "old.txt"], "old")
    refused = call("delete", "old", "--yes", "--force").exception
    assert isinstance(refused, UsageError)
    assert "being worked on" in str(refused)
    filled.run(made.file_ids[0])


def test_a_delete_that_was_killed_is_done_again(
    filled: Queue, engine: Engine, store: VectorStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    from shared.sources import Work
    from shared.statuses import WorkKind

    ingest_id, [row] = work.put_in_line(engine, "old", [Work(WorkKind.DELETE, "")])
    store.drop("old")  # as far as the killed one came
    filled.run(row)
    assert work.progress(engine, ingest_id).done == 1
    assert [one["name"] for one in knowledge.list_collections(engine)] == ["new"]
