"""`cragline ingest`: each kind of file, again, changed, and what is refused."""

from pathlib import Path

import pytest

from tests.e2e.home import Home
from tests.unit.workers.stores.test_loaders import pdf


def counts(told: dict[str, int]) -> tuple[int, int, int, int]:
    return told["documents"], told["chunks_added"], told["chunks_unchanged"], told["chunks_removed"]


def test_a_folder_again_is_unchanged(knowledge: Home) -> None:
    told = knowledge.run("ingest", "kb", "--json").value
    assert counts(told) == (5, 0, 6, 0)
    assert (told["files"], told["skipped"], told["errors"]) == (4, {".pptx": 1}, [])
    said = knowledge.run("ingest", "kb")
    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines() == [
        "4 of 4 files ingested into 'default': 5 documents; chunks: 0 added, 6 unchanged, 0 removed.",
        "Left out of the folders: 1 file (1 .pptx).",
    ]


def test_a_changed_file_replaces_its_chunks(knowledge: Home) -> None:
    file = knowledge.write(
        "changing.md", "# Keys\nThe key hangs behind the door.\n\n# Cats\nThe cat is grey.\n"
    )
    assert counts(knowledge.run("ingest", file, "-c", "changing", "--json").value) == (1, 2, 0, 0)
    file.write_text("# Keys\nThe key hangs behind the door.\n\n# Cats\nThe cat is black.\n")
    assert counts(knowledge.run("ingest", file, "-c", "changing", "--json").value) == (1, 1, 1, 1)


def test_the_pages_of_a_pdf_are_cited(knowledge: Home) -> None:
    pdf(
        knowledge.folder / "manual.pdf",
        "Nothing is here.",
        "The red valve closes the main pipe.",
        title="Manual",
    )
    assert knowledge.run("ingest", "manual.pdf", "-c", "pdf", "--json").value["documents"] == 1
    state = knowledge.run("ask", "What does the red valve close?", "-c", "pdf", "--json").value
    assert "main pipe" in state["answer"]
    assert [(source["title"], source["page"]) for source in state["sources"]] == [("Manual", 2)]


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (["no-such-place"], 1, "no-such-place: no such file or folder."),
        (["/dev/null"], 1, "/dev/null: neither a file nor a folder."),
        (["kb/sheet.pptx"], 1, "kb/sheet.pptx: this kind of file cannot be ingested; these can: .csv"),
        (["kb", "-c", "../up"], 2, "A collection's name may hold letters"),
        ([], 2, "Missing argument"),
    ],
)
def test_what_cannot_be_ingested(knowledge: Home, words: list[str], code: int, expected: str) -> None:
    assert knowledge.run("ingest", *words).error(code).startswith(expected)


def test_a_file_that_cannot_be_read_is_named_and_the_others_are_taken(
    knowledge: Home, tmp_path: Path
) -> None:
    (tmp_path / "good.txt").write_text("The gate opens at six.")
    (tmp_path / "bad.jsonl").write_text("this is not JSON\n")
    done = knowledge.run("ingest", tmp_path, "-c", "mixed")
    assert done.code == 1
    assert done.out.startswith("1 of 2 files ingested into 'mixed'")
    assert "bad.jsonl" in done.out
    assert "Traceback" not in done.out + done.err
