"""What the worker's app promises about its ticks, without a broker."""

import importlib
import sys
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from shared.settings import get_settings


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("CRAGLINE_REDIS_URL", "redis://127.0.0.1:9/0")
    get_settings.cache_clear()
    yield importlib.import_module("workers.celery_app").app
    sys.modules.pop("workers.celery_app")
    get_settings.cache_clear()


def test_a_tick_is_taken_by_a_worker_whose_clock_is_minutes_ahead_of_beats(app: Any) -> None:
    """A tick that counts as expired does nothing, and with it neither the dispatcher nor the reconciler."""
    expire = {name: entry["options"]["expires"] for name, entry in app.conf.beat_schedule.items()}
    assert expire.keys() >= {"dispatch", "reconcile"}
    assert all(
        timedelta(minutes=4) <= timedelta(seconds=one) <= timedelta(hours=1) for one in expire.values()
    )
