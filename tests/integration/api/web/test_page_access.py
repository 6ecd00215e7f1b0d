"""Who may see and do what on the page: login, cookie, scopes, owners, and proof of our own page."""

from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine

from api.web import router
from shared import keys
from shared.settings import Settings
from tests.integration.api.conftest import HERE, Api
from tests.integration.api.web.data import add_batch
from tests.integration.cluster import read_rows

OWN = {"origin": HERE}
READING = ["/", "/upload", "/batches/1", "/batches/1/nodes", "/runs/1"]
CHANGING = [
    "/upload",
    "/upload/look",
    *(f"/batches/1/{verb}" for verb in ("pause", "resume", "cancel", "retry")),
]
FREE = {"/login", "/logout", "/static/{name:path}"}


@pytest.fixture(scope="module")
def keyed(settings: Settings, engine: Engine) -> Api:
    return Api(settings, engine)


def log_in(api: Api, token: str, **more: Any) -> TestClient:
    client = api.client(**more)
    answer = client.post("/login", data={"key": token}, headers=OWN, follow_redirects=False)
    assert answer.status_code == 303, answer.text
    return client


def test_every_route_of_the_page_is_looked_at_here() -> None:
    paths = {route.path for route in _routes(router)}
    known = {
        path.replace("/1", "/{batch_id}").replace("runs/{batch_id}", "runs/{run_id}") for path in READING
    }
    assert paths == known | {"/upload/look", "/batches/{batch_id}/{verb}"} | FREE


def _routes(included: Any) -> list[Any]:
    found = []
    for route in included.routes:
        inner = getattr(route, "original_router", None) or getattr(route, "router", None)
        found += _routes(inner) if inner is not None else [route]
    return found


@pytest.mark.parametrize("path", READING)
def test_without_a_key_a_reader_is_sent_to_the_login(keyed: Api, path: str) -> None:
    answer = keyed.client().get(f"{path}?status=", follow_redirects=False)
    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/login?next=%2F")
    asked = keyed.client().get(path, headers={"hx-request": "true"}, follow_redirects=False)
    assert asked.status_code == 401


@pytest.mark.parametrize("path", CHANGING)
def test_without_a_key_or_with_one_that_may_only_read_nothing_is_changed(keyed: Api, path: str) -> None:
    assert keyed.client().post(path, headers=OWN).status_code == 401
    reader = log_in(keyed, keyed.key("r", "read"))
    assert reader.post(path, headers=OWN).status_code == 403


def test_the_login_leads_back_and_its_cookie_is_closed_to_scripts_and_other_sites(keyed: Api) -> None:
    token = keyed.key("logger", "read")
    form = {"key": f" {token} ", "next": "/upload"}
    answer = keyed.client().post("/login", data=form, headers=OWN, follow_redirects=False)
    assert answer.headers["location"] == "/upload"
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie and "path=/" in cookie
    assert "secure" not in cookie  # plain http, as here: the browser would drop it
    proxied = OWN | {"x-forwarded-proto": "https"}
    answer = keyed.client().post("/login", data=form, headers=proxied, follow_redirects=False)
    assert "secure" in answer.headers["set-cookie"].lower()
    evil = form | {"next": "//evil.example"}
    answer = keyed.client().post("/login", data=evil, headers=OWN, follow_redirects=False)
    assert answer.headers["location"] == "/"


def test_a_wrong_key_is_said_and_not_shown_again(keyed: Api) -> None:
    answer = keyed.client().post("/login", data={"key": "crag_" + "A" * 43}, headers=OWN)
    assert answer.status_code == 401
    assert "not valid" in answer.text and "AAAA" not in answer.text
    assert "set-cookie" not in answer.headers


