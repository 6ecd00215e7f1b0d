"""`POST /v1/batches`: every way in, one result; limits; repeated requests."""

import io
import json
from typing import Any

import openpyxl
import pytest
from fastapi.testclient import TestClient
from pydantic import ValidationError
from sqlalchemy import Engine

from api.schemas import BatchBody
from api.uploads import XLSX
from tests.integration.api.conftest import Api
from tests.integration.cluster import read_rows
from tests.integration.runner.bench import at_once

QUESTIONS = ["How old is it?", "Who made it?"]
CSV = "id,question\n1,How old is it?\n2,Who made it?\n"
LINES = "".join(json.dumps({"id": n, "question": q}) + "\n" for n, q in enumerate(QUESTIONS))


def workbook() -> bytes:
    """A first sheet that is no list of questions, and a second whose header is in row 2."""
    book = openpyxl.Workbook()
    book.active["A1"] = "Read me"
    sheet = book.create_sheet("Questions")
    for row in (["All our questions"], ["id", "question"], *enumerate(QUESTIONS)):
        sheet.append(list(row))
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


def questions_of(engine: Engine, batch_id: int) -> list[str]:
    query = "SELECT question FROM runs WHERE batch_id = :b ORDER BY first_row"
    return [row.question for row in read_rows(engine, query, b=batch_id)]


