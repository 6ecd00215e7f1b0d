"""What of a plan reaches the store."""

from collections.abc import Sequence
from typing import Any, cast

import pytest

from shared.plan import Plan, make_plan
from shared.settings import Settings
from workers.bootstrap import Parts, StoreRetriever
from workers.models.calls import MemoryRecorder
from workers.stores.qdrant import SearchableStore


class Store:
    def __init__(self) -> None:
        self.asked: list[tuple[str, int, int, dict[str, Any]]] = []

    def search(self, name: str, vector: Sequence[float], k: int, **more: Any) -> list[Any]:
        self.asked.append((name, len(vector), k, more))
        return []


def asked_with(plan: Plan) -> tuple[str, int, int, dict[str, Any]]:
    settings, store = Settings(_env_file=None), Store()
    parts = Parts(settings, engine=None, store=cast(SearchableStore, store))
    StoreRetriever(parts, plan, MemoryRecorder()).retrieve("how old", 3)
    return store.asked[0]


@pytest.mark.parametrize(("mode", "numbers"), [("dense", 384), ("sparse", 0), ("hybrid", 384)])
def test_mode_question_and_filter_reach_the_store_and_words_are_not_embedded(mode: str, numbers: int) -> None:
    plan = make_plan(Settings(_env_file=None), "rag", {"retrieval": mode, "filter": ["page=3"]}, "books")
    wanted = {"text": "how old", "mode": mode, "filters": {"page": ["3"]}}
    assert asked_with(plan) == ("books", numbers, 3, wanted)


def test_a_plan_from_before_the_choice_is_searched_as_then() -> None:
    plan = make_plan(Settings(_env_file=None), "rag", {}, "books")
    old = plan.model_copy(update={"params": {"k": 3}})
    assert asked_with(old) == ("books", 384, 3, {"text": "how old", "mode": "dense", "filters": None})
