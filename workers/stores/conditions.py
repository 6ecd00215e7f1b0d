"""A plan's filter as Qdrant's: the same object for a server and for the local store."""

import math
from collections.abc import Mapping, Sequence

from qdrant_client import models as q

from shared.filters import FIELDS

_LARGEST = 2.0**53  # beyond, two whole numbers may be the same float


def payload_filter(filters: Mapping[str, Sequence[str]]) -> q.Filter | None:
    """None for no filter. All keys must match, each with one of its values."""
    if not filters:
        return None
    return q.Filter(must=[_one_of(_alternatives(key, values)) for key, values in filters.items()])


def _one_of(alternatives: list[q.Condition]) -> q.Condition:
    # a filter within a filter costs the local store as much again for each passage
    return alternatives[0] if len(alternatives) == 1 else q.Filter(should=alternatives)


def _alternatives(key: str, values: Sequence[str]) -> list[q.Condition]:
    if key == "page":
        return [q.FieldCondition(key=key, match=q.MatchAny(any=[int(value) for value in values]))]
    conditions: list[q.Condition] = [q.FieldCondition(key=key, match=q.MatchAny(any=list(values)))]
    if key.startswith(FIELDS):
        # a record's field keeps its JSON type, which a command line cannot say
        conditions += [other for value in values for other in _other_types(key, value)]
    return conditions


def _other_types(key: str, value: str) -> list[q.Condition]:
    if value in ("true", "false"):
        return [_is(key, value == "true")]
    try:
        number = float(value)
    except ValueError:
        return []
    if not math.isfinite(number):
        return []
    if abs(number) >= _LARGEST:
        return [_is(key, int(value))] if value.lstrip("+-").isdecimal() and abs(number) < 2.0**63 else []
    # a range, because Qdrant's exact match takes no fractions; it finds 5 and 5.0 alike
    return [q.FieldCondition(key=key, range=q.Range(gte=number, lte=number))]


def _is(key: str, value: str | int | bool) -> q.FieldCondition:
    return q.FieldCondition(key=key, match=q.MatchValue(value=value))
