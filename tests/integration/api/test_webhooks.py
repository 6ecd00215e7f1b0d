"""The news of a batch's end: signed, retried from its row, never to an address of one's own network."""

import base64
import hmac
import json
from hashlib import sha256
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine, text

from shared.db import transaction
from shared.settings import Settings
from tests.fakes.http_fake import FakeServer, Reply
from tests.integration.api.conftest import Api
from tests.integration.api.test_access import submit
from tests.integration.api.test_reading import answer_all
from tests.integration.api.test_submit import problem
from workers import webhooks

SECRET = "whsec-test"


class Receiver(FakeServer):
    """Answers with the statuses that are laid out, then with 200."""

    def __init__(self, *statuses: int) -> None:
        super().__init__()
        self.statuses = list(statuses)
        self.calls: list[tuple[dict[str, Any], dict[str, str]]] = []

    def reply_to(self, path: str, payload: dict[str, Any], headers: dict[str, str]) -> tuple[str, Reply]:
        self.calls.append((payload, headers))
        return "hook", Reply(self.statuses.pop(0) if self.statuses else 200, {"redirected": True})


@pytest.fixture
def nearby(settings: Settings) -> Settings:
    """Settings that permit calls within this machine."""
    return settings.model_copy(update={"webhook_allow_private": True})


@pytest.fixture
def client(nearby: Settings, engine: Engine) -> TestClient:
    execute(engine, "UPDATE batches SET callback_url = NULL")
    execute(engine, "DELETE FROM webhook_deliveries")
    return Api(nearby, engine, open_on_loopback=True).client()


def execute(engine: Engine, statement: str, **values: Any) -> None:
    with transaction(engine) as session:
        session.execute(text(statement), values)


def due_now(engine: Engine) -> None:
    execute(engine, "UPDATE webhook_deliveries SET next_at = now()")


