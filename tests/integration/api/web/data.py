"""Batches and runs as workers would leave them behind, put straight into the tables."""

import itertools
import json
from typing import Any

from sqlalchemy import Engine, text

from api.intake.model import InputRow
from shared import batches
from shared.db import transaction
from shared.plan import make_plan
from shared.settings import Settings

# Every one of these must be shown as it is, and do nothing.
HOSTILE = [
    "<script>window.hacked = 1</script>",
    "\"><img src=x onerror='window.hacked=2'>",
    "'-window.hacked-'",
    "{{ 7 * 7 }} ${7*7} <%= 7 %>",
    "</title></textarea></svg></style><script>window.hacked=3</script>",
    "javascript:window.hacked=4",
    "<svg onload=window.hacked=5><a href='javascript:window.hacked=6'>x</a>",
    "\u202egnirts desrever \u2066 <b>bold</b>",
    'x" hx-get="/evil" hx-trigger="load',
    "&lt;script&gt; &amp;amp; &#60;",
]
ALL_HOSTILE = " ".join(HOSTILE)
BAD_LINKS = [
    "javascript:window.hacked=7",
    "JaVaScRiPt:window.hacked=8",
    " javascript:window.hacked=9",
    "java\tscript:window.hacked=10",
    "\x01javascript:window.hacked=11",
    "data:text/html,<script>window.hacked=12</script>",
    "vbscript:x",
    "//evil.example/x",
    "https:\\\\evil.example",
    "file:///etc/passwd",
    "http://",
    "docs/a <b>.md",
]
_numbers = itertools.count(1)


def settings() -> Settings:
    return Settings(_env_file=None, collection="docs")  # type: ignore[call-arg]


def add_batch(
    engine: Engine,
    questions: list[str],
    statuses: list[str] | None = None,
    *,
    name: str = "A batch",
    pipeline: str = "crag",
    owner: str | None = None,
    answer: str = "An answer.",
) -> tuple[int, list[int]]:
    """A batch whose runs have `statuses` (pending where left out); its number and those of its runs."""
    rows = [InputRow(number, question, [question], []) for number, question in enumerate(questions, 1)]
    source = {"file": name, "format": "csv", "header": ["question"], "columns": ["question"]}
    source |= {"question_column": name, "notes": [name]}
    plan = make_plan(settings(), pipeline, {}, "docs")
    made = batches.submit(
        engine, plan, name, source, rows, None, batches.Request(owner, None) if owner else None
    )
    with transaction(engine) as session:
        query = "SELECT id FROM runs WHERE batch_id = :b ORDER BY first_row"
        runs = list(session.scalars(text(query), {"b": made.batch_id}))
    for run, status in zip(runs, statuses or [], strict=False):
        set_status(engine, run, status, answer)
    if statuses and len(statuses) == len(runs) and not {"pending", "running"} & set(statuses):
        end(engine, made.batch_id)
    return made.batch_id, runs


def set_status(engine: Engine, run: int, status: str, answer: str = "An answer.") -> None:
    values: dict[str, Any] = {"run": run, "status": status, "answer": None, "reason": None, "error": None}
    values |= {
        "answered": {"answer": answer},
        "gave_up": {"reason": answer},
        "failed": {"error": answer},
    }.get(status, {})
    ended = status not in ("pending", "running")
    with transaction(engine) as session:
        session.execute(
            text(
                "UPDATE runs SET status = :status, answer = :answer, reason = :reason, error = :error,"
                " admitted_at = CASE WHEN :status <> 'pending' THEN now() - interval '90 seconds' END,"
                f" ended_at = {'now()' if ended else 'NULL'}, step = {0 if status == 'pending' else 1}"
                " WHERE id = :run"
            ),
            values,
        )


def end(engine: Engine, batch_id: int) -> None:
    with transaction(engine) as session:
        query = "UPDATE batches SET status = 'ended', ended_at = now() WHERE id = :b"
        session.execute(text(query), {"b": batch_id})


def document(number: int, said: str, source: str = "docs/a.md", origin: str = "store") -> dict[str, Any]:
    return {
        "id": f"{origin}:{number}",
        "text": f"Passage {number}. {said}",
        "title": said,
        "source": source,
        "page": number,
        "score": 0.5 + number / 10,
        "origin": origin,
    }


_TRANSITION = """
INSERT INTO transitions (month, run_id, batch_id, step, branch, attempt, node, status, came_from, goes_to,
                         state_update, started_at, ended_at, duration_ms, worker, input_tokens, output_tokens,
                         cost_usd, error)
SELECT batches.month, runs.id, runs.batch_id, :step, :branch, :attempt, :node, :status, :came, :goes,
       CAST(:update AS jsonb), now(), now(), :ms, :worker, 120, 30, 0.0004, :error
  FROM runs JOIN batches ON batches.id = runs.batch_id WHERE runs.id = :run
"""


