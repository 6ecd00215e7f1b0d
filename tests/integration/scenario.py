"""What a scenario is: one way through a graph as data, what the models say, and the way it must take.

The collection holds exactly three documents (Doc A, B, C), all of which are always retrieved unless `k` is
smaller. A question carries its scenario's name, so that the scripted servers know their part whatever is
going on beside it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

DOCUMENTS = {
    "Doc A": "The basalt on the western crag is very old indeed. Climbers call it the old wall. It faces the sea.",
    "Doc B": "The hut below the crag was built in 1931. It sleeps twelve people. Its roof is red.",
    "Doc C": "Ravens nest on the crag in early spring. The paths are closed until June. Wardens watch them.",
}
Scores = dict[str, tuple[str, float | None]]  # title's letter -> (verdict, score)
YES: Scores = {"A": ("yes", 0.9), "B": ("yes", 0.8), "C": ("yes", 0.75)}
SOME: Scores = {"A": ("yes", 0.9), "B": ("no", 0.2), "C": ("no", 0.1)}
NONE: Scores = {"A": ("no", 0.2), "B": ("no", 0.1), "C": ("no", 0.05)}
MIDDLE: Scores = {"A": ("yes", 0.6), "B": ("no", 0.4), "C": ("no", 0.1)}
ODD: Scores = {"A": ("perhaps", None), "B": ("yes", 0.9), "C": ("yes", 0.9)}

GRADE = ["retrieve", "grade_document*3", "decide"]
REFINE = ["refine_document", "recompose"]


@dataclass(frozen=True)
class Scenario:
    name: str
    path: list[str]
    ends: str  # disposition
    grades: Mapping[str, tuple[str, float | None]] = field(default_factory=lambda: YES)
    params: Mapping[str, Any] = field(default_factory=dict)
    pipeline: str = "crag"
    collection: str = "docs"
    web: str = "ok"  # ok | empty | forbidden | busy
    strips: str = "yes"  # the verdict on every strip
    answerable: bool = True
    notes: tuple[str, ...] = ()  # labels, in order
    reason: str = ""  # crag and rag: the whole; the judging pipelines: a part
    route: str = "vectorstore"
    rewrite: str = ""  # the query of a rewriting with feedback; "": one that finds the same
    direct: bool = True  # whether the question is answered without documents
    ungrounded: str = ""  # drafts that hold this do not stand in the documents
    useless: str = ""  # drafts that hold this do not answer
    extracts: str = "verbatim"  # verbatim | invented | none

    def of(self, pipeline: str) -> "Scenario":
        return replace(self, pipeline=pipeline)

    @property
    def question(self) -> str:
        return f"How old is the crag? [{self.name}]"


def expand(path: list[str]) -> list[str]:
    """`["a", "b*2"]` as one entry a task: `["a", "b", "b"]`."""
    tasks = []
    for item in path:
        name, _, times = item.partition("*")
        tasks += [name] * int(times or 1)
    return tasks
