"""Scripted models whose word depends on the request alone, behind servers that fail at random.

A calm run and a stormy one therefore must come to the same answers.
"""

import hashlib
import random
import threading
from dataclasses import replace
from typing import Any

from tests.fakes import openai_server, tavily_server
from tests.fakes.http_fake import Reply

GARBAGE = b'{"choices": [{"message": {"content": "```json\\n{\\"binary_sc'


def chat(role: str, payload: dict[str, Any]) -> Reply:
    """Two documents in three are relevant, one answer in twelve is refused: so every way is taken."""
    question = openai_server.question_of(payload)
    if role == "relevance_grader":
        number = _number(question, openai_server.documents_of(payload)[0])
        verdict = "yes" if number % 3 else "no"
        return openai_server.content({"binary_score": verdict, "score": round(number % 100 / 100, 2)})
    if role == "answer_generator" and _number(question) % 12 == 0:
        return openai_server.content({"answerable": False, "answer": "", "cited": []})
    return openai_server.default_script(role, payload)


def _number(*texts: str) -> int:
    digest = hashlib.blake2b("\n".join(texts).encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(digest, "big")


class Weather:
    """Decides for each request whether the server misbehaves. `share`: how often, 0 to 1; 0 is calm."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self.share = 0.0
        self.latency = 0.0  # seconds, at most
        self.faults: dict[str, int] = {}

    def chat(self, role: str, payload: dict[str, Any]) -> Reply:
        fault = self._fault()
        if fault is None:
            return replace(chat(role, payload), latency=self._pause())
        if fault == "slow drip":
            return replace(chat(role, payload), drip=0.05)
        if (
            fault == "wrong schema" and role != "relevance_grader"
        ):  # a grader's odd word is a verdict: unparsed
            return openai_server.content({"colour": "blue"})
        return _broken("500" if fault == "wrong schema" else fault)

    def embeddings(self, payload: dict[str, Any]) -> Reply | None:
        fault = self._fault()
        return None if fault in (None, "wrong schema", "slow drip") else _broken(fault or "")

    def web(self, payload: dict[str, Any]) -> Reply:
        fault = self._fault()
        if fault is None:
            return replace(tavily_server.default_script(payload), latency=self._pause())
        if fault in ("wrong schema", "slow drip"):
            return tavily_server.api_error(503)
        return tavily_server.api_error(429) if fault == "429" else _broken(fault)

    def _pause(self) -> float:
        with self._lock:
            return self._random.uniform(0, self.latency)

    def _fault(self) -> str | None:
        kinds = ("429", "500", "500", "cut", "garbage", "wrong schema", "slow drip", "hang")
        with self._lock:
            if self._random.random() >= self.share:
                return None
            kind = self._random.choice(kinds)
            self.faults[kind] = self.faults.get(kind, 0) + 1
            return kind


def _broken(fault: str) -> Reply:
    match fault:
        case "429":
            return openai_server.rate_limited("1")
        case "500":
            return openai_server.api_error(500)
        case "cut":
            return Reply(body={"choices": "x" * 200}, cut=True)
        case "garbage":
            return Reply(raw=GARBAGE)
        case _:
            return Reply(hang=True)
