"""Real workers and beat on the session's servers, for tests to submit to."""

import os
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import text

from shared import batches, history, ingest
from shared.db import make_engine
from shared.plan import make_plan
from shared.queue import make_app, wake_dispatcher
from shared.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
ALL_QUEUES = "retrieval,models,web,control"


@dataclass
class QuestionRow:
    number: int
    question: str | None
    original: Any
    notes: list[str] = field(default_factory=list)


def rows(questions: Iterable[str | None]) -> list[QuestionRow]:
    return [QuestionRow(number, text, [text or ""]) for number, text in enumerate(questions, 1)]


def read_rows(engine: Any, query: str, **values: Any) -> list[Any]:
    with engine.connect() as connection:
        return list(connection.execute(text(query), values).all())


class Cluster:
    """`environment` holds settings by variable name; retries and leases are quick unless it says otherwise."""

    def __init__(self, home: Path, database_url: str, redis_url: str, **environment: str) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.home = home
        self.traps = home / "traps"
        self.traps.mkdir(exist_ok=True)
        self.environment = {
            "CRAGLINE_HOME": str(home),
            "CRAGLINE_DATABASE_URL": database_url,
            "CRAGLINE_REDIS_URL": redis_url,
            "CRAGLINE_RETRY_BASE": "0.1",
            "CRAGLINE_RETRY_CAP": "0.3",
            "CRAGLINE_LEASE_SECONDS": "3",
            "CRAGLINE_HEARTBEAT_SECONDS": "0.5",
            "CRAGLINE_REPUBLISH_SECONDS": "2",
            "CRAGLINE_WORKER_THREADS": "8",
            "CRAGLINE_WEB_PATIENCE_SECONDS": "0",
            **environment,
        }
        by_field = {name.removeprefix("CRAGLINE_").lower(): value for name, value in self.environment.items()}
        self.settings = Settings(_env_file=None, **by_field)  # type: ignore[call-arg, arg-type]
        self.engine = make_engine(database_url)
        self.app = make_app(self.settings)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    # -- processes -------------------------------------------------------------------------------------
    def start(self) -> "Cluster":
        self.start_worker("w1")
        self.start_beat()
        self.wait_for_workers(["w1"])
        return self

    def start_worker(self, name: str, queues: str = ALL_QUEUES) -> None:
        words = ["-A", "tests.integration.trapped_app", "worker", "-n", f"{name}@test", "-Q", queues]
        self._spawn(name, [*words, "--pool", "threads", "--without-gossip", "--without-mingle"])

    def start_beat(self) -> None:
        schedule = ["--schedule", str(self.home / "beat-schedule"), "--pidfile="]
        self._spawn("beat", ["-A", "tests.integration.trapped_app", "beat", *schedule])

    def wait_for_workers(self, names: Sequence[str], timeout: float = 60) -> None:
        deadline = time.monotonic() + timeout
        inspect = self.app.control.inspect([f"{name}@test" for name in names], timeout=1.0)
        while len(inspect.ping() or {}) < len(names):
            if time.monotonic() > deadline:
                raise AssertionError(f"workers did not come up:\n{self.log(names[0])[-3000:]}")

    def _spawn(self, name: str, words: list[str]) -> None:
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        environment |= self.environment | {"TRAP_FOLDER": str(self.traps), "PYTHONPATH": str(ROOT)}
        with (self.home / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", "celery", *words],
                cwd=self.home,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def kill(self, name: str) -> None:
        """SIGKILL: no goodbye."""
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def stop(self, name: str) -> int:
        """SIGTERM and wait: running tasks end."""
        process = self.processes.pop(name)
        process.terminate()
        return process.wait(60)

    def close(self) -> None:
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.processes.clear()
        self.engine.dispose()
        self.app.close()

    def log(self, name: str) -> str:
        return (self.home / f"{name}.log").read_text(errors="replace")

    # -- work ------------------------------------------------------------------------------------------
    def ingest(self, path: Path, collection: str, timeout: float = 60) -> ingest.Progress:
        made = ingest.create(self.engine, [path], collection)
        ingest.wake(self.app, made.file_ids)
        deadline = time.monotonic() + timeout
        while not (now := ingest.progress(self.engine, made.ingest_id)).ended:
            assert time.monotonic() < deadline, f"not ingested: {now}\n{self.log('w1')[-3000:]}"
            time.sleep(0.05)
        return now

    def submit(
        self, questions: Iterable[str | None], pipeline: str = "crag", collection: str = "docs", **params: Any
    ) -> int:
        attempts = params.pop("max_attempts", self.settings.max_attempts)
        plan = make_plan(self.settings, pipeline, params, collection)
        plan = plan.model_copy(update={"max_attempts": attempts})
        submitted = batches.submit(self.engine, plan, "test", {"format": "txt"}, rows(questions))
        wake_dispatcher(self.app)
        return submitted.batch_id

    def wait(self, batch_id: int, timeout: float = 60) -> dict[str, Any]:
        """The batch's last row of `batch_progress`."""
        deadline = time.monotonic() + timeout
        while not history.has_ended(row := history.progress(self.engine, batch_id)):
            assert time.monotonic() < deadline, f"not ended: {row}\n{self.log('w1')[-3000:]}"
            time.sleep(0.05)
        return row

    def wait_any_ended(self, batch_id: int) -> int:
        """How many runs of the batch have ended by now."""
        row = history.progress(self.engine, batch_id)
        return int(row["submitted"] - row["pending"] - row["running"])

    def rows(self, query: str, **values: Any) -> list[Any]:
        return read_rows(self.engine, query, **values)
