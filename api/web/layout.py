"""A layered drawing of a directed graph, as coordinates: who comes later stands lower, loops go back up.

    loops turned around -> layers by longest path -> bends where an edge passes a layer
    -> order in each layer by the mean of the neighbours -> places, the same way

Small graphs only: a pipeline has some twenty nodes.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise

Edge = tuple[str, str]
HEIGHT = 44.0  # of a node, in SVG units
_LAYER, _MARGIN = 82.0, 16.0  # from layer to layer; around all
_GAP, _BEND = 20.0, 2.0  # between two of a layer; width of a bend, which needs less of a gap
_SWEEPS = 12


@dataclass(frozen=True)
class Box:
    """A node: its centre and its width."""

    x: float
    y: float
    width: float


@dataclass(frozen=True)
class Drawing:
    """Boxes by node, and for each edge the points it goes through, from its source to its target."""

    width: float
    height: float
    boxes: dict[str, Box]
    lines: dict[Edge, list[tuple[float, float]]]


@dataclass
class _Layered:
    layers: list[list[str]]
    up: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))  # neighbours a layer higher
    down: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))


def draw(nodes: Sequence[str], edges: Sequence[Edge], widths: Mapping[str, float]) -> Drawing:
    """The first node is the entry; `widths` are those of the boxes. Edges from a node to itself are left out."""
    edges = [edge for edge in dict.fromkeys(edges) if edge[0] != edge[1]]
    loops = _loops(nodes, edges)
    forward = {edge: (edge[1], edge[0]) if edge in loops else edge for edge in edges}
    rank = _ranks(nodes, list(forward.values()))
    layered, chains = _with_bends(nodes, forward, rank)
    _order(layered)
    width = {name: widths.get(name, _BEND) for layer in layered.layers for name in layer}
    x = _places(layered, width)
    left = min(x[name] - width[name] / 2 for name in x) - _MARGIN
    right = max(x[name] + width[name] / 2 for name in x) + _MARGIN
    y = {
        name: _MARGIN + HEIGHT / 2 + row * _LAYER
        for row, layer in enumerate(layered.layers)
        for name in layer
    }
    boxes = {name: Box(x[name] - left, y[name], width[name]) for name in nodes}
    lines = {}
    for edge, chain in chains.items():
        points = [(x[name] - left, y[name]) for name in chain]
        lines[edge] = points[::-1] if edge in loops else points
    bottom = max(y.values()) + HEIGHT / 2 + _MARGIN
    return Drawing(right - left, bottom, boxes, lines)


def _loops(nodes: Sequence[str], edges: Sequence[Edge]) -> set[Edge]:
    """The edges that lead back to where the way came from, found by walking from each node in order."""
    following = defaultdict(list)
    for source, target in edges:
        following[source].append(target)
    found: set[Edge] = set()
    done: set[str] = set()

    def walk(node: str, path: set[str]) -> None:
        for target in following[node]:
            if target in path:
                found.add((node, target))
            elif target not in done:
                walk(target, path | {target})
        done.add(node)

    for node in nodes:
        if node not in done:
            walk(node, {node})
    return found


def _ranks(nodes: Sequence[str], edges: Sequence[Edge]) -> dict[str, int]:
    """The layer of each node: one below the lowest that leads to it."""
    rank = dict.fromkeys(nodes, 0)
    for _ in nodes:  # the longest path has no more edges than there are nodes
        for source, target in edges:
            rank[target] = max(rank[target], rank[source] + 1)
    return rank


def _with_bends(
    nodes: Sequence[str], forward: Mapping[Edge, Edge], rank: Mapping[str, int]
) -> tuple[_Layered, dict[Edge, list[str]]]:
    """The layers, with a bend in each that an edge passes; and for each edge its chain from top to bottom."""
    layered = _Layered([[] for _ in range(max(rank.values()) + 1)])
    for node in nodes:
        layered.layers[rank[node]].append(node)
    chains = {}
    for edge, (top, bottom) in forward.items():
        chain = [top]
        for row in range(rank[top] + 1, rank[bottom]):
            bend = f"{edge[0]}\n{edge[1]}\n{row}"  # no node is named so
            layered.layers[row].append(bend)
            chain.append(bend)
        chain.append(bottom)
        for above, below in pairwise(chain):
            layered.down[above].append(below)
            layered.up[below].append(above)
        chains[edge] = chain
    return layered, chains


def _order(layered: _Layered) -> None:
    """Puts each layer into the order of the mean place of its neighbours, down and up again; keeps the best."""
    best, fewest = [list(layer) for layer in layered.layers], _crossings(layered)
    for sweep in range(_SWEEPS):
        downwards = sweep % 2 == 0
        near = layered.up if downwards else layered.down
        rows = range(1, len(layered.layers)) if downwards else range(len(layered.layers) - 2, -1, -1)
        for row in rows:
            beside = layered.layers[row - 1 if downwards else row + 1]
            place = {name: number for number, name in enumerate(beside)}
            own = {name: float(number) for number, name in enumerate(layered.layers[row])}
            layered.layers[row].sort(key=lambda name: _mean([place[n] for n in near[name]], own[name]))
        if (now := _crossings(layered)) < fewest:
            best, fewest = [list(layer) for layer in layered.layers], now
    layered.layers = best


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _crossings(layered: _Layered) -> int:
    found = 0
    for above, below in pairwise(layered.layers):
        place = {name: number for number, name in enumerate(below)}
        drawn = [(n, place[target]) for n, name in enumerate(above) for target in layered.down[name]]
        found += sum((a[0] - b[0]) * (a[1] - b[1]) < 0 for a, b in combinations(drawn, 2))
    return found


def _places(layered: _Layered, width: Mapping[str, float]) -> dict[str, float]:
    """Centres: each wants to stand at the mean of its neighbours, and none may touch the next."""
    x: dict[str, float] = {}
    for layer in layered.layers:
        _spread(layer, [0.0] * len(layer), width, x)
    for sweep in range(_SWEEPS):
        near = layered.up if sweep % 2 == 0 else layered.down
        rows = layered.layers if sweep % 2 == 0 else layered.layers[::-1]
        for layer in rows:
            _spread(layer, [_mean([x[n] for n in near[name]], x[name]) for name in layer], width, x)
    return x


def _spread(
    layer: Sequence[str], wanted: Sequence[float], width: Mapping[str, float], x: dict[str, float]
) -> None:
    """The middle between the leftmost and the rightmost way to keep the order and the gaps."""
    gaps = [
        (width[a] + width[b]) / 2 + (_GAP if max(width[a], width[b]) > _BEND else _GAP / 2)
        for a, b in pairwise(layer)
    ]
    to_right, to_left = list(wanted), list(wanted)
    for number, gap in enumerate(gaps):
        to_right[number + 1] = max(to_right[number + 1], to_right[number] + gap)
    for number in reversed(range(len(gaps))):
        to_left[number] = min(to_left[number], to_left[number + 1] - gaps[number])
    for number, name in enumerate(layer):
        x[name] = (to_right[number] + to_left[number]) / 2
