"""The plan: every number checked before anything is stored, every wrong word named."""

import json
from typing import Any

import pytest

from shared.errors import UsageError
from shared.plan import (
    LOCAL_EMBEDDING,
    PIPELINES,
    ROLES,
    THRESHOLDS,
    Plan,
    embedding_name,
    make_plan,
    params_type,
    parse_sets,
    with_filters,
)
from shared.settings import Settings
from workers.graphs import BUILDERS
from workers.models import minilm
from workers.models.prompts import ROLES as PROMPT_ROLES
from workers.models.prompts import load_prompts


def settings(**values: Any) -> Settings:
    return Settings(_env_file=None, **values)


LOCAL = settings()
OPENAI = settings(openai_api_key="sk-test-12345678")


# -- parse_sets -------------------------------------------------------------------------------------------


def test_sets_are_split_at_the_first_equals_sign() -> None:
    assert parse_sets(["k=5", " rule = ratio:0.5 ", "collection=a=b"]) == {
        "k": "5",
        "rule": "ratio:0.5",
        "collection": "a=b",
    }
    assert parse_sets([]) == {}
    assert parse_sets(["k=1", "k=2"]) == {"k": "2"}, "the last one counts"


@pytest.mark.parametrize("item", ["k", "=5", " =5", ""])
def test_a_set_without_key_or_equals_sign_is_named(item: str) -> None:
    with pytest.raises(UsageError, match="key=value") as error:
        parse_sets([item])
    assert repr(item) in str(error.value) and error.value.exit_code == 2


# -- wrong words ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pipeline", "sets", "named"),
    [
        ("crag", {"kk": "5"}, ["crag has no setting 'kk'", "web_k", "collection"]),
        ("rag", {"rule": "ratio"}, ["rag has no setting 'rule'"]),
        ("crag", {"k": "five"}, ["--set k=five", "integer"]),
        ("crag", {"k": "4.5"}, ["--set k=4.5"]),
        ("crag", {"k": "0"}, ["--set k=0", "greater than or equal to 1"]),
        ("crag", {"k": "51"}, ["--set k=51", "less than or equal to 50"]),
        ("crag", {"k": ""}, ["--set k="]),
        ("crag", {"rule": "majority"}, ["--set rule=majority", "'none_relevant'"]),
        ("crag", {"rule": "ratio:much"}, ["--set ratio=much"]),
        ("crag", {"rule": "ratio:1.5"}, ["--set ratio=1.5"]),
        ("crag", {"rule": "ratio:"}, ["--set ratio="]),
        ("crag", {"ratio": "nan"}, ["--set ratio="]),
        ("crag", {"upper": "inf"}, ["--set upper="]),
        ("crag", {"refine": "maybe"}, ["--set refine=maybe", "'auto', 'on' or 'off'"]),
        ("crag", {"max_steps": "1"}, ["--set max_steps=1"]),
        ("rag", {"retrieval": "both"}, ["--set retrieval=both", "'dense', 'sparse' or 'hybrid'"]),
        ("rag", {"filter": "page"}, ["--filter", "key=value", "'page'"]),
        ("crag", {"filter": "colour=red"}, ["--filter", "'colour=red'", "fields.NAME"]),
        ("crag", {"k": "x", "ratio": "y"}, ["--set k=x", "--set ratio=y"]),
        ("crag", {"lower": "0.8", "upper": "0.7"}, ["lower (0.8)", "upper (0.7)"]),
        ("crag", {"lower": "0.95"}, ["lower (0.95)", "upper (0.6)"]),
    ],
)
def test_what_is_wrong_is_named(pipeline: str, sets: dict[str, str], named: list[str]) -> None:
    with pytest.raises(UsageError) as error:
        make_plan(LOCAL, pipeline, sets)
    for part in named:
        assert part in str(error.value)
    assert "pydantic" not in str(error.value)


def test_an_unknown_pipeline_is_named_with_those_there_are() -> None:
    with pytest.raises(UsageError, match=r"no pipeline 'cragg'\. There are: crag, rag"):
        params_type("cragg")
    with pytest.raises(UsageError):
        make_plan(LOCAL, "cragg")


# -- what a plan holds ------------------------------------------------------------------------------------


def test_the_rule_takes_its_ratio_along() -> None:
    params = make_plan(LOCAL, "crag", {"rule": "ratio:0.5"}).params
    assert (params["rule"], params["ratio"]) == ("ratio", 0.5)
    assert make_plan(LOCAL, "crag", {"rule": "none_relevant"}).params["ratio"] == 0.7


def test_sets_are_left_as_they_were() -> None:
    sets = {"rule": "ratio:0.5", "collection": "books"}
    make_plan(LOCAL, "crag", sets)
    assert sets == {"rule": "ratio:0.5", "collection": "books"}


@pytest.mark.parametrize(
    ("sets", "argument", "chosen"),
    [
        ({}, None, "mine"),
        ({"collection": "set"}, None, "set"),
        ({}, "argument", "argument"),
        ({"collection": "set"}, "argument", "argument"),
        ({"collection": ""}, None, "mine"),
    ],
)
def test_the_collection_of_the_command_goes_before_the_set_and_that_before_the_settings(
    sets: dict[str, str], argument: str | None, chosen: str
) -> None:
    assert make_plan(settings(collection="mine"), "crag", sets, argument).collection == chosen


@pytest.mark.parametrize(("who", "provider"), [(LOCAL, "local"), (OPENAI, "openai")])
@pytest.mark.parametrize("pipeline", sorted(PIPELINES))
def test_thresholds_left_unset_are_the_providers(who: Settings, provider: Any, pipeline: str) -> None:
    plan = make_plan(who, pipeline)
    assert plan.provider == provider
    assert None not in plan.params.values(), "all numbers are resolved"
    assert "auto" not in plan.params.values(), "all switches are resolved"
    for name, value in THRESHOLDS[plan.provider].items():
        if name in plan.params:
            assert plan.params[name] == value


