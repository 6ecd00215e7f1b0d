"""What makes two pieces of work identical."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from shared.plan import Plan, make_plan
from shared.settings import Settings
from workers.models.roles import CallSpec
from workers.runner import reuse
from workers.runner.claims import Won
from workers.runner.reuse_runs import run_key

SPEC = CallSpec("query_rewriter", "openai", "gpt-4.1-mini", "v1", {"human": "How old?"})


def plan(**values: Any) -> Plan:
    settings = Settings(_env_file=None, **{"openai_api_key": "sk-unit-test", "collection": "docs", **values})
    return make_plan(settings, "crag")


def won(batch: int = 1, **values: Any) -> Won:
    """As much of a claim as decides who may share."""
    return cast(Won, SimpleNamespace(batch_id=batch, plan=plan(**values)))


def test_a_plan_from_before_there_was_a_choice_shares_nothing() -> None:
    old = plan().model_dump(exclude={"reuse", "reuse_days", "reuse_web_hours"})
    claim = cast(Won, SimpleNamespace(batch_id=1, plan=Plan.model_validate(old)))
    assert reuse.key_of(claim, "x") is None


def test_the_default_shares_within_the_batch() -> None:
    assert reuse.key_of(won(1), "x") == reuse.key_of(won(1), "x")
    assert reuse.key_of(won(1), "x") != reuse.key_of(won(2), "x")
    assert reuse.key_of(won(1), "x") != reuse.key_of(won(1), "y")
    shared = won(1, reuse="all")
    assert reuse.key_of(shared, "x") == reuse.key_of(won(2, reuse="all"), "x")
    theirs = shared.plan.model_copy(update={"reuse_owner": "somebody else"})
    others = cast(Won, SimpleNamespace(batch_id=3, plan=theirs))
    assert reuse.key_of(shared, "x") != reuse.key_of(others, "x")


def test_a_call_that_may_come_out_otherwise_has_no_key() -> None:
    assert reuse.call_key(won(), SPEC, "h") is not None
    assert reuse.call_key(won(), replace(SPEC, deterministic=False), "h") is None
    assert reuse.call_key(won(), replace(SPEC, reusable=False), "h") is None
    graded = replace(SPEC, role="relevance_grader", deterministic=False)
    assert reuse.call_key(won(), graded, "h") is not None


@pytest.mark.parametrize(
    ("response", "worth"),
    [
        (None, False),
        ("", True),
        ([], True),
        ({"text": "a"}, True),
        ({"label": "relevant"}, True),
        ({"label": "unparsed"}, False),
        ({"passed": False}, True),
        ({"passed": None}, False),
    ],
)
def test_a_verdict_that_nobody_could_read_is_not_shared(response: Any, worth: bool) -> None:
    assert reuse.worth_sharing(response) is worth


def test_what_decides_an_answer_is_in_the_key_of_a_run_and_what_it_costs_is_not() -> None:
    key = run_key(plan(), 7, "How old?")
    assert key == run_key(plan(), 7, "  How\told? ")
    assert key == run_key(plan(reuse="all", reuse_days=1, max_attempts=9), 7, "How old?")
    others = [
        run_key(plan(), 8, "How old?"),
        run_key(plan(), 7, "how old?"),
        run_key(plan(chat_model="other"), 7, "How old?"),
        run_key(plan(collection="other"), 7, "How old?"),
        run_key(plan().model_copy(update={"reuse_owner": "somebody else"}), 7, "How old?"),
        run_key(plan(openai_base_url="http://h/v1"), 7, "How old?"),
        run_key(plan().model_copy(update={"prompts": {"query_rewriter": "v2"}}), 7, "How old?"),
        run_key(plan().model_copy(update={"params": {"k": 9}}), 7, "How old?"),
    ]
    assert key not in others and len(set(others)) == len(others)
