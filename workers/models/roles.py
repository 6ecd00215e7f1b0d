"""The roles that models play, as the nodes see them. `local.py` and `openai.py` fill them.

Every value that crosses a role is a JSON value or a small frozen record, because it ends up in the state
of a run. Every outside call goes through a `CallRecorder`, so that it is stored before anything depends
on it, and a repeated task reuses it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypedDict


class Document(TypedDict):
    """A passage, from the store or from the web."""

    id: str  # the store's point id, or `web:<n>`
    text: str
    title: str
    source: str  # a path or URL a person can open
    page: int | None  # 1-based page of a PDF
    score: float | None  # of the retrieval, on its mode's own scale; None where the source gives none
    origin: str  # "store" or "web"


@dataclass(frozen=True)
class GradeVerdict:
    """What a relevance grader says of one document. `score` is in 0..1, None when the model gave none."""

    label: str  # a shared.statuses.GradeLabel value
    score: float | None
    model: str
    prompt_version: str
    detail: str = ""  # what an unparsed output looked like, shortened


@dataclass(frozen=True)
class Check:
    """A yes/no verdict on an answer. `score` is in 0..1, None when the model gave none."""

    passed: bool | None  # None: the model's output was neither yes nor no
    score: float | None
    model: str
    prompt_version: str
    detail: str = ""  # what is wrong with the answer, or what an unparsed output looked like, shortened


@dataclass(frozen=True)
class GeneratedAnswer:
    """`text` is empty and `why_not` filled when the documents do not answer the question.

    `cited` holds 0-based positions in the documents that were given; a mark `[n]` in `text` means the n-th
    of `cited`, counted from 1, so that it agrees with the list of sources a reader is shown.
    """

    text: str
    cited: tuple[int, ...]
    why_not: str = ""


@dataclass(frozen=True)
class CallResult:
    """What `perform` of a recorded call hands back. Tokens are None when the provider did not say."""

    response: Any  # JSON value; what a repeated task gets instead of a new call
    input_tokens: int | None = None
    output_tokens: int | None = None


@dataclass(frozen=True)
class CallSpec:
    """What identifies a call: the same spec within one (run, step, branch) is the same call."""

    role: str
    provider: str  # "openai" or "local"
    model: str
    prompt_version: str
    request: dict[str, Any]  # JSON value, hashed; never stored where it would leak a key
    reusable: bool = True  # False: the response is not kept (a vector), so a repeated task calls again
    deterministic: bool = True  # False: the same request may well bring another response (no temperature 0)
    size: int = 0  # bytes of text that are sent; 0: those of `request`


@dataclass(frozen=True)
class RetrievalSpec:
    """What identifies a search of a collection."""

    collection: str
    query: str
    k: int
    mode: str  # a shared.plan.Retrieval
    filters: dict[str, Any]
    embedding_model: str  # of the query; "": it is not embedded


class CallRecorder(Protocol):
    def call(self, spec: CallSpec, perform: Callable[[], CallResult]) -> Any:
        """The response of `perform`, or the stored one of an earlier attempt. Errors pass through, recorded."""
        ...

    def retrieval(self, spec: RetrievalSpec, perform: Callable[[], list[Document]]) -> list[Document]:
        """What `perform` finds, or what was found before where that saves a paid embedding."""
        ...


class RelevanceGrader(Protocol):
    def grade(self, question: str, document: Document) -> GradeVerdict: ...

    def score(self, question: str, texts: Sequence[str]) -> list[float]:
        """Relevance of each text (a strip) in 0..1, same order."""
        ...


class QueryRewriter(Protocol):
    def rewrite(
        self, question: str, target: str = "websearch", description: str = "", feedback: Sequence[str] = ()
    ) -> str:
        """A query for the `target` ("vectorstore" or "websearch"), never empty.

        `description` says what the store holds; `feedback` is what a `FeedbackWriter` said of earlier
        queries, oldest first, and leads to another query than those.
        """
        ...


class AnswerGenerator(Protocol):
    def answer(
        self, question: str, documents: Sequence[Document], feedback: Sequence[str] = ()
    ) -> GeneratedAnswer:
        """From the documents alone. `feedback` is what a `FeedbackWriter` said of earlier answers."""
        ...

    def answer_directly(self, question: str) -> GeneratedAnswer:
        """Without documents: `cited` is empty. Models that cannot leave `text` empty and say why."""
        ...


class GroundednessGrader(Protocol):
    def check(self, answer: str, documents: Sequence[Document]) -> Check:
        """Whether every statement of the answer is supported by the documents."""
        ...


class AnswerGrader(Protocol):
    def check(self, question: str, answer: str) -> Check:
        """Whether the answer answers the question, right or wrong."""
        ...


class Router(Protocol):
    def route(self, question: str, description: str, web: bool) -> str:
        """One of "vectorstore", "websearch" (only with `web`) and "direct".

        `description` says what the store holds.
        """
        ...


class KnowledgeExtractor(Protocol):
    def extract(self, question: str, document: Document) -> list[str]:
        """The passages of the document that help, as the model copied them; empty when none does.

        Nothing here holds the model to the letter: the caller checks that they occur in the document.
        """
        ...


class FeedbackWriter(Protocol):
    def on_query(self, question: str, query: str, target: str) -> str:
        """Nothing relevant was found with this query in the `target`: what to try instead."""
        ...

    def on_answer(self, question: str, answer: str, problem: str) -> str:
        """What to do better. `problem` is "not_grounded" or "does_not_answer"."""
        ...


class ApologyWriter(Protocol):
    def apologise(self, question: str, tried: Sequence[str]) -> str:
        """One or two sentences in the question's language. `tried`: short phrases of what was tried."""
        ...


class Embedder(Protocol):
    @property
    def name(self) -> str: ...  # "<provider>/<model>", kept with a collection

    @property
    def dimension(self) -> int: ...

    def embed_documents(self, texts: Sequence[str]) -> list[list[float]]: ...

    def embed_query(self, text: str) -> list[float]: ...


class Retriever(Protocol):
    """A vector store and an embedder, bound to one collection."""

    def retrieve(self, query: str, k: int) -> list[Document]: ...


class WebSearch(Protocol):
    def search(self, query: str, k: int) -> list[Document]:
        """At most `k` results. Raises TransientError or PermanentError."""
        ...
