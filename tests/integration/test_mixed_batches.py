"""Mixed questions through every pipeline, all at once: nothing lost, nothing over its limits, calls as predicted."""

from collections import Counter, defaultdict
from itertools import cycle, islice

import pytest

from tests.integration.cluster import Cluster
from tests.integration.scenario import Scenario, expand
from tests.integration.scenarios import SCENARIOS
from tests.integration.test_contract import CALLS
from workers.runner.pipelines import adapters

QUESTIONS = 30  # a pipeline; each scenario comes at least once


def mixed(pipeline: str) -> list[tuple[Scenario, str]]:
    """Scenarios of a pipeline in turn, each question with a number of its own, so that none is a repetition."""
    of_pipeline = [scenario for scenario in SCENARIOS if scenario.pipeline == pipeline]
    wanted = max(QUESTIONS, len(of_pipeline))
    turns = islice(cycle(of_pipeline), wanted)
    return [(scenario, f"{scenario.question} {number}") for number, scenario in enumerate(turns)]


@pytest.fixture(scope="module")
def asked(cluster: Cluster) -> dict[int, Scenario]:
    """Run ids by scenario, of all pipelines, once every batch has ended."""
    batches: dict[int, dict[str, Scenario]] = {}
    for pipeline in sorted(adapters()):
        groups: dict[str, list[tuple[Scenario, str]]] = defaultdict(list)
        for scenario, question in mixed(pipeline):
            groups[f"{scenario.collection} {sorted(scenario.params.items())}"].append((scenario, question))
        for group in groups.values():
            first = group[0][0]
            params = {"k": 3, "retrieval": "dense", **first.params}
            batch = cluster.submit([question for _, question in group], pipeline, first.collection, **params)
            batches[batch] = {question: scenario for scenario, question in group}
    for batch in batches:
        cluster.wait(batch, timeout=240)
    rows = cluster.rows("SELECT id, batch_id, question FROM runs")
    return {row.id: batches[row.batch_id][row.question] for row in rows}


def test_every_run_ends_as_its_route_says(cluster: Cluster, asked: dict[int, Scenario]) -> None:
    rows = cluster.rows("SELECT id, status FROM runs")
    assert {row.id: row.status for row in rows} == {run: scenario.ends for run, scenario in asked.items()}
    assert Counter(scenario.pipeline for scenario in asked.values()).keys() == adapters().keys()
    assert cluster.rows("SELECT * FROM lost_runs") == []
    assert cluster.rows("SELECT * FROM claims") == []


def test_no_run_is_over_its_limits(cluster: Cluster, asked: dict[int, Scenario]) -> None:
    steps = cluster.rows(
        "SELECT run_id, node, count(*) FILTER (WHERE status = 'succeeded') AS n FROM transitions GROUP BY 1, 2"
    )
    counts: dict[int, Counter[str]] = defaultdict(Counter)
    for row in steps:
        counts[row.run_id][row.node] = row.n
    for run, scenario in asked.items():
        assert counts[run] == Counter(expand(scenario.path)), scenario.name


def test_the_calls_are_those_the_graphs_predict(cluster: Cluster, asked: dict[int, Scenario]) -> None:
    expected: Counter[str] = Counter()
    for scenario in asked.values():
        for node in expand(scenario.path):
            expected.update(CALLS.get(node, ()))
        if scenario.params.get("retrieval") == "sparse":
            expected["embedder"] -= expand(scenario.path).count("retrieve")
    # a query that was asked before in the batch brings what it brought, and is not embedded again
    made = Counter(
        row.role
        for row in cluster.rows(
            "SELECT role FROM model_calls UNION ALL"
            " SELECT 'embedder' FROM retrievals WHERE reused_from IS NOT NULL"
        )
    )
    assert made == expected
