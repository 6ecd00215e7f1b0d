"""Lists, results, progress events, runs, control, errors, headers, what the log says."""

import csv
import io
import json
from typing import Any

import openpyxl
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine, text
from structlog.testing import capture_logs

from api.routes import progress as events
from api.routes.results import negotiated
from api.uploads import XLSX
from shared import control, history
from shared.db import transaction
from tests.integration.api.conftest import Api
from tests.integration.api.test_access import submit
from tests.integration.api.test_submit import CSV, QUESTIONS, problem


def answer_all(engine: Engine, batch_id: int, answer: str = "Old.") -> None:
    """As if the workers had answered every question."""
    with transaction(engine) as session:
        values = {"b": batch_id, "a": answer}
        runs = (
            "UPDATE runs SET status = 'answered', answer = :a, ended_at = now(), step = 1 WHERE batch_id = :b"
        )
        session.execute(text(runs), values)
        session.execute(text("UPDATE batches SET status = 'ended', ended_at = now() WHERE id = :b"), values)


def test_pages_hold_every_batch_once_newest_first(api: Api) -> None:
    client = api.client(api.key("pager"))
    made = [submit(client, name=f"page {n}") for n in range(5)]
    seen, cursor, pages = [], None, 0
    while True:
        params = {"limit": 2} | ({"cursor": cursor} if cursor else {})
        page = client.get("/v1/batches", params=params).json()
        seen += [one["batch_id"] for one in page["batches"]]
        cursor, pages = page["next_cursor"], pages + 1
        if pages == 1:
            made.append(submit(client, name="came later"))  # does not move the pages
        if cursor is None:
            break
    assert seen == made[4::-1]
    assert pages == 3


@pytest.mark.parametrize(
    ("params", "found"),
    [
        ({"status": "ended"}, ["done"]),
        ({"status": "open"}, ["Second", "first"]),
        ({"pipeline": "rag"}, ["Second"]),
        ({"name": "SECO"}, ["Second"]),
        ({"name": "%"}, []),
        ({"collection": "docs", "limit": 1}, ["done"]),
        ({"collection": "elsewhere"}, []),
    ],
)
def test_filters(api: Api, params: dict[str, Any], found: list[str]) -> None:
    client = api.client(api.key("filterer"))
    if not client.get("/v1/batches").json()["batches"]:
        submit(client, name="first")
        submit(client, name="Second", pipeline="rag")
        answer_all(api.engine, submit(client, name="done"))
    batches = client.get("/v1/batches", params=params).json()["batches"]
    assert [one["name"] for one in batches] == found


@pytest.mark.parametrize("cursor", ["x", "b", "b-1", "b0", "b99999999999999999999", "b1 OR 1=1", "b１"])
def test_a_made_up_cursor_is_refused(local: TestClient, cursor: str) -> None:
    problem(local.get("/v1/batches", params={"cursor": cursor}), 422)


# -- results ----------------------------------------------------------------------------------------------
def test_results_keep_the_rows_and_are_harmless_to_spreadsheets(api: Api) -> None:
    client = api.client()
    made = client.post("/v1/batches", content=CSV, headers={"content-type": "text/csv"}).json()
    answer_all(api.engine, made["batch_id"], "=HYPERLINK()")
    place = f"/v1/batches/{made['batch_id']}/results"
    answer = client.get(place)
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert [row["question"] for row in rows] == QUESTIONS
    assert {row["answer"] for row in rows} == {"'=HYPERLINK()"}
    assert client.get(place, params={"bom": True}).content.startswith(b"\xef\xbb\xbf")
    lines = client.get(place, headers={"accept": "application/x-ndjson"})
    assert [json.loads(line)["answer"] for line in lines.text.splitlines()] == ["=HYPERLINK()"] * 2
    assert client.get(place, params={"format": "jsonl"}).text == lines.text
    raw = client.get(place, params={"raw": True}).text
    assert {row["answer"] for row in csv.DictReader(io.StringIO(raw))} == {"=HYPERLINK()"}
    book = client.get(place, headers={"accept": XLSX})
    assert book.headers["content-type"] == XLSX
    header, *cells = (
        openpyxl.load_workbook(io.BytesIO(book.content)).worksheets[0].iter_rows(values_only=True)
    )
    found = [dict(zip(header, row, strict=True)) for row in cells]
    assert [(row["question"], row["answer"]) for row in found] == [(q, "=HYPERLINK()") for q in QUESTIONS]
    problem(client.get(place, headers={"accept": "image/png"}), 406)
    problem(client.get(place, params={"format": "pdf"}), 422)


