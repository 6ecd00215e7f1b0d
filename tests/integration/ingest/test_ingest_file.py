"""`ingest_file` against a real Postgres and a real local store."""

import json
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from qdrant_client import models as q
from sqlalchemy import Engine, func, select, update

from shared import ingest as work
from shared.db import transaction
from shared.errors import CraglineError, NotFound, PermanentError, TransientError
from shared.statuses import FileStatus
from shared.tables import Collection, IngestedDocument, IngestFile
from tests.integration.ingest.conftest import WordHash
from workers import ingest as task
from workers.stores import sync
from workers.stores.qdrant import VectorStore

Run = Callable[..., None]


def jsonl(path: Path, texts: dict[str, str]) -> Path:
    path.write_text("".join(json.dumps({"id": key, "text": text}) + "\n" for key, text in texts.items()))
    return path


def prose(numbers: Sequence[int]) -> str:
    return "\n\n".join(f"Paragraph {number} tells of the pump in hall {number}. " * 2 for number in numbers)


def hand_in(engine: Engine, path: Path, collection: str = "docs") -> int:
    return work.create(engine, [path], collection).file_ids[0]


def row(engine: Engine, file_id: int) -> IngestFile:
    with transaction(engine) as session:
        found = session.get(IngestFile, file_id)
    assert found is not None
    return found


def counts(engine: Engine, file_id: int) -> tuple[str, int, int, int, int]:
    one = row(engine, file_id)
    return one.status, one.documents, one.chunks_added, one.chunks_unchanged, one.chunks_removed


def listed(engine: Engine, collection: str = "docs") -> dict[str, list[str]]:
    """Source -> chunk ids, of settled documents."""
    with transaction(engine) as session:
        documents = session.scalars(
            select(IngestedDocument).where(IngestedDocument.collection == collection)
        ).all()
    assert all(len(one.content_hash) == 64 for one in documents)
    return {one.source: list(one.chunk_ids) for one in documents}


def in_line(engine: Engine, store: VectorStore, collection: str = "docs") -> None:
    """The rows and the store say the same: no point without a row, no row without its points."""
    ids = [one for chunk_ids in listed(engine, collection).values() for one in chunk_ids]
    assert len(set(ids)) == len(ids)
    assert store.count(collection) == len(ids)
    assert store.existing_ids(collection, ids) == set(ids)


def ordinals(store: VectorStore, ids: Sequence[str]) -> list[Any]:
    points = {
        str(one.id): one.payload for one in store._client.retrieve("docs", list(ids), with_payload=True)
    }
    return [(points[one] or {})["ordinal"] for one in ids]


def test_first_time_then_again(
    engine: Engine, store: VectorStore, embedder: WordHash, run: Run, tmp_path: Path
) -> None:
    path = jsonl(tmp_path / "a.jsonl", {f"r{number}": f"record {number} on valves" for number in range(150)})
    first = hand_in(engine, path)
    run(first)
    assert counts(engine, first) == ("done", 150, 150, 0, 0)
    assert row(engine, first).ended_at is not None
    in_line(engine, store)
    found = store.search("docs", embedder.embed_query("record 77 on valves"), 1)[0]
    assert (found["text"], found["source"]) == ("record 77 on valves", f"{path}#r77")
    with transaction(engine) as session:
        collection = session.get(Collection, "docs")
    assert collection is not None
    assert (collection.embedding_model, collection.dimension) == ("fake/word-hash", 256)

    embedder.embedded.clear()
    again = hand_in(engine, path)
    run(again)
    assert counts(engine, again) == ("done", 150, 0, 150, 0)
    assert embedder.embedded == []
    in_line(engine, store)


