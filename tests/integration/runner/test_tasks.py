"""Around the nodes: messages that are lost with a worker, or taken while the database is away, come again."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from celery import Celery
from redis import Redis
from sqlalchemy.exc import OperationalError, ProgrammingError

from shared.queue import make_app
from shared.stack.testing import Servers
from tests.integration.runner.bench import Bench
from workers.runner import tasks
from workers.runner.flush_watch import heal_if_forgotten
from workers.runner.runtime import Runtime


class Broken:
    """An executor that cannot work."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def run(self, *_: Any) -> Any:
        raise self.error


@pytest.fixture
def parts(bench: Bench) -> Runtime:
    return Runtime(
        bench.settings, bench.engine, bench.executor, bench.heartbeat, lambda _: None, lambda: None
    )


@pytest.fixture
def app_of(servers: Servers, make_bench: Any) -> Callable[[Runtime], Celery]:
    """The tasks as a worker has them, to be called here; what they publish stays in the queue."""

    def make(parts: Runtime) -> Celery:
        app = make_app(make_bench(redis_url=servers.redis_url).settings)
        app.conf.update(result_backend=servers.redis_url)
        tasks.register(app, lambda: parts)
        return app

    return make


def overdue_in(bench: Bench, run: int) -> tuple[float, int]:
    """Seconds until the reconciler publishes the first step again, and how often it was published."""
    row = bench.one(
        "SELECT extract(epoch FROM wake_at - now()) AS s, publishes FROM claims WHERE run_id = :r", r=run
    )
    return float(row.s), row.publishes


def published_often(bench: Bench) -> int:
    """A run whose first step nobody took for a while: the next pause is long."""
    run = bench.start("rag")
    bench.execute(
        "UPDATE claims SET publishes = 3, wake_at = now() + interval '4 min' WHERE run_id = :r", r=run
    )
    return run


@pytest.mark.parametrize(
    ("name", "words"), [("rag.retrieve", {"branch": 0, "solo": False}), ("rag.join", {})]
)
def test_messages_that_met_no_database_are_published_again_at_once(
    bench: Bench, parts: Runtime, app_of: Any, redis: Redis, name: str, words: dict[str, Any]
) -> None:
    """They are gone from the queue, and there may be a whole queue of them."""
    run = published_often(bench)
    away = OperationalError("SELECT", {}, Exception("the server closed the connection"))
    broken: Any = Broken(away)
    assert heal_if_forgotten(redis, lambda: None) and not heal_if_forgotten(redis, lambda: None)
    app = app_of(replace(parts, executor=broken, engine=_Away(away)))  # type: ignore[arg-type]
    args: list[Any] = [[]] if name.endswith("join") else []
    app.tasks[name](*args, batch_id=1, run_id=run, step=1, **words)
    app_of(parts).tasks["cragline.reconcile"]()
    waits, publishes = overdue_in(bench, run)
    assert publishes == 1 and 0 < waits <= bench.settings.republish_seconds


def test_an_error_of_one_statement_is_no_reason_to_publish_everything(
    bench: Bench, parts: Runtime, app_of: Any, redis: Redis
) -> None:
    broken: Any = Broken(ProgrammingError("SELECT", {}, Exception("no such column")))
    heal_if_forgotten(redis, lambda: None)
    app_of(replace(parts, executor=broken)).tasks["rag.retrieve"](
        batch_id=1, run_id=1, step=1, branch=0, solo=False
    )
    assert not heal_if_forgotten(redis, lambda: None)


def test_what_a_lost_worker_had_fetched_is_published_again_with_what_it_had_begun(
    bench: Bench, parts: Runtime, app_of: Any, redis: Redis
) -> None:
    fetched, begun = published_often(bench), bench.start("rag")
    heal_if_forgotten(redis, lambda: None)
    bench.must_win(begun, 1)
    reconcile = app_of(parts).tasks["cragline.reconcile"]
    reconcile()
    assert overdue_in(bench, fetched)[1] == 3
    bench.lose(begun)
    reconcile()
    waits, publishes = overdue_in(bench, fetched)
    assert publishes == 1 and 0 < waits <= bench.settings.republish_seconds


class _Away:
    """An engine of a database that does not answer."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __getattr__(self, _name: str) -> Any:
        raise self._error
