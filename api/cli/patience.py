"""Reading on while the database is away: a restarted Postgres must not end the watching of what goes on."""

import sys
import time
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError

from api.cli.remote import ServerAway
from shared.errors import CraglineError

PATIENCE_SECONDS = 120.0  # a restart takes seconds, and its recovery rarely more than a minute
RETRY_SECONDS = 1.0
T = TypeVar("T")


class Patience:
    """Calls that read, repeated until the database answers. `goes_on` is a sentence that names what is
    being watched and that it goes on; the error, if it comes to one, begins with it."""

    def __init__(
        self,
        goes_on: str,
        sleep: Callable[[float], None] | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._goes_on = goes_on
        self._sleep = sleep or time.sleep
        self._clock = clock or time.monotonic

    def __call__(self, read: Callable[[], T]) -> T:
        """What `read` returns. An absence is told once, on stderr. Raises CraglineError when it lasts for
        `PATIENCE_SECONDS`; whatever else `read` raises passes through."""
        since: float | None = None
        while True:
            try:
                return read()
            except DBAPIError as error:
                if not is_away(error):
                    raise
                who = "database"
            except ServerAway:
                who = "server"
            if since is None:
                since = self._clock()
                # not by Rich: this stream is redirected to stand above a progress bar, whatever it is on
                print(
                    f"The {who} does not answer; waiting for it (at most {PATIENCE_SECONDS:.0f} s).",
                    file=sys.stderr,
                    flush=True,
                )
            elif self._clock() - since > PATIENCE_SECONDS:
                raise CraglineError(
                    f"{self._goes_on} The {who} has not answered for {PATIENCE_SECONDS:.0f} seconds; "
                    "`cragline doctor` looks what is wrong."
                )
            self._sleep(RETRY_SECONDS)


def is_away(error: DBAPIError) -> bool:
    """Whether the database could not be reached or went away, as against an error in what it was asked."""
    return isinstance(error, (OperationalError, InterfaceError)) or error.connection_invalidated
