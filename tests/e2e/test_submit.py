"""`cragline submit`: files as they come, and what is refused."""

import codecs
import csv
import io
import json
import zipfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openpyxl
import pytest

from tests.e2e.home import Home

OURS = ["answer", "disposition", "reason", "sources", "web_used", "error", "run_id", "notes"]
DESK, DAYS = "When is the service desk open?", "How many days of holiday do I have?"
LONG = "Why? " * 1800  # 9,000 characters


@dataclass(frozen=True)
class Case:
    """A file, and what has to come of it."""

    name: str
    content: bytes
    cells: list[list[str]]  # what stands under the original header in the results, row by row
    header: list[str]
    column: str = "question"  # as the command says it
    runs: int = 1
    empty: int = 0
    repeated: int = 0
    words: tuple[str, ...] = ()


def rows(*questions: str) -> list[list[str]]:
    return [[question] for question in questions]


def workbook() -> bytes:
    """A workbook with an instruction sheet, a title, the header in row three and a blank row."""
    book, out = openpyxl.Workbook(), io.BytesIO()
    book.active.append(["How to fill in the questions"])
    sheet = book.create_sheet("Questions")
    for cells in (
        ["Our questions"],
        [],
        ["nr", "Question", "note"],
        [1, DESK],
        [],
        [3, None, "x"],
        [4, DAYS],
    ):
        sheet.append(cells)
    sheet.cell(7, 3, "=1+1").data_type = "s"
    sheet.merge_cells("A1:C1")
    book.save(out)
    return out.getvalue()


