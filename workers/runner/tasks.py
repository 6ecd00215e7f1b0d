"""One Celery task for each node of each graph, registered from the graphs themselves.

The names (`crag.retrieve`) are what Flower shows. Arguments are ids, and the queue is said at each publishing.
A task never raises: what went wrong in a node is a row already, and what went wrong around it is healed by the
reconciler.
"""

from collections.abc import Callable
from typing import Any

import structlog
from celery import Celery, Task
from redis.exceptions import RedisError
from sqlalchemy.exc import InterfaceError, OperationalError, SQLAlchemyError

from shared import heartbeats
from shared.db import transaction
from workers.runner import advance, dispatch, reconcile, reuse
from workers.runner.advance import Publication
from workers.runner.flush_watch import heal_if_forgotten, were_dropped
from workers.runner.graph_adapter import GraphAdapter
from workers.runner.ledger import describe
from workers.runner.limits.reservations import count_left_behind
from workers.runner.pipelines import adapters
from workers.runner.publish import PUBLISH_ERRORS, join_name, publish_branch, publish_join, publish_step
from workers.runner.runtime import Runtime

log = structlog.get_logger()
GetRuntime = Callable[[], Runtime]


def register(app: Celery, runtime: GetRuntime) -> None:
    for adapter in adapters().values():
        for node in adapter.nodes:
            _register_node(app, adapter, node, runtime)
        _register_join(app, adapter.pipeline, runtime)
    _register_control(app, runtime)


def _register_node(app: Celery, adapter: GraphAdapter, node: str, runtime: GetRuntime) -> None:
    @app.task(name=adapter.task_name(node), bind=True, shared=False)
    def run_node(self: Task, *, batch_id: int, run_id: int, step: int, branch: int, solo: bool) -> str:
        try:
            following, over = runtime().executor.run(run_id, step, branch, self.request.id)
            if following is not None:
                publish_step(app, following)
            elif over and solo:
                publish_join(app, Publication(adapter.pipeline, batch_id, run_id, step))
        except SQLAlchemyError as error:
            _leave_to_reconciler(app, run_id, error)
        return f"{run_id}.{step}.{branch}"


def _register_join(app: Celery, pipeline: str, runtime: GetRuntime) -> None:
    @app.task(name=join_name(pipeline), ignore_result=True, shared=False)
    def join(_parts: list[str], *, batch_id: int, run_id: int, step: int) -> None:
        """The chord's body. What the header returned is not looked at: the rows decide."""
        try:
            parts = runtime()
            with transaction(parts.engine) as session:
                following = advance.join(session, run_id, step, parts.settings.republish_seconds)
            if following is not None:
                publish_step(app, following)
        except SQLAlchemyError as error:
            _leave_to_reconciler(app, run_id, error)


def _register_control(app: Celery, runtime: GetRuntime) -> None:
    # No events for these two: one a second each would bury the nodes in Flower's task list.
    @app.task(name="cragline.dispatch", ignore_result=True, send_events=False, shared=False)
    def dispatch_now(beat: bool = False) -> None:
        """`beat`: the message is one of beat's ticks, so beat is alive."""
        if beat:
            _guarded(lambda: heartbeats.note(runtime().engine, heartbeats.BEAT), None)
        for publication in _guarded(lambda: dispatch.admit(runtime().engine, runtime().settings), []):
            publish_step(app, publication)

    @app.task(name="cragline.reconcile", ignore_result=True, send_events=False, shared=False)
    def reconcile_now() -> None:
        parts = runtime()
        _guarded(lambda: _heal_if_forgotten(app, parts), None)
        _guarded(lambda: reconcile.spare_the_living(parts.engine, parts.settings), 0)
        lost = _guarded(lambda: reconcile.take_back_lost(parts.engine), 0)
        if lost:
            log.warning("claims of lost workers taken back", count=lost)
            # the messages that it had fetched and not begun are lost with it
            _guarded(lambda: reconcile.make_all_due(parts.engine), 0)
        _guarded(lambda: count_left_behind(parts.engine), 0)
        for publication, branch in _guarded(lambda: reconcile.due(parts.engine, parts.settings), []):
            try:
                publish_branch(app, publication, branch, solo=True)
            except PUBLISH_ERRORS as error:
                log.warning("publishing failed", run_id=publication.run_id, error=describe(error))
        _guarded(lambda: reuse.sweep(parts.engine), None)
        for publication in _guarded(lambda: reconcile.join_overdue(parts.engine, parts.settings), []):
            publish_step(app, publication)
        _guarded(lambda: heartbeats.note(parts.engine, heartbeats.RECONCILER), None)


def _heal_if_forgotten(app: Celery, parts: Runtime) -> None:
    try:
        if heal_if_forgotten(app.backend.client, lambda: reconcile.make_all_due(parts.engine)):
            log.info("redis is new or was emptied: what is open is published again")
    except RedisError as error:
        log.warning("redis does not answer", error=type(error).__name__)


def _leave_to_reconciler(app: Celery, run_id: int, error: SQLAlchemyError) -> None:
    """A message was taken and came to nothing. While Postgres is away, that happens to all there are."""
    log.error("the database failed; the reconciler will see to it", run_id=run_id, error=describe(error))
    if isinstance(error, OperationalError | InterfaceError):
        try:
            were_dropped(app.backend.client)
        except RedisError as away:
            log.warning("redis does not answer", error=type(away).__name__)


def _guarded(action: Callable[[], Any], otherwise: Any) -> Any:
    try:
        return action()
    except SQLAlchemyError as error:
        log.error("the database failed; tried again at the next tick", error=describe(error))
        return otherwise
