"""What single commands print, without a database."""

import io
from typing import Any

import pytest
from rich.console import Console

from api.cli import batch, inprocess, runs, sql, submit
from shared import history
from shared.batches import Submitted
from shared.errors import UsageError


def console(width: int) -> Console:
    return Console(file=io.StringIO(), width=width)


def text(out: Console) -> str:
    return out.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def step(**changes: Any) -> dict[str, Any]:
    values = {"step": 2, "branch": 3, "attempt": 1, "node": "grade_document", "status": "succeeded"}
    values |= {"duration_ms": 12.3, "came_from": ["retrieve"], "goes_to": ["decide"], "error": None}
    return values | {"grade": None, "grade_score": None, "graded_source": None, "state_update": {}} | changes


def test_a_step_on_a_narrow_terminal() -> None:
    out = console(80)
    runs._print_step(out, step(grade="relevant", grade_score=0.5, graded_source="[a].md", attempt=2))
    lines = [line.rstrip() for line in text(out).splitlines()]
    assert lines == [
        "2.3   grade_document (try 2) succeeded in 12 ms: retrieve -> decide",
        "      relevant 0.50: [a].md",
    ]


CHECK = {"what": "grounded", "passed": True, "score": 0.93, "detail": ""}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"error": "401", "status": "failed"}, "401"),
        ({"grade": "unparsed", "graded_source": "a.md"}, "unparsed: a.md"),
        ({"state_update": {"decision": {"action": "search", "why": "0 of 4"}}}, "search: 0 of 4"),
        ({"state_update": {"documents": [1, 2]}}, "2 documents"),
        ({"state_update": {"web_status": "ok", "web_documents": [1]}}, "ok: 1 web result"),
        ({"state_update": {"query": "who"}}, "query: who"),
        ({"state_update": {"strips": [{"kept": True}, {"kept": False}]}}, "1 of 2 strips kept"),
        ({"state_update": {"disposition": "answered"}}, "answered"),
        (
            {"state_update": {"disposition": "answered", "reused_from": {"run": 7, "batch": 2}}},
            "taken over from run 7",
        ),
        ({"state_update": {"mode": "websearch"}}, "to: websearch"),
        ({"state_update": {"retrieval_needed": False}}, "no documents are needed"),
        ({"state_update": {"knowledge": [1]}}, "1 document kept"),
        ({"state_update": {"knowledge": [], "tried": ["nothing found"]}}, "nothing found"),
        ({"state_update": {"extracts": [{"passages": [1, 2]}]}}, "2 passages taken"),
        ({"state_update": {"draft": "It is [1].", "generations": 1}}, "draft: It is [1]."),
        (
            {"state_update": {"draft": "", "tried": ["answer from 1 document: no"]}},
            "answer from 1 document: no",
        ),
        ({"state_update": {"checks": [CHECK]}}, "grounded 0.93"),
        (
            {"state_update": {"checks": [CHECK | {"passed": False, "detail": "No wall."}], "tried": ["x"]}},
            "not grounded 0.93: No wall.",
        ),
        ({"state_update": {"query_feedback": ["use other words"]}}, "feedback: use other words"),
        ({"state_update": None}, ""),
    ],
)
def test_what_a_step_did(changes: dict[str, Any], expected: str) -> None:
    assert runs.what_happened(step(**changes)) == expected


def test_a_source_is_shown_with_its_place() -> None:
    source = {"title": "Returns", "source": "/kb/a.pdf", "page": 3}
    assert runs._source(source) == "Returns (page 3): /kb/a.pdf"
    assert runs._source(source | {"title": "", "page": None}) == "/kb/a.pdf"


def test_what_a_node_told_ask() -> None:
    grade = {"label": "relevant", "score": 0.81234, "source": "a.md"}
    assert (
        inprocess._gist({"grades": [grade, grade | {"score": None}]}) == "relevant 0.81: a.md; relevant: a.md"
    )
    update = {"decision": {"action": "search", "why": "none"}, "knowledge": [1], "notes": ["web is off"]}
    assert inprocess._gist(update) == "search (none); 1 document kept; web is off"
    assert inprocess._gist({"query": "who", "documents": []}) == "query = who; 0 documents"
    judged = {"checks": [CHECK | {"passed": False, "detail": "why"}], "problem": "", "tried": ["a"]}
    assert inprocess._gist(judged) == "not grounded 0.93 (why); tried: a"


def test_columns_of_one_name_all_become_keys() -> None:
    assert sql._unique(["a", "b", "a", "a_2", "a"]) == ["a", "b", "a_2", "a_2_2", "a_3"]


@pytest.mark.parametrize("words", [(None, None), ("select 1", "file")])
def test_one_query_is_wanted(words: Any, tmp_path: Any) -> None:
    with pytest.raises(UsageError, match="Give one query"):
        sql._statement(words[0], words[1] and tmp_path / words[1])


def test_batch_list_fits_eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    row = dict.fromkeys(history.COUNTS, 100000) | {"batch_id": 12, "name": "x" * 90, "pipeline": "crag"}
    row |= {"collection": "default", "status": "ended", "submitted_at": None}
    monkeypatch.setattr(history, "list_batches", lambda engine, limit: [row])
    monkeypatch.setattr(batch, "get_engine", lambda: None)
    for width, wide in ((80, False), (160, True)):
        out = console(width)
        monkeypatch.setattr(batch, "console", lambda out=out: out)
        batch.list_(limit=5, json=False)
        lines = text(out).splitlines()
        assert ("submitted_at" in lines[1]) is wide
        assert lines[1].split()[:2] == ["batch", "name"]
        assert max(map(len, lines)) <= width
        if not wide:
            assert len(lines) == 6  # the long name takes a second line, and no word of the header is broken


@pytest.mark.parametrize(
    ("submitted", "expected"),
    [
        (Submitted(3, 1, 1, 0, 0), "Batch 3: 1 row, 1 question."),
        (
            Submitted(3, 100000, 99000, 400, 600),
            "Batch 3: 100,000 rows, 99,000 questions, 400 empty (not run, kept in the results), "
            "600 repeated (run once, answered for each).",
        ),
    ],
)
def test_what_submit_says(submitted: Submitted, expected: str) -> None:
    out = console(80)
    submit._say_submitted(out, submitted)
    assert text(out) == expected + "\n"