def test_filters_of_both_options_are_one_in_the_plan() -> None:
    sets = with_filters(["k=3", "filter=page=3"], ["fields.lang=nl", "page=4"])
    params = make_plan(LOCAL, "crag", sets).params
    assert params["filter"] == {"page": ["3", "4"], "fields.lang": ["nl"]}
    assert params["k"] == 3
    assert make_plan(LOCAL, "rag", with_filters([], None)).params["filter"] == {}
    assert make_plan(LOCAL, "rag", with_filters(["filter=title=a=b"], [])).params["filter"] == {
        "title": ["a=b"]
    }
    with pytest.raises(UsageError, match="--filter 'page=0'"):
        make_plan(LOCAL, "rag", with_filters([], ["page=0"]))
    as_object = {"page": [3, "4"], "fields.open": True}
    wanted = {"page": ["3", "4"], "fields.open": ["true"]}
    assert make_plan(LOCAL, "rag", {"filter": as_object}).params["filter"] == wanted
    for odd in ({"colour": ["red"]}, {"page": [None]}, [3], 7, {"title": [{}], "x": 1}):
        with pytest.raises(UsageError, match="filter"):
            make_plan(LOCAL, "rag", {"filter": odd})


def test_words_and_meaning_are_both_searched_unless_said_otherwise() -> None:
    assert make_plan(LOCAL, "crag").params["retrieval"] == "hybrid"
    assert make_plan(OPENAI, "rag", {"retrieval": "sparse"}).params["retrieval"] == "sparse"


def test_a_threshold_that_is_set_stays_even_at_zero() -> None:
    params = make_plan(OPENAI, "crag", {"relevant_at": "0", "strip_at": "0.9"}).params
    assert (params["relevant_at"], params["strip_at"]) == (0.0, 0.9)


@pytest.mark.parametrize(
    ("sets", "web_key", "expected"),
    [
        ({}, False, ("off", "off", "on")),
        ({}, True, ("off", "on", "on")),
        ({"rule": "confidence"}, True, ("on", "on", "on")),
        ({"rule": "confidence", "refine": "off"}, True, ("off", "on", "on")),
        ({"refine": "on", "web_search": "off", "rewrite": "off"}, True, ("on", "off", "off")),
        ({"web_search": "on", "rewrite": "auto"}, False, ("off", "on", "on")),
    ],
)
def test_the_switches_are_resolved(sets: dict[str, str], web_key: bool, expected: tuple[str, ...]) -> None:
    who = settings(tavily_api_key="tvly-12345678") if web_key else LOCAL
    params = make_plan(who, "crag", sets).params
    assert (params["refine"], params["web_search"], params["rewrite"]) == expected


def test_each_role_has_its_model() -> None:
    who = settings(openai_api_key="sk-x", chat_model="big", role_models={"relevance_grader": "small"})
    assert make_plan(who, "crag").models == {
        "relevance_grader": "small",
        "query_rewriter": "big",
        "answer_generator": "big",
    }
    assert set(make_plan(LOCAL, "rag").models.items()) == {("answer_generator", "local")}


def test_the_embedder_can_be_another_provider_than_the_models() -> None:
    mixed = make_plan(settings(openai_api_key="sk-x", embeddings="local"), "rag")
    assert (mixed.provider, mixed.embedder, mixed.embedding_model) == ("openai", "local", LOCAL_EMBEDDING)
    assert embedding_name(settings(openai_api_key="sk-x", embedding_model="e")) == "openai/e"


def test_a_plan_survives_the_database_and_holds_no_secret() -> None:
    who = settings(openai_api_key="sk-secret-value", tavily_api_key="tvly-secret-value")
    plan = make_plan(who, "crag", {"rule": "confidence"})
    stored = json.dumps(plan.model_dump(), allow_nan=False)
    assert Plan.model_validate(json.loads(stored)) == plan
    assert "secret" not in stored


# -- the plan fits the rest -------------------------------------------------------------------------------


def test_the_local_embedding_is_named_as_the_embedder_itself_and_its_collections_are() -> None:
    assert minilm.NAME == LOCAL_EMBEDDING == minilm.MiniLM().name
    assert LOCAL_EMBEDDING.startswith("local/")


def test_pipelines_graphs_and_roles_are_the_same_names() -> None:
    assert set(PIPELINES) == set(BUILDERS) == set(ROLES)


def test_every_role_has_a_prompt_and_every_prompt_a_role() -> None:
    prompted = {prompt.role for prompt in load_prompts().values()}
    assert {role for roles in ROLES.values() for role in roles} == set(PROMPT_ROLES) == prompted


def test_every_number_is_described_and_documented_for_both_providers() -> None:
    for kind in PIPELINES.values():
        for name, field in kind.model_fields.items():
            assert field.description, f"{kind.__name__}.{name} has no description"
    assert set(THRESHOLDS["local"]) == set(THRESHOLDS["openai"])
    optional = {
        name
        for kind in PIPELINES.values()
        for name, field in kind.model_fields.items()
        if field.default is None
    }
    assert optional == set(THRESHOLDS["local"]), "what is left unset has a default of the provider"


def test_reuse_is_frozen_and_a_batch_may_say_otherwise() -> None:
    assert make_plan(LOCAL, "rag").reuse == "batch"
    plan = make_plan(settings(reuse="all", reuse_days=2, reuse_web_hours=3), "rag")
    assert (plan.reuse, plan.reuse_days, plan.reuse_web_hours) == ("all", 2, 3)
    assert make_plan(settings(reuse="all"), "rag", reuse="off").reuse == "off"
