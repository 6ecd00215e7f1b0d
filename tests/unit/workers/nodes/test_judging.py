"""The nodes of the pipelines that judge their own answer."""

from typing import Any

import pytest

from tests.unit.workers.nodes.fakes import Script, document, params
from workers.models.roles import GeneratedAnswer
from workers.nodes.adaptive import (
    apologise,
    assemble,
    extract_knowledge,
    occurs_in,
    route,
    search_store,
    unextracted,
)
from workers.nodes.draft import accept, check_answer, check_groundedness, draft_answer, give_up_with_tries
from workers.nodes.select import select, ungraded
from workers.nodes.self_rag import retrieve_again

A, B = document("A"), document("B")


def grade(of: Any, label: str = "relevant") -> dict[str, Any]:
    return {"document_id": of["id"], "label": label}


def test_a_document_that_has_its_grade_is_not_graded_again() -> None:
    state: Any = {"documents": [A, B], "grades": [grade(A)]}
    assert ungraded(state) == [B]


def test_select_keeps_what_is_relevant_of_the_last_search_only() -> None:
    state: Any = {"documents": [B], "grades": [grade(A), grade(B, "unparsed")], "query": "x", "question": "q"}
    update = select(state, Script().resources())
    assert update["knowledge"] == []
    assert update["tried"] == ['searched for "x": 1 document, none relevant']


@pytest.mark.parametrize(("passed", "problem"), [(True, ""), (False, "not_grounded"), (None, "not_grounded")])
def test_only_a_yes_is_grounded(passed: bool | None, problem: str) -> None:
    state: Any = {"draft": "d", "knowledge": [A], "question": "q"}
    update = check_groundedness(state, Script(grounded=[passed]).resources())
    assert update["problem"] == problem
    assert update["checks"][0]["passed"] is (passed is True)
    assert ("notes" in update) == (passed is None), "an output that cannot be read is labelled"
    assert ("feedback" in update) == (problem != "")


def test_a_draft_that_does_not_answer_is_tried_and_said() -> None:
    state: Any = {"draft": "d", "question": "q"}
    update = check_answer(state, Script(useful=[False]).resources())
    assert update["problem"] == "does_not_answer"
    assert update["tried"] == ['answer "d": does not answer the question']


def test_no_draft_counts_as_a_generation() -> None:
    script = Script(answer=GeneratedAnswer("", (), "nothing fits"))
    state: Any = {"question": "q", "knowledge": [A, B], "generations": 1}
    update = draft_answer(state, script.resources())
    assert (update["generations"], update["problem"], update["draft"]) == (2, "no_draft", "")
    assert update["tried"] == ["answer from 2 documents: nothing fits"]


def test_what_was_tried_is_the_reason() -> None:
    update = give_up_with_tries({"tried": ["a", "b"]}, Script().resources())
    assert update == {"disposition": "gave_up", "reason": "no answer was found; tried: a; b"}
    again = give_up_with_tries({"tried": ["a", "b", "a"]}, Script().resources())
    assert again["reason"] == "no answer was found; tried: a (2 times); b"


def test_what_an_apology_says_is_not_said_again() -> None:
    state: Any = {"question": "q", "tried": ["a", "b", "b"]}
    silent, telling = Script(), Script(apology="Sorry. Tried: a; b (2 times).")
    assert apologise(state, silent.resources())["reason"].endswith(
        "(no answer was found; tried: a; b (2 times))"
    )
    assert apologise(state, telling.resources())["reason"] == "Sorry. Tried: a; b (2 times)."
    assert telling.seen == [("apology", ["a", "b (2 times)"])]


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("vectorstore", 'searched for "x": no document that matches page=3'),
        ("websearch", 'searched for "x": nothing found'),  # the web knows no filter
    ],
)
def test_a_filter_that_leaves_nothing_is_named(mode: str, said: str) -> None:
    state: Any = {
        "documents": [],
        "query": "x",
        "mode": mode,
        "params": params("adaptive", filter=["page=3"]),
    }
    assert select(state, Script().resources())["tried"] == [said]


@pytest.mark.parametrize("search", [retrieve_again, search_store])
def test_a_search_that_a_filter_left_empty_is_noted_once(search: Any) -> None:
    state: Any = {"question": "q", "query": "x", "params": params("adaptive", filter=["page=3"])}
    notes = search(state, Script(documents=[]).resources())["notes"]
    assert notes == ["filter_matched_nothing: no passage matches page=3"]
    assert "notes" not in search(state | {"notes": notes}, Script(documents=[]).resources())
    assert "notes" not in search(state, Script(documents=[A]).resources())


def test_the_answer_can_end_with_its_sources() -> None:
    source = {"title": "t", "source": "/docs/handbook.pdf", "page": 13, "origin": "store", "document_id": "1"}
    state: Any = {"draft": "Yes [1].", "draft_sources": [source], "params": params(append_sources="on")}
    assert accept(state, Script().resources())["answer"] == "Yes [1].\n\n[1] handbook.pdf (page 13)"


@pytest.mark.parametrize(
    ("passage", "text", "stands"),
    [
        ("The wall is old.", "Here. The wall is old. There.", True),
        ("The wall\n is old.", "Here. The  wall is\nold. There.", True),  # white space aside
        ("The wall is new.", "Here. The wall is old. There.", False),
        ("", "anything", False),
        ("  ", "anything", False),
    ],
)
def test_what_is_extracted_must_stand_in_the_document(passage: str, text: str, stands: bool) -> None:
    assert occurs_in(passage, text) is stands


def test_an_invented_passage_is_dropped_and_said() -> None:
    task: Any = {"question": "q", "document": A, "params": params("adaptive")}
    script = Script(passages=["First of A.", "Invented."])
    update = extract_knowledge(task, script.resources())
    assert update["extracts"] == [{"document_id": A["id"], "passages": ["First of A."]}]
    assert update["notes"] == [f"extract_not_verbatim: 1 passage not in {A['source']}"]


def test_assemble_reduces_documents_to_what_was_taken() -> None:
    extracts = [
        {"document_id": A["id"], "passages": ["one", "two"]},
        {"document_id": B["id"], "passages": []},
    ]
    state: Any = {"knowledge": [A, B], "extracts": extracts, "query": "x"}
    assert assemble(state, Script().resources()) == {"knowledge": [{**A, "text": "one\ntwo"}]}
    assert unextracted(state) == []


@pytest.mark.parametrize("web", ["on", "off"])
def test_the_router_knows_whether_there_is_a_web(web: str) -> None:
    script = Script()
    state: Any = {
        "question": "q",
        "params": params("adaptive", web_search=web, description="climbing guides"),
    }
    assert route(state, script.resources()) == {"mode": "vectorstore"}
    assert script.asked("router") == [("q", "climbing guides", web == "on")]
