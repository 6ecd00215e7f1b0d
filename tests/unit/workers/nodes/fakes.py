"""Handwritten stand-ins for what a node may use: each says what it was told to, and remembers what it saw."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shared.plan import make_plan
from shared.settings import Settings
from workers.models.roles import Check, Document, GeneratedAnswer, GradeVerdict
from workers.nodes.resources import Resources

Verdict = tuple[str, float | None]  # label, score


def document(letter: str, text: str = "", origin: str = "store", **more: Any) -> Document:
    made = Document(
        id=f"id-{letter}",
        text=text or f"First of {letter}. Second of {letter}. Third of {letter}.",
        title=f"Doc {letter}",
        source=f"{letter}.md",
        page=None,
        score=0.5,
        origin=origin,
    )
    return {**made, **more}  # type: ignore[typeddict-item]


def params(pipeline: str = "crag", **sets: Any) -> dict[str, Any]:
    """A plan's numbers: those of a provider with a web search, unless `sets` says otherwise."""
    settings = Settings(_env_file=None, openai_api_key="sk-unit-test", tavily_api_key="tvly-unit-test")  # type: ignore[call-arg, arg-type]
    return make_plan(settings, pipeline, sets).params


@dataclass
class Script:
    """What the fakes say; an exception in the place of a value is raised."""

    documents: Sequence[Document] = ()
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)  # by the last letter of the title
    strip_score: float = 0.9
    query: str = "rewritten"
    web: Sequence[Document] | Exception | None = ()  # None: no key in this process
    answer: GeneratedAnswer | Exception | None = None  # None: cites every document it is given
    grounded: Sequence[bool | None] = (True,)  # one verdict after the other, the last again and again
    useful: Sequence[bool | None] = (True,)
    route: str = "vectorstore"
    passages: Sequence[str] | None = None  # None: the whole document
    apology: str = "Sorry."
    seen: list[tuple[str, Any]] = field(default_factory=list)  # (role, what it was asked), in order

    def resources(self) -> Resources:
        return Resources(
            retriever=_Retriever(self),
            relevance_grader=_Grader(self),
            query_rewriter=_Rewriter(self),
            answer_generator=_Generator(self),
            web_search=None if self.web is None else _Web(self),
            groundedness_grader=_Checker(self, "grounded", self.grounded),
            answer_grader=_Checker(self, "useful", self.useful),
            router=_Router(self),
            knowledge_extractor=_Extractor(self),
            feedback_writer=_Feedback(self),
            apology_writer=_Apology(self),
        )

    def asked(self, role: str) -> list[Any]:
        return [what for name, what in self.seen if name == role]


class _Fake:
    def __init__(self, script: Script) -> None:
        self.script = script


class _Retriever(_Fake):
    def retrieve(self, query: str, k: int) -> list[Document]:
        self.script.seen.append(("retriever", (query, k)))
        return list(self.script.documents)[:k]


class _Grader(_Fake):
    def grade(self, question: str, document: Document) -> GradeVerdict:
        self.script.seen.append(("grader", (question, document["title"])))
        label, score = self.script.verdicts[document["title"][-1]]
        return GradeVerdict(label, score, "fake/grader", "v1", "odd" if label == "unparsed" else "")

    def score(self, question: str, texts: Sequence[str]) -> list[float]:
        self.script.seen.append(("scorer", (question, list(texts))))
        return [self.script.strip_score] * len(texts)


class _Rewriter(_Fake):
    def rewrite(
        self, question: str, target: str = "websearch", description: str = "", feedback: Sequence[str] = ()
    ) -> str:
        self.script.seen.append(("rewriter", question))
        return self.script.query


class _Generator(_Fake):
    def answer_directly(self, question: str) -> GeneratedAnswer:
        self.script.seen.append(("generator", (question, None)))
        answer = self.script.answer
        return answer if isinstance(answer, GeneratedAnswer) else GeneratedAnswer("42", ())

    def answer(
        self, question: str, documents: Sequence[Document], feedback: Sequence[str] = ()
    ) -> GeneratedAnswer:
        self.script.seen.append(("generator", (question, [d["text"] for d in documents])))
        if isinstance(self.script.answer, Exception):
            raise self.script.answer
        if self.script.answer is not None:
            return self.script.answer
        titles = ", ".join(d["title"] for d in documents)
        return GeneratedAnswer(f"From {titles}.", tuple(range(len(documents))))


class _Web(_Fake):
    def search(self, query: str, k: int) -> list[Document]:
        self.script.seen.append(("web", (query, k)))
        web = self.script.web
        if isinstance(web, Exception):
            raise web
        return list(web or ())[:k]


class _Checker(_Fake):
    def __init__(self, script: Script, role: str, verdicts: Sequence[bool | None]) -> None:
        super().__init__(script)
        self.role = role
        self.left = list(verdicts)

    def check(self, *asked: Any) -> Check:
        self.script.seen.append((self.role, asked))
        passed = self.left.pop(0) if len(self.left) > 1 else self.left[0]
        return Check(passed, None, "fake/checker", "v1", "odd" if passed is None else "")


class _Router(_Fake):
    def route(self, question: str, description: str, web: bool) -> str:
        self.script.seen.append(("router", (question, description, web)))
        return self.script.route


class _Extractor(_Fake):
    def extract(self, question: str, document: Document) -> list[str]:
        self.script.seen.append(("extractor", document["title"]))
        return [document["text"]] if self.script.passages is None else list(self.script.passages)


class _Feedback(_Fake):
    def on_query(self, question: str, query: str, target: str) -> str:
        self.script.seen.append(("feedback", (query, target)))
        return f"not {query}"

    def on_answer(self, question: str, answer: str, problem: str) -> str:
        self.script.seen.append(("feedback", (answer, problem)))
        return f"not {answer}"


class _Apology(_Fake):
    def apologise(self, question: str, tried: Sequence[str]) -> str:
        self.script.seen.append(("apology", list(tried)))
        return self.script.apology