def test_results_go_over_pages_and_blocks(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.history._PAGE", 7)
    monkeypatch.setattr("api.routes.results._CHUNK", 100)
    client = api.client()
    batch_id = submit(client, questions=[f"Question {n}?" for n in range(50)])
    answer = client.get(f"/v1/batches/{batch_id}/results", params={"format": "jsonl"})
    asked = [json.loads(line)["question"] for line in answer.text.splitlines()]
    assert asked == [f"Question {n}?" for n in range(50)]


@pytest.mark.parametrize(
    ("name", "plain", "whole"),
    [
        ('täst "x".csv', "t_st_x", "t%C3%A4st%20%22x%22"),
        ("a\r\nSet-Cookie: x", "a_Set-Cookie_x", "a%0D%0ASet-Cookie%3A%20x"),
    ],
)
def test_the_name_of_a_download_breaks_no_header(api: Api, name: str, plain: str, whole: str) -> None:
    client = api.client()
    batch_id = submit(client, name=name)
    answer = client.get(f"/v1/batches/{batch_id}/results")
    ending = f"-results-{batch_id}.csv"
    expected = f"attachment; filename=\"{plain}{ending}\"; filename*=UTF-8''{whole}{ending}"
    assert answer.headers["content-disposition"] == expected
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        ("", "csv"),
        ("*/*", "csv"),
        ("text/csv", "csv"),
        ("application/x-ndjson, text/csv;q=0.5", "jsonl"),
        ("application/x-ndjson;q=0.1, text/csv;q=0.5", "csv"),
        ("text/html, application/xhtml+xml, */*;q=0.8", "csv"),
        ("application/jsonl", "jsonl"),
        ("text/csv;q=0, application/ndjson", "jsonl"),
        ("text/csv;q=much, application/ndjson;q=0.1", "jsonl"),
    ],
)
def test_accept_decides(accept: str, chosen: str) -> None:
    assert negotiated(accept) == chosen


# -- progress events --------------------------------------------------------------------------------------
def told(body: str) -> list[tuple[str, str, dict[str, Any]]]:
    """(id, event, data) of each event."""
    found = []
    for block in body.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if "data" in fields:
            found.append((fields["id"], fields["event"], json.loads(fields["data"])))
    return found


def test_events_end_with_the_batch_and_are_not_told_twice(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "POLL_SECONDS", 0.01)
    client = api.client()
    batch_id = submit(client)
    looks = iter(range(100))
    real = events.history.progress

    def progress(engine: Engine, number: int) -> dict[str, Any]:
        if next(looks) == 3:
            answer_all(engine, number)
        return real(engine, number)

    monkeypatch.setattr(events.history, "progress", progress)
    answer = client.get(f"/v1/batches/{batch_id}/progress")
    assert answer.headers["content-type"].startswith("text/event-stream")
    seen = told(answer.text)
    assert [(kind, data["open"]) for _, kind, data in seen] == [("progress", 2), ("end", 0)]
    last = seen[-1][0]
    again = client.get(f"/v1/batches/{batch_id}/progress", headers={"last-event-id": last})
    assert (again.status_code, again.content) == (204, b"")
    older = client.get(f"/v1/batches/{batch_id}/progress", headers={"last-event-id": seen[0][0]})
    assert [kind for _, kind, _ in told(older.text)] == ["end"]


def test_a_stream_taken_up_again_does_not_repeat_what_was_seen(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "POLL_SECONDS", 0.01)
    client = api.client()
    batch_id = submit(client)
    row = events.as_progress(events.history.progress(api.engine, batch_id)).model_dump(mode="json")
    real = events.history.progress
    looks = iter(range(100))

    def progress(engine: Engine, number: int) -> dict[str, Any]:
        if next(looks) == 2:
            control.cancel(engine, number, actor="test")
        return real(engine, number)

    monkeypatch.setattr(events.history, "progress", progress)
    headers = {"last-event-id": events.event_id(row)}
    seen = told(client.get(f"/v1/batches/{batch_id}/progress", headers=headers).text)
    assert [(kind, data["status"]) for _, kind, data in seen] == [("end", "cancelled")]


