"""Files that are not what they claim: one error that names the file and the remedy."""

import gzip
import io
import os
import random
import zipfile
from pathlib import Path

import pytest

from api.intake import open_questions
from shared.errors import IntakeError, NotFound


def zipped(member: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(member, "x" * 100)
    return out.getvalue()


NOISE = random.Random(7).randbytes(5000)


@pytest.mark.parametrize("suffix", [".csv", ".txt", ".jsonl"])
@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"\x89PNG\r\n\x1a\n" + NOISE, "PNG"),
        (zipped("[Content_Types].xml"), "Excel.*CSV UTF-8"),
        (zipped("questions.csv"), "zip archive. Unpack"),
        (b"%PDF-1.7\n" + NOISE, "PDF.*CSV or text"),
        (gzip.compress(b"question\nWhy?\n", mtime=0), "gzip"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + NOISE, "old Excel"),
        (b"<!DOCTYPE html><html><body>Log in</body></html>", "web page"),
        (NOISE, "binary"),
        (b"\x01\x02\x03\x00" * 200, "binary"),
        (b"", "empty"),
        (b"\xef\xbb\xbf", "blank"),
        (b" \n\r\n\t\n", "blank"),
    ],
)
def test_content_that_holds_no_questions(tmp_path: Path, suffix: str, content: bytes, match: str) -> None:
    path = tmp_path / f"questions{suffix}"
    path.write_bytes(content)
    with pytest.raises(IntakeError, match=match) as caught:
        open_questions(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("name", ["q.csv", "q.txt"])
@pytest.mark.parametrize("text", ['{"question": "Why?"}\n', '[{"question": "Why?"}]\n'])
def test_json_under_another_name(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(IntakeError, match=r"JSON.*\.jsonl"):
        open_questions(tmp_path / name)


@pytest.mark.parametrize("text", ["id,question\n", "question", "question\r\n"])
def test_a_header_and_nothing_else(tmp_path: Path, text: str) -> None:
    (tmp_path / "q.csv").write_text(text)
    with pytest.raises(IntakeError, match="no row after"):
        open_questions(tmp_path / "q.csv")


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("q.ods", "Save it as .xlsx or as CSV"),
        ("q.xlsb", "Save it as .xlsx or as CSV"),
        ("q.md", "only .csv"),
        ("questions", "only .csv"),
    ],
)
def test_suffixes_that_are_not_read(tmp_path: Path, name: str, match: str) -> None:
    (tmp_path / name).write_text("question\nWhy?\n")
    with pytest.raises(IntakeError, match=match):
        open_questions(tmp_path / name)


def test_suffixes_in_capitals_are_read(tmp_path: Path) -> None:
    (tmp_path / "Q.CSV").write_text("question\nWhy?\n")
    assert [row.question for row in open_questions(tmp_path / "Q.CSV").rows()] == ["Why?"]


def test_no_such_file_a_folder_and_a_pipe(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"nowhere\.csv: there is no such file"):
        open_questions(tmp_path / "nowhere.csv")
    (tmp_path / "d.csv").mkdir()
    with pytest.raises(IntakeError, match="folder"):
        open_questions(tmp_path / "d.csv")
    os.mkfifo(tmp_path / "p.csv")
    with pytest.raises(IntakeError, match="ordinary"):
        open_questions(tmp_path / "p.csv")


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "q.csv"
    path.write_text("question\nWhy?\n")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)  # root may read anything, so the refusal is played
    with pytest.raises(IntakeError, match=r"q\.csv: cannot be read \(Permission denied\)"):
        open_questions(path)
