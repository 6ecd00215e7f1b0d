"""What a node may use besides its state: the model roles, the store and the web, and nothing else."""

from dataclasses import dataclass

from workers.models.roles import AnswerGenerator, QueryRewriter, RelevanceGrader, Retriever, WebSearch


@dataclass(frozen=True)
class Resources:
    """Built for one task by `workers.bootstrap`, from the plan of its batch."""

    retriever: Retriever
    relevance_grader: RelevanceGrader
    query_rewriter: QueryRewriter
    answer_generator: AnswerGenerator
    web_search: WebSearch | None  # None: no key
