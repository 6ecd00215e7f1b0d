"""Chunks: sizes, headings, and ids that survive small edits."""

from dataclasses import replace
from itertools import pairwise

import pytest

from shared.errors import CraglineError
from workers.stores.chunks import Chunk, count_tokens, document_hash, split
from workers.stores.loaders import LoadedDocument
from workers.stores.markdown import sections

SENTENCE = "The pump in hall %d was replaced after the flood of that year. "


def document(text: str, path: str = "/d/a.txt", title: str = "a", page: int | None = None) -> LoadedDocument:
    return LoadedDocument(path, title, text, page, path, markdown=path.endswith(".md"))


def chunks(*documents: LoadedDocument, tokens: int = 60, overlap: int = 10) -> list[Chunk]:
    return list(split(documents, tokens, overlap))


def prose(numbers: range) -> str:
    return "\n\n".join((SENTENCE % number) * 4 for number in numbers)


def test_a_document_that_fits_stays_whole() -> None:
    text = "First line.\n\nSecond paragraph.\n\n\nThird."
    assert [(one.text, one.ordinal) for one in chunks(document(text))] == [(text, 0)]


@pytest.mark.parametrize(
    "text",
    [
        prose(range(20)),
        "word " * 2000,
        "sentence without end, " * 500,
        "QUJD" * 5000,  # one token for the tokenizer, however long
        "start " + "QUJD" * 100 + " end " + "QUJD" * 100,
        "日本語の文章です。" * 300,
        "ยาวมากไม่มีช่องว่าง" * 300,
        "a\n" * 3000,
    ],
)
def test_no_chunk_is_longer_than_asked_for_and_nothing_is_lost(text: str) -> None:
    made = chunks(document(text), overlap=0)
    assert len(made) > 1
    assert max(count_tokens(one.text) for one in made) <= 60
    assert max(len(one.text) for one in made) <= 60 * 8
    assert "".join("".join(one.text.split()) for one in made) == "".join(text.split())


def test_neighbours_overlap() -> None:
    made = chunks(document("word%d " * 400 % tuple(range(400))), tokens=60, overlap=20)
    for before, after in pairwise(made):
        assert set(before.text.split()) & set(after.text.split())


def test_overlap_must_be_smaller_than_the_chunk() -> None:
    with pytest.raises(CraglineError, match="CRAGLINE_CHUNK_OVERLAP"):
        chunks(document("x"), tokens=20, overlap=20)


def test_the_same_document_gives_the_same_chunks() -> None:
    assert chunks(document(prose(range(9)))) == chunks(document(prose(range(9))))


def test_unchanged_chunks_keep_their_id_when_text_is_put_in_before_them() -> None:
    before = chunks(document(prose(range(1, 9))), overlap=0)
    after = chunks(document(prose(range(9))), overlap=0)
    kept = {one.id for one in before} & {one.id for one in after}
    assert len(kept) == len(before) > 5
    assert [one.ordinal for one in after] == list(range(len(after)))


def test_ids_differ_by_source_page_title_and_copy() -> None:
    text = "the same text"
    made = chunks(
        document(text),
        document(text, path="/d/b.txt"),
        document(text, path="/d/c.pdf", page=1),
        document(text, path="/d/c.pdf", page=2),
        document(text, path="/d/d.txt", title="t"),
        document(text, path="/d/d2.txt"),
        document(text, path="/d/d2.txt"),  # a source that says the same twice
    )
    assert len({one.id for one in made}) == len(made) == 7
    renamed = chunks(document(text, title="other title"))
    assert renamed[0].id != made[0].id


def test_ordinals_count_through_the_pages_of_a_source() -> None:
    made = chunks(document("one", page=1), document("two", page=2), document("three", path="/d/b.txt"))
    assert [(one.page, one.ordinal) for one in made] == [(1, 0), (2, 1), (None, 0)]


def test_passages_without_a_word_are_no_chunks() -> None:
    assert chunks(document("-----\n\n***")) == []


MANUAL = """# Manual
Intro.

## Pumps
Pumps pump.

```sh
# not a heading
```

### Old ones
They leak.

## Valves ##
Valves close.

## Empty
"""


