"""The batches that docs/history.md asks about: rows as the runner would have left them, always the same.

Nothing is run and no model is asked: a small story of 22 questions is written into the tables, with fixed
times. What the nodes decide is decided by the nodes' own functions, and prices are the real ones.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from sqlalchemy import Engine, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from shared.db import transaction
from shared.plan import make_plan
from shared.prices import cost_usd, search_cost_usd
from shared.settings import Settings
from shared.tables import (
    Batch,
    BatchRow,
    Collection,
    Grade,
    IngestedDocument,
    ModelCall,
    Prompt,
    Run,
    Transition,
    WebSearch,
)
from workers.nodes.decide import SEARCHING, decide

MODEL = "gpt-4.1-mini"
EMBEDDING = "text-embedding-3-small"
TITLES = {
    "handbook/leave.md": "Leave",
    "handbook/expenses.md": "Expenses",
    "handbook/travel.md": "Travel",
    "it/vpn.md": "VPN",
    "it/passwords.md": "Passwords",
    "archive/minutes-2019.md": "Minutes 2019",
    "legal/imprint.md": "Imprint",
}
LEAVE, EXPENSES, TRAVEL, VPN, PASSWORDS, MINUTES, _ = TITLES

# What was retrieved for each question, best first, with the grader's score in March and in April.
QUESTIONS: list[tuple[str, list[tuple[str, float, float]]]] = [
    ("How many days of leave are there?", [(LEAVE, 0.95, 0.95), (MINUTES, 0.40, 0.20), (TRAVEL, 0.10, 0.10)]),
    ("Can leave be carried over?", [(LEAVE, 0.90, 0.90), (MINUTES, 0.60, 0.25), (EXPENSES, 0.10, 0.10)]),
    ("Who approves a trip abroad?", [(TRAVEL, 0.85, 0.85), (EXPENSES, 0.55, 0.65), (MINUTES, 0.30, 0.15)]),
    (
        "What is paid for a night in Oslo?",
        [(TRAVEL, 0.45, 0.45), (EXPENSES, 0.40, 0.40), (MINUTES, 0.20, 0.10)],
    ),
    ("How long must a password be?", [(PASSWORDS, 0.98, 0.98), (VPN, 0.45, 0.55), (MINUTES, 0.05, 0.05)]),
    ("Does the VPN work on a phone?", [(VPN, 0.80, 0.80), (PASSWORDS, 0.20, 0.20), (MINUTES, 0.10, 0.05)]),
    ("Which lunch is paid?", [(EXPENSES, 0.55, 0.35), (TRAVEL, 0.50, 0.30), (MINUTES, 0.45, 0.20)]),
    ("Who won the match on Sunday?", [(MINUTES, 0.10, 0.05), (LEAVE, 0.05, 0.05), (VPN, 0.05, 0.05)]),
    (
        "What is the rate for a car of one's own?",
        [(EXPENSES, 0.75, 0.75), (TRAVEL, 0.60, 0.60), (MINUTES, 0.15, 0.10)],
    ),
]
WEB: dict[str, int] = {
    "What is paid for a night in Oslo?": 3,
    "Which lunch is paid?": 2,
    "Does the VPN work on a phone?": 1,
}
NEW = ("Is there a shuttle to the airport?", [(TRAVEL, 0.0, 0.70), (MINUTES, 0.0, 0.10), (VPN, 0.0, 0.05)])


@dataclass
class Clock:
    """A fixed beginning, and durations that look alike from one generation to the next."""

    now: datetime
    random: Random = field(default_factory=lambda: Random(20260302))  # noqa: S311 - no secret

    def tick(self, around_ms: float) -> float:
        """Milliseconds: `around_ms` give or take a third, and the clock goes on by as many."""
        took = round(around_ms * (0.67 + 0.66 * self.random.random()), 1)
        self.now += timedelta(milliseconds=took)
        return took


class Story:
    """One run that is being told: its rows are gathered, and its step counted."""

    def __init__(self, demo: "Demo", batch: dict[str, Any], number: int, question: str) -> None:
        self.demo, self.batch, self.clock = demo, batch, demo.clock
        self.run: dict[str, Any] = {
            "id": demo.next_run, "batch_id": batch["id"], "first_row": number, "question": question,
            "step": 0, "notes": [], "admitted_at": self.clock.now, "web_used": False,
        }  # fmt: skip
        demo.next_run += 1
        self.came_from = ["__start__"]

    def step(self, node: str, goes_to: list[str], updates: list[dict[str, Any]], **how: Any) -> None:
        """One superstep: a node, or a fan-out with an update for each branch."""
        self.run["step"] += 1
        begun = self.clock.now
        ends = []
        for branch, update in enumerate(updates):
            self.clock.now = begun
            self.attempt(node, branch, goes_to=goes_to, state_update=update, **how)
            ends.append(self.clock.now)
        self.clock.now = max(ends)
        self.came_from = [node]

    def attempt(
        self, node: str, branch: int = 0, *, attempt: int = 1, status: str = "succeeded", **how: Any
    ) -> None:
        """One attempt, with the call of a model (`role`, `tokens`) or of the web (`query`) that it made."""
        worker, slow = self.demo.worker_of(node, self.run["id"] + branch)
        started, took = self.clock.now, self.clock.tick(how.get("ms", 40) * slow)
        where = {"run_id": self.run["id"], "batch_id": self.batch["id"], "step": self.run["step"]}
        where |= {"branch": branch, "attempt": attempt}
        error = {"error_class": how.get("error_class"), "error": how.get("error")}
        tokens_in, tokens_out = how.get("tokens", (None, None))
        cost = None
        called = {"status": "error" if how.get("error") else "ok", **error, "duration_ms": took - 3}
        if role := how.get("role"):
            model = EMBEDDING if role == "embedder" else MODEL
            cost = cost_usd(model, tokens_in, tokens_out)
            call = {
                "node": node,
                "role": role,
                "provider": "openai",
                "model": model,
                "called_at": self.clock.now,
            }
            call |= {
                "prompt_version": self.demo.prompt(role, self.batch),
                "request_hash": f"{len(self.demo.calls):064x}",
            }
            call |= {"input_tokens": tokens_in, "output_tokens": tokens_out, "cost_usd": cost}
            call |= {"response": None if how.get("error") else {}}
            self.demo.calls.append(where | call | called)
        if query := how.get("query"):
            cost = search_cost_usd("tavily")
            search = {"provider": "tavily", "query": query, "request_hash": f"{len(self.demo.searches):064x}"}
            search |= {"results": how["results"], "cost_usd": cost, "searched_at": self.clock.now}
            self.demo.searches.append(where | search | called)
        self.demo.transitions.append(
            where | error | {
                "month": self.batch["month"], "node": node, "status": status, "came_from": self.came_from,
                "goes_to": how.get("goes_to", []) if status == "succeeded" else [],
                "state_update": how.get("state_update") if status == "succeeded" else None,
                "started_at": started, "ended_at": self.clock.now, "duration_ms": took, "worker": worker,
                "task_id": None, "input_tokens": tokens_in, "output_tokens": tokens_out, "cost_usd": cost,
            }
        )  # fmt: skip

    def grade(self, found: list[tuple[str, float]], goes_to: str) -> list[dict[str, Any]]:
        """Grade what was retrieved: a fan-out, and a row of `grades` for each document."""
        records = [
            {"document_id": f"{source}#0", "label": "relevant" if score >= 0.5 else "not_relevant", "score": score,
             "model": MODEL, "prompt_version": self.demo.prompt("relevance_grader", self.batch), "detail": "",
             "title": TITLES[source], "source": source, "page": None, "retrieval_score": round(0.8 - 0.1 * rank, 3)}
            for rank, (source, score) in enumerate(found)
        ]  # fmt: skip
        updates = [{"grades": [record]} for record in records]
        how = {"ms": 600, "role": "relevance_grader", "tokens": (310, 12)}
        self.step("grade_document", [goes_to], updates, **how)
        for branch, record in enumerate(records):
            where = {
                "batch_id": self.batch["id"],
                "run_id": self.run["id"],
                "step": self.run["step"],
                "branch": branch,
            }
            self.demo.grades.append(where | record | {"graded_at": self.clock.now})
        return records

    def end(self, status: str, **outcome: Any) -> None:
        self.run |= {"status": status, "ended_at": self.clock.now} | outcome
        self.demo.runs.append(self.run)

    def answer(self, sources: list[str], web: int = 0) -> None:
        cited = [
            {
                "title": TITLES[source],
                "source": source,
                "page": None,
                "origin": "store",
                "document_id": f"{source}#0",
            }
            for source in sources
        ]
        cited += [
            {
                "title": f"Page {n}",
                "source": f"https://example.org/{n}",
                "page": None,
                "origin": "web",
                "document_id": "",
            }
            for n in range(1, web + 1)
        ]
        words = "; ".join(one["title"] for one in cited)
        self.end("answered", answer=f"As said in {words}.", sources=cited, web_used=web > 0)


def tell_crag(story: Story, found: list[tuple[str, float]]) -> None:
    """A run of crag, from the retrieval to its disposition."""
    params, question = story.batch["plan"]["params"], story.run["question"]
    documents = [{"id": f"{source}#0", "source": source} for source, _ in found]
    if question.startswith("How many days"):  # a timeout, and the next try
        story.run["step"] = 1
        story.attempt(
            "retrieve", status="retried", ms=2000, error_class="TransientError", error="timeout: no answer"
        )
        story.run["step"] = 0
    attempt = 2 if question.startswith("How many days") else 1
    story.step("retrieve", ["grade_document"] * len(found), [{"documents": documents}], ms=150, attempt=attempt,
               role="embedder", tokens=(12, 0))  # fmt: skip
    grades = story.grade(found, "decide")
    state: Any = {"grades": grades, "documents": documents, "params": params}
    decided = decide(state, None)  # type: ignore[arg-type]
    kept = [document["source"] for document in decided["knowledge"]]
    searches = decided["decision"]["action"] in SEARCHING or not kept
    refines = params["refine"] == "on" and bool(kept)
    onward = "rewrite_query" if searches else "generate"
    story.step("decide", ["refine_document"] * len(kept) if refines else [onward], [decided])
    if refines:
        story.step("refine_document", ["recompose"], [{"strips": []} for _ in kept], ms=500, role="relevance_grader",
                   tokens=(280, 20))  # fmt: skip
        story.step("recompose", [onward], [{"knowledge": decided["knowledge"]}])
    web = 0
    if searches:
        web = WEB.get(question, 0)
        story.step("rewrite_query", ["web_search"], [{"query": question.lower()}], ms=700, role="query_rewriter",
                   tokens=(150, 14))  # fmt: skip
        results = [
            {"title": f"Page {n}", "source": f"https://example.org/{n}", "text": "", "score": 0.5}
            for n in range(web)
        ]
        update = {"web_documents": results, "web_status": "ok" if web else "empty"}
        story.step("web_search", ["generate" if kept or web else "give_up"], [update], ms=1300,
                   query=question.lower(), results=results)  # fmt: skip
    if not kept and not web:
        reason = f"none of the {len(found)} retrieved documents was relevant and the web search found nothing"
        story.step("give_up", ["__end__"], [{"disposition": "gave_up", "reason": reason}])
        story.end("gave_up", reason=reason)
        return
    writes = {"ms": 1500, "role": "answer_generator", "tokens": (900 + 250 * (len(kept) + web), 120)}
    if question.startswith("Who approves"):  # the provider refuses: no other try can help
        story.run["step"] += 1
        why = {"error_class": "PermanentError", "error": "content_filter: the provider refused the request"}
        story.attempt("generate", status="failed", **writes, **why)
        story.end("failed", error="generate: content_filter: the provider refused the request")
        return
    story.step("generate", ["__end__"], [{"disposition": "answered"}], **writes)
    story.answer(kept, web)


def tell_self_rag(
    story: Story, first: list[tuple[str, float]], second: list[tuple[str, float]], drafts: int
) -> None:
    """A run of self_rag: a second search where the first found nothing relevant, and `drafts` answers."""
    for number, found in enumerate((first, second), 1):
        if not found:
            continue
        documents = [{"id": f"{source}#0", "source": source} for source, _ in found]
        story.step("retrieve", ["grade_document"] * len(found), [{"documents": documents, "retrievals": number}],
                   ms=150, role="embedder", tokens=(12, 0))  # fmt: skip
        story.grade(found, "select")
        kept = [source for source, score in found if score >= 0.5]
        more = not kept and number == 1
        knowledge = [document for document in documents if document["source"] in kept]
        story.step(
            "select",
            ["rewrite_query" if more else "generate" if kept else "give_up"],
            [{"knowledge": knowledge}],
        )
        if more:
            story.step("rewrite_query", ["retrieve"], [{"query": "another way"}], ms=700, role="query_rewriter",
                       tokens=(150, 14))  # fmt: skip
    if not kept:
        reason = "no answer was found; tried: two searches, none relevant"
        story.step("give_up", ["__end__"], [{"disposition": "gave_up", "reason": reason}])
        story.end("gave_up", reason=reason)
        return
    for draft in range(1, drafts + 1):
        story.step("generate", ["check_groundedness"], [{"draft": "As said.", "generations": draft, "problem": ""}],
                   ms=1500, role="answer_generator", tokens=(900, 110))  # fmt: skip
        problem = "not_grounded" if draft < drafts else ""
        story.step("check_groundedness", ["generate" if problem else "check_answer"], [{"problem": problem}], ms=800,
                   role="groundedness_grader", tokens=(700, 10))  # fmt: skip
    story.step("check_answer", ["accept"], [{"problem": ""}], ms=700, role="answer_grader", tokens=(200, 8))
    story.step("accept", ["__end__"], [{"disposition": "answered"}])
    story.answer(kept)


class Demo:
    """Three batches: crag in March by the rule `ratio`, in April by `confidence`, and one of self_rag."""

    def __init__(self) -> None:
        self.clock = Clock(datetime(2026, 3, 2, 9, tzinfo=UTC))
        self.next_run = 1
        self.batches: list[dict[str, Any]] = []
        self.runs: list[dict[str, Any]] = []
        self.rows: list[dict[str, Any]] = []
        self.transitions: list[dict[str, Any]] = []
        self.grades: list[dict[str, Any]] = []
        self.calls: list[dict[str, Any]] = []
        self.searches: list[dict[str, Any]] = []
        self._crag("march.csv", {"rule": "ratio", "ratio": 0.5}, QUESTIONS, 1)
        self.clock.now = datetime(2026, 4, 1, 9, tzinfo=UTC)
        asked = [*QUESTIONS[:1], *QUESTIONS[2:], NEW]
        self._crag("april.csv", {"rule": "confidence", "upper": 0.7, "lower": 0.3}, asked, 2)
        self._self_rag()

    def _batch(self, name: str, pipeline: str, sets: dict[str, Any]) -> dict[str, Any]:
        settings = Settings(_env_file=None, openai_api_key="sk-demo", tavily_api_key="tvly-demo")  # type: ignore[call-arg, arg-type]
        plan = make_plan(settings, pipeline, sets).model_dump()
        made = {
            "id": len(self.batches) + 1,
            "name": name,
            "pipeline": pipeline,
            "collection": "default",
            "plan": plan,
        }
        made |= {"source": {"file": name, "format": "csv"}, "month": self.clock.now.date().replace(day=1)}
        made |= {"submitted_at": self.clock.now, "status": "ended"}
        self.batches.append(made)
        self.clock.tick(800)
        return made

    def _crag(self, name: str, sets: dict[str, Any], asked: list[Any], column: int) -> None:
        batch = self._batch(name, "crag", sets)
        for number, (question, found) in enumerate(asked, 1):
            story = Story(self, batch, number, question)
            tell_crag(story, [(one[0], one[column]) for one in found])
        self._close(batch, [question for question, _ in asked])

    def _self_rag(self) -> None:
        batch = self._batch("travel.txt", "self_rag", {})
        plain, off = [(TRAVEL, 0.9), (MINUTES, 0.1)], [(MINUTES, 0.1), (LEAVE, 0.2)]
        told: list[tuple[str, Any, Any, int]] = [
            ("Is a train preferred?", plain, [], 1), ("Who books the hotel?", off, plain, 1),
            ("May a trip be extended?", plain, [], 2), ("Are bicycles paid?", off, off, 0),
        ]  # fmt: skip
        for number, (question, first, second, drafts) in enumerate(told, 1):
            tell_self_rag(Story(self, batch, number, question), first, second, drafts)
        self._close(batch, [question for question, *_ in told])

    def _close(self, batch: dict[str, Any], questions: list[str]) -> None:
        """The file's rows: each question, the first of them once more, and an empty one."""
        runs = {run["question"]: run["id"] for run in self.runs if run["batch_id"] == batch["id"]}
        for number, question in enumerate([*questions, questions[0], ""], 1):
            row = {
                "batch_id": batch["id"],
                "row_number": number,
                "run_id": runs.get(question),
                "original": [question],
            }
            self.rows.append(row)
        batch |= {"row_count": len(questions) + 2, "run_count": len(questions), "ended_at": self.clock.now}

    def prompt(self, role: str, batch: dict[str, Any]) -> str:
        """The prompt of the relevance grader was changed between March and April."""
        if role == "embedder":
            return "none"
        return "b52e0c8f11aa" if role == "relevance_grader" and batch["id"] == 2 else "7d1f39a6e204"

    def worker_of(self, node: str, number: int) -> tuple[str, float]:
        """Who ran it, and how many times the usual time it takes there."""
        if node in (
            "grade_document",
            "refine_document",
            "rewrite_query",
            "generate",
            "check_groundedness",
            "check_answer",
        ):
            return [("models@ant", 1.0), ("models@bee", 1.0), ("models@snail", 2.4)][number % 3]
        return {"retrieve": "retrieval@ant", "web_search": "web@ant"}.get(node, "control@ant"), 1.0


