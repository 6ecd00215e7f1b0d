"""Word and CSV."""

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from docx import Document
from docx.oxml import parse_xml
from docx.oxml.ns import nsdecls

from tests.unit.workers.stores.test_loaders import loaded, written
from workers.stores.chunks import split
from workers.stores.loaders import LoadError, docx


def word(path: Path, fill: Callable[[Any], None]) -> Path:
    document = Document()
    fill(document)
    document.save(str(path))
    return path


def manual(document: Any) -> None:
    document.core_properties.title = "Manual"
    document.core_properties.language = "en-GB"
    document.add_heading("Manual", 0)
    document.add_paragraph("Read first.")
    document.add_heading("Pumps", 1)
    document.add_paragraph("Pumps pump.")
    table = document.add_table(rows=2, cols=2)
    for row, cells in zip(table.rows, (("Part", "Bar"), ("Valve", "12")), strict=True):
        for cell, text in zip(row.cells, cells, strict=True):
            cell.text = text
    document.add_paragraph("After the table.")
    document.add_heading("Old ones", 2)
    document.add_paragraph("They leak.")
    document.add_heading("Valves", 1)
    document.add_paragraph("# no heading")
    document.add_heading("Empty", 1)


def test_word_under_its_headings_with_tables(tmp_path: Path) -> None:
    path = word(tmp_path / "m.docx", manual)
    documents, notes = loaded(path)
    assert [(one.title, one.text) for one in documents] == [
        ("Manual", "Read first."),
        ("Manual > Pumps", "Pumps pump.\n\nPart | Bar\nValve | 12\n\nAfter the table."),
        ("Manual > Pumps > Old ones", "They leak."),
        ("Manual > Valves", "# no heading"),
    ]
    assert {(one.source, one.page, one.language) for one in documents} == {(str(path), None, "en-gb")}
    assert notes == []
    made = list(split(documents, 60, 10))
    assert [one.ordinal for one in made] == [0, 1, 2, 3]
    assert len({one.id for one in made}) == 4


def test_word_without_a_title_takes_its_first_heading_or_its_name(tmp_path: Path) -> None:
    first = word(tmp_path / "a.docx", lambda d: (d.add_heading("Intro", 1), d.add_paragraph("x")))
    second = word(tmp_path / "b.docx", lambda d: d.add_paragraph("x"))
    assert [one.title for one in loaded(first)[0]] == ["Intro"]
    assert [one.title for one in loaded(second)[0]] == ["b"]


def test_a_big_table_takes_no_quadratic_time(tmp_path: Path) -> None:
    import time

    def fill(document: Any) -> None:
        table = document.add_table(rows=1, cols=3)
        from copy import deepcopy

        row = table._tbl.tr_lst[0]
        table.rows[0].cells[0].text = "x"
        for _ in range(5000):
            table._tbl.append(deepcopy(row))

    path = word(tmp_path / "t.docx", fill)
    begun = time.monotonic()
    [document] = loaded(path)[0]
    assert document.text.count("\n") == 5000
    assert time.monotonic() - begun < 5


def test_word_that_cannot_be_read_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "zip.docx", "w") as archive:
        archive.writestr("x.txt", "x")
    for path, said in (
        (written(tmp_path, "ole.docx", b"\xd0\xcf\x11\xe0rest"), "protected by a password"),
        (written(tmp_path, "junk.docx", b"junk"), "not a Word document"),
        (tmp_path / "zip.docx", "not a Word document"),
        (word(tmp_path / "none.docx", lambda document: None), "no text in it"),
    ):
        with pytest.raises(LoadError, match=said):
            loaded(path)
    monkeypatch.setattr(docx, "MAX_INFLATED", 1000)
    with pytest.raises(LoadError, match="unpacks to"):
        loaded(word(tmp_path / "big.docx", manual))


def test_word_entities_are_not_expanded(tmp_path: Path) -> None:
    path = word(tmp_path / "a.docx", lambda document: document.add_paragraph("MARK"))
    evil = tmp_path / "evil.docx"
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(evil, "w") as target:
        for part in source.infolist():
            content = source.read(part)
            if part.filename == "word/document.xml":
                head, _, rest = content.partition(b"?>")
                doctype = b'<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]>'
                content = head + b"?>" + doctype + rest.replace(b"MARK", b"MARK &e;")
            target.writestr(part.filename, content)
    try:
        documents = loaded(evil)[0]
    except LoadError:
        return
    assert "root:" not in "".join(one.text for one in documents)


