"""One tiny call of each model before a batch: what is wrong is said in words, and never with the key."""

from collections.abc import Iterator

import pytest

from shared.plan import Plan, make_plan
from shared.settings import Settings
from tests.fakes.http_fake import Reply
from tests.fakes.openai_server import FakeOpenAI, api_error, content, prose, quota_gone, rate_limited
from workers import preflight

KEY = "sk-very-secret-0123456789"
YES = content({"word": "yes"})


@pytest.fixture
def fake() -> Iterator[FakeOpenAI]:
    with FakeOpenAI() as server:
        yield server


def setup(fake: FakeOpenAI, **values: object) -> tuple[Plan, Settings]:
    named = {"openai_api_key": KEY, "openai_base_url": fake.base_url, "model_timeout": 5, **values}
    settings = Settings(_env_file=None, **named)  # type: ignore[call-arg, arg-type]
    return make_plan(settings, "crag"), settings


def test_each_model_is_asked_once(fake: FakeOpenAI) -> None:
    plan, settings = setup(fake, chat_model="one", role_models={"relevance_grader": "two"})
    said = preflight.canaries(plan, settings)
    assert said == [("ok", "model", f"{name} at {fake.base_url} answers") for name in ("one", "two")]
    assert sorted(request.payload["model"] for request in fake.requests) == ["one", "two"]
    assert {request.role for request in fake.requests} == {"canary"}


@pytest.mark.parametrize(
    ("reply", "level", "word"),
    [
        (api_error(401, "invalid_api_key", f"wrong key {KEY}"), "bad", "key"),
        (api_error(404, "model_not_found"), "bad", "model"),
        (quota_gone(), "bad", "quota"),
        (rate_limited(), "note", "rate"),
        (api_error(500), "note", "500"),
        (prose("Yes, of course."), "note", "brought no JSON object back"),
    ],
    ids=["key", "model", "quota", "rate", "server", "prose"],
)
def test_what_is_wrong_is_said(fake: FakeOpenAI, reply: Reply, level: str, word: str) -> None:
    fake.script = lambda _role, _payload: reply
    ((found, what, says),) = preflight.canaries(*setup(fake))
    assert (found, what) == (level, "model") and word in says
    assert KEY not in says


def test_a_model_that_hangs_is_named_and_holds_nobody_up_for_its_own_timeout(
    fake: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "CANARY_PATIENCE", 0.5)
    fake.script = lambda _role, _payload: Reply(hang=True)
    ((level, _, says),) = preflight.canaries(*setup(fake, model_timeout=600))
    assert level == "note" and "timeout" in says


def test_local_models_are_not_asked() -> None:
    settings = Settings(_env_file=None)  # type: ignore[call-arg]
    assert preflight.canaries(make_plan(settings, "crag"), settings) == []


def test_a_collection_that_the_store_lacks_is_found_missing(fake: FakeOpenAI, tmp_path: object) -> None:
    plan, settings = setup(fake, home=tmp_path)
    request = {"plan": plan.model_dump(), "chunk_tokens": 250, "question_tokens": 12, "store": True}
    answer = preflight.look(request, settings)
    assert [check[:2] for check in answer["checks"]] == [("ok", "model"), ("bad", "vector store")]
    assert "There is no collection 'default'" in answer["checks"][1][2]
    assert answer["estimate"]["calls"] == (4, 5), "four grades, and a query or an answer or both"
