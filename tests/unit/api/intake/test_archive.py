"""A zip of question files: each by its own reader, every row with the name of its file."""

import io
import zipfile
from pathlib import Path

import pytest

from api.intake import QuestionFile, open_questions
from api.intake import archive as reader
from shared.errors import IntakeError, UsageError
from tests.unit.api.workbooks import made


def zipped(folder: Path, **members: bytes | str) -> Path:
    with zipfile.ZipFile(folder / "q.zip", "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return folder / "q.zip"


def opened(folder: Path, members: dict[str, bytes | str], column: str | None = None) -> QuestionFile:
    return open_questions(zipped(folder, **members), column)


def test_every_member_by_its_own_reader(tmp_path: Path) -> None:
    sheet = made(tmp_path / "s.xlsx", S=[["Nr", "Frage"], ["7", "Warum?"]]).read_bytes()
    members: dict[str, bytes | str] = {
        "b/one.csv": "id;question\n1;Why?\n2;\n3;How?;more\n",
        "a.jsonl": '{"prompt": "Who?", "n": 1}\n',
        "c.xlsx": sheet,
        "d.txt": "What is it?\n",
        "README.md": "about",
        "__MACOSX/._one.csv": b"\0",
        ".DS_Store": b"\0",
    }
    file = opened(tmp_path, members)
    assert [(row.number, row.question, row.original) for row in file.rows()] == [
        (1, "Who?", {"file": "a.jsonl", "prompt": "Who?", "n": 1}),
        (2, "Why?", {"file": "b/one.csv", "id": "1", "question": "Why?"}),
        (3, None, {"file": "b/one.csv", "id": "2", "question": ""}),
        (4, "How?", {"file": "b/one.csv", "id": "3", "question": "How?", "extra_cells": ["more"]}),
        (5, "Warum?", {"file": "c.xlsx", "Nr": "7", "Frage": "Warum?"}),
        (6, "What is it?", {"file": "d.txt", "question": "What is it?"}),
    ]
    assert file.report.format == "zip"
    assert file.report.columns == ["file", "prompt", "n", "id", "question", "Nr", "Frage"]
    assert file.report.notes[-1] == "Passed over: README.md."
    assert any(note.startswith('c.xlsx: questions in "Frage".') for note in file.report.notes)


def test_a_column_named_file_is_kept(tmp_path: Path) -> None:
    (row,) = opened(tmp_path, {"a.csv": "file,question\nx,Why?\n"}).rows()
    assert row.original == {"cragline_file": "a.csv", "file": "x", "question": "Why?"}


def test_errors_name_the_member(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"q\.zip, a/b\.csv: no column name says"):
        opened(tmp_path, {"a/b.csv": "x,y\n1,2\n"})
    with pytest.raises(IntakeError, match=r"q\.zip, b\.jsonl: row 2 \(line 2\)"):
        list(opened(tmp_path, {"b.jsonl": '{"question": "Why?"}\n{"question": [1]}\n'}).rows())
    with pytest.raises(IntakeError, match=r"q\.zip, x\.exe: only .csv"):
        opened(tmp_path, {"x.exe": b"\0", "a.csv": "question\nWhy?\n"})


@pytest.mark.parametrize("name", ["../../evil.csv", "/etc/evil.csv", "a/../../evil.csv", "C:\\evil.csv"])
def test_paths_in_the_zip_reach_nothing(tmp_path: Path, name: str) -> None:
    inside = tmp_path / "in"
    inside.mkdir()
    (row,) = opened(inside, {name: "question\nWhy?\n"}).rows()
    assert row.question == "Why?"
    assert [item.name for item in tmp_path.iterdir()] == ["in"]
    assert not Path("/etc/evil.csv").exists()


def test_what_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr("q.csv", "question\nWhy?\n")
    for members, said in (
        ({"a.zip": inner.getvalue()}, "zip within the zip"),
        ({"readme.md": b"x"}, "no file of questions"),
        ({"a.csv": b""}, "a.csv: the file is empty"),
    ):
        with pytest.raises(IntakeError, match=said):
            opened(tmp_path, members)  # type: ignore[arg-type]
    monkeypatch.setattr(reader, "MAX_FILES", 1)
    with pytest.raises(IntakeError, match="2 files in the zip"):
        opened(tmp_path, {"a.csv": "question\nWhy?\n", "b.csv": "question\nWhy?\n"})
    (tmp_path / "no.zip").write_text("question\nWhy?\n")
    with pytest.raises(IntakeError, match="no zip"):
        open_questions(tmp_path / "no.zip")


def test_a_bomb_in_the_zip(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "q.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.csv", "question\n" + "a" * 100_000_000)
    with pytest.raises(IntakeError, match="zip bomb"):
        open_questions(tmp_path / "q.zip")
