"""Text that Postgres refuses is replaced where it enters, and nothing else is touched."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.clean import REPLACEMENT, clean_json, clean_text, counted, needs_cleaning, one_line, question_key

ANY_TEXT = st.text(alphabet=st.characters(exclude_categories=[]))  # lone surrogates too
DIRTY = st.text(alphabet="a\x00\ud800\udfff\udc80é😀 ")
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), DIRTY),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(DIRTY, inner, max_size=3)),
    max_leaves=10,
)


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("plain", "plain"),
        ("", ""),
        ("a\x00b\x00", f"a{REPLACEMENT}b{REPLACEMENT}"),
        ("\ud800x\udfff", f"{REPLACEMENT}x{REPLACEMENT}"),
        ("\ud83d\ude00", REPLACEMENT * 2),  # a pair kept as two lone halves is no character in Python
        ("😀 é \x01\x7f\t\n\ufffe", "😀 é \x01\x7f\t\n\ufffe"),
    ],
)
def test_only_nul_and_lone_surrogates_are_replaced(text: str, clean: str) -> None:
    assert clean_text(text) == clean
    assert needs_cleaning(text) == (text != clean)


@given(st.one_of(ANY_TEXT, DIRTY))
def test_clean_text_can_be_stored_and_cleaning_twice_changes_nothing(text: str) -> None:
    clean = clean_text(text)
    clean.encode("utf-8")
    assert "\x00" not in clean and len(clean) == len(text)
    assert clean_text(clean) == clean and not needs_cleaning(clean)


@given(JSON)
def test_every_string_of_a_json_value_is_clean_keys_included(value: Any) -> None:
    clean = clean_json(value)
    text = json.dumps(clean, ensure_ascii=False)
    text.encode("utf-8")
    assert "\\u0000" not in json.dumps(clean) and "\\ud800" not in json.dumps(clean)
    assert clean_json(clean) == clean


def test_shapes_and_other_values_are_kept() -> None:
    value = {"a\x00": [1, 2.5, None, True, ("t", "\ud800")], "b": {"c": []}}
    assert clean_json(value) == {f"a{REPLACEMENT}": [1, 2.5, None, True, ["t", REPLACEMENT]], "b": {"c": []}}
    assert value["a\x00"][0] == 1, "the value given is not changed"  # type: ignore[index]


@pytest.mark.parametrize(
    ("text", "width", "line"),
    [
        (" a \n\t b\u00a0c\u3000d ", None, "a b c d"),
        ("abcdef", 6, "abcdef"),
        ("abcdef", 5, "abcd…"),
        ("abc def", 5, "abc…"),
        ("", 5, ""),
        ("\n", 1, ""),
        ("ab", 1, "…"),
    ],
)
def test_one_line(text: str, width: int | None, line: str) -> None:
    assert one_line(text, width) == line


@given(ANY_TEXT, st.integers(1, 50))
def test_one_line_is_never_wider_than_it_may_be(text: str, width: int) -> None:
    line = one_line(text, width)
    assert len(line) <= width and "\n" not in line and line == line.strip()


def test_questions_are_the_same_by_nfc_and_white_space_but_not_by_case() -> None:
    assert question_key("Cafe\u0301  au\nlait? ") == question_key("Caf\u00e9 au lait?")
    assert question_key("US") != question_key("us")
    assert question_key("a b") != question_key("ab")
    assert question_key("x²") != question_key("x2"), "NFC, not NFKC: the two are different questions"


def test_counted() -> None:
    assert [counted(count, "file") for count in (0, 1, 2, 1234)] == [
        "0 files",
        "1 file",
        "2 files",
        "1,234 files",
    ]
