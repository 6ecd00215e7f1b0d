"""Which steps of which runs make up a run's state.

Usually all of its own from step 1. A run retried from its start goes on counting steps, so that each keeps
its place in the history, and its state begins anew with `first_step`. A fork builds on steps of the run it
was forked from, which are read where they are.
"""

from dataclasses import dataclass
from datetime import date
from typing import Any

from shared.tables import Run

COURSE = (Run.round, Run.first_step, Run.inherited)  # the columns that `Course.of` reads


@dataclass(frozen=True)
class Segment:
    """The steps of one run from `first` up to, not including, `before`."""

    run_id: int
    month: date
    first: int
    before: int

    def to_json(self) -> dict[str, Any]:
        return {
            "run_id": self.run_id,
            "month": self.month.isoformat(),
            "first": self.first,
            "before": self.before,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Segment":
        return cls(value["run_id"], date.fromisoformat(value["month"]), value["first"], value["before"])


@dataclass(frozen=True)
class Course:
    round: int = 1
    first_step: int = 1
    inherited: tuple[Segment, ...] = ()

    @classmethod
    def of(cls, row: Any) -> "Course":
        """From a row that has the columns of `COURSE`."""
        return cls(row.round, row.first_step, tuple(map(Segment.from_json, row.inherited or ())))

    def segments(self, run_id: int, month: date, before: int) -> list[Segment]:
        """What comes before step `before` of the run, in order."""
        own = [Segment(run_id, month, self.first_step, before)] if before > self.first_step else []
        return [*self.inherited, *own]

    def length(self, step: int) -> int:
        """How many steps this course has once `step` is the last of it."""
        return sum(one.before - one.first for one in self.inherited) + step - self.first_step + 1