def test_markdown_chunks_carry_the_path_of_headings() -> None:
    made = chunks(document(MANUAL, path="/d/m.md", title="Manual"))
    assert [(one.title, one.text) for one in made] == [
        ("Manual", "Intro."),
        ("Manual > Pumps", "Pumps pump.\n\n```sh\n# not a heading\n```"),
        ("Manual > Pumps > Old ones", "They leak."),
        ("Manual > Valves", "Valves close."),
    ]


def test_markdown_with_a_title_from_elsewhere_keeps_all_headings() -> None:
    made = chunks(document("## Pumps\nText.", path="/d/m.md", title="Front"))
    assert made[0].title == "Front > Pumps"


def test_headings_are_only_headings_in_markdown() -> None:
    assert chunks(document(MANUAL, title="Manual"))[0].title == "Manual"


def test_sections_know_underlined_headings_and_leave_rules_and_tables_alone() -> None:
    text = "Top\n===\na\n\nSub\n---\nb\n\n---\n\n| x |\n|---|\n\na paragraph\nof two lines\n---\nc"
    found = [(one.headings, one.text) for one in sections(text)]
    assert found == [
        (("Top",), "a"),
        (("Top", "Sub"), "b\n\n---\n\n| x |\n|---|\n\na paragraph\nof two lines\n---\nc"),
    ]


def test_a_fence_is_closed_only_by_its_own_kind() -> None:
    found = list(sections("~~~\n```\n# code\n~~~\n# Real\nx"))
    assert [one.headings for one in found] == [(), ("Real",)]


def test_document_hash_covers_text_title_pages_and_chunking() -> None:
    base = [document("one", page=1), document("two", page=2)]
    same = document_hash(base, 60, 10)
    assert same == document_hash(list(base), 60, 10)
    others = [
        document_hash([replace(base[0], text="One"), base[1]], 60, 10),
        document_hash([replace(base[0], title="b"), base[1]], 60, 10),
        document_hash([base[0], replace(base[1], page=3)], 60, 10),
        document_hash(base[:1], 60, 10),
        document_hash(base, 61, 10),
        document_hash(base, 60, 11),
    ]
    assert len({same, *others}) == 7


@pytest.mark.parametrize("overlap", [0, 10, 30])
def test_lines_are_those_of_the_file(overlap: int) -> None:
    text = "\n".join(f"Line {number} tells of pump {number % 7}." for number in range(1, 200))
    made = chunks(replace(document(text), first_line=5), overlap=overlap)
    lines = ["front"] * 4 + text.split("\n")
    for one in made:
        assert one.lines is not None
        first, last = map(int, one.lines.split("-"))
        assert "\n".join(lines[first - 1 : last]) == one.text


def test_lines_under_headings_and_none_without_a_file() -> None:
    made = chunks(replace(document(MANUAL, path="/d/m.md", title="Manual"), first_line=1))
    lines = MANUAL.split("\n")
    for one in made:
        first, last = map(int, (one.lines or "0-0").split("-"))
        assert "\n".join(lines[first - 1 : last]) == one.text
    assert [one.lines for one in chunks(document(MANUAL))] == [None]


def test_lines_and_commit_do_not_make_a_chunk_another_one() -> None:
    before = chunks(replace(document(prose(range(9))), first_line=1, commit="a" * 40, cited="x@a"))
    after = chunks(replace(document(prose(range(9))), first_line=9, commit="b" * 40, cited="x@b"))
    assert [one.id for one in before] == [one.id for one in after]
    assert [one.lines for one in before] != [one.lines for one in after]
    same = [replace(document("x"), commit="a"), replace(document("x"), commit="b")]
    assert document_hash(same[:1], 50, 5) == document_hash(same[1:], 50, 5)


def test_every_language_of_a_suffix_is_known_to_the_splitter() -> None:
    from workers.stores.loaders.code import LANGUAGES

    for language in set(LANGUAGES.values()):
        made = chunks(replace(document(prose(range(9))), code=language), overlap=0)
        assert max(count_tokens(one.text) for one in made) <= 60
        assert "".join("".join(one.text.split()) for one in made) == "".join(prose(range(9)).split())
