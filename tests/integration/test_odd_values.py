"""What `cragline sql` makes of values for which Python has none."""

import json
from datetime import timedelta

import pytest

from api.cli.output import csv_cell, plain
from shared import history
from shared.db import make_engine
from shared.stack.testing import Servers


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("'infinity'::timestamptz", "infinity"),
        ("'-infinity'::date", "-infinity"),
        ("'0044-03-15 BC'::date", "0044-03-15 BC"),
        ("'24:00'::time", "24:00:00"),
        ("'178000000 years'::interval", "178000000 years"),
        ("'1 day 02:00'::interval", timedelta(days=1, hours=2).total_seconds()),
        ("'-1 days +00:00:01'::interval", timedelta(days=-1, seconds=1).total_seconds()),
        ("'\\xdead'::bytea", "\\xdead"),
        ("ARRAY['infinity'::timestamptz]", ["infinity"]),
    ],
)
def test_a_value_is_shown_as_postgres_writes_it(servers: Servers, expression: str, expected: object) -> None:
    engine = make_engine(servers.database_url, pool_size=1)
    try:
        ((value,),) = history.query(engine, f"select {expression}").rows
    finally:
        engine.dispose()
    assert plain(value) == expected
    json.dumps(plain(value))
    assert csv_cell(value) == (json.dumps(expected) if isinstance(expected, list) else expected)
