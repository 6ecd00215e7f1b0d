"""What `cragline submit` says before it stores anything, and the question it asks when that is dear."""

import sys
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import typer
from rich.console import Console

from api.cli.output import duration
from api.preflight import Forecast, Preflight, Range, costs_money
from shared.clean import counted
from shared.errors import CraglineError
from shared.plan import Plan
from shared.settings import Settings


class NotConfirmed(CraglineError):
    """The batch is dear, and nobody has said yes."""

    exit_code = 3


def as_json(found: Preflight) -> dict[str, Any]:
    shown = asdict(found)
    return shown | {"ok": not found.bad}


def lines(found: Preflight, *, thorough: bool) -> list[str]:
    """For a person. Not thorough: what is well is left out, and what `submit` says in any case."""
    said = [
        f"{check.what}: {check.says}."
        for check in found.checks
        if thorough or (check.level != "ok" and check.what != "web search")
    ]
    if found.counts is not None and thorough:
        counts = found.counts
        said.insert(
            0,
            f"{counted(counts.rows, 'row')}, {counted(counts.questions, 'question')}, {counts.empty:,} empty.",
        )
    if found.forecast is not None:
        said += _forecast(found.forecast)
    return said


def _forecast(forecast: Forecast) -> Iterable[str]:
    cost = "unknown" if forecast.cost_usd is None else _span(forecast.cost_usd, "${:,.2f}")
    searches = f", {_span(forecast.searches)} web searches" if forecast.searches[1] else ""
    yield (
        f"Expected: {_span(forecast.calls)} model calls{searches}, {_span(forecast.input_tokens)} tokens in, "
        f"{_span(forecast.output_tokens)} out; cost {cost}; {_time(forecast.minutes)}."
    )
    yield f"This rests on {forecast.rests_on}."


def _span(value: Range, form: str = "{:,.0f}") -> str:
    least, most = form.format(value[0]), form.format(value[1])
    return least if least == most else f"{least} to {most}"


def _time(minutes: Range) -> str:
    least, most = (duration(max(1.0, value * 60)) for value in minutes)
    return least if least == most else f"{least} to {most}"


def refuse_bad(found: Preflight) -> None:
    """Raises CraglineError with everything that would make the batch fail."""
    if found.bad:
        reasons = " ".join(f"{check.what}: {check.says}." for check in found.bad)
        raise CraglineError(f"Nothing was submitted. {reasons}")


def confirm(
    found: Preflight, plan: Plan, settings: Settings, console: Console, *, yes: bool, ask: bool
) -> None:
    """Ask before a batch that may cost more than `CRAGLINE_CONFIRM_ABOVE_USD`, or whose price nobody knows.

    `ask`: whether there is somebody to ask. Raises NotConfirmed for a no, and where nobody can be asked.
    """
    why = too_dear(found, plan, settings)
    if why is None or yes:
        return
    if not (ask and sys.stdin.isatty()):
        raise NotConfirmed(f"Nothing was submitted: {why}. Say `--yes` if that is meant.")
    console.print(
        f"{why[0].upper()}{why[1:]}.", style="yellow", markup=False, highlight=False, soft_wrap=True
    )
    if not typer.confirm("Submit it?", err=True):
        raise NotConfirmed("Nothing was submitted.")


def too_dear(found: Preflight, plan: Plan, settings: Settings) -> str | None:
    """Why a person should be asked first, or None."""
    forecast = found.forecast
    if forecast is None or not costs_money(plan):
        return None
    if forecast.cost_usd is None:  # a server of one's own has no price list
        return None if plan.server else "what it costs is not known"
    if forecast.cost_usd[1] <= settings.confirm_above_usd:
        return None
    return (
        f"it may cost up to ${forecast.cost_usd[1]:,.2f}, more than ${settings.confirm_above_usd:,.2f} "
        "(CRAGLINE_CONFIRM_ABOVE_USD)"
    )
