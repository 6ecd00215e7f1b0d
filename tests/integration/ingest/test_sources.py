"""Sites, repositories and prune, from the command to the store."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, select

from shared import ingest as work
from shared.db import transaction
from shared.errors import UsageError
from shared.sources import Options
from shared.tables import IngestedDocument, IngestFile
from tests.fakes.site import Answer, Site
from tests.integration.ingest.conftest import Queue, WordHash
from tests.integration.ingest.test_cli import call
from tests.integration.ingest.test_ingest_file import in_line, listed
from tests.unit.workers.stores.test_git import CODE, commit, sh
from workers.stores.qdrant import VectorStore
from workers.stores.web import robots

TEXT = "The relief valve of hall {0} opens when the pressure rises above {0} bar, the manual says. " * 3


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr(robots, "DELAY", 0.0)
    with Site() as made:
        made.article(
            "/", "Start", TEXT.format(1), "/a", "/b", head='<meta name="description" content="All.">'
        )
        made.article("/a", "A", TEXT.format(2))
        made.article("/b", "B", TEXT.format(3))
        yield made


def told(*words: str | Path) -> dict[str, Any]:
    result = call(*words, "-c", "docs", "--json")
    value: dict[str, Any] = json.loads(result.stdout)
    return value


def payloads(store: VectorStore) -> list[dict[str, Any]]:
    points, _ = store._client.scroll("docs", limit=1000, with_payload=True)
    return sorted((one.payload or {} for one in points), key=lambda one: (one["source"], one["ordinal"]))


def test_a_site_again_changed_and_pruned(
    queue: Queue, engine: Engine, store: VectorStore, embedder: WordHash, site: Site
) -> None:
    words = (f"{site.url}/", "--depth", "1", "--allow-private")
    first = told(*words)
    assert (first["done"], first["documents"], first["errors"]) == (1, 3, [])
    assert sorted(listed(engine)) == [f"{site.url}/", f"{site.url}/a", f"{site.url}/b"]
    in_line(engine, store)
    page = payloads(store)[0]
    assert (page["title"], page["language"], page["description"]) == ("Start", "en", "All.")
    assert page["ingested_at"]
    assert "lines" not in page

    embedder.embedded.clear()
    again = told(*words)
    assert (again["chunks_added"], again["chunks_unchanged"]) == (0, first["chunks_added"])
    assert embedder.embedded == []

    site.article("/a", "A", TEXT.format(7))
    site.pages["/b"] = Answer(status=404)
    changed = told(*words)
    assert changed["documents_removed"] == 0
    assert any("/b: the server answered 404" in one["note"] for one in changed["notes"])
    assert len(listed(engine)) == 3

    pruned = told(*words, "--prune")
    assert pruned["documents_removed"] == 1
    assert sorted(listed(engine)) == [f"{site.url}/", f"{site.url}/a"]
    in_line(engine, store)
    assert "Pruned: 0 documents" in call(*words, "--prune", "-c", "docs").output


def test_a_page_that_is_gone_itself(queue: Queue, engine: Engine, store: VectorStore, site: Site) -> None:
    url = f"{site.url}/a"
    told(url, "--allow-private")
    site.pages["/a"] = Answer(status=410)
    failed = told(url, "--allow-private")
    assert (failed["failed"], failed["documents_removed"]) == (1, 0)
    assert "410" in failed["errors"][0]["error"]
    assert listed(engine) != {}
    assert told(url, "--allow-private", "--prune")["documents_removed"] == 1
    assert listed(engine) == {}
    assert store.count("docs") == 0


def test_a_site_that_is_down_loses_nothing_by_prune(queue: Queue, engine: Engine, site: Site) -> None:
    words = (f"{site.url}/", "--depth", "1", "--allow-private")
    told(*words)
    for path in ("/", "/a", "/b"):
        site.pages[path] = Answer(status=503)
    assert told(*words, "--prune")["failed"] == 1
    assert len(listed(engine)) == 3


def test_what_is_refused_is_said_and_costs_nothing(queue: Queue, engine: Engine, site: Site) -> None:
    private = told(f"{site.url}/")
    assert "is loopback. --allow-private" in private["errors"][0]["error"]
    site.pages["/robots.txt"] = Answer(b"User-agent: *\nDisallow: /", "text/plain")
    forbidden = told(f"{site.url}/", "--allow-private")
    assert "refused by the host's robots.txt" in forbidden["errors"][0]["error"]
    assert site.asked == ["/robots.txt"]
    refused = call("https://me:secret-word@example.com/x").exception
    assert isinstance(refused, UsageError)
    with transaction(engine) as session:
        assert not any("secret" in path for path in session.scalars(select(IngestFile.path)))


def test_a_repository_keeps_lines_and_commit_and_follows_changes(
    queue: Queue, engine: Engine, store: VectorStore, embedder: WordHash, tmp_path: Path
) -> None:
    repo = tmp_path / "repo"
    head = commit(repo, {"src/a.py": CODE, "b.md": "# B\nText of b.\n", "c.txt": "Text of c."})
    first = told(repo)
    assert (first["done"], first["documents"]) == (1, 3)
    in_line(engine, store)
    chunk = payloads(store)[-1]
    assert chunk["source"] == f"{repo}@{head[:12]}:src/a.py"
    assert (chunk["language"], chunk["commit"]) == ("python", head)
    assert chunk["title"] == f"src/a.py:{chunk['lines']}"

    embedder.embedded.clear()
    second = commit(repo, {"c.txt": "Text of c."} | {"d.txt": "Text of d."})
    assert told(repo)["chunks_added"] == 1
    assert len(embedder.embedded) == 1
    kept = {one["source"] for one in payloads(store)}
    assert f"{repo}@{head[:12]}:c.txt" in kept and f"{repo}@{second[:12]}:d.txt" in kept

    third = commit(repo, {"b.md": "\n\n\n# B\nText of b.\n"})
    told(repo)
    [moved] = [one for one in payloads(store) if one["source"].endswith("b.md")]
    assert (moved["lines"], moved["commit"]) == ("5-5", third)

    (repo / "c.txt").unlink()
    (repo / "d.txt").unlink()
    commit(repo, {})
    assert told(repo, "--exclude", "*.md")["documents_removed"] == 0
    assert told(repo, "--exclude", "*.md", "--prune")["documents_removed"] == 2
    assert sorted(listed(engine)) == [f"{repo}:b.md", f"{repo}:src/a.py"]
    in_line(engine, store)


def test_a_remote_repository(queue: Queue, engine: Engine, tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    commit(repo, {"a.py": CODE})
    result = told(f"git+file://{repo}@main", "--allow-private")
    assert (result["documents"], result["errors"]) == (1, [])
    assert list(listed(engine)) == [f"file://{repo}:a.py"]
    sh(repo, "tag", "v1")
    (repo / "a.py").unlink()
    commit(repo, {"b.py": CODE})
    assert told(f"git+file://{repo}@v1", "--allow-private", "--prune")["chunks_added"] == 0
    assert told(f"git+file://{repo}@main", "--allow-private", "--prune")["documents_removed"] == 1
    assert list(listed(engine)) == [f"file://{repo}:b.py"]


def test_prune_of_a_folder(queue: Queue, engine: Engine, store: VectorStore, tmp_path: Path) -> None:
    docs, beside = tmp_path / "do_cs", tmp_path / "doXcs"
    for folder in (docs, beside):
        (folder / "sub").mkdir(parents=True)
        for name in ("a.md", "b.txt", "sub/c.jsonl"):
            text = '{"id": "1", "text": "one"}\n{"id": "2", "text": "two"}\n'
            (folder / name).write_text(text if name.endswith("l") else f"Text of {name}.")
    told(docs, beside)
    for folder in (docs, beside):
        (folder / "b.txt").unlink()
        (folder / "sub" / "c.jsonl").unlink()
    assert told(docs)["documents_removed"] == 0
    assert len(listed(engine)) == 8
    pruned = told(docs, "--prune")
    assert (pruned["files"], pruned["done"], pruned["documents_removed"]) == (1, 1, 3)
    assert pruned["notes"] == [], "a row that only takes away is no file without text"
    assert sorted(listed(engine)) == sorted(
        [
            str(docs / "a.md"),
            *(str(beside / name) for name in ("a.md", "b.txt", "sub/c.jsonl#1", "sub/c.jsonl#2")),
        ]
    )
    in_line(engine, store)
    (docs / "a.md").unlink()
    assert told(docs, "--prune")["documents_removed"] == 1


def test_an_empty_folder_may_be_a_disk_that_is_away(
    queue: Queue, engine: Engine, store: VectorStore, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    (disk / "a.md").write_text("Text.")
    told(disk)
    (disk / "a.md").unlink()
    pruned = told(disk, "--prune")
    assert (pruned["failed"], pruned["documents_removed"]) == (0, 0)
    [note] = pruned["notes"]
    assert "not mounted: its 1 files are kept" in note["note"]
    in_line(engine, store)
    (disk / "b.md").write_text("Other text.")
    assert told(disk, "--prune")["documents_removed"] == 1
    assert told(disk, "--prune")["notes"] == []  # a prune brings in nothing, and that is nothing to note


def test_what_cannot_be_looked_at_is_not_gone(
    queue: Queue, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    (tmp_path / "a.md").write_text("Text.")
    told(tmp_path / "a.md")
    real = os.lstat

    def forbidden(path: Any, **more: Any) -> os.stat_result:
        if str(path).endswith("a.md"):
            raise PermissionError
        return real(path, **more)

    made = work.create(engine, [tmp_path], "docs", Options(prune=True, exclude=("a.md",)))
    monkeypatch.setattr(os, "lstat", forbidden)
    for one in made.file_ids:
        queue.run(one)
    assert len(listed(engine)) == 1


def test_a_killed_walk_is_taken_up_again(
    queue: Queue, engine: Engine, store: VectorStore, embedder: WordHash, site: Site
) -> None:
    """The first try dies while embedding; the second ends in the same state as an undisturbed one."""
    made = work.create(engine, [f"{site.url}/"], "docs", Options(depth=1, allow_private=True))

    def die(texts: Any) -> None:
        raise SystemExit

    embedder.before = die
    with pytest.raises(SystemExit):
        queue.run(made.file_ids[0])
    embedder.before = lambda texts: None
    with transaction(engine) as session:
        row = session.get(IngestFile, made.file_ids[0])
        assert row is not None
        row.touched_at = None
        row.created_at = row.created_at.replace(year=2000)
    queue.run(made.file_ids[0])
    assert work.progress(engine, made.ingest_id).done == 1
    assert len(listed(engine)) == 3
    in_line(engine, store)


def test_rows_say_what_a_document_came_from(queue: Queue, engine: Engine, site: Site, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("title,text\nOne,first\n")
    told(tmp_path / "a.csv", f"{site.url}/a", "--allow-private")
    with transaction(engine) as session:
        roots = dict(session.execute(select(IngestedDocument.source, IngestedDocument.root)).all())
    assert roots == {f"{tmp_path / 'a.csv'}#1": str(tmp_path / "a.csv"), f"{site.url}/a": f"{site.url}/a"}
