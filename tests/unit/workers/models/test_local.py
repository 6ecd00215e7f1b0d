"""The local roles on the real embedded model, and the cutting of texts into sentences and words."""

import re
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.clean import one_line
from tests.unit.workers.models.conftest import document
from workers.models import minilm
from workers.models.calls import MemoryRecorder
from workers.models.local import LocalAnswerGenerator, LocalQueryRewriter, LocalRelevanceGrader, keyword_query
from workers.models.minilm import MiniLM, best_cosines, cosines, windows
from workers.models.sentences import MAX_CHARS, sentences
from workers.models.words import content_set

RHINE = "Leiden is a Dutch city. The Oude Rijn is the river that flows through Leiden. It has a university."
BREAD = "Bread is baked from flour, water and yeast. Let the dough rest for an hour."
QUESTION = "Which river flows through Leiden?"

# -- the embedder --------------------------------------------------------------------------------------


def test_embedder_shape_and_meaning() -> None:
    embedder = MiniLM()
    assert (embedder.name, embedder.dimension) == ("local/all-MiniLM-L6-v2-int8", 384)
    assert embedder.embed_documents([]) == []
    vector = embedder.embed_query(QUESTION)
    assert len(vector) == 384 and sum(value * value for value in vector) == pytest.approx(1.0, abs=1e-4)
    near, far = cosines(embedder, QUESTION, [RHINE, BREAD])
    assert near > 0.6 > 0.3 > far


