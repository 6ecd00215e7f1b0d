"""docs/history.md: fresh, and every query on it finds something in the demo's batches."""

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from shared import history
from shared.stack.testing import Servers
from tests.conftest import own_database
from tests.integration.cluster import read_rows

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "history.md").read_text(encoding="utf-8")
QUERIES = re.findall(r"^## (\d+)\..*?^```sql\n(.*?)^```", PAGE, re.M | re.S)


def load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def demo(servers: Servers) -> Iterator[Engine]:
    with own_database(servers) as engine:
        load("history_demo").tell(engine)
        yield engine


def test_the_page_is_fresh(demo: Engine) -> None:
    assert load("history_page").render(demo, PAGE) == PAGE, "docs/history.md is stale: run `make docs`"


def test_a_stale_output_and_a_missing_one_are_seen(demo: Engine) -> None:
    stale = PAGE.replace("Who won the match on Sunday?  rewrite", "Who lost the match?  rewrite", 1)
    stale = re.sub(
        r"```text\n batch_id.*?```\n\n", "", stale.replace("erDiagram", "flowchart"), count=1, flags=re.S
    )
    assert load("history_page").render(demo, stale) == PAGE != stale


def test_there_are_twenty_questions_and_each_has_an_answer(demo: Engine) -> None:
    assert [int(number) for number, _ in QUERIES] == list(range(1, 21))
    assert PAGE.count("```sql\n") == 20
    empty = [number for number, query in QUERIES if not history.query(demo, query).rows]
    assert empty == []


def test_the_queries_of_the_other_pages_can_be_asked(demo: Engine) -> None:
    pages = [path for path in DOCS.glob("*.md") if path.name != "history.md"]
    queries = [
        query
        for path in pages
        for query in re.findall(r"^```sql\n(.*?)^```", path.read_text("utf-8"), re.M | re.S)
    ]
    assert len(queries) >= 2
    for query in queries:
        history.query(demo, query)


def test_the_demo_is_what_the_runner_could_have_left(demo: Engine) -> None:
    assert read_rows(demo, "SELECT * FROM lost_runs") == []
    loose = read_rows(
        demo,
        "SELECT run_id, step FROM transitions AS t WHERE status = 'succeeded' AND goes_to <> '{__end__}' AND NOT EXISTS"
        " (SELECT FROM transitions AS next WHERE next.run_id = t.run_id AND next.step = t.step + 1"
        "     AND next.node = ANY (t.goes_to) AND t.node = ANY (next.came_from))",
    )
    assert loose == []


def test_the_page_names_every_view_and_function(demo: Engine) -> None:
    there = read_rows(
        demo,
        "SELECT relname::text AS name FROM pg_class WHERE relnamespace = 'history'::regnamespace AND relkind = 'v'",
    )
    assert {row.name for row in there} == set(re.findall(r"^### history\.(\w+)", PAGE, re.M))
    functions = read_rows(
        demo,
        "SELECT DISTINCT proname::text AS name FROM pg_proc WHERE pronamespace = 'history'::regnamespace",
    )
    assert {row.name for row in functions} == set(re.findall(r"^- `history\.(\w+)\(", PAGE, re.M))
