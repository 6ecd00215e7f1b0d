"""Which model plays which role for a plan: the local ones, or those behind OpenAI's API."""

from typing import Any

from shared.plan import Plan
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
