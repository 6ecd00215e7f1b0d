"""What the endpoints share: settings and the engine, made when first asked for."""

import threading

from fastapi import Request
from sqlalchemy import Engine

from shared.settings import Settings


class ApiState:
    """One for each application."""

    def __init__(self, settings: Settings, engine: Engine | None, *, open_on_loopback: bool) -> None:
        self.settings = settings
        self.open_on_loopback = open_on_loopback
        self._engine = engine
        self._making = threading.Lock()

    @property
    def engine(self) -> Engine:
        """Raises StackError when no database is set and no stack runs."""
        from shared.db import database_url, make_engine

        with self._making:
            if self._engine is None:
                self._engine = make_engine(database_url(self.settings), pool_size=POOL)
            return self._engine


POOL = 16  # connections kept; the threads that answer requests are 40


def state_of(request: Request) -> ApiState:
    found = request.app.state.cragline
    assert isinstance(found, ApiState)
    return found


def engine_of(request: Request) -> Engine:
    return state_of(request).engine
