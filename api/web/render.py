"""Templates and what they need to write numbers, times and texts. Everything is escaped, always."""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from api.cli.output import duration
from api.web.links import safe_link
from shared.history import ended_count
from shared.keys import Principal
from shared.statuses import BatchStatus, RunStatus

HERE = Path(__file__).parent
STATIC = HERE / "static"
_WORDS = {"gave_up": "gave up", "not_relevant": "not relevant"}


@lru_cache(maxsize=1)
def environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "count": count,
        "when": when,
        "iso": iso,
        "usd": usd,
        "ms": milliseconds,
        "lasting": duration,
        "word": word,
        "score": score,
        "link": safe_link,
        "query": query,
    }
    made.globals |= {"static": static_address, "dispositions": [status.value for status in RunStatus]}
    return made


def page(
    request: Request, template: str, principal: Principal | None = None, *, code: int = 200, **values: Any
) -> HTMLResponse:
    """A template as an answer. `principal`: who looks; None: nobody has logged in."""
    told = {"path": request.url.path, "principal": principal, **values}
    return HTMLResponse(environment().get_template(template).render(told), status_code=code)


@lru_cache(maxsize=32)
def static_address(name: str) -> str:
    """The file's address with a part that changes with its content, so that a browser may keep it."""
    return f"/static/{name}?v={sha256((STATIC / name).read_bytes()).hexdigest()[:12]}"


def query(values: Mapping[str, Any]) -> str:
    """The query of an address; what is empty is left out."""
    return urlencode({key: value for key, value in values.items() if value})


def word(status: str) -> str:
    """A status as people say it."""
    return _WORDS.get(status, status.replace("_", " "))


def count(number: float | None) -> str:
    return "–" if number is None else f"{number:,.0f}"


def when(moment: datetime | None) -> str:
    return "–" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def iso(moment: datetime | None) -> str:
    return "" if moment is None else moment.astimezone(UTC).isoformat()


def usd(amount: Any) -> str:
    """Dollars with as many places as say something."""
    if amount is None:
        return "–"
    value = float(amount)
    return f"${value:,.2f}" if value == 0 or abs(value) >= 1 else f"${value:.4f}"


def milliseconds(value: float | None) -> str:
    if value is None:
        return "–"
    if value >= 60_000:
        return duration(value / 1000)
    if value < 1000:
        return f"{value:.0f} ms"
    return f"{value / 1000:.1f} s" if value % 1000 and value < 10_000 else f"{value / 1000:.0f} s"


def score(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def parts(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The disposition bar: what became of a batch's questions, as shares of 100."""
    total = row["submitted"] or 1
    made, left = [], 0.0
    for status in (
        RunStatus.ANSWERED,
        RunStatus.GAVE_UP,
        RunStatus.FAILED,
        RunStatus.CANCELLED,
        RunStatus.RUNNING,
    ):
        if row[status]:
            width = 100 * row[status] / total
            made.append({"status": status.value, "count": row[status], "left": left, "width": width})
            left += width
    return made


def card(head: Mapping[str, Any], row: Mapping[str, Any] | None) -> dict[str, Any]:
    """What the template of a batch's card needs. `row`: its figures; None: not counted yet."""
    is_open = head["status"] in (BatchStatus.OPEN, BatchStatus.PAUSED)
    made: dict[str, Any] = {
        "head": head,
        "row": row,
        "open": is_open,
        "parts": [],
        "done": None,
        "percent": None,
    }
    if row is not None:
        made["parts"] = parts(row)
        made["done"] = ended_count(row)
        made["percent"] = 100 * made["done"] // (row["submitted"] or 1)
    return made