def deliveries(client: TestClient, batch_id: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get(f"/v1/batches/{batch_id}").json()["deliveries"]
    return found


def test_an_end_is_told_once_and_signed(client: TestClient, engine: Engine, nearby: Settings) -> None:
    with Receiver() as receiver:
        batch_id = submit(client, callback_url=f"{receiver.root_url}/hook?token=hunter2")
        assert webhooks.deliver(engine, nearby) == 0  # it has not ended
        answer_all(engine, batch_id)
        assert [webhooks.deliver(engine, nearby) for _ in range(2)] == [1, 0]
        ((payload, headers),) = receiver.calls
    assert payload["type"] == "batch.ended"
    assert (payload["data"]["batch_id"], payload["data"]["answered"]) == (batch_id, 2)
    body = json.dumps(payload, ensure_ascii=False).encode()
    content = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.new(SECRET.encode(), content, sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"
    (told,) = deliveries(client, batch_id)
    assert (told["status"], told["attempts"], told["last_status"]) == ("delivered", 1, 200)
    assert "hunter2" not in told["url"]


def test_a_failed_call_is_made_again_later_with_the_same_id(
    client: TestClient, engine: Engine, nearby: Settings
) -> None:
    with Receiver(500, 302) as receiver:
        batch_id = submit(client, callback_url=receiver.root_url)
        answer_all(engine, batch_id)
        assert [webhooks.deliver(engine, nearby) for _ in range(2)] == [1, 0]  # not due again yet
        (told,) = deliveries(client, batch_id)
        assert (told["status"], told["last_status"]) == ("pending", 500)
        for _ in range(2):
            due_now(engine)
            assert webhooks.deliver(engine, nearby) == 1
        assert len({headers["webhook-id"] for _, headers in receiver.calls}) == 1
        assert len(receiver.calls) == 3  # a redirect is not followed
    assert deliveries(client, batch_id)[0]["status"] == "delivered"


def test_a_worker_that_dies_in_a_call_is_followed_by_another(
    client: TestClient, engine: Engine, nearby: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Receiver() as receiver:
        batch_id = submit(client, callback_url=receiver.root_url)
        answer_all(engine, batch_id)

        def dies(*_: Any) -> Any:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(webhooks, "post", dies)
            with pytest.raises(KeyboardInterrupt):
                webhooks.deliver(engine, nearby)
        due_now(engine)
        assert webhooks.deliver(engine, nearby) == 1
        assert len(receiver.calls) == 1


def test_what_waits_for_a_slow_receiver_is_not_claimed_yet(
    client: TestClient, engine: Engine, nearby: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its pause is over before its turn comes, and another worker calls as well."""
    for _ in range(3):
        answer_all(engine, submit(client, callback_url="http://127.0.0.1:9/"))
    claimed = []

    def slow(*_: Any) -> webhooks.Outcome:
        with transaction(engine) as session:
            count = "SELECT count(*) FROM webhook_deliveries WHERE attempts > 0"
            claimed.append(session.scalar(text(count)))
        return webhooks.Outcome(200)

    monkeypatch.setattr(webhooks, "post", slow)
    assert webhooks.deliver(engine, nearby) == 3
    assert claimed == [1, 2, 3]


def test_a_receiver_that_never_answers_holds_one_thread_of_a_process(
    client: TestClient, engine: Engine, nearby: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        answer_all(engine, submit(client, callback_url="http://127.0.0.1:9/"))
    meanwhile = []

    def slow(*_: Any) -> webhooks.Outcome:
        meanwhile.append(webhooks.deliver(engine, nearby))
        return webhooks.Outcome(error="no answer")

    monkeypatch.setattr(webhooks, "post", slow)
    monkeypatch.setattr(webhooks, "_TICK", 0.0)
    assert webhooks.deliver(engine, nearby) == 1, "the time of the tick is up after the first"
    assert meanwhile == [0], "the next tick leaves it to the one that is under way"


def test_a_late_outcome_does_not_undo_a_later_one(
    client: TestClient, engine: Engine, nearby: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch_id = submit(client, callback_url="http://127.0.0.1:9/")
    answer_all(engine, batch_id)

    def overtaken(*_: Any) -> webhooks.Outcome:
        later = "UPDATE webhook_deliveries SET attempts = 2, status = 'delivered', ended_at = now()"
        execute(engine, later)
        return webhooks.Outcome(error="no answer")

    monkeypatch.setattr(webhooks, "post", overtaken)
    webhooks.deliver(engine, nearby)
    assert deliveries(client, batch_id)[0]["status"] == "delivered"


def test_it_is_given_up_in_the_end(client: TestClient, engine: Engine, nearby: Settings) -> None:
    with Receiver(410) as receiver:
        batch_id = submit(client, callback_url=receiver.root_url)
        answer_all(engine, batch_id)
        webhooks.deliver(engine, nearby)
        assert deliveries(client, batch_id)[0]["status"] == "failed"  # gone is gone
    second = submit(client, callback_url="http://127.0.0.1:9/")
    answer_all(engine, second)
    for _ in range(webhooks.MAX_ATTEMPTS):
        webhooks.deliver(engine, nearby)
        due_now(engine)
    (told,) = deliveries(client, second)
    assert (told["status"], told["attempts"]) == ("failed", webhooks.MAX_ATTEMPTS)
    assert webhooks.deliver(engine, nearby) == 0


def test_a_batch_that_ends_again_is_told_again(client: TestClient, engine: Engine, nearby: Settings) -> None:
    with Receiver() as receiver:
        batch_id = submit(client, callback_url=receiver.root_url)
        for _ in range(2):
            answer_all(engine, batch_id)
            webhooks.deliver(engine, nearby)
        assert len({headers["webhook-id"] for _, headers in receiver.calls}) == 2


def test_an_end_that_a_retry_undid_is_not_told(client: TestClient, engine: Engine, nearby: Settings) -> None:
    with Receiver(500) as receiver:
        batch_id = submit(client, callback_url=receiver.root_url)
        answer_all(engine, batch_id)
        assert webhooks.deliver(engine, nearby) == 1
        execute(engine, "UPDATE batches SET status = 'open', ended_at = NULL")
        due_now(engine)
        assert webhooks.deliver(engine, nearby) == 1
        assert len(receiver.calls) == 1
        answer_all(engine, batch_id)
        assert webhooks.deliver(engine, nearby) == 1
        assert receiver.calls[-1][0]["data"]["status"] == "ended"
    assert [told["status"] for told in deliveries(client, batch_id)] == ["failed", "delivered"]


def test_a_name_that_leads_into_the_network_is_never_called(
    client: TestClient, engine: Engine, settings: Settings
) -> None:
    batch_id = submit(client, callback_url="https://hook.example/")
    answer_all(engine, batch_id)
    webhooks.deliver(engine, settings, resolver=lambda host, port: ["93.184.216.34", "10.0.0.7"])
    (told,) = deliveries(client, batch_id)
    assert (told["status"], told["attempts"], told["last_status"]) == ("failed", 1, None)
    assert "public" in told["last_error"]


def test_without_a_secret_nothing_is_called(client: TestClient, engine: Engine, nearby: Settings) -> None:
    with Receiver() as receiver:
        batch_id = submit(client, callback_url=receiver.root_url)
        answer_all(engine, batch_id)
        webhooks.deliver(engine, nearby.model_copy(update={"webhook_secret": None}))
        assert receiver.calls == []
    assert deliveries(client, batch_id)[0]["status"] == "pending"


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://127.0.0.1/", "loopback"),
        ("http://[::ffff:10.0.0.1]/", "private"),
        ("http://169.254.169.254/latest", "link-local"),
        ("ftp://example.com/", "only http"),
        ("https://user:pw@example.com/", "user name or password"),
        ("javascript:alert(1)", "only http"),
        ("https://", "host"),
    ],
)
def test_a_url_that_is_never_called_is_refused_at_once(api: Api, url: str, says: str) -> None:
    body = {"questions": ["q"], "callback_url": url}
    found = problem(api.client().post("/v1/batches", json=body), 422)
    assert says in found["detail"]
    assert "pw@" not in found["detail"]


def test_a_callback_without_a_secret_to_sign_with_is_refused(settings: Settings, engine: Engine) -> None:
    bare = Api(settings.model_copy(update={"webhook_secret": None}), engine, open_on_loopback=True)
    body = {"questions": ["q"], "callback_url": "https://example.com/"}
    found = problem(bare.client().post("/v1/batches", json=body), 422)
    assert "CRAGLINE_WEBHOOK_SECRET" in found["detail"]


def test_a_secret_of_the_schemes_own_form_is_decoded() -> None:
    """The example of the public scheme's libraries."""
    made = webhooks.signed(
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        b'{"test": 2432232314}',
        1614265330,
    )
    assert made["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
