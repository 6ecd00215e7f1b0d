"""Who acts, and when that is."""

import getpass
from datetime import UTC, datetime

import pytest

from api.cli.acting import actor, moment
from shared.errors import UsageError

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("30min", datetime(2026, 11, 30, 11, 30, tzinfo=UTC)),
        ("2h", datetime(2026, 11, 30, 10, tzinfo=UTC)),
        ("90 d", datetime(2026, 9, 1, 12, tzinfo=UTC)),
        ("1w", datetime(2026, 11, 23, 12, tzinfo=UTC)),
        ("2026-11-30T09:00+02:00", datetime(2026, 11, 30, 7, tzinfo=UTC)),
        ("2026-11-29", datetime(2026, 11, 29).astimezone(UTC)),
    ],
)
def test_a_moment(said: str, expected: datetime) -> None:
    assert moment(said, "--since", NOW) == expected


@pytest.mark.parametrize("said", ["", "yesterday", "-2h", "2 months", "999999w", "2026-13-01", "0001-01-01x"])
def test_no_moment(said: str) -> None:
    with pytest.raises(UsageError, match="--since"):
        moment(said, "--since", NOW)


def test_an_actor_is_the_given_name_or_the_login(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: "kim")
    assert actor(None) == "kim"
    assert actor("a\nb") == "a b"
    with pytest.raises(UsageError):
        actor(" ")

    def nameless() -> str:
        raise KeyError(1000)

    monkeypatch.setattr(getpass, "getuser", nameless)
    assert actor(None) == "unknown"
