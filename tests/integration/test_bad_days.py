"""What goes wrong around a run: each ends in a row that says so, and the batch goes on."""

import time
from collections.abc import Iterator

import pytest
from redis import Redis

from shared import control, history, rework
from shared.rework import Chosen
from shared.stack.testing import Servers
from tests.fakes import openai_server
from tests.fakes.http_fake import Reply
from tests.fakes.openai_server import FakeOpenAI
from tests.integration.cluster import Cluster
from tests.integration.scenarios import chat_script

CONTROL = "How old is the crag? [all_relevant]"


@pytest.fixture(autouse=True)
def _usual_script(openai: FakeOpenAI) -> Iterator[None]:
    yield
    openai.script = chat_script


def scripted(openai: FakeOpenAI, word: str, reply: Reply, times: int | None = None, role: str = "") -> None:
    """Questions with `word` get `reply`, `times` times; everything else goes on as usual."""
    left = [times]

    def script(asked: str, payload: dict) -> Reply:  # type: ignore[type-arg]
        hit = word in openai_server.question_of(payload) and (not role or role == asked)
        if hit and (left[0] is None or left[0] > 0):
            if left[0] is not None:
                left[0] -= 1
            return reply
        return chat_script(asked, payload)

    openai.script = script


def run_of(cluster: Cluster, batch: int, word: str):  # type: ignore[no-untyped-def]
    return cluster.rows(
        "SELECT * FROM runs WHERE batch_id = :batch AND question LIKE :like", batch=batch, like=f"%{word}%"
    )[0]


def transitions(cluster: Cluster, run_id: int):  # type: ignore[no-untyped-def]
    return cluster.rows(
        "SELECT * FROM transitions WHERE run_id = :id ORDER BY step, branch, attempt", id=run_id
    )


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (openai_server.api_error(401, "invalid_api_key"), "bad_key"),
        (openai_server.quota_gone(), "quota"),
        (openai_server.api_error(404, "model_not_found"), "no_such_model"),
    ],
)
def test_what_no_try_can_mend_fails_the_run_at_once_and_the_batch_goes_on(
    cluster: Cluster, openai: FakeOpenAI, reply: Reply, code: str
) -> None:
    scripted(openai, "BROKEN", reply)
    batch = cluster.submit(["How old is the BROKEN crag?", CONTROL], k=3)
    row = cluster.wait(batch)
    assert (row["failed"], row["answered"]) == (1, 1)
    run = run_of(cluster, batch, "BROKEN")
    assert run.error.startswith(f"grade_document: {code}: ")
    assert "sk-test" not in run.error
    attempts = [row.attempt for row in transitions(cluster, run.id)]
    assert set(attempts) == {1}, "a permanent error is not tried again"


def test_rate_limit_is_waited_out_as_the_provider_asks(cluster: Cluster, openai: FakeOpenAI) -> None:
    scripted(openai, "BUSY", openai_server.rate_limited("1"), times=1, role="answer_generator")
    batch = cluster.submit(["How old is the BUSY crag? [all_relevant]"], k=3)
    assert cluster.wait(batch)["answered"] == 1
    steps = [row for row in transitions(cluster, run_of(cluster, batch, "BUSY").id) if row.node == "generate"]
    assert [row.status for row in steps] == ["retried", "succeeded"]
    assert steps[0].error.startswith("rate_limited: ")
    assert (steps[1].started_at - steps[0].ended_at).total_seconds() >= 1.0


def test_transient_errors_end_after_the_last_attempt(cluster: Cluster, openai: FakeOpenAI) -> None:
    scripted(openai, "DOWN", openai_server.api_error(500), role="answer_generator")
    batch = cluster.submit(["Is the service DOWN? [all_relevant]"], k=3)
    assert cluster.wait(batch)["failed"] == 1
    run = run_of(cluster, batch, "DOWN")
    assert run.error.startswith("generate: server_error: ")
    assert run.error.endswith("(after 4 attempts)")
    statuses = [row.status for row in transitions(cluster, run.id) if row.node == "generate"]
    assert statuses == ["retried", "retried", "retried", "failed"]


def test_a_retry_inside_a_fan_out_joins_when_it_is_through(cluster: Cluster, openai: FakeOpenAI) -> None:
    scripted(openai, "CUT", Reply(cut=True, body={"choices": "x" * 200}), times=2, role="relevance_grader")
    batch = cluster.submit(["How old is the CUT crag? [all_relevant]"], k=3)
    assert cluster.wait(batch)["answered"] == 1
    rows = transitions(cluster, run_of(cluster, batch, "CUT").id)
    grading = [row for row in rows if row.node == "grade_document"]
    assert sorted(row.branch for row in grading if row.status == "succeeded") == [0, 1, 2]
    assert sum(row.status == "retried" for row in grading) == 2
    assert [row.status for row in rows if row.node == "decide"] == ["succeeded"]


