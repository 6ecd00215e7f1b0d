"""Words of many languages, their weights, and the ids they are stored by."""

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.stores import bm25
from workers.stores.bm25 import passage_vector, question_vector, tokens, word_id


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The pumps of the harbour", ["pump", "harbour"]),
        ("Wat is de hoogte van het stuwmeer?", ["hoogte", "stuwmeer"]),
        ("L'hôtel à côté de l'école", ["hôtel", "côté", "école"]),
        ("ΑΘΗΝΑ και Σίσυφος", ["αθηνα", "και", "σίσυφος"]),
        ("Москва — столица", ["москва", "столица"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),  # the marks stay with their letters
        ("مُحَمَّد", ["مُحَمَّد"]),
        ("東京都の水", ["東京", "京都", "都の", "の水"]),
        ("水", ["水"]),
        ("iPhone向けアプリ", ["iphone", "向け", "けア", "アプ", "プリ"]),
        ("한국의 수도", ["한국", "국의", "수도"]),
        ("กรุง", ["กร", "รุ", "ุง"]),
        ("COVID-19's R0 of 3.5 in 2024-05-01", ["covid", "19", "r0", "3", "5", "2024", "05", "01"]),
        ("x y 7", ["7"]),  # a single letter says nothing, a digit may
        ("ﬁlter ＡＢＣ café", ["filter", "abc", "café"]),  # NFKC
        ("cafe\u0301", ["café"]),
        ("snake_case C++", ["snake", "case"]),
    ],
)
def test_words_of_many_scripts(text: str, words: list[str]) -> None:
    assert tokens(text) == words


@pytest.mark.parametrize(
    ("word", "stem"),
    [
        ("cities", "city"), ("boxes", "box"), ("churches", "church"), ("classes", "class"), ("pumps", "pump"),
        ("1990s", "1990"), ("class", "class"), ("virus", "virus"), ("analysis", "analysis"), ("gas", "gas"),
        ("ties", "tie"),
    ],
)  # fmt: skip
def test_english_plurals_are_folded(word: str, stem: str) -> None:
    assert tokens(word) == [stem]


@pytest.mark.parametrize("text", ["", "   ", "the of and", "\x00\ud800", "🎉🎉", "___", "́́", "—!?", "a b c"])
def test_texts_without_a_word_that_counts(text: str) -> None:
    assert tokens(text) == []
    assert question_vector(text) == passage_vector("", text) == {}


@given(st.text())
def test_any_text_gives_a_vector_that_qdrant_takes(text: str) -> None:
    for vector in (question_vector(text), passage_vector(text, text)):
        assert list(vector) == sorted(set(vector))
        assert all(0 <= word < 2**32 for word in vector)
        assert all(math.isfinite(weight) and 0 < weight <= bm25.K1 + 1 for weight in vector.values())


def test_a_huge_question_is_cut_and_a_huge_word_is_one_word() -> None:
    assert len(question_vector("word " * 10 + " ".join(map(str, range(200_000))))) < bm25.MAX_CHARS
    assert len(question_vector("x" * 1_000_000)) == 1


def test_the_ids_of_words_never_change() -> None:
    """They are in every collection that was ever written."""
    assert [word_id(word) for word in ("pump", "東京", "3")] == [746596696, 3179978821, 964390504]


def test_a_word_weighs_more_when_it_is_repeated_and_less_in_a_long_text() -> None:
    pump = word_id("pump")
    once, twice = passage_vector("", "pump")[pump], passage_vector("", "pump pump")[pump]
    assert once < twice < 2 * once
    assert passage_vector("", "pump " + "valve " * 300)[pump] < once
    usual = passage_vector("", "pump " + " ".join(f"w{n}" for n in range(int(bm25.AVERAGE_WORDS) - 1)))[pump]
    assert usual == pytest.approx(1.0), "in a text of usual length a word that stands there once weighs 1"


def test_the_title_counts() -> None:
    assert word_id("harbour") in passage_vector("Harbour", "The pump.")


@given(st.lists(st.sampled_from(["pump", "valve", "harbour", "crane"]), min_size=1, max_size=40))
def test_the_weights_are_bm25s(words: list[str]) -> None:
    norm = bm25.K1 * (1 - bm25.B + bm25.B * len(words) / bm25.AVERAGE_WORDS)
    for word, count in Counter(words).items():
        expected = count * (bm25.K1 + 1) / (count + norm)
        assert passage_vector("", " ".join(words))[word_id(word)] == pytest.approx(expected, abs=1e-5)
