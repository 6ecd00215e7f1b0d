"""Each format, and each trouble that files come with."""

import json
import random
from pathlib import Path

import pytest
from pypdf import PdfWriter
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

from shared.errors import CraglineError
from shared.sources import SUFFIXES
from workers.stores.loaders import LOADERS, LoadedDocument, LoadError, base, load
from workers.stores.loaders import pdf as pdf_loader


def written(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def loaded(path: Path) -> tuple[list[LoadedDocument], list[str]]:
    notes: list[str] = []
    return list(load(path, notes)), notes


def pdf(path: Path, *pages: str, title: str = "", password: str = "") -> Path:
    """A PDF with one line of Helvetica a page; an empty string makes a page without text."""
    writer = PdfWriter()
    font = DictionaryObject(
        {
            NameObject("/Type"): NameObject("/Font"),
            NameObject("/Subtype"): NameObject("/Type1"),
            NameObject("/BaseFont"): NameObject("/Helvetica"),
        }
    )
    for text in pages:
        page = writer.add_blank_page(width=300, height=300)
        if text:
            content = DecodedStreamObject()
            content.set_data(f"BT /F1 12 Tf 20 200 Td ({text}) Tj ET".encode("latin-1"))
            page[NameObject("/Contents")] = writer._add_object(content)
            fonts = DictionaryObject({NameObject("/F1"): writer._add_object(font)})
            page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts})
    if title:
        writer.add_metadata({"/Title": title})
    if password:
        writer.encrypt(password, algorithm="RC4-128")
    writer.write(path)
    return path


def test_the_files_that_are_chosen_are_those_that_can_be_loaded() -> None:
    assert set(LOADERS) == SUFFIXES


# -- text and its encodings ------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_text_in_every_unicode_encoding(tmp_path: Path, codec: str) -> None:
    text = "Größe: 5 €\nzweite Zeile"
    documents, _ = loaded(written(tmp_path, "notes.txt", text.encode(codec)))
    assert [document.text for document in documents] == [text]
    assert documents[0].title == "notes"
    assert documents[0].source == documents[0].path == str(tmp_path / "notes.txt")
    assert documents[0].page is None


def test_cp1252_is_read_and_said(tmp_path: Path) -> None:
    documents, notes = loaded(written(tmp_path, "old.txt", "“Größe” – 5 €".encode("cp1252")))
    assert documents[0].text == "“Größe” – 5 €"
    assert any("Windows-1252" in note for note in notes)


def test_utf8_cut_far_behind_the_start_is_not_utf8(tmp_path: Path) -> None:
    path = written(tmp_path, "late.txt", b"a" * (3 << 20) + "ä".encode("cp1252"))
    documents, notes = loaded(path)
    assert documents[0].text.endswith("aä")
    assert notes


def test_utf8_across_the_blocks_of_reading_is_utf8(tmp_path: Path) -> None:
    _, notes = loaded(written(tmp_path, "wide.txt", b"a" + "ä".encode() * (1 << 20)))
    assert notes == []


def test_line_ends_are_made_one_kind(tmp_path: Path) -> None:
    documents, _ = loaded(written(tmp_path, "dos.txt", "a\r\nb\rc"))
    assert documents[0].text == "a\nb\nc"


def test_a_stray_nul_is_replaced_and_said(tmp_path: Path) -> None:
    documents, notes = loaded(written(tmp_path, "nul.txt", "a long enough text with one \0 in it"))
    assert documents[0].text == "a long enough text with one \N{REPLACEMENT CHARACTER} in it"
    assert any("NUL" in note for note in notes)


def test_compressed_bytes_are_no_windows_text(tmp_path: Path) -> None:
    # about a tenth of such bytes are control characters: the limit for a text that is otherwise UTF-8
    for length in (100, 3_000, 70_000):
        with pytest.raises(LoadError, match="not text"):
            loaded(written(tmp_path, "a.txt", random.Random(2).randbytes(length)))
    [document], notes = loaded(written(tmp_path, "b.txt", b"caf\xe9 \x00 on the crag"))
    assert "caf\xe9" in document.text and "Windows-1252" in notes[0]


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"picture\.txt: this is not text"):
        loaded(written(tmp_path, "picture.txt", bytes(range(256)) * 40))


