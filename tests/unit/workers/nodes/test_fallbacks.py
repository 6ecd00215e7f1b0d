"""A helping role that fails for good costs its help, and not the run; what leads the run only where its
reply was of no use."""

from dataclasses import replace
from typing import Any

import pytest

from shared.errors import CallError, PermanentError
from tests.unit.workers.nodes.fakes import Script, document, params
from workers.inprocess import run_in_process
from workers.models.calls import UnusableOutput
from workers.nodes.resources import Resources
from workers.runner.pipelines import adapters

GARBAGE = UnusableOutput("the model gave nothing of use", where="openai")
BAD_KEY = PermanentError("the key was refused", code="bad_key", where="openai")


class Broken:
    """Whatever role it stands in for, each question to it fails."""

    def __init__(self, error: CallError) -> None:
        self.error = error

    def __getattr__(self, name: str) -> Any:
        def fail(*args: Any, **more: Any) -> Any:
            raise self.error

        return fail


def run(
    pipeline: str, role: str, error: CallError, script: Script, **sets: Any
) -> tuple[list[str], dict[str, Any]]:
    resources: Resources = replace(script.resources(), **{role: Broken(error)})
    state = {"question": "q", "params": params(pipeline, **sets)}
    events = list(run_in_process(adapters()[pipeline], state, resources, max_steps=60))
    return [node for node, _ in events if node], events[-1][1]


def script(**more: Any) -> Script:
    relevant = more.pop("relevant", True)
    verdict = ("relevant", 0.9) if relevant else ("not_relevant", 0.1)
    return Script(documents=[document("A"), document("B")], verdicts={"A": verdict, "B": verdict}, **more)


def labels(state: dict[str, Any]) -> list[str]:
    return [note.split(":")[0] for note in state["notes"]]


def test_a_route_of_no_use_leads_to_the_store() -> None:
    nodes, state = run("adaptive", "router", GARBAGE, script())
    assert nodes[:3] == ["route", "rewrite_query", "retrieve"]
    assert (state["disposition"], labels(state)) == ("answered", ["route_unusable"])
    nodes, state = run("self_rag", "router", GARBAGE, script(), decide_retrieval="on")
    assert nodes[:2] == ["assess", "retrieve"]
    assert (state["disposition"], labels(state)) == ("answered", ["route_unusable"])


@pytest.mark.parametrize("pipeline", ["crag", "self_rag", "adaptive"])
def test_a_query_of_no_use_leaves_the_question_and_the_loops_end(pipeline: str) -> None:
    made = script(relevant=False)
    nodes, state = run(pipeline, "query_rewriter", GARBAGE, made)
    assert state["disposition"] == "gave_up"
    assert labels(state).count("rewrite_unusable") == nodes.count("rewrite_query") > 0
    assert state["query"] == "q"


def test_an_extract_of_no_use_is_nothing_extracted() -> None:
    nodes, state = run(
        "adaptive", "knowledge_extractor", GARBAGE, script(), max_retrievals=1, web_search="off"
    )
    assert nodes[-2:] == ["assemble", "apologise"]
    assert labels(state) == ["extract_unusable"] * 2
    assert "nothing of it bears on the question" in state["reason"]


@pytest.mark.parametrize("error", [GARBAGE, BAD_KEY])
def test_without_feedback_or_apology_the_run_ends_as_it_would_have(error: CallError) -> None:
    useless = script(grounded=[False])
    nodes, state = run("adaptive", "feedback_writer", error, useless, max_generations=2)
    assert nodes.count("generate") == 2 and nodes[-1] == "apologise"
    assert labels(state) == ["feedback_failed"]
    nodes, state = run("adaptive", "apology_writer", error, script(relevant=False), max_retrievals=1)
    assert state["disposition"] == "gave_up"
    assert state["reason"].startswith("no answer was found; tried: searched for")
    assert labels(state)[-1] == "apology_failed"
    assert error.code in state["notes"][-1]


@pytest.mark.parametrize(
    ("pipeline", "role"),
    [
        ("adaptive", "router"),
        ("adaptive", "query_rewriter"),
        ("adaptive", "knowledge_extractor"),
        ("self_rag", "router"),
    ],
)
def test_a_wrong_key_is_never_passed_over_where_the_run_would_be_led_astray(pipeline: str, role: str) -> None:
    sets = {"decide_retrieval": "on"} if pipeline == "self_rag" else {}
    with pytest.raises(PermanentError):
        run(pipeline, role, BAD_KEY, script(), **sets)
