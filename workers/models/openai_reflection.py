"""Routing, extracting, feedback and apology by a chat model. Output without use raises UnusableOutput."""

from collections.abc import Sequence
from typing import Any

from shared.clean import clean_text, one_line
from workers.models.openai import as_description
from workers.models.openai_client import StructuredReply
from workers.models.openai_role import Role, text_field, unusable
from workers.models.prompts import (
    MAX_ANSWER_CHARS,
    MAX_DOCUMENT_CHARS,
    MAX_FEEDBACK_CHARS,
    MAX_QUESTION_CHARS,
    as_data,
    as_title,
)
from workers.models.roles import Document
from workers.models.schemas import APOLOGY_TEXT, EXTRACTED_PASSAGES, FEEDBACK_REMARK, ROUTE_CHOICE

ROUTES = ("vectorstore", "websearch", "direct")
_WEB_OFF = "Now the web cannot be searched: choose one of the other two."
_MAX_PASSAGES = 20
_MAX_APOLOGY_CHARS = 1_000
_MAX_TRIED = 30


class OpenAIRouter(Role):
    """`roles.Router`. A word that is no route, or the web where it is off, raises UnusableOutput."""

    role = "router"
    schema = ROUTE_CHOICE

    def route(self, question: str, description: str, web: bool) -> str:
        values = {
            "question": as_data(question, MAX_QUESTION_CHARS),
            "description": as_description(description),
            "websearch": "" if web else _WEB_OFF,
        }
        return str(self._ask("route", lambda reply: _read_route(reply, web), values)["route"])


def _read_route(reply: StructuredReply, web: bool) -> dict[str, Any]:
    route = text_field(reply, "route").strip(".!\"'`* ").lower()
    if route not in ROUTES:
        unusable(reply, "the model named no route that there is")
    if route == "websearch" and not web:
        unusable(reply, "the model chose the web, which is off")
    return {"route": route}


class OpenAIKnowledgeExtractor(Role):
    """`roles.KnowledgeExtractor`. A reply without a list raises UnusableOutput; an empty list is an answer."""

    role = "knowledge_extractor"
    schema = EXTRACTED_PASSAGES

    def extract(self, question: str, document: Document) -> list[str]:
        values = {
            "question": as_data(question, MAX_QUESTION_CHARS),
            "title": as_title(document["title"]),
            "document": as_data(document["text"], MAX_DOCUMENT_CHARS),
        }
        passages: list[str] = self._ask("passages", _read_passages, values)["passages"]
        return passages


def _read_passages(reply: StructuredReply) -> dict[str, Any]:
    stated = (reply.parsed or {}).get("passages")
    if isinstance(stated, str):
        stated = [stated]
    if not isinstance(stated, list):
        unusable(reply, "the model gave no list of passages")
    texts = [clean_text(item).strip() for item in stated if isinstance(item, str)]
    return {"passages": list(dict.fromkeys(text for text in texts if text))[:_MAX_PASSAGES]}


class OpenAIFeedbackWriter(Role):
    """`roles.FeedbackWriter`. No text in the reply raises UnusableOutput."""

    role = "feedback_writer"
    schema = FEEDBACK_REMARK

    def on_query(self, question: str, query: str, target: str) -> str:
        values = {"query": as_data(query, MAX_QUESTION_CHARS), "target": as_title(target)}
        return self._write("feedback_writer.on_query", question, values)

    def on_answer(self, question: str, answer: str, problem: str) -> str:
        values = {"answer": as_data(answer, MAX_ANSWER_CHARS), "problem": as_title(problem)}
        return self._write("feedback_writer.on_answer", question, values)

    def _write(self, name: str, question: str, values: dict[str, str]) -> str:
        values["question"] = as_data(question, MAX_QUESTION_CHARS)
        return str(self._ask("feedback", _read_feedback, values, prompt=self._prompts(name))["feedback"])


def _read_feedback(reply: StructuredReply) -> dict[str, Any]:
    feedback = one_line(text_field(reply, "feedback"), MAX_FEEDBACK_CHARS)
    if not feedback:
        unusable(reply, "the model gave no feedback")
    return {"feedback": feedback}


class OpenAIApologyWriter(Role):
    """`roles.ApologyWriter`. No text in the reply raises UnusableOutput."""

    role = "apology_writer"
    schema = APOLOGY_TEXT

    def apologise(self, question: str, tried: Sequence[str]) -> str:
        phrases = [one_line(phrase, 200) for phrase in tried if phrase.strip()][:_MAX_TRIED]
        listed = "\n".join(f"- {as_data(phrase, 200)}" for phrase in phrases)
        values = {"question": as_data(question, MAX_QUESTION_CHARS), "tried": listed or "- nothing"}
        return str(self._ask("apology", _read_apology, values)["apology"])


def _read_apology(reply: StructuredReply) -> dict[str, Any]:
    apology = one_line(text_field(reply, "apology"), _MAX_APOLOGY_CHARS)
    if not apology:
        unusable(reply, "the model wrote no message")
    return {"apology": apology}
