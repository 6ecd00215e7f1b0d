"""A Redis that was emptied, or is another one, is noticed once, and again when it happens during the healing."""

import pytest
from redis import Redis

from workers.runner.flush_watch import MARKER, heal_if_forgotten


class Healer:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1


def test_a_new_server_is_healed_once(redis: Redis) -> None:
    heal = Healer()
    assert heal_if_forgotten(redis, heal)
    assert not heal_if_forgotten(redis, heal)
    assert heal.calls == 1


def test_a_flush_is_noticed(redis: Redis) -> None:
    heal = Healer()
    heal_if_forgotten(redis, heal)
    redis.flushdb()
    assert heal_if_forgotten(redis, heal)
    assert heal.calls == 2


def test_a_restart_is_noticed_although_the_marker_came_back_from_disk(redis: Redis) -> None:
    heal = Healer()
    heal_if_forgotten(redis, heal)
    redis.set(MARKER, "0" * 40)  # what another process of the server had written
    assert heal_if_forgotten(redis, heal)
    assert not heal_if_forgotten(redis, heal)


def test_a_flush_during_the_healing_is_noticed_by_the_next_look(redis: Redis) -> None:
    assert heal_if_forgotten(redis, redis.flushdb)
    heal = Healer()
    assert heal_if_forgotten(redis, heal)
    assert heal.calls == 1


def test_a_healing_that_failed_is_tried_again(redis: Redis) -> None:
    def broken() -> None:
        raise RuntimeError("the database is away")

    with pytest.raises(RuntimeError):
        heal_if_forgotten(redis, broken)
    heal = Healer()
    assert heal_if_forgotten(redis, heal)
    assert heal.calls == 1
