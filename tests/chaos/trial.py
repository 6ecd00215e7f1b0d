"""One trial: a stack of its own, a calm batch, the same batch through a storm, and what came of it."""

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Engine
from sqlalchemy.exc import InterfaceError, OperationalError

from shared.db import make_engine
from tests.chaos import verdict
from tests.chaos.script import Weather
from tests.chaos.storm import Storm
from tests.e2e.conftest import new_home, remove_home
from tests.e2e.home import Home
from tests.fakes.http_fake import Exchange
from tests.fakes.openai_server import FakeOpenAI
from tests.fakes.tavily_server import FakeTavily

SUBJECTS = ("crag", "hut", "raven", "wall", "path", "roof", "summit", "river", "bridge", "meadow")
FAULTS = 0.1  # of all replies
# A reply's way into its row: the client reads it, and one transaction commits it. Long, on a loaded machine.
GRACE = 1.0
LONGEST_STORM = 300.0  # seconds after everything has happened once
SETTINGS = {
    "OPENAI_API_KEY": "sk-chaos-0123456789abcdef",
    "TAVILY_API_KEY": "tvly-chaos-0123456789",
    "CRAGLINE_MAX_ATTEMPTS": "12",  # a fault in ten, and every kill, costs one
    "CRAGLINE_RETRY_BASE": "0.2",
    "CRAGLINE_RETRY_CAP": "2",
    "CRAGLINE_MODEL_TIMEOUT": "4",  # what hangs, hangs so long
    "CRAGLINE_WEB_TIMEOUT": "4",
    "CRAGLINE_REUSE": "batch",  # not `all`: the calm batch must not answer for the stormy one
}
QUICK = {
    "CRAGLINE_LEASE_SECONDS": "4",
    "CRAGLINE_HEARTBEAT_SECONDS": "1",
    "CRAGLINE_REPUBLISH_SECONDS": "5",
}


@dataclass(frozen=True)
class Figures:
    """What a trial measured."""

    seed: int
    questions: int
    calm_seconds: float
    storm_seconds: float
    blows: dict[str, int]
    faults: dict[str, int]
    answered: int
    gave_up: int
    lost_attempts: int
    taken_back_seconds: float  # from a worker's death until the last of its attempts was taken back, at most
    calls: int
    made_again: int
    in_flight: int
    recovery_seconds: float  # from the last blow to the end of the batch

    def line(self) -> str:
        blows = " ".join(f"{what}={count}" for what, count in sorted(self.blows.items()))
        return (
            f"seed {self.seed}: {self.questions} questions, calm {self.calm_seconds:.0f} s, storm "
            f"{self.storm_seconds:.0f} s, {blows}, faults {sum(self.faults.values())}; answered "
            f"{self.answered}, gave up {self.gave_up}; attempts lost {self.lost_attempts}, taken back within "
            f"{self.taken_back_seconds:.0f} s; of {self.calls} "
            f"paid calls {self.made_again} made again, {self.in_flight} in flight at the blows; "
            f"{self.recovery_seconds:.0f} s from the last blow to the end"
        )


