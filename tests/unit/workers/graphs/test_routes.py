"""Every way through the real graphs: node by node through the adapter, and in LangGraph itself.

The models are scripted; no server runs. Both ways must take the path that is written here, and end in the
same state, and together the routes take every edge that is drawn.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from shared.errors import PermanentError, TransientError
from tests.unit.workers.nodes.fakes import Script, document, params
from tests.unit.workers.runner.driver import drive, langgraph
from workers.models.roles import GeneratedAnswer
from workers.runner.advance import input_of
from workers.runner.graph_adapter import GraphAdapter
from workers.runner.pipelines import adapters

STORE = [document(letter) for letter in "ABC"]
WEB = [document("W", "From the web.", origin="web", id="web:0")]
YES = dict.fromkeys("ABC", ("relevant", 0.9))
SOME = {"A": ("relevant", 0.9), "B": ("not_relevant", 0.2), "C": ("not_relevant", 0.1)}
NO = dict.fromkeys("ABC", ("not_relevant", 0.1))
MIDDLE = {"A": ("relevant", 0.6), "B": ("not_relevant", 0.4), "C": ("not_relevant", 0.1)}
UNPARSED = dict.fromkeys("ABC", ("unparsed", None))
OFF = {"web_search": "off"}

ALL = Script(STORE, YES, web=WEB)
GRADED = ["retrieve", "grade_document*3", "decide"]
SEARCHED = ["rewrite_query", "web_search"]


@dataclass(frozen=True)
class Route:
    script: Script
    path: list[str]
    ends: str
    reason: str = ""
    sets: dict[str, Any] = field(default_factory=dict)
    sources: str = ""  # the letters of the cited titles
    notes: tuple[str, ...] = ()
    pipeline: str = "crag"


def having(**changes: Any) -> Script:
    return replace(ALL, **changes)


ROUTES = {
    "all relevant": Route(ALL, [*GRADED, "generate"], "answered", sources="ABC"),
    "some relevant": Route(having(verdicts=SOME), [*GRADED, *SEARCHED, "generate"], "answered", sources="AW"),
    "none relevant": Route(having(verdicts=NO), [*GRADED, *SEARCHED, "generate"], "answered", sources="W"),
    "no grade to be parsed": Route(
        having(verdicts=UNPARSED),
        [*GRADED, *SEARCHED, "generate"],
        "answered",
        sources="W",
        notes=("grade_unparsed",) * 3,
    ),
    "web empty": Route(
        having(verdicts=NO, web=()),
        [*GRADED, *SEARCHED, "give_up"],
        "gave_up",
        "none of the 3 retrieved documents was relevant and the web search found nothing",
        notes=("web_search_empty",),
    ),
    "web failing for good": Route(
        having(verdicts=NO, web=PermanentError("no", code="auth", where="tavily")),
        [*GRADED, *SEARCHED, "give_up"],
        "gave_up",
        "none of the 3 retrieved documents was relevant and the web search failed (auth)",
        notes=("web_search_failed",),
    ),
    "web failing at the last attempt": Route(
        having(verdicts=SOME, web=TransientError("busy", code="rate_limit", where="tavily")),
        [*GRADED, *SEARCHED, "generate"],
        "answered",
        sources="A",
        notes=("web_search_failed",),
    ),
    "web without a key in this process": Route(
        having(verdicts=NO, web=None),
        [*GRADED, *SEARCHED, "give_up"],
        "gave_up",
        "none of the 3 retrieved documents was relevant and the web search failed (no_key)",
        notes=("web_search_failed",),
    ),
    "web off, none": Route(
        having(verdicts=NO),
        [*GRADED, "give_up"],
        "gave_up",
        "none of the 3 retrieved documents was relevant and web search is off",
        sets=OFF,
        notes=("web_search_off",),
    ),
    "web off, some": Route(
        having(verdicts=SOME),
        [*GRADED, "generate"],
        "answered",
        sets=OFF,
        sources="A",
        notes=("web_search_off",),
    ),
    "no rewriting": Route(
        having(verdicts=NO),
        [*GRADED, "web_search", "generate"],
        "answered",
        sets={"rewrite": "off"},
        sources="W",
    ),
    "no answer in the documents": Route(
        having(answer=GeneratedAnswer("", (), "they do not say")),
        [*GRADED, "generate"],
        "gave_up",
        "they do not say",
    ),
    "rule none_relevant, some": Route(
        having(verdicts=SOME), [*GRADED, "generate"], "answered", sets={"rule": "none_relevant"}, sources="A"
    ),
    "rule none_relevant, none": Route(
        having(verdicts=NO),
        [*GRADED, *SEARCHED, "generate"],
        "answered",
        sets={"rule": "none_relevant"},
        sources="W",
    ),
    "correct": Route(
        having(verdicts=SOME),
        [*GRADED, "refine_document", "recompose", "generate"],
        "answered",
        sets={"rule": "confidence"},
        sources="A",
    ),
    "incorrect": Route(
        having(verdicts=NO),
        [*GRADED, *SEARCHED, "generate"],
        "answered",
        sets={"rule": "confidence"},
        sources="W",
    ),
    "ambiguous": Route(
        having(verdicts=MIDDLE),
        [*GRADED, "refine_document*2", "recompose", *SEARCHED, "generate"],
        "answered",
        sets={"rule": "confidence"},
        sources="ABW",
    ),
    "correct, refining off": Route(
        having(verdicts=SOME),
        [*GRADED, "generate"],
        "answered",
        sets={"rule": "confidence", "refine": "off"},
        sources="A",
    ),
    "refined away": Route(
        having(strip_score=0.0),
        [*GRADED, "refine_document*3", "recompose", *SEARCHED, "generate"],
        "answered",
        sets={"refine": "on"},
        sources="W",
    ),
    "refined away, web off": Route(
        having(strip_score=0.0),
        [*GRADED, "refine_document*3", "recompose", "give_up"],
        "gave_up",
        "no part of the 3 retrieved documents was relevant and web search is off",
        sets={"refine": "on", **OFF},
    ),
    "refined, no rewriting": Route(
        having(verdicts=SOME),
        [*GRADED, "refine_document", "recompose", "web_search", "generate"],
        "answered",
        sets={"refine": "on", "rewrite": "off"},
        sources="AW",
    ),
    "one document": Route(
        having(documents=STORE[:1]),
        ["retrieve", "grade_document", "decide", "generate"],
        "answered",
        sources="A",
    ),
    "nothing retrieved": Route(
        having(documents=()), ["retrieve", "decide", *SEARCHED, "generate"], "answered", sources="W"
    ),
    "nothing retrieved, confidence": Route(
        having(documents=()),
        ["retrieve", "decide", *SEARCHED, "generate"],
        "answered",
        sets={"rule": "confidence"},
        sources="W",
    ),
    "nothing retrieved, web off": Route(
        having(documents=()),
        ["retrieve", "decide", "give_up"],
        "gave_up",
        "no document was retrieved and web search is off",
        sets=OFF,
        notes=("web_search_off",),
    ),
    "rag": Route(ALL, ["retrieve", "generate"], "answered", sources="ABC", pipeline="rag"),
    "rag, nothing retrieved": Route(
        having(documents=()), ["retrieve", "give_up"], "gave_up", "no document was retrieved", pipeline="rag"
    ),
}


def expand(path: list[str]) -> list[list[str]]:
    """`["a", "b*2"]` as the nodes of each superstep: `[["a"], ["b", "b"]]`."""
    steps = []
    for item in path:
        name, _, times = item.partition("*")
        steps.append([name] * int(times or 1))
    return steps


def run(route: Route) -> tuple[GraphAdapter, dict[str, Any]]:
    values = {"question": "How old is the crag?", "params": params(route.pipeline, **route.sets)}
    return adapters()[route.pipeline], values


@pytest.mark.parametrize("name", ROUTES)
def test_the_route_is_taken_both_ways_to_the_same_state(name: str) -> None:
    route = ROUTES[name]
    adapter, values = run(route)
    path, state = drive(adapter, values, route.script.resources(), seed=len(name))
    assert (path, state) == langgraph(adapter, values, route.script.resources())
    assert path == expand(route.path)
    assert state["disposition"] == route.ends
    assert state.get("reason", "") == route.reason
    assert "".join(source["title"][-1] for source in state.get("sources", [])) == route.sources
    assert tuple(note.split(":")[0] for note in state["notes"]) == route.notes
    assert ("answer" in state) == (route.ends == "answered")


# Those of the pipelines that judge their own answer are in the contract test, with scripted servers.
@pytest.mark.parametrize("pipeline", ["crag", "rag"])
def test_the_routes_take_every_edge(pipeline: str) -> None:
    adapter = adapters()[pipeline]
    drawn = {(edge.source, edge.target) for edge in adapter.compiled.get_graph().edges}
    taken = set()
    for route in ROUTES.values():
        if route.pipeline == pipeline:
            # One kind of node a step, so neighbours in the path are edges.
            steps = [["__start__"], *expand(route.path), ["__end__"]]
            taken |= {(steps[at][0], steps[at + 1][0]) for at in range(len(steps) - 1)}
    assert taken == drawn


def test_the_sources_of_a_run_name_the_web_as_their_origin() -> None:
    adapter, values = run(ROUTES["some relevant"])
    _, state = drive(adapter, values, ROUTES["some relevant"].script.resources())
    assert [source["origin"] for source in state["sources"]] == ["store", "web"]
    assert state["query"] == "rewritten" and state["web_status"] == "ok"


def test_each_document_is_graded_once_and_the_grades_are_in_retrieval_order() -> None:
    adapter, values = run(ROUTES["all relevant"])
    for seed in range(4):
        script = replace(ALL, seen=[])
        _, state = drive(adapter, values, script.resources(), seed=seed)
        assert sorted(title for _, title in script.asked("grader")) == ["Doc A", "Doc B", "Doc C"]
        assert [grade["document_id"] for grade in state["grades"]] == ["id-A", "id-B", "id-C"]


def test_an_error_of_a_node_without_fallback_passes_through() -> None:
    adapter, values = run(ROUTES["all relevant"])
    script = having(answer=PermanentError("key refused", code="auth", where="openai"))
    with pytest.raises(PermanentError, match="key refused"):
        drive(adapter, values, script.resources())


def test_a_transient_error_reaches_the_fallback_at_the_last_attempt_only() -> None:
    adapter = adapters()["crag"]
    error = TransientError("busy", code="rate_limit", where="tavily")
    state = {"question": "q", "query": "q", "params": params()}
    resources = having(web=error).resources()
    with pytest.raises(TransientError):
        adapter.run_node("web_search", state, resources, last_attempt=False)
    update = adapter.run_node("web_search", state, resources, last_attempt=True)
    assert update["notes"] == ["web_search_failed: rate_limit: busy"]
    error.counts = False  # refused as everybody is: this was no attempt
    with pytest.raises(TransientError):
        adapter.run_node("web_search", state, resources, last_attempt=True)
    permanent = having(web=PermanentError("no", code="auth", where="tavily")).resources()
    assert adapter.run_node("web_search", state, permanent, last_attempt=False)["web_status"] == "failed"


def test_a_bug_in_a_node_with_a_fallback_is_not_hidden_by_it() -> None:
    resources = having(web=RuntimeError("a bug")).resources()
    with pytest.raises(RuntimeError, match="a bug"):
        adapters()["crag"].run_node(
            "web_search", {"question": "q", "query": "q", "params": params()}, resources
        )


def test_the_runner_starts_a_run_with_question_numbers_and_empty_lists() -> None:
    class PlanOfTheTest:
        params = {"k": 4}  # noqa: RUF012 - stands for a plan

    state = input_of(adapters()["crag"], "why?", PlanOfTheTest())  # type: ignore[arg-type]
    assert state == {"question": "why?", "params": {"k": 4}, "notes": [], "grades": [], "strips": []}
