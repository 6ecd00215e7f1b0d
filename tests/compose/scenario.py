"""What `make compose-test` does with the stack, once there is an engine: see run.sh.

    python3 tests/compose/scenario.py --root PROJECT --work FOLDER

Only the standard library, so that it runs before anything of the project is installed.
"""

import argparse
import base64
import csv
import io
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

WORKERS = ("worker-retrieval", "worker-models", "worker-web", "worker-control")
ENDLESS = ("postgres", "redis", "beat", "flower", "api", *WORKERS)
MANY = 200  # questions of the batch that is stopped in its middle


class Failed(Exception):
    """The stack did not do what it should."""


def check(good: bool, what: str) -> None:
    if not good:
        raise Failed(what)
    print(f"  ok  {what}", flush=True)


class Stack:
    """`docker compose` with the project's file and the test's override."""

    def __init__(self, root: Path, work: Path) -> None:
        self.root = root
        self.files = work / "files"
        self.knowledge = work / "knowledge"
        self.passwords = {
            name: secrets.token_hex(16)
            for name in ("POSTGRES_PASSWORD", "REDIS_PASSWORD", "QDRANT_API_KEY", "CRAGLINE_FLOWER_PASSWORD")
        }
        self.flower_port = _free_port()
        values = self.passwords | {
            "BASE": "cragline-test-base:bookworm",
            "FLOWER_PORT": str(self.flower_port),
            "API_PORT": str(_free_port()),
            "KNOWLEDGE_DIR": str(self.knowledge),
            "FILES_DIR": str(self.files),
            "STOP_GRACE": "90s",
        }
        self.env_file = work / "test.env"
        self.env_file.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
        # The caller's own settings and keys have no say here.
        mine = ("CRAGLINE_", "OPENAI_", "TAVILY_", "COMPOSE_")
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(mine)} | values

    def compose(self, *words: str, timeout: float = 900, ok: tuple[int, ...] = (0,)) -> str:
        """Standard output. Raises Failed, with the end of the error output, on another exit code."""
        command = ["docker", "compose", "--env-file", str(self.env_file), "--progress", "quiet"]
        for file in ("docker-compose.yml", "tests/compose/compose.test.yml"):
            command += ["-f", str(self.root / file)]
        return _run([*command, *words], self.root, self.env, timeout, ok)

    def cragline(self, *words: str, ok: tuple[int, ...] = (0,)) -> str:
        return self.compose("run", "--rm", "-T", "cragline", *words, ok=ok)

    def sql(self, query: str) -> list[dict[str, Any]]:
        return list(csv.DictReader(io.StringIO(self.cragline("sql", "--csv", query))))

    def batch(self, number: int) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.cragline("batch", "show", str(number), "--json"))
        return found

    def containers(self) -> list[dict[str, Any]]:
        """`docker inspect` of every container of the project."""
        ids = self.compose("ps", "-aq").split()
        found: list[dict[str, Any]] = json.loads(
            _run(["docker", "inspect", *ids], self.root, self.env, 60, (0,))
        )
        return found

    def docker(self, *words: str, ok: tuple[int, ...] = (0,)) -> str:
        return _run(["docker", *words], self.root, self.env, 120, ok)