def test_logging_out_and_revoking_end_it(keyed: Api) -> None:
    number, token = keys.create(keyed.engine, "n", "leaver", ["read"])
    client = log_in(keyed, token)
    assert "leaver" in client.get("/").text
    assert client.get("/v1/batches").status_code == 200  # a download is a link to the API
    assert client.post("/v1/batches", headers={"origin": "https://evil.example"}).status_code == 403
    client.post("/logout", headers=OWN)
    assert client.get("/", follow_redirects=False).status_code == 303
    client = log_in(keyed, token)
    keys.revoke(keyed.engine, number)
    answer = client.get("/", follow_redirects=False)
    assert answer.status_code == 303
    assert 'cragline_key=""' in answer.headers["set-cookie"]


def test_batches_of_others_do_not_exist(keyed: Api) -> None:
    batch, (run,) = add_batch(keyed.engine, ["mine?"], name="mine alone", owner="mine")
    theirs, mine, admin = (
        log_in(keyed, keyed.key(who, *scopes))
        for who, scopes in (
            ("theirs", ("read", "submit")),
            ("mine", ("read", "submit")),
            ("boss", ("admin",)),
        )
    )
    for path in (f"/batches/{batch}", f"/batches/{batch}/nodes", f"/runs/{run}"):
        assert theirs.get(path).status_code == 404
        assert mine.get(path).status_code == admin.get(path).status_code == 200
    assert "mine alone" not in theirs.get("/").text
    assert "mine alone" in mine.get("/").text
    assert theirs.post(f"/batches/{batch}/cancel", headers=OWN).status_code == 404
    assert "mine alone" in admin.get("/?name=mine").text


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
@pytest.mark.parametrize("path", ["/batches/{}/cancel", "/upload", "/login", "/logout"])
def test_another_sites_page_changes_nothing(api: Api, headers: dict[str, str], path: str) -> None:
    batch, _ = add_batch(api.engine, ["q?"])
    answer = api.client().post(path.format(batch), headers=headers, data={"key": "x"})
    assert answer.status_code == 403
    (row,) = read_rows(api.engine, "SELECT status FROM batches WHERE id = :b", b=batch)
    assert row.status == "open"


def test_nothing_is_changed_by_a_get(api: Api) -> None:
    batch, _ = add_batch(api.engine, ["q?"])
    for verb in ("pause", "cancel", "resume", "retry"):
        assert api.client().get(f"/batches/{batch}/{verb}").status_code in (404, 405)


@pytest.mark.parametrize("proof", [OWN, {"sec-fetch-site": "same-origin"}, {"hx-request": "true"}])
def test_buttons_do_what_they_say(api: Api, proof: dict[str, str]) -> None:
    going, _ = add_batch(api.engine, ["q?"])
    ended, _ = add_batch(api.engine, ["q?"], ["failed"])
    client = api.client()
    acts = [(going, "pause", "paused"), (going, "resume", "open"), (going, "cancel", "cancelled")]
    for batch, verb, status in [*acts, (ended, "retry", "open")]:
        answer = client.post(f"/batches/{batch}/{verb}", headers=proof, follow_redirects=False)
        assert answer.status_code in (200, 303), (verb, answer.text)
        if "hx-request" in proof:
            assert answer.status_code == 200
            assert f'<span class="tag {status}">{status}</span>' in answer.text
        else:
            assert answer.headers["location"] == f"/batches/{batch}"
        (row,) = read_rows(api.engine, "SELECT status FROM batches WHERE id = :b", b=batch)
        assert row.status == status


def test_an_act_that_cannot_be_done_says_why(api: Api) -> None:
    batch, _ = add_batch(api.engine, ["q?"], ["answered"])
    answer = api.client().post(f"/batches/{batch}/pause", headers={"hx-request": "true"})
    assert answer.status_code == 409
    assert "ended" in answer.json()["detail"]


def test_on_this_machine_no_login_is_asked_for_and_an_old_cookie_does_not_matter(api: Api) -> None:
    client = api.client()
    client.cookies.set("cragline_key", "crag_" + "x" * 43)
    assert client.get("/").status_code == 200
    assert client.get("/login", follow_redirects=False).headers["location"] == "/"