@pytest.mark.parametrize("name", ["empty.txt", "empty.md", "empty.html", "empty.jsonl"])
@pytest.mark.parametrize("content", ["", " \n\n "])
def test_a_file_without_text_gives_nothing(tmp_path: Path, name: str, content: str) -> None:
    assert loaded(written(tmp_path, name, content))[0] == []


def test_a_file_too_big_for_the_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "MAX_WHOLE_FILE", 10)
    with pytest.raises(LoadError, match=r"big\.txt.*Split it"):
        loaded(written(tmp_path, "big.txt", "x" * 11))


def test_unknown_suffix_and_missing_file_are_errors_a_person_can_read(tmp_path: Path) -> None:
    with pytest.raises(CraglineError, match=r"known are \.txt"):
        loaded(written(tmp_path, "a.pptx", "x"))
    with pytest.raises(CraglineError, match="not there"):
        loaded(tmp_path / "gone.txt")
    (tmp_path / "folder.txt").mkdir()
    with pytest.raises(CraglineError, match="cannot be read"):
        loaded(tmp_path / "folder.txt")


def test_the_suffix_may_be_upper_case(tmp_path: Path) -> None:
    assert loaded(written(tmp_path, "README.TXT", "x"))[0][0].text == "x"


# -- Markdown --------------------------------------------------------------------------------------


def test_markdown_title_is_the_first_heading_and_front_matter_is_dropped(tmp_path: Path) -> None:
    text = "---\ntitle: other\ntags: [a]\n---\nintro\n\n# The `real` [title](x.md) #\nbody"
    documents, _ = loaded(written(tmp_path, "a.md", text))
    assert documents[0].title == "The real title"
    assert "tags" not in documents[0].text
    assert documents[0].text.startswith("intro")


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("---\ntitle: 'From the front'\n---\nbody", "From the front"),
        ("```\n# a comment\n```\n\n## Real\nbody", "Real"),
        ("Under\n=====\nbody", "Under"),
        ("no heading at all", "a"),
        ("---\nnot front matter, a rule", "a"),
    ],
)
def test_markdown_titles(tmp_path: Path, text: str, title: str) -> None:
    assert loaded(written(tmp_path, "a.md", text))[0][0].title == title


# -- HTML ------------------------------------------------------------------------------------------

PAGE = """<!doctype html><html><head><title>On &amp; off</title><style>p {color: red}</style></head><body>
<nav><a href="/">Home</a> <a href="/x">Menu entry</a></nav>
<article><h1>Valves</h1><p>%s</p><p>%s</p></article><script>var hidden = 1;</script>
<footer>Copyright footer</footer></body></html>"""


def test_html_gives_the_main_text_and_the_title(tmp_path: Path) -> None:
    first, second = "A relief valve opens at twelve bar. " * 8, "It closes again at ten bar. " * 8
    documents, _ = loaded(written(tmp_path, "a.html", PAGE % (first, second)))
    assert documents[0].title == "On & off"
    assert "opens at twelve bar" in documents[0].text
    assert "Menu entry" not in documents[0].text
    assert "hidden" not in documents[0].text


def test_html_without_a_main_text_falls_back_to_all_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trafilatura.extract", lambda *args, **kwargs: None)
    documents, notes = loaded(
        written(tmp_path, "a.htm", "<p>one &lt; two</p><script>x</script><div>three</div>")
    )
    assert documents[0].text == "one < two\nthree"
    assert any("no main text" in note for note in notes)


def test_html_that_breaks_the_extractor_is_still_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: object, **kwargs: object) -> None:
        raise RecursionError

    monkeypatch.setattr("trafilatura.extract", broken)
    assert loaded(written(tmp_path, "a.html", "<p>text" + "<div>" * 5000))[0][0].text == "text"


def test_html_says_its_own_encoding(tmp_path: Path) -> None:
    body = "<meta charset=iso-8859-2><title>x</title><p>" + "zażółć gęślą jaźń " * 20
    documents, notes = loaded(written(tmp_path, "a.html", body.encode("iso-8859-2")))
    assert "gęślą" in documents[0].text
    assert notes == []


@pytest.mark.parametrize("charset", ["undefined", "idna", "punycode", "hex"])
def test_html_that_names_no_encoding_of_pages_is_still_read(tmp_path: Path, charset: str) -> None:
    body = f"<meta charset={charset}><p>" + "caf\xe9 on the crag. " * 20 + "<![foo[ x ]]>"
    [document], _ = loaded(written(tmp_path, "a.html", body.encode("cp1252")))
    assert document.text.startswith("caf\xe9 on the crag.")


