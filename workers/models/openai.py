"""Grading, rewriting and answering by chat models that speak OpenAI's API, through langchain-openai.

Whatever a model writes is taken as leniently as can be done without guessing. What is left over is an
`unparsed` grade, or an `UnusableOutput` that the runner may try again.
"""

import re
from collections.abc import Sequence
from typing import Any

from shared.clean import one_line
from shared.statuses import GradeLabel
from workers.models.lenient import whole_numbers, yes_no
from workers.models.openai_client import OpenAISettings, StructuredReply
from workers.models.openai_role import PromptSource, Role, read_verdict, shipped_prompt, text_field, unusable
from workers.models.prompts import (
    MAX_DESCRIPTION_CHARS,
    MAX_DOCUMENT_CHARS,
    MAX_QUESTION_CHARS,
    as_data,
    as_title,
    feedback_block,
    numbered_documents,
)
from workers.models.roles import CallRecorder, Document, GeneratedAnswer, GradeVerdict
from workers.models.schemas import CITED_ANSWER, DIRECT_ANSWER, RELEVANCE_GRADE, SEARCH_QUERY

_MAX_QUERY_CHARS = 390  # search engines refuse longer ones
_MARKER = re.compile(r"\[(\d{1,4})\]")
_NO_MARKERS = re.compile(r"(?<!\s)\s*+\[\d{1,4}\]")
_NOT_IN_DOCUMENTS = "the documents do not say, the model found"
_NEEDS_SOURCES = "the question cannot be answered without sources, the model found"


class OpenAIRelevanceGrader(Role):
    """`roles.RelevanceGrader`. An output that is neither yes nor no is the label `unparsed`, not an error."""

    role = "relevance_grader"
    schema = RELEVANCE_GRADE

    def grade(self, question: str, document: Document) -> GradeVerdict:
        return self._grade(question, document["title"], document["text"])

    def score(self, question: str, texts: Sequence[str]) -> list[float]:
        """One call a text. A yes without a score counts as 1, a no without one as 0, an unparsed one as 0."""
        scores = []
        for text in texts:
            verdict = self._grade(question, "", text)
            if verdict.label == GradeLabel.UNPARSED:
                scores.append(0.0)
            elif verdict.score is not None:
                scores.append(verdict.score)
            else:
                scores.append(1.0 if verdict.label == GradeLabel.RELEVANT else 0.0)
        return scores

    def _grade(self, question: str, title: str, text: str) -> GradeVerdict:
        values = {
            "question": as_data(question, MAX_QUESTION_CHARS),
            "title": as_title(title),
            "document": as_data(text, MAX_DOCUMENT_CHARS),
        }
        response = self._ask("binary_score", _read_grade, values)
        return GradeVerdict(
            label=response["label"],
            score=response["score"],
            model=self.name,
            prompt_version=self.prompt.version,
            detail=response["detail"],
        )


def _read_grade(reply: StructuredReply) -> dict[str, Any]:
    verdict, score, detail = read_verdict(reply)
    labels = {True: GradeLabel.RELEVANT, False: GradeLabel.NOT_RELEVANT, None: GradeLabel.UNPARSED}
    return {"label": labels[verdict].value, "score": score, "detail": detail}


class OpenAIQueryRewriter(Role):
    """`roles.QueryRewriter`. Raises UnusableOutput when the model names no query."""

    role = "query_rewriter"
    schema = SEARCH_QUERY

    def rewrite(
        self, question: str, target: str = "websearch", description: str = "", feedback: Sequence[str] = ()
    ) -> str:
        values = {"question": as_data(question, MAX_QUESTION_CHARS), "feedback": feedback_block(feedback)}
        if target == "vectorstore":
            name = "query_rewriter.vectorstore"
            values["description"] = as_description(description)
        else:
            name = "query_rewriter.again" if values["feedback"] else "query_rewriter"
        return str(self._ask("query", _read_query, values, prompt=self._prompts(name))["query"])


