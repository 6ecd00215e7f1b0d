"""Looking before leaping: what a batch will do and cost, said before any of it is spent.

What needs worker code (a call of the model, the graphs, the prompts, the prices) is asked of `workers.preflight`
in a process of its own; the rest is the file, the settings and the history.
"""

import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from sqlalchemy import Engine

from shared.clean import question_key
from shared.errors import CraglineError
from shared.measured import Measured, measured
from shared.plan import Plan
from shared.settings import Settings

if TYPE_CHECKING:
    from api.intake import InputRow

Range = tuple[float, float]  # least and most
SECONDS = 120.0  # for the worker code: its imports, and one call of each model
CALL_SECONDS: Range = (0.8, 4.0)  # of a model that is asked over the network, where nothing was measured
LOCAL_SECONDS: Range = (0.05, 0.6)  # of a question with the local models, likewise
WIDER = 0.3  # what a measured average is widened by, each way
_CHARS_PER_TOKEN = 4


@dataclass(frozen=True)
class Check:
    level: str  # ok, note or bad
    what: str
    says: str


@dataclass(frozen=True)
class Counts:
    """Of the file of questions."""

    rows: int
    questions: int  # distinct ones: these are run
    empty: int
    characters: float  # of a usual question


@dataclass(frozen=True)
class Forecast:
    """Of the whole batch, each as least and most. `rests_on` says in words what it was made from."""

    calls: Range
    searches: Range
    input_tokens: Range
    output_tokens: Range
    cost_usd: Range | None  # None: a price is not known
    minutes: Range
    rests_on: str


@dataclass
class Preflight:
    checks: list[Check] = field(default_factory=list)
    counts: Counts | None = None
    forecast: Forecast | None = None

    @property
    def bad(self) -> list[Check]:
        return [check for check in self.checks if check.level == "bad"]


def costs_money(plan: Plan) -> bool:
    """Whether a call of this plan may be paid for."""
    return plan.provider != "local" or plan.params.get("web_search") == "on"


def look(
    engine: Engine, settings: Settings, plan: Plan, rows: "Iterable[InputRow] | None", *, thorough: bool
) -> Preflight:
    """`rows`: those of the file, read once; None leaves out counts and forecast.

    Thorough or not, everything that may cost money is looked at; `thorough` adds what takes a while.
    """
    found = Preflight([*_keys(settings, plan), _local_store(settings, plan)])
    if rows is not None:
        found.counts = count(rows)
        if not found.counts.questions:
            says = f"none of the {found.counts.rows:,} rows has one" if found.counts.rows else "there is none"
            found.checks.append(Check("bad", "questions", says))
    if found.bad or not (thorough or costs_money(plan)):
        return found
    per_token = (found.counts.characters if found.counts else 0) / _CHARS_PER_TOKEN
    said = _ask_workers(settings, plan, per_token, store=thorough)
    found.checks += [Check(*check) for check in said["checks"]]
    if found.counts is not None:
        found.forecast = forecast(
            found.counts.questions, plan, settings, said["estimate"], measured(engine, plan)
        )
    return found


def count(rows: "Iterable[InputRow]") -> Counts:
    """Reads all rows. Eight bytes are kept of each distinct question."""
    total = empty = characters = 0
    keys: set[int] = set()
    for row in rows:
        total += 1
        if row.question is None:
            empty += 1
            continue
        characters += len(row.question)
        digest = blake2b(question_key(row.question).encode(), digest_size=8).digest()
        keys.add(int.from_bytes(digest, "big"))
    return Counts(total, len(keys), empty, characters / max(1, total - empty))


def _keys(settings: Settings, plan: Plan) -> Iterable[Check]:
    if plan.provider == "openai" and not settings.openai_api_key and not settings.openai_base_url:
        yield Check("bad", "keys", "OPENAI_API_KEY is not set, and every run would fail")
    if "web_search" not in plan.params:
        yield Check("ok", "web search", f"not a part of {plan.pipeline}")
    elif plan.params["web_search"] == "off":
        yield Check("ok" if settings.web_search_on else "note", "web search", "off")
    elif settings.web_search_on:
        yield Check("ok", "web search", "on (Tavily; not tried: a search costs money)")
    else:
        yield Check(
            "note", "web search", "asked for, but there is no TAVILY_API_KEY here; do the workers have one?"
        )


