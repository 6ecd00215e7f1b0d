"""The roles played by chat models that speak OpenAI's API, through langchain-openai.

Whatever a model writes is taken as leniently as can be done without guessing. What is left over is an
`unparsed` grade, or an `UnusableOutput` that the runner may try again.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from shared.clean import clean_json, clean_text, one_line
from shared.statuses import GradeLabel
from workers.models.calls import UnusableOutput
from workers.models.lenient import unit_score, whole_numbers, yes_no, yes_no_in_prose
from workers.models.openai_client import OpenAISettings, StructuredReply, shared_chat_model, structured_call
from workers.models.openai_errors import WHERE, refused_by_policy
from workers.models.prompts import (
    MAX_DOCUMENT_CHARS,
    MAX_QUESTION_CHARS,
    Prompt,
    as_data,
    as_title,
    load_prompts,
    numbered_documents,
)
from workers.models.roles import CallRecorder, CallResult, CallSpec, Document, GeneratedAnswer, GradeVerdict
from workers.models.schemas import CITED_ANSWER, RELEVANCE_GRADE, SEARCH_QUERY

_DETAIL_CHARS = 200
_MAX_QUERY_CHARS = 390  # search engines refuse longer ones
_MARKER = re.compile(r"\[(\d{1,4})\]")
_NOT_IN_DOCUMENTS = "the documents do not say, the model found"


class _Role:
    """A prompt, a model and a recorder: what the three chat roles have in common."""

    def __init__(
        self,
        settings: OpenAISettings,
        model: str,
        recorder: CallRecorder,
        prompt: Prompt,
        schema: dict[str, Any],
    ) -> None:
        self.model = model
        self.prompt = prompt
        self._recorder = recorder
        self._chat = shared_chat_model(settings, model, schema)

    def _ask(
        self, wanted: str, read: Callable[[StructuredReply], dict[str, Any]], values: dict[str, str]
    ) -> dict[str, Any]:
        """What `read` makes of the reply, recorded. What `read` raises is recorded as the call's error."""
        system, human = self.prompt.render(**values)
        spec = CallSpec(
            role=self.prompt.role,
            provider="openai",
            model=self.model,
            prompt_version=self.prompt.version,
            request={"system": system, "human": human, "method": self._chat.settings.method},
        )

        def perform() -> CallResult:
            reply = structured_call(self._chat, system, human, wanted)
            return CallResult(clean_json(read(reply)), reply.input_tokens, reply.output_tokens)

        response = self._recorder.call(spec, perform)
        assert isinstance(response, dict)
        return response

    def _unusable(self, reply: StructuredReply, what: str) -> NoReturn:
        if reply.problem == "refused":
            raise refused_by_policy()
        truncated = reply.problem == "truncated"
        raise UnusableOutput(
            "the model reached its output limit before it was done" if truncated else what,
            where=WHERE,
            code="truncated" if truncated else "unusable_output",
            input_tokens=reply.input_tokens,
            output_tokens=reply.output_tokens,
        )


class OpenAIRelevanceGrader(_Role):
    """`roles.RelevanceGrader`. An output that is neither yes nor no is the label `unparsed`, not an error."""

    def __init__(
        self, settings: OpenAISettings, model: str, recorder: CallRecorder, prompt: Prompt | None = None
    ):
        prompt = prompt or load_prompts()["relevance_grader"]
        super().__init__(settings, model, recorder, prompt, RELEVANCE_GRADE)

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
            model=f"openai/{self.model}",
            prompt_version=self.prompt.version,
            detail=response["detail"],
        )


def _read_grade(reply: StructuredReply) -> dict[str, Any]:
    parsed = reply.parsed or {}
    verdict = yes_no(parsed.get("binary_score"))
    if verdict is None and reply.parsed is None and reply.problem != "truncated":
        verdict = yes_no_in_prose(reply.text)
    if verdict is None:
        kind = reply.problem or "unusable_output"
        shown = one_line(reply.text or str(parsed), _DETAIL_CHARS)
        return {"label": GradeLabel.UNPARSED.value, "score": None, "detail": f"{kind}: {shown}"}
    label = GradeLabel.RELEVANT if verdict else GradeLabel.NOT_RELEVANT
    return {"label": label.value, "score": unit_score(parsed.get("score")), "detail": ""}


class OpenAIQueryRewriter(_Role):
    """`roles.QueryRewriter`. Raises UnusableOutput when the model names no query."""

    def __init__(
        self, settings: OpenAISettings, model: str, recorder: CallRecorder, prompt: Prompt | None = None
    ):
        prompt = prompt or load_prompts()["query_rewriter"]
        super().__init__(settings, model, recorder, prompt, SEARCH_QUERY)

    def rewrite(self, question: str) -> str:
        values = {"question": as_data(question, MAX_QUESTION_CHARS)}
        return str(self._ask("query", self._read, values)["query"])

    def _read(self, reply: StructuredReply) -> dict[str, Any]:
        query = (reply.parsed or {}).get("query")
        query = one_line(query, _MAX_QUERY_CHARS) if isinstance(query, str) else ""
        if not query:
            self._unusable(reply, "the model named no search query")
        return {"query": query}


class OpenAIAnswerGenerator(_Role):
    """`roles.AnswerGenerator`. Raises UnusableOutput when the output is neither an answer nor a refusal."""

    def __init__(
        self,
        settings: OpenAISettings,
        model: str,
        recorder: CallRecorder,
        sentences: int,
        prompt: Prompt | None = None,
    ) -> None:
        prompt = prompt or load_prompts()["answer_generator"]
        super().__init__(settings, model, recorder, prompt, CITED_ANSWER)
        self._sentences = max(sentences, 1)

    def answer(self, question: str, documents: Sequence[Document]) -> GeneratedAnswer:
        """Without documents there is nothing to cite, so no model is asked."""
        if not documents:
            return GeneratedAnswer("", (), "there are no documents to answer from")
        values = {
            "question": as_data(question, MAX_QUESTION_CHARS),
            "documents": numbered_documents(documents),
            "sentences": str(self._sentences),
        }
        response = self._ask("answer", lambda reply: self._read(reply, len(documents)), values)
        return GeneratedAnswer(response["text"], tuple(response["cited"]), response["why_not"])

    def _read(self, reply: StructuredReply, count: int) -> dict[str, Any]:
        if reply.parsed is None:
            self._unusable(reply, "the model gave no answer in the form it was asked for")
        answer = reply.parsed.get("answer")
        text = clean_text(answer).strip() if isinstance(answer, str) else ""
        answerable = yes_no(reply.parsed.get("answerable"))
        if answerable is False:
            return {"text": "", "cited": [], "why_not": _NOT_IN_DOCUMENTS}
        if not text:
            self._unusable(reply, "the model said there is an answer, and gave none")
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
