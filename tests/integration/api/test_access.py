"""Who may: scopes, owners, revoked keys, rates, and this machine without a key."""

import base64
import json
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine
from typer.testing import CliRunner

from api.cli.main import app as cli
from api.security import Rates
from shared import keys
from shared.settings import Settings
from tests.integration.api.conftest import HERE, Api
from tests.integration.api.test_submit import QUESTIONS, problem
from tests.integration.cluster import read_rows

GUARDED = [
    ("GET", "/v1/batches", "read"),
    ("GET", "/v1/batches/1", "read"),
    ("GET", "/v1/batches/1/results", "read"),
    ("GET", "/v1/batches/1/events", "read"),
    ("GET", "/v1/batches/1/progress", "read"),
    ("GET", "/v1/runs/1", "read"),
    ("GET", "/v1/collections", "read"),
    ("GET", "/v1/collections/docs", "read"),
    ("GET", "/v1/ingests/x", "read"),
    ("GET", "/metrics", "read"),
    ("POST", "/v1/batches", "submit"),
    ("POST", "/v1/ingests", "submit"),
    ("POST", "/v1/batches/1/pause", "submit"),
    ("POST", "/v1/batches/1/resume", "submit"),
    ("POST", "/v1/batches/1/cancel", "submit"),
    ("POST", "/v1/batches/1/priority", "submit"),
    ("POST", "/v1/batches/1/retry", "submit"),
    ("POST", "/v1/runs/1/fork", "submit"),
]
OPEN = {"/healthz", "/readyz"}


def submit(client: TestClient, **more: Any) -> int:
    answer = client.post("/v1/batches", json={"questions": QUESTIONS, **more})
    assert answer.status_code == 201, answer.text
    return int(answer.json()["batch_id"])


@pytest.fixture(scope="module")
def keyed(settings: Settings, engine: Engine) -> Api:
    """As in a container: everybody needs a key."""
    return Api(settings, engine)


def test_every_endpoint_is_guarded_or_open_on_purpose(keyed: Api) -> None:
    listed = {
        (method.upper(), path)
        for path, operations in keyed.app.openapi()["paths"].items()
        for method in operations
    }
    known = {(method, path) for method, path, _ in GUARDED} | {("GET", path) for path in OPEN}

    def templated(path: str) -> str:
        for kind, value in (("batches", "1"), ("runs", "1"), ("ingests", "x"), ("collections", "docs")):
            name = {"batches": "batch_id", "runs": "run_id", "ingests": "ingest_id", "collections": "name"}[
                kind
            ]
            path = path.replace(f"/{kind}/{value}", f"/{kind}/{{{name}}}")
        return path

    assert {(method, templated(path)) for method, path in known} >= listed


@pytest.mark.parametrize(("method", "path", "scope"), GUARDED)
def test_a_key_with_the_scope_is_needed(keyed: Api, method: str, path: str, scope: str) -> None:
    without = problem(keyed.client().request(method, path), 401)
    assert "cragline key create" in without["detail"]
    other = "read" if scope == "submit" else "submit"
    refused = problem(keyed.client(keyed.key("x", other)).request(method, path), 403)
    assert scope in refused["detail"]
    assert keyed.client(keyed.key("x", scope)).request(method, path).status_code not in (401, 403)


@pytest.mark.parametrize(
    "authorization",
    [
        "",
        "Bearer",
        "Bearer x",
        "Bearer crag_" + "A" * 43,
        "Basic x",
        "Basic " + "=" * 8,
        "Basic \xff\xff",
        "Bearer crag_\xff",
        "Digest x",
        "crag_x",
    ],
)
def test_what_is_no_key_is_401_and_is_not_quoted(keyed: Api, authorization: str) -> None:
    headers = {b"authorization": authorization.encode("latin-1")}
    answer = keyed.client().get("/v1/batches", headers=headers)
    found = problem(answer, 401)
    assert answer.headers["www-authenticate"].startswith("Bearer ")
    assert "AAAA" not in found["detail"]


