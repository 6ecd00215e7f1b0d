"""The worker's entry: `celery -A workers.celery_app worker`. Importing it refuses graphs that cannot run:
one line on stderr, and exit code 1."""

import logging
from typing import Any

import structlog
from celery.signals import (
    beat_init,
    celeryd_after_setup,
    setup_logging,
    task_received,
    worker_ready,
    worker_shutdown,
)
from sqlalchemy.exc import SQLAlchemyError

from shared import ingest
from shared.logs import configure_logging
from shared.queue import CONTROL, RESULT_BACKEND, RETRIEVAL, WEB, make_app, redis_url
from shared.settings import get_settings
from workers import webhooks
from workers.attention import end, of_worker
from workers.runner.graph_adapter import UnsupportedGraph
from workers.runner.ledger import describe
from workers.runner.runtime import Runtime
from workers.runner.tasks import register

log = structlog.get_logger()
TICK_EXPIRES = 300.0  # seconds
settings = get_settings()
app = make_app(settings)
app.conf.update(
    result_backend=f"{RESULT_BACKEND}+{redis_url(settings)}",
    result_backend_always_retry=True,  # a blip must not turn a finished header task into a failed chord
    result_backend_max_retries=30,
    result_expires=86400,  # chord counters; a chord older than that is the reconciler's
    beat_schedule={
        # `expires`: what piled up while no worker ran is worth a tick, not thousands. It is a time of beat's clock
        # that the worker compares with its own, so it allows for hosts whose clocks differ by minutes.
        "dispatch": {
            "task": "cragline.dispatch",
            "schedule": 1.0,
            "kwargs": {"beat": True},
            "options": {"queue": CONTROL, "expires": TICK_EXPIRES, "ignore_result": True},
        },
        "reconcile": {
            "task": "cragline.reconcile",
            "schedule": 2.0,
            "options": {"queue": CONTROL, "expires": TICK_EXPIRES, "ignore_result": True},
        },
        "webhooks": {
            "task": "cragline.deliver_webhooks",
            "schedule": 5.0,
            "options": {"queue": WEB, "expires": TICK_EXPIRES, "ignore_result": True},
        },
        "ingest": {
            "task": "cragline.wake_ingest",
            "schedule": 15.0,
            "options": {"queue": CONTROL, "expires": TICK_EXPIRES, "ignore_result": True},
        },
    },
)

_runtime: Runtime | None = None


def runtime() -> Runtime:
    """This process's parts."""
    assert _runtime is not None, "a worker that could not build its parts has ended"
    return _runtime


try:
    register(app, runtime)
except UnsupportedGraph as error:
    raise SystemExit(f"The pipelines cannot run: {error}") from None


@app.task(name="ingest.file", ignore_result=True)
def ingest_file(*, file_id: int) -> None:
    """Take one file into its collection; its row in `ingest_files` says how it went."""
    runtime().ingest_file(file_id)


@app.task(name="cragline.deliver_webhooks", ignore_result=True, send_events=False)
def deliver_webhooks() -> None:
    """Batches that have ended are told to their `callback_url`; what fails is tried again from its row."""
    try:
        webhooks.deliver(runtime().engine, settings)
    except SQLAlchemyError as error:
        log.error("the database failed; tried again at the next tick", error=describe(error))


@app.task(name="cragline.wake_ingest", ignore_result=True, send_events=False)
def wake_ingest() -> None:
    """Files whose message was lost, or whose worker was, are published again; the claim decides."""
    engine = runtime().engine
    if not ingest.somebody_works(engine):  # else the files in line have messages, or the next tick sees
        ingest.wake(app, ingest.unclaimed(engine))


@setup_logging.connect
def _logging(**_: Any) -> None:
    configure_logging(settings)


@beat_init.connect
def _quiet_beat(**_: Any) -> None:
    # The ticks would otherwise be the larger part of Flower's task list.
    app.conf.task_send_sent_event = False


@celeryd_after_setup.connect
def _build(sender: str, instance: Any, **_: Any) -> None:
    """Build the parts before the first message, so that what is wrong is said at the start.

    Without them the worker ends, and is started again by whoever keeps it: Celery only logs what a signal's
    receiver raises, and the worker would go on to take messages that it can do nothing with.
    """
    global _runtime
    from workers.bootstrap import build_runtime

    queues = set(instance.app.amqp.queues.consume_from)
    try:
        _runtime = build_runtime(settings, own_store=RETRIEVAL in queues, worker=sender)
    except Exception as error:  # noqa: BLE001 - whatever it is; its words without what they may hold
        raise SystemExit(f"The worker cannot start: {describe(error)}") from None
    log.info("worker ready", worker=sender, queues=sorted(queues), models=settings.provider)


@worker_ready.connect
def _be_attentive(sender: Any, **_: Any) -> None:
    attention = of_worker(app, sender)
    task_received.connect(lambda **_: attention.heard(), weak=False)
    attention.watch(end)


@worker_shutdown.connect
def _close(**_: Any) -> None:
    if _runtime is not None:
        _runtime.close()
    logging.shutdown()