def questions(wanted: int) -> list[str]:
    """Questions in many scripts, short and long; from files as people have them where there are such."""
    found = list(_wild_questions())
    made = [
        f"{opening} the {SUBJECTS[number % len(SUBJECTS)]} number {number}{tail}?"
        for number in range(wanted)
        for opening, tail in [
            [
                ("How old is", ""),
                ("Wie alt ist", " — größer"),
                ("=HYPERLINK(", ' "x")'),
                ("האם", " \u202eבהר"),
            ][number % 4]
        ]
    ]
    return list(dict.fromkeys([*found[: wanted * 4 // 5], *made]))[:wanted]


def _wild_questions() -> Iterator[str]:
    folder = Path(os.environ.get("CRAGLINE_TEST_DATA", "/nonexistent")) / "wild_batches"
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            if "question" in (record := json.loads(line)):
                yield record["question"]


@contextmanager
def stack(weather: Weather, settings: dict[str, str]) -> Iterator[tuple[Home, FakeOpenAI, FakeTavily]]:
    """Two workers and all the rest, with the scripted servers, and a collection of thirty documents."""
    with (
        FakeOpenAI(weather.chat, embedding_replies=weather.embeddings) as openai,
        FakeTavily(weather.web) as tavily,
    ):
        urls = {"OPENAI_BASE_URL": openai.base_url, "CRAGLINE_TAVILY_BASE_URL": tavily.base_url}
        home = new_home(**SETTINGS, **urls, **settings)
        try:
            done = home.run("up", "-d", "--workers", "2", timeout=240)
            assert done.code == 0, done.err
            lines = [
                json.dumps(
                    {
                        "id": str(n),
                        "title": f"Doc {n}",
                        "text": f"The {word} of the valley. Fact number{n} of section{n // 10}.",
                    }
                )
                for n, word in enumerate(SUBJECTS * 3)
            ]
            told = home.run("ingest", home.write("docs.jsonl", "\n".join(lines)), "--json").value
            assert told["failed"] == 0, told
            yield home, openai, tavily
        finally:
            home.run("down", timeout=240)
            remove_home(home)


def run_trial(seed: int, wanted: int, *, quick: bool) -> Figures:
    """`quick`: short leases, and a short storm of blows that follow closely; else the default settings, and a
    storm through which half of the questions find their way, where that does not take too long.

    Raises AssertionError naming what does not hold.
    """
    every = (1.5, 3.0) if quick else (3.0, 6.0)
    others = ["flush", "valkey", "postgres", "beat"] + ([] if quick else ["flush", "beat"])
    weather = Weather(seed)
    with stack(weather, QUICK if quick else {}) as (home, openai, tavily):
        asked = questions(wanted)
        file = home.write("questions.jsonl", "\n".join(json.dumps({"question": one}) for one in asked))
        engine = make_engine(str(home.parts()["postgres"]["url"]))
        try:
            calm, calm_seconds = _run(home, engine, file)
            openai.clear()
            tavily.clear()
            weather.share, weather.latency = FAULTS, 0.2
            began = time.monotonic()
            stormy = _submit(home, file)
            with Storm(home, seed, every=every, others=others) as storm:
                _wait(engine, stormy, until=lambda: storm.over or storm.failure is not None)
                if not quick:
                    longest = time.monotonic() + LONGEST_STORM
                    _wait(
                        engine,
                        stormy,
                        open_runs=len(asked) // 2,
                        until=lambda: storm.failure is not None or time.monotonic() > longest,
                    )
            assert storm.over, "the batch was over before the storm"
            last_blow = storm.blows[-1].ended
            _wait(engine, stormy)
            ended = time.monotonic()
            return _judge(
                engine, calm, stormy, storm, weather, _paid(openai, tavily),
                seed=seed, questions=len(asked), calm_seconds=calm_seconds,
                storm_seconds=ended - began, recovery_seconds=ended - last_blow,
            )  # fmt: skip
        finally:
            engine.dispose()


def _judge(
    engine: Engine,
    calm: int,
    stormy: int,
    storm: Storm,
    weather: Weather,
    exchanges: Sequence[Exchange],
    *,
    questions: int,
    **measured: float,
) -> Figures:
    verdict.check_history(engine, calm, questions)
    ends = verdict.check_history(engine, stormy, questions)
    other = verdict.differences(engine, calm, stormy)
    assert not other, f"{len(other)} answers of the storm are not those of the calm: {other[:3]}"
    again = verdict.made_again(exchanges)
    in_flight = verdict.in_flight(exchanges, storm.blows, GRACE)
    assert again <= in_flight, (again, in_flight)
    lost, seconds = verdict.taken_back(engine, stormy, storm.blows)
    blows = [blow.what for blow in storm.blows]
    return Figures(
        questions=questions,
        blows={what: blows.count(what) for what in set(blows)},
        faults=weather.faults,
        answered=ends["answered"],
        gave_up=ends["gave_up"],
        lost_attempts=lost,
        taken_back_seconds=seconds,
        calls=sum(one.good for one in exchanges),
        made_again=again,
        in_flight=in_flight,
        **measured,  # type: ignore[arg-type]
    )


def _paid(openai: FakeOpenAI, tavily: FakeTavily) -> list[Exchange]:
    """All but embeddings, whose vectors are not kept."""
    return [one for one in [*openai.exchanges, *tavily.exchanges] if one.role != "embedder"]


def _run(home: Home, engine: Engine, file: Path) -> tuple[int, float]:
    began = time.monotonic()
    batch = _submit(home, file)
    _wait(engine, batch)
    return batch, time.monotonic() - began


def _submit(home: Home, file: Path) -> int:
    return int(home.run("submit", file, "--json", "--set", "retrieval=dense", "--yes").value["batch_id"])


def _wait(
    engine: Engine,
    batch: int,
    *,
    open_runs: int = 0,
    until: Callable[[], bool] = lambda: False,
    timeout: float = 900,
) -> None:
    """Until `until()`, or no more than `open_runs` have not ended. Postgres may be away in between. A command
    for each look would take a processor's time from what is measured."""
    query = "SELECT count(*) FROM runs WHERE batch_id = :b AND status IN ('pending', 'running')"
    deadline = time.monotonic() + timeout
    while not until():
        with suppress(OperationalError, InterfaceError):
            if verdict.rows(engine, query, b=batch)[0][0] <= open_runs:
                return
        assert time.monotonic() < deadline, "the batch did not end in time"
        time.sleep(0.2)
