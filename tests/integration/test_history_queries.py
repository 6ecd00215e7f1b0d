"""Every query of docs/history.md runs on the real schema, finds what it asks for, and has the columns shown."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from sqlalchemy import Engine, text

from shared import batches, history
from shared.db import transaction
from shared.plan import make_plan
from shared.settings import Settings

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "history.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^## (\d+)\..*?^```sql\n(.*?)^```\n\n```text\n(.*?)^```", PAGE, re.M | re.S)
NAMED = re.findall(
    r"^\| `(\w+)` \|", PAGE[PAGE.index("## The views") : PAGE.index("## The status of a batch")], re.M
)

# One run that answered after a retry, and one that gave up, as the runner would have left them.
STORY = """
UPDATE runs SET status = 'answered', step = 3, answer = 'Yes. [1]', sources = '[{"title": "Manual"}]',
       admitted_at = now(), ended_at = now() WHERE first_row = 1;
UPDATE runs SET status = 'gave_up', step = 3, reason = 'nothing found', notes = '{web_search_off}',
       admitted_at = now(), ended_at = now() WHERE first_row = 2;
INSERT INTO transitions (month, run_id, batch_id, step, branch, attempt, node, status, came_from, goes_to,
                         state_update, started_at, ended_at, duration_ms, error_class)
SELECT batches.month, runs.id, batch_id, told.step, 0, told.attempt, told.node, told.status, '{}', '{}',
       told.changed::jsonb, now(), now(), 5, told.error
  FROM runs JOIN batches ON batches.id = runs.batch_id
 CROSS JOIN (VALUES (1, 1, 'retrieve', 'retried', NULL, 'TransientError'),
                    (1, 2, 'retrieve', 'succeeded', '{}', NULL),
                    (2, 1, 'grade_document', 'succeeded', '{}', NULL),
                    (3, 1, 'decide', 'succeeded',
                     '{"decision": {"rule": "ratio", "action": "search", "relevant": 0}}', NULL))
            AS told (step, attempt, node, status, changed, error);
INSERT INTO grades (batch_id, run_id, step, branch, document_id, title, source, label, score, model, prompt_version)
SELECT batch_id, id, 2, 0, 'd1', 'Manual', 'manual.md', 'not_relevant', 0.25, 'local', 'none' FROM runs;
INSERT INTO model_calls (batch_id, run_id, step, branch, attempt, node, role, provider, model, prompt_version,
                         request_hash, status, input_tokens, output_tokens, cost_usd, duration_ms)
SELECT batch_id, id, 2, 0, 1, 'grade_document', 'relevance_grader', 'openai', 'm', 'v', 'h', 'ok', 10, 2, 0.001, 5
  FROM runs;
"""
EXPECTED = {
    "1": (2, 0, 0, 2, 1, 1, 0, 0),
    "2": ("retrieve", 4, 2, 2, 0, 0),
    "3": ("nothing found", 1),
    "4": ("ratio", "search", 0),
    "5": ("retrieve > grade_document > decide", 2),
    "6": (0, "not_relevant"),
    "7": ("Manual", 2, 2),
    "8": ("Manual", 1),
    "9": ("relevance_grader", "openai", "m", 2, 0, 20, 4),
    "10": ("attempt: retried, TransientError", 2),
}


@pytest.fixture
def story(database: Engine) -> Engine:
    rows = [
        SimpleNamespace(
            number=number, question=f"question {number}?", original=[f"question {number}?"], notes=[]
        )
        for number in (1, 2)
    ]
    batches.submit(database, make_plan(Settings(_env_file=None), "crag"), "story", {}, rows)
    with transaction(database) as session:
        session.execute(text(STORY))
    return database


def test_there_are_ten() -> None:
    assert [number for number, _, _ in BLOCKS] == list(EXPECTED)
    assert PAGE.count("```sql\n") == len(EXPECTED)


@pytest.mark.parametrize(("number", "query", "output"), BLOCKS, ids=[f"query-{block[0]}" for block in BLOCKS])
def test_a_query_finds_what_it_asks_for(story: Engine, number: str, query: str, output: str) -> None:
    result = history.query(story, query)
    assert result.columns == output.splitlines()[0].split()
    assert result.rows[0][: len(EXPECTED[number])] == EXPECTED[number]


def test_every_table_and_view_on_the_page_exists(database: Engine) -> None:
    assert len(NAMED) > 10
    for name in NAMED:
        assert history.query(database, f"select * from {name}").rows == []


def test_the_page_names_every_table_and_view(database: Engine) -> None:
    there = history.query(
        database,
        "select relname from pg_class where relnamespace = 'public'::regnamespace and relkind in ('r', 'p', 'v')"
        " and not relispartition and relname <> 'alembic_version'",
    )
    assert {row[0] for row in there.rows} == set(NAMED)
