"""The three decision rules, each at its borders."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.workers.nodes.fakes import Script, document, params
from workers.nodes.decide import SEARCHING, choose, decide, keeps
from workers.nodes.state import GradeRecord

R, N, U = "relevant", "not_relevant", "unparsed"
NO_RESOURCES = Script().resources()


def grade(label: str, score: float | None, letter: str = "A") -> GradeRecord:
    return GradeRecord(
        document_id=f"id-{letter}",
        label=label,
        score=score,
        model="m",
        prompt_version="v",
        detail="",
        title=letter,
        source=letter,
        page=None,
        retrieval_score=None,
    )


def grades(relevant: int, others: int) -> list[GradeRecord]:
    return [grade(R, 0.9)] * relevant + [grade(N, 0.1)] * others


def confidence(*scores: float | None) -> list[GradeRecord]:
    return [grade(N, score) for score in scores]


# -- ratio ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("relevant", "others", "ratio", "action"),
    [
        (7, 3, 0.7, "search"),  # exactly at the ratio: still a search
        (8, 3, 0.7, "generate"),
        (3, 1, 0.7, "generate"),
        (2, 1, 0.7, "search"),
        (1, 2, 1 / 3, "search"),
        (0, 4, 0.0, "search"),
        (1, 3, 0.0, "generate"),
        (4, 0, 1.0, "search"),  # "not above it": a ratio of one always searches
        (4, 0, 0.99, "generate"),
        (3, 7, 0.3, "search"),
        (6, 4, 0.6, "search"),
        (1, 0, 0.7, "generate"),
        (0, 1, 0.7, "search"),
    ],
)
def test_ratio_searches_at_the_ratio_and_below(relevant: int, others: int, ratio: float, action: str) -> None:
    decision = choose(grades(relevant, others), params(rule="ratio", ratio=ratio))
    assert decision["action"] == action
    assert (decision["relevant"], decision["retrieved"]) == (relevant, relevant + others)
    assert f"{relevant} of {relevant + others} relevant" in decision["why"]


@given(of=st.integers(1, 50), share=st.data())
def test_ratio_given_as_the_very_fraction_searches(of: int, share: st.DataObject) -> None:
    relevant = share.draw(st.integers(0, of))
    assert choose(grades(relevant, of - relevant), params(ratio=relevant / of))["action"] == "search"


def test_the_default_rule_is_ratio_at_seven_tenths() -> None:
    assert (params()["rule"], params()["ratio"]) == ("ratio", 0.7)


def test_an_unparsed_grade_counts_as_not_relevant_and_is_counted() -> None:
    decision = choose([grade(U, None), grade(R, None), grade(R, 0.8)], params())
    assert decision["action"] == "search"  # 2 of 3
    assert (decision["unparsed"], decision["relevant"], decision["best_score"]) == (1, 2, 0.8)


# -- none_relevant ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("relevant", "action"), [(0, "search"), (1, "generate"), (4, "generate")])
def test_none_relevant_searches_only_at_none(relevant: int, action: str) -> None:
    assert choose(grades(relevant, 4 - relevant), params(rule="none_relevant"))["action"] == action


# -- confidence -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scores", "action"),
    [
        ((0.71, 0.0, 0.0), "correct"),
        ((0.7, 0.0, 0.0), "ambiguous"),  # exactly upper is not above it
        ((0.29, 0.1, 0.0), "incorrect"),
        ((0.3, 0.1, 0.0), "ambiguous"),  # exactly lower is not below it
        ((0.5,), "ambiguous"),
        ((None, 0.1), "ambiguous"),  # no score is no evidence against a document
        ((None, None), "ambiguous"),
        ((None, 0.9), "correct"),
        ((1.0,), "correct"),
        ((0.0,), "incorrect"),
    ],
)
def test_confidence_at_its_borders(scores: tuple[float | None, ...], action: str) -> None:
    numbers = params(rule="confidence", upper=0.7, lower=0.3)
    decision = choose(confidence(*scores), numbers)
    assert decision["action"] == action
    known = [score for score in scores if score is not None]
    assert decision["best_score"] == max(known, default=None)
    assert decision["why"]


def test_confidence_with_upper_equal_to_lower_has_a_single_ambiguous_point() -> None:
    numbers = params(rule="confidence", upper=0.5, lower=0.5)
    found = [choose(confidence(score), numbers)["action"] for score in (0.49, 0.5, 0.51)]
    assert found == ["incorrect", "ambiguous", "correct"]


@given(
    st.lists(st.one_of(st.none(), st.floats(0, 1)), min_size=1, max_size=6), st.floats(0, 1), st.floats(0, 1)
)
def test_confidence_keeps_something_exactly_when_it_is_not_incorrect(
    scores: list[float | None], one: float, other: float
) -> None:
    numbers = params(rule="confidence", upper=max(one, other), lower=min(one, other))
    graded = confidence(*scores)
    decision = choose(graded, numbers)
    kept = [item for item in graded if keeps(item, decision, numbers)]
    if decision["action"] == "correct":
        assert kept
    if decision["action"] == "incorrect":
        assert not kept
    assert all(item["score"] is not None and item["score"] >= numbers["lower"] for item in kept)


# -- nothing at all ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "action"), [("ratio", "search"), ("none_relevant", "search"), ("confidence", "incorrect")]
)
def test_zero_documents_want_the_web_under_every_rule(rule: str, action: str) -> None:
    decision = choose([], params(rule=rule))
    assert decision["action"] == action and action in SEARCHING
    assert decision["why"] == "nothing was retrieved"
    assert (decision["retrieved"], decision["relevant"], decision["best_score"]) == (0, 0, None)


# -- what is kept, and the node ---------------------------------------------------------------------------


def test_the_binary_rules_keep_by_label_whatever_the_score() -> None:
    numbers = params()
    decision = choose(grades(1, 1), numbers)
    assert keeps(grade(R, 0.0), decision, numbers) and keeps(grade(R, None), decision, numbers)
    assert not keeps(grade(N, 1.0), decision, numbers) and not keeps(grade(U, 1.0), decision, numbers)


def test_confidence_keeps_by_score_whatever_the_label() -> None:
    numbers = params(rule="confidence", upper=0.7, lower=0.3)
    decision = choose(confidence(0.9), numbers)
    assert keeps(grade(N, 0.3), decision, numbers)
    assert not keeps(grade(R, 0.29), decision, numbers)
    assert not keeps(grade(R, None), decision, numbers)


def node(**state: Any) -> dict[str, Any]:
    return decide({"question": "q", "documents": [], "params": params(), **state}, NO_RESOURCES)  # type: ignore[typeddict-item]


def test_the_knowledge_is_the_kept_documents_in_retrieval_order() -> None:
    documents = [document(letter) for letter in "ABC"]
    graded = [grade(R, 0.9, "C"), grade(N, 0.1, "B"), grade(R, 0.9, "A")]
    update = node(documents=documents, grades=graded)
    assert [found["id"] for found in update["knowledge"]] == ["id-A", "id-C"]
    assert "notes" not in update


def test_the_note_says_that_the_web_is_off_only_when_it_is_wanted() -> None:
    off = params(web_search="off")
    wanted = node(params=off, documents=[document("A")], grades=[grade(N, 0.1)])
    assert wanted["notes"][0].startswith("web_search_off: ")
    assert "notes" not in node(params=off, documents=[document("A")], grades=[grade(R, 0.9)])
    assert "notes" not in node(documents=[document("A")], grades=[grade(N, 0.1)])


def test_without_any_grade_in_the_state_it_decides_for_nothing_retrieved() -> None:
    update = node()
    assert update["decision"]["why"] == "nothing was retrieved" and update["knowledge"] == []


def test_documents_left_ungraded_are_said_and_count_neither_way() -> None:
    state: Any = {
        "documents": [document(letter) for letter in "ABCD"],
        "grades": [grade(R, 0.9), grade(R, 0.8)],
        "params": params(),
    }
    decision = decide(state, Script().resources())["decision"]
    assert (decision["retrieved"], decision["relevant"], decision["action"]) == (4, 2, "generate")
    assert decision["why"] == "2 of 2 relevant = 1.00, search at or below 0.7 (2 not graded)"
