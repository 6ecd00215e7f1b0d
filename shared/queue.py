"""The Celery app that every process shares: how messages travel. It knows no tasks.

Redis only carries wake-ups; whatever it loses is published again from Postgres. The values below were
each chosen for a failure that was seen; change one only with its comment in hand.
"""

from celery import Celery
from kombu import Queue

from shared.settings import Settings

RETRIEVAL, MODELS, WEB, CONTROL = "retrieval", "models", "web", "control"
QUEUES = (RETRIEVAL, MODELS, WEB, CONTROL)
RESULT_BACKEND = "workers.runner.result_backend:QuietRedisBackend"


def redis_url(settings: Settings) -> str:
    """The broker in use: the one that is set, or the running embedded one."""
    from shared.stack.state import part_url

    if settings.redis_url is not None:
        return settings.redis_url.get_secret_value()
    return part_url(settings, "valkey")


def make_app(settings: Settings) -> Celery:
    """An app for publishing and inspecting. `workers.celery_app` adds the tasks and the result backend."""
    app = Celery("cragline", broker=redis_url(settings))
    app.conf.update(
        task_queues=[Queue(name) for name in QUEUES],
        task_default_queue=CONTROL,
        task_create_missing_queues=False,
        task_serializer="json",
        result_serializer="json",
        accept_content=["json"],
        enable_utc=True,
        # a message is acknowledged after its task, so that a killed worker's messages come back
        task_acks_late=True,
        # ... but one that killed its worker must not come back for ever: Postgres counts the attempts
        task_reject_on_worker_lost=False,
        # on threads, a crash between storing and counting a chord part would lose the chord
        worker_deduplicate_successful_tasks=False,
        worker_pool="threads",
        worker_concurrency=settings.worker_threads,
        worker_prefetch_multiplier=1,  # more would hide work from other workers
        worker_send_task_events=True,
        task_send_sent_event=True,
        worker_hijack_root_logger=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options={
            "visibility_timeout": 600,  # above the longest task; the claim makes a second delivery harmless
            "unacked_restore_interval": 10,
            "unacked_restore_throttle": 1,  # the default waits ten sweeps
            "socket_timeout": 30,  # without one, publishing to a dead Redis hangs for ever
            "socket_connect_timeout": 5,
            "socket_keepalive": True,
        },
        redis_socket_timeout=30,
        redis_socket_connect_timeout=5,
        redis_socket_keepalive=True,
        redis_backend_health_check_interval=25,
        task_publish_retry=True,
        task_publish_retry_policy={
            "max_retries": 3,
            "interval_start": 0.1,
            "interval_step": 0.3,
            "interval_max": 1.0,
        },
    )
    return app


def wake_dispatcher(app: Celery) -> None:
    """Ask for an admission now instead of at the next tick. Losing this message loses nothing."""
    app.send_task("cragline.dispatch", queue=CONTROL, ignore_result=True, expires=30)
