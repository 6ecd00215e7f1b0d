"""`cragline up` and `down`: what runs, where it is written down, and what is left afterwards."""

import json
import signal
import socket
import subprocess
from collections.abc import Iterator

import psycopg
import pytest
import redis

from shared.stack.postgres_user import wheel_install
from tests.e2e.conftest import all_gone, new_home, remove_home
from tests.e2e.home import Home


@pytest.fixture
def bare() -> Iterator[Home]:
    """A home in which nothing was ever started."""
    home = new_home()
    yield home
    remove_home(home)


def test_stack_json_names_the_parts_and_is_private(stack: Home) -> None:
    assert (stack.path / "stack.json").stat().st_mode & 0o777 == 0o600
    parts = stack.state["parts"]
    assert [part["name"] for part in parts] == ["postgres", "valkey", "worker-1", "beat", "flower", "api"]
    assert all(set(part) == {"name", "pid", "url"} for part in parts)
    assert not any(all_gone([part["pid"]]) for part in parts)


def test_psql_takes_the_url_of_postgres(stack: Home) -> None:
    psql = wheel_install() / "bin" / "psql"
    command = [psql, stack.parts()["postgres"]["url"], "-Atc", "select count(*) from lost_runs"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr


def test_redis_clients_take_the_url_of_valkey(stack: Home) -> None:
    url = stack.parts()["valkey"]["url"]
    assert url.startswith("redis://")
    with redis.Redis.from_url(url) as client:
        assert client.ping()
        assert client.config_get("maxmemory-policy")["maxmemory-policy"] == "noeviction"


def test_a_second_up_says_so(stack: Home) -> None:
    before = stack.state
    for done in stack.run_all([["up", "-d"], ["up"], ["up", "-d", "--flower-port", "1"]]):
        message = done.error(1)
        assert "Already running" in message
        assert str(before["supervisor_pid"]) in message
        assert "cragline down" in message
    assert stack.state == before


def test_a_taken_flower_port_is_told_and_nothing_starts(bare: Home) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        message = bare.run("up", "-d", "--flower-port", str(port)).error(1)
    assert f"Port {port}" in message
    assert "--flower-port" in message
    assert not (bare.path / "stack.json").exists()
    assert not (bare.path / "postgres").exists()


def test_down_where_nothing_runs(bare: Home) -> None:
    done = bare.run("down")
    assert (done.code, done.err) == (0, "")
    assert done.out == f"No stack is running in {bare.path}.\n"
    assert not bare.path.exists()


NEED_A_STACK = [
    ["submit", "q.txt"],
    ["ingest", "q.txt"],
    ["batch", "list"],
    ["results", "1"],
    ["sql", "select 1"],
    ["db", "upgrade"],
]


def test_without_a_stack_the_error_says_how_to_start_one(bare: Home) -> None:
    bare.write("q.txt", "Who is it?\n")
    for done in bare.run_all(NEED_A_STACK):
        message = done.error(1)
        assert "No stack is running" in message
        assert "cragline up -d" in message


def test_a_database_of_ones_own_that_is_down(bare: Home) -> None:
    bare.write("q.txt", "Who is it?\n")
    url = "postgresql://me:s3cr3t@127.0.0.1:9/d"
    done = bare.run("submit", "q.txt", CRAGLINE_DATABASE_URL=url, CRAGLINE_REDIS_URL="redis://127.0.0.1:9")
    message = done.error(1)
    assert "The database does not answer" in message
    assert "s3cr3t" not in message


def test_doctor_without_a_stack(bare: Home) -> None:
    done = bare.run("doctor")
    assert (done.code, done.err) == (1, "")
    assert "not running. `cragline up -d` starts it." in done.out
    findings = bare.run("doctor", "--json")
    assert findings.code == 1
    levels = {finding["what"]: finding["level"] for finding in json.loads(findings.out)}
    assert levels["stack"] == levels["database"] == levels["redis"] == "bad"
    assert levels["models"] == levels["web search"] == "note"


def test_in_the_foreground_beside_another_stack(knowledge: Home) -> None:
    """A second home: Ctrl-C leaves nothing of it running, and the first stack untouched."""
    home, first = new_home(), knowledge.state
    process = home.start("up", "--workers", "2")
    try:
        said = _until_ready(process)
        parts = home.parts()
        assert list(parts) == ["postgres", "valkey", "worker-1", "worker-2", "beat", "flower", "api"]
        assert parts["flower"]["url"] in said
        assert "Ctrl-C stops all of it." in said
        assert not [secret for secret in home.secrets().values() if secret in said]
        pids = [part["pid"] for part in parts.values()]
        assert not set(pids) & {part["pid"] for part in first["parts"]}
        home.write("tea.txt", "Green tea is served in the red room at noon.")
        assert home.run("ingest", "tea.txt").code == 0
        assert home.run("sql", "select collection, source from documents", "--csv").out.count("\n") == 2
        assert (
            knowledge.run("sql", "select source from documents where source like '%tea.txt'", "--json").value
            == []
        )
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=90)
    assert process.returncode == 0
    assert all_gone(pids)
    assert not (home.path / "stack.json").exists()
    assert knowledge.state == first
    with psycopg.connect(knowledge.parts()["postgres"]["url"]) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    _ask_without_a_stack(home)
    remove_home(home)


def _ask_without_a_stack(home: Home) -> None:
    state = home.run("ask", "Where is green tea served?", "--json").value
    assert state["disposition"] == "answered"
    assert "red room" in state["answer"]


def _until_ready(process: "subprocess.Popen[bytes]") -> str:
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line.decode()
        if "All of it is ready." in said:
            return said
    raise AssertionError(f"not ready: {said}")
