"""What a file would become, before anything is stored."""

import json
from pathlib import Path

import pytest
from rich.console import Console

from api.cli import preview as command
from api.cli import submit as submitting
from api.intake import open_questions
from api.intake.preview import SHOWN, preview
from tests.unit.api.workbooks import made


def test_counts_and_the_first_questions(tmp_path: Path) -> None:
    path = tmp_path / "q.csv"
    path.write_text("n,question\n1,Why?\n2,\n3,Why  ?\n4, Why?\n" + "".join(f"{n},Q{n}?\n" for n in range(9)))
    found = preview(open_questions(path))
    assert (found["rows"], found["questions"], found["empty_rows"], found["duplicate_rows"]) == (13, 11, 1, 1)
    assert found["question_column"] == "question" and len(found["first"]) == SHOWN
    assert found["first"][0] == {"row": 1, "question": "Why?", "notes": []}
    json.dumps(found)


def test_the_command_says_what_was_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = made(tmp_path / "b.xlsx", Help=[["Read me"]], Q=[["Title"], ["n", "Question"], ["1", "Why?\nSo?"]])
    command.show(open_questions(path), Console(), json=False)
    assert capsys.readouterr().out.splitlines() == [
        "b.xlsx: xlsx, sheet \"Q\", questions in column 'Question'.",
        'The questions are in sheet "Q"; passed over: "Help".',
        "The header is in row 2; 1 row above it passed over.",
        'The question column was guessed: "Question".',
        "1 row: 1 question, 0 empty, 0 repeated, 0 with notes.",
        "  row 1: Why? So?",
        "Nothing was submitted (--dry-run).",
    ]


def test_a_dry_run_needs_no_settings_and_no_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = made(tmp_path / "b.xlsx", A=[["question"], ["Why?"]], B=[["question"], ["How?"]])
    for name in ("get_settings", "get_engine", "make_plan"):
        monkeypatch.setattr(submitting, name, lambda *_: pytest.fail("it was asked for"))
    submitting.submit(path, dry_run=True, json=True, sheet="B", header_row=1)
    assert json.loads(capsys.readouterr().out)["first"] == [{"row": 1, "question": "How?", "notes": []}]
