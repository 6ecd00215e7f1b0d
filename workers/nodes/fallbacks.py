"""What stands in when a helping role has failed for good: the run goes on without its help, and says so.

Feedback and apology are extras, whatever they failed of. Route, query and extract lead the run, so only a
reply without use is passed over: of a wrong key or an outage the run shall fail, and not answer worse.
"""

from collections.abc import Mapping
from typing import Any

from shared.errors import CallError
from workers.nodes.draft import what_was_tried
from workers.nodes.state import AdaptiveState, Extract, GradeTask, SelfRagState

UNUSABLE = ("unusable_output", "truncated")  # codes of workers.models.calls.UnusableOutput


def route_to_store(_state: AdaptiveState, error: CallError) -> dict[str, Any]:
    return {"mode": "vectorstore", **_passed_over("route_unusable", error)}


def assume_retrieval(_state: SelfRagState, error: CallError) -> dict[str, Any]:
    return {"retrieval_needed": True, **_passed_over("route_unusable", error)}


def question_as_query(state: Mapping[str, Any], error: CallError) -> dict[str, Any]:
    return {"query": state["question"], **_passed_over("rewrite_unusable", error)}


def counted_question_as_query(state: SelfRagState, error: CallError) -> dict[str, Any]:
    return {**question_as_query(state, error), "rewrites": state.get("rewrites", 0) + 1}


def nothing_extracted(task: GradeTask, error: CallError) -> dict[str, Any]:
    extract = Extract(document_id=task["document"]["id"], passages=[])
    return {"extracts": [extract], **_passed_over("extract_unusable", error)}


def no_feedback(_state: AdaptiveState, error: CallError) -> dict[str, Any]:
    return {"notes": [f"feedback_failed: {error.code}: {error}"]}


def plain_reason(state: AdaptiveState, error: CallError) -> dict[str, Any]:
    return {
        "disposition": "gave_up",
        "reason": what_was_tried(state),
        "notes": [f"apology_failed: {error.code}: {error}"],
    }


def _passed_over(label: str, error: CallError) -> dict[str, Any]:
    if error.code not in UNUSABLE:
        raise error
    return {"notes": [f"{label}: {error}"]}