def zipped(members: dict[str, str]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


CASES = [
    Case(
        "bom.csv",
        codecs.BOM_UTF8 + f"id,question\r\n1,{DESK}\r\n".encode(),
        [["1", DESK]],
        ["id", "question"],
    ),
    Case("semicolon.csv", f"nr;Frage\n1;{DESK}\n".encode(), [["1", DESK]], ["nr", "Frage"], "Frage"),
    Case("tab.csv", f"nr\tVraag\n1\t{DESK}\n".encode(), [["1", DESK]], ["nr", "Vraag"], "Vraag"),
    Case(
        "old.csv",
        "Stadt;question_text\nMünchen;Öffnet das Café um sieben Uhr früh für Gäste?\n".encode("cp1252"),
        [["München", "Öffnet das Café um sieben Uhr früh für Gäste?"]],
        ["Stadt", "question_text"],
        "question_text",
    ),
    Case(
        "excel.txt",
        f"id\tQuestion\r\n1\t{DESK}\r\n2\t{DAYS}\r\n".encode("utf-16"),
        [["1", DESK], ["2", DAYS]],
        ["id", "Question"],
        "Question",
        runs=2,
    ),
    Case(
        "newlines.csv",
        f'question,note\n"{DESK}\nPlease, say ""when"".","a\r\nb"\n'.encode(),
        [[f'{DESK}\nPlease, say "when".', "a\r\nb"]],
        ["question", "note"],
    ),
    Case(
        "twice.csv",
        f"note,question,note\nx,{DESK},y\n".encode(),
        [["x", DESK, "y"]],
        ["note", "question", "note"],
    ),
    Case(
        "gaps.csv",
        f"id,question\n1,{DESK}\n2,\n3,   \n4,{DESK}\n\n5, {DESK}\n6,{DAYS}\n".encode(),
        [["1", DESK], ["2", ""], ["3", "   "], ["4", DESK], ["", ""], ["5", f" {DESK}"], ["6", DAYS]],
        ["id", "question"],
        runs=2,
        empty=3,
        repeated=2,
    ),
    Case(
        "odd.jsonl",
        (
            json.dumps({"id": 1, "question": f"{DESK}\0"})
            + '\n{"id": 2, "question": "half \\ud83d of it"}\n\n'
            + json.dumps({"question": LONG, "more": [1, {"a": None}]})
            + "\n"
        ).encode(),
        [["1", f"{DESK}�", ""], ["2", "half � of it", ""], ["", LONG, '[1, {"a": null}]']],
        ["id", "question", "more"],
        runs=3,
    ),
    Case("lines.txt", f"{DESK}\n\n{DAYS}\n".encode(), rows(DESK, "", DAYS), ["question"], runs=2, empty=1),
    Case(
        "uneven.csv",
        f"id,question,note\n1,{DESK}\n2,{DAYS},x,y,z\n".encode(),
        [["1", DESK, ""], ["2", DAYS, "x"]],
        ["id", "question", "note"],
        runs=2,
    ),
    Case(
        "sheets.xlsx",
        workbook(),
        [["1", DESK, ""], ["3", "", "x"], ["4", DAYS, "=1+1"]],
        ["nr", "Question", "note"],
        "Question",
        runs=2,
        empty=1,
    ),
    Case(
        "both.zip",
        zipped({"a.json": f'// by hand\n["{DESK}",]', "b.csv": f"id;question\n7;{DAYS}\n"}),
        [["a.json", DESK, ""], ["b.csv", DAYS, "7"]],
        ["file", "question", "id"],
        runs=2,
    ),
    Case(
        "chosen.csv",
        f"a,b\n1,{DESK}\n".encode(),
        [["1", DESK]],
        ["a", "b"],
        "b",
        words=("--column", "2", "--name", "My batch", "--pipeline", "rag", "--set", "k=2"),
    ),
]


@dataclass(frozen=True)
class Taken:
    told: dict[str, Any]
    csv: str

    @property
    def rows(self) -> list[dict[str, str]]:
        return list(csv.DictReader(io.StringIO(self.csv, newline="")))


@pytest.fixture(scope="module")
def taken(knowledge: Home) -> Mapping[str, Taken]:
    """Every case submitted and run, by its name; side by side, because most of it is waiting."""

    def take(case: Case) -> Taken:
        file = knowledge.write(f"in/{case.name}", case.content)
        told = knowledge.submit(file, *case.words)
        return Taken(told, knowledge.run("results", told["batch_id"], "--raw").out)

    with ThreadPoolExecutor(4) as pool:
        return dict(zip([case.name for case in CASES], pool.map(take, CASES), strict=True))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_row_comes_out_in_order_with_its_cells(taken: Mapping[str, Taken], case: Case) -> None:
    header, *found = csv.reader(io.StringIO(taken[case.name].csv, newline=""))
    width = len(case.header)
    assert header[: width + len(OURS)] == case.header + OURS
    assert [row[:width] for row in found] == case.cells
    assert all(len(row) == len(header) for row in found)
    place = header.index("disposition")
    asked = [not cells[case.header.index(case.column)].strip() for cells in case.cells]
    assert [row[place] == "empty" for row in found] == asked
    assert {row[place] for row in found} <= {"answered", "gave_up", "empty"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_counts_add_up(taken: Mapping[str, Taken], case: Case) -> None:
    told = taken[case.name].told
    assert told["question_column"] == case.column
    assert (told["rows"], told["submitted"]) == (len(case.cells), case.runs)
    assert (told["empty_rows"], told["duplicate_rows"]) == (case.empty, case.repeated)
    assert (told["status"], told["open"], told["pending"], told["running"]) == ("ended", 0, 0, 0)
    assert told["answered"] + told["gave_up"] == case.runs
    assert len({row["run_id"] for row in taken[case.name].rows} - {""}) == case.runs


def test_results_as_a_workbook_and_into_the_submitted_one(
    knowledge: Home, taken: Mapping[str, Taken]
) -> None:
    batch = taken["sheets.xlsx"].told["batch_id"]
    done = knowledge.run("results", batch, "-o", "out.xlsx")
    assert (done.code, done.err) == (0, "3 rows written to out.xlsx.\n")
    book = openpyxl.load_workbook(knowledge.folder / "out.xlsx")
    assert book.sheetnames == ["Results", "Summary"]
    assert [cell.value for cell in book["Results"]["B"]] == ["Question", DESK, None, DAYS]
    assert "25 days" in book["Results"]["D4"].value
    facts = {label.value: value.value for label, value in book["Summary"].iter_rows()}
    assert (facts["rows"], facts["empty rows"], facts["sheet"]) == (3, 1, "Questions")
    words = ["batch", "results", batch, "--into", "in/sheets.xlsx", "-o", "filled.xlsx"]
    assert knowledge.run(*words).err == "3 rows written to filled.xlsx, columns D to H.\n"
    sheet = openpyxl.load_workbook(knowledge.folder / "filled.xlsx")["Questions"]
    assert [cell.value for cell in sheet["E"]][2:] == ["disposition", "answered", None, "empty", "answered"]
    assert "25 days" in sheet["D7"].value and sheet["C7"].value == "=1+1"
    assert "say --force" in knowledge.run(*words).error(1)
    changed = openpyxl.load_workbook(knowledge.folder / "in/sheets.xlsx")
    changed["Questions"]["B7"] = "Another one?"
    changed.save(knowledge.folder / "changed.xlsx")
    words[4] = "changed.xlsx"
    assert 'row 7 holds "Another one?"' in knowledge.run(*words, "--force").error(1)


def test_a_repeated_question_is_run_once_and_answered_for_each(taken: Mapping[str, Taken]) -> None:
    found = taken["gaps.csv"].rows
    same = [row for row in found if row["id"] in ("1", "4", "5")]
    assert len({row["run_id"] for row in same}) == 1
    assert all("9 am to 5 pm" in row["answer"] for row in same)
    assert found[1]["reason"] == "the row has no question"
    assert "25 days" in found[-1]["answer"]


def test_cells_beyond_the_header_are_kept(knowledge: Home, taken: Mapping[str, Taken]) -> None:
    header, first, second = csv.reader(io.StringIO(taken["uneven.csv"].csv, newline=""))
    assert header[-2:] == ["extra_cells_1", "extra_cells_2"]
    assert (first[-2:], second[-2:]) == (["", ""], ["y", "z"])
    as_json = knowledge.results(taken["uneven.csv"].told["batch_id"])
    assert (as_json[0]["note"], as_json[1]["extra_cells"]) == (None, ["y", "z"])


def test_the_words_of_the_command_are_obeyed(knowledge: Home, taken: Mapping[str, Taken]) -> None:
    told = taken["chosen.csv"].told
    assert (told["name"], told["pipeline"]) == ("My batch", "rag")
    shown = knowledge.run("batch", "show", told["batch_id"], "--json").value
    assert shown["plan"]["params"]["k"] == 2


def test_without_json_it_says_how_the_file_was_understood(knowledge: Home) -> None:
    file = knowledge.write("said.csv", f"nr;Frage\n1;{DESK}\n2;\n3;{DESK}\n")
    done = knowledge.run("submit", file)
    assert (done.code, done.err) == (0, "")
    *said, batch, last = done.out.splitlines()
    assert said == [
        "said.csv: csv, utf-8, questions in column 'Frage'.",
        'The question column was guessed: "Frage".',
        "The cells are separated by semicolons.",
        "Pipeline crag, collection 'default', models: local.",
        "Web search is off.",
    ]
    number = batch.split(":")[0].removeprefix("Batch ")
    assert batch == (
        f"Batch {number}: 3 rows, 1 question, 1 empty (not run, kept in the results), "
        "1 repeated (run once, answered for each)."
    )
    assert last == f"Watch it with `cragline batch watch {number}`."


REFUSED = [
    ("sheet.csv", b"PK\x03\x04[Content_Types].xml", 1, ["Excel", "CSV UTF-8"]),
    ("page.csv", b"<!doctype html><html><body>Log in</body></html>", 1, ["web page", "Download it again"]),
    ("nothing.csv", b"", 1, ["empty", "at least one question"]),
    ("hollow.csv", b"id,question\n1,\n2,\n", 1, ["none of the 2 rows has a question", "--column"]),
    ("open.csv", b'question\nWho?\n"What\nWhen?\n', 1, ["row 2 (line 3)", "quotation mark", "Close it"]),
    ("cut.jsonl", b'{"question": "Who?"}\n{"question": "Wh\n', 1, ["line 2", "not JSON", "Mend or remove"]),
    ("unsure.csv", b"title,body\nfoo,What is it?\n", 2, ['1 "title"', '2 "body"', "--column"]),
    ("two.csv", b"Question,Frage\nWho?,Wer?\n", 2, ['"Question" and "Frage"', "--column"]),
]


def test_a_file_that_is_not_what_it_claims_leaves_nothing(knowledge: Home) -> None:
    """One line that names the file and the remedy, for each; and the list of batches stays the same."""
    before = knowledge.run("batch", "list", "--limit", "1000", "--json").value
    files = [knowledge.write(f"bad/{name}", content) for name, content, _, _ in REFUSED]
    done = knowledge.run_all([["submit", file, "--json"] for file in files])
    for (name, _, code, expected), one in zip(REFUSED, done, strict=True):
        message = one.error(code)
        assert not [words for words in expected if words not in message], message
        assert name in message
    after = knowledge.run("batch", "list", "--limit", "1000", "--json").value
    assert {row["batch_id"] for row in after} == {row["batch_id"] for row in before}
    assert knowledge.run("sql", "select * from lost_runs", "--json").value == []


WRONG: list[tuple[list[str], int, str]] = [
    (["no-such.csv"], 1, "no-such.csv: there is no such file."),
    (["q.csv", "--column", "Topic"], 2, 'there is no column "Topic". The columns are: 1 "id", 2 "question"'),
    (["q.csv", "--set", "nope=1"], 2, "crag has no setting 'nope'. It has: k, "),
    (["q.csv", "--set", "k=many"], 2, "--set k=many: "),
    (["q.csv", "--set", "retrieval=both"], 2, "--set retrieval=both: "),
    (["q.csv", "--filter", "colour=red"], 2, "--filter 'colour=red': there is nothing of that name"),
    (["q.csv", "--filter", "page"], 2, "--filter takes key=value, not 'page'."),
    (["q.csv", "--set", "upper=0.1"], 2, "lower (0.35) must not be above upper (0.1)."),
    (["q.csv", "--max-cost", "0"], 2, "--max-cost must be above 0."),
    (["q.csv", "--max-tokens", "-1"], 2, "--max-tokens must be above 0."),
    (["q.csv", "--pipeline", "nope"], 2, "There is no pipeline 'nope'. There are: crag, rag, self_rag, adaptive."),
    (["q.csv", "-c", "nope"], 1, "There is no collection 'nope'. There are: "),
    (["q.csv", "-c", "hollow"], 1, "Collection 'hollow' is empty. Fill it with `cragline ingest PATH"),
]  # fmt: skip


def test_wrong_words(hollow: Home) -> None:
    hollow.write("q.csv", f"id,question\n1,{DESK}\n")
    done = hollow.run_all([["submit", *words] for words, _, _ in WRONG])
    for (_, code, expected), one in zip(WRONG, done, strict=True):
        assert expected in one.error(code)


@pytest.fixture(scope="module")
def hollow(knowledge: Home) -> Home:
    """The stack, with a collection that holds no document any more."""
    file = knowledge.write("hollow.jsonl", '{"id": "a", "text": "This is taken out again."}\n')
    assert knowledge.run("ingest", file, "-c", "hollow").code == 0
    file.write_text("")
    assert knowledge.run("ingest", file, "-c", "hollow", "--json").value["chunks_removed"] == 1
    return knowledge


def test_a_collection_of_another_embedding_model(knowledge: Home) -> None:
    file = knowledge.write("q.csv", f"id,question\n1,{DESK}\n")
    done = knowledge.run("submit", file, OPENAI_API_KEY="sk-test-0123456789abcdef")
    message = done.error(1)
    assert "was embedded by local/all-MiniLM-L6-v2-int8 (384 dimensions)" in message
    assert "CRAGLINE_EMBEDDINGS" in message


def test_a_queue_that_is_down_does_not_lose_the_batch(knowledge: Home) -> None:
    """The rows are in Postgres, and the dispatcher's next tick finds them."""
    file = knowledge.write("q.csv", f"id,question\n1,{DESK}\n")
    done = knowledge.run("submit", file, "--json", CRAGLINE_REDIS_URL="redis://127.0.0.1:9/0")
    assert done.code == 0
    assert done.err == "The queue does not answer; the batch starts when it is back.\n"
    ended = knowledge.run("batch", "watch", json.loads(done.out)["batch_id"], "--json").value
    assert (ended["status"], ended["answered"]) == ("ended", 1)


def test_only_what_a_filter_lets_through_is_found(knowledge: Home) -> None:
    file = knowledge.write("filtered.csv", "question\nWhat does tea cost?\n")
    words = ["--set", "retrieval=sparse", "--filter", "title=Tea", "--filter", "title=Coffee"]
    told = knowledge.submit(file, *words)
    assert told["answered"] == 1
    plan = knowledge.run("batch", "show", told["batch_id"], "--json").value["plan"]["params"]
    assert (plan["retrieval"], plan["filter"]) == ("sparse", {"title": ["Tea", "Coffee"]})
    assert "one euro" in knowledge.results(told["batch_id"])[0]["answer"]
    away = knowledge.submit(file, "--filter", "title=No such title", "--pipeline", "rag")
    assert away["gave_up"] == 1
    row = knowledge.results(away["batch_id"])[0]
    assert row["reason"] == "no document that matches title=No such title was retrieved"
    shown = knowledge.run("run", "show", row["run_id"], "--json").value
    assert shown["notes"] == ["filter_matched_nothing: no passage matches title=No such title"]
    found = knowledge.run("ask", "What does tea cost?", "--filter", "title=Tea", "--json").value
    assert [one["title"] for one in found["documents"]] == ["Tea"]
    said = knowledge.run("submit", file, "--filter", "title=Tea").out
    assert "Only documents that match title=Tea." in said


def test_paths_are_relative_to_where_the_command_is_typed(knowledge: Home) -> None:
    knowledge.write("in/here.txt", f"{DESK}\n")
    assert knowledge.run("submit", Path("in/here.txt"), "--json").value["name"] == "here.txt"
