"""What a person is shown and asked before money is spent."""

import io
import sys
from typing import Any

import pytest
import typer
from rich.console import Console

from api.cli import preflight as command
from api.cli.preflight import NotConfirmed
from api.preflight import Check, Counts, Forecast, Preflight
from shared.plan import Plan, make_plan
from shared.settings import Settings


def forecast(cost: tuple[float, float] | None) -> Preflight:
    spans: Any = ((500, 600), (0, 100), (1000, 2000), (10, 20))
    return Preflight([], Counts(3, 2, 1, 9), Forecast(*spans, cost, (1, 90), "guesswork"))


def openai(**values: Any) -> tuple[Plan, Settings]:
    made = Settings(_env_file=None, openai_api_key="sk-unit", **values)  # type: ignore[call-arg, arg-type]
    return make_plan(made, "crag"), made


def confirm(found: Preflight, plan: Plan, settings: Settings, **values: bool) -> str:
    out = Console(file=io.StringIO(), width=200)
    command.confirm(found, plan, settings, out, **{"yes": False, "ask": True, **values})
    return out.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_what_is_shown() -> None:
    found = forecast((1.5, 20))
    found.checks = [Check("ok", "model", "m answers"), Check("note", "web search", "off")]
    expected = (
        "Expected: 500 to 600 model calls, 0 to 100 web searches, 1,000 to 2,000 tokens in, 10 to 20 out; "
        "cost $1.50 to $20.00; 1 min 00 s to 1 h 30 min."
    )
    assert command.lines(found, thorough=False) == [expected, "This rests on guesswork."]
    assert command.lines(found, thorough=True)[:3] == [
        "3 rows, 2 questions, 1 empty.",
        "model: m answers.",
        "web search: off.",
    ]
    assert "cost unknown" in command.lines(forecast(None), thorough=False)[0]


def test_a_cheap_batch_is_not_asked_about() -> None:
    assert confirm(forecast((1, 5)), *openai(), ask=False) == ""
    assert confirm(Preflight(), *openai(), ask=False) == ""


@pytest.mark.parametrize("ask", [True, False])
def test_a_dear_one_needs_a_yes_where_nobody_can_be_asked(monkeypatch: pytest.MonkeyPatch, ask: bool) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    with pytest.raises(NotConfirmed, match=r"may cost up to \$6\.00, more than \$5\.00 .*`--yes`") as caught:
        confirm(forecast((1, 6)), *openai(), ask=ask)
    assert caught.value.exit_code == 3
    assert confirm(forecast((1, 6)), *openai(), ask=ask, yes=True) == ""
    assert confirm(forecast((1, 6)), *openai(confirm_above_usd=10), ask=ask) == ""


def test_a_person_is_asked_and_a_no_submits_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", terminal)
    monkeypatch.setattr(typer, "confirm", lambda *_, **__: True)
    assert confirm(forecast((1, 6)), *openai()).startswith("It may cost up to $6.00")
    monkeypatch.setattr(typer, "confirm", lambda *_, **__: False)
    with pytest.raises(NotConfirmed, match=r"^Nothing was submitted\.$"):
        confirm(forecast((1, 6)), *openai())


def test_an_unknown_price_is_asked_about_only_where_somebody_charges() -> None:
    with pytest.raises(NotConfirmed, match="what it costs is not known"):
        confirm(forecast(None), *openai(), ask=False)
    assert confirm(forecast(None), *openai(openai_base_url="http://mine:8000/v1"), ask=False) == ""
