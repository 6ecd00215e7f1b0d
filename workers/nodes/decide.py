"""Decide what the grades lead to. Pure: the same grades and numbers give the same decision.

`ratio` and `none_relevant` are the binary rules of the corrective RAG tutorials. `confidence` is the rule
of the paper (Yan et al. 2024, "Corrective Retrieval Augmented Generation", arXiv:2401.15884, section 4.3):
Correct when at least one score is above `upper`, Incorrect when all are below `lower`, else Ambiguous.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from workers.nodes.resources import Resources
from workers.nodes.state import CragState, Decision, GradeRecord

SEARCHING = ("search", "incorrect", "ambiguous")  # the actions that want the web


def choose(
    grades: Sequence[GradeRecord], params: Mapping[str, Any], retrieved: int | None = None
) -> Decision:
    """The decision for these grades under the plan's numbers (`rule`, `ratio`, `upper`, `lower`).

    `retrieved` documents there were; those that early exit left ungraded count neither way.
    """
    retrieved = len(grades) if retrieved is None else retrieved
    rule = params["rule"]
    scores = [grade["score"] for grade in grades if grade["score"] is not None]
    relevant = sum(grade["label"] == "relevant" for grade in grades)
    if not grades:
        action, why = "search" if rule != "confidence" else "incorrect", "nothing was retrieved"
    elif rule == "ratio":
        share = relevant / len(grades)
        action = "search" if share <= params["ratio"] else "generate"
        why = f"{relevant} of {len(grades)} relevant = {share:.2f}, search at or below {params['ratio']:g}"
    elif rule == "none_relevant":
        action = "generate" if relevant else "search"
        why = f"{relevant} of {len(grades)} relevant, search at none"
    else:
        action, why = _by_confidence(grades, params["upper"], params["lower"])
    return Decision(
        rule=rule,
        action=action,
        retrieved=retrieved,
        relevant=relevant,
        unparsed=sum(grade["label"] == "unparsed" for grade in grades),
        best_score=max(scores, default=None),
        why=why if retrieved == len(grades) else f"{why} ({retrieved - len(grades)} not graded)",
    )


def _by_confidence(grades: Sequence[GradeRecord], upper: float, lower: float) -> tuple[str, str]:
    scores = [grade["score"] for grade in grades]
    best = max((score for score in scores if score is not None), default=None)
    if best is not None and best > upper:
        return "correct", f"best score {best:.3f} is above {upper:g}"
    # A grade without a score is no evidence against its document, so it keeps Incorrect away.
    if all(score is not None and score < lower for score in scores):
        return "incorrect", f"best score {best:.3f} is below {lower:g}"
    return (
        "ambiguous",
        f"best score {'none' if best is None else f'{best:.3f}'} is neither above {upper:g} nor below {lower:g}",
    )


def keeps(grade: GradeRecord, decision: Decision, params: Mapping[str, Any]) -> bool:
    """Whether a graded document stays in the knowledge that the answer is made from."""
    if decision["rule"] != "confidence":
        return grade["label"] == "relevant"
    if decision["action"] == "incorrect":
        return False
    return grade["score"] is not None and grade["score"] >= params["lower"]


def decide(state: CragState, _resources: Resources) -> dict[str, Any]:
    """Writes `decision` and `knowledge`; notes it when the web is wanted but off."""
    grades, params = state.get("grades", []), state["params"]
    decision = choose(grades, params, len(state["documents"]))
    kept = {grade["document_id"] for grade in grades if keeps(grade, decision, params)}
    update: dict[str, Any] = {
        "decision": decision,
        "knowledge": [document for document in state["documents"] if document["id"] in kept],
    }
    if decision["action"] in SEARCHING and params["web_search"] == "off":
        update["notes"] = ["web_search_off: the decision asked for a web search, but web search is off"]
    return update
