"""The state that travels through a graph: JSON values only, because every update of it is a row.

`Annotated[list, operator.add]` fields collect what the branches of a fan-out return, in branch order.
"""

import operator
from typing import Annotated, Any, TypedDict

from workers.models.roles import Document


class GradeRecord(TypedDict):
    """The verdict on one document. An update's `grades` are also written to the table `grades`."""

    document_id: str
    label: str  # a shared.statuses.GradeLabel value
    score: float | None
    model: str
    prompt_version: str
    detail: str
    # what the table needs of the document, so that the row explains itself
    title: str
    source: str
    page: int | None
    retrieval_score: float | None


class Strip(TypedDict):
    """A part of a document that was scored on its own."""

    document_id: str
    text: str
    score: float
    kept: bool


class Decision(TypedDict):
    """What the grades led to, and the numbers it rests on."""

    rule: str
    action: str  # generate | search | correct | incorrect | ambiguous
    retrieved: int
    relevant: int
    unparsed: int
    best_score: float | None
    why: str


class Source(TypedDict):
    """A cited source, as results show it."""

    title: str
    source: str
    page: int | None
    origin: str  # "store" or "web"
    document_id: str


class RagState(TypedDict, total=False):
    question: str
    params: dict[str, Any]  # the plan's numbers: routing reads its limits here
    query: str  # what was last searched for
    documents: list[Document]  # retrieved from the store
    notes: Annotated[list[str], operator.add]  # labelled degradations: `label: explanation`
    answer: str
    sources: list[Source]
    disposition: str  # answered | gave_up
    reason: str  # why it gave up


class CragState(RagState, total=False):
    grades: Annotated[list[GradeRecord], operator.add]
    decision: Decision
    knowledge: list[Document]  # what of the retrieved is kept to answer from
    strips: Annotated[list[Strip], operator.add]
    web_documents: list[Document]
    web_status: str  # ok | empty | failed
    web_error: str  # the code of a search that failed


class GradeTask(TypedDict):
    """What a Send hands to a node that looks at one document."""

    question: str
    document: Document
    params: dict[str, Any]


class CheckRecord(TypedDict):
    """The verdict on an answer: does it stand in the documents, does it answer the question?"""

    what: str  # "grounded" or "useful"
    passed: bool  # an output that was neither yes nor no counts as not passed
    score: float | None
    model: str
    prompt_version: str
    detail: str


class DraftState(RagState, total=False):
    """What the pipelines share that judge their own answer before they give it."""

    grades: Annotated[list[GradeRecord], operator.add]
    knowledge: list[Document]
    retrievals: int  # searches so far (adaptive: in the present mode)
    generations: int  # answers drafted so far
    draft: str  # "" when the generator found no answer
    draft_sources: list[Source]
    problem: str  # what is wrong with the draft: not_grounded | does_not_answer | no_draft | ""
    checks: Annotated[list[CheckRecord], operator.add]
    feedback: Annotated[list[str], operator.add]  # on earlier answers, for the next one
    tried: Annotated[list[str], operator.add]  # short phrases, for the reason when it gives up


class SelfRagState(DraftState, total=False):
    retrieval_needed: bool
    rewrites: int


class AdaptiveState(DraftState, total=False):
    mode: str  # vectorstore | websearch | direct
    query_feedback: Annotated[list[str], operator.add]  # on earlier queries, for the next one
    extracts: Annotated[list["Extract"], operator.add]
    web_status: str  # ok | empty | failed


class Extract(TypedDict):
    """What was taken from one document, verbatim."""

    document_id: str
    passages: list[str]