def test_a_vector_does_not_depend_on_its_company(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [RHINE, "short", BREAD * 5, "short", "another text", "語", "x" * 30_000, "a\ud800b"]
    together = MiniLM().vectors(texts)
    monkeypatch.setattr(minilm, "_cache", minilm._Cache(10))
    alone = np.array([MiniLM().embed_query(text) for text in texts])
    assert np.abs(together - alone).max() < 1e-5
    assert (together[1] == together[3]).all()


def test_many_threads_get_the_vectors_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"text number {number} about rivers" for number in range(12)]
    expected = MiniLM().vectors(texts)
    monkeypatch.setattr(minilm, "_cache", minilm._Cache(3))
    got: list[np.ndarray] = []
    threads = [threading.Thread(target=lambda: got.append(MiniLM().vectors(texts))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 8
    assert all(np.abs(vectors - expected).max() < 1e-5 for vectors in got)


def test_the_cache_is_bounded() -> None:
    cache = minilm._Cache(2)
    row = np.zeros(384, np.float32)
    for key in (b"a", b"b", b"c"):
        cache.put(key, row)
    assert cache.get(b"a") is None and cache.get(b"c") is row


def test_what_is_past_the_models_end_still_counts_when_grading() -> None:
    embedder = MiniLM()
    long = "The weather was mild that day and nothing happened. " * 60 + RHINE
    assert cosines(embedder, QUESTION, [long])[0] < 0.4 < best_cosines(embedder, QUESTION, [long])[0]


def test_blank_texts_score_nothing() -> None:
    assert best_cosines(MiniLM(), "cat", ["", "  \n"]) == [0.0, 0.0]
    assert best_cosines(MiniLM(), "cat", []) == []


@settings(deadline=None)
@given(st.text(max_size=50), st.integers(0, 200))
def test_windows_are_few_and_short_enough_to_read(piece: str, times: int) -> None:
    found = windows(piece * times)
    assert 1 <= len(found) <= 8
    assert all(len(window) <= 2400 for window in found)


# -- grading -------------------------------------------------------------------------------------------


def test_grader_labels_by_threshold_and_records() -> None:
    recorder = MemoryRecorder()
    grader = LocalRelevanceGrader(MiniLM(), 0.45, recorder)
    yes, no = grader.grade(QUESTION, document(RHINE)), grader.grade(QUESTION, document(BREAD))
    assert (yes.label, no.label) == ("relevant", "not_relevant")
    assert yes.score is not None and no.score is not None and 0 <= no.score < 0.45 <= yes.score <= 1
    assert (yes.model, yes.prompt_version) == ("local/all-MiniLM-L6-v2-int8", "none")
    assert [record.spec.role for record in recorder.records] == ["relevance_grader"] * 2
    assert [record.cost_usd for record in recorder.records] == [0.0, 0.0]
    assert recorder.records[0].response == [yes.score]


def test_the_threshold_itself_is_relevant() -> None:
    recorder = MemoryRecorder()
    score = LocalRelevanceGrader(MiniLM(), 0.45, recorder).score(QUESTION, [RHINE])[0]
    assert (
        LocalRelevanceGrader(MiniLM(), score, recorder).grade(QUESTION, document(RHINE)).label == "relevant"
    )
    above = LocalRelevanceGrader(MiniLM(), score + 1e-6, recorder)
    assert above.grade(QUESTION, document(RHINE)).label == "not_relevant"


def test_strips_in_order_and_none_at_all() -> None:
    grader = LocalRelevanceGrader(MiniLM(), 0.45, MemoryRecorder())
    low, high = grader.score(QUESTION, [BREAD, RHINE])
    assert low < high
    assert grader.score(QUESTION, []) == []


# -- rewriting -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("question", "query"),
    [
        ("What is the capital of the United States?", "capital United States"),
        ("When did World War II end?", "World War II end"),
        ("Who is the head of the WHO in 2024-05-01?", "head WHO 2024-05-01"),
        ("Was kostet eine Bahncard 50 in Deutschland?", "kostet Bahncard 50 Deutschland"),
        ("Quelle est la capitale de la Belgique ?", "est capitale Belgique"),
        ("¿Cuál es la capital de España?", "capital España"),
        ("Hoe hoog is de Domtoren in Utrecht?", "hoog Domtoren Utrecht"),
        ("What is it?", "What is it?"),
        ("???", "???"),
        ("日本の首都はどこですか", "日本の首都はどこですか"),
        ("Is C++ faster than C#?", "C++ faster C#"),
    ],
)
def test_keyword_query(question: str, query: str) -> None:
    assert keyword_query(question) == query


@settings(deadline=None)
@given(st.text())
def test_a_query_is_never_empty(question: str) -> None:
    recorder = MemoryRecorder()
    query = LocalQueryRewriter(recorder).rewrite(question)
    assert query.strip() and "\n" not in query
    assert query == LocalQueryRewriter(recorder).rewrite(question)


# -- sentences -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Dr. Smith met J. S. Bach. They talked at length!",
            ["Dr. Smith met J. S. Bach.", "They talked at length!"],
        ),
        ("It costs $3.50 today. Is that much?", ["It costs $3.50 today.", "Is that much?"]),
        (
            "He lives in the U.S. and works, e.g. at night.",
            ["He lives in the U.S. and works, e.g. at night."],
        ),
        (
            "Das gilt z. B. am 3. Oktober. Danach nicht mehr.",
            ["Das gilt z. B. am 3. Oktober.", "Danach nicht mehr."],
        ),
        ("今天天气很好。我们去公园吧！你来吗？", ["今天天气很好。", "我们去公园吧！", "你来吗？"]),
        (
            "A wrapped line goes\non down here. Then more.",
            ["A wrapped line goes\non down here.", "Then more."],
        ),
        (
            "Steps to take:\n- open the door\n- close the door",
            ["Steps to take:", "- open the door", "- close the door"],
        ),
        (
            "answer: It weighs 12 kg.\nmodel: K200\nopening hours: all day",
            ["answer: It weighs 12 kg.", "model: K200", "opening hours: all day"],
        ),
        ("He always said\nthis: nothing else.", ["He always said", "this: nothing else."]),  # the price
        ("1. Press the button. 2. Wait a while.", ["1. Press the button.", "2. Wait a while."]),
        ('She said "go away." Then she left.', ['She said "go away."', "Then she left."]),
        ("Wait for it... Then it came.", ["Wait for it...", "Then it came."]),
        ("Page 3\n\nHeading here\n\nThe text begins.", ["Heading here", "The text begins."]),
        ("", []),
        (" \n . \n", []),
    ],
)
def test_sentences(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


@settings(deadline=None)
@given(st.text(alphabet=st.sampled_from("aB1 .!?。\n-\"',;)\u3042"), max_size=600))
def test_sentences_are_verbatim_parts_in_order(text: str) -> None:
    at = 0
    for sentence in sentences(text):
        at = text.index(sentence, at) + len(sentence)
        assert sentence == sentence.strip() and 0 < len(sentence) <= MAX_CHARS


def test_a_wall_of_text_is_cut_at_blanks() -> None:
    wall = "word " * 500
    pieces = sentences(wall)
    assert len(pieces) > 5
    assert all(re.fullmatch(r"word( word)*", piece) for piece in pieces)


def test_content_words_of_scripts_without_blanks_are_pairs() -> None:
    assert content_set("日本語") == {"日本", "本語"}
    assert content_set("the Dutch city of Leiden") == {"dutch", "city", "leiden"}


# -- answering -----------------------------------------------------------------------------------------


def generator(answer_at: float = 0.4, count: int = 3) -> tuple[LocalAnswerGenerator, MemoryRecorder]:
    recorder = MemoryRecorder()
    return LocalAnswerGenerator(MiniLM(), answer_at, count, recorder), recorder


def test_the_best_sentence_is_quoted_with_its_document() -> None:
    role, recorder = generator(count=1)
    answer = role.answer(QUESTION, [document(BREAD), document(RHINE)])
    assert answer.text == '"The Oude Rijn is the river that flows through Leiden." [1]'
    assert (answer.cited, answer.why_not) == ((1,), "")
    assert recorder.records[0].spec.role == "answer_generator"
    assert recorder.records[0].response["cited"] == [1]


def test_quotes_come_in_document_order_and_once() -> None:
    first = "The river Rhine flows through Leiden."
    second = "Through Leiden flows the Oude Rijn, a river."
    role, _ = generator()
    answer = role.answer(QUESTION, [document(second), document(first + " " + second), document(BREAD)])
    assert answer.text == f'"{second}" [1] "{first}" [2]'
    assert answer.cited == (0, 1)


def test_nothing_near_enough_gives_up_with_the_figures() -> None:
    role, _ = generator(answer_at=0.55)
    answer = role.answer(QUESTION, [document(BREAD)])
    assert (answer.text, answer.cited) == ("", ())
    pattern = r"no sentence in the documents supports an answer \(best 0\.\d{3}, needed 0\.550\)"
    assert re.fullmatch(pattern, answer.why_not)


@pytest.mark.parametrize(
    "texts", [[], [""], ["?"], ["Which river flows through Leiden?"], ["# Leiden's river"]]
)
def test_no_sentence_at_all_gives_up(texts: list[str]) -> None:
    role, _ = generator(answer_at=0.0)
    answer = role.answer(QUESTION, [document(text) for text in texts])
    assert answer.text == "" and answer.why_not


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.text(alphabet=st.sampled_from('ab Leiden river.!?\n"[]1。{}'), max_size=120),
        min_size=1,
        max_size=4,
    ),
    st.integers(1, 4),
)
def test_every_quote_occurs_verbatim_in_the_document_it_names(texts: list[str], count: int) -> None:
    role, _ = generator(answer_at=0.0, count=count)
    answer = role.answer("a river in Leiden", [document(text) for text in texts])
    left = answer.text
    quoted = 0
    while left:  # quotes are taken off the front by what the cited documents hold
        for number, position in enumerate(answer.cited, 1):
            mark = f'" [{number}]'
            end = left.find(mark)
            if left.startswith('"') and end > 0 and left[1:end] in one_line(texts[position]):
                left = left[end + len(mark) :].lstrip(" ")
                quoted += 1
                break
        else:
            pytest.fail(f"not in any cited document: {left!r}")
    assert quoted <= count
    assert bool(answer.text) != bool(answer.why_not)


