"""Reciprocal rank: two rankings made one."""

import pytest

from workers.stores.fusion import fuse


def test_first_in_both_is_one_and_comes_first() -> None:
    fused = fuse([["a", "b", "c"], ["a", "c", "d"]])
    assert [item for item, _ in fused] == ["a", "c", "b", "d"]
    assert fused[0][1] == pytest.approx(1.0)
    assert [round(score, 4) for _, score in fused] == [1.0, 0.675, 0.375, 0.3]


def test_first_in_one_beats_the_middling_of_both() -> None:
    first = [f"m{n}" for n in range(20)]
    fused = [item for item, _ in fuse([["best", *first], list(reversed(first))])]
    # m19 is in both, and first in one; with a constant of 60 all the middling would come before "best"
    assert fused[:2] == ["m19", "best"]


def test_of_equals_the_earlier_ranking_wins() -> None:
    assert [item for item, _ in fuse([["a", "b"], ["c", "d"]])] == ["a", "c", "b", "d"]


def test_one_ranking_keeps_its_order_and_none_gives_none() -> None:
    assert [item for item, _ in fuse([["b", "a"]])] == ["b", "a"]
    assert fuse([["b", "a"]])[0][1] == pytest.approx(1.0)
    assert fuse([["b"], []])[0][1] == pytest.approx(0.5), "a ranking that finds nothing still counts"
    assert fuse([]) == fuse([[], []]) == []
