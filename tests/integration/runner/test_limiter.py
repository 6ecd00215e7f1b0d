"""Rate limits and breakers on a real Valkey: the scripts, not their callers, keep the numbers right."""

import threading
import time
from typing import Any

import pytest
from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from shared.errors import Postponed
from shared.limits import Target, states
from shared.settings import Settings
from tests.integration.runner.bench import at_once
from workers.models.rate_headers import Said
from workers.runner.limits.limiter import LONGEST_WAIT, Limiter, Outcome, ProviderOut

TARGET = Target("openai", "http://models", "gpt-4.1-mini")
OTHER = Target("openai", "http://models", "gpt-4.1")
OK, LIMITED, OUT, NOT_MADE = Outcome("ok"), Outcome("limited"), Outcome("out"), Outcome("none")
NOTHING = Said()


def limiter(client: Redis | None = None, **values: Any) -> Limiter:
    return Limiter(Settings(_env_file=None, **values), client)


@pytest.fixture
def clock(redis: Redis) -> "Clock":
    return Clock(redis)


class Clock:
    """The scripts take their time from Redis; to move it, everything they have noted is moved back."""

    def __init__(self, redis: Redis) -> None:
        self.redis = redis

    def forward(self, seconds: float) -> None:
        for name in self.redis.scan_iter("cragline:limits:*"):
            kind = self.redis.type(name)
            if kind == b"zset":
                for member, score in self.redis.zrange(name, 0, -1, withscores=True):
                    self.redis.zadd(name, {member: score - seconds})
            elif kind == b"hash":
                moments = ("at", "cool", "refused", "pace_at", "open", "probe", "since")
                for at in (*moments, "said_requests", "said_tokens"):
                    value = self.redis.hget(name, at)
                    if value is not None:
                        self.redis.hset(name, at, float(value) - seconds)


def take(made: Limiter, caller: str, tokens: int = 10, target: Target = TARGET) -> float:
    """Seconds to wait in the thread; more than the longest wait when the caller was put back."""
    try:
        return made.acquire(target, caller, tokens, 30)
    except Postponed as later:
        return LONGEST_WAIT + 0.001 + later.seconds


def granted(waits: list[float]) -> list[float]:
    return [wait for wait in waits if wait <= LONGEST_WAIT]


# -- rates -------------------------------------------------------------------------------------------------


def test_without_limits_nobody_waits(redis: Redis) -> None:
    made = limiter(redis)
    assert [take(made, f"c{n}") for n in range(50)] == [0.0] * 50


