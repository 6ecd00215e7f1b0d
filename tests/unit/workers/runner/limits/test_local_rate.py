"""The rate of one process while Redis is away, by a clock of the test's own."""

from shared.limits import Target
from workers.runner.limits.local_rate import LocalRate

TARGET = Target("openai", "", "gpt-4.1-mini")


def rate(now: list[float]) -> LocalRate:
    return LocalRate(0.5, clock=lambda: now[0])


def test_nothing_is_limited_where_no_limit_is_known() -> None:
    made = rate([0.0])
    assert [made.wait(TARGET, 10, None, None, 2.0) for _ in range(100)] == [0.0] * 100


def test_a_minute_sees_no_more_than_the_share() -> None:
    now = [0.0]
    made = rate(now)
    taken = []
    while now[0] < 120:
        wait = made.wait(TARGET, 10, 60, None, 2.0)
        if wait <= 2.0:
            taken.append(now[0] + wait)
        now[0] += 0.25
    for moment in taken:
        assert sum(moment <= other < moment + 60 for other in taken) <= 30
    assert len(taken) > 52


def test_tokens_and_models_are_counted_on_their_own() -> None:
    made = rate([0.0])
    assert made.wait(TARGET, 100, 6000, 6200, 2.0) == 0.0
    assert made.wait(TARGET, 200, 6000, 6200, 2.0) == 2.0
    assert made.wait(TARGET, 10, 6000, 6200, 2.0) > 2.0, "and no place was taken"
    assert made.wait(Target("openai", "", "other"), 10, 6000, 6200, 2.0) == 0.0


def test_nobody_waits_for_hours_for_a_limit_that_can_only_be_a_mistake() -> None:
    now = [0.0]
    made = rate(now)
    made.wait(TARGET, 800, None, 1, 2.0)
    assert 60 < made.wait(TARGET, 800, None, 1, 2.0) < 250
