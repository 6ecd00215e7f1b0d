"""The real stack, with its Celery parts, by the command that a person types."""

import base64
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import psycopg

from shared.stack.postgres_user import remove_data
from shared.stack.process import command_of, process_mark

QUIET = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def cragline(home: Path, *words: str, **more: Any) -> "subprocess.CompletedProcess[str]":
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CRAGLINE_")}
    command = [sys.executable, "-m", "api.cli.main", *words]
    return subprocess.run(command, env=kept | {"CRAGLINE_HOME": str(home)}, text=True, check=False, **more)


def status(url: str, login: str | None = None) -> int:
    request = urllib.request.Request(url)
    if login is not None:
        request.add_header("Authorization", f"Basic {base64.b64encode(login.encode()).decode()}")
    try:
        with QUIET.open(request, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_up_in_the_background_and_down(tmp_path: Path) -> None:
    home = tmp_path / "home"
    reader, writer = os.pipe()
    os.close(reader)  # as `cragline up -d | grep -q ...` does it: the steps have no reader
    try:
        started = cragline(
            home, "up", "-d", "--workers", "2", stdout=writer, stderr=subprocess.PIPE, timeout=180
        )
        assert (started.returncode, started.stderr) == (0, "")
        state = json.loads((home / "stack.json").read_text())
        parts = {part["name"]: part for part in state["parts"]}
        assert list(parts) == ["postgres", "valkey", "worker-1", "worker-2", "beat", "flower", "api"]
        assert all(process_mark(part["pid"]) for part in parts.values())

        secrets = json.loads((home / "secrets.json").read_text())
        shown = [command_of(part["pid"]) for part in parts.values()]
        shown += [log.read_text(errors="replace") for log in (home / "logs").glob("*.log")]
        assert not [secret for secret in secrets.values() if any(secret in text for text in shown)]

        flower = parts["flower"]["url"]
        assert status(f"{flower}/workers") == 401
        assert status(f"{flower}/workers", "cragline:wrong") == 401
        assert status(f"{flower}/workers", f"cragline:{secrets['flower']}") == 200
        assert status(f"{parts['api']['url']}/healthz") == 200
        with psycopg.connect(parts["postgres"]["url"]) as connection:
            assert connection.execute("SELECT count(*) FROM batch_progress").fetchone() == (0,)
    finally:
        os.close(writer)
        stopped = cragline(home, "down", capture_output=True, timeout=180)
        remove_data(home)
    assert stopped.returncode == 0
    assert "Stopped the stack" in stopped.stdout
    assert not [name for name, part in parts.items() if process_mark(part["pid"])]
    assert process_mark(state["supervisor_pid"]) is None
    assert not (home / "stack.json").exists()
