"""Flower: behind a password, with the nodes as task names, and nothing private in it."""

import json
import re
import time
import urllib.parse

import pytest
from flower.urls import handlers

from tests.e2e.home import Home

QUESTION = "How many employees know the word xylophonist?"
WORD = "xylophon"


@pytest.fixture(scope="module")
def asked(knowledge: Home) -> Home:
    batch = knowledge.submit(knowledge.write("private.txt", f"{QUESTION}\nWhen is the service desk open?\n"))
    assert (batch["submitted"], batch["open"], batch["failed"]) == (2, 0, 0)
    return knowledge


@pytest.mark.parametrize("path", ["/", "/tasks", "/workers", "/broker", "/api/tasks", "/api/workers"])
def test_every_page_asks_for_the_password(stack: Home, path: str) -> None:
    assert stack.flower(path)[0] == 401
    assert stack.flower(path, "wrong")[0] == 401
    assert stack.flower(path, stack.secrets()["flower"])[0] == 200


def test_the_nodes_are_listed_with_ids_only(asked: Home) -> None:
    wanted = {
        "crag.retrieve",
        "crag.grade_document",
        "crag.join",
        "crag.decide",
        "crag.generate",
        "crag.give_up",
    }
    deadline = time.monotonic() + 20  # Flower hears of a task a moment after it has ended
    tasks = _tasks(asked)
    while missing := wanted - {task["name"] for task in tasks}:
        assert time.monotonic() < deadline, f"Flower lists no {missing}"
        time.sleep(0.5)
        tasks = _tasks(asked)
    nodes = [task for task in tasks if str(task["name"]).startswith("crag.")]
    for task in nodes:  # a join is handed what the branches returned: their ids
        assert not re.sub(r"'\d+\.\d+\.\d+'|[\[\](), ]", "", task["args"]), task["args"]
    for task in nodes:
        arguments = json.loads(task["kwargs"].replace("'", '"').replace("True", "1").replace("False", "0"))
        assert {"batch_id", "run_id", "step"} <= set(arguments)
        assert all(isinstance(value, int) for value in arguments.values()), task["kwargs"]


def _tasks(home: Home) -> list[dict[str, str]]:
    status, text = home.flower("/api/tasks?limit=100000", home.secrets()["flower"])
    assert status == 200
    return list(json.loads(text).values())


def test_a_batch_and_a_run_are_found_by_their_ids(asked: Home) -> None:
    run = asked.run("sql", "select run_id, batch_id from runs order by run_id desc limit 1", "--json").value[
        0
    ]
    by_batch = _found(asked, f"kwargs:batch_id={run['batch_id']}", at_least=10)
    assert {task["name"] for task in by_batch} >= {"crag.retrieve", "crag.grade_document", "crag.decide"}
    by_run = _found(asked, f"kwargs:run_id={run['run_id']}", at_least=5)
    assert len(by_run) < len(by_batch)
    assert all(f"'run_id': {run['run_id']}," in task["kwargs"] for task in by_run)
    both = f"kwargs:run_id={run['run_id']} AND name:crag.retrieve"
    assert [task["name"] for task in _found(asked, both, at_least=1)] == ["crag.retrieve"]
    assert _found(asked, "kwargs:batch_id=99999", at_least=0) == []


def _found(home: Home, search: str, at_least: int) -> list[dict[str, str]]:
    """What the page of tasks lists for a search; it hears of a task a moment after it has ended."""
    query = {
        "draw": 1,
        "start": 0,
        "length": 100,
        "search[value]": search,
        "order[0][column]": 0,
        "order[0][dir]": "asc",
    }
    deadline = time.monotonic() + 20
    while True:
        page = f"/tasks/datatable?{urllib.parse.urlencode(query | {'columns[0][data]': 'name'})}"
        status, text = home.flower(page, home.secrets()["flower"])
        assert status == 200
        told = json.loads(text)
        assert "searchError" not in told
        if len(told["data"]) >= at_least:
            return list(told["data"])
        assert time.monotonic() < deadline, (search, told)
        time.sleep(0.5)


def test_flower_only_shows(asked: Home) -> None:
    """Whatever stops a worker, touches a task or starts one is refused, with the right password too."""
    worker = _tasks(asked)[0]["worker"]
    controls = [route for route in _routes() if "/api/worker/" in route or "/api/task/" in route]
    acting = [
        route
        for route in controls
        if not route.startswith(("/api/task/info", "/api/task/result", "/api/task/types"))
    ]
    assert len(acting) == 14
    for route in acting:  # by itself, and not because something else is missing
        status, text = asked.flower(route.replace("(.+)", worker), asked.secrets()["flower"], b"")
        assert (status, "ead only mode" in text) == (403, True), (route, status, text[:200])


def _routes() -> list[str]:
    return [str(handler[0]) for handler in handlers if isinstance(handler, tuple)]


@pytest.mark.parametrize("path", ["/api/tasks", "/tasks", "/broker", "/workers", "/api/workers", "/metrics"])
def test_no_page_holds_a_password_or_a_question(asked: Home, path: str) -> None:
    text = asked.flower(path, asked.secrets()["flower"])[1]
    assert not [secret for secret in asked.secrets().values() if secret in text]
    assert WORD not in text


def test_neither_does_a_command_line_or_a_log(asked: Home) -> None:
    assert asked.leaks() == []
    logs = {path.name: path.read_text(errors="replace") for path in (asked.path / "logs").glob("*.log")}
    assert {"worker-1.log", "flower.log", "postgres.log"} <= set(logs)
    assert not [name for name, text in logs.items() if WORD in text]
