"""A web site on this machine, scripted page by page."""

from collections.abc import Iterator

import pytest

from tests.fakes.site import Site
from workers.stores.web import robots


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as made:
        yield made


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(robots, "DELAY", 0.0)