def _local_store(settings: Settings, plan: Plan) -> Check:
    """The embedded stack keeps both in one home: a collection that Postgres knows must be on the disk too."""
    if settings.qdrant_url or settings.database_url is not None:
        return Check("ok", "collection", f"{plan.collection!r} is known")
    if (settings.home / "qdrant" / "collection" / plan.collection).is_dir():
        return Check("ok", "collection", f"{plan.collection!r} is in the local store")
    return Check(
        "bad",
        "collection",
        f"{plan.collection!r} is known, but the local store in {settings.home} has lost it; "
        f"drop it with `cragline collection delete {plan.collection}` and ingest it again",
    )


def _ask_workers(settings: Settings, plan: Plan, question_tokens: float, *, store: bool) -> dict[str, Any]:
    request = {
        "plan": plan.model_dump(),
        "chunk_tokens": settings.chunk_tokens,
        "question_tokens": question_tokens,
        "store": store,
    }
    try:
        done = subprocess.run(
            [sys.executable, "-m", "workers.preflight"],
            input=json.dumps(request),
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise CraglineError(f"Preflight: the models did not answer within {SECONDS:.0f} seconds.") from None
    if done.returncode:
        last = (done.stderr.strip() or "no reason was given").splitlines()[-1]
        raise CraglineError(f"Preflight: {last}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def forecast(
    questions: int, plan: Plan, settings: Settings, guess: dict[str, Any], earlier: list[Measured]
) -> Forecast:
    """From `earlier` batches where there are any, else from the `guess` (an `Estimate` of one question)."""
    if earlier:
        return _from_measured(questions, earlier)
    calls = _times(questions, guess["calls"])
    if plan.provider == "local":
        minutes = _times(questions / 60, LOCAL_SECONDS)
    else:
        at_once = min(settings.worker_threads, settings.window)
        minutes = (calls[0] * CALL_SECONDS[0] / at_once / 60, calls[1] * CALL_SECONDS[1] / at_once / 60)
    rests_on = "the pipeline's graph, its prompts and the size of a chunk; nothing was measured yet"
    if guess["unpriced"]:
        rests_on += f". No price is known of {', '.join(guess['unpriced'])}"
    elif costs_money(plan):
        rests_on += f". List prices as of {guess['prices_as_of']}"
    return Forecast(
        calls=calls,
        searches=_times(questions, guess["searches"]),
        input_tokens=_times(questions, guess["input_tokens"]),
        output_tokens=_times(questions, guess["output_tokens"]),
        cost_usd=None if guess["cost_usd"] is None else _times(questions, guess["cost_usd"]),
        minutes=minutes,
        rests_on=rests_on,
    )


def _times(factor: float, each: Iterable[float]) -> Range:
    least, most = each
    return (factor * least, factor * most)


def _from_measured(questions: int, earlier: list[Measured]) -> Forecast:
    def span(values: list[float]) -> Range:
        return (questions * min(values) * (1 - WIDER), questions * max(values) * (1 + WIDER))

    costs = [one.cost_usd for one in earlier if one.cost_usd is not None]
    numbers = [str(one.batch_id) for one in earlier]
    which = f"batch {numbers[0]}" if len(numbers) == 1 else f"batches {', '.join(numbers)}"
    return Forecast(
        calls=span([one.calls for one in earlier]),
        searches=span([one.searches for one in earlier]),
        input_tokens=span([one.input_tokens for one in earlier]),
        output_tokens=span([one.output_tokens for one in earlier]),
        cost_usd=span(costs) if len(costs) == len(earlier) else None,
        minutes=span([1 / one.per_minute for one in earlier]),
        rests_on=f"what {which} with the same pipeline, models and k measured, {WIDER:.0%} to each side",
    )
