"""--include and --exclude."""

import pytest

from shared.globs import wanted


@pytest.mark.parametrize(
    ("path", "include", "exclude", "taken"),
    [
        ("a.py", [], [], True),
        ("src/a.py", ["*.py"], [], True),
        ("src/a.md", ["*.py"], [], False),
        ("a.py", ["**/*.py"], [], True),
        ("src/deep/a.py", ["src/**"], [], True),
        ("src/deep/a.py", ["src/"], [], True),
        ("lib/src/a.py", ["./src/*"], [], True),
        ("src/a.py", ["*.py"], ["src/*"], False),
        ("tests/a.py", [], ["tests/"], False),
        ("contests/a.py", [], ["tests/"], True),
        ("a.PY", ["*.py"], [], False),
        ("a[1].py", ["a[[]1].py"], [], True),
    ],
)
def test_what_is_taken(path: str, include: list[str], exclude: list[str], taken: bool) -> None:
    assert wanted(path, include, exclude) is taken