def test_words_and_fields_are_stored_beside_the_vectors(
    engine: Engine, store: VectorStore, embedder: WordHash, run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "a.jsonl"
    records = [{"id": str(n), "text": f"record {n} on valves", "shelf": n % 3} for n in range(30)]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    run(hand_in(engine, path))
    found = store.search("docs", [], 5, text="record 17", mode="sparse")
    assert found[0]["text"] == "record 17 on valves"
    both = store.search("docs", embedder.embed_query("record 17 on valves"), 1, text="17", mode="hybrid")
    assert (both[0]["text"], both[0]["score"]) == ("record 17 on valves", 1.0)
    shelf = store.search("docs", [], 50, text="valve", mode="sparse", filters={"fields.shelf": ["2"]})
    assert len(shelf) == 10

    # a field that changes is taken over, and nothing is embedded for it
    embedder.embedded.clear()
    records[17]["shelf"] = 9
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    again = hand_in(engine, path)
    run(again)
    assert counts(engine, again) == ("done", 30, 0, 30, 0)
    assert embedder.embedded == []
    moved = store.search("docs", [], 50, text="valve", mode="sparse", filters={"fields.shelf": ["9"]})
    assert [one["text"] for one in moved] == ["record 17 on valves"]
    in_line(engine, store)


def test_the_words_of_an_old_collection_come_with_the_next_ingest(
    engine: Engine, store: VectorStore, embedder: WordHash, run: Run, tmp_path: Path
) -> None:
    """A collection as an earlier version made it: same points, no words, another document hash."""
    path = jsonl(tmp_path / "a.jsonl", {f"r{number}": f"record {number} on valves" for number in range(80)})
    run(hand_in(engine, path))
    client = store._client
    points, _ = client.scroll("docs", limit=100, with_vectors=[""], with_payload=True)
    client.delete_collection("docs")
    client.create_collection("docs", q.VectorParams(size=256, distance=q.Distance.COSINE))
    old = [
        q.PointStruct(
            id=one.id,
            vector=one.vector[""] if isinstance(one.vector, dict) else one.vector,  # type: ignore[arg-type]
            payload={
                key: value for key, value in (one.payload or {}).items() if key not in ("path", "fields")
            },
        )
        for one in points
    ]
    client.upsert("docs", old)
    store._forget("docs")
    with transaction(engine) as session:
        session.execute(update(IngestedDocument).values(content_hash="0" * 64))
    with pytest.raises(CraglineError, match="has no words to search"):
        store.search("docs", [], 5, text="17", mode="sparse")

    embedder.embedded.clear()
    again = hand_in(engine, path)
    run(again)
    assert counts(engine, again) == ("done", 80, 0, 80, 0)
    assert embedder.embedded == []
    assert store.search("docs", [], 5, text="17", mode="sparse")[0]["text"] == "record 17 on valves"
    assert len(store.search("docs", embedder.embed_query("valves"), 99, filters={"path": [str(path)]})) == 80
    in_line(engine, store)


def test_a_doubled_message_finds_nothing_to_do(
    engine: Engine, embedder: WordHash, run: Run, tmp_path: Path
) -> None:
    file_id = hand_in(engine, jsonl(tmp_path / "a.jsonl", {"x": "one"}))
    run(file_id)
    before = row(engine, file_id)
    run(file_id)
    run(10**12)
    assert row(engine, file_id).ended_at == before.ended_at
    assert len(embedder.embedded) == 1


def test_a_changed_file_changes_only_what_changed(
    engine: Engine, store: VectorStore, embedder: WordHash, run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "a.txt"
    path.write_text(prose(range(1, 9)))
    run(hand_in(engine, path), chunk_overlap=0)
    before = listed(engine)[str(path)]

    embedder.embedded.clear()
    path.write_text(prose([0, 1, 2, 3, 5, 6, 7, 8]))  # one put in at the top, one taken out
    file_id = hand_in(engine, path)
    run(file_id, chunk_overlap=0)
    after = listed(engine)[str(path)]
    assert counts(engine, file_id) == ("done", 1, 1, 7, 1)
    assert len(embedder.embedded) == 1
    assert after[1:] == [one for place, one in enumerate(before) if place != 3]
    assert ordinals(store, after) == list(range(8))
    in_line(engine, store)
    assert not any("Paragraph 4 " in one["text"] for one in store.search("docs", [1.0] * 256, 50))


def test_another_chunk_size_makes_the_file_a_changed_one(
    engine: Engine, store: VectorStore, run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "a.txt"
    path.write_text(prose(range(8)))
    run(hand_in(engine, path))
    few = hand_in(engine, path)
    run(few, chunk_tokens=2000)
    assert row(engine, few).chunks_added == 1
    assert store.count("docs") == 1
    in_line(engine, store)


def test_a_record_that_is_gone_goes_from_the_store(
    engine: Engine, store: VectorStore, run: Run, tmp_path: Path
) -> None:
    path = jsonl(tmp_path / "a.jsonl", {"x": "one", "y": "two", "z": "three"})
    other = jsonl(tmp_path / "b.jsonl", {"x": "of another file"})
    run(hand_in(engine, path))
    run(hand_in(engine, other))
    jsonl(path, {"x": "one", "z": "three"})
    file_id = hand_in(engine, path)
    run(file_id)
    assert counts(engine, file_id) == ("done", 2, 0, 2, 1)
    assert set(listed(engine)) == {f"{path}#x", f"{path}#z", f"{other}#x"}
    in_line(engine, store)

    path.write_text("")
    run(hand_in(engine, path))
    assert set(listed(engine)) == {f"{other}#x"}
    in_line(engine, store)


def test_a_file_that_broke_keeps_what_it_had(
    engine: Engine, store: VectorStore, run: Run, tmp_path: Path
) -> None:
    path = jsonl(tmp_path / "a.jsonl", {"x": "one", "y": "two"})
    run(hand_in(engine, path))
    path.write_text('{"text": "new"}\n{broken\n')
    file_id = hand_in(engine, path)
    run(file_id)
    assert row(engine, file_id).status == FileStatus.FAILED
    assert "a.jsonl, line 2: not JSON" in str(row(engine, file_id).error)
    assert len(listed(engine)) == 2
    in_line(engine, store)


def test_a_store_that_was_emptied_is_filled_again(
    engine: Engine, store: VectorStore, run: Run, tmp_path: Path
) -> None:
    path = jsonl(tmp_path / "a.jsonl", {"x": "one", "y": "two"})
    run(hand_in(engine, path))
    store._client.delete_collection("docs")
    store._dimensions.clear()
    file_id = hand_in(engine, path)
    run(file_id)
    assert counts(engine, file_id)[0] == "done"
    in_line(engine, store)


class Killed(BaseException):
    """Stands for the end of the process: nothing may catch it."""


def make_stale(engine: Engine, file_id: int) -> None:
    with transaction(engine) as session:
        long_ago = func.now() - func.make_interval(0, 0, 0, 0, 0, 0, work.STALE_SECONDS + 1)
        session.execute(update(IngestFile).where(IngestFile.id == file_id).values(touched_at=long_ago))


@pytest.mark.parametrize("where", ["embed", "upsert", "refresh", "delete", "finish"])
def test_killed_at_any_point_and_begun_again_gives_the_same_end(
    engine: Engine,
    store: VectorStore,
    embedder: WordHash,
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
) -> None:
    texts = {f"r{number}": f"record {number}" for number in range(200)}
    path = jsonl(tmp_path / "a.jsonl", texts)
    run(hand_in(engine, path))
    changed = {f"r{number}": f"record {number}, changed" for number in range(20, 200)}
    jsonl(path, changed)

    calls = 0

    def dies(*args: Any, **kwargs: Any) -> None:
        nonlocal calls
        calls += 1
        if where in ("delete", "finish") or calls == 2:
            raise Killed

    file_id = hand_in(engine, path)
    with monkeypatch.context() as patched:
        if where == "embed":
            embedder.before = dies
        elif where == "finish":
            patched.setattr(task, "_finish", dies)
        else:
            real = getattr(store, where)
            patched.setattr(store, where, lambda *args: dies() or real(*args))
        with pytest.raises(Killed):
            run(file_id)
    embedder.before = lambda texts: None
    assert row(engine, file_id).status == FileStatus.RUNNING

    # the file changes once more before it is taken up: what the killed try stored is wanted no longer
    last = {key: text + " twice" for key, text in changed.items() if key != "r199"}
    jsonl(path, last)
    run(file_id)
    assert row(engine, file_id).status == FileStatus.RUNNING  # not stale yet: its worker may be alive
    make_stale(engine, file_id)
    run(file_id)
    assert row(engine, file_id).status == FileStatus.DONE
    assert row(engine, file_id).notes == [task.RETAKEN]
    assert set(listed(engine)) == {f"{path}#{key}" for key in last}
    in_line(engine, store)
    texts_now = {one["text"] for one in store.search("docs", [1.0] * 256, 1000)}
    assert texts_now == set(last.values())


def test_a_second_try_embeds_only_what_is_missing(
    engine: Engine, store: VectorStore, embedder: WordHash, run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "a.txt"
    path.write_text(prose(range(200)))

    def dies(texts: Sequence[str]) -> None:
        if len(embedder.embedded) >= 128:
            raise Killed

    embedder.before = dies
    file_id = hand_in(engine, path)
    with pytest.raises(Killed):
        run(file_id)
    assert row(engine, file_id).chunks_added == 128  # the bar moves within a document
    embedder.before = lambda texts: None
    make_stale(engine, file_id)
    run(file_id)
    total = len(listed(engine)[str(path)])
    assert len(embedder.embedded) == total > 150
    assert counts(engine, file_id) == ("done", 1, total - 128, 128, 0)
    in_line(engine, store)


def test_a_file_that_kills_its_workers_is_given_up(
    engine: Engine, embedder: WordHash, run: Run, tmp_path: Path
) -> None:
    def dies(texts: Sequence[str]) -> None:
        raise Killed

    embedder.before = dies
    file_id = hand_in(engine, jsonl(tmp_path / "a.jsonl", {"x": "one"}))
    for _ in range(task.MAX_LOST):
        with pytest.raises(Killed):
            run(file_id)
        make_stale(engine, file_id)
    run(file_id)
    assert row(engine, file_id).status == FileStatus.FAILED
    assert "its worker was lost 3 times" in str(row(engine, file_id).error)


def test_a_worker_that_was_given_up_too_early_stops(
    engine: Engine, store: VectorStore, embedder: WordHash, run: Run, tmp_path: Path
) -> None:
    path = jsonl(tmp_path / "a.jsonl", {f"r{number}": f"record {number}" for number in range(200)})
    file_id = hand_in(engine, path)
    slow = WordHash()

    once = iter([True])  # slices are embedded side by side

    def taken_over(texts: Sequence[str]) -> None:
        if next(once, False):
            make_stale(engine, file_id)
            run(file_id)  # another worker begins and ends it

    slow.before = taken_over
    run(file_id, embedder=slow)
    assert len(slow.embedded) == 64 * sync.EMBEDDERS  # noticed at the next step
    assert counts(engine, file_id) == ("done", 200, 200, 0, 0)
    in_line(engine, store)


def test_the_same_file_handed_in_by_two_people_is_worked_on_once_at_a_time(
    engine: Engine, store: VectorStore, run: Run, tmp_path: Path
) -> None:
    path = jsonl(tmp_path / "a.jsonl", {f"r{number}": f"record {number}" for number in range(300)})
    ids = [hand_in(engine, path) for _ in range(4)]
    active, most = 0, 0
    lock = threading.Lock()

    class Watching(WordHash):
        def embed_documents(self, texts: Sequence[str]) -> list[list[float]]:
            nonlocal active, most
            with lock:
                active += 1
                most = max(most, active)
            time.sleep(0.02)
            with lock:
                active -= 1
            return super().embed_documents(texts)

    watching = Watching()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda file_id: run(file_id, embedder=watching), ids))
    assert [row(engine, one).status for one in ids] == [FileStatus.DONE] * 4
    assert most <= sync.EMBEDDERS  # those of one of the four
    assert len(watching.embedded) == 300
    in_line(engine, store)


def test_different_files_at_once(engine: Engine, store: VectorStore, run: Run, tmp_path: Path) -> None:
    for number in range(8):
        jsonl(tmp_path / f"{number}.jsonl", {f"r{one}": f"record {one} of {number}" for one in range(40)})
    made = work.create(engine, [tmp_path], "docs")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(run, made.file_ids))
    now = work.progress(engine, made.ingest_id)
    assert (now.files, now.done, now.documents, now.chunks_added, now.ended) == (8, 8, 320, 320, True)
    in_line(engine, store)


@pytest.mark.parametrize("other", [WordHash(256, "fake/another"), WordHash(16, "fake/word-hash")])
def test_another_embedding_model_is_refused_with_both_named(
    engine: Engine, store: VectorStore, run: Run, tmp_path: Path, other: WordHash
) -> None:
    path = jsonl(tmp_path / "a.jsonl", {"x": "one"})
    run(hand_in(engine, path))
    file_id = hand_in(engine, jsonl(tmp_path / "b.jsonl", {"y": "two"}))
    run(file_id, embedder=other)
    failed = row(engine, file_id)
    assert failed.status == FileStatus.FAILED
    for part in (
        "fake/word-hash (256",
        f"{other.name} ({other.dimension})",
        "--collection",
        "CRAGLINE_EMBEDDINGS",
    ):
        assert part in str(failed.error)
    assert other.embedded == []
    in_line(engine, store)


def test_a_store_of_another_dimension_leaves_no_collection_row(
    engine: Engine, store: VectorStore, run: Run, tmp_path: Path
) -> None:
    store.ensure_collection("docs", 5)
    file_id = hand_in(engine, jsonl(tmp_path / "a.jsonl", {"x": "one"}))
    run(file_id)
    assert "vectors of 5 numbers" in str(row(engine, file_id).error)
    with transaction(engine) as session:
        assert session.get(Collection, "docs") is None


def test_an_unreadable_file_makes_no_collection(
    engine: Engine, store: VectorStore, run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "a.pdf"
    path.write_bytes(b"no pdf")
    file_id = hand_in(engine, path)
    run(file_id)
    assert "a.pdf: not a PDF" in str(row(engine, file_id).error)
    assert store.dimension_of("docs") is None


def test_a_file_that_is_gone_when_its_turn_comes(engine: Engine, run: Run, tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", {"x": "one"})
    file_id = hand_in(engine, path)
    path.unlink()
    run(file_id)
    assert "a.jsonl: the file is not there" in str(row(engine, file_id).error)


def test_a_passing_error_is_tried_again_and_a_lasting_one_is_not(
    engine: Engine, embedder: WordHash, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(task.time, "sleep", waits.append)
    errors: list[Exception] = [
        TransientError("busy", code="rate_limited", where="x", retry_after=7),
        TransientError("cut", code="connection", where="x"),
    ]

    def fails(texts: Sequence[str]) -> None:
        if errors:
            raise errors.pop()

    embedder.before = fails
    file_id = hand_in(engine, jsonl(tmp_path / "a.jsonl", {"x": "one"}))
    run(file_id)
    assert row(engine, file_id).status == FileStatus.DONE
    assert waits == [1.0, 7]

    errors += [TransientError("still busy", code="rate_limited", where="x", retry_after=1e9)] * 9
    tired = hand_in(engine, jsonl(tmp_path / "b.jsonl", {"x": "two"}))
    run(tired)
    assert row(engine, tired).error == "still busy"
    assert len(errors) == 9 - task.TRIES
    assert max(waits) == task.RETRY_CAP

    errors[:] = [PermanentError("wrong key", code="auth", where="x")] * 2
    refused = hand_in(engine, jsonl(tmp_path / "c.jsonl", {"x": "three"}))
    run(refused)
    assert row(engine, refused).error == "wrong key"
    assert len(errors) == 1


def test_an_unforeseen_error_fails_the_file_and_not_the_worker(
    engine: Engine, embedder: WordHash, run: Run, tmp_path: Path
) -> None:
    def fails(texts: Sequence[str]) -> None:
        raise ZeroDivisionError("un\0foreseen")

    embedder.before = fails
    file_id = hand_in(engine, jsonl(tmp_path / "a.jsonl", {"x": "one"}))
    run(file_id)
    assert "ZeroDivisionError" in str(row(engine, file_id).error)


def test_no_transaction_is_open_while_embedding(
    engine: Engine, embedder: WordHash, run: Run, tmp_path: Path
) -> None:
    open_ones: list[int] = []

    def look(texts: Sequence[str]) -> None:
        open_ones.append(engine.pool.checkedout())  # type: ignore[attr-defined]

    embedder.before = look
    run(hand_in(engine, jsonl(tmp_path / "a.jsonl", {f"r{number}": f"n {number}" for number in range(130)})))
    assert open_ones == [0, 0, 0]


def test_a_long_step_keeps_its_file(
    engine: Engine, embedder: WordHash, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task, "HEARTBEAT_SECONDS", 0.05)
    file_id = hand_in(engine, jsonl(tmp_path / "a.jsonl", {"x": "one"}))

    def waits(texts: Sequence[str]) -> None:
        make_stale(engine, file_id)
        deadline = time.monotonic() + 20
        while work.unclaimed(engine):
            assert time.monotonic() < deadline
            time.sleep(0.02)

    embedder.before = waits
    run(file_id)
    assert row(engine, file_id).status == FileStatus.DONE


def test_notes_of_the_loader_reach_the_row(engine: Engine, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("Größe".encode("cp1252"))
    made = work.create(engine, [path], "docs")
    run(made.file_ids[0])
    (noted,) = work.progress(engine, made.ingest_id).notes
    assert noted[0] == str(path)
    assert "Windows-1252" in noted[1]


def test_progress_of_an_unknown_ingest(engine: Engine) -> None:
    with pytest.raises(NotFound, match="no ingest"):
        work.progress(engine, "nothing")


def test_what_waits_and_who_works(engine: Engine, tmp_path: Path) -> None:
    first = work.create(engine, [jsonl(tmp_path / "a.jsonl", {"x": "1"})], "docs")
    second = work.create(engine, [jsonl(tmp_path / "b.jsonl", {"x": "1"})], "docs")
    assert work.unclaimed(engine) == first.file_ids + second.file_ids
    assert work.unclaimed(engine, second.ingest_id) == second.file_ids
    assert not work.somebody_works(engine)
    assert task.claim(engine, first.file_ids[0]) is not None
    assert work.unclaimed(engine) == second.file_ids
    assert work.somebody_works(engine)
    make_stale(engine, first.file_ids[0])
    assert work.unclaimed(engine) == first.file_ids + second.file_ids
    assert not work.somebody_works(engine)
