"""What a node may use besides its state: the model roles, the store and the web, and nothing else."""

from dataclasses import dataclass

from workers.models.roles import (
    AnswerGenerator,
    AnswerGrader,
    ApologyWriter,
    FeedbackWriter,
    GroundednessGrader,
    KnowledgeExtractor,
    QueryRewriter,
    RelevanceGrader,
    Retriever,
    Router,
    WebSearch,
)


@dataclass(frozen=True)
class Resources:
    """Built for one task by `workers.bootstrap`, from the plan of its batch."""

    retriever: Retriever
    relevance_grader: RelevanceGrader
    query_rewriter: QueryRewriter
    answer_generator: AnswerGenerator
    groundedness_grader: GroundednessGrader
    answer_grader: AnswerGrader
    router: Router
    knowledge_extractor: KnowledgeExtractor
    feedback_writer: FeedbackWriter
    apology_writer: ApologyWriter
    web_search: WebSearch | None  # None: no key
