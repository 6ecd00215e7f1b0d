"""One stack for nearly all of these tests, started and stopped by the command itself."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.stack.postgres_user import remove_data
from shared.stack.process import process_mark
from tests.e2e.home import Home

KNOWLEDGE = {
    "desk.md": "# Opening hours\nThe service desk is open from 9 am to 5 pm, Monday to Friday.\n\n"
    "# Passwords\nA password must have at least twelve characters and is changed every year.\n",
    "more/parking.txt": "The office in Utrecht has 42 parking places for visitors. Bicycles go in the cellar.",
    "holidays.html": "<html><head><title>Holidays</title></head><body><article><h1>Holidays</h1>"
    "<p>Every employee has 25 days of holiday each year. Unused days expire in July.</p></article></body></html>",
    "drinks.jsonl": '{"id": "a", "title": "Coffee", "text": "Coffee is free in the canteen."}\n'
    '{"id": "b", "title": "Tea", "text": "Tea costs one euro and is sold in the canteen."}\n',
    "sheet.pptx": "not read",
}


def new_home(**settings: str) -> Home:
    folder = Path(tempfile.mkdtemp(prefix="cragline-e2e-"))
    folder.chmod(0o755)  # Postgres, started by root, runs as another user
    return Home(folder, **settings)


def remove_home(home: Home) -> None:
    remove_data(home.path)
    shutil.rmtree(home.folder)


def all_gone(pids: list[int]) -> bool:
    return all(process_mark(pid) is None for pid in pids)


@pytest.fixture(scope="session")
def stack() -> Iterator[Home]:
    home = new_home()
    started = home.run("up", "-d", timeout=180)
    try:
        assert (started.code, started.err) == (0, "")
        assert "All of it is ready." in started.out
        pids = [part["pid"] for part in home.state["parts"]] + [home.state["supervisor_pid"]]
        assert not all_gone(pids)
        yield home
        leaks = home.leaks()  # after all the tests, so that whatever they provoked is in the logs
    finally:
        stopped = home.run("down", timeout=180)
    assert leaks == []
    assert (stopped.code, stopped.err) == (0, "")
    assert "Stopped the stack" in stopped.out
    assert all_gone(pids)
    assert not (home.path / "stack.json").exists()
    remove_home(home)


@pytest.fixture(scope="session")
def knowledge(stack: Home) -> Home:
    """The stack, with the files of KNOWLEDGE in the default collection."""
    for name, content in KNOWLEDGE.items():
        stack.write(f"kb/{name}", content)
    told = stack.run("ingest", "kb", "--json").value
    assert (told["failed"], told["documents"], told["chunks_added"]) == (0, 5, 6)
    return stack
