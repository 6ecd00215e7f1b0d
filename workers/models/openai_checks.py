"""The two verdicts on an answer by a chat model: is it supported, and does it answer the question?"""

from collections.abc import Sequence
from typing import Any

from shared.clean import one_line
from workers.models.openai_client import StructuredReply
from workers.models.openai_role import DETAIL_CHARS, Role, read_verdict, text_field
from workers.models.prompts import MAX_ANSWER_CHARS, MAX_QUESTION_CHARS, as_data, numbered_documents
from workers.models.roles import Check, Document
from workers.models.schemas import ANSWER_GRADE, GROUNDEDNESS_GRADE


class _Checker(Role):
    remark: str  # the field that says what is wrong

    def _check(self, values: dict[str, str]) -> Check:
        response = self._ask("binary_score", self._read, values)
        return self._verdict(response["passed"], response["score"], response["detail"])

    def _verdict(self, passed: bool | None, score: float | None, detail: str) -> Check:
        return Check(passed, score, self.name, self.prompt.version, detail)

    def _read(self, reply: StructuredReply) -> dict[str, Any]:
        passed, score, detail = read_verdict(reply)
        if passed is False:
            detail = one_line(text_field(reply, self.remark), DETAIL_CHARS)
        return {"passed": passed, "score": score, "detail": detail}


class OpenAIGroundednessGrader(_Checker):
    """`roles.GroundednessGrader`. `detail` of a no is the first statement that is not supported."""

    role = "groundedness_grader"
    schema = GROUNDEDNESS_GRADE
    remark = "unsupported"

    def check(self, answer: str, documents: Sequence[Document]) -> Check:
        """No model is asked where there is nothing to judge: no answer, or no documents, is a no."""
        if not answer.strip() or not documents:
            return self._verdict(False, 0.0, "no documents" if answer.strip() else "no answer")
        return self._check(
            {"answer": as_data(answer, MAX_ANSWER_CHARS), "documents": numbered_documents(documents)}
        )


class OpenAIAnswerGrader(_Checker):
    """`roles.AnswerGrader`. `detail` of a no is what the answer leaves out."""

    role = "answer_grader"
    schema = ANSWER_GRADE
    remark = "missing"

    def check(self, question: str, answer: str) -> Check:
        """An empty answer is a no, without asking a model."""
        if not answer.strip():
            return self._verdict(False, 0.0, "no answer")
        return self._check(
            {
                "question": as_data(question, MAX_QUESTION_CHARS),
                "answer": as_data(answer, MAX_ANSWER_CHARS),
            }
        )
