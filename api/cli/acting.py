"""What the commands share that do something to batches: who does it, when that is, and waking the dispatcher."""

import getpass
import re
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from shared.clean import one_line
from shared.errors import CraglineError, UsageError
from shared.settings import Settings

By = Annotated[str | None, typer.Option("--by", help="Who does this, for the events. Left out: the OS user.")]
Reason = Annotated[str | None, typer.Option("--reason", help="Why, for the events.")]

_AGO = re.compile(r"(\d{1,6})\s*(min|h|d|w)")
_UNITS = {"min": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def actor(by: str | None) -> str:
    """The name given with `--by`, or the login name. Raises UsageError for an empty one."""
    if by is not None:
        name = one_line(by)
        if not name:
            raise UsageError("--by: the name is empty.")
        return name
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return "unknown"


def moment(said: str, option: str, now: datetime | None = None) -> datetime:
    """`2026-11-30`, `2026-11-30T09:00` (local time where it names no zone) or `2h`, `90d` before now.

    Raises UsageError that names `option`.
    """
    now = now or datetime.now(UTC)
    words = said.strip()
    if ago := _AGO.fullmatch(words):
        try:
            return now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        except OverflowError:
            raise UsageError(f"{option}: {said!r} is before all time.") from None
    try:
        return datetime.fromisoformat(words).astimezone(UTC)
    except (ValueError, OverflowError):
        raise UsageError(
            f"{option} takes a date or time such as 2026-11-30 or 2026-11-30T09:00, or how long ago: 30min, 2h, "
            f"90d, 4w; not {said!r}."
        ) from None


def wake(settings: Settings) -> bool:
    """Whether the dispatcher could be told. If not, the rows are safe, and its next tick finds them."""
    from kombu.exceptions import KombuError
    from redis.exceptions import RedisError

    from shared.queue import make_app, wake_dispatcher

    try:
        wake_dispatcher(make_app(settings))
    except (KombuError, RedisError, OSError, CraglineError):
        return False
    return True
