"""The latencies of nodes as bars."""

from collections.abc import Sequence
from dataclasses import dataclass

from api.web.render import milliseconds
from shared.browse import BUCKETS_MS, NodeLatency

WIDTH, HEIGHT = 510.0, 96.0  # SVG units, without the labels below
_LEAST = 2.0  # height of a bar that is not empty


@dataclass(frozen=True)
class Bar:
    x: float
    y: float
    width: float
    height: float
    count: int
    said: str  # "20 ms to 50 ms"


@dataclass(frozen=True)
class Chart:
    latency: NodeLatency
    bars: list[Bar]
    labels: list[tuple[float, str]]  # place and text below the bars
    said: str


def charts(latencies: Sequence[NodeLatency]) -> list[Chart]:
    """One for each node, all with the same bars, so that they can be compared from top to bottom."""
    return [_chart(latency) for latency in latencies]


def _chart(latency: NodeLatency) -> Chart:
    step = WIDTH / len(latency.bars)
    highest = max(latency.bars) or 1
    bars = []
    for number, count in enumerate(latency.bars):
        height = max(_LEAST, HEIGHT * count / highest) if count else 0.0
        bars.append(Bar(number * step + 1, HEIGHT - height, step - 2, height, count, _range(number)))
    labels = [
        (number * step, milliseconds(BUCKETS_MS[number - 1])) for number in range(1, len(BUCKETS_MS) + 1, 3)
    ]
    peak = bars[latency.bars.index(max(latency.bars))]
    said = (
        f"{latency.node}: {latency.attempts:,} attempts, half of them within {milliseconds(latency.p50_ms)}, "
        f"95 of 100 within {milliseconds(latency.p95_ms)}, the longest {milliseconds(latency.longest_ms)}; "
        f"most of them took {peak.said}."
    )
    return Chart(latency, bars, labels, said)


def _range(number: int) -> str:
    if number == 0:
        return f"up to {milliseconds(BUCKETS_MS[0])}"
    if number == len(BUCKETS_MS):
        return f"over {milliseconds(BUCKETS_MS[-1])}"
    return f"{milliseconds(BUCKETS_MS[number - 1])} to {milliseconds(BUCKETS_MS[number])}"
