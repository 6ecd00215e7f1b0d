"""Many questions against a provider that refuses by rate limits and then is out for a while: all are answered,
each call that brought something was made once, and no attempt is burnt needlessly.

The real OpenAI client calls the scripted server; messages are a queue in memory, time is real.
"""

import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from redis import Redis

from shared.limits import states
from tests.fakes.openai_server import FakeOpenAI, content
from tests.fakes.trouble import Outage, RateLimited
from tests.integration.runner.bench import Bench
from workers.models.openai_client import OpenAISettings
from workers.roles_of_plan import openai_roles
from workers.runner import reconcile
from workers.runner.advance import Publication
from workers.runner.execute import Executor
from workers.runner.limits.limiter import Limiter
from workers.runner.prompts import PromptBook


@dataclass
class Workers:
    """Threads that do what is in the queue, and a reconciler; messages are neither lost nor doubled."""

    bench: Bench
    tick: float
    waiting: "queue.Queue[tuple[Publication, int]]" = field(default_factory=queue.Queue)
    over: threading.Event = field(default_factory=threading.Event)
    errors: list[Exception] = field(default_factory=list)

    def publish(self, publication: Publication) -> None:
        for branch in range(len(publication.nodes)):
            self.waiting.put((publication, branch))

    def work(self) -> None:
        while not self.over.is_set():
            try:
                publication, branch = self.waiting.get(timeout=0.1)
            except queue.Empty:
                continue
            try:
                following, over = self.bench.run(publication.run_id, publication.step, branch)
                if following is None and over:
                    following = self.bench.join(publication.run_id, publication.step)
                if following is not None:
                    self.publish(following)
            except Exception as error:  # noqa: BLE001 - the test fails with it
                self.errors.append(error)

    def reconcile(self) -> None:
        while not self.over.wait(self.tick):
            for publication in self.bench.admit():
                self.publish(publication)
            for publication, branch in reconcile.due(self.bench.engine, self.bench.settings):
                self.waiting.put((publication, branch))
            for publication in reconcile.join_overdue(self.bench.engine, self.bench.settings):
                self.publish(publication)

    @contextmanager
    def running(self, threads: int) -> Iterator[None]:
        everybody = [threading.Thread(target=self.work) for _ in range(threads)]
        everybody.append(threading.Thread(target=self.reconcile))
        for thread in everybody:
            thread.start()
        try:
            yield
        finally:
            self.over.set()
            for thread in everybody:
                thread.join(30)


def yes(role: str, _payload: dict[str, Any]) -> Any:
    if role == "relevance_grader":
        return content({"binary_score": "yes", "score": 0.9})
    return content({"answerable": True, "answer": "So it is [1]", "cited": [1]})


def storm(
    make_bench: Any, redis: Redis, *, questions: int, outage_seconds: float, tick: float, limits: RateLimited
) -> dict[str, Any]:
    """What came of `questions` with three documents each."""
    outage = Outage()
    bench: Bench = make_bench(retry_base=0.5, retry_cap=2)
    limiter = Limiter(bench.settings, redis)
    bench.executor = Executor(bench.engine, bench.settings, bench, bench.heartbeat, "bench@test", limiter)
    book = PromptBook(bench.engine)
    with FakeOpenAI(outage.over(limits.over(yes))) as fake:
        settings = OpenAISettings(api_key="sk-storm-0123456789", base_url=fake.base_url, timeout=10)

        def make(plan: Any, recorder: Any) -> Any:
            return replace(
                bench.script.resources(), **openai_roles(plan, settings, "gpt-4.1-mini", book, recorder)
            )

        bench.make_resources = make
        batch = bench.submit([f"How old is crag {n}?" for n in range(questions)])
        workers = Workers(bench, tick)
        began = time.monotonic()
        with workers.running(16):
            _wait(bench, batch, questions // 4)
            outage.on.set()
            time.sleep(outage_seconds)
            opened = states(redis)[0].breaker
            outage.on.clear()
            _wait(bench, batch, questions)
        assert workers.errors == []
        return {
            "seconds": time.monotonic() - began,
            "breaker": opened,
            "calls": len(fake.requests),
            "refused": limits.refused,
            "in the outage": outage.calls,
            "statuses": {row.status: row.n for row in bench.rows(_STATUSES)},
            "counted": bench.one(_COUNTED).n,
            "paid twice": bench.rows(_TWICE),
            "retried": bench.one("SELECT count(*) AS n FROM transitions WHERE status = 'retried'").n,
            "errors": bench.one("SELECT count(*) AS n FROM model_calls WHERE status = 'error'").n,
        }


_STATUSES = "SELECT status, count(*) AS n FROM runs GROUP BY status"
_COUNTED = """
SELECT count(*) AS n FROM transitions WHERE status = 'retried' AND error NOT LIKE '%(not counted)'
"""
_TWICE = """
SELECT run_id, step, branch FROM model_calls WHERE status = 'ok'
 GROUP BY run_id, step, branch HAVING count(*) > 1
"""


def _wait(bench: Bench, batch: int, ended: int, timeout: float = 150) -> None:
    deadline = time.monotonic() + timeout
    query = "SELECT count(ended_at) AS n FROM runs WHERE batch_id = :b"
    while bench.one(query, b=batch).n < ended:
        assert time.monotonic() < deadline, bench.rows("SELECT * FROM claims")
        time.sleep(0.1)


def test_rate_limits_and_an_outage_cost_no_answer(make_bench: Any, redis: Redis) -> None:
    limits = RateLimited(400, burst=3)
    found = storm(make_bench, redis, questions=8, outage_seconds=1.5, tick=0.3, limits=limits)
    assert found["statuses"] == {"answered": 8}
    assert found["paid twice"] == []
    assert found["refused"] > 0 and found["in the outage"] > 0, "there was something to stand"
    assert found["errors"] == found["retried"] == found["refused"] + found["in the outage"]
    assert found["in the outage"] <= 16 + 4, "those that were under way, and a few probes"
    assert found["calls"] == 32 + found["errors"]
    assert found["counted"] < 2 * 4, "the calls by which the outage became known"


if __name__ == "__main__":  # the long form: python -m tests.integration.runner.test_storm
    import tempfile
    from pathlib import Path

    from shared.db import make_engine
    from shared.migrate import upgrade
    from shared.stack.testing import embedded_servers
    from tests.unit.workers.nodes.fakes import Script, document

    with tempfile.TemporaryDirectory(prefix="lim-storm-") as folder:
        Path(folder).chmod(0o755)
        with embedded_servers(Path(folder) / "home") as servers:
            upgrade(servers.database_url)
            three = Script([document(x) for x in "ABC"], dict.fromkeys("ABC", ("relevant", 0.9)))
            engine = make_engine(servers.database_url)
            for silent in (False, True):
                with Redis.from_url(servers.redis_url) as client:
                    client.flushall()
                    with engine.begin() as connection:
                        connection.exec_driver_sql("DELETE FROM batches")
                    print(
                        storm(
                            lambda **values: Bench(engine, three, **values),
                            client,
                            questions=60,
                            outage_seconds=20,
                            tick=2,
                            limits=RateLimited(600, burst=10, silent=silent),
                        )
                    )
