"""The estimate knows the graphs: what runs of them really ask for lies within it."""

from collections import Counter
from itertools import product
from typing import Any

import pytest

from shared.plan import PIPELINES, Plan, make_plan
from shared.settings import Settings
from tests.unit.workers.nodes.fakes import Script, document
from workers.estimate import SEARCH, calls_of, estimate
from workers.inprocess import run_in_process
from workers.models.roles import GeneratedAnswer
from workers.runner.pipelines import adapters

ROLE_OF = {
    "grader": "relevance_grader",
    "rewriter": "query_rewriter",
    "generator": "answer_generator",
    "web": SEARCH,
    "grounded": "groundedness_grader",
    "useful": "answer_grader",
    "router": "router",
    "extractor": "knowledge_extractor",
    "feedback": "feedback_writer",
    "apology": "apology_writer",
}


def plan(pipeline: str = "crag", *, web: bool = True, model: str = "gpt-4.1-mini", **sets: Any) -> Plan:
    key = "tvly-unit" if web else None
    settings = Settings(_env_file=None, openai_api_key="sk-unit", tavily_api_key=key, chat_model=model)  # type: ignore[call-arg, arg-type]
    return make_plan(settings, pipeline, sets)


def scripts() -> list[Script]:
    """Questions that go well, and that go wrong in every way."""
    found = []
    for relevant, grounded, useful, knows in product((True, False), repeat=4):
        label = ("relevant", 0.9) if relevant else ("not_relevant", 0.1)
        found.append(
            Script(
                [document(letter) for letter in "ABCD"],
                dict.fromkeys("ABCDW", label),
                web=[document("W", origin="web")] if knows else [],
                grounded=(grounded,),
                useful=(useful,),
                answer=None if knows else GeneratedAnswer("", (), "not in them"),
            )
        )
    return found


@pytest.mark.parametrize("web", [True, False])
@pytest.mark.parametrize("pipeline", sorted(PIPELINES))
def test_every_way_through_a_graph_stays_below_the_most(pipeline: str, web: bool) -> None:
    made = plan(pipeline, web=web)
    most = {role: often[1] for role, often in calls_of(made).items()}
    reached: Counter[str] = Counter()
    for script in scripts():
        state = {"question": "q", "params": made.params}
        list(run_in_process(adapters()[pipeline], state, script.resources(), max_steps=60))
        asked = Counter(ROLE_OF[role] for role, _ in script.seen if role in ROLE_OF)
        for role, times in asked.items():
            assert times <= most.get(role, 0), f"{role} was asked {times} times"
            reached[role] = max(reached[role], times)
    assert set(reached) == set(most), "what is never asked for is not counted on"


@pytest.mark.parametrize("pipeline", sorted(PIPELINES))
def test_a_question_that_goes_well_takes_the_least_or_more(pipeline: str) -> None:
    made = plan(pipeline)
    script = scripts()[0]
    list(
        run_in_process(adapters()[pipeline], {"question": "q", "params": made.params}, script.resources(), 60)
    )
    asked = Counter(ROLE_OF[role] for role, _ in script.seen if role in ROLE_OF)
    assert all(asked[role] >= least for role, (least, _) in calls_of(made).items()), asked


def test_more_documents_cost_more_and_the_least_is_less_than_the_most() -> None:
    few, many = (estimate(plan(k=str(k)), 250, 10) for k in (2, 8))
    for one in (few, many):
        assert one.cost_usd is not None and 0 < one.cost_usd[0] < one.cost_usd[1]
        assert one.calls[0] <= one.calls[1] and one.input_tokens[0] < one.input_tokens[1]
    assert few.cost_usd is not None and many.cost_usd is not None
    assert few.cost_usd[0] < many.cost_usd[0] and few.cost_usd[1] < many.cost_usd[1]


def test_an_unknown_price_is_named_and_never_guessed() -> None:
    made = estimate(plan(model="my-own-model"), 250, 10)
    assert made.cost_usd is None and made.unpriced == ["my-own-model"]
    assert made.input_tokens[0] > 0


def test_local_models_are_free_and_a_web_search_is_not() -> None:
    settings = Settings(_env_file=None, tavily_api_key="tvly-unit")  # type: ignore[call-arg, arg-type]
    made = estimate(make_plan(settings, "crag"), 250, 10)
    assert made.cost_usd == (0.0, pytest.approx(0.008)) and made.searches == (0, 1)
    assert estimate(make_plan(settings, "rag"), 250, 10).cost_usd == (0.0, 0.0)