def problem(answer: Any, status: int) -> dict[str, Any]:
    """The problem document of an answer, which must be one."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    found: dict[str, Any] = answer.json()
    assert found["status"] == status and found["detail"] and found["title"]
    return found


WAYS = {
    "json": {"json": {"name": "n", "questions": [{"id": 1, "question": q} for q in QUESTIONS]}},
    "texts": {"json": {"name": "n", "questions": QUESTIONS}},
    "lines": {"content": LINES, "headers": {"content-type": "application/x-ndjson"}},
    "csv": {"content": CSV, "headers": {"content-type": "text/csv; charset=utf-8"}},
    "tsv": {
        "content": CSV.replace(",", "\t"),
        "headers": {"content-type": "text/tab-separated-values"},
    },
    "txt": {"content": "\n".join(QUESTIONS), "headers": {"content-type": "text/plain"}},
    "xlsx": {"content": workbook(), "headers": {"content-type": XLSX}},
    "sheet": {
        "content": workbook(),
        "params": {"sheet": "Questions", "header_row": 2},
        "headers": {"content-type": XLSX},
    },
    "named": {
        "content": CSV,
        "params": {"filename": "a b.csv"},
        "headers": {"content-type": "application/octet-stream"},
    },
    "form": {"files": {"file": ("q.csv", io.BytesIO(CSV.encode()), "text/csv")}, "data": {"name": "n"}},
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_in_stores_the_same_questions(local: TestClient, engine: Engine, way: str) -> None:
    answer = local.post("/v1/batches", **WAYS[way])
    assert answer.status_code == 201, answer.text
    made = answer.json()
    assert questions_of(engine, made["batch_id"]) == QUESTIONS
    assert (made["rows"], made["questions"], made["empty_rows"], made["repeated"]) == (2, 2, 0, False)
    assert answer.headers["location"] == f"/v1/batches/{made['batch_id']}"
    (row,) = read_rows(engine, "SELECT owner, name FROM batches WHERE id = :b", b=made["batch_id"])
    assert row.owner == "local"


def test_options_of_the_query_the_form_and_the_document_reach_the_plan(
    local: TestClient, engine: Engine
) -> None:
    raw = {"content": CSV, "headers": {"content-type": "text/csv"}}
    query = {"pipeline": "rag", "set": ["k=7"], "filter": ["page=3"], "column": "question", "name": "mine"}
    form = {"files": {"file": ("q.csv", CSV.encode(), "text/csv")}}
    document = {"pipeline": "rag", "name": "mine", "settings": {"k": 7, "filter": {"page": 3}}}
    for sent in (
        {**raw, "params": query},
        {**form, "data": query},
        {"json": {**document, "questions": QUESTIONS}},
    ):
        batch_id = local.post("/v1/batches", **sent).json()["batch_id"]
        found = local.get(f"/v1/batches/{batch_id}").json()
        assert (found["pipeline"], found["name"]) == ("rag", "mine")
        assert (found["plan"]["params"]["k"], found["plan"]["params"]["filter"]) == (7, {"page": ["3"]})


@pytest.mark.parametrize(
    ("sent", "status", "word", "says"),
    [
        ({"json": {"questions": []}}, 422, "invalid-request", "questions"),
        ({"json": {"questions": ["q"], "pipelin": "rag"}}, 422, "invalid-request", "pipelin"),
        ({"json": {"questions": ["q"], "pipeline": "nope"}}, 422, "usage", "There are: "),
        ({"json": {"questions": ["q"]}, "params": {"pipeline": "rag"}}, 422, "usage", "not in the query"),
        ({"json": {"questions": ["q"], "settings": {"k": 0}}}, 422, "usage", "k=0"),
        ({"json": {"questions": ["q"], "collection": "nope"}}, 404, "not-found", "cragline ingest"),
        ({"json": {"questions": ["q"], "collection": "other"}}, 409, "dimension-mismatch", "openai/x"),
        ({"content": b"{", "headers": {"content-type": "application/json"}}, 422, "invalid-request", "JSON"),
        ({"content": b"q", "headers": {"content-type": "image/png"}}, 415, "media-type", "text/csv"),
        ({"content": b"", "headers": {"content-type": "text/csv"}}, 422, "intake", "empty"),
        ({"content": CSV, "params": {"nme": "x"}, "headers": {"content-type": "text/csv"}}, 422, "invalid-request",
         "nme"),
        ({"data": {"name": "n"}, "files": {}}, 415, "media-type", "multipart"),
        ({"files": [("file", ("a.csv", b"q")), ("file", ("b.csv", b"q"))]}, 422, "form", "2 files"),
    ],
)  # fmt: skip
def test_what_cannot_be_taken_is_a_problem_that_says_what_to_do(
    local: TestClient, engine: Engine, sent: dict[str, Any], status: int, word: str, says: str
) -> None:
    before = read_rows(engine, "SELECT count(*) FROM batches")
    found = problem(local.post("/v1/batches", **sent), status)
    assert found["type"] == f"urn:cragline:problem:{word}"
    assert says in found["detail"]
    assert read_rows(engine, "SELECT count(*) FROM batches") == before


@pytest.mark.parametrize(
    "document",
    [
        b'{"questions":[' + b"1," * 10_000 + b"1]}",
        json.dumps({"questions": ["q"], **{str(number): 0 for number in range(10_000)}}).encode(),
    ],
    ids=["no questions", "no fields"],
)  # fmt: skip
def test_a_thousand_mistakes_are_not_a_thousand_errors(local: TestClient, document: bytes) -> None:
    """Else a body of 16 MB takes as many gigabytes."""
    with pytest.raises(ValidationError) as refused:
        BatchBody.model_validate_json(document)
    assert refused.value.error_count() <= 2  # neither a text nor an object
    sent = {"content": document, "headers": {"content-type": "application/json"}}
    assert len(problem(local.post("/v1/batches", **sent), 422)["errors"]) <= 2


def test_the_errors_that_are_told_are_few(local: TestClient) -> None:
    place = "/v1/batches/1/pause"
    found = problem(local.post(place, json={f"field{number}": 1 for number in range(2000)}), 422)
    assert 1 < len(found["errors"]) <= 50


def test_a_bad_row_is_named_and_no_place_of_the_server(local: TestClient) -> None:
    lines = LINES + "{broken\n"
    found = problem(
        local.post("/v1/batches", content=lines, headers={"content-type": "application/x-ndjson"}), 422
    )
    assert found["row"] == 3
    assert found["detail"].startswith("questions.jsonl: ")
    assert "/tmp" not in found["detail"]


def test_too_many_rows_and_too_many_bytes_are_refused(local: TestClient) -> None:
    csv = {"content-type": "text/csv"}
    rows = "question\n" + "".join(f"How {n}?\n" for n in range(501))
    found = problem(local.post("/v1/batches", content=rows, headers=csv), 422)
    assert (found["row"], "at most 500 rows" in found["detail"]) == (501, True)
    large = b"question\n" + b"x" * 2_000_001
    problem(local.post("/v1/batches", content=large, headers=csv), 413)

    def unannounced() -> Any:  # chunked: no Content-Length to look at
        yield from (large[at : at + 100_000] for at in range(0, len(large), 100_000))

    problem(local.post("/v1/batches", content=unannounced(), headers=csv), 413)
    form = {"file": ("q.csv", large, "text/csv")}
    problem(local.post("/v1/batches", files=form), 413)
    problem(local.post("/v1/ingests", json={"urls": ["https://x.org/" + "y" * 2_000_000]}), 413)


def test_the_same_key_and_content_is_the_same_batch(local: TestClient, engine: Engine) -> None:
    headers = {"content-type": "text/csv", "idempotency-key": "one"}
    first = local.post("/v1/batches", content=CSV, headers=headers)
    second = local.post("/v1/batches", content=CSV, headers=headers)
    assert (first.status_code, second.status_code) == (201, 200)
    assert second.json() == first.json() | {"repeated": True}
    other = local.post("/v1/batches", content=CSV + "3,Why?\n", headers=headers)
    assert problem(other, 409)["type"].endswith("idempotency-key")
    options = local.post("/v1/batches", content=CSV, headers=headers, params={"set": "k=9"})
    problem(options, 409)


def test_a_key_is_free_again_when_its_request_failed(local: TestClient) -> None:
    headers = {"content-type": "text/csv", "idempotency-key": "two"}
    problem(local.post("/v1/batches", content="question\n", headers=headers), 422)
    assert local.post("/v1/batches", content=CSV, headers=headers).status_code == 201


def test_two_at_once_with_one_key_are_one_batch(api: Api, engine: Engine) -> None:
    headers = {"content-type": "text/csv", "idempotency-key": "three"}
    client = api.client()
    answers = at_once([lambda: client.post("/v1/batches", content=CSV, headers=headers)] * 4)
    assert sorted(answer.status_code for answer in answers) == [200, 200, 200, 201]
    assert len({answer.json()["batch_id"] for answer in answers}) == 1


def test_keys_of_two_owners_are_two_keys(api: Api) -> None:
    headers = {"content-type": "text/csv", "idempotency-key": "four"}
    made = [
        api.client(api.key(owner)).post("/v1/batches", content=CSV, headers=headers) for owner in ("a", "b")
    ]
    assert [answer.status_code for answer in made] == [201, 201]


def test_the_upload_is_gone_afterwards(
    local: TestClient, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    local.post("/v1/batches", content=CSV, headers={"content-type": "text/csv"})
    problem(local.post("/v1/batches", content=b"", headers={"content-type": "text/csv"}), 422)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "kept"),
    [("../../etc/passwd.csv", "passwd.csv"), ("C:\\x\\q.csv", "q.csv"), (".csv", "csv"), ("a\x00b.csv", "a_b.csv")],
)  # fmt: skip
def test_a_file_name_is_no_path(name: str, kept: str) -> None:
    from api.uploads import usable_name

    assert usable_name(name, "text/csv") in (kept, f"{kept}.csv")


def test_a_file_name_in_a_wide_script_fits_the_file_system(local: TestClient) -> None:
    for path, status in (("/v1/batches", 201), ("/v1/ingests", 202)):
        ending = "csv" if status == 201 else "md"
        sent = ("file", ("問" * 120 + f".{ending}", CSV.encode()))
        assert local.post(path, files=[sent]).status_code == status