def test_a_browser_may_send_the_key_as_a_password(keyed: Api) -> None:
    login = base64.b64encode(f"anyone:{keyed.key('b')}".encode()).decode()
    headers = {"authorization": f"Basic {login}"}
    assert keyed.client().get("/v1/batches", headers=headers).status_code == 200
    answer = keyed.client().get("/v1/batches", headers={"accept": "text/html"})
    assert answer.headers["www-authenticate"].startswith("Basic ")
    from_elsewhere = headers | {"origin": "https://evil.example"}
    problem(keyed.client().get("/v1/batches", headers=from_elsewhere), 403)


def test_a_revoked_key_is_none(keyed: Api) -> None:
    number, token = keys.create(keyed.engine, "n", "o", ["read"])
    client = keyed.client(token)
    assert client.get("/v1/batches").status_code == 200
    assert keys.revoke(keyed.engine, number) == "n"
    problem(client.get("/v1/batches"), 401)


def test_a_key_is_stored_as_its_hash_alone(keyed: Api) -> None:
    number, token = keys.create(keyed.engine, "n", "o", ["read"])
    (row,) = read_rows(keyed.engine, "SELECT api_keys::text AS row FROM api_keys WHERE id = :i", i=number)
    assert token[:11] in row.row
    assert token[11:] not in row.row
    assert all("token_hash" not in one for one in keys.list_keys(keyed.engine))


def test_batches_of_others_do_not_exist(keyed: Api) -> None:
    mine, theirs = keyed.client(keyed.key("mine")), keyed.client(keyed.key("theirs"))
    batch_id = submit(mine)
    (run,) = read_rows(keyed.engine, "SELECT min(id) AS id FROM runs WHERE batch_id = :b", b=batch_id)
    nowhere = 987_654_321
    for path, number in (
        *((f"/v1/batches/{{}}{rest}", batch_id) for rest in ("", "/results", "/progress", "/events")),
        ("/v1/runs/{}", run.id),
    ):
        there = problem(theirs.get(path.format(number)), 404)
        gone = problem(theirs.get(path.format(nowhere)), 404)
        assert there["detail"].replace(f" {number}.", "") == gone["detail"].replace(f" {nowhere}.", "")
    for verb in ("pause", "resume", "cancel"):
        problem(theirs.post(f"/v1/batches/{batch_id}/{verb}"), 404)
    problem(theirs.post(f"/v1/batches/{batch_id}/priority", json={"priority": 3}), 404)
    assert [one["batch_id"] for one in theirs.get("/v1/batches").json()["batches"]] == []
    assert theirs.get("/v1/batches", params={"owner": "mine"}).json()["batches"] == []
    assert mine.get(f"/v1/batches/{batch_id}").json()["status"] == "open"
    admin = keyed.client(keyed.key("boss", "admin"))
    assert admin.get(f"/v1/batches/{batch_id}").json()["owner"] == "mine"
    assert admin.get("/v1/batches", params={"owner": "mine"}).json()["batches"][0]["batch_id"] == batch_id


@pytest.mark.parametrize("share", [{"priority": 1}, {"weight": 2}])
def test_nobody_pushes_forward_but_an_admin(keyed: Api, share: dict[str, Any]) -> None:
    client, admin = keyed.client(keyed.key("pusher")), keyed.client(keyed.key("boss", "admin"))
    batch_id = submit(client, priority=-1, weight=0.5)
    problem(client.post("/v1/batches", json={"questions": QUESTIONS, **share}), 403)
    problem(client.post(f"/v1/batches/{batch_id}/priority", json=share), 403)
    assert admin.post(f"/v1/batches/{batch_id}/priority", json=share).status_code == 200


