"""Two rankings made one by reciprocal rank: what stands high in either comes first, whatever its score.

Qdrant can fuse as well; it is done here so that the local store and every version of the server agree, with
ties broken alike.
"""

from collections.abc import Hashable, Sequence
from typing import TypeVar

Item = TypeVar("Item", bound=Hashable)

# How little the first places stand out. The usual 60 (Cormack, Clarke and Buettcher, SIGIR 2009) is for long
# rankings of many systems: with two short ones, a passage that is middling in both would beat the best of one.
RANK_CONSTANT = 2


def fuse(rankings: Sequence[Sequence[Item]], constant: int = RANK_CONSTANT) -> list[tuple[Item, float]]:
    """(item, score) best first. Scores are in 0..1: 1 for what is first in every ranking.

    Of equals, the one that the earlier ranking places better comes first.
    """
    totals: dict[Item, float] = {}
    for ranking in rankings:
        for place, item in enumerate(ranking, 1):
            totals[item] = totals.get(item, 0.0) + 1.0 / (constant + place)
    best = len(rankings) / (constant + 1)
    return [(item, total / best) for item, total in sorted(totals.items(), key=lambda one: -one[1])]
