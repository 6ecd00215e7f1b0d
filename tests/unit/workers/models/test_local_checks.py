"""The local verdicts on an answer, on the real embedded model."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.workers.models.conftest import document
from workers.models.calls import MemoryRecorder
from workers.models.groundedness import features, statements, support
from workers.models.local import LocalAnswerGenerator
from workers.models.local_checks import LocalAnswerGrader, LocalGroundednessGrader
from workers.models.minilm import MiniLM, Vectors

RHINE = "Leiden is a Dutch city. The Oude Rijn is the river that flows through Leiden. It has a university."
TOWER = "The Dom Tower of Utrecht is 112 metres high.\nIt was built between 1321 and 1382."
QUESTION = "Which river flows through Leiden?"
GROUNDED_AT, USEFUL_AT = 0.45, 0.25


class NoModel:
    """Whoever asks this for a vector has asked too much."""

    def vectors(self, texts: object) -> Vectors:
        raise AssertionError("no vector is needed")


def grounded(answer: str, *texts: str, at: float = GROUNDED_AT):
    grader = LocalGroundednessGrader(MiniLM(), at, MemoryRecorder())
    return grader.check(answer, [document(text) for text in texts])


def useful(question: str, answer: str, at: float = USEFUL_AT):
    return LocalAnswerGrader(MiniLM(), at, MemoryRecorder()).check(question, answer)


# -- statements ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ('"It is a river." [1] "It is long." [2]', ["It is a river.", "It is long."]),
        ('"River: Oude Rijn" [1] "Length: 12 km" [1]', ["River: Oude Rijn", "Length: 12 km"]),
        ("It is a river [1]. It is long [2][3].", ["It is a river", "It is long"]),
        ("Delhi", ["Delhi"]),
        ("42", ["42"]),
        ("莱顿的河流是老莱茵河。", ["莱顿的河流是老莱茵河。"]),
        ("", []),
        (' [1] "." ', []),
    ],
)
def test_statements(answer: str, expected: list[str]) -> None:
    assert [piece.strip(" .") for piece in statements(answer)] == [piece.strip(" .") for piece in expected]


# -- groundedness --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "texts", "passed"),
    [
        ("The river that flows through Leiden is the Oude Rijn [1].", [RHINE], True),
        ("The Dom Tower is 112 metres high and was built between 1321 and 1382.", [RHINE, TOWER], True),
        ("The Amazon flows through the rain forest of Brazil and Peru.", [RHINE], False),
        ("Bananas are rich in potassium.", [RHINE, TOWER], False),
        ("The river that flows through Leiden is the Oude Rijn.", [TOWER], False),
        ("Der Turm wurde 1955 von Napoleon gesprengt.", [RHINE], False),
    ],
)
def test_groundedness(answer: str, texts: list[str], passed: bool) -> None:
    check = grounded(answer, *texts)
    assert check.passed is passed and check.score is not None and 0 <= check.score <= 1
    assert bool(check.detail) != passed
    assert (check.model, check.prompt_version) == ("local/groundedness-v1", "none")


def test_a_wrong_number_and_a_wrong_name_cost_support() -> None:
    right = grounded("The tower of Utrecht is 112 metres high.", TOWER).score
    number = grounded("The tower of Utrecht is 345 metres high.", TOWER).score
    name = grounded("The tower of Groningen is 112 metres high.", TOWER).score
    assert right is not None and number is not None and name is not None
    assert right - number > 0.1 and right - name > 0.1


def test_the_detail_is_the_statement_with_the_least_support() -> None:
    answer = "The Oude Rijn flows through Leiden. Elephants sleep standing in Kenya. Leiden has a university."
    assert grounded(answer, RHINE, at=0.99).detail == "Elephants sleep standing in Kenya."


@pytest.mark.parametrize("answer", ["", " \n", '"…" [1]', "[1]"])
def test_no_answer_and_no_document_are_not_grounded(answer: str) -> None:
    assert (grounded(answer, RHINE).passed, grounded(answer, RHINE).score) == (False, 0.0)
    assert (grounded(QUESTION).passed, grounded(QUESTION, " ").passed) == (False, False)
    assert grounded(answer, RHINE, at=0.0).passed is False


def test_the_threshold_itself_passes() -> None:
    score = grounded("The river of Leiden is called Oude Rijn.", RHINE).score
    assert score is not None
    assert grounded("The river of Leiden is called Oude Rijn.", RHINE, at=score - 1e-6).passed is True
    assert grounded("The river of Leiden is called Oude Rijn.", RHINE, at=score + 1e-6).passed is False


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.text(alphabet=st.sampled_from("aBc 12.!?。\n-\"'“”,:;|[]()あ国"), max_size=300),
        min_size=1,
        max_size=3,
    )
)
def test_what_the_local_generator_quotes_is_grounded_without_a_model(texts: list[str]) -> None:
    documents = [document(text) for text in texts]
    generator = LocalAnswerGenerator(MiniLM(), 0.0, 3, MemoryRecorder())
    answer = generator.answer(QUESTION, documents).text
    if statements(answer):
        check = LocalGroundednessGrader(NoModel(), 1.0, MemoryRecorder()).check(answer, documents)
        assert (check.passed, check.score) == (True, 1.0)


@settings(deadline=None, max_examples=40)
@given(st.text(max_size=200), st.text(max_size=200))
def test_any_text_gets_a_score(answer: str, text: str) -> None:
    found = support(MiniLM(), answer, [text])
    assert 0 <= found.score <= 1
    if statements(answer):
        values, _ = features(MiniLM(), answer, [text])
        assert all(0 <= value <= 1 for value in values.values())


def test_calls_are_recorded_as_local_ones() -> None:
    recorder = MemoryRecorder()
    LocalGroundednessGrader(MiniLM(), GROUNDED_AT, recorder).check("A river.", [document(RHINE)])
    LocalAnswerGrader(MiniLM(), USEFUL_AT, recorder).check(QUESTION, "A river.")
    assert [record.spec.role for record in recorder.records] == ["groundedness_grader", "answer_grader"]
    assert {(record.spec.provider, record.cost_usd) for record in recorder.records} == {("local", 0.0)}


# -- does it answer? -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "passed"),
    [
        ('"The Oude Rijn is the river that flows through Leiden." [1]', True),
        ("Bread is baked from flour, water and yeast, and then it rests for an hour.", False),
        (f"Bread is baked from flour and yeast. {RHINE}", True),  # one sentence that answers is enough
    ],
)
def test_an_answer_about_something_else_is_told(answer: str, passed: bool) -> None:
    check = useful(QUESTION, answer)
    assert check.passed is passed and check.score is not None
    assert bool(check.detail) != passed


def test_a_name_alone_is_not_judged() -> None:
    check = useful("In which city has the hotel company of the family its head office?", "Delhi")
    assert (check.passed, check.score) == (True, None) and check.detail
    assert useful(QUESTION, " [1] ").passed is False


# -- measured ------------------------------------------------------------------------------------------


def _auc(labels: list[bool], scores: list[float]) -> float:
    good = np.array([score for label, score in zip(labels, scores, strict=True) if label])
    bad = np.array([score for label, score in zip(labels, scores, strict=True) if not label])
    wins = (good[:, None] > bad).sum() + 0.5 * (good[:, None] == bad).sum()
    return float(wins / (len(good) * len(bad)))


def _labelled(name: str) -> Iterator[tuple[str, list[str], bool]]:
    folder = os.environ.get("CRAGLINE_TEST_DATA")
    if not folder:
        pytest.skip("CRAGLINE_TEST_DATA does not name the folder of the evaluation data")
    for line in (Path(folder) / name / "open" / "answers.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["grounded"] is not None and row["passages"] and row.get("length_matched", True):
            yield row["answer"], [passage["text"] for passage in row["passages"]], row["grounded"]


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "share_of_words"), [("begin_wow", 0.951), ("halueval_qa", 0.899), ("mtrag_answers", 0.969)]
)
def test_it_tells_more_than_the_share_of_words_found(name: str, share_of_words: float) -> None:
    rows = list(_labelled(name))
    scores = [support(MiniLM(), answer, texts).score for answer, texts, _ in rows]
    assert _auc([label for *_, label in rows], scores) >= share_of_words
