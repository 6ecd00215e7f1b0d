"""The layered drawing: on the pipelines' graphs, and on any graph at all."""

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from api.web.layout import HEIGHT, Drawing, draw

NAMES = [f"n{number}" for number in range(12)]
EDGES = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)), max_size=40)


def overlapping(drawn: Drawing) -> list[tuple[str, str]]:
    return [
        (a, b)
        for a, b in combinations(drawn.boxes, 2)
        if abs(drawn.boxes[a].x - drawn.boxes[b].x) < (drawn.boxes[a].width + drawn.boxes[b].width) / 2
        and abs(drawn.boxes[a].y - drawn.boxes[b].y) < HEIGHT
    ]


@settings(max_examples=40, deadline=None)
@given(EDGES)
def test_no_two_boxes_touch_all_are_inside_and_every_edge_joins_its_ends(
    edges: list[tuple[str, str]],
) -> None:
    drawn = draw(NAMES, edges, dict.fromkeys(NAMES, 80.0))
    assert overlapping(drawn) == []
    for box in drawn.boxes.values():
        assert box.width / 2 <= box.x <= drawn.width - box.width / 2
        assert HEIGHT / 2 <= box.y <= drawn.height - HEIGHT / 2
    assert set(drawn.lines) == {edge for edge in edges if edge[0] != edge[1]}
    for (source, target), points in drawn.lines.items():
        assert points[0] == (drawn.boxes[source].x, drawn.boxes[source].y)
        assert points[-1] == (drawn.boxes[target].x, drawn.boxes[target].y)


def test_a_way_leads_down_and_a_loop_back_up() -> None:
    drawn = draw("abcd", [("a", "b"), ("b", "c"), ("c", "d"), ("c", "b")], dict.fromkeys("abcd", 50.0))
    y = {name: box.y for name, box in drawn.boxes.items()}
    assert y["a"] < y["b"] < y["c"] < y["d"]
    assert drawn.lines[("c", "b")][0][1] > drawn.lines[("c", "b")][-1][1]


def test_an_edge_that_passes_a_layer_goes_around_its_boxes() -> None:
    drawn = draw("abc", [("a", "b"), ("b", "c"), ("a", "c")], dict.fromkeys("abc", 50.0))
    _, bend, _ = drawn.lines[("a", "c")]
    assert abs(bend[0] - drawn.boxes["b"].x) > 25
