"""Each change of a collection gives it another version, and nothing else does."""

from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Engine, select

from shared import ingest as work
from shared.db import transaction
from shared.sources import Work
from shared.tables import Collection
from tests.integration.ingest.test_ingest_file import hand_in, jsonl
from workers.stores.qdrant import VectorStore


def version(engine: Engine) -> int | None:
    with transaction(engine) as session:
        return session.scalar(select(Collection.version).where(Collection.name == "docs"))


def test_every_change_is_a_new_version_and_an_unchanged_file_is_none(
    engine: Engine, run: Callable[..., None], tmp_path: Path
) -> None:
    path = tmp_path / "docs.jsonl"
    seen: list[int | None] = []
    for texts in ({"a": "One."}, {"a": "One.", "b": "Two."}, {"a": "Uno.", "b": "Two."}, {"b": "Two."}):
        run(hand_in(engine, jsonl(path, texts)))
        seen.append(version(engine))
        run(hand_in(engine, path))
        assert version(engine) == seen[-1], "the same file again changes nothing"
    path.unlink()
    _, (prune,) = work.put_in_line(engine, "docs", [Work("prune", str(tmp_path))])
    run(prune)
    seen.append(version(engine))
    _, (delete,) = work.put_in_line(engine, "docs", [Work("delete", "")])
    run(delete)
    assert version(engine) is None
    run(hand_in(engine, jsonl(path, {"a": "One."})))
    seen.append(version(engine))
    assert seen == sorted(set(seen)), "a collection of the same name is not taken for the one that is gone"


def test_the_last_version_is_later_than_the_last_change_in_the_store(
    engine: Engine,
    store: VectorStore,
    run: Callable[..., None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever searches between the change and the version keeps what it finds under the old one."""
    versions: list[int | None] = []
    for name in ("upsert", "delete", "refresh"):
        real = getattr(store, name)

        def watched(*words: object, real: Callable[..., None] = real) -> None:
            real(*words)
            versions.append(version(engine))

        monkeypatch.setattr(store, name, watched)
    path = jsonl(tmp_path / "docs.jsonl", {"a": "One.", "b": "Two."})
    for texts in ({"a": "One.", "b": "Two."}, {"a": "Uno.", "b": "Two."}, {"a": "Uno."}):
        run(hand_in(engine, jsonl(path, texts)))
        last = version(engine)
        assert versions
        assert last is not None
        assert all(seen is not None and seen < last for seen in versions)
        versions.clear()