def test_each_row_of_a_csv_is_a_document(tmp_path: Path) -> None:
    path = written(
        tmp_path, "p.csv", 'id,Name,text\n1,Valve,"Opens, at\n12 bar"\n\n2,,Plain\n,,\n3,Pump,Pumps,extra\n'
    )
    documents, notes = loaded(path)
    assert [(one.source, one.title, one.text) for one in documents] == [
        (f"{path}#1", "Valve", "id: 1\nName: Valve\ntext: Opens, at\n12 bar"),
        (f"{path}#3", "p", "id: 2\ntext: Plain"),
        (f"{path}#5", "Pump", "id: 3\nName: Pump\ntext: Pumps\ncolumn 4: extra"),
    ]
    assert {one.path for one in documents} == {str(path)}
    assert notes == ["2 empty rows were left out"]


@pytest.mark.parametrize(
    "content",
    [
        "title;text\nA;b, c\n",
        "title\ttext\nA\tb, c\n",
        'title,text\nA,"b, c"\n',
        '"x,y,z,w,v";title;text\n;A;b, c\n',
        "\ufefftitle;text\r\nA;b, c\r\n",
    ],
)
def test_delimiters_and_marks(tmp_path: Path, content: str) -> None:
    [document] = loaded(written(tmp_path, "a.csv", content))[0]
    assert (document.title, document.text) == ("A", "title: A\ntext: b, c")


def test_a_csv_of_questions_is_titled_with_them(tmp_path: Path) -> None:
    [document] = loaded(written(tmp_path, "faq.csv", "Answer,Question\nYes.,Is it new?\n"))[0]
    assert document.title == "Is it new?"
    [document] = loaded(written(tmp_path, "b.csv", "question,title\nIs it new?,News\n"))[0]
    assert document.title == "News"


def test_csv_in_other_encodings(tmp_path: Path) -> None:
    [document] = loaded(written(tmp_path, "a.csv", "title,text\nGröße,ß\n".encode("utf-16")))[0]
    assert document.text == "title: Größe\ntext: ß"
    [document], notes = loaded(written(tmp_path, "b.csv", "title,text\nGröße,ß\n".encode("cp1252")))
    assert document.title == "Größe"
    assert "Windows-1252" in notes[0]


def test_csv_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    for content, said in (
        ("", "no row below the header"),
        ("a,b\n", "no row below the header"),
        (b"\x89PNG\x00\x01\x02" * 100, "not text"),
        ('a,b\n1,"' + "x" * (17 * 1024 * 1024), "line .*not CSV"),
    ):
        with pytest.raises(LoadError, match=said):
            loaded(written(tmp_path, "bad.csv", content))


def test_csv_with_the_separator_in_a_line_of_its_own(tmp_path: Path) -> None:
    [document] = loaded(written(tmp_path, "a.csv", "sep=;\nname;text\nValve;opens, at 12 bar\n"))[0]
    assert (document.title, document.text) == ("Valve", "name: Valve\ntext: opens, at 12 bar")


def test_word_text_in_forms_insertions_and_tables_within_tables(tmp_path: Path) -> None:
    def wrapped(kind: str, *content: Any) -> Any:
        element = parse_xml(f"<w:{kind} {nsdecls('w')}/>")
        for one in content:
            element.append(one)
        return element

    def run(text: str, tag: str = "t") -> Any:
        return parse_xml(f"<w:r {nsdecls('w')}><w:{tag}>{text}</w:{tag}></w:r>")

    def fill(document: Any) -> None:
        paragraph = document.add_paragraph("Bar: ")
        paragraph._p.append(wrapped("sdt", wrapped("sdtContent", run("twelve"))))
        paragraph._p.append(wrapped("ins", run(" or more")))
        paragraph._p.append(wrapped("del", run(" or less", "delText")))
        paragraph._p.append(wrapped("moveFrom", run(" moved away")))
        heading = document.add_heading("In a form", 1)._p
        text = document.add_paragraph("Filled in.")._p
        document.element.body.insert(1, wrapped("sdt", wrapped("sdtContent", heading, text)))
        table = document.add_table(rows=1, cols=2)
        table.cell(0, 0).text = "outer"
        table.cell(0, 1).add_table(rows=1, cols=1).cell(0, 0).text = "inner"
        cell = table.cell(0, 1)._tc
        cell.append(wrapped("sdt", wrapped("sdtContent", document.add_paragraph("chosen")._p)))

    documents, _ = loaded(word(tmp_path / "f.docx", fill))
    assert [(one.title, one.text) for one in documents] == [
        ("In a form", "Bar: twelve or more"),
        ("In a form", "Filled in.\n\nouter | inner chosen"),
    ]
