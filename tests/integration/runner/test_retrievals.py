"""A search whose query embedding is paid is made once for each version of its collection."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from shared.db import transaction
from shared.errors import Postponed
from tests.integration.runner.bench import Bench
from tests.integration.runner.test_ledger import EMBEDDING, Counted, next_attempt
from tests.integration.runner.test_reuse import a_run, two_runs
from tests.unit.workers.nodes.fakes import document
from workers.models.roles import Document, RetrievalSpec
from workers.runner.claims import Won
from workers.runner.ledger import Ledger
from workers.stores.sync import bump

SPEC = RetrievalSpec("docs", "how old?", 4, "dense", {}, "openai/text-embedding-3-small")


class Search:
    """A search that embeds its query first, as the real one does; counts how often."""

    def __init__(self, ledger: Ledger | None = None, before: Callable[[], Any] = lambda: None) -> None:
        self.ledger = ledger
        self.before = before
        self.calls = 0

    def __call__(self) -> list[Document]:
        self.calls += 1
        self.before()
        if self.ledger is not None:
            self.ledger.call(EMBEDDING, Counted(None))
        return [document("A", "text\x00"), document("B")]


@pytest.fixture
def paid(make_bench: Callable[..., Bench]) -> Bench:
    bench = make_bench(collection="docs")
    bench.execute("INSERT INTO collections (name, embedding_model, dimension) VALUES ('docs', 'm', 3)")
    return bench


def change(bench: Bench, name: str = "docs") -> None:
    with transaction(bench.engine) as session:
        bump(session, name)


def retrieve(bench: Bench, won: Won, search: Search, spec: RetrievalSpec = SPEC) -> list[Document]:
    ledger = Ledger(bench.engine, won)
    found = ledger.retrieval(spec, search)
    with transaction(bench.engine) as session:
        ledger.write_buffered(session)
    return found


def test_a_second_run_gets_the_documents_without_embedding_its_query(paid: Bench) -> None:
    first, second = two_runs(paid)
    ledger = Ledger(paid.engine, first)
    found = ledger.retrieval(SPEC, Search(ledger))
    search = Search()
    taken = retrieve(paid, second, search)
    assert search.calls == 0 and [d["id"] for d in taken] == [d["id"] for d in found]
    made, free = paid.rows("SELECT * FROM retrievals ORDER BY id")
    version = paid.one("SELECT version FROM collections").version
    assert (made.collection, made.collection_version, made.query, made.k) == ("docs", version, "how old?", 4)
    assert made.documents == taken and made.documents[0]["text"] == "text\ufffd"
    assert made.cost_usd == paid.one("SELECT cost_usd FROM model_calls").cost_usd > 0
    assert (free.reused_from, free.saved_usd, free.documents) == (made.id, made.cost_usd, None)
    assert free.collection_version == version and free.reuse_key is None
    assert paid.one("SELECT * FROM batch_progress").saved_usd == made.cost_usd


OTHERS: list[dict[str, Any]] = [
    {"k": 5},
    {"mode": "hybrid"},
    {"filters": {"page": ["3"]}},
    {"query": "How old?"},
    {"embedding_model": "openai/x"},
]


def test_another_search_is_made(paid: Bench) -> None:
    first, second = two_runs(paid)
    search = Search()
    retrieve(paid, first, search)
    for calls, other in enumerate(OTHERS, 2):
        retrieve(paid, second, search, replace(SPEC, **other))
        assert search.calls == calls, other


def test_a_changed_collection_is_searched_anew_and_the_version_is_that_before_the_search(paid: Bench) -> None:
    first, second = two_runs(paid)
    search = Search(before=lambda: change(paid))  # while it is searched: what it finds may be old
    retrieve(paid, first, search)
    search.before = lambda: None
    retrieve(paid, second, search)
    retrieve(paid, replace(second, step=2), search)
    assert search.calls == 2
    change(paid, "of another name")
    retrieve(paid, replace(second, step=3), search)
    assert search.calls == 2
    versions = [row.collection_version for row in paid.rows("SELECT * FROM retrievals ORDER BY id")]
    assert versions[0] < versions[1] == versions[2] == versions[3]


def test_after_a_kill_its_embedding_is_not_paid_again(paid: Bench) -> None:
    won = a_run(paid)
    search = Search()
    retrieve(paid, won, search)
    change(paid)
    retrieve(paid, next_attempt(paid, won), search)
    assert search.calls == 1 and len(paid.rows("SELECT * FROM retrievals")) == 1


def test_a_second_task_does_not_search_meanwhile(paid: Bench) -> None:
    first, second = two_runs(paid)

    def meanwhile() -> None:
        with pytest.raises(Postponed):
            retrieve(paid, second, Search())

    retrieve(paid, first, Search(before=meanwhile))
    late = Search()
    retrieve(paid, second, late)
    assert late.calls == 0


def test_what_is_not_paid_is_not_kept(paid: Bench, make_bench: Callable[..., Bench]) -> None:
    off, lost = make_bench(reuse="off", collection="docs"), replace(SPEC, collection="gone")
    search = Search()
    for bench, spec in (
        (paid, replace(SPEC, embedding_model="local/m")),
        (paid, replace(SPEC, mode="sparse", embedding_model="")),
        (off, SPEC),
        (paid, lost),
    ):
        for won in two_runs(bench):
            retrieve(bench, won, search, spec)
    assert search.calls == 8 and paid.rows("SELECT * FROM retrievals") == []
