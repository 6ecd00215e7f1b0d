"""What the endpoints of one application share; each part is made when it is first asked for."""

import threading
from typing import TYPE_CHECKING, Any

import structlog
from fastapi import Request
from sqlalchemy import Engine

from shared.errors import CraglineError
from shared.settings import Settings

if TYPE_CHECKING:
    pass

log = structlog.get_logger()
POOL = 16  # connections kept; up to 40 threads answer requests


class ApiState:
    """Settings, engine, queue, request rates and metrics of one application."""

    def __init__(self, settings: Settings, engine: Engine | None, *, open_on_loopback: bool) -> None:
        from api.metrics import Metrics
        from api.security import Rates
        from api.web.figures import Figures

        self.settings = settings
        self.open_on_loopback = open_on_loopback
        self.rates: Rates = Rates(settings.api_rate)
        self.metrics: Metrics = Metrics()
        self.figures: Figures = Figures()
        self.streams = 0  # progress streams that are open
        self._engine = engine
        self._queue: Any = None
        self._making = threading.Lock()

    @property
    def engine(self) -> Engine:
        """Raises StackError when no database is set and no stack runs."""
        from shared.db import database_url, make_engine

        with self._making:
            if self._engine is None:
                self._engine = make_engine(database_url(self.settings), pool_size=POOL)
            return self._engine

    @property
    def queue(self) -> Any:
        """The Celery app, for publishing. Raises StackError."""
        from shared.queue import make_app

        with self._making:
            if self._queue is None:
                self._queue = make_app(self.settings)
            return self._queue

    def wake_dispatcher(self) -> None:
        """Ask for an admission now. A queue that is away loses nothing: the next tick finds the rows."""
        from shared.queue import wake_dispatcher

        self.publish(lambda: wake_dispatcher(self.queue))

    def publish(self, action: Any) -> bool:
        """Whether `action` could publish. What could not be is found in Postgres at the next tick."""
        from kombu.exceptions import KombuError
        from redis.exceptions import RedisError

        try:
            action()
        except (KombuError, RedisError, OSError, CraglineError) as error:
            log.warning("the queue does not answer", error=type(error).__name__)
            return False
        return True

    def close(self) -> None:
        if self._queue is not None:
            self._queue.close()


def state_of(request: Request) -> ApiState:
    found = request.app.state.cragline
    assert isinstance(found, ApiState)
    return found