def as_description(description: str) -> str:
    """What the store holds, for a prompt; a collection may come without any."""
    return as_data(description, MAX_DESCRIPTION_CHARS) or "(none given)"


def _read_query(reply: StructuredReply) -> dict[str, Any]:
    query = one_line(text_field(reply, "query"), _MAX_QUERY_CHARS)
    if not query:
        unusable(reply, "the model named no search query")
    return {"query": query}


class OpenAIAnswerGenerator(Role):
    """`roles.AnswerGenerator`. Raises UnusableOutput when the output is neither an answer nor a refusal."""

    role = "answer_generator"
    schema = CITED_ANSWER

    def __init__(
        self,
        settings: OpenAISettings,
        model: str,
        recorder: CallRecorder,
        sentences: int,
        prompts: PromptSource = shipped_prompt,
    ) -> None:
        super().__init__(settings, model, recorder, prompts)
        self._sentences = max(sentences, 1)

    def answer(
        self, question: str, documents: Sequence[Document], feedback: Sequence[str] = ()
    ) -> GeneratedAnswer:
        """Without documents there is nothing to cite, so no model is asked."""
        if not documents:
            return GeneratedAnswer("", (), "there are no documents to answer from")
        values = {
            "question": as_data(question, MAX_QUESTION_CHARS),
            "documents": numbered_documents(documents),
            "sentences": str(self._sentences),
            "feedback": feedback_block(feedback),
        }
        response = self._ask(
            "answer",
            lambda reply: _read_answer(reply, len(documents)),
            values,
            prompt=self._prompts("answer_generator.again" if values["feedback"] else "answer_generator"),
        )
        return GeneratedAnswer(response["text"], tuple(response["cited"]), response["why_not"])

    def answer_directly(self, question: str) -> GeneratedAnswer:
        values = {"question": as_data(question, MAX_QUESTION_CHARS), "sentences": str(self._sentences)}
        response = self._ask(
            "answer",
            lambda reply: _read_answer(reply, 0),
            values,
            prompt=self._prompts("answer_generator.direct"),
            schema=DIRECT_ANSWER,
        )
        return GeneratedAnswer(response["text"], (), response["why_not"])


def _read_answer(reply: StructuredReply, count: int) -> dict[str, Any]:
    """The answer over `count` documents; 0: over none, so nothing can be cited."""
    if reply.parsed is None:
        unusable(reply, "the model gave no answer in the form it was asked for")
    text = text_field(reply, "answer")
    if yes_no(reply.parsed.get("answerable")) is False:
        return {"text": "", "cited": [], "why_not": _NOT_IN_DOCUMENTS if count else _NEEDS_SOURCES}
    if not text:
        unusable(reply, "the model said there is an answer, and gave none")
    if not count:
        return {"text": _NO_MARKERS.sub("", text).strip(), "cited": [], "why_not": ""}
    cited = _cited(reply.parsed.get("cited"), text, count)
    return {"text": _renumbered(text, cited), "cited": cited, "why_not": ""}


def _cited(stated: Any, text: str, count: int) -> list[int]:
    """0-based positions of the documents that the list or the marks in the text name. Without either all
    documents are named, because the answer rests on them one way or another."""
    marks = [int(digits) for digits in _MARKER.findall(text)]
    numbers = [number for number in [*whole_numbers(stated), *marks] if 1 <= number <= count]
    if not numbers:
        numbers = list(range(1, count + 1))
    return sorted({number - 1 for number in numbers})


def _renumbered(text: str, cited: list[int]) -> str:
    """`text` with its marks counted over the cited documents instead of all; marks of no document go."""

    def mark(match: re.Match[str]) -> str:
        position = int(match.group(1)) - 1
        return f"[{cited.index(position) + 1}]" if position in cited else ""

    return _MARKER.sub(mark, text).strip()
