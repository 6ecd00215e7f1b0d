"""With models that say the same to the same request, every answer is the same with reuse as without it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import pytest
from sqlalchemy import Engine

from tests.fakes import openai_server
from tests.fakes.http_fake import Reply
from tests.fakes.openai_server import FakeOpenAI, content_words
from tests.fakes.tavily_server import FakeTavily
from tests.integration.runner.bench import Bench, at_once
from tests.unit.workers.nodes.fakes import document
from workers.bootstrap import Parts
from workers.models.roles import Document
from workers.runner import reconcile
from workers.stores.qdrant import SearchableStore

TEXTS = {
    "A": "The basalt on the western crag is very old. Climbers call it the old wall.",
    "B": "The hut below the crag was built in 1931. It sleeps twelve people.",
    "C": "Ravens nest on the crag in early spring. The paths are closed until June.",
}
QUESTIONS = [
    "How old is the basalt on the western crag?",
    "When was the hut below the crag built?",
    "Who painted the lighthouse beyond the harbour?",
    "Who painted the lighthouse behind the harbour?",
]
SMALL = {"k": 2}
BATCHES: list[tuple[str, dict[str, Any]]] = [("adaptive", SMALL), ("crag", SMALL), ("crag", SMALL)]


class Store:
    """Ranks three documents by the words they share with the query."""

    def search(
        self,
        name: str,
        vector: Sequence[float],
        k: int,
        *,
        text: str,
        mode: str,
        filters: Mapping[str, Any] | None,
    ) -> list[Document]:
        assert vector, "the query is embedded"
        found = [document(letter, words) for letter, words in TEXTS.items()]
        return sorted(found, key=lambda one: -len(content_words(text) & content_words(one["text"])))[:k]


def script(role: str, payload: dict[str, Any]) -> Reply:
    """Questions that differ in a few words lead to the same query, and drafts on the hut are no good."""
    human = str(payload["messages"][-1]["content"])
    if role == "query_rewriter":
        topic = next((word for word in ("basalt", "hut", "birds", "lighthouse") if word in human), "crag")
        return openai_server.content({"query": f"{topic} {len(openai_server.feedback_of(payload))}"})
    if role == "answer_grader" and "1931" in openai_server.answer_of(payload):
        return openai_server.content({"missing": "the hut", "binary_score": "no", "score": 0.1})
    return openai_server.default_script(role, payload)


@pytest.fixture(scope="module")
def servers_of_models() -> Iterator[tuple[FakeOpenAI, FakeTavily]]:
    with FakeOpenAI(script) as openai, FakeTavily() as tavily:
        yield openai, tavily


def all_ended(bench: Bench) -> None:
    """Eight workers at a time, so that many want the same at once."""
    for _ in range(400):
        bench.admit()
        bench.overdue()
        due = reconcile.due(bench.engine, bench.settings)
        for start in range(0, len(due), 8):
            part = due[start : start + 8]
            at_once([lambda p=p, b=b: bench.run(p.run_id, p.step, b) for p, b in part])
        bench.overdue()
        reconcile.join_overdue(bench.engine, bench.settings)
        if not bench.rows("SELECT FROM runs WHERE status IN ('pending', 'running')"):
            return
    raise AssertionError(bench.rows("SELECT * FROM claims"))


def answers(engine: Engine, fakes: tuple[FakeOpenAI, FakeTavily], mode: str) -> tuple[list[Any], int, Bench]:
    """What each run came to, and how many requests the servers saw."""
    openai, tavily = fakes
    bench = Bench(
        engine,
        reuse=mode,
        collection="docs",
        openai_base_url=openai.base_url,
        tavily_base_url=tavily.base_url,
        embedding_model="text-embedding-3-small",
    )
    bench.execute(
        "INSERT INTO collections (name, embedding_model, dimension) VALUES ('docs', 'm', 3) ON CONFLICT DO NOTHING"
    )
    parts = Parts(bench.settings, engine, store=cast(SearchableStore, Store()))
    bench.make_resources = parts.make
    before = len(openai.requests) + len(tavily.requests)
    first = bench.one("SELECT coalesce(max(id), 0) AS id FROM batches").id
    for pipeline, sets in BATCHES:
        bench.submit(QUESTIONS, pipeline, **sets)
        all_ended(bench)
    came_to = bench.rows(
        "SELECT pipeline, first_row, runs.status, answer, sources, reason, notes, web_used"
        "  FROM runs JOIN batches ON batches.id = batch_id WHERE batch_id > :first ORDER BY batch_id, first_row",
        first=first,
    )
    return came_to, len(openai.requests) + len(tavily.requests) - before, bench


def test_every_answer_is_that_of_a_run_without_reuse(
    database: Engine, servers_of_models: tuple[FakeOpenAI, FakeTavily]
) -> None:
    plain, paid_off, _ = answers(database, servers_of_models, "off")
    within, paid_batch, _ = answers(database, servers_of_models, "batch")
    across, paid_all, bench = answers(database, servers_of_models, "all")
    assert within == plain
    assert across == plain
    assert {row.status for row in plain} == {"answered", "gave_up"} and {row.web_used for row in plain} >= {
        True,
        False,
    }
    assert paid_all < paid_batch < paid_off
    assert bench.rows("SELECT * FROM lost_runs") == bench.rows("SELECT * FROM flights") == []
    spent = bench.one(
        "SELECT sum(cost_usd) FILTER (WHERE plan ->> 'reuse' = 'off') AS plain,"
        "       sum(cost_usd + saved_usd) FILTER (WHERE plan ->> 'reuse' = 'all') AS across"
        "  FROM batch_progress JOIN batches ON batches.id = batch_id"
    )
    assert spent.across == pytest.approx(spent.plain), "what was saved is what was not spent"
