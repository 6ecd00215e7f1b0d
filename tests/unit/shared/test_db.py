"""Reading times for which Python has no value, with psycopg's own loaders and no server."""

import datetime
from typing import Any

import psycopg
import pytest
from psycopg.adapt import AdaptersMap
from psycopg.pq import Format

from shared.db import _read_every_time


class Connection:
    """What the hook needs of a connection, and what the loaders ask it for."""

    def __init__(self) -> None:
        self.adapters = AdaptersMap(psycopg.adapters)


def load(kind: str, text: str) -> Any:
    connection: Any = Connection()
    _read_every_time(connection, None)
    oid = connection.adapters.types[kind].oid
    loader = connection.adapters.get_loader(oid, Format.TEXT)
    return loader(oid, None).load(text.encode())


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("timestamptz", "infinity"),
        ("timestamptz", "-infinity"),
        ("timestamptz", "10000-01-01 00:00:00+00"),
        ("timestamptz", "0044-03-15 12:00:00+00 BC"),
        ("timestamp", "infinity"),
        ("timestamp", "294276-12-31 23:59:59"),
        ("date", "infinity"),
        ("date", "0044-03-15 BC"),
        ("time", "24:00:00"),
        ("interval", "infinity"),
        ("interval", "P1Y2M"),  # of a session with an IntervalStyle that psycopg does not read
    ],
)
def test_what_python_cannot_hold_is_read_as_text(kind: str, text: str) -> None:
    assert load(kind, text) == text


def test_every_other_time_is_read_as_ever() -> None:
    assert load("timestamp", "2031-05-06 07:08:09") == datetime.datetime(2031, 5, 6, 7, 8, 9)
    assert load("date", "2031-05-06") == datetime.date(2031, 5, 6)
    assert load("timestamptz", "2031-05-06 07:08:09+00").utcoffset() == datetime.timedelta()
