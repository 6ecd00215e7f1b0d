"""A file handed in on the page: what was found in it, then the batch; what is wrong is said."""

import io
import re
from typing import Any

import pytest
from fastapi.testclient import TestClient
from openpyxl import Workbook

from shared.settings import Settings
from tests.integration.api.conftest import Api
from tests.integration.api.web.data import ALL_HOSTILE
from tests.integration.cluster import read_rows

SCRIPT = {"hx-request": "true"}


def workbook() -> bytes:
    made = Workbook()
    made.active.title = "Read me"
    made.active.append(["How to use this"])
    sheet = made.create_sheet("Questions")
    sheet.append(["Checklist 2026"])
    sheet.append([])
    sheet.append(["No", "Question"])
    for number in range(3):
        sheet.append([number, f"Is control {number} in place?"])
    out = io.BytesIO()
    made.save(out)
    return out.getvalue()


def send(client: TestClient, path: str, file: str, content: bytes, **fields: Any) -> Any:
    files = {"file": (file, content, "application/octet-stream")}
    return client.post(path, files=files, data=fields, headers=SCRIPT)


def count(api: Api) -> int:
    (row,) = read_rows(api.engine, "SELECT count(*) AS n FROM batches")
    return int(row.n)


def test_a_look_says_what_was_found_and_stores_nothing(api: Api) -> None:
    before = count(api)
    answer = send(api.client(), "/upload/look", "list.xlsx", workbook())
    assert answer.status_code == 200
    for said in ("3 questions", "Questions", "header in row 3", "Is control 2 in place?"):
        assert said in answer.text
    assert count(api) == before


def test_a_look_goes_no_further_than_a_batch_may(api: Api) -> None:
    """A zip of 40 kB may hold twenty million rows."""
    rows = "question\n" + "Is it?\n" * 501
    answer = send(api.client(), "/upload/look", "list.csv", rows.encode())
    assert (answer.status_code, "at most 500 rows" in answer.text) == (422, True)


def test_a_submitted_file_becomes_one_batch_however_often_the_button_is_pressed(api: Api) -> None:
    client = api.client()
    fields = {"once": "abc", "name": "", "set": "k=6\n\nrule=ratio:0.5\n", "pipeline": "crag", "column": ""}
    answers = [send(client, "/upload", "q.csv", b"question\nWhy?\nHow?\n", **fields) for _ in range(2)]
    places = {answer.headers["hx-redirect"] for answer in answers}
    assert [answer.status_code for answer in answers] == [204, 204]
    assert len(places) == 1
    batch = int(places.pop().rpartition("/")[2])
    (row,) = read_rows(api.engine, "SELECT name, plan, run_count FROM batches WHERE id = :b", b=batch)
    assert (row.name, row.run_count) == ("q.csv", 2)
    assert row.plan["params"]["k"] == 6
    assert row.plan["params"]["rule"] == "ratio"


def test_without_the_script_the_form_works_too(api: Api) -> None:
    client = api.client()
    files = {"file": ("q.txt", b"Why?\n", "text/plain")}
    own = {"origin": "http://127.0.0.1:8585"}
    looked = client.post("/upload/look", files=files, headers=own)
    assert "1 question" in looked.text and "<html" in looked.text
    made = client.post("/upload", files=files, headers=own, follow_redirects=False)
    assert made.status_code == 303
    assert made.headers["location"].startswith("/batches/")


@pytest.mark.parametrize(
    ("name", "content", "fields", "said"),
    [
        ("q.csv", b"a,b\n1,2\n", {}, "column"),
        ("q.csv", b"question\n\n", {}, "none of the 1 rows"),
        ("q.csv", b"question\nWhy?\n", {"set": "nonsense=1"}, "nonsense"),
        ("q.csv", b"question\nWhy?\n", {"collection": "nowhere"}, "nowhere"),
        ("q.csv", b"question\nWhy?\n", {"pipeline": "nope"}, "nope"),
        ("q.csv", b"question\nWhy?\n", {"header_row": "x"}, "header_row"),
        ("q.pdf", b"%PDF-1.7", {}, "q.pdf"),
        ("q", b"Why?", {}, "format"),
        ("q.jsonl", b'{"question": 1}\n{', {}, "line 2"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_stored(
    api: Api, name: str, content: bytes, fields: dict[str, str], said: str
) -> None:
    before = count(api)
    answer = send(api.client(), "/upload", name, content, **fields)
    assert 400 <= answer.status_code < 500
    problem = answer.json()
    assert said in problem["detail"]
    assert "/cragline-" not in problem["detail"]  # no place on the server's disk
    assert count(api) == before


def test_hostile_files_are_shown_as_text(api: Api) -> None:
    lines = f"<script>question\n{ALL_HOSTILE}\n".encode()
    answer = send(api.client(), "/upload/look", "<img src=x onerror=y>.csv", lines, column="1")
    assert answer.status_code == 200
    assert "<img" not in answer.text and "<script" not in answer.text
    assert "&lt;script&gt;" in answer.text


def test_of_several_collections_none_is_chosen_by_chance(api: Api, settings: Settings) -> None:
    def choices(name: str) -> list[str]:
        ours = Api(settings.model_copy(update={"collection": name}), api.engine, open_on_loopback=True)
        form = ours.client().get("/upload").text
        field = form.partition('id="collection" name="collection" required>')[2].partition("</select>")[0]
        return re.findall(r"<option[^>]*>([^<]*)", field)

    assert choices("docs") == ["docs", "other"]
    assert choices("nowhere") == ["choose one", "docs", "other"]


def test_no_file_and_two_files_are_refused(api: Api) -> None:
    client = api.client()
    assert client.post("/upload", data={"name": "x"}, headers=SCRIPT).status_code == 415
    two = [("file", ("a.csv", b"question\nx?\n")), ("file", ("b.csv", b"question\ny?\n"))]
    answer = client.post("/upload", files=two, headers=SCRIPT)
    assert answer.status_code == 422
    assert "one file" in answer.json()["detail"]
