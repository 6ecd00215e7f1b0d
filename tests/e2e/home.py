"""A home of its own for a stack, and the `cragline` command as a person types it."""

import base64
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared.stack.process import command_of

CRAGLINE = Path(sys.executable).parent / "cragline"
OURS = ("CRAGLINE_", "OPENAI_", "TAVILY_", "FLOWER_")
_NO_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True)
class Done:
    """What a command came to."""

    code: int
    out: str
    err: str

    @property
    def value(self) -> Any:
        """The one JSON value that --json prints, and nothing beside it."""
        assert self.code == 0, self.err
        assert self.out.endswith("\n")
        return json.loads(self.out)

    def error(self, code: int) -> str:
        """The error: one line on stderr, nothing on stdout, no traceback."""
        assert self.code == code, (self.code, self.out, self.err)
        assert self.out == ""
        assert self.err.startswith("Error: ")
        assert self.err.count("\n") == 1
        return self.err.removeprefix("Error: ").rstrip("\n")


class Home:
    """A folder with `home/` (CRAGLINE_HOME) in it, which is also where the commands are typed."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.folder = folder
        self.path = folder / "home"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
        kept.pop("PYTHONDONTWRITEBYTECODE", None)  # every start would compile LangGraph anew
        self.env = kept | {"CRAGLINE_HOME": str(self.path)} | settings

    def run(self, *words: object, timeout: float = 120, stdin: str = "", **env: str) -> Done:
        """Type a command, without a terminal."""
        done = subprocess.run(
            [str(CRAGLINE), *map(str, words)],
            env=self.env | env,
            cwd=self.folder,
            input=stdin.encode(),
            capture_output=True,
            timeout=timeout,
            check=False,
        )
        return Done(done.returncode, done.stdout.decode(), done.stderr.decode())

    def run_all(self, commands: Sequence[Sequence[object]], **env: str) -> list[Done]:
        """Type several commands side by side: most of the time of each is its start."""
        with ThreadPoolExecutor(3) as pool:
            return list(pool.map(lambda words: self.run(*words, **env), commands))

    def start(self, *words: str) -> "subprocess.Popen[bytes]":
        """Type a command that stays."""
        return subprocess.Popen(
            [str(CRAGLINE), *words],
            env=self.env,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def write(self, name: str, content: str | bytes) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def submit(self, file: Path, *words: object) -> dict[str, Any]:
        """Submit, wait for the end, and return what `submit --watch --json` prints."""
        found: dict[str, Any] = self.run("submit", file, *words, "--watch", "--json").value
        return found

    def results(self, batch: int) -> list[dict[str, Any]]:
        done = self.run("results", batch, "--json")
        assert (done.code, done.err) == (0, "")
        return [json.loads(line) for line in done.out.splitlines()]

    # -- what is in the home ---------------------------------------------------------------------------
    @property
    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.path / "stack.json").read_text())
        return found

    def parts(self) -> dict[str, dict[str, Any]]:
        return {part["name"]: part for part in self.state["parts"]}

    def secrets(self) -> dict[str, str]:
        found: dict[str, str] = json.loads((self.path / "secrets.json").read_text())
        return found

    def leaks(self) -> list[str]:
        """Where a password of this home can be read: command lines of the parts, and logs."""
        shown = {f"ps {name}": command_of(part["pid"]) for name, part in self.parts().items()}
        shown["ps supervisor"] = command_of(self.state["supervisor_pid"])
        assert all(shown.values()), "every part runs"
        for log in (self.path / "logs").glob("*.log"):
            shown[log.name] = log.read_text(errors="replace")
        return [where for where, text in shown.items() if any(s in text for s in self.secrets().values())]

    def flower(self, path: str, password: str | None = None, body: bytes | None = None) -> tuple[int, str]:
        """Status and text of a page, or of what is posted to it."""
        request = urllib.request.Request(self.parts()["flower"]["url"] + path, data=body)
        if password is not None:
            login = base64.b64encode(f"cragline:{password}".encode()).decode()
            request.add_header("Authorization", f"Basic {login}")
        try:
            with _NO_PROXY.open(request, timeout=20) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode(errors="replace")
