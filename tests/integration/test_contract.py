"""The contract: a run on workers takes the same path to the same final state as `graph.invoke` in process.

For every route: each scenario is run both ways against the same scripted servers, and together they take
every edge of the graphs.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from shared.course import Course
from shared.plan import Plan, make_plan
from tests.integration.cluster import Cluster, read_rows
from tests.integration.scenario import Scenario, expand
from tests.integration.scenarios import BY_NAME, SCENARIOS
from workers.bootstrap import Parts
from workers.models.calls import MemoryRecorder
from workers.runner.advance import load_state
from workers.runner.pipelines import adapters

NAMES = [scenario.name for scenario in SCENARIOS]


@pytest.fixture(scope="module")
def runs(cluster: Cluster) -> dict[str, int]:
    """Every scenario submitted as a batch of one, all at once; the run ids by scenario."""
    batches = {
        s.name: cluster.submit([s.question], s.pipeline, s.collection, **_params(s)) for s in SCENARIOS
    }
    for batch in batches.values():
        cluster.wait(batch)
    found = cluster.rows("SELECT batch_id, id FROM runs")
    by_batch = {row.batch_id: row.id for row in found}
    return {name: by_batch[batch] for name, batch in batches.items()}


def _params(scenario: Scenario) -> dict[str, Any]:
    return {"k": 3, "retrieval": "dense", **scenario.params}


@pytest.fixture(scope="module")
def parts(cluster: Cluster) -> Iterator[Parts]:
    made = Parts(cluster.settings, engine=None)  # reads the store through its owner, the worker
    yield made
    made.close()


def in_process(cluster: Cluster, parts: Parts, scenario: Scenario) -> tuple[list[str], dict[str, Any], Plan]:
    """What LangGraph itself does: the nodes by superstep, and the final state."""
    plan = make_plan(cluster.settings, scenario.pipeline, _params(scenario), scenario.collection)
    adapter = adapters()[scenario.pipeline]
    config: Any = {"configurable": {"resources": parts.make(plan, MemoryRecorder())}}
    state = {"question": scenario.question, "params": plan.params}
    tasks: dict[int, list[str]] = {}
    final: dict[str, Any] = {}
    for mode, event in adapter.compiled.stream(state, config, stream_mode=["debug", "values"]):
        if mode == "values":
            final = event
        elif event["type"] == "task":
            tasks.setdefault(event["step"], []).append(event["payload"]["name"])
    return [name for step in sorted(tasks) for name in tasks[step]], final, plan


def on_workers(cluster: Cluster, run_id: int) -> list[Any]:
    return cluster.rows(
        "SELECT step, branch, node, goes_to, came_from, attempt, status FROM transitions"
        " WHERE run_id = :id AND status = 'succeeded' ORDER BY step, branch",
        id=run_id,
    )


@pytest.mark.parametrize("name", NAMES)
def test_same_path_and_same_state(cluster: Cluster, parts: Parts, runs: dict[str, int], name: str) -> None:
    scenario = BY_NAME[name]
    expected_path, expected_state, plan = in_process(cluster, parts, scenario)
    assert expected_path == expand(scenario.path)

    transitions = on_workers(cluster, runs[name])
    assert [row.node for row in transitions] == expected_path
    # gapless: steps 1, 2, 3, ... and branches 0, 1, 2, ... within each
    steps = sorted({row.step for row in transitions})
    assert steps == list(range(1, len(steps) + 1))
    for step in steps:
        branches = [row.branch for row in transitions if row.step == step]
        assert branches == list(range(len(branches)))

    run = cluster.rows(
        "SELECT runs.*, batches.month FROM runs JOIN batches ON batches.id = runs.batch_id WHERE runs.id = :id",
        id=runs[name],
    )[0]
    adapter = adapters()[scenario.pipeline]
    facts = _Facts(run.id, run.month, run.question, plan)
    with cluster.engine.connect() as connection:
        state = load_state(connection, adapter, facts, before=1000)  # type: ignore[arg-type]
    assert state == expected_state

    assert run.status == scenario.ends, run.error
    assert [note.split(":")[0] for note in run.notes] == list(scenario.notes)
    if scenario.pipeline in ("rag", "crag"):
        assert (run.reason or "") == scenario.reason
    else:
        assert scenario.reason in (run.reason or "")
    if scenario.ends == "answered":
        assert run.answer == expected_state["answer"]
        assert run.sources == expected_state["sources"]
        assert run.sources or scenario.route == "direct", "an answer names its sources"


class _Facts:
    def __init__(self, run_id: int, month: Any, question: str, plan: Plan) -> None:
        self.run_id, self.month, self.question, self.plan = run_id, month, question, plan
        self.course = Course()


@pytest.mark.parametrize("pipeline", sorted(adapters()))
def test_the_scenarios_take_every_edge(cluster: Cluster, runs: dict[str, int], pipeline: str) -> None:
    drawn = {
        (edge.source, edge.target)
        for edge in adapters()[pipeline].compiled.get_graph().edges
        if edge.source != "__start__"
    }
    taken = set()
    for name, run_id in runs.items():
        if BY_NAME[name].pipeline == pipeline:
            for row in on_workers(cluster, run_id):
                taken |= {(row.node, target) for target in row.goes_to}
    assert taken == drawn


# What each node asks of the models, so that the calls of a route can be predicted from its path.
CALLS = {
    "retrieve": ("embedder",),
    "grade_document": ("relevance_grader",),
    "refine_document": ("relevance_grader",) * 2,  # every document has two strips
    "rewrite_query": ("query_rewriter",),
    "generate": ("answer_generator",),
    "assess": ("router",),
    "route": ("router",),
    "answer_directly": ("answer_generator",),
    "check_groundedness": ("groundedness_grader",),
    "check_answer": ("answer_grader",),
    "extract_knowledge": ("knowledge_extractor",),
    "feedback_on_query": ("feedback_writer",),
    "feedback_on_answer": ("feedback_writer",),
    "apologise": ("apology_writer",),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_route_asks_the_models_what_its_path_predicts(
    cluster: Cluster, runs: dict[str, int], name: str
) -> None:
    expected = Counter(role for node in expand(BY_NAME[name].path) for role in CALLS.get(node, ()))
    if BY_NAME[name].params.get("retrieval") == "sparse":
        del expected["embedder"]  # words are counted, not embedded
    # a query that the run has asked before brings what it brought, and is not embedded again
    asked = cluster.rows(
        "SELECT role, status FROM model_calls WHERE run_id = :id UNION ALL"
        " SELECT 'embedder', 'ok' FROM retrievals WHERE run_id = :id AND reused_from IS NOT NULL",
        id=runs[name],
    )
    assert Counter(row.role for row in asked) == expected
    assert {row.status for row in asked} <= {"ok"}


def test_each_document_is_graded_once(cluster: Cluster, runs: dict[str, int]) -> None:
    graded = dict(tuple(row) for row in cluster.rows("SELECT run_id, count(*) FROM grades GROUP BY run_id"))
    for name, run_id in runs.items():
        expected = expand(BY_NAME[name].path).count("grade_document")
        assert graded.get(run_id, 0) == expected, name


def test_model_calls_carry_tokens_prompt_and_nothing_is_lost(cluster: Cluster, runs: dict[str, int]) -> None:
    calls = cluster.rows(
        "SELECT role, model, prompt_version, input_tokens, status FROM model_calls WHERE run_id = :id",
        id=runs["some_relevant"],
    )
    by_role = {row.role: row for row in calls}
    assert {"embedder", "relevance_grader", "query_rewriter", "answer_generator"} == set(by_role)
    assert by_role["relevance_grader"].input_tokens == 100
    stored = {(row.role, row.version) for row in cluster.rows("SELECT role, version FROM prompts")}
    for role in ("relevance_grader", "query_rewriter", "answer_generator"):
        assert (role, by_role[role].prompt_version) in stored
    searches = cluster.rows(
        "SELECT query, status FROM web_searches WHERE run_id = :id", id=runs["some_relevant"]
    )
    assert [tuple(row) for row in searches] == [(f"web: {BY_NAME['some_relevant'].question}", "ok")]
    assert read_rows(cluster.engine, "SELECT * FROM lost_runs") == []
    assert read_rows(cluster.engine, "SELECT * FROM claims") == []