def test_a_grade_that_is_neither_yes_nor_no_is_labelled(cluster: Cluster) -> None:
    batch = cluster.submit(["How old is the crag? [odd_grade]"], k=3)
    cluster.wait(batch)
    labels = cluster.rows(
        "SELECT label, score, detail FROM grades WHERE batch_id = :id ORDER BY label DESC", id=batch
    )
    assert [row.label for row in labels] == ["unparsed", "relevant", "relevant"]
    assert labels[0].score is None
    assert "It depends" in labels[0].detail


def test_a_node_that_raises_is_a_failed_transition_not_a_hung_chord(cluster: Cluster) -> None:
    batch = cluster.submit(["Why does RAISE-B break? [all_relevant]", CONTROL], k=3)
    row = cluster.wait(batch)
    assert (row["failed"], row["answered"]) == (1, 1)
    run = run_of(cluster, batch, "RAISE-B")
    assert run.error.startswith("grade_document: RuntimeError: the node broke")
    assert "verysecret" not in run.error
    grading = [row for row in transitions(cluster, run.id) if row.node == "grade_document"]
    # the others were under way already, or were not begun any more
    assert sorted(row.branch for row in grading) == [0, 1, 2]
    others = {row.status for row in grading if row.error_class is None}
    assert others <= {"succeeded", "skipped"}
    failed = next(row for row in grading if row.status == "failed")
    assert failed.error_class == "RuntimeError"
    assert failed.goes_to == []
    assert "verysecret" not in cluster.log("w1")


def test_a_worker_that_dies_is_replaced_and_the_batch_completes(cluster: Cluster) -> None:
    batch = cluster.submit(
        [f"How old is the crag? DIE-{n} [all_relevant]" for n in range(2)] + [CONTROL], k=3
    )
    _restart_while_open(cluster, batch)
    row = cluster.wait(batch)
    assert row["answered"] == 3, row
    statuses = [
        row.status for row in cluster.rows("SELECT status FROM transitions WHERE batch_id = :b", b=batch)
    ]
    assert "lost" in statuses
    assert cluster.rows("SELECT * FROM lost_runs") == []
    twice = cluster.rows(
        "SELECT run_id, step, branch FROM transitions WHERE status = 'succeeded'"
        " GROUP BY run_id, step, branch HAVING count(*) > 1"
    )
    assert twice == []


def test_a_poison_question_ends_as_failed_and_its_batch_goes_on(cluster: Cluster) -> None:
    batch = cluster.submit(["POISON [all_relevant]", CONTROL], k=3, max_attempts=3)
    _restart_while_open(cluster, batch, timeout=120)
    row = cluster.wait(batch)
    assert (row["failed"], row["answered"]) == (1, 1), row
    assert "was not heard of" in run_of(cluster, batch, "POISON").error


def _restart_while_open(cluster: Cluster, batch: int, timeout: float = 60) -> None:
    """What a supervisor does: start the worker again when it is gone, until the batch has ended."""
    deadline = time.monotonic() + timeout
    while not history.has_ended(history.progress(cluster.engine, batch)):
        assert time.monotonic() < deadline, cluster.log("w1")[-2000:]
        if cluster.processes["w1"].poll() is not None:
            cluster.start_worker("w1")
        time.sleep(0.1)
    if cluster.processes["w1"].poll() is not None:
        cluster.start_worker("w1")
        cluster.wait_for_workers(["w1"])


def test_a_worker_stopped_in_the_middle_and_started_again(cluster: Cluster) -> None:
    batch = cluster.submit([f"SLOW-150 question {n} [all_relevant]" for n in range(12)], k=3)
    while cluster.wait_any_ended(batch) == 0:
        time.sleep(0.05)
    assert cluster.stop("w1") == 0
    assert not history.has_ended(history.progress(cluster.engine, batch)), (
        "stopped too late to prove anything"
    )
    cluster.start_worker("w1")
    assert cluster.wait(batch)["answered"] == 12


def test_flushing_redis_loses_no_run(cluster: Cluster) -> None:
    batch = cluster.submit([f"SLOW-100 flushed {n} [all_relevant]" for n in range(12)], k=3)
    while cluster.wait_any_ended(batch) == 0:
        time.sleep(0.05)
    noticed = "redis is new or was emptied"
    before = cluster.log("w1").count(noticed)
    with Redis.from_url(cluster.environment["CRAGLINE_REDIS_URL"]) as client:
        client.flushdb()
    assert cluster.wait(batch, timeout=90)["answered"] == 12
    assert cluster.log("w1").count(noticed) > before, "not healed by mere waiting"
    assert cluster.rows("SELECT * FROM lost_runs") == []


