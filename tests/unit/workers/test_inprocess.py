"""Running a graph in process: the same limit of steps as on workers, and no LangGraph error for a person."""

import pytest

from tests.unit.workers.nodes.fakes import Script, document, params
from workers.inprocess import run_in_process
from workers.runner.pipelines import adapters

YES = ("relevant", 0.9)


@pytest.mark.parametrize("limit", [2, 3])
def test_out_of_steps_is_an_honest_end(limit: int) -> None:
    """retrieve, grade_document, decide, generate: four steps, of which only `limit` are allowed."""
    script = Script(documents=[document("a"), document("b")], verdicts={"a": YES, "b": YES})
    state = {"question": "q", "params": params(k=2)}
    events = list(run_in_process(adapters()["crag"], state, script.resources(), max_steps=limit))
    nodes = [node for node, _ in events if node]
    assert nodes == ["retrieve", "grade_document", "grade_document", "decide"][: limit + 1]
    final = events[-1][1]
    assert (final["disposition"], final["reason"]) == ("gave_up", f"no answer within {limit} steps")


def test_enough_steps_end_as_the_graph_does() -> None:
    script = Script(documents=[document("a"), document("b")], verdicts={"a": YES, "b": YES})
    state = {"question": "q", "params": params(k=2)}
    final = list(run_in_process(adapters()["crag"], state, script.resources(), max_steps=4))[-1][1]
    assert final["disposition"] == "answered"
