"""What is said of a batch before it is submitted, and what it rests on."""

from pathlib import Path
from typing import Any

import pytest

from api import preflight
from api.intake import InputRow
from api.preflight import Counts, Forecast
from shared.measured import Measured
from shared.plan import Plan, make_plan
from shared.settings import Settings

GUESS = {
    "calls": [5, 6], "searches": [0, 1], "input_tokens": [1000, 3000], "output_tokens": [100, 400],
    "cost_usd": [0.001, 0.01], "unpriced": [], "prices_as_of": "2025-11-30",
}  # fmt: skip


def settings(**values: Any) -> Settings:
    return Settings(_env_file=None, **values)  # type: ignore[call-arg]


def openai(**values: Any) -> tuple[Plan, Settings]:
    made = settings(openai_api_key="sk-unit", worker_threads=10, **values)
    return make_plan(made, "crag"), made


def batch(number: int, cost: float | None = 0.002, per_minute: float = 60) -> Measured:
    return Measured(number, 100, per_minute, 5, 0.5, 1500, 200, cost)


def test_questions_are_counted_as_a_batch_counts_them() -> None:
    texts = ["Who?", "Who?", " Who? ", None, "What now?"]
    rows = [InputRow(number, text, [text or ""], []) for number, text in enumerate(texts, 1)]
    assert preflight.count(rows) == Counts(rows=5, questions=2, empty=1, characters=(4 + 4 + 6 + 9) / 4)
    assert preflight.count([]) == Counts(0, 0, 0, 0)


def test_a_forecast_without_history_rests_on_the_graph() -> None:
    made = preflight.forecast(1000, *openai(), GUESS, [])
    assert (made.calls, made.searches, made.cost_usd) == ((5000, 6000), (0, 1000), (1, 10))
    assert made.minutes == (pytest.approx(5000 * 0.8 / 10 / 60), pytest.approx(6000 * 4 / 10 / 60))
    assert "nothing was measured yet" in made.rests_on and "2025-11-30" in made.rests_on


def test_a_forecast_from_earlier_batches_names_them() -> None:
    made = preflight.forecast(1000, *openai(), GUESS, [batch(3, 0.001), batch(5, 0.003, per_minute=120)])
    assert made.cost_usd == (pytest.approx(0.7), pytest.approx(3.9))
    assert made.minutes == (pytest.approx(1000 / 120 * 0.7), pytest.approx(1000 / 60 * 1.3))
    assert "batches 3, 5" in made.rests_on and "30%" in made.rests_on
    assert "batch 3 " in preflight.forecast(1, *openai(), GUESS, [batch(3)]).rests_on


def test_an_unknown_price_stays_unknown() -> None:
    plan, made = openai()
    unknown = preflight.forecast(10, plan, made, {**GUESS, "cost_usd": None, "unpriced": ["mine"]}, [])
    assert unknown.cost_usd is None and "No price is known of mine" in unknown.rests_on
    assert preflight.forecast(10, plan, made, GUESS, [batch(1, None), batch(2)]).cost_usd is None


def test_the_local_store_must_have_what_postgres_knows(tmp_path: Path) -> None:
    made = settings(home=tmp_path)
    plan = make_plan(made, "rag", None, "docs")
    found = preflight.look(None, made, plan, None, thorough=False)  # type: ignore[arg-type]
    assert [check.what for check in found.bad] == ["collection"]
    assert "has lost it" in found.bad[0].says
    (tmp_path / "qdrant" / "collection" / "docs").mkdir(parents=True)
    assert preflight.look(None, made, plan, None, thorough=False).bad == []  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "values", [{"qdrant_url": "http://q:6333"}, {"database_url": "postgresql://elsewhere/db"}]
)
def test_a_store_that_is_elsewhere_is_not_looked_for_here(tmp_path: Path, values: dict[str, str]) -> None:
    made = settings(home=tmp_path, **values)
    found = preflight.look(None, made, make_plan(made, "rag"), None, thorough=False)  # type: ignore[arg-type]
    assert found.bad == []


def test_a_key_that_is_missing_is_said_before_anything_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_: object, **__: object) -> None:
        raise AssertionError("asked")

    monkeypatch.setattr(preflight, "_ask_workers", asked)
    made = settings(models="openai", qdrant_url="http://q:6333")
    found = preflight.look(None, made, make_plan(made, "crag"), None, thorough=True)  # type: ignore[arg-type]
    assert [check.what for check in found.bad] == ["keys"]


def test_free_batches_are_not_held_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "_ask_workers", lambda *_, **__: pytest.fail("asked"))
    made = settings(qdrant_url="http://q:6333")
    found = preflight.look(None, made, make_plan(made, "crag"), None, thorough=False)  # type: ignore[arg-type]
    assert found.forecast is None and found.bad == []
    assert isinstance(preflight.forecast(10, make_plan(made, "crag"), made, GUESS, []), Forecast)
