"""Draft an answer, judge it, and accept it or say what is wrong with it."""

from collections import Counter
from typing import Any

from shared.clean import counted, one_line
from workers.models.roles import Check, GeneratedAnswer
from workers.nodes.generate import finished, source_of
from workers.nodes.resources import Resources
from workers.nodes.state import CheckRecord, DraftState, Source

NOT_GROUNDED, DOES_NOT_ANSWER, NO_DRAFT = "not_grounded", "does_not_answer", "no_draft"
_SHOWN = 120  # characters of a draft in `tried`


def may_draft(state: DraftState) -> bool:
    """Whether the plan's `max_generations` allow another draft."""
    return state.get("generations", 0) < int(state["params"]["max_generations"])


def draft_answer(state: DraftState, resources: Resources) -> dict[str, Any]:
    """Writes `draft`, `draft_sources` and counts `generations`. Feedback on earlier drafts goes in."""
    generated = resources.answer_generator.answer(
        state["question"], state["knowledge"], feedback=state.get("feedback", [])
    )
    sources = [source_of(state["knowledge"][position]) for position in generated.cited]
    return _drafted(state, generated, sources, f"from {counted(len(state['knowledge']), 'document')}")


def answer_directly(state: DraftState, resources: Resources) -> dict[str, Any]:
    """A draft without documents, for a question that needs none. Writes the same as `draft_answer`."""
    generated = resources.answer_generator.answer_directly(state["question"])
    return _drafted(state, generated, [], "without documents")


def _drafted(
    state: DraftState, generated: GeneratedAnswer, sources: list[Source], made: str
) -> dict[str, Any]:
    update: dict[str, Any] = {
        "draft": generated.text,
        "draft_sources": sources,
        "generations": state.get("generations", 0) + 1,
        "problem": "" if generated.text else NO_DRAFT,
    }
    if not generated.text:
        update["tried"] = [f"answer {made}: {generated.why_not}"]
    return update


def check_groundedness(state: DraftState, resources: Resources) -> dict[str, Any]:
    """Writes a `checks` entry, and `problem` when the draft does not stand in the documents."""
    verdict = resources.groundedness_grader.check(state["draft"], state["knowledge"])
    return _checked(state, "grounded", verdict, NOT_GROUNDED)


def check_answer(state: DraftState, resources: Resources) -> dict[str, Any]:
    """Writes a `checks` entry, and `problem` when the draft does not answer the question."""
    verdict = resources.answer_grader.check(state["question"], state["draft"])
    return _checked(state, "useful", verdict, DOES_NOT_ANSWER)


def _checked(state: DraftState, what: str, verdict: Check, problem: str) -> dict[str, Any]:
    record = CheckRecord(
        what=what,
        passed=verdict.passed is True,
        score=verdict.score,
        model=verdict.model,
        prompt_version=verdict.prompt_version,
        detail=verdict.detail,
    )
    update: dict[str, Any] = {"checks": [record], "problem": "" if record["passed"] else problem}
    if verdict.passed is None:
        update["notes"] = [
            f"check_unparsed: whether the answer is {what} was answered with neither yes nor no"
        ]
    if not record["passed"]:
        said = (
            "does not stand in the documents" if problem == NOT_GROUNDED else "does not answer the question"
        )
        update["tried"] = [f'answer "{one_line(state["draft"], _SHOWN)}": {said}']
        if problem == NOT_GROUNDED:
            update["feedback"] = [
                "An earlier answer was not supported by the documents, so say only what they say: "
                + one_line(state["draft"], _SHOWN)
            ]
    return update


def accept(state: DraftState, _resources: Resources) -> dict[str, Any]:
    """The draft is the answer. Writes `answer`, `sources`, `disposition`."""
    return finished(state["draft"], state["draft_sources"], state["params"])


def give_up_with_tries(state: DraftState, _resources: Resources) -> dict[str, Any]:
    """Writes `disposition`, and a `reason` that says what was tried."""
    return {"disposition": "gave_up", "reason": what_was_tried(state)}


def what_was_tried(state: DraftState) -> str:
    tried = tries(state)
    return "no answer was found; tried: " + "; ".join(tried) if tried else "no answer was found"


def tries(state: DraftState) -> list[str]:
    """The phrases of `tried` in order, each once: `searched for "x": nothing found (2 times)`."""
    counts = Counter(state.get("tried", []))
    return [phrase if times == 1 else f"{phrase} ({times} times)" for phrase, times in counts.items()]
