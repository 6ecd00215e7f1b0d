"""`/readyz` and `/metrics`: each thing that can be wrong is said, and nothing is counted twice."""

import inspect
import json
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import Engine, text

from api import readiness
from api.metrics import BUCKETS, add_new
from api.routes.health import healthz
from shared import heartbeats
from shared.db import make_engine, transaction
from shared.stack.state import store_owner_path
from shared.stack.testing import Servers
from tests.conftest import own_database
from tests.integration.api.conftest import Api
from tests.integration.api.test_access import submit


@pytest.fixture
def store(settings: Any) -> Iterator[None]:
    """Somebody who has the local store open."""
    with socket.socket() as owner:
        owner.bind(("127.0.0.1", 0))
        owner.listen()
        place = store_owner_path(settings.home)
        place.write_text(json.dumps({"pid": 1, "port": owner.getsockname()[1], "token": "t"}))
        yield
        place.unlink()


def execute(engine: Engine, statement: str, **values: Any) -> None:
    with transaction(engine) as session:
        session.execute(text(statement), values)


def checks(client: TestClient) -> tuple[int, dict[str, bool]]:
    answer = client.get("/readyz")
    return answer.status_code, {one["name"]: one["ready"] for one in answer.json()["checks"]}


def test_ready_needs_every_part(api: Api, store: None) -> None:
    client, engine = api.client(), api.engine
    execute(engine, "DELETE FROM heartbeats")
    assert checks(client)[1]["beat"] is False
    heartbeats.note(engine, heartbeats.BEAT)
    heartbeats.note(engine, heartbeats.RECONCILER)
    execute(engine, "UPDATE batches SET status = 'cancelled', ended_at = now() WHERE status = 'open'")
    status, found = checks(client)
    assert (status, [name for name, ready in found.items() if not ready]) == (200, [])
    assert set(found) == {"database", "migrations", "redis", "store", "beat", "reconciler", "queue"}

    for name in ("beat", "reconciler"):
        execute(engine, "UPDATE heartbeats SET at = now() - interval '40 s' WHERE name = :n", n=name)
        status, found = checks(client)
        assert (status, [one for one, ready in found.items() if not ready]) == (503, [name])
        heartbeats.note(engine, name)

    batch_id = submit(client)
    assert checks(client)[0] == 200
    execute(engine, "UPDATE batches SET submitted_at = now() - interval '1 h' WHERE id = :b", b=batch_id)
    status, found = checks(client)
    assert (status, found["queue"]) == (503, False)
    # one was admitted a moment ago: a large batch may wait as long as it moves
    admitted = "UPDATE runs SET status = 'running', step = 1, admitted_at = now() WHERE id = (SELECT min(id) FROM runs WHERE batch_id = :b)"  # noqa: E501
    execute(engine, admitted, b=batch_id)
    assert checks(client)[0] == 200
    execute(
        engine,
        "UPDATE runs SET status = 'answered', answer = 'a', ended_at = now() WHERE batch_id = :b",
        b=batch_id,
    )
    execute(engine, "UPDATE alembic_version SET version_num = '0001_main_job'")
    try:
        assert checks(client)[1]["migrations"] is False
    finally:
        from shared.migrate import head_revision

        execute(engine, "UPDATE alembic_version SET version_num = :v", v=head_revision())


def test_not_ready_without_redis_and_store(settings: Any, engine: Engine) -> None:
    away = settings.model_copy(update={"redis_url": type(settings.redis_url)("redis://:pw@127.0.0.1:1/0")})
    status, found = checks(Api(away, engine, open_on_loopback=True).client())
    assert (status, found["redis"], found["store"]) == (503, False, False)


