"""How values are shown: in tables of any width, in CSV, in JSON."""

import io
import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from rich.console import Console

from api.cli.output import (
    address,
    cell,
    csv_cell,
    duration,
    in_bigint,
    plain,
    print_json,
    print_rows,
    printable,
    table,
)
from shared.errors import NotFound


def shown(width: int, columns: list[str], rows: list[list[object]]) -> list[str]:
    out = Console(file=io.StringIO(), width=width)
    print_rows(out, columns, rows)
    text = out.file.getvalue()  # type: ignore[attr-defined]
    return [line.rstrip() for line in text.splitlines()]


def test_a_table_that_fits() -> None:
    lines = shown(80, ["node", "count"], [["retrieve", 3], ["decide", 12]])
    assert lines[1].split() == ["node", "count"]
    assert lines[3:5] == [" retrieve      3", " decide       12"]


def test_many_columns_become_one_record_after_the_other() -> None:
    names = [f"column_{number}" for number in range(12)]
    lines = shown(80, names, [list(range(12)), list(range(100, 112))])
    assert [line.split() for line in lines if "column_11" in line] == [
        ["column_11", "11"],
        ["column_11", "111"],
    ]
    assert [line.strip() for line in lines if line.strip().startswith("row ")] == ["row 1", "row 2"]
    assert max(map(len, lines)) <= 80
    assert sum("column_11" in line for line in shown(200, names, [list(range(12))])) == 1  # a header again


def test_no_rows_at_all() -> None:
    assert any("column_3" in line for line in shown(20, ["column_3"], []))


def test_columns_of_numbers_stand_to_the_right() -> None:
    made = table(("a", "b", "c", "d"), [(1, "1", True, None), (None, "2", False, Decimal("0.5"))])
    assert [column.justify for column in made.columns] == ["right", "left", "left", "right"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ""),
        (True, "true"),
        (0.25, "0.25"),
        (3.0, "3"),
        (0.00049, "0"),
        (100.0, "100"),
        (Decimal("100"), "100"),
        (Decimal("0.500"), "0.5"),
        (["a", "b", "b"], "a, b x2"),
        ({"k": [1]}, '{"k": [1]}'),
        ("two\nlines", "two lines"),
        ("[bold]not markup[/bold]", "[bold]not markup[/bold]"),
        ("\x1b[31mred\x07", "[31mred"),
        ("half \ud83d", "half \ufffd"),
    ],
)
def test_cell(value: object, expected: str) -> None:
    assert cell(value).plain == expected


def test_text_from_outside_cannot_steer_the_terminal() -> None:
    assert printable("a\x1b[31m\x1b]0;title\x07\r\u202eb\nc\udcff") == "a [31m ]0;title   b\nc\ufffd"


def test_a_long_cell_is_cut() -> None:
    assert cell("word " * 100, 10).plain == "word word…"
    assert len(cell("word " * 100, None).plain) == 499


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (datetime(2031, 5, 6, 7, 8, tzinfo=UTC), "2031-05-06T07:08:00+00:00"),
        (timedelta(minutes=2), 120.0),
        (Decimal("3"), 3),
        (Decimal("0.25"), 0.25),
        (Decimal("NaN"), "NaN"),
        (float("inf"), "inf"),
        ({1: (Decimal("2"),)}, {"1": [2]}),
        (b"x\x00\xff", "\\x7800ff"),
        (b"", "\\x"),
        ([memoryview(b"a")], ["\\x61"]),
    ],
)
def test_plain(value: object, expected: object) -> None:
    assert plain(value) == expected
    json.dumps(plain(value), allow_nan=False)


def test_csv_cell() -> None:
    assert [csv_cell(value) for value in (None, False, {"é": 1}, [1], "a", Decimal("1.50"))] == [
        None,
        "false",
        '{"é": 1}',
        "[1]",
        "a",
        1.5,
    ]


def test_print_json_is_one_line_of_clean_text(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": "é\x00\ud83d\n"})
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert json.loads(out)["a"] == "é\x00\ufffd\n"


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(None, "?"), (0.4, "0 s"), (45, "45 s"), (190, "3 min 10 s"), (7500, "2 h 05 min")],
)
def test_duration(seconds: float | None, expected: str) -> None:
    assert duration(seconds) == expected


def test_bytes_are_shown_as_postgres_writes_them() -> None:
    assert cell(b"\xde\xad").plain == csv_cell(b"\xde\xad") == "\\xdead"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://host:6333/", "http://host:6333"),
        ("https://host/v1", "https://host/v1"),
        ("http://user:s3cr3t@host:1/v1", "http://host:1/v1"),
        ("http://s3cr3t@host", "http://host"),
        ("http://user:s3cr3t@s3cr3t/s3cr3t?s3cr3t@host/v1?key=s3cr3t#s3cr3t", "http://host/v1"),
        ("user:s3cr3t@host", "host"),
        ("http://[s3cr3t@[::1", "http://[::1"),
        ("", ""),
    ],
)
def test_an_address_holds_no_secret(url: str, expected: str) -> None:
    assert address(url) == expected


def test_numbers_that_no_row_can_have() -> None:
    check = in_bigint("batch")
    assert [check(number) for number in (2**63 - 1, -(2**63), 7)] == [2**63 - 1, -(2**63), 7]
    for number in (2**63, -(2**63) - 1, 10**30):
        with pytest.raises(NotFound, match=f"There is no batch {number}"):
            check(number)
