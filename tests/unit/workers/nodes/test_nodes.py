"""The nodes one by one, on plain dicts and scripted resources."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import PermanentError
from tests.unit.workers.nodes.fakes import Script, document, params
from workers.models.roles import GeneratedAnswer
from workers.nodes.generate import generate, generate_from_knowledge, give_up
from workers.nodes.grade_document import grade_document
from workers.nodes.refine import decompose, recompose, refine_document
from workers.nodes.retrieve import retrieve
from workers.nodes.rewrite_query import rewrite_query
from workers.nodes.state import Strip
from workers.nodes.web_search import web_search, web_search_failed

NOTHING = Script().resources()


def state(**more: Any) -> Any:
    return {"question": "How old?", "params": params(), **more}


# -- retrieve and rewrite ---------------------------------------------------------------------------------


def test_retrieve_asks_for_k_documents_with_the_question_or_the_rewritten_query() -> None:
    script = Script([document(letter) for letter in "ABCDE"])
    update = retrieve(state(params=params(k=2)), script.resources())
    assert [found["id"] for found in update["documents"]] == ["id-A", "id-B"]
    assert update["query"] == "How old?"
    retrieve(state(query="age of the crag"), script.resources())
    assert script.asked("retriever") == [("How old?", 2), ("age of the crag", 4)]


@pytest.mark.parametrize(
    ("sets", "note"),
    [
        ({}, ""),
        ({"retrieval": "dense"}, ""),
        ({"retrieval": "sparse"}, "no_word_matched: no passage has a word of the question"),
        ({"filter": ["page=3", "page=4"]}, "filter_matched_nothing: no passage matches page=3|4"),
        (
            {"retrieval": "sparse", "filter": "title=T"},
            "no_word_matched: no passage that matches title=T has a word of the question",
        ),
    ],
)
def test_a_search_that_finds_nothing_is_noted_when_there_is_a_reason(sets: dict[str, Any], note: str) -> None:
    update = retrieve(state(params=params(**sets)), Script().resources())
    assert update["documents"] == []
    assert update.get("notes", []) == ([note] if note else [])
    found = retrieve(state(params=params(**sets)), Script([document("A")]).resources())
    assert "notes" not in found


def test_plans_of_earlier_versions_have_no_choice_of_retrieval() -> None:
    old = {key: value for key, value in params().items() if key not in ("retrieval", "filter")}
    assert "notes" not in retrieve(state(params=old), Script().resources())
    assert give_up(state(documents=[], params=old), NOTHING)["reason"].startswith("no document was retrieved")


def test_rewrite_query_writes_the_query_and_leaves_the_question() -> None:
    script = Script(query="crag age")
    assert rewrite_query(state(), script.resources()) == {"query": "crag age"}
    assert script.asked("rewriter") == ["How old?"]


# -- grade ------------------------------------------------------------------------------------------------


def task(**more: Any) -> Any:
    return {"question": "How old?", "document": document("A", page=3, score=0.25), "params": params(), **more}


def test_a_grade_holds_the_verdict_and_what_the_row_needs_of_the_document() -> None:
    update = grade_document(task(), Script(verdicts={"A": ("relevant", 0.8)}).resources())
    assert update == {
        "grades": [
            {
                "document_id": "id-A",
                "label": "relevant",
                "score": 0.8,
                "model": "fake/grader",
                "prompt_version": "v1",
                "detail": "",
                "title": "Doc A",
                "source": "A.md",
                "page": 3,
                "retrieval_score": 0.25,
            }
        ]
    }


def test_a_verdict_that_is_neither_yes_nor_no_is_kept_and_noted() -> None:
    update = grade_document(task(), Script(verdicts={"A": ("unparsed", None)}).resources())
    assert update["grades"][0]["label"] == "unparsed" and update["grades"][0]["detail"] == "odd"
    assert update["notes"] == ["grade_unparsed: the verdict on A.md was neither yes nor no"]


# -- refine -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "strips"),
    [
        ("", []),
        (" \n\t ", []),
        ("One sentence", ["One sentence"]),
        ("One. Two.", ["One. Two."]),
        ("One. Two! Three? Four.", ["One. Two!", "Three? Four."]),
        ("One. Two. Three.", ["One. Two.", "Three."]),
        ("岩は古い。四億年だ！本当？海に面する。", ["岩は古い。四億年だ！", "本当？海に面する。"]),
        ("a line\nanother line\n\n\nthe third", ["a line\nanother line", "the third"]),
        ("Pi is 3.14 and no more. Then on.", ["Pi is 3.14 and no more. Then on."]),
        ("Wait... what?", ["Wait... what?"]),
    ],
)
def test_decompose(text: str, strips: list[str]) -> None:
    assert decompose(text) == strips


@given(st.text(alphabet="ab .!?\n。#-", max_size=80))
def test_strips_are_verbatim_and_lose_no_letter(text: str) -> None:
    strips = decompose(text)
    assert all(strip in text for strip in strips)
    assert "".join("".join(strips).split()) == "".join(text.split())


def test_a_heading_is_not_the_beginning_of_a_sentence() -> None:
    text = "Security policy of Example Hosting Ltd\n\nAll data at rest is encrypted. Keys are rotated weekly."
    assert decompose(text) == [
        "Security policy of Example Hosting Ltd",
        "All data at rest is encrypted. Keys are rotated weekly.",
    ]


def test_decompose_by_another_number_of_sentences() -> None:
    assert decompose("One. Two. Three.", 1) == ["One.", "Two.", "Three."]
    assert decompose("One. Two. Three.", 5) == ["One. Two. Three."]


@given(st.text(alphabet="ab .!?\n。！é", max_size=60), st.integers(1, 4))
def test_decompose_loses_nothing_but_white_space_and_gives_no_empty_strip(text: str, sentences: int) -> None:
    strips = decompose(text, sentences)
    assert all(strip.strip() for strip in strips)
    assert "".join("".join(strips).split()) == "".join(text.split())


def test_refine_scores_each_strip_and_keeps_from_the_threshold() -> None:
    script = Script(strip_score=0.5)
    three = document("A", "First one. Second one. Third one.")
    update = refine_document(task(document=three, params=params(strip_at=0.5)), script.resources())
    assert [strip["kept"] for strip in update["strips"]] == [True, True]
    assert [strip["text"] for strip in update["strips"]] == ["First one. Second one.", "Third one."]
    update = refine_document(task(document=three, params=params(strip_at=0.51)), script.resources())
    assert [(strip["kept"], strip["score"]) for strip in update["strips"]] == [(False, 0.5)] * 2


def test_refine_of_an_empty_document_has_no_strips() -> None:
    assert refine_document(task(document=document("A", " ")), NOTHING) == {"strips": []}


def strip(letter: str, text: str, kept: bool) -> Strip:
    return Strip(document_id=f"id-{letter}", text=text, score=0.5, kept=kept)


def test_recompose_keeps_the_order_and_drops_documents_without_a_strip() -> None:
    knowledge = [document("A"), document("B"), document("C")]
    strips = [strip("C", "c1", True), strip("A", "a1", False), strip("A", "a2", True), strip("A", "a3", True)]
    update = recompose(state(knowledge=knowledge, strips=[*strips, strip("B", "b1", False)]), NOTHING)
    assert [(found["id"], found["text"]) for found in update["knowledge"]] == [
        ("id-A", "a2\na3"),
        ("id-C", "c1"),
    ]
    assert knowledge[0]["text"].startswith("First of A"), "the state before is not touched"
    assert recompose(state(knowledge=knowledge), NOTHING) == {"knowledge": []}


# -- generate ---------------------------------------------------------------------------------------------


def test_sources_are_named_in_the_order_in_which_they_are_cited() -> None:
    documents = [document("A"), document("B", page=7), document("C")]
    script = Script(answer=GeneratedAnswer("So [3], so [1].", (2, 0)))
    update = generate(state(documents=documents), script.resources())
    assert update["answer"] == "So [3], so [1]." and update["disposition"] == "answered"
    assert [source["document_id"] for source in update["sources"]] == ["id-C", "id-A"]
    script = Script(answer=GeneratedAnswer("So.", (1,)))
    assert generate(state(documents=documents), script.resources())["sources"] == [
        {"title": "Doc B", "source": "B.md", "page": 7, "origin": "store", "document_id": "id-B"}
    ]


def test_crag_generates_from_the_kept_documents_then_the_webs() -> None:
    script = Script()
    web = document("W", "web text", origin="web")
    given = state(
        documents=[document("X")], knowledge=[document("A", "a"), document("B", "b")], web_documents=[web]
    )
    update = generate_from_knowledge(given, script.resources())
    assert script.asked("generator") == [("How old?", ["a", "b", "web text"])]
    assert [source["origin"] for source in update["sources"]] == ["store", "store", "web"]
    generate_from_knowledge(state(web_documents=[web]), script.resources())
    assert script.asked("generator")[1] == ("How old?", ["web text"])


@pytest.mark.parametrize(
    ("why_not", "reason"), [("not in there", "not in there"), ("", "the documents do not answer")]
)
def test_no_answer_is_giving_up_with_a_reason(why_not: str, reason: str) -> None:
    script = Script(answer=GeneratedAnswer("", (), why_not))
    update = generate(state(documents=[document("A")]), script.resources())
    assert update["disposition"] == "gave_up" and update["reason"].startswith(reason)
    assert "answer" not in update and "sources" not in update


# -- give_up ----------------------------------------------------------------------------------------------

THREE = [document(letter) for letter in "ABC"]
OFF = params(web_search="off")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"documents": [], "params": OFF}, "no document was retrieved and web search is off"),
        ({"documents": [], "params": params("rag")}, "no document was retrieved"),
        (
            {"documents": [], "params": params("rag", filter="page=3")},
            "no document that matches page=3 was retrieved",
        ),
        (
            {"documents": [], "web_status": "empty"},
            "no document was retrieved and the web search found nothing",
        ),
        (
            {"documents": THREE, "knowledge": [], "params": OFF},
            "none of the 3 retrieved documents was relevant and web search is off",
        ),
        (
            {"documents": THREE, "knowledge": [], "web_status": "failed", "web_error": "quota"},
            "none of the 3 retrieved documents was relevant and the web search failed (quota)",
        ),
        (
            {"documents": THREE, "knowledge": [], "strips": [strip("A", "a", False)], "web_status": "empty"},
            "no part of the 3 retrieved documents was relevant and the web search found nothing",
        ),
    ],
)
def test_the_reason_says_what_was_looked_at(given: dict[str, Any], reason: str) -> None:
    assert give_up(state(**given), NOTHING) == {"disposition": "gave_up", "reason": reason}


# -- web search -------------------------------------------------------------------------------------------


def test_web_search_uses_the_rewritten_query_only_when_rewriting_is_on() -> None:
    script = Script(web=[document("W", origin="web")] * 5)
    update = web_search(state(query="rewritten", params=params(web_k=2)), script.resources())
    assert len(update["web_documents"]) == 2 and update["web_status"] == "ok" and "notes" not in update
    # `retrieve` has written the query too, so its presence alone says nothing about rewriting
    web_search(state(query="what was retrieved", params=params(rewrite="off")), script.resources())
    assert script.asked("web") == [("rewritten", 2), ("How old?", 3)]


def test_an_empty_web_search_is_a_labelled_result() -> None:
    update = web_search(state(query="q"), Script(web=[]).resources())
    assert update["web_status"] == "empty" and update["web_documents"] == []
    assert update["notes"] == ["web_search_empty: the web search found nothing"]


def test_a_process_without_a_key_cannot_search() -> None:
    with pytest.raises(PermanentError) as error:
        web_search(state(query="q"), Script(web=None).resources())
    assert error.value.code == "no_key"


def test_what_stands_in_for_a_failed_search_names_the_code() -> None:
    update = web_search_failed(state(), PermanentError("plan limit", code="quota", where="tavily"))
    assert update == {
        "web_documents": [],
        "web_status": "failed",
        "web_error": "quota",
        "notes": ["web_search_failed: quota: plan limit"],
    }
