"""The counted figures of batches for pages that ask every second: counted once for all who look.

A batch is not counted again before so many times its counting time has passed, and one request counts for
half a second at the most; what it did not come to is shown as it was, or as not yet counted, and the next
request goes on with it. So a page with twenty batches of a million questions loads at once, and twenty
open pages cost the database what one does.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine

from shared import history
from shared.errors import NotFound
from shared.statuses import UNENDED

Row = dict[str, Any]
_FRESH = 1.0  # seconds
_SPARE = 10  # of the time that counting took, as for the progress stream
_BUDGET = 0.5  # seconds of counting in one request
_KEPT = 2000  # batches


@dataclass(frozen=True)
class _Counted:
    row: Row
    state: tuple[Any, ...]  # of the batch's own row, when it was counted
    due: float  # when an open batch is counted again


class Figures:
    """Rows of `batch_progress`, kept by batch."""

    def __init__(
        self,
        count: Callable[[Engine, int], Row] = history.progress,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._count = count
        self._clock = clock
        self._kept: OrderedDict[int, _Counted] = OrderedDict()
        self._counting: set[int] = set()
        self._lock = threading.Lock()

    def of(self, engine: Engine, heads: Sequence[Row]) -> dict[int, Row]:
        """Figures of the batches of `heads` (rows of `browse.batch_heads`); a batch that was not counted yet
        is missing."""
        begun = self._clock()
        found = {}
        for head in heads:
            in_time = self._clock() - begun < _BUDGET
            row = self._one(engine, head, in_time)
            if row is not None:
                found[head["batch_id"]] = row
        return found

    def forget(self, batch_id: int) -> None:
        """Count it anew the next time: something was done to it."""
        with self._lock:
            self._kept.pop(batch_id, None)

    def _one(self, engine: Engine, head: Row, in_time: bool) -> Row | None:
        batch_id = head["batch_id"]
        state = (head["status"], head["ended_at"], head["submitted"])
        with self._lock:
            kept = self._kept.get(batch_id)
            if kept is not None:
                self._kept.move_to_end(batch_id)
                is_open = head["status"] in UNENDED
                if kept.state == state and not (is_open and self._clock() >= kept.due):
                    return kept.row
            if not in_time or batch_id in self._counting:
                return kept.row if kept is not None else None
            self._counting.add(batch_id)
        try:
            return self._counted(engine, batch_id, state)
        finally:
            with self._lock:
                self._counting.discard(batch_id)

    def _counted(self, engine: Engine, batch_id: int, state: tuple[Any, ...]) -> Row | None:
        begun = self._clock()
        try:
            row = self._count(engine, batch_id)
        except NotFound:
            return None
        took = self._clock() - begun
        with self._lock:
            self._kept[batch_id] = _Counted(row, state, self._clock() + max(_FRESH, took * _SPARE))
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return row
