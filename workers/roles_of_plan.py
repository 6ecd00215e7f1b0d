"""Which model plays which role for a plan: the local ones, or those behind OpenAI's API."""

from typing import Any

from shared.plan import THRESHOLDS, Plan
from workers.models.local import LocalAnswerGenerator, LocalQueryRewriter, LocalRelevanceGrader
from workers.models.local_checks import LocalAnswerGrader, LocalGroundednessGrader
from workers.models.local_reflection import (
    LocalApologyWriter,
    LocalFeedbackWriter,
    LocalKnowledgeExtractor,
    LocalRouter,
)
from workers.models.minilm import MiniLM
from workers.models.openai import OpenAIAnswerGenerator, OpenAIQueryRewriter, OpenAIRelevanceGrader
from workers.models.openai_checks import OpenAIAnswerGrader, OpenAIGroundednessGrader
from workers.models.openai_client import OpenAISettings
from workers.models.openai_reflection import (
    OpenAIApologyWriter,
    OpenAIFeedbackWriter,
    OpenAIKnowledgeExtractor,
    OpenAIRouter,
)
from workers.models.prompts import Prompt
from workers.models.roles import CallRecorder
from workers.runner.prompts import PromptBook

OPENAI_ROLES = {
    "relevance_grader": OpenAIRelevanceGrader,
    "query_rewriter": OpenAIQueryRewriter,
    "groundedness_grader": OpenAIGroundednessGrader,
    "answer_grader": OpenAIAnswerGrader,
    "router": OpenAIRouter,
    "knowledge_extractor": OpenAIKnowledgeExtractor,
    "feedback_writer": OpenAIFeedbackWriter,
    "apology_writer": OpenAIApologyWriter,
}


def local_roles(plan: Plan, minilm: MiniLM, recorder: CallRecorder) -> dict[str, Any]:
    """Every role by the name of its field in `Resources`. A threshold that the pipeline does not have is
    that of a role which its graph does not use."""
    numbers = THRESHOLDS["local"] | {k: v for k, v in plan.params.items() if v is not None}
    return {
        "relevance_grader": LocalRelevanceGrader(minilm, numbers["relevant_at"], recorder),
        "query_rewriter": LocalQueryRewriter(recorder),
        "answer_generator": LocalAnswerGenerator(
            minilm, numbers["answer_at"], plan.params["sentences"], recorder
        ),
        "groundedness_grader": LocalGroundednessGrader(minilm, numbers["grounded_at"], recorder),
        "answer_grader": LocalAnswerGrader(minilm, numbers["useful_at"], recorder),
        "router": LocalRouter(recorder),
        "knowledge_extractor": LocalKnowledgeExtractor(minilm, numbers["strip_at"], recorder),
        "feedback_writer": LocalFeedbackWriter(recorder),
        "apology_writer": LocalApologyWriter(recorder),
    }


def openai_roles(
    plan: Plan, settings: OpenAISettings, default_model: str, book: PromptBook, recorder: CallRecorder
) -> dict[str, Any]:
    """Every role by the name of its field in `Resources`; the prompts are those the plan was frozen with."""

    def prompt(name: str) -> Prompt:
        return book.get(name, plan.prompts.get(name))

    def model(role: str) -> str:
        return plan.models.get(role, default_model)

    roles: dict[str, Any] = {
        role: kind(settings, model(role), recorder, prompt) for role, kind in OPENAI_ROLES.items()
    }
    sentences = plan.params["sentences"]
    generator = OpenAIAnswerGenerator(settings, model("answer_generator"), recorder, sentences, prompt)
    return roles | {"answer_generator": generator}
