"""The HTTP API of the running stack, with the command line and a plain client as its users."""

import json
import time
import urllib.request
from typing import Any

import pytest

from tests.e2e.home import Home

QUESTIONS = "question,team\nWhen is the service desk open?,a\nHow many holidays do employees have?,b\n"


@pytest.fixture(scope="module")
def url(knowledge: Home) -> str:
    return next(str(part["url"]) for part in knowledge.state["parts"] if part["name"] == "api")


def get(url: str, **headers: str) -> Any:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(urllib.request.Request(url, headers=headers), timeout=60) as answer:
        return answer.read().decode()


def test_a_batch_there_and_back(knowledge: Home, url: str) -> None:
    home = knowledge
    file = home.write("by-http.csv", QUESTIONS)
    batch = home.run("submit", file, "--server", url, "--watch", "--json").value
    assert (batch["status"], batch["submitted"], batch["open"]) == ("ended", 2, 0)
    number = batch["batch_id"]
    there, here, shown, listed = home.run_all(
        [
            ("results", number, "--json", "--server", url),
            ("results", number, "--json"),
            ("batch", "show", number, "--json", "--server", url),
            ("batch", "list", "--limit", "1", "--server", url),
        ]
    )
    assert there.out == here.out
    rows = [json.loads(line) for line in there.out.splitlines()]
    assert [row["team"] for row in rows] == ["a", "b"]
    assert "9 am to 5 pm" in rows[0]["answer"]
    assert shown.value["owner"] == "local"
    assert "by-http.csv" in listed.out
    run = home.run("run", "show", rows[0]["run_id"], "--json", "--server", url).value
    assert run == home.run("run", "show", rows[0]["run_id"], "--json").value | {"open": []}
    last = get(f"{url}/v1/batches/{number}/progress").strip().split("\n\n")[-1]
    assert "event: end" in last


def test_it_is_ready_and_measures(knowledge: Home, url: str) -> None:
    found = json.loads(get(f"{url}/readyz"))
    assert found["ready"], found
    assert knowledge.submit(knowledge.write("measured.csv", QUESTIONS))["open"] == 0
    wanted = 'cragline_node_duration_seconds_bucket{le="+Inf",node="retrieve",pipeline="crag"}'
    deadline = time.monotonic() + 60
    # a scrape adds what was committed before the oldest transaction that is still open, whosever it is
    while wanted not in (metrics := get(f"{url}/metrics")):
        assert time.monotonic() < deadline, metrics
        time.sleep(1)
    assert "\ncragline_stuck_runs 0.0\n" in metrics
