"""Watching an ingest and telling how it went, with the database, the queue and the clock played."""

import io
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console
from sqlalchemy.exc import OperationalError

from api.cli import ingest as command
from shared import ingest as work
from shared.errors import CraglineError

ENGINE: Any = None
AWAY = OperationalError("x", {}, Exception("the database system is starting up"))
PENDING = work.Progress(1, 1, 0, 0, 0, 0, 0, 0, 0, [], [])
DONE = replace(PENDING, pending=0, done=1, documents=1, chunks_added=1)


class Played:
    """`progress` gives these events one after the other, the last one for ever."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *events: Any) -> None:
        self.now = 0.0
        self.published: list[list[int]] = []
        self.queue_away = False
        ahead: Iterator[Any] = iter(events)

        def progress(engine: Any, ingest_id: str) -> work.Progress:
            event = next(ahead, events[-1])
            if isinstance(event, Exception):
                raise event
            return event  # type: ignore[no-any-return]

        monkeypatch.setattr(work, "progress", progress)
        monkeypatch.setattr(work, "somebody_works", lambda engine: False)
        monkeypatch.setattr(work, "unclaimed", lambda engine, ingest_id: [3])

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def publish(self, ids: list[int]) -> None:
        self.published.append(ids)
        if self.queue_away:
            raise command.QueueAway("The queue cannot be reached.")

    def follow(self) -> work.Progress:
        return command.follow(ENGINE, "i-1", self.publish, lambda now: None, self.sleep, lambda: self.now)


def test_a_database_that_is_restarted_does_not_end_the_watching(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    played = Played(monkeypatch, PENDING, *[AWAY] * 100, PENDING, DONE)
    assert played.follow() == DONE
    assert capsys.readouterr().err.count("The database does not answer") == 1


def test_one_that_stays_away_ends_it_and_the_ingest_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(monkeypatch, PENDING, AWAY)
    with pytest.raises(CraglineError, match=r"^The files stay in line \(ingest i-1\)") as caught:
        played.follow()
    assert not isinstance(caught.value, command.NobodyThere)


def test_a_queue_that_is_away_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(monkeypatch, *[PENDING] * 30, DONE)
    played.queue_away = True
    assert played.follow() == DONE
    assert played.published == [[3]]


def test_when_nobody_comes_the_files_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(command.NobodyThere, match=r"\(ingest i-1\): 1 file, which"):
        Played(monkeypatch, PENDING).follow()


@pytest.mark.parametrize(
    ("ended", "skipped", "lines"),
    [
        (
            DONE,
            {".docx": 1},
            [
                "1 of 1 file ingested into 'kb': 1 document; chunks: 1 added, 0 unchanged, 0 removed.",
                "Left out of the folders: 1 file (1 .docx).",
            ],
        ),
        (
            replace(DONE, files=2, done=2, documents=0, notes=[("/a.txt", "holds no text")]),
            {".docx": 2, "hidden": 1},
            [
                "2 of 2 files ingested into 'kb': 0 documents; chunks: 1 added, 0 unchanged, 0 removed.",
                "Left out of the folders: 3 files (2 .docx, 1 hidden).",
                "Noted:",
                "  /a.txt: holds no text",
            ],
        ),
        (
            replace(DONE, notes=[("/a\x1b[31m\n.txt", "an [odd] name")]),
            {},
            [
                "1 of 1 file ingested into 'kb': 1 document; chunks: 1 added, 0 unchanged, 0 removed.",
                "Noted:",
                "  /a [31m .txt: an [odd] name",
            ],
        ),
    ],
)
def test_what_is_told_at_the_end(ended: work.Progress, skipped: dict[str, int], lines: list[str]) -> None:
    out = Console(file=io.StringIO(), width=200)
    command._tell(out, work.Ingest("i-1", [3], Counter(skipped), "kb"), ended, prune=False)
    assert out.file.getvalue().splitlines() == lines  # type: ignore[attr-defined]