def test_chords_leave_no_subscription_and_hardly_a_key_behind(cluster: Cluster) -> None:
    with Redis.from_url(cluster.environment["CRAGLINE_REDIS_URL"]) as client:
        batch = cluster.submit([f"How old is crag {n}? [all_relevant]" for n in range(30)], k=3)
        cluster.wait(batch)
        channels = [name for name in client.pubsub_channels() if b"celery-task-meta" in name]
        assert channels == []
        assert list(client.keys("celery-task-meta*")) == [], "results are rows in Postgres, not keys"
        chords = client.keys("celery-taskset-meta*")
        assert all(client.ttl(key) > 0 for key in chords), "chord counters go by themselves"


def test_messages_carry_ids_only(cluster: Cluster, openai: FakeOpenAI) -> None:
    """Everything that passes through Redis while a batch runs is looked at."""
    seen: list[bytes] = []
    with Redis.from_url(cluster.environment["CRAGLINE_REDIS_URL"]) as client, client.monitor() as monitor:
        batch = cluster.submit(["SLOW-50 How old is the xylophone crag? [all_relevant]"], k=3)
        listener = monitor.listen()
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            seen.append(next(listener)["command"].encode())
            if history.has_ended(history.progress(cluster.engine, batch)):
                break
    text = b"\n".join(seen)
    assert b"crag.grade_document" in text
    for private in (b"xylophone", b"basalt", b"sk-test"):
        assert private not in text


def test_a_batch_is_paused_resumed_cancelled_and_retried_while_workers_are_at_it(
    cluster: Cluster, openai: FakeOpenAI
) -> None:
    def slow(asked: str, payload: dict) -> Reply:  # type: ignore[type-arg]
        time.sleep(0.1)
        return chat_script(asked, payload)

    def until(query: str) -> None:
        deadline = time.monotonic() + 60
        while not cluster.rows(query, batch=batch)[0][0]:
            assert time.monotonic() < deadline, query
            time.sleep(0.05)

    def settled() -> int:
        """How many calls had been made once nothing was under way any more."""
        until(
            "SELECT count(*) = 0 FROM claims JOIN runs ON runs.id = run_id"
            " WHERE batch_id = :batch AND claims.status = 'running'"
        )
        return len(openai.requests)

    openai.script = slow
    before = len(openai.requests)
    batch = cluster.submit([f"How old is crag {number}? [all_relevant]" for number in range(24)])
    until("SELECT count(*) > 2 FROM runs WHERE batch_id = :batch AND status = 'answered'")
    control.pause(cluster.engine, batch, actor="kim")
    calls = settled()
    time.sleep(3)  # a few ticks of the dispatcher and the reconciler
    assert len(openai.requests) == calls, "nothing new is begun while it is paused"
    control.resume(cluster.engine, batch, actor="kim")
    until("SELECT count(*) > 8 FROM runs WHERE batch_id = :batch AND status = 'answered'")
    done = control.cancel(cluster.engine, batch, actor="kim")
    assert done.runs > 0
    openai.script = chat_script
    retried = rework.retry(cluster.engine, batch, Chosen(("cancelled",)), actor="kim")
    assert retried.runs == done.runs
    row = cluster.wait(batch)
    assert row["answered"] == 24
    assert cluster.rows("SELECT * FROM lost_runs") == []
    counts = cluster.rows(
        "SELECT run_id, count(DISTINCT step), max(step), count(*) FILTER (WHERE status = 'succeeded'),"
        " count(DISTINCT (step, branch)) FILTER (WHERE status = 'succeeded')"
        " FROM transitions WHERE batch_id = :batch GROUP BY run_id",
        batch=batch,
    )
    assert len(counts) == 24
    assert all(steps == last and succeeded == different for _, steps, last, succeeded, different in counts)
    (stored,) = cluster.rows("SELECT count(*) FROM model_calls WHERE batch_id = :batch", batch=batch)[0]
    assert len(openai.requests) - before <= stored, "what was under way at the cancel was paid, and is kept"


def test_a_worker_without_its_database_ends_instead_of_taking_messages(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = "postgresql://somebody:verysecretword@127.0.0.1:9/nothing"
    monkeypatch.setitem(cluster.environment, "CRAGLINE_DATABASE_URL", nowhere)
    cluster.start_worker("w9", queues="models")
    assert cluster.processes.pop("w9").wait(60) == 1
    assert "The worker cannot start: database: OperationalError" in cluster.log("w9")
    assert "verysecretword" not in cluster.log("w9")


def test_a_worker_that_hears_nothing_any_more_ends(
    cluster: Cluster, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    others_hear_nothing_of_this = servers.redis_url.rsplit("/", 1)[0] + "/7"
    monkeypatch.setitem(cluster.environment, "CRAGLINE_REDIS_URL", others_hear_nothing_of_this)
    monkeypatch.setitem(cluster.environment, "TRAP_DEAF", "1")
    with Redis.from_url(others_hear_nothing_of_this) as client:
        cluster.start_worker("w9", queues="web")
        client.lpush("web", "{}")
        assert cluster.processes.pop("w9").wait(60) == 1
        assert "the worker ends" in cluster.log("w9")
        client.delete("web")
