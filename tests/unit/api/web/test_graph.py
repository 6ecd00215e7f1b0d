"""The picture of a run: which nodes and edges are lit, how often, and the same in words."""

import re
from itertools import pairwise
from typing import Any

import pytest

from api.web.graph import EdgeShape, NodeShape, Picture, graphs, picture, way_of
from workers.runner.pipelines import adapters


def step(node: str, came: str, goes: list[str], status: str = "succeeded") -> dict[str, Any]:
    return {"node": node, "came_from": [came], "goes_to": goes, "status": status}


def shape(drawn: Picture, label: str) -> NodeShape:
    return next(one for one in drawn.nodes if one.label == label)


def taken(drawn: Picture) -> list[EdgeShape]:
    return [edge for edge in drawn.edges if edge.taken]


def test_the_stored_graphs_are_those_that_were_compiled() -> None:
    compiled = {name: adapter.compiled.get_graph() for name, adapter in adapters().items()}
    assert {name: set(graph.nodes) for name, graph in graphs().items()} == {
        name: set(graph.nodes) for name, graph in compiled.items()
    }
    assert {name: set(graph.edges) for name, graph in graphs().items()} == {
        name: {(edge.source, edge.target) for edge in graph.edges} for name, graph in compiled.items()
    }


@pytest.mark.parametrize("pipeline", sorted(graphs()))
def test_every_pipeline_is_drawn_with_nothing_lit_before_it_begins(pipeline: str) -> None:
    drawn = picture(pipeline, way_of([]))
    assert len(drawn.nodes) == len(graphs()[pipeline].nodes)
    assert {node.state for node in drawn.nodes} == {"idle"}
    assert len(drawn.edges) == len(graphs()[pipeline].edges)
    assert taken(drawn) == []
    assert drawn.said == "The run has not begun."


def test_the_way_is_lit_from_start_to_end_and_branches_are_counted() -> None:
    way = [
        step("retrieve", "__start__", ["grade_document"] * 3),
        *(step("grade_document", "retrieve", ["decide"]) for _ in range(3)),
        step("grade_document", "retrieve", [], "retried"),
        step("grade_document", "retrieve", ["decide"], "skipped"),
        step("decide", "grade_document", ["generate"]),
        step("generate", "decide", ["__end__"]),
    ]
    drawn = picture("crag", way_of(way))
    assert shape(drawn, "grade_document").visits == 3  # neither the retried nor the skipped
    assert {node.label for node in drawn.nodes if node.state == "taken"} == {
        "start",
        "retrieve",
        "grade_document",
        "decide",
        "generate",
        "end",
    }
    assert len(taken(drawn)) == 5
    assert "retrieve, grade_document 3 times, decide, generate" in drawn.said
    assert "came to its end" in drawn.said


def test_loops_are_lit_and_counted() -> None:
    way = [
        step("generate", "assemble", ["check_groundedness"]),
        step("check_groundedness", "generate", ["feedback_on_answer"]),
        step("feedback_on_answer", "check_groundedness", ["generate"]),
        step("generate", "feedback_on_answer", ["check_groundedness"]),
    ]
    drawn = picture("adaptive", way_of(way))
    assert shape(drawn, "generate").visits == 2
    assert len(taken(drawn)) == 4


def test_a_node_that_failed_or_is_at_work_looks_different() -> None:
    way = way_of(
        [step("retrieve", "__start__", ["generate"]), step("generate", "retrieve", [], "failed")],
        [{"node": "give_up", "status": "running"}],
    )
    drawn = picture("rag", way)
    assert shape(drawn, "generate").state == "failed"
    assert shape(drawn, "give_up").state == "open"
    assert shape(drawn, "end").state == "idle"
    assert "Failed: generate." in drawn.said
    assert "at work: give_up." in drawn.said


def test_nodes_of_an_earlier_version_and_of_an_unknown_pipeline_are_drawn_too() -> None:
    way = way_of([step("old_node", "__start__", ["__end__"])])
    for pipeline in ("crag", "gone"):
        drawn = picture(pipeline, way)
        assert shape(drawn, "old_node").state == "taken"
        assert len(taken(drawn)) == 2


@pytest.mark.parametrize("pipeline", sorted(graphs()))
def test_no_edge_crosses_a_box(pipeline: str) -> None:
    """Where a line is as high as a box, it is straight, and beside the box."""
    drawn = picture(pipeline, way_of([]))
    for edge in drawn.edges:
        numbers = [float(one) for one in re.findall(r"-?[\d.]+", edge.path)]
        points = list(zip(numbers[::2], numbers[1::2], strict=True))
        for (x, y), (x_next, y_next) in pairwise([points[0], *points[3::3]]):
            low, high = sorted((y, y_next))
            for box in drawn.nodes:
                if low < box.top + box.height - 1 and high > box.top + 1:
                    assert x == x_next, (edge.path, box.label)
                    assert abs(x - box.middle) > box.width / 2, (edge.path, box.label)