def test_a_database_that_never_answers_is_asked_once(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each check that waits for it anew would take as long again, and whoever asks has long gone."""
    monkeypatch.setattr(readiness, "_CONNECT_SECONDS", 1)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        silent.settimeout(0.1)
        nowhere = make_engine(f"postgresql://user@127.0.0.1:{silent.getsockname()[1]}/none?sslmode=disable")
        status, found = checks(Api(settings, nowhere, open_on_loopback=True).client())
        tries = 0
        with suppress(TimeoutError):
            while True:
                silent.accept()[0].close()
                tries += 1
    assert (status, found["database"], found["queue"], tries) == (503, False, False, 1)


def test_being_alive_needs_no_thread() -> None:
    """All of them may be waiting for a database that is away."""
    assert inspect.iscoroutinefunction(healthz)


@pytest.fixture
def fresh(servers: Servers) -> Iterator[Engine]:
    with own_database(servers) as made:
        yield made


_TRANSITION = """
INSERT INTO transitions (month, run_id, batch_id, step, branch, attempt, node, status, came_from, goes_to,
                         started_at, ended_at, duration_ms, input_tokens, output_tokens, cost_usd, error_class)
SELECT month, 1, id, :step, 0, 1, 'retrieve', :status, '{}', '{}', now(), now(), :ms, 10, 5, 0.25, :error
  FROM batches
"""


def scraped(api: Api) -> dict[tuple[str, ...], float]:
    body = api.client().get("/metrics").text
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(body)
        for sample in family.samples
    }


def test_metrics_count_each_transition_once(settings: Any, fresh: Engine) -> None:
    execute(fresh, "SELECT ensure_transitions_partition('2026-01-01')")
    execute(
        fresh,
        "INSERT INTO batches (name, pipeline, collection, plan, source, row_count, run_count, month)"
        " VALUES ('b', 'crag', 'c', '{}', '{}', 3, 3, '2026-01-01')",
    )
    execute(
        fresh,
        "INSERT INTO runs (id, batch_id, first_row, question) SELECT n, id, n, 'q' FROM batches,"
        " generate_series(1, 3) AS n",
    )
    api = Api(settings, fresh, open_on_loopback=True)
    execute(fresh, _TRANSITION, step=1, status="succeeded", ms=30, error=None)
    execute(fresh, _TRANSITION, step=2, status="retried", ms=7000, error="rate_limited")
    for _ in range(2):  # a second look finds nothing new
        found = scraped(api)
        assert found["cragline_node_duration_seconds_count", "retrieve", "crag"] == 2
        assert found["cragline_node_duration_seconds_sum", "retrieve", "crag"] == pytest.approx(7.03)
        assert found["cragline_node_duration_seconds_bucket", "0.05", "retrieve", "crag"] == 1
        assert found["cragline_node_duration_seconds_bucket", "0.025", "retrieve", "crag"] == 0
        assert found["cragline_node_duration_seconds_bucket", "10.0", "retrieve", "crag"] == 2
        assert found["cragline_node_duration_seconds_bucket", "+Inf", "retrieve", "crag"] == 2
        assert found["cragline_rate_limited_total", "retrieve", "crag"] == 1
        assert found["cragline_tokens_total", "input", "retrieve", "crag"] == 20
        assert found["cragline_cost_usd_total", "retrieve", "crag"] == pytest.approx(0.5)
        assert found["cragline_questions", "crag", "pending"] == 3
        assert found["cragline_stuck_runs",] == 0
    execute(fresh, _TRANSITION, step=3, status="succeeded", ms=1, error=None)
    execute(fresh, "UPDATE runs SET status = 'cancelled', ended_at = now() WHERE id = 1")
    found = scraped(api)
    assert found["cragline_node_duration_seconds_count", "retrieve", "crag"] == 3
    assert found["cragline_questions", "crag", "cancelled"] == 1
    assert found["cragline_questions", "crag", "pending"] == 2


def test_a_transition_that_commits_late_is_counted_later(fresh: Engine) -> None:
    """Its id is older than that of one which is visible before it: a mark on ids or times would lose it."""
    execute(fresh, "SELECT ensure_transitions_partition('2026-01-01')")
    execute(
        fresh,
        "INSERT INTO batches (name, pipeline, collection, plan, source, row_count, run_count, month)"
        " VALUES ('b', 'crag', 'c', '{}', '{}', 0, 0, '2026-01-01')",
    )
    values = {"status": "succeeded", "ms": 1, "error": None}
    with fresh.connect() as late:
        late.execute(text(_TRANSITION), {**values, "step": 1})
        execute(fresh, _TRANSITION, step=2, **values)
        add_new(fresh)
        late.commit()
    add_new(fresh)
    add_new(fresh)
    with fresh.connect() as connection:
        assert connection.scalar(text("SELECT sum(attempts) FROM metric_sums")) == 2


def test_buckets_grow() -> None:
    assert list(BUCKETS) == sorted(set(BUCKETS))