@pytest.mark.parametrize(
    "empty_words",
    [
        "The river through Leiden",
        "## The river through Leiden",
        "The river through Leiden is:",
        "River through Leiden？",
        "River: Leiden",
        "Through Leiden.",
    ],
)
def test_headings_and_announcements_are_not_quoted(empty_words: str) -> None:
    role, _ = generator(answer_at=0.0)
    answer = role.answer(QUESTION, [document(f"{empty_words}\n\nThe Oude Rijn flows through Leiden.")])
    assert answer.text == '"The Oude Rijn flows through Leiden." [1]'


@pytest.mark.parametrize(
    "line", ["River: Oude Rijn", "- the Oude Rijn river", "Leiden river 12 km", "莱顿的河流是老莱茵河"]
)
def test_lines_with_a_fact_are_quoted_without_a_stop(line: str) -> None:
    role, _ = generator(answer_at=0.0)
    assert role.answer(QUESTION, [document(line)]).text == f'"{line.removeprefix("- ")}" [1]'


def test_a_wrapped_sentence_is_quoted_on_one_line() -> None:
    role, _ = generator(answer_at=0.0, count=1)
    answer = role.answer(QUESTION, [document("The river that\n  flows through Leiden is the Oude Rijn.")])
    assert answer.text == '"The river that flows through Leiden is the Oude Rijn." [1]'


FAQ_QUESTION = "How do I calibrate the scale?"
FAQ_ANSWER = "Hang a certified weight on the hook and hold TARE for five seconds."


@pytest.mark.parametrize(
    ("title", "answered"),
    [
        ("Can I calibrate the scale myself?", True),
        ("Help > Can I calibrate the scale myself?", True),
        ("Can I pay by invoice?", False),
        ("Calibrating the scale", False),  # a plain title says no more than the text of a document does
    ],
)
def test_an_answer_belongs_to_the_question_it_is_titled_with(title: str, answered: bool) -> None:
    role, recorder = generator(answer_at=0.52)
    answer = role.answer(FAQ_QUESTION, [document(BREAD), document(FAQ_ANSWER, title)])
    assert answer.text == (f'"{FAQ_ANSWER}" [1]' if answered else "")
    assert ("asked" in recorder.records[0].spec.request) is title.endswith("?")
