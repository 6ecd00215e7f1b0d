"""Router, extractor, feedback and apology without a key, and what feedback does to the next try."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.workers.models.conftest import document
from workers.models.calls import MemoryRecorder
from workers.models.languages import language_of
from workers.models.local import FROM_DOCUMENTS_ONLY, LocalAnswerGenerator, LocalQueryRewriter, keyword_query
from workers.models.local_reflection import (
    LocalApologyWriter,
    LocalFeedbackWriter,
    LocalKnowledgeExtractor,
    LocalRouter,
)
from workers.models.minilm import MiniLM

RHINE = "Leiden is a Dutch city. The Oude Rijn is the river that flows through Leiden. It has a university."
QUESTION = "Which river flows through Leiden?"


# -- routing -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "question",
    [
        "What is the weather in Leiden today?",
        "What’s Taylor Swift's most recent album?",
        "WHO IS CURRENTLY THE MAYOR?",
        "Wer ist derzeit Bundeskanzler?",
        "Quel temps fait-il aujourd’hui ?",
        "¿Quién ganó ayer?",
        "Wat is de nieuwste versie van Python?",
        "오늘 날씨는 어때요?",
        "今天的天气怎么样？",
    ],
)
def test_what_is_plainly_new_goes_to_the_web_where_there_is_one(question: str) -> None:
    router = LocalRouter(MemoryRecorder())
    assert router.route(question, "rivers", True) == "websearch"
    assert router.route(question, "rivers", False) == "vectorstore"


@pytest.mark.parametrize(
    "question",
    [
        QUESTION,
        "Hello, how are you?",
        "How does an electric current flow?",
        "Who wrote Todayland?",
        "",
        "Which newspaper was the first?",
        "Im Morgengrauen, was geschah?",
    ],
)
def test_all_else_goes_to_the_store(question: str) -> None:
    assert LocalRouter(MemoryRecorder()).route(question, "", True) == "vectorstore"


# -- extracting ----------------------------------------------------------------------------------------


def extractor(strip_at: float) -> LocalKnowledgeExtractor:
    return LocalKnowledgeExtractor(MiniLM(), strip_at, MemoryRecorder())


def test_near_sentences_are_extracted_in_order() -> None:
    text = f"The market opens at nine on Mondays. {RHINE} Bread is baked from flour."
    found = extractor(0.7).extract(QUESTION, document(text))
    assert found == ["The Oude Rijn is the river that flows through Leiden."]
    assert extractor(1.0).extract(QUESTION, document(text)) == []
    assert extractor(0.25).extract(QUESTION, document("")) == []


def test_what_a_document_is_asked_counts_for_its_sentences() -> None:
    text = "Hang a certified weight on the hook and hold TARE for five seconds."
    asked = document(text, "Scales > Can I calibrate the scale myself?")
    assert extractor(0.5).extract("How do I calibrate the scale?", asked) == [text]
    assert extractor(0.5).extract("How do I calibrate the scale?", document(text, "Scales")) == []


@settings(deadline=None, max_examples=40)
@given(st.text(alphabet=st.sampled_from("aB1 .!?。\n-\"',;)あ"), max_size=300))
def test_what_is_extracted_occurs_verbatim(text: str) -> None:
    found = extractor(0.0).extract(QUESTION, document(text))
    assert all(passage in text for passage in found)
    assert len(set(found)) == len(found)


# -- feedback and the next query -----------------------------------------------------------------------


def tries(question: str, target: str, count: int) -> list[str]:
    """What rewriter and feedback writer do together when nothing is ever found."""
    rewriter, writer = LocalQueryRewriter(MemoryRecorder()), LocalFeedbackWriter(MemoryRecorder())
    queries: list[str] = []
    feedback: list[str] = []
    for _ in range(count):
        queries.append(rewriter.rewrite(question, target, "a store", feedback))
        feedback.append(writer.on_query(question, queries[-1], target))
    return queries


LONG = "When was the University of Leiden founded by William of Orange, and why was it founded in Leiden?"


@pytest.mark.parametrize("target", ["vectorstore", "websearch"])
def test_no_try_repeats_an_earlier_one(target: str) -> None:
    queries = tries(LONG, target, 5)
    assert len(set(queries)) == 5
    assert queries == tries(LONG, target, 5)
    assert queries[0] == (LONG if target == "vectorstore" else keyword_query(LONG))


def test_remarks_of_another_writer_count_as_tries() -> None:
    rewriter = LocalQueryRewriter(MemoryRecorder())
    queries = {rewriter.rewrite(LONG, "vectorstore", "", ["try other words"] * count) for count in range(4)}
    assert len(queries) == 4


@settings(deadline=None)
@given(st.text(max_size=200), st.sampled_from(["vectorstore", "websearch"]), st.integers(2, 9))
def test_every_try_is_a_query(question: str, target: str, count: int) -> None:
    queries = tries(question, target, count)
    assert all(query.strip() and "\n" not in query for query in queries)
    if len(keyword_query(question).split()) > 1:
        assert queries[0] != queries[1]


def test_feedback_on_a_query_names_it_and_what_was_left_out() -> None:
    remark = LocalFeedbackWriter(MemoryRecorder()).on_query(QUESTION, "Leiden", "websearch")
    assert '"Leiden"' in remark and "on the web" in remark and "river flows through" not in remark
    assert remark.endswith("try the words river flows")


def generator() -> LocalAnswerGenerator:
    return LocalAnswerGenerator(MiniLM(), 0.3, 1, MemoryRecorder())


def test_a_rejected_answer_is_not_given_again() -> None:
    documents = [document(RHINE), document("Through Leiden flows a river\n with a long history.")]
    writer = LocalFeedbackWriter(MemoryRecorder())
    feedback: list[str] = []
    answers = []
    for _ in range(2):
        answers.append(generator().answer(QUESTION, documents, feedback).text)
        feedback.append(writer.on_answer(QUESTION, answers[-1], "does_not_answer"))
    assert all(answers) and answers[0] != answers[1]
    given_up = generator().answer(
        "flour?", [document("Bread is baked from flour.")], ['"Bread is baked from flour." [1]']
    )
    assert given_up.text == "" and given_up.why_not


@pytest.mark.parametrize("problem", ["not_grounded", "does_not_answer", "something else"])
def test_feedback_on_an_answer_is_one_line(problem: str) -> None:
    remark = LocalFeedbackWriter(MemoryRecorder()).on_answer(QUESTION, "a\nb " * 2_000, problem)
    assert "\n" not in remark and "a b" in remark and len(remark) < 1_700


def test_local_models_do_not_answer_directly() -> None:
    answer = generator().answer_directly("2 + 2?")
    assert (answer.text, answer.cited, answer.why_not) == ("", (), FROM_DOCUMENTS_ONLY)


# -- apologies and languages ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("question", "language", "begins"),
    [
        ("Which river flows through Leiden?", "en", "Sorry"),
        ("Welcher Fluss fließt durch die Stadt und wie lang ist er?", "de", "Auf diese Frage"),
        ("Quelle est la capitale de la Belgique ?", "fr", "Désolé"),
        ("¿Cuál es la capital de España?", "es", "Lo sentimos"),
        ("Hoe hoog is de Domtoren in Utrecht?", "nl", "Op deze vraag"),
        ("Qual è la capitale della Francia e quanto è grande?", "it", "Purtroppo"),
        ("라인강은 어디에 있습니까?", "ko", "죄송합니다"),
        ("日本の首都はどこですか", "ja", "申し訳"),
        ("莱顿有什么河？", "zh", "抱歉"),
        ("Care este capitala României și câți locuitori are?", "en", "Sorry"),
        ("Где находится Рейн?", "en", "Sorry"),
        ("???", "en", "Sorry"),
    ],
)
def test_an_apology_is_in_the_language_of_the_question(question: str, language: str, begins: str) -> None:
    assert language_of(question) == language
    writer = LocalApologyWriter(MemoryRecorder())
    assert writer.apologise(question, []).startswith(begins)
    tried = writer.apologise(question, ["the store, 3 times.", " ", "the web {tried}"])
    assert "the store, 3 times; the web {tried}" in tried


def test_an_apology_is_short_whatever_was_tried() -> None:
    text = LocalApologyWriter(MemoryRecorder()).apologise(QUESTION, ["x\ny" * 500] * 50)
    assert len(text) < 700 and "\n" not in text


def test_each_part_is_a_recorded_local_call() -> None:
    recorder = MemoryRecorder()
    LocalRouter(recorder).route(QUESTION, "", False)
    LocalKnowledgeExtractor(MiniLM(), 0.3, recorder).extract(QUESTION, document(RHINE))
    LocalFeedbackWriter(recorder).on_query(QUESTION, "q", "websearch")
    LocalApologyWriter(recorder).apologise(QUESTION, [])
    roles = ["router", "knowledge_extractor", "feedback_writer", "apology_writer"]
    assert [record.spec.role for record in recorder.records] == roles
    assert {(record.spec.provider, record.spec.prompt_version) for record in recorder.records} == {
        ("local", "none")
    }