def tell(engine: Engine) -> None:
    """Write the demo into an empty, migrated database."""
    demo = Demo()
    with transaction(engine) as session:
        session.execute(insert(Collection), [{"name": "default", "embedding_model": "openai/text-embedding-3-small",
                                              "dimension": 1536, "description": "The staff handbook"}])  # fmt: skip
        session.execute(insert(IngestedDocument), list(_documents()))
        for month in {batch["month"] for batch in demo.batches}:
            session.execute(text("SELECT ensure_transitions_partition(:month)"), {"month": month})
        for batch in demo.batches:
            session.execute(insert(Batch).values({key: value for key, value in batch.items() if key != "id"}))
        session.execute(insert(Prompt), [{"role": "relevance_grader", "version": version, "text": "Is it relevant?"}
                                         for version in ("7d1f39a6e204", "b52e0c8f11aa")])  # fmt: skip
        for table, rows in (
            (Run, demo.runs), (BatchRow, demo.rows), (Transition, demo.transitions), (Grade, demo.grades),
            (ModelCall, demo.calls), (WebSearch, demo.searches),
        ):  # fmt: skip
            _insert(session, table, rows)


def _insert(session: Session, table: Any, rows: list[dict[str, Any]]) -> None:
    """All rows with the same keys: what one lacks is NULL or the column's default."""
    for row in rows:
        session.execute(insert(table).values(row))


def _documents() -> Iterator[dict[str, Any]]:
    for source, title in TITLES.items():
        named = {"collection": "default", "source": source, "path": source, "root": source, "title": title}
        stored = {"chunk_ids": [f"{source}#0"], "embedding_model": "openai/text-embedding-3-small"}
        yield named | stored | {"content_hash": source}
