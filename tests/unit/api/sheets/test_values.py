"""Cells as text: numbers, dates, references; openpyxl is asked for a second opinion."""

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openpyxl.styles.numbers import BUILTIN_FORMATS, is_date_format
from openpyxl.utils import get_column_letter
from openpyxl.utils.datetime import from_excel

from api.sheets.values import Shown, area, letters, number_text, position, shown_by, unescape


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("General", Shown.NUMBER),
        ("0.00", Shown.NUMBER),
        ("#,##0 [$€-407]", Shown.NUMBER),
        ('0 "days"', Shown.NUMBER),
        (r"0\d", Shown.NUMBER),
        ("[Red]0;[Blue]-0", Shown.NUMBER),
        ("0.00E+00", Shown.NUMBER),
        ("@", Shown.NUMBER),
        ("yyyy-mm-dd", Shown.DATE),
        ("[$-407]d. mmmm yyyy", Shown.DATE),
        ("mmm", Shown.DATE),
        ("hh:mm", Shown.TIME),
        ("h:mm AM/PM", Shown.TIME),
        ("dd/mm/yyyy hh:mm", Shown.BOTH),
        ("[h]:mm:ss", Shown.ELAPSED),
        ("[mm]:ss", Shown.ELAPSED),
    ],
)
def test_number_formats(code: str, shown: Shown) -> None:
    assert shown_by(164, {164: code}) is shown


def test_built_in_formats_agree_with_openpyxl() -> None:
    assert {number for number in BUILTIN_FORMATS if shown_by(number, {}) is not Shown.NUMBER} == {
        number for number, code in BUILTIN_FORMATS.items() if is_date_format(code)
    }


@pytest.mark.parametrize(
    ("raw", "shown", "text"),
    [
        ("1", Shown.NUMBER, "1"),
        ("1.0", Shown.NUMBER, "1"),
        ("-0.5", Shown.NUMBER, "-0.5"),
        ("2.2000000000000002", Shown.NUMBER, "2.2"),
        ("1E+22", Shown.NUMBER, "1e+22"),
        ("12345678901234567890", Shown.NUMBER, "12345678901234567890"),
        ("nonsense", Shown.NUMBER, "nonsense"),
        ("45352", Shown.DATE, "2024-03-01"),
        ("45352.5", Shown.DATE, "2024-03-01 12:00:00"),
        ("45352", Shown.BOTH, "2024-03-01 00:00:00"),
        ("0.75", Shown.TIME, "18:00:00"),
        ("1.5", Shown.ELAPSED, "36:00:00"),
        ("59", Shown.DATE, "1900-02-28"),
        ("60", Shown.DATE, "1900-02-29"),
        ("61", Shown.DATE, "1900-03-01"),
        ("-1", Shown.DATE, "-1"),
        ("1e300", Shown.DATE, "1e+300"),
        ("inf", Shown.DATE, "inf"),
        ("nan", Shown.BOTH, "nan"),
    ],
)
def test_numbers(raw: str, shown: Shown, text: str) -> None:
    assert number_text(raw, shown, False) == text


@given(st.integers(1, 2_958_465).filter(lambda day: day != 60), st.integers(0, 86_399))
def test_moments_agree_with_openpyxl(day: int, second: int) -> None:
    serial = day + second / 86_400
    expected = from_excel(serial)
    assert isinstance(expected, datetime)
    assert number_text(repr(serial), Shown.BOTH, False) == expected.replace(microsecond=0).isoformat(" ")


def test_dates_from_1904() -> None:
    assert number_text("0", Shown.DATE, True) == "1904-01-01"


@given(st.integers(1, 16_384), st.integers(1, 1_048_576))
def test_references(column: int, row: int) -> None:
    assert letters(column) == get_column_letter(column)
    assert position(f"{letters(column)}{row}") == (row, column)


@pytest.mark.parametrize("text", ["", "A", "1", "A0", "XFE1", "A1048577", "A1:B2", "١A"])
def test_what_is_no_reference(text: str) -> None:
    assert position(text) is None


def test_areas() -> None:
    assert area("B2") == (2, 2, 2, 2)
    assert area("$D$9:B2") == (2, 2, 9, 4)
    assert area("A:B") is None


def test_escapes() -> None:
    assert unescape("a_x000D_b_x005F_x0041_ _xZZZZ_") == "a\rb_x0041_ _xZZZZ_"
    assert unescape("_xD83D__xDE00_") == "😀"
    assert unescape("a_x0000_b_xD83D_") == "a�b�"
