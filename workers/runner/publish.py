"""Publish what a committed transaction left to do. Ids only: Flower shows arguments to everybody.

A message that is lost here is published again by the reconciler, so errors are logged, not raised.
"""

from typing import Any

import structlog
from celery import Celery, chord
from kombu.exceptions import KombuError
from redis.exceptions import RedisError

from shared.queue import CONTROL
from workers.runner.advance import Publication
from workers.runner.pipelines import adapters

log = structlog.get_logger()
PUBLISH_ERRORS = (KombuError, RedisError, OSError)


def join_name(pipeline: str) -> str:
    return f"{pipeline}.join"


def publish_step(app: Celery, publication: Publication) -> None:
    """One node: one task. A fan-out: one chord, whose body only wakes the join."""
    try:
        if len(publication.nodes) == 1:
            publish_branch(app, publication, 0, solo=False)
        else:
            header = [_signature(app, publication, branch) for branch in range(len(publication.nodes))]
            body = app.signature(
                join_name(publication.pipeline),
                kwargs=_ids(publication),
                queue=CONTROL,
                ignore_result=True,
            )
            chord(header, app=app)(body)
    except PUBLISH_ERRORS as error:
        log.warning(
            "publishing failed; the reconciler will", run_id=publication.run_id, error=type(error).__name__
        )


def publish_branch(app: Celery, publication: Publication, branch: int, *, solo: bool) -> None:
    """One branch as a task outside any chord. `solo`: it wakes the join itself when it is the last."""
    adapter = adapters()[publication.pipeline]
    node = publication.nodes[branch]
    app.send_task(
        adapter.task_name(node),
        kwargs={**_ids(publication), "branch": branch, "solo": solo},
        queue=adapter.queue(node),
        ignore_result=True,
    )


def publish_join(app: Celery, publication: Publication) -> None:
    try:
        app.send_task(
            join_name(publication.pipeline),
            args=[[]],
            kwargs=_ids(publication),
            queue=CONTROL,
            ignore_result=True,
        )
    except PUBLISH_ERRORS as error:
        log.warning(
            "publishing failed; the reconciler will", run_id=publication.run_id, error=type(error).__name__
        )


def _ids(publication: Publication) -> dict[str, Any]:
    return {"batch_id": publication.batch_id, "run_id": publication.run_id, "step": publication.step}


def _signature(app: Celery, publication: Publication, branch: int) -> Any:
    adapter = adapters()[publication.pipeline]
    node = publication.nodes[branch]
    return app.signature(
        adapter.task_name(node),
        kwargs={**_ids(publication), "branch": branch, "solo": False},
        queue=adapter.queue(node),
    )
