"""Counting for many who look: not twice, not for longer than half a second, and anew after an act."""

import threading
from typing import Any

import pytest

from api.web.figures import Figures
from shared.errors import NotFound

ENGINE: Any = None


class Counter:
    """Counts calls; each takes `takes` seconds of the clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.takes = 0.0
        self.asked: list[int] = []
        self.figures = Figures(self.count, lambda: self.now)

    def count(self, _engine: Any, batch_id: int) -> dict[str, Any]:
        self.now += self.takes
        self.asked.append(batch_id)
        return {"batch_id": batch_id, "number": len(self.asked)}

    def look(self, *heads: dict[str, Any]) -> dict[int, dict[str, Any]]:
        return self.figures.of(ENGINE, heads)


@pytest.fixture
def counter() -> Counter:
    return Counter()


def head(batch_id: int, status: str = "open") -> dict[str, Any]:
    return {"batch_id": batch_id, "status": status, "ended_at": None, "submitted": 5}


def test_who_looks_within_a_second_sees_the_same_count(counter: Counter) -> None:
    assert counter.look(head(1)) == counter.look(head(1)) == {1: {"batch_id": 1, "number": 1}}
    counter.now = 1.5
    assert counter.look(head(1))[1]["number"] == 2


def test_a_batch_that_takes_long_to_count_is_counted_rarely(counter: Counter) -> None:
    counter.takes = 0.4
    counter.look(head(1))
    counter.now = 4.0  # ten times the counting has not passed
    counter.look(head(1))
    assert counter.asked == [1]
    counter.now = 5.0
    counter.look(head(1))
    assert counter.asked == [1, 1]


def test_one_that_has_ended_is_counted_once_and_again_when_it_is_retried(counter: Counter) -> None:
    counter.look(head(1, "ended"))
    counter.now = 1e6
    counter.look(head(1, "ended"))
    assert counter.asked == [1]
    counter.look(head(1, "open"))
    assert counter.asked == [1, 1]


def test_one_look_counts_for_half_a_second_and_the_next_goes_on(counter: Counter) -> None:
    counter.takes = 0.3
    heads = [head(number, "ended") for number in range(1, 6)]
    assert sorted(counter.look(*heads)) == [1, 2]
    assert sorted(counter.look(*heads)) == [1, 2, 3, 4]
    assert sorted(counter.look(*heads)) == [1, 2, 3, 4, 5]
    assert counter.asked == [1, 2, 3, 4, 5]


def test_what_was_done_to_a_batch_is_seen_at_once(counter: Counter) -> None:
    counter.look(head(1))
    counter.figures.forget(1)
    assert counter.look(head(1))[1]["number"] == 2


def test_a_batch_is_not_counted_by_two_at_once() -> None:
    begun, go_on, asked = threading.Event(), threading.Event(), []

    def slow(_engine: Any, batch_id: int) -> dict[str, Any]:
        asked.append(batch_id)
        begun.set()
        assert go_on.wait(10)
        return {"batch_id": batch_id}

    figures = Figures(slow)
    first = threading.Thread(target=figures.of, args=(ENGINE, [head(1)]))
    first.start()
    assert begun.wait(10)
    assert figures.of(ENGINE, [head(1)]) == {}  # not counted yet, and not waited for
    go_on.set()
    first.join(10)
    assert figures.of(ENGINE, [head(1)]) == {1: {"batch_id": 1}}
    assert asked == [1]


def test_one_that_is_gone_is_left_out_and_a_failure_leaves_nothing_behind() -> None:
    answers: list[Exception] = [NotFound("gone"), RuntimeError("away"), NotFound("gone")]

    def failing(_engine: Any, _batch_id: int) -> dict[str, Any]:
        raise answers.pop(0)

    figures = Figures(failing)
    assert figures.of(ENGINE, [head(1)]) == {}
    with pytest.raises(RuntimeError):
        figures.of(ENGINE, [head(1)])
    assert figures.of(ENGINE, [head(1)]) == {}  # it is asked again
    assert answers == []