def step(engine: Engine, run: int, number: int, node: str, came: str, goes: list[str], **more: Any) -> None:
    """One attempt of a node. `more`: branch, attempt, status, update, ms, worker, error."""
    values = {
        "run": run,
        "step": number,
        "node": node,
        "came": [came],
        "goes": goes,
        "branch": 0,
        "attempt": 1,
    }
    values |= {"status": "succeeded", "ms": 12.5 * number, "worker": "worker-1@host", "error": None}
    update = more.pop("update", {})
    with transaction(engine) as session:
        session.execute(text(_TRANSITION), values | more | {"update": json.dumps(update)})


def grade(engine: Engine, run: int, number: int, branch: int, found: dict[str, Any], said: str) -> None:
    label, value = ("relevant", 0.82) if branch == 0 else ("not_relevant", 0.31)
    with transaction(engine) as session:
        session.execute(
            text(
                "INSERT INTO grades (batch_id, run_id, step, branch, document_id, title, source, label, score,"
                " model, prompt_version, detail) SELECT batch_id, id, :step, :branch, :document, :said, :said,"
                " :label, :value, :said, 'v1', :said FROM runs WHERE id = :run"
            ),
            {"run": run, "step": number, "branch": branch, "document": found["id"], "said": said}
            | {"label": label, "value": value},
        )


def add_crag_story(engine: Engine, run: int, said: str, sources: list[str]) -> None:
    """A run of crag that corrected itself by a web search, with `said` in every text it can hold."""
    found = [document(n, said, sources[n % len(sources)]) for n in range(3)]
    web = [document(n, said, sources[n % len(sources)], "web") for n in range(len(sources))]
    step(
        engine,
        run,
        1,
        "retrieve",
        "__start__",
        ["grade_document"] * 3,
        update={"documents": found, "query": "The question?"},
    )
    step(engine, run, 2, "grade_document", "retrieve", [], status="retried", error=f"busy: {said}")
    for branch in range(3):
        more = {"branch": branch, "attempt": 2 if branch == 0 else 1}
        step(engine, run, 2, "grade_document", "retrieve", ["decide"], **more)
        grade(engine, run, 2, branch, found[branch], said)
    decision = {"action": "search", "why": said, "rule": "ratio:0.5"}
    step(engine, run, 3, "decide", "grade_document", ["rewrite_query"], update={"decision": decision})
    step(engine, run, 4, "rewrite_query", "decide", ["web_search"], update={"query": f"rewritten {said}"})
    update = {"web_documents": web, "web_status": "ok"}
    step(engine, run, 5, "web_search", "rewrite_query", ["generate"], update=update, worker=said)
    step(
        engine,
        run,
        6,
        "generate",
        "web_search",
        ["__end__"],
        update={"answer": said, "disposition": "answered"},
    )
    with transaction(engine) as session:
        session.execute(
            text(
                "INSERT INTO web_searches (batch_id, run_id, step, branch, attempt, provider, query, request_hash,"
                " status, results, cost_usd, duration_ms) SELECT batch_id, id, 5, 0, 1, :said, :said, 'h', 'ok',"
                " CAST(:web AS jsonb), 0.008, 420 FROM runs WHERE id = :run"
            ),
            {"run": run, "said": said, "web": json.dumps(web)},
        )
        session.execute(
            text("UPDATE runs SET sources = CAST(:s AS jsonb), web_used = true, notes = :n WHERE id = :run"),
            {"run": run, "s": json.dumps(web), "n": [said]},
        )


def add_adaptive_story(engine: Engine, run: int, said: str) -> None:
    """A run of adaptive that went round its loops."""
    way = ["route", "rewrite_query", "retrieve", "select", "assemble", "feedback_on_query", "rewrite_query"]
    way += [
        "retrieve",
        "select",
        "assemble",
        "generate",
        "check_groundedness",
        "feedback_on_answer",
        "generate",
    ]
    way += ["check_groundedness", "check_answer", "accept"]
    updates: dict[str, Any] = {
        "rewrite_query": {"query": said},
        "retrieve": {"documents": [document(1, said)]},
        "feedback_on_query": {"query_feedback": [said]},
        "feedback_on_answer": {"feedback": [said]},
        "check_answer": {"checks": [{"what": "useful", "passed": True, "score": 0.9, "detail": said}]},
    }
    for number, node in enumerate(way, 1):
        came = "__start__" if number == 1 else way[number - 2]
        goes = ["__end__"] if number == len(way) else [way[number]]
        step(engine, run, number, node, came, goes, update=updates.get(node, {}))
