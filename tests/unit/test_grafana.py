"""The dashboard asks for nothing that is not measured."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from flower.events import get_prometheus_metrics
from prometheus_client import REGISTRY

ROOT = Path(__file__).resolve().parents[2]
DASHBOARD: dict[str, Any] = json.loads((ROOT / "docs" / "grafana-cragline.json").read_text(encoding="utf-8"))
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES = [target["expr"] for panel in PANELS for target in panel["targets"]]
QUERIES += [one["query"]["query"] for one in DASHBOARD["templating"]["list"] if one["type"] == "query"]
SUFFIXES = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"], "gauge": [""]}
LABELS = {"pipeline", "node", "status", "direction", "part", "worker", "task", "type", "le"}


def of_flower() -> set[str]:
    get_prometheus_metrics()
    return {
        f"{family.name}{suffix}"
        for family in REGISTRY.collect()
        if family.name.startswith("flower_")
        for suffix in SUFFIXES[family.type]
    }


def of_the_api() -> set[str]:
    path = ROOT / "api" / "metrics.py"
    if not path.exists():
        pytest.skip("the API measures nothing yet")
    kinds = {"_counter": "counter", "HistogramMetricFamily": "histogram", "GaugeMetricFamily": "gauge"}
    found = re.findall(r'\b(\w+)\(\s*"(cragline_\w+)"', path.read_text(encoding="utf-8"))
    assert found
    return {f"{name}{suffix}" for maker, name in found for suffix in SUFFIXES[kinds[maker]]}


def asked(prefix: str) -> set[str]:
    return {name for query in QUERIES for name in re.findall(rf"\b{prefix}_\w+", query)}


def test_flower_measures_what_is_asked_of_it() -> None:
    assert asked("flower") and asked("flower") <= of_flower()


def test_the_api_measures_what_is_asked_of_it() -> None:
    assert asked("cragline") and asked("cragline") <= of_the_api()


def test_labels_are_those_that_metrics_have() -> None:
    for query in QUERIES:
        for group in re.findall(r"by \(([^)]*)\)", query):
            assert set(re.split(r",\s*", group)) <= LABELS, query
    for panel in PANELS:
        for target in panel["targets"]:
            assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= LABELS


def test_panels_do_not_lie_on_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
    assert all(panel["title"] and panel["description"] for panel in PANELS)