def test_streams_are_bounded_and_their_places_become_free_again(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = api.client()
    batch_id = submit(client)
    answer_all(api.engine, batch_id)
    place = f"/v1/batches/{batch_id}/progress"
    assert told(client.get(place).text)
    assert api.app.state.cragline.streams == 0
    monkeypatch.setattr(api.app.state.cragline, "streams", events.MAX_STREAMS)
    problem(client.get(place), 429)


# -- runs and acts ----------------------------------------------------------------------------------------
def test_a_run_is_shown_with_its_timeline(local: TestClient, engine: Engine) -> None:
    batch_id = submit(local)
    with transaction(engine) as session:
        run_id = session.scalar(text("SELECT min(id) FROM runs WHERE batch_id = :b"), {"b": batch_id})
        session.execute(
            text(
                "INSERT INTO transitions (month, run_id, batch_id, step, branch, attempt, node, status,"
                " came_from, goes_to, started_at, ended_at, duration_ms) SELECT month, :r, id, 1, 0, 1,"
                " 'retrieve', 'succeeded', '{__start__}', '{decide}', now(), now(), 12.5 FROM batches WHERE id = :b"
            ),
            {"r": run_id, "b": batch_id},
        )
    run = local.get(f"/v1/runs/{run_id}").json()
    assert run["question"] == QUESTIONS[0]
    assert [(step["node"], step["duration_ms"]) for step in run["timeline"]] == [("retrieve", 12.5)]
    forked = local.post(f"/v1/runs/{run_id}/fork", json={"step": 1, "settings": {"k": 9}})
    problem(forked, 409)  # it has not begun
    problem(local.get("/v1/runs/99999999"), 404)
    problem(local.get("/v1/runs/0"), 422)
    problem(local.get(f"/v1/runs/{2**63}"), 422)


def test_acts_change_the_batch_and_leave_events(local: TestClient, engine: Engine) -> None:
    batch_id = submit(local, priority=2)
    place = f"/v1/batches/{batch_id}"
    paused = local.post(f"{place}/pause", json={"reason": "too dear"}).json()
    assert (paused["status"], paused["changed"], paused["reason"]) == ("paused", True, "too dear")
    assert local.post(f"{place}/pause").json()["changed"] is False
    assert local.post(f"{place}/resume").json()["status"] == "open"
    assert local.post(f"{place}/priority", json={"priority": 5}).json()["changed"] is True
    problem(local.post(f"{place}/priority", json={}), 422)
    problem(local.post(f"{place}/priority", json={"priority": 10**6}), 422)
    problem(local.post(f"{place}/retry"), 409)  # nothing has failed
    assert local.post(f"{place}/cancel").json()["runs"] == 2
    found = problem(local.post(f"{place}/cancel"), 409)
    assert "was cancelled" in found["detail"]
    again = {"dispositions": ["cancelled"], "dry_run": True}
    assert local.post(f"{place}/retry", json=again).json()["runs"] == 2
    assert local.get(place).json()["status"] == "cancelled"
    assert local.post(f"{place}/retry", json=again | {"dry_run": False}).json()["status"] == "open"
    listed = local.get(f"{place}/events").json()
    assert [event["action"] for event in listed][:2] == ["submitted", "paused"]
    with transaction(engine) as session:
        query = "SELECT action, actor FROM events WHERE batch_id = :b AND run_id IS NULL ORDER BY id"
        acts = [tuple(row) for row in session.execute(text(query), {"b": batch_id})]
    assert [act for act, _ in acts] == [
        "submitted",
        "paused",
        "resumed",
        "reprioritised",
        "cancelled",
        "retried",
    ]
    assert {actor for _, actor in acts} == {"local"}


# -- errors, headers, log ---------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nope", 404),
        ("GET", "/v1/nope", 404),
        ("DELETE", "/v1/batches", 405),
        ("GET", "/v1/batches/x", 422),
        ("GET", "/v1/batches/-1", 422),
        ("GET", "/v1/batches?limit=0", 422),
        ("GET", "/v1/collections/nope", 404),
        ("GET", "/v1/ingests/nope", 404),
    ],
)
def test_every_error_is_a_problem_document(local: TestClient, method: str, path: str, status: int) -> None:
    found = problem(local.request(method, path), status)
    assert found["instance"] == path.split("?")[0]


