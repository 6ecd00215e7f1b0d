"""Flower: behind a password, with the nodes as task names, and nothing private in it."""

import json
import re
import time

import pytest

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
