"""A deaf worker is known from one that is busy, has nothing to hear, or cannot reach the broker."""

from types import SimpleNamespace
from typing import Any

from celery import Celery
from celery.worker import state
from kombu import Queue
from redis.exceptions import ConnectionError as Away

from workers.attention import Attention, of_worker


class Request:
    """What Celery's state holds weakly."""


def looks(attention: Attention, times: int) -> list[bool]:
    return [attention.is_lost() for _ in range(times)]


def test_an_idle_worker_that_takes_none_of_the_messages_is_lost_after_some_looks() -> None:
    assert looks(Attention(lambda: True, lambda: True, 3), 4) == [False, False, True, True]


def test_a_message_that_is_taken_begins_the_count_anew() -> None:
    attention = Attention(lambda: True, lambda: True, 3)
    assert looks(attention, 2) == [False, False]
    attention.heard()
    assert looks(attention, 4) == [False, False, False, True]


def test_who_is_busy_or_has_nothing_to_hear_is_not_lost() -> None:
    assert not any(looks(Attention(lambda: False, lambda: True, 1), 3))
    assert not any(looks(Attention(lambda: True, lambda: False, 1), 3))


def test_a_broker_that_is_away_is_no_deafness() -> None:
    def away() -> bool:
        raise Away

    attention = Attention(lambda: True, away, 1)
    assert not any(looks(attention, 3))


def worker(*, lengths: dict[str, int], consumes: tuple[str, ...] | None) -> Attention:
    """One that is to take messages of `models` and `web`, of which `consumes` are not taken from it."""
    app = Celery(set_as_current=False)
    app.conf.task_queues = [Queue(name) for name in ("models", "web", "control")]
    app.amqp.queues.select(["models", "web"])
    made: Any = SimpleNamespace(
        amqp=app.amqp, backend=SimpleNamespace(client=SimpleNamespace(llen=lambda name: lengths.get(name, 0)))
    )
    channel = consumes and SimpleNamespace(consuming_from=lambda name: name in consumes)
    return of_worker(made, SimpleNamespace(task_consumer=channel))


def test_only_queues_that_the_worker_takes_from_count() -> None:
    def lost(attention: Attention) -> bool:
        return looks(attention, 6)[-1]

    assert lost(worker(lengths={"web": 1}, consumes=("models", "web")))
    assert lost(worker(lengths={"models": 5}, consumes=None)), "it connects for ever"
    assert not lost(worker(lengths={"control": 9}, consumes=("models", "web")))
    assert not lost(worker(lengths={"web": 1}, consumes=("models",))), "it was told to leave it"
    state.reserved_requests.add(request := Request())
    try:
        assert not lost(worker(lengths={"web": 1}, consumes=("models", "web")))
    finally:
        state.reserved_requests.discard(request)