# -- PDF -------------------------------------------------------------------------------------------


def test_pdf_gives_a_document_a_page(tmp_path: Path) -> None:
    path = pdf(tmp_path / "a.pdf", "first page", "", "third page", title="The manual")
    documents, notes = loaded(path)
    assert [(one.page, one.text.strip()) for one in documents] == [(1, "first page"), (3, "third page")]
    assert {one.source for one in documents} == {str(path)}
    assert {one.title for one in documents} == {"The manual"}
    assert notes == ["1 of 3 pages hold no text"]


def test_pdf_without_text_is_named_as_scanned(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"scan\.pdf: no text on its 2 pages \(scanned"):
        loaded(pdf(tmp_path / "scan.pdf", "", ""))


def test_pdf_with_a_password_is_named_so(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"locked\.pdf: the PDF is protected by a password"):
        loaded(pdf(tmp_path / "locked.pdf", "secret", password="pw"))


@pytest.mark.parametrize("content", [b"", b"%PDF-1.4\nrubbish", b"not a pdf at all"])
def test_broken_pdf_is_named_so(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(LoadError, match=r"broken\.pdf: not a PDF"):
        loaded(written(tmp_path, "broken.pdf", content))


def test_a_truncated_pdf_is_an_error_or_what_can_be_saved(tmp_path: Path) -> None:
    data = pdf(tmp_path / "whole.pdf", "one", "two").read_bytes()
    path = written(tmp_path, "cut.pdf", data[: len(data) // 3])
    with pytest.raises(LoadError, match=r"cut\.pdf"):
        loaded(path)


def test_one_unreadable_page_does_not_cost_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = pdf(tmp_path / "a.pdf", "one", "two")
    from pypdf import PageObject

    real = PageObject.extract_text

    def sometimes(self: PageObject) -> str:
        text = real(self)
        if "two" in text:
            raise KeyError("/Broken")
        return text

    monkeypatch.setattr(PageObject, "extract_text", sometimes)
    documents, notes = loaded(path)
    assert [one.page for one in documents] == [1]
    assert notes == ["1 of 2 pages could not be read"]


# -- JSONL -----------------------------------------------------------------------------------------


def jsonl(path: Path, *records: object) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def test_jsonl_records_with_and_without_id(tmp_path: Path) -> None:
    path = jsonl(
        tmp_path / "a.jsonl",
        {"id": "x", "title": "T", "text": "one", "more": None},
        {"text": "two"},
        {"id": 7, "text": "three", "title": None},
    )
    documents, notes = loaded(path)
    assert [(one.source, one.title, one.text) for one in documents] == [
        (f"{path}#x", "T", "one"),
        (f"{path}#2", "a", "two"),
        (f"{path}#7", "a", "three"),
    ]
    assert notes == []


def test_jsonl_fields_are_kept_to_filter_by(tmp_path: Path) -> None:
    plain = {"lang": " nl ", "year": 2024, "price": 0.5, "open": False, "none": None, "nul": "a\x00b"}
    odd = {"tags": ["a"], "deep": {"a": 1}, "long": "x" * 1001, "two words": 1, "big": 2**63, "inf": 1e999}
    own = {"id": "1", "title": "T", "text": "one"}
    path = jsonl(tmp_path / "a.jsonl", own | plain | odd, own | {"id": "2"}, own | {"id": "3", "tags": []})
    documents, notes = loaded(path)
    assert documents[0].fields == {"lang": "nl", "year": 2024, "price": 0.5, "open": False, "nul": "a\ufffdb"}
    assert documents[1].fields == {}
    assert notes == [
        "fields that cannot be filtered by, and are not kept: tags, deep, long, two words, big, inf"
    ]


def test_jsonl_many_fields_are_bounded(tmp_path: Path) -> None:
    records = [{"text": "x", **{f"f{n}_{row}": n for n in range(200)}} for row in range(5)]
    documents, notes = loaded(jsonl(tmp_path / "a.jsonl", *records))
    assert [len(one.fields) for one in documents] == [32] * 5
    assert len(notes) == 1 and len(notes[0]) < 500


def test_jsonl_empty_texts_are_left_out_and_counted(tmp_path: Path) -> None:
    documents, notes = loaded(jsonl(tmp_path / "a.jsonl", {"text": " "}, {"text": "x"}, {"text": ""}))
    assert len(documents) == 1
    assert notes == ["2 records without text were left out"]


def test_jsonl_ids_that_repeat_stay_apart(tmp_path: Path) -> None:
    documents, notes = loaded(jsonl(tmp_path / "a.jsonl", *({"id": "x", "text": text} for text in "abc")))
    assert [one.source.split("#")[1] for one in documents] == ["x", "x@2", "x@3"]
    assert "2 records repeat an earlier id" in notes[0]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{broken", "not JSON"),
        ("[1]", "an object is expected"),
        ('{"body": "x", "id": 1}', r"no `text` string in the object \(its fields: body, id\)"),
        ('{"text": 5}', "no `text`"),
        ("[" * 100_000, "not JSON"),
        ('{"text": "x", "n": ' + "9" * 5000 + "}", "not JSON"),
    ],
)
def test_jsonl_bad_line_is_named_before_anything_is_handed_out(
    tmp_path: Path, line: str, reason: str
) -> None:
    path = written(tmp_path, "a.jsonl", '{"text": "fine"}\n\n' + line + "\n")
    with pytest.raises(LoadError, match=rf"a\.jsonl, line 3: .*{reason}"):
        next(load(path))


def test_jsonl_encodings_and_line_separators_inside_texts(tmp_path: Path) -> None:
    record = json.dumps({"text": "a\u2028b ü"}, ensure_ascii=False)
    for codec in ("utf-8-sig", "utf-16"):
        documents, _ = loaded(written(tmp_path, f"{codec}.jsonl", f"{record}\r\n{record}".encode(codec)))
        assert [one.text for one in documents] == ["a\u2028b ü"] * 2


def test_jsonl_surrogates_and_nul_are_replaced(tmp_path: Path) -> None:
    documents, notes = loaded(written(tmp_path, "a.jsonl", r'{"text": "a\u0000b\ud800c", "id": "\ud800"}'))
    assert documents[0].text == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}c"
    assert documents[0].source.endswith("#\N{REPLACEMENT CHARACTER}")
    assert len(notes) == 1


def test_jsonl_is_streamed(tmp_path: Path) -> None:
    """Handing out the first record must not need the memory of all."""
    import tracemalloc

    path = tmp_path / "big.jsonl"
    with path.open("w") as file:
        for _ in range(3000):
            file.write(json.dumps({"text": "word " * 1000}) + "\n")  # 15 MB
    tracemalloc.start()
    assert sum(1 for _ in load(path)) == 3000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4e6


def test_jsonl_line_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.stores.loaders.jsonl.MAX_LINE", 100)
    with pytest.raises(LoadError, match="line 1: longer than"):
        loaded(written(tmp_path, "a.jsonl", '{"text": "' + "x" * 200 + '"}'))


def test_a_huge_pdf_and_a_huge_page_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = pdf(tmp_path / "a.pdf", "short", "much too long for a page", "short too")
    monkeypatch.setattr(pdf_loader, "MAX_PAGE", 12)
    documents, notes = loaded(path)
    assert [one.page for one in documents] == [1, 3]
    assert notes == ["1 of 3 pages could not be read"]
    monkeypatch.setattr(pdf_loader, "MAX_PAGES", 2)
    with pytest.raises(LoadError, match="3 pages are more than the 2"):
        loaded(path)


def test_html_says_its_language_and_what_it_is_about(tmp_path: Path) -> None:
    head = '<head><title>T</title><meta property="og:description" content=" About \n pumps ">'
    page = f'<html lang="pt-BR">{head}</head><body><article><p>{"Texto da bomba. " * 20}</p></article></body></html>'
    [document] = loaded(written(tmp_path, "a.html", page))[0]
    assert (document.language, document.description) == ("pt-br", "About pumps")
    odd = page.replace("pt-BR", "x'; drop").replace("About", "A" * 900)
    [document] = loaded(written(tmp_path, "b.html", odd))[0]
    assert document.language is None
    assert len(document.description or "") == 500


def test_front_matter_does_not_shift_lines(tmp_path: Path) -> None:
    [document] = loaded(written(tmp_path, "a.md", "---\ntitle: T\n---\n# One\nText.\n"))[0]
    assert (document.first_line, document.markdown) == (4, True)