@pytest.mark.parametrize("per_minute", [600, 31, 3])
def test_eight_threads_never_get_more_places_than_the_limit_has(redis: Redis, per_minute: int) -> None:
    """All that is granted now is due within the longest wait: at the pace, and what may come in one go."""
    made = [limiter(redis, requests_per_minute=per_minute) for _ in range(8)]
    began = time.monotonic()
    calls = max(4, per_minute // 60 * 4)
    waits = at_once(
        [lambda m=m, t=t: [take(m, f"{t}.{n}") for n in range(calls)] for t, m in enumerate(made)]
    )
    took = time.monotonic() - began
    due = sorted(granted([wait for part in waits for wait in part]))
    pace = per_minute / 62
    at_once_allowed = max(1.0, pace * 2)
    assert due
    for place, wait in enumerate(due, 1):
        assert place <= at_once_allowed + pace * (wait + took) + 1e-3


def test_a_minute_never_sees_more_than_the_limit(redis: Redis, clock: Clock) -> None:
    made = limiter(redis, requests_per_minute=60)
    moved, moments, began = 0.0, [], time.monotonic()
    for n in range(200):
        wait = take(made, f"c{n % 7}")
        if wait <= LONGEST_WAIT:
            moments.append(moved + time.monotonic() - began + wait)
        clock.forward(0.8)
        moved += 0.8
    for moment in moments:
        assert sum(moment <= other < moment + 60 for other in moments) <= 60
    assert len(moments) > 125, "and hardly fewer in 160 seconds: the limit is made use of"


def test_tokens_are_limited_too_and_given_back_when_fewer_were_used(redis: Redis) -> None:
    made = limiter(redis, tokens_per_minute=6200)  # 100 a second, 200 in one go
    assert take(made, "a", 200) == 0
    assert take(made, "b", 200) > 1.5
    made.report(TARGET, "a", 1, OK, 150, NOTHING)
    made.report(TARGET, "b", 1, NOT_MADE, 200, NOTHING)
    assert take(made, "c", 150) <= 0.1
    assert take(made, "d", 100_000) == pytest.approx(2.0, abs=0.2), "a call above the limit is not stuck"


def test_what_is_used_beyond_the_estimate_is_paid_back_by_waiting(redis: Redis) -> None:
    made = limiter(redis, tokens_per_minute=6200)
    take(made, "a", 10)
    made.report(TARGET, "a", 1, OK, -1000, NOTHING)
    assert take(made, "b", 10) > LONGEST_WAIT + 5


def test_limits_of_one_model_are_its_own_and_the_lower_of_set_and_learned_counts(redis: Redis) -> None:
    made = limiter(redis, requests_per_minute=6000, model_limits={"gpt-4.1": {"requests": 1}})
    take(made, "a", target=OTHER)
    assert take(made, "b", target=OTHER) > LONGEST_WAIT
    assert take(made, "a") == 0
    made.report(TARGET, "a", 1, OK, 0, Said(requests=1))
    take(made, "b")
    assert take(made, "c") > LONGEST_WAIT


def test_what_the_provider_says_is_left_counts_over_what_we_think(redis: Redis) -> None:
    """Somebody else uses the same key."""
    made = limiter(redis, requests_per_minute=620)
    take(made, "a")
    made.report(TARGET, "a", 1, OK, 0, Said(requests=620, requests_left=0))
    assert 0 < take(made, "b") < 0.2


@pytest.mark.parametrize("lie", [Said(requests=1), Said(tokens=1), Said(1, 1, 0, 0)])
def test_a_limit_that_was_named_by_mistake_is_asked_for_again_within_minutes(
    redis: Redis, clock: Clock, lie: Said
) -> None:
    """Only a reply can take it back, so there has to be a next call; and nobody is sent away for hours."""
    made = limiter(redis)
    take(made, "a", 800)
    made.report(TARGET, "a", 1, OK, -5000, lie)
    waits = [take(made, f"c{n}", 800) for n in range(30)]
    assert 50 < max(waits) < 200
    clock.forward(130)
    assert take(made, "c20", 800) <= LONGEST_WAIT
    made.report(TARGET, "c20", 1, OK, 0, Said(5000, 2_000_000))
    assert max(take(made, f"d{n}", 800) for n in range(5)) <= LONGEST_WAIT


def test_a_limit_that_no_reply_names_any_more_is_forgotten(redis: Redis, clock: Clock) -> None:
    made = limiter(redis)
    take(made, "a")
    made.report(TARGET, "a", 1, OK, 0, Said(requests=1, tokens=62000))
    made.report(TARGET, "a", 1, OK, 0, NOTHING)
    take(made, "b")
    assert take(made, "c") > LONGEST_WAIT, "one reply may do without"
    clock.forward(65)
    made.report(TARGET, "b", 1, OUT, 0, NOTHING)
    made.report(TARGET, "b", 1, LIMITED, 0, NOTHING)
    clock.forward(40)
    assert states(redis)[0].requests_per_minute == 1, "a failed call may be the word of another server"
    made.report(TARGET, "b", 1, OK, 0, Said(tokens=62000))
    assert [take(made, f"d{n}") for n in range(5)] == [0.0] * 5
    assert states(redis)[0].tokens_per_minute == 62000


def test_a_small_limit_is_kept_over_many_minutes(redis: Redis, clock: Clock) -> None:
    """Calls of more than what it allows a minute pass at one a minute."""
    made = limiter(redis, tokens_per_minute=500)
    passed = 0
    for _ in range(200):
        passed += take(made, "a", 800) <= LONGEST_WAIT
        clock.forward(3)
    assert 9 <= passed <= 11


def test_those_who_are_put_back_come_one_after_the_other(redis: Redis) -> None:
    made = limiter(redis, requests_per_minute=62)
    waits = [take(made, f"c{n}") for n in range(20)]
    later = [wait for wait in waits if wait > LONGEST_WAIT]
    assert len(granted(waits)) in (3, 4) and len(later) >= 16
    assert 14 < max(later) - min(later) < 17 + 1
    assert later == sorted(later), "first come, first served"
    assert states(redis)[0].waiting == len(later)


def test_newcomers_do_not_take_the_places_of_those_who_wait(redis: Redis, clock: Clock) -> None:
    made = limiter(redis, requests_per_minute=62)
    for n in range(8):
        take(made, f"old{n}")
    waiting = [m.decode() for m in redis.zrange(TARGET.keys[1], 0, -1)]
    clock.forward(5.0)  # two are due now, or within the time that is waited in a thread
    newcomers = [take(made, f"new{n}") for n in range(3)]
    assert granted(newcomers) == []
    assert take(made, waiting[0]) <= LONGEST_WAIT
    assert take(made, waiting[1]) <= LONGEST_WAIT


def test_who_never_comes_back_holds_nobody_up(redis: Redis, clock: Clock) -> None:
    made = limiter(redis, requests_per_minute=62)
    for n in range(8):
        take(made, f"gone{n}")
    clock.forward(60)
    assert take(made, "new") == 0


# -- 429 ---------------------------------------------------------------------------------------------------


def test_after_a_429_all_wait_as_long_as_the_provider_asked(redis: Redis, clock: Clock) -> None:
    one, another = limiter(redis), limiter(redis)
    take(one, "a")
    verdict = one.report(TARGET, "a", 1, Outcome("limited", retry_after=30), 10, NOTHING)
    assert verdict.failing and 29 < verdict.seconds <= 31
    waits = [take(another, f"c{n}") for n in range(30)]
    assert all(30 < wait < 36 for wait in waits) and len({round(wait, 1) for wait in waits}) > 5
    assert take(another, "x", target=OTHER) == 0, "another model has limits of its own"
    assert states(redis)[1].cooling_seconds > 28
    clock.forward(31)
    assert take(another, "c0") <= LONGEST_WAIT


def test_429s_without_retry_after_pause_for_longer_each_time(redis: Redis, clock: Clock) -> None:
    made = limiter(redis)
    pauses = []
    for _ in range(4):
        take(made, "a")
        pauses.append(made.report(TARGET, "a", 1, LIMITED, 0, NOTHING).seconds)
        clock.forward(60)
    assert [round(pause) for pause in pauses] == [1, 2, 4, 8]


def test_a_server_that_says_at_once_and_refuses_again_is_believed_less_each_time(
    redis: Redis, clock: Clock
) -> None:
    made = limiter(redis)

    def pause(asked: float) -> float:
        clock.forward(60)
        made.report(TARGET, "a", 1, Outcome("limited", retry_after=asked), 0, NOTHING)
        (key,) = redis.keys("cragline:limits:rate:*")
        seconds, micros = redis.time()
        return float(redis.hget(key, "cool") or 0) - seconds - micros / 1e6

    pauses = [pause(0.0) for _ in range(9)]
    assert 0 < pauses[0] <= 0.25 < pauses[2] <= 1 < 20 < pauses[8] <= 30
    assert pause(2.0) <= 2, "from a second on, it is taken at its word"
    made.report(TARGET, "a", 1, OK, 0, NOTHING)
    assert pause(0.0) <= 0.25


def test_429s_again_and_again_lower_the_pace_for_a_while(redis: Redis, clock: Clock) -> None:
    made = limiter(redis)
    for _ in range(2):
        for n in range(40):
            assert take(made, f"c{n}") == 0
        made.report(TARGET, "c0", 1, Outcome("limited", retry_after=1), 0, NOTHING)
        clock.forward(3)
    pace = states(redis)[0].requests_per_minute
    assert pace is not None and 60 <= pace <= 80 * 60, "fewer than came"
    began = time.monotonic()
    granted_now = len(granted([take(made, f"c{n}") for n in range(400)]))
    grown = pace * 2 ** ((time.monotonic() - began) / 10 + 0.1)
    assert granted_now <= grown / 62 * (4 + time.monotonic() - began) + 1
    clock.forward(60)
    assert states(redis)[0].requests_per_minute is None
    assert [take(made, f"n{n}") for n in range(60)] == [0.0] * 60, "forgotten"


# -- breakers ----------------------------------------------------------------------------------------------


def fail(
    made: Limiter, times: int, run: int | None = None, target: Target = TARGET, kind: Outcome = OUT
) -> Any:
    verdict = None
    for n in range(times):
        verdict = made.report(target, f"{n}.1.0", n if run is None else run, kind, 0, NOTHING)
    return verdict


def breaker(redis: Redis) -> str:
    return states(redis)[0].breaker


def test_failures_in_a_row_open_the_breaker_of_a_server_for_all_its_models(redis: Redis) -> None:
    made = limiter(redis)
    take(made, "a")
    assert fail(made, 3).failing is False and breaker(redis) == "closed"
    assert fail(made, 1).failing is True and breaker(redis) == "open"
    for target in (TARGET, OTHER):
        with pytest.raises(ProviderOut):
            limiter(redis).acquire(target, "b", 10, 30)
    elsewhere = Target("openai", "http://elsewhere", "gpt-4.1-mini")
    assert take(made, "a", target=elsewhere) == 0


def test_a_success_in_between_starts_the_count_anew(redis: Redis) -> None:
    made = limiter(redis)
    take(made, "a")
    for _ in range(3):
        fail(made, 3)
        made.report(TARGET, "a", 1, OK, 0, NOTHING)
    assert breaker(redis) == "closed"


def test_one_run_alone_does_not_open_it_unless_nobody_listens(redis: Redis) -> None:
    """A question that its server breaks on must come to its last attempt, not stop everybody."""
    made = limiter(redis)
    take(made, "a")
    assert fail(made, 20, run=7).failing is False and breaker(redis) == "closed"
    made.report(TARGET, "a", 1, OK, 0, NOTHING)
    assert fail(made, 4, run=7, kind=Outcome("out", certain=True)).failing and breaker(redis) == "open"


def test_a_half_open_breaker_lets_one_probe_through_and_closes_when_it_succeeds(
    redis: Redis, clock: Clock
) -> None:
    made = [limiter(redis) for _ in range(8)]
    take(made[0], "a")
    fail(made[0], 4)
    clock.forward(3)
    assert breaker(redis) == "half_open"
    waits = at_once([lambda m=m, n=n: take(m, f"p{n}") for n, m in enumerate(made)])
    assert len(granted(waits)) == 1
    made[3].report(TARGET, "p", 1, OK, 0, NOTHING)
    assert breaker(redis) == "closed" and granted([take(made[0], f"q{n}") for n in range(5)]) == [0.0] * 5


def test_a_probe_that_fails_opens_it_for_longer_up_to_half_a_minute(redis: Redis, clock: Clock) -> None:
    made = limiter(redis)
    take(made, "a")
    fail(made, 4)
    pauses = []
    for _ in range(7):
        pauses.append(round(states(redis)[0].breaker_seconds))
        clock.forward(pauses[-1] + 1)
        assert take(made, "a") <= LONGEST_WAIT
        assert fail(made, 1).failing
    assert pauses == [2, 4, 8, 16, 30, 30, 30]


def test_a_probe_whose_worker_died_is_followed_by_another(redis: Redis, clock: Clock) -> None:
    made = limiter(redis)
    take(made, "a")
    fail(made, 4)
    clock.forward(3)
    assert take(made, "a") <= LONGEST_WAIT
    assert take(made, "b") > LONGEST_WAIT
    clock.forward(31)
    assert take(made, "b") <= LONGEST_WAIT


def test_a_429_says_that_the_server_is_there(redis: Redis) -> None:
    made = limiter(redis)
    take(made, "a")
    fail(made, 3)
    made.report(TARGET, "a", 1, Outcome("limited", retry_after=0.0), 0, NOTHING)
    fail(made, 3)
    assert breaker(redis) == "closed"


# -- without Redis -----------------------------------------------------------------------------------------


def nobody_listens() -> Redis:
    return Redis(port=1, socket_connect_timeout=0.2, socket_timeout=0.2, retry=Retry(NoBackoff(), 0))


def test_without_redis_each_process_keeps_a_share_and_nothing_is_raised(
    redis: Redis, capsys: pytest.CaptureFixture[str]
) -> None:
    made = limiter(nobody_listens(), requests_per_minute=240)  # a share of 60
    waits = [take(made, f"c{n}") for n in range(10)]
    assert len(granted(waits)) in (3, 4)
    assert made.report(TARGET, "c0", 1, LIMITED, 0, NOTHING).failing is False
    assert capsys.readouterr().out.count("no answer from Redis") == 1, "said once"


def test_limits_that_were_learned_count_without_redis_and_redis_is_used_again(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = limiter(redis)
    take(made, "a")
    made.report(TARGET, "a", 1, OK, 0, Said(requests=240))
    monkeypatch.setattr(made, "_client", nobody_listens())
    assert len(granted([take(made, f"c{n}") for n in range(10)])) in (3, 4)
    monkeypatch.setattr(made, "_client", redis)
    monkeypatch.setattr(made, "_away_until", time.monotonic())
    assert take(made, "b") == 0
    assert states(redis)[0].requests_per_minute == 240


def test_a_limit_that_was_forgotten_does_not_count_without_redis_either(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = limiter(redis)
    made.report(TARGET, "a", 1, OK, 0, Said(requests=1))
    made.report(TARGET, "a", 1, OK, 0, NOTHING)
    monkeypatch.setattr(made, "_client", nobody_listens())
    take(made, "b")
    assert take(made, "c") > LONGEST_WAIT, "one reply may do without"
    later = time.monotonic() + 65
    monkeypatch.setattr(time, "monotonic", lambda: later)
    made.report(TARGET, "a", 1, OK, 0, NOTHING)
    assert [take(made, f"d{n}") for n in range(5)] == [0.0] * 5


def test_a_redis_that_hangs_is_not_waited_for_by_each_call(redis: Redis) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        made = limiter(redis_url=f"redis://127.0.0.1:{silent.getsockname()[1]}/0")
        began = time.monotonic()
        results = at_once([lambda n=n: take(made, f"c{n}") for n in range(8)])
        for n in range(100):
            take(made, f"d{n}")
        assert results == [0.0] * 8
        assert time.monotonic() - began < 5, "one short wait, not a hundred"


def test_state_is_read_without_any(redis: Redis) -> None:
    assert states(redis) == []
    redis.sadd("cragline:limits:index", TARGET.key)
    assert states(redis) == [], "the rest has expired"
    assert redis.scard("cragline:limits:index") == 0


def test_a_flush_in_the_middle_is_survived(redis: Redis) -> None:
    made = limiter(redis, requests_per_minute=620)
    stop = threading.Event()

    def flush() -> None:
        while not stop.is_set():
            redis.flushdb()

    thread = threading.Thread(target=flush)
    thread.start()
    try:
        for n in range(200):
            take(made, f"c{n}")
            made.report(TARGET, f"c{n}", n, OUT if n % 3 else LIMITED, 5, Said(requests=600, requests_left=3))
    finally:
        stop.set()
        thread.join()
