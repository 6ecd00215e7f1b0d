from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine

from tests.integration.runner.bench import Bench
from tests.unit.workers.nodes.fakes import Script, document


@pytest.fixture
def three() -> Script:
    """Three documents, all of them relevant."""
    return Script(
        [document(letter) for letter in "ABC"],
        dict.fromkeys("ABC", ("relevant", 0.9)),
        web=[document("W", "From the web.", origin="web")],
    )


@pytest.fixture
def bench(database: Engine, three: Script) -> Bench:
    return Bench(database, three)


@pytest.fixture
def make_bench(database: Engine, three: Script) -> Callable[..., Bench]:
    """A bench with settings of its own."""

    def make(**values: Any) -> Bench:
        return Bench(database, three, **values)

    return make