def _run(command: list[str], cwd: Path, env: dict[str, str], timeout: float, ok: tuple[int, ...]) -> str:
    done = subprocess.run(
        command, cwd=cwd, env=env, timeout=timeout, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    if done.returncode not in ok:
        raise Failed(
            f"{' '.join(command[-8:])}: exit code {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        )
    return done.stdout


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _service(container: dict[str, Any]) -> str:
    return str(container["Config"]["Labels"]["com.docker.compose.service"])


def build(stack: Stack, root: Path) -> None:
    stack.compose("config", "-q")
    check(True, "docker compose config takes the file and the override")
    began = time.monotonic()
    stack.compose("build", timeout=1800)
    size = int(stack.docker("image", "inspect", "-f", "{{.Size}}", "cragline:0.1.0"))
    base = int(stack.docker("image", "inspect", "-f", "{{.Size}}", "cragline-test-base:bookworm"))
    print(
        f"      built in {time.monotonic() - began:.0f} s; image {size / 1e6:.0f} MB, of it base {base / 1e6:.0f}"
    )
    history = stack.docker("history", "--no-trunc", "cragline:0.1.0")
    check(
        not any(value in history for value in stack.passwords.values()), "no password in the image's history"
    )
    inside = stack.docker(
        "run", "--rm", "cragline:0.1.0", "sh", "-c",
        "id -u; python -c 'import pytest' 2>/dev/null && echo pytest; command -v pip uv ruff mypy; true",
    )  # fmt: skip
    check(inside.split() == ["10001"], "the image runs as uid 10001 and holds no development tools")


def up(stack: Stack) -> None:
    began = time.monotonic()
    stack.compose("up", "-d", "--wait", "--wait-timeout", "300")
    print(f"      up in {time.monotonic() - began:.0f} s")
    found = {_service(one): one["State"] for one in stack.containers()}
    check(
        all(found[name].get("Health", {}).get("Status") == "healthy" for name in ENDLESS),
        "up -d --wait: every service is healthy",
    )
    check(found["migrate"]["ExitCode"] == 0, "migrate ran to its end")


def look_inside(stack: Stack) -> None:
    """What the file promises about users, disks, capabilities and passwords, as the engine sees it."""
    for container in stack.containers():
        name, host = _service(container), container["HostConfig"]
        if name == "migrate":
            continue
        uid = stack.docker("exec", container["Id"], "id", "-u").strip()
        writes = stack.docker("exec", container["Id"], "sh", "-c", "touch /probe 2>&1; true")
        commands = stack.docker("exec", container["Id"], "sh", "-c", "cat /proc/[0-9]*/cmdline")
        good = (
            uid != "0"
            and "Read-only" in writes
            and host["Init"]
            and host["CapDrop"] == ["ALL"]
            and not any(value in commands for value in stack.passwords.values())
        )
        check(good, f"{name}: uid {uid}, read-only, no capabilities, no password on a command line")
    published = [
        (binding["HostIp"], port)
        for container in stack.containers()
        for port, bindings in (container["HostConfig"]["PortBindings"] or {}).items()
        for binding in bindings
    ]
    check(published == [("127.0.0.1", "5555/tcp")], "only Flower is published, on 127.0.0.1")
    logs = stack.compose("logs", "--no-color")
    check(not any(value in logs for value in stack.passwords.values()), "no password in the logs")


def flower(stack: Stack) -> None:
    url = f"http://127.0.0.1:{stack.flower_port}/tasks"
    password = stack.passwords["CRAGLINE_FLOWER_PASSWORD"]
    codes = [_status(url, None), _status(url, f"cragline:{password}x"), _status(url, f"cragline:{password}")]
    check(codes == [401, 401, 200], "Flower wants its password, and takes it")


def _status(url: str, login: str | None) -> int:
    request = urllib.request.Request(url)
    if login is not None:
        request.add_header("Authorization", "Basic " + base64.b64encode(login.encode()).decode())
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def ask(stack: Stack, root: Path) -> int:
    """Ingest the handbook and answer a small file. Returns the batch's number."""
    pages = sorted((root / "docs").glob("*.md"))
    for page in pages:
        shutil.copy(page, stack.knowledge)
        (stack.knowledge / page.name).chmod(0o644)
    shutil.copy(root / "tests" / "compose" / "questions.csv", stack.files)
    made = json.loads(stack.cragline("ingest", "/knowledge", "--json"))
    check(made["done"] == len(pages) and made["chunks_added"] > 0, f"ingested {len(pages)} pages of docs/")
    again = json.loads(stack.cragline("ingest", "/knowledge", "--json"))
    check(again["chunks_added"] == 0 and again["chunks_unchanged"] > 0, "ingested again: nothing changed")

    counts = json.loads(stack.cragline("submit", "questions.csv", "--watch", "--json"))
    number = int(counts["batch_id"])
    print(f"      batch {number}: answered {counts['answered']}, gave up {counts['gave_up']}")
    check(counts["rows"] == 10 and counts["submitted"] == 8, "10 rows: 1 empty, 1 twice, 8 runs")
    check(counts["answered"] + counts["gave_up"] == 8, "every run has ended in answered or gave_up")
    check(counts["answered"] >= 1, "the handbook answers questions about itself")
    rows = list(csv.DictReader(io.StringIO(stack.cragline("results", str(number)))))
    check(
        [row["nr"] for row in rows] == [str(nr) for nr in range(1, 11)], "results: all rows, in input order"
    )
    check(rows[0]["answer"] == rows[9]["answer"], "results: the question asked twice has one answer")
    workers = {row["worker"].split("@")[0] for row in stack.sql("select distinct worker from transitions")}
    check(
        workers >= {"retrieval", "models"}, f"the steps ran where their queues are served: {sorted(workers)}"
    )
    _nothing_lost(stack)
    return number


def _nothing_lost(stack: Stack) -> None:
    check(stack.sql("select * from lost_runs") == [], "lost_runs is empty")


def scale_and_stop(stack: Stack) -> int:
    """Two workers for the models; then the stack is stopped in the middle of a batch. Returns its number."""
    stack.compose("up", "-d", "--wait", "--no-recreate", "--scale", "worker-models=2")
    states = [one["State"] for one in stack.containers() if _service(one) == "worker-models"]
    check(
        [state["Health"]["Status"] for state in states] == ["healthy"] * 2,
        "--scale worker-models=2: both healthy",
    )
    lines = ["question", *(f"Which command shows batch number {number}?" for number in range(MANY))]
    (stack.files / "many.csv").write_text("\n".join(lines) + "\n")
    number = int(json.loads(stack.cragline("submit", "many.csv", "--json"))["batch_id"])
    deadline = time.monotonic() + 300
    ended = 0
    while ended < MANY // 10:  # under way, and far from its end
        check_time(deadline, "the batch does not get under way")
        time.sleep(0.5)
        ended = MANY - int(stack.batch(number)["open"])
    began = time.monotonic()
    stack.compose("stop")
    codes = {_service(one): one["State"]["ExitCode"] for one in stack.containers()}
    print(f"      stopped in {time.monotonic() - began:.0f} s, after {ended} of {MANY}; exit codes {codes}")
    check(137 not in codes.values(), "stop: no container had to be killed")
    check(codes["postgres"] == 0 and codes["redis"] == 0, "stop: Postgres and Redis shut down in order")
    return number


def check_time(deadline: float, what: str) -> None:
    if time.monotonic() > deadline:
        raise Failed(what)


def again(stack: Stack, first: int, second: int) -> None:
    before = stack.compose("down")  # containers and network go, volumes stay
    del before
    stack.compose("up", "-d", "--wait", "--wait-timeout", "300", "--scale", "worker-models=2")
    counts = stack.batch(first)
    check(counts["submitted"] == 8 and counts["open"] == 0, "down and up: the first batch is still there")
    halfway = stack.batch(second)
    print(f"      batch {second} after the restart: {halfway['open']} of {MANY} open")
    counts = json.loads(stack.cragline("batch", "watch", str(second), "--json"))
    check(
        counts["answered"] + counts["gave_up"] == MANY and counts["failed"] == 0,
        "the batch that was stopped in its middle has ended, all of it",
    )
    workers = stack.sql("select distinct worker from transitions where worker like 'models@%'")
    check(len(workers) >= 3, f"both copies of worker-models took part ({len(workers)} names over two starts)")
    unchanged = json.loads(stack.cragline("ingest", "/knowledge", "--json"))
    check(unchanged["chunks_added"] == 0 and unchanged["chunks_unchanged"] > 0, "the store kept its passages")
    _nothing_lost(stack)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    given = parser.parse_args()
    stack = Stack(given.root, given.work)
    stack.knowledge.mkdir(mode=0o755)
    stack.files.mkdir()
    stack.files.chmod(0o777)
    try:
        build(stack, given.root)
        up(stack)
        look_inside(stack)
        flower(stack)
        first = ask(stack, given.root)
        second = scale_and_stop(stack)
        again(stack, first, second)
    except (Failed, subprocess.TimeoutExpired, KeyError, ValueError) as error:
        print(f"\nFAILED: {type(error).__name__}: {error}", flush=True)
        _tell_more(stack)
        return 1
    finally:
        _take_down(stack)
    print(
        "\nRun for real: the application's image on Debian's Python 3.11, Postgres 15 and Redis 7.0 of Debian"
        "\n  in place of the official images, every worker, beat, Flower, the command line; local models."
        "\nNot run here: the official images of Python, Postgres, Redis and Qdrant; the Qdrant server (the"
        "\n  worker for retrieval had its local store); OpenAI; Tavily."
    )
    return 0


def _tell_more(stack: Stack) -> None:
    try:
        print(stack.compose("ps", "-a"), stack.compose("logs", "--no-color", "--tail", "40"), flush=True)
    except (Failed, subprocess.TimeoutExpired) as error:
        print(error)


def _take_down(stack: Stack) -> None:
    try:
        stack.compose("--profile", "tools", "down", "--volumes", "--timeout", "20", timeout=180)
    except (Failed, subprocess.TimeoutExpired) as error:
        print(f"down: {error}")  # run.sh removes what is left


if __name__ == "__main__":
    sys.exit(main())