def test_a_page_of_results_is_cut_before_it_is_joined(engine: Engine) -> None:
    """Of a batch that no statistics know of each page would else join all that is left: with 100,000 rows a
    hundred times too much."""
    with transaction(engine) as session:
        values = {"id": 1, "after": 0, "page": 10}
        plan = session.scalar(text(f"EXPLAIN (FORMAT JSON) {history._RESULTS}"), values)

    def joins(node: dict[str, Any]) -> bool:
        below = node.get("Plans", [])
        return "Join" in node["Node Type"] or "Loop" in node["Node Type"] or any(map(joins, below))

    def limits(node: dict[str, Any]) -> list[dict[str, Any]]:
        below = [found for one in node.get("Plans", []) for found in limits(one)]
        return [node, *below] if node["Node Type"] == "Limit" else below

    assert joins(plan[0]["Plan"])
    assert [joins(limit) for limit in limits(plan[0]["Plan"])] == [False]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/v1/batches?name=%00", None),
        ("GET", "/v1/batches?status=a%00", None),
        ("GET", "/v1/collections/a%00", None),
        ("GET", "/v1/ingests/a%00", None),
        ("POST", "/v1/batches", {"questions": ["q"], "collection": "a\0"}),
        ("POST", "/v1/ingests", {"urls": ["https://a.example/"], "include": ["\0"]}),
    ],
)
def test_nul_where_text_is_looked_for_is_the_senders_mistake(
    local: TestClient, method: str, path: str, body: Any
) -> None:
    assert "NUL" in problem(local.request(method, path, json=body), 422)["detail"]


def test_nul_in_the_search_of_a_page_is_told_on_a_page(local: TestClient) -> None:
    answer = local.get("/?name=%00")
    assert (answer.status_code, "NUL" in answer.text) == (422, True)


def test_a_mistake_of_ours_tells_nothing(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(engine: Engine) -> None:
        raise RuntimeError("secret words")

    monkeypatch.setattr("shared.knowledge.list_collections", broken)
    with capture_logs() as lines:
        answer = api.client().get("/v1/collections")
    assert "secret" not in json.dumps(problem(answer, 500))
    assert [type(line["exc_info"]) for line in lines if line["log_level"] == "error"] == [RuntimeError]
    assert answer.headers["content-security-policy"]


def test_a_database_that_is_away_is_503(settings: Any) -> None:
    from shared.db import make_engine

    nowhere = make_engine("postgresql://user:hunter2@127.0.0.1:1/none")
    client = Api(settings, nowhere, open_on_loopback=True).client()
    answer = client.get("/v1/batches")
    found = problem(answer, 503)
    assert answer.headers["retry-after"]
    assert "hunter2" not in json.dumps(found)
    assert client.get("/healthz").status_code == 200
    ready = client.get("/readyz")
    assert ready.status_code == 503
    assert "hunter2" not in ready.text


def test_answers_carry_the_security_headers(local: TestClient) -> None:
    for path in ("/healthz", "/nope", "/v1/openapi.json"):
        headers = local.get(path).headers
        assert "script-src 'self'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"


def test_the_log_has_neither_query_nor_body_nor_key(api: Api) -> None:
    token = api.key("logged")
    with capture_logs() as lines:
        api.client(token).post(
            "/v1/batches",
            params={"name": "hunter2"},
            content="question\nWhat is hunter2?\n",
            headers={"content-type": "text/csv"},
        )
        api.client(token).get("/hunter2")
    assert [(line["route"], line["status"]) for line in lines if line["event"] == "request"] == [
        ("/v1/batches", 201),
        ("-", 404),
    ]
    assert "hunter2" not in str(lines)
    assert token not in str(lines)
