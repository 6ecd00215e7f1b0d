"""Reading on while the database is away, with the clock played."""

from collections.abc import Callable, Iterator

import psycopg
import pytest
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, ProgrammingError

from api.cli.patience import PATIENCE_SECONDS, Patience
from shared.errors import CraglineError, NotFound

SECRET = "postgresql://me:s3cr3t@host/db"


def away() -> OperationalError:
    return OperationalError(SECRET, {}, psycopg.OperationalError(SECRET))


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def read(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def playing(*events: "Exception | int") -> Callable[[], int]:
    ahead: Iterator[Exception | int] = iter(events)

    def read() -> int:
        event = next(ahead)
        if isinstance(event, Exception):
            raise event
        return event

    return read


def test_an_absence_is_waited_out_and_told_once(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    patience = Patience("Batch 7 goes on.", clock.sleep, clock.read)
    gone = DBAPIError("x", {}, Exception("x"), connection_invalidated=True)
    read = playing(away(), InterfaceError("x", {}, Exception("x")), gone, 5)
    assert patience(read) == 5
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "The database does not answer; waiting for it (at most 120 s).\n"
    assert clock.now > 0


def test_one_that_lasts_is_an_error_that_says_what_goes_on(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    def read() -> int:
        raise away()

    with pytest.raises(
        CraglineError, match=r"^Batch 7 goes on\. The database has not answered for 120 s"
    ) as caught:
        Patience("Batch 7 goes on.", clock.sleep, clock.read)(read)
    assert PATIENCE_SECONDS < clock.now < PATIENCE_SECONDS + 5
    assert capsys.readouterr().err.count("\n") == 1
    assert "s3cr3t" not in str(caught.value)


def test_each_absence_has_its_own_time(clock: Clock) -> None:
    patience = Patience("x", clock.sleep, clock.read)
    for _ in range(3):
        absent = [away() for _ in range(int(PATIENCE_SECONDS) - 1)]
        assert patience(playing(*absent, 1)) == 1


@pytest.mark.parametrize(
    "error", [NotFound("no batch"), ProgrammingError("x", {}, Exception("x")), ZeroDivisionError()]
)
def test_any_other_error_passes_at_once(clock: Clock, error: Exception) -> None:
    with pytest.raises(type(error)):
        Patience("x", clock.sleep, clock.read)(playing(error, 1))
    assert clock.now == 0
