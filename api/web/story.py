"""The story of a run for its page, put together from the history's rows."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from api.cli.runs import what_happened

Row = dict[str, Any]


@dataclass(frozen=True)
class Found:
    """Documents that a step brought, each with the grade it got."""

    step: int
    node: str
    origin: str  # store or web
    documents: list[Row]


@dataclass
class Story:
    steps: list[Row]  # the attempts, each with `what`: the one thing of it that a reader wants to see
    found: list[Found] = field(default_factory=list)
    rewrites: list[Row] = field(default_factory=list)  # {step, node, query}
    decisions: list[Row] = field(default_factory=list)  # {step, action, why}
    checks: list[Row] = field(default_factory=list)  # {step, what, passed, score, detail}
    feedback: list[Row] = field(default_factory=list)  # {step, node, text}


def story(question: str, timeline: Sequence[Row], grades: Sequence[Row]) -> Story:
    """`timeline`: rows of `run_timeline`; `grades`: those of `browse.run_grades`."""
    by_document = {grade["document_id"]: grade for grade in grades}  # of several the latest
    made = Story([step | {"what": _what(step)} for step in timeline])
    for step in timeline:
        update = step["state_update"]
        if step["status"] == "succeeded" and isinstance(update, dict):
            _add(made, step, update, by_document)
    # a first search writes down the question itself, which is no rewrite
    made.rewrites = [one for one in made.rewrites if one["query"] != question]
    return made


def _add(made: Story, step: Row, update: Row, grades: dict[str, Row]) -> None:
    place = {"step": step["step"], "node": step["node"]}
    for key in ("documents", "web_documents"):
        documents = [one for one in _list(update.get(key)) if isinstance(one, dict)]
        if documents:
            graded = [one | {"grade": grades.get(str(one.get("id")))} for one in documents]
            origin = "web" if key == "web_documents" else str(documents[0].get("origin") or "store")
            made.found.append(Found(step["step"], step["node"], origin, graded))
    if query := update.get("query"):
        made.rewrites.append(place | {"query": query})
    if isinstance(decision := update.get("decision"), dict):
        made.decisions.append(place | decision)
    made.checks += [place | check for check in _list(update.get("checks")) if isinstance(check, dict)]
    for key in ("feedback", "query_feedback"):
        made.feedback += [place | {"text": text} for text in _list(update.get(key))]


def _what(step: Row) -> str:
    try:
        return what_happened(step)
    except (AttributeError, IndexError, KeyError, TypeError):  # a graph of one's own may mean something else
        return ""


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