# -- without a key ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("host", ["127.0.0.1:8585", "localhost:8585", "[::1]:8585", "LOCALHOST", "127.0.0.2"])
def test_this_machine_needs_no_key(api: Api, host: str) -> None:
    assert api.client().get("/v1/batches", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example:8585"},  # a name that was made to lead here
        {"host": "127.0.0.1.evil.example"},
        {"host": "localhost.evil.example"},
        {"host": "[broken"},
        {"host": "evil.example@127.0.0.1"},
        {"host": "127.0.0.1/evil.example"},
        {"host": ""},
        {"x-forwarded-for": "127.0.0.1"},  # a proxy stands between
        {"forwarded": "for=127.0.0.1"},
        {"via": "1.1 proxy"},
        {"x-forwarded-proto": "https"},
        {"cf-connecting-ip": "127.0.0.1"},
    ],
)
def test_what_only_looks_like_this_machine_needs_one(api: Api, headers: dict[str, str]) -> None:
    problem(api.client().get("/v1/batches", headers=headers), 401)


def test_another_machine_needs_a_key(api: Api) -> None:
    problem(api.client(host="192.168.1.7").get("/v1/batches"), 401)


def test_keys_may_be_required_of_this_machine_too(settings: Settings, engine: Engine) -> None:
    strict = settings.model_copy(update={"api_auth": "required"})
    problem(Api(strict, engine, open_on_loopback=True).client().get("/v1/batches"), 401)


@pytest.mark.parametrize(
    "headers", [{"origin": "https://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}]
)
def test_a_page_of_another_site_cannot_make_a_browser_submit(api: Api, headers: dict[str, str]) -> None:
    form = {"files": {"file": ("q.csv", b"question\nWhy?\n", "text/csv")}}
    problem(api.client().post("/v1/batches", headers=headers, **form), 403)
    own = {"origin": HERE, "sec-fetch-site": "same-origin"}
    assert api.client().post("/v1/batches", headers=own, **form).status_code == 201


# -- rates ------------------------------------------------------------------------------------------------
def test_a_key_beyond_its_rate_is_told_when_to_come_back(settings: Settings, engine: Engine) -> None:
    slow = Api(settings.model_copy(update={"api_rate": 1}), engine)
    client, other = slow.client(slow.key("fast")), slow.client(slow.key("other"))
    statuses = [client.get("/v1/collections").status_code for _ in range(11)]
    assert statuses == [200] * 10 + [429]
    answer = client.get("/v1/collections")
    problem(answer, 429)
    assert 1 <= int(answer.headers["retry-after"]) <= 61
    assert other.get("/v1/collections").status_code == 200


def test_a_bucket_fills_again() -> None:
    now = [0.0]
    rates = Rates(60, clock=lambda: now[0])
    assert [rates.wait(1) for _ in range(10)] == [0.0] * 10
    assert rates.wait(1) == pytest.approx(1.0)
    now[0] = 1.0
    assert rates.wait(1) == 0.0
    assert rates.wait(1) > 0
    now[0] = 1000.0  # it never holds more than its size
    assert [rates.wait(1) for _ in range(11)][-1] > 0


# -- the command ------------------------------------------------------------------------------------------
def test_keys_are_made_listed_and_revoked_by_the_command(keyed: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.cli.key.get_engine", lambda: keyed.engine)
    runner = CliRunner()

    def run(*words: str) -> str:
        done = runner.invoke(cli, ["key", *words])
        assert done.exit_code == 0, done.output
        return done.stdout

    token = run("create", "nightly report", "--owner", "zoe", "--scope", "read").strip()
    assert keyed.client(token).get("/v1/batches").status_code == 200
    problem(keyed.client(token).post("/v1/batches", json={"questions": ["q"]}), 403)
    listed = json.loads(run("list", "--json"))
    mine = next(one for one in listed if one["owner"] == "zoe")
    assert (mine["name"], mine["scopes"]) == ("nightly report", ["read"])
    assert mine["last_used_at"]
    run("revoke", str(mine["id"]))
    problem(keyed.client(token).get("/v1/batches"), 401)
    assert runner.invoke(cli, ["key", "create", "x", "--scope", "root"]).exit_code != 0
