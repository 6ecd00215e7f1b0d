"""Cells that a spreadsheet would run instead of show, made harmless."""

import re

# Full-width forms included; a tab or line end before a formula is skipped by some programs.
_STARTS = tuple("=+-@\t\r\n＝＋－＠")
# -12, +3.5, -1,234.50 and -4% are numbers to a spreadsheet, and stay numbers. No letter, bracket, quotation
# mark or second sign can stand in one, so nothing can be run.
_NUMBER = re.compile(r"[+-]?[0-9][0-9.,]*(?:[eE][+-]?[0-9]{1,3})?%?", re.ASCII)


def is_formula(text: str) -> bool:
    """Whether a spreadsheet may take a CSV cell of `text` for a formula."""
    return text.startswith(_STARTS) and _NUMBER.fullmatch(text) is None


def harmless(text: str) -> str:
    """`text`, with an apostrophe before it when a spreadsheet would take it for a formula."""
    return f"'{text}" if is_formula(text) else text
