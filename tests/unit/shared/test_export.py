"""What an export holds in memory at once."""

from collections.abc import Iterator

from shared import export


def test_a_group_ends_with_its_rows_or_its_bytes() -> None:
    drawn = 0

    def rows(count: int, text: str) -> Iterator[tuple[int, str]]:
        nonlocal drawn
        for number in range(count):
            drawn += 1
            yield number, text

    groups = export._groups(rows(2 * export._ROWS + 1, ""))
    assert len(next(groups)) == export._ROWS
    assert drawn == export._ROWS  # nothing is read ahead
    assert [len(group) for group in groups] == [export._ROWS, 1]
    large = list(export._groups(rows(5, "x" * (export._BYTES // 2))))
    assert [len(group) for group in large] == [2, 2, 1]
    assert list(export._groups(iter([]))) == []
