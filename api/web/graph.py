"""A pipeline's graph with the way that a run took, as shapes for the SVG template.

The graphs are those that LangGraph has compiled: `make docs` writes them to `pipelines.json`, because this
side of the program does not import the workers.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from api.web.layout import HEIGHT, Drawing, Edge, draw

START, END = "__start__", "__end__"
_FILE = Path(__file__).with_name("pipelines.json")
_LETTER, _PADDING = 7.8, 30.0  # SVG units: of a letter of the label, and around it
_LABELS = {START: "start", END: "end"}
State = Literal["idle", "taken", "open", "failed"]


@dataclass(frozen=True)
class Graph:
    nodes: tuple[str, ...]
    edges: tuple[Edge, ...]


@dataclass(frozen=True)
class Way:
    """What a run has done so far."""

    visits: Mapping[str, int]  # node -> how often it came to an end there, each branch counted
    edges: frozenset[Edge]
    open: frozenset[str]  # nodes that are waiting or at work
    failed: frozenset[str]


@dataclass(frozen=True)
class NodeShape:
    label: str
    left: float
    top: float
    width: float
    height: float
    visits: int
    state: State
    terminal: bool  # the start or the end

    @property
    def middle(self) -> float:
        return self.left + self.width / 2


@dataclass(frozen=True)
class EdgeShape:
    path: str
    taken: bool


@dataclass(frozen=True)
class Picture:
    width: float
    height: float
    nodes: list[NodeShape]
    edges: list[EdgeShape]  # those that were taken come last, on top
    said: str  # the same in words


@lru_cache(maxsize=1)
def graphs() -> dict[str, Graph]:
    """The pipelines by name."""
    found = json.loads(_FILE.read_text(encoding="utf-8"))
    return {
        name: Graph(tuple(one["nodes"]), tuple((a, b) for a, b in one["edges"]))
        for name, one in found.items()
    }


def way_of(timeline: Sequence[Mapping[str, Any]], claims: Sequence[Mapping[str, Any]] = ()) -> Way:
    """The way through, from the rows of `run_timeline` and the open claims of the run."""
    visits: Counter[str] = Counter()
    edges: set[Edge] = set()
    failed: set[str] = set()
    for row in timeline:
        if row["status"] == "skipped":
            continue
        node = row["node"]
        edges.update((before, node) for before in row["came_from"] or [START])
        if row["status"] == "succeeded":
            visits[node] += 1
            edges.update((node, END) for after in row["goes_to"] if after == END)
        elif row["status"] == "failed":
            failed.add(node)
    for claim in claims:
        edges.update((before, claim["node"]) for before in claim.get("came_from") or ())
    if edges:
        visits[START] = 1
    visits[END] = int(any(target == END for _, target in edges))
    waiting = frozenset(claim["node"] for claim in claims if claim["status"] in ("ready", "running"))
    return Way(visits, frozenset(edges), waiting, frozenset(failed))


def picture(pipeline: str, way: Way) -> Picture:
    """The drawing. What a run did in a graph of an earlier version is added to the graph of today."""
    known = graphs().get(pipeline) or Graph((START, END), ())
    seen = {name for edge in way.edges for name in edge} - set(known.nodes)
    nodes = (*known.nodes, *sorted(seen))
    drawn = _drawn(nodes, (*known.edges, *sorted(way.edges - set(known.edges))))
    shapes = []
    for name in nodes:
        box = drawn.boxes[name]
        shapes.append(
            NodeShape(
                label=_LABELS.get(name, name),
                left=box.x - box.width / 2,
                top=box.y - HEIGHT / 2,
                width=box.width,
                height=HEIGHT,
                visits=way.visits.get(name, 0),
                state=_state(name, way),
                terminal=name in _LABELS,
            )
        )
    edges = [EdgeShape(_path(points), edge in way.edges) for edge, points in drawn.lines.items()]
    return Picture(drawn.width, drawn.height, shapes, sorted(edges, key=lambda one: one.taken), _said(way))


@lru_cache(maxsize=64)
def _drawn(nodes: tuple[str, ...], edges: tuple[Edge, ...]) -> Drawing:
    widths = {name: len(_LABELS.get(name, name)) * _LETTER + _PADDING for name in nodes}
    return draw(nodes, edges, widths)


def _state(name: str, way: Way) -> State:
    if name in way.open:
        return "open"
    if name in way.failed:
        return "failed"
    return "taken" if way.visits.get(name) else "idle"


def _path(points: Sequence[tuple[float, float]]) -> str:
    """From border to border; straight down beside the boxes of a layer, so that it bends between layers only."""
    down = points[0][1] < points[-1][1]
    out = HEIGHT / 2 if down else -HEIGHT / 2
    tip = 6 if down else -6  # room for the arrow's head
    first, last = points[0], points[-1]
    beside = [(x, y + side) for x, y in points[1:-1] for side in (-out, out)]
    through = [(first[0], first[1] + out), *beside, (last[0], last[1] - out - tip)]
    said = [f"M{through[0][0]:.1f} {through[0][1]:.1f}"]
    for (x0, y0), (x1, y1) in pairwise(through):
        half = (y1 - y0) / 2
        said.append(f"C{x0:.1f} {y0 + half:.1f} {x1:.1f} {y1 - half:.1f} {x1:.1f} {y1:.1f}")
    return "".join(said)


def _said(way: Way) -> str:
    """For who cannot see the drawing."""
    if not way.edges:
        return "The run has not begun."
    done = [
        name if count == 1 else f"{name} {count} times"
        for name, count in way.visits.items()
        if count and name not in _LABELS
    ]
    parts = [f"The way taken, in order of the first visit: {', '.join(done) or 'nothing finished yet'}."]
    if way.failed:
        parts.append(f"Failed: {', '.join(sorted(way.failed))}.")
    if way.open:
        parts.append(f"Waiting or at work: {', '.join(sorted(way.open))}.")
    elif way.visits.get(END):
        parts.append("It came to its end.")
    return " ".join(parts)
