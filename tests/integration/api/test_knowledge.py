"""Collections and ingest by HTTP: what is put in line, and what is refused."""

from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine

from shared.settings import Settings
from tests.integration.api.conftest import Api
from tests.integration.api.test_submit import problem
from tests.integration.cluster import read_rows


def lined_up(engine: Engine, ingest_id: str) -> list[tuple[str, str, str]]:
    query = "SELECT collection, kind, path FROM ingest_files WHERE ingest_id = :i ORDER BY id"
    return [tuple(row) for row in read_rows(engine, query, i=ingest_id)]


def test_uploaded_files_get_a_lasting_place_and_a_row_each(
    local: TestClient, engine: Engine, settings: Settings
) -> None:
    files = [("file", ("a.md", b"# A\n")), ("file", ("../b c.txt", b"B"))]
    place = settings.home / "uploads" / "notes"
    for text in (b"# A\n", b"# A, changed\n"):
        files[0] = ("file", ("a.md", text))
        answer = local.post("/v1/ingests", files=files, data={"collection": "notes"})
        assert answer.status_code == 202, answer.text
        told = answer.json()
        assert (told["collection"], told["files"]) == ("notes", 2)
        expected = [("notes", "file", str(place / name)) for name in ("a.md", "b c.txt")]
        assert lined_up(engine, told["ingest_id"]) == expected
        assert (place / "a.md").read_bytes() == text
    assert sorted(path.name for path in place.iterdir()) == ["a.md", "b c.txt"]
    progress = local.get(f"/v1/ingests/{told['ingest_id']}").json()
    assert (progress["files"], progress["pending"], progress["ended"]) == (2, 2, False)


def test_addresses_are_put_in_line_with_their_options(local: TestClient, engine: Engine) -> None:
    body = {"urls": ["https://example.com/a", "git+https://example.com/r"], "depth": 2}
    told = local.post("/v1/ingests", json=body).json()
    found = lined_up(engine, told["ingest_id"])
    assert [(kind, path) for _, kind, path in found] == [
        ("site", "https://example.com/a"),
        ("repository", "git+https://example.com/r"),
    ]
    options = read_rows(engine, "SELECT options FROM ingest_files WHERE ingest_id = :i", i=told["ingest_id"])
    assert {(row.options["depth"], row.options["allow_private"]) for row in options} == {(2, False)}


def test_paths_are_for_admins_on_this_machine(
    api: Api, local: TestClient, engine: Engine, tmp_path: Path
) -> None:
    (tmp_path / "x.md").write_text("X")
    body = {"paths": [str(tmp_path)]}
    assert local.post("/v1/ingests", json=body).status_code == 202
    problem(api.client(api.key("p")).post("/v1/ingests", json=body), 403)
    problem(api.client(api.key("p", "admin"), host="10.0.0.9").post("/v1/ingests", json=body), 403)
    problem(
        api.client(api.key("p")).post("/v1/ingests", json={"urls": ["https://x.org"], "prune": True}), 403
    )


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        ({"json": {"urls": ["file:///etc/passwd"]}}, 422),
        ({"json": {"urls": ["/etc/passwd"]}}, 422),
        ({"json": {"urls": ["git+file:///srv/repo"]}}, 422),
        ({"json": {"urls": ["git@host:repo"]}}, 422),
        ({"json": {"urls": ["https://user:hunter2@example.com/"]}}, 422),
        ({"json": {"urls": ["https://x.org"], "collection": "../x"}}, 422),
        ({"json": {"urls": []}}, 422),
        ({"json": {"paths": ["relative.md"]}}, 422),
        ({"json": {"paths": ["/nowhere/at/all.md"]}}, 404),
        ({"json": {"url": "https://x.org"}}, 422),
        ({"files": {"file": ("x.exe", b"x")}}, 422),
        ({"files": {"file": ("x.md", b"x")}, "data": {"collection": "../x"}}, 422),
        ({"files": {"file": ("x.md", b"x")}, "data": {"colection": "x"}}, 422),
        ({"content": b"x", "headers": {"content-type": "text/plain"}}, 422),
    ],
)
def test_what_cannot_be_ingested_is_refused_at_once(
    local: TestClient, engine: Engine, sent: dict[str, Any], status: int
) -> None:
    before = read_rows(engine, "SELECT count(*) FROM ingest_files")
    found = problem(local.post("/v1/ingests", **sent), status)
    assert "hunter2" not in str(found)
    assert read_rows(engine, "SELECT count(*) FROM ingest_files") == before


def test_collections_are_shown(local: TestClient) -> None:
    found = {one["name"]: one for one in local.get("/v1/collections").json()}
    assert (found["docs"]["documents"], found["docs"]["chunks"]) == (1, 2)
    assert local.get("/v1/collections/docs").json()["sources"][0]["documents"] == 1
