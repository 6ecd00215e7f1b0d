"""How long a server asks us to wait, in any of the ways servers say it."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

# A header may be nonsense, or a quota in disguise; one refused call an hour finds out, and holds nobody up.
LONGEST = 3600.0
_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?")


def retry_after_seconds(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Seconds to wait, 0 or more and at most an hour; None when the headers do not say.

    Reads `retry-after-ms`, then `Retry-After` (seconds or an HTTP date), then OpenAI's
    `x-ratelimit-reset-*` of the limits that are used up. `headers` may have names in any case.
    """
    lowered = {name.lower(): value.strip() for name, value in headers.items()}
    milliseconds = number(lowered.get("retry-after-ms", ""))
    if milliseconds is not None:
        return _bounded(milliseconds / 1000)
    stated = lowered.get("retry-after", "")
    seconds = number(stated)
    if seconds is None:
        seconds = _until(stated, now or datetime.now(UTC))
    if seconds is None:
        seconds = _rate_limit_reset(lowered)
    return None if seconds is None else _bounded(seconds)


def number(text: str) -> float | None:
    """A plain number of a header; None for anything else."""
    return float(text) if re.fullmatch(r"\d{1,12}(?:\.\d{1,9})?", text) else None


def _until(text: str, now: datetime) -> float | None:
    if not text:
        return None
    try:
        moment = parsedate_to_datetime(text)
    except (TypeError, ValueError, IndexError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - now).total_seconds()


def _rate_limit_reset(lowered: Mapping[str, str]) -> float | None:
    """The longest reset among the limits with nothing left; both kinds are sent, one is to blame."""
    waits = [
        duration
        for kind in ("requests", "tokens")
        if lowered.get(f"x-ratelimit-remaining-{kind}") == "0"
        and (duration := duration_seconds(lowered.get(f"x-ratelimit-reset-{kind}", ""))) is not None
    ]
    return max(waits, default=None)


def duration_seconds(text: str) -> float | None:
    """Of `6m0s`, `1.5s`, `20ms`, `1h2m`; None for anything else."""
    match = _DURATION.fullmatch(text)
    if not text or match is None:
        return None
    days, hours, minutes, seconds, milliseconds = (float(part or 0) for part in match.groups())
    return days * 86400 + hours * 3600 + minutes * 60 + seconds + milliseconds / 1000


def _bounded(seconds: float) -> float:
    return min(max(seconds, 0.0), LONGEST)
