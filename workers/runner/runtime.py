"""What the tasks of one worker process share. Built once, by `workers.bootstrap`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine

from shared.settings import Settings
from workers.runner.execute import Executor
from workers.runner.heartbeat import Heartbeat


@dataclass(frozen=True)
class Runtime:
    settings: Settings
    engine: Engine
    executor: Executor
    heartbeat: Heartbeat
    ingest_file: Callable[[int], Any]
    close: Callable[[], None]
