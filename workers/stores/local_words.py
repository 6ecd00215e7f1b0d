"""Word scores of the local store, by an inverted index instead of by looking at every passage.

qdrant-client's local mode multiplies a question with each stored vector in Python: 0.3 s for 10,000
passages, with the store's one lock held. This is the only file that touches its inside: the function that
does so is replaced by one with the same results. A version without that function is merely slow.

The index is derived from the list of vectors that the client passes in, and checked against it by identity
at every call, so it cannot go stale, whatever was stored, deleted or switched in between.
"""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from qdrant_client.local import local_collection
from qdrant_client.models import SparseVector

_REPLACED = "calculate_distance_sparse"
_INDEXES = 8  # collections whose index is kept
_PARTS = 16  # of an index, before it is made anew as one


@dataclass
class _Part:
    """The postings of neighbouring vectors: for each word, who has it and with what weight."""

    start: int  # position of the first vector
    vectors: list[SparseVector]  # held, so that an identity is not given to another
    words: NDArray[np.int64] = field(init=False)  # sorted, each once
    bounds: NDArray[np.int64] = field(init=False)  # of each word's postings; one longer than `words`
    owners: NDArray[np.int64] = field(init=False)
    weights: NDArray[np.float64] = field(init=False)

    def __post_init__(self) -> None:
        lengths = [len(vector.indices) for vector in self.vectors]
        owners = np.repeat(np.arange(self.start, self.start + len(lengths)), lengths)
        words = np.array([word for vector in self.vectors for word in vector.indices], np.int64)
        weights = np.array([weight for vector in self.vectors for weight in vector.values], np.float64)
        order = np.argsort(words, kind="stable")
        self.words, first = np.unique(words[order], return_index=True)
        self.bounds = np.append(first, len(words))
        self.owners, self.weights = owners[order], weights[order]

    def add(self, word: int, weight: float, scores: NDArray[np.float64], met: NDArray[np.bool_]) -> None:
        place = int(np.searchsorted(self.words, word))
        if place == len(self.words) or self.words[place] != word:
            return
        postings = slice(self.bounds[place], self.bounds[place + 1])
        owners = self.owners[postings]
        scores[owners] += weight * self.weights[postings]
        met[owners] = True


_indexes: OrderedDict[int, list[_Part]] = OrderedDict()  # by the identity of the first vector
_lock = threading.Lock()


def _parts_for(vectors: list[SparseVector]) -> list[_Part]:
    """The index of exactly these vectors; what was appended since the last call becomes a part of its own."""
    key = id(vectors[0])
    parts = _indexes.pop(key, [])
    # list equality takes the identity of two elements for their equality, so this is quick
    for number, part in enumerate(parts):
        if part.vectors != vectors[part.start : part.start + len(part.vectors)]:
            del parts[number:]
            break
    known = parts[-1].start + len(parts[-1].vectors) if parts else 0
    if known < len(vectors) and len(parts) == _PARTS:
        parts, known = [], 0
    if known < len(vectors):
        parts.append(_Part(known, vectors[known:]))
    _indexes[key] = parts
    while len(_indexes) > _INDEXES:
        _indexes.popitem(last=False)
    return parts


def word_scores(
    query: SparseVector, vectors: Sequence[SparseVector], empty_is_zero: bool = False
) -> NDArray[np.float32]:
    """The dot product with each of `vectors`, float32; where no word is shared, 0 or minus infinity."""
    listed = list(vectors)
    scores, met = np.zeros(len(listed), np.float64), np.zeros(len(listed), bool)
    if listed:
        with _lock:
            parts = _parts_for(listed)
            for word, weight in zip(query.indices, query.values, strict=True):
                for part in parts:
                    part.add(word, weight, scores, met)
    if not empty_is_zero:
        scores[~met] = -np.inf
    return scores.astype(np.float32)


def quicken() -> None:
    """Let the local stores of this process use the index. Again is harmless."""
    inside: Any = local_collection
    if hasattr(inside, _REPLACED):
        setattr(inside, _REPLACED, word_scores)
