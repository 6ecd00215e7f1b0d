"""The two verdicts on an answer without a key. See `groundedness` for what the first one can see.

The second one sees only whether the answer is about what was asked: it tells an answer to another question
(area under the ROC curve 0.98), hardly an incomplete one (0.6; people's ratings of 243 answers).
"""

from collections.abc import Sequence
from typing import Any

from shared.clean import one_line
from workers.models.groundedness import statements, support
from workers.models.local import NO_PROMPT, local_spec
from workers.models.minilm import NAME, VectorSource, best_cosines
from workers.models.roles import CallRecorder, CallResult, Check, Document
from workers.models.words import content_set

GROUNDEDNESS = "local/groundedness-v1"  # counts up with `groundedness.json`
_DETAIL_CHARS = 200
_FEWEST_WORDS = 5  # content words; the cosine of a question with a mere name says nothing


def _check(response: dict[str, Any], model: str) -> Check:
    return Check(response["passed"], response["score"], model, NO_PROMPT, response["detail"])


class LocalGroundednessGrader:
    """`roles.GroundednessGrader`: passed when the score is at least `grounded_at`."""

    def __init__(self, embedder: VectorSource, grounded_at: float, recorder: CallRecorder) -> None:
        self._embedder = embedder
        self._grounded_at = grounded_at
        self._recorder = recorder

    def check(self, answer: str, documents: Sequence[Document]) -> Check:
        """`detail` of a no is the statement with the least support. No documents, or no answer: a no."""
        texts = [document["text"] for document in documents]
        request = {"answer": answer, "documents": texts, "grounded_at": self._grounded_at}
        spec = local_spec("groundedness_grader", GROUNDEDNESS, request)

        def perform() -> CallResult:
            found = support(self._embedder, answer, texts)
            passed = found.score >= self._grounded_at and found.score > 0
            detail = "" if passed else one_line(found.weakest or "nothing to compare", _DETAIL_CHARS)
            return CallResult({"passed": passed, "score": round(found.score, 6), "detail": detail})

        return _check(self._recorder.call(spec, perform), GROUNDEDNESS)


class LocalAnswerGrader:
    """`roles.AnswerGrader`: passed when the answer, or one of its sentences, has a cosine with the question of
    at least `useful_at`. An answer of a few words passes without a score."""

    def __init__(self, embedder: VectorSource, useful_at: float, recorder: CallRecorder) -> None:
        self._embedder = embedder
        self._useful_at = useful_at
        self._recorder = recorder

    def check(self, question: str, answer: str) -> Check:
        request = {"question": question, "answer": answer, "useful_at": self._useful_at}
        spec = local_spec("answer_grader", NAME, request)
        return _check(self._recorder.call(spec, lambda: CallResult(self._judge(question, answer))), NAME)

    def _judge(self, question: str, answer: str) -> dict[str, Any]:
        parts = statements(answer)
        if not parts:
            return {"passed": False, "score": 0.0, "detail": "no answer"}
        if len(content_set(answer)) < _FEWEST_WORDS:
            return {"passed": True, "score": None, "detail": "too short to be judged"}
        score = max(best_cosines(self._embedder, question, [" ".join(parts), *parts]))
        passed = score >= self._useful_at
        detail = "" if passed else f"no sentence is near to the question: {score:.2f} < {self._useful_at:.2f}"
        return {"passed": passed, "score": round(score, 6), "detail": detail}
