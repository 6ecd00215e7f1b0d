"""The index of the local store gives what qdrant-client's own loop gives, whatever happened in between."""

import random

import numpy as np
import pytest
from qdrant_client.local import local_collection, sparse_distances
from qdrant_client.models import SparseVector

from workers.stores import local_words
from workers.stores.local_words import quicken, word_scores


def vector(seed: int, words: int = 12) -> SparseVector:
    dice = random.Random(seed)
    indices = sorted(dice.sample(range(40), dice.randint(0, words)))
    return SparseVector(indices=indices, values=[dice.uniform(0.1, 3) for _ in indices])


def same(query: SparseVector, vectors: list[SparseVector]) -> None:
    for empty_is_zero in (False, True):
        expected = sparse_distances.calculate_distance_sparse(query, vectors, empty_is_zero)
        found = word_scores(query, vectors[:], empty_is_zero)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_the_scores_are_the_clients() -> None:
    for seed in range(30):
        same(vector(seed), [vector(1000 * seed + number) for number in range(seed * 3)])
    same(SparseVector(indices=[], values=[]), [vector(1)])
    same(SparseVector(indices=[2**32 - 1], values=[1.0]), [vector(1), vector(2)])


def test_what_is_appended_replaced_or_taken_away_is_seen() -> None:
    dice = random.Random(7)
    vectors = [vector(number) for number in range(50)]
    for turn in range(60):
        same(vector(turn, 6), vectors)
        change = dice.choice(["append", "append", "replace", "first", "cut", "none"])
        if change == "append":
            vectors += [vector(dice.random().__hash__()) for _ in range(dice.randint(1, 5))]
        elif change == "replace":
            vectors[dice.randrange(len(vectors))] = vector(turn + 5000)
        elif change == "first":
            vectors[0] = vector(turn + 9000)
        elif change == "cut" and len(vectors) > 20:
            del vectors[-3:]
        assert all(len(parts) <= local_words._PARTS for parts in local_words._indexes.values())
    assert len(local_words._indexes) <= local_words._INDEXES


def test_the_function_that_is_replaced_is_still_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails after an upgrade, local searches by words are slow again: look for its new name."""
    original = sparse_distances.calculate_distance_sparse
    monkeypatch.setattr(local_collection, local_words._REPLACED, original)
    quicken()
    quicken()
    assert getattr(local_collection, local_words._REPLACED) is word_scores
    monkeypatch.delattr(local_collection, local_words._REPLACED)
    quicken()
    assert not hasattr(local_collection, local_words._REPLACED)
