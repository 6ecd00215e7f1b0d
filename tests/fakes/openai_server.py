"""A scripted OpenAI: a real HTTP server that speaks /v1/chat/completions and /v1/embeddings.

    with FakeOpenAI(script) as fake:
        OpenAISettings(api_key="k", base_url=fake.base_url, ...)

A script is called with (role, payload) for each chat request and returns a `Reply`, best made by `content`,
`prose`, `api_error` and the functions below. The role is known by the name of the schema or tool, in JSON mode
by that name in the system prompt. `sequence` makes a script of a list.
"""

import hashlib
import json
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from tests.fakes.http_fake import FakeServer, Reply

Script = Callable[[str, dict[str, Any]], Reply]

ROLE_OF_SCHEMA = {
    "RelevanceGrade": "relevance_grader",
    "SearchQuery": "query_rewriter",
    "CitedAnswer": "answer_generator",
    "DirectAnswer": "answer_generator",
    "GroundednessGrade": "groundedness_grader",
    "AnswerGrade": "answer_grader",
    "RouteChoice": "router",
    "ExtractedPassages": "knowledge_extractor",
    "FeedbackRemark": "feedback_writer",
    "ApologyText": "apology_writer",
    "Canary": "canary",
}
_FIXED_REPLIES: dict[str, dict[str, Any]] = {
    "groundedness_grader": {"unsupported": "", "binary_score": "yes", "score": 1.0},
    "answer_grader": {"missing": "", "binary_score": "yes", "score": 1.0},
    "router": {"route": "vectorstore"},
    "feedback_writer": {"feedback": "try other words"},
    "canary": {"word": "yes"},
}
_SCHEMA_IN_TEXT = re.compile("|".join(ROLE_OF_SCHEMA))
_WORD = re.compile(r"\w+")
_FIRST_SENTENCE = re.compile(r".*?(?:[.!?](?=\s|$)|$)", re.DOTALL)
_SMALL = {"the", "and", "for", "are", "was", "what", "who", "when", "where", "how", "which"} | {
    *("does", "did", "has", "have", "with", "from", "that", "this")
}


# -- replies --------------------------------------------------------------------------------------------


def content(value: dict[str, Any], *, usage: bool = True, **misbehaviour: Any) -> Reply:
    """The structured answer `value`, in whatever way the request asked for it."""
    return _chat(json.dumps(value), usage=usage, structured=True, **misbehaviour)


def prose(text: str, *, usage: bool = True, finish_reason: str = "stop", **misbehaviour: Any) -> Reply:
    """Plain message text, whatever was asked for: garbage, fenced JSON, a lecture."""
    return _chat(text, usage=usage, structured=False, finish_reason=finish_reason, **misbehaviour)


def refusal(text: str = "I can't help with that.") -> Reply:
    reply = _chat("", usage=True, structured=False)
    reply.body["choices"][0]["message"].update(content=None, refusal=text)
    return reply


def bad_tool_call(arguments: str) -> Reply:
    """A tool call whose arguments are sent as they are, broken or not."""
    reply = _chat(arguments, usage=True, structured=True)
    reply.body["as_tool_call"] = True
    return reply


def api_error(
    status: int,
    code: str | None = None,
    message: str = "scripted error",
    *,
    param: str | None = None,
    **options: Any,
) -> Reply:
    """An error in OpenAI's form; `options` are those of `Reply`, `headers` for one."""
    body = {"error": {"message": message, "type": code or "error", "param": param, "code": code}}
    return Reply(status=status, body=body, **options)


def rate_limited(retry_after: str | None = "1") -> Reply:
    headers = {} if retry_after is None else {"Retry-After": retry_after}
    return api_error(429, "rate_limit_exceeded", headers=headers)


def quota_gone() -> Reply:
    return api_error(429, "insufficient_quota", headers={"Retry-After": "1"})


def _chat(
    text: str, *, usage: bool, structured: bool, finish_reason: str = "stop", **misbehaviour: Any
) -> Reply:
    body: dict[str, Any] = {
        "id": "chatcmpl-fake",
        "object": "chat.completion",
        "created": 1,
        "model": "fake",
        "choices": [
            {
                "index": 0,
                "finish_reason": finish_reason,
                "message": {"role": "assistant", "content": text, "refusal": None},
            }
        ],
        "structured": structured,
    }
    if usage:
        body["usage"] = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    return Reply(body=body, **misbehaviour)


# -- scripts --------------------------------------------------------------------------------------------


def sequence(*replies: Reply) -> Script:
    """One reply after the other, the last one again and again. For one client thread."""
    left = list(replies)
    return lambda role, payload: left.pop(0) if len(left) > 1 else left[0]


def by_role(**scripts: Script) -> Script:
    """A script a role; roles without one get the default."""
    return lambda role, payload: scripts.get(role, default_script)(role, payload)


def default_script(role: str, payload: dict[str, Any]) -> Reply:
    """Relevant when at least half of the question's content words are in the document; the web query is
    `web: ` and the question, the store's `store: ` and the question; the answer cites document 1 and quotes
    its beginning, or is `Directly: ` and the question. Answers are grounded and useful, every question goes
    to the store, and of each document the first sentence is extracted."""
    question = question_of(payload)
    if role == "relevance_grader":
        wanted = content_words(question)
        found = wanted & content_words(documents_of(payload)[0])
        share = len(found) / len(wanted) if wanted else 0.0
        return content({"binary_score": "yes" if share >= 0.5 else "no", "score": round(share, 3)})
    if role == "query_rewriter":
        kind = "store" if "<description>" in _human(payload) else "web"
        return content({"query": f"{kind}: {question}"})
    if role == "answer_generator" and "<document " not in _human(payload):
        return content({"answerable": True, "answer": f"Directly: {question}"})
    if role == "answer_generator":
        first = documents_of(payload)[0][:80].strip()
        return content({"answerable": True, "answer": f"{first} [1]", "cited": [1]})
    if role == "knowledge_extractor":
        return content({"passages": [_FIRST_SENTENCE.match(documents_of(payload)[0]).group().strip()]})
    if role in _FIXED_REPLIES:
        return content(_FIXED_REPLIES[role])
    if role == "apology_writer":
        return content({"apology": f"Sorry: no answer was found to {question}"})
    return api_error(400, "unknown_role", f"no schema that the fake knows: {role}")


def question_of(payload: dict[str, Any]) -> str:
    match = re.search(r"<question>\n(.*?)\n</question>", _human(payload), re.DOTALL)
    return match.group(1) if match else ""


def documents_of(payload: dict[str, Any]) -> list[str]:
    return re.findall(r"<document [^>]*>\n(.*?)\n</document>", _human(payload), re.DOTALL) or [""]


def answer_of(payload: dict[str, Any]) -> str:
    """The answer that a grader or a feedback writer was shown."""
    match = re.search(r"<answer[^>]*>\n(.*?)\n</answer>", _human(payload), re.DOTALL)
    return match.group(1) if match else ""


def feedback_of(payload: dict[str, Any]) -> list[str]:
    """The remarks on earlier tries that a rewriter or a generator was shown."""
    match = re.search(r"<feedback>\n(.*?)\n</feedback>", _human(payload), re.DOTALL)
    return [line.removeprefix("- ") for line in match.group(1).split("\n")] if match else []


def content_words(text: str) -> set[str]:
    return {word for word in _WORD.findall(text.lower()) if len(word) > 2 and word not in _SMALL}


def _human(payload: dict[str, Any]) -> str:
    return str(payload["messages"][-1]["content"])


# -- the server -----------------------------------------------------------------------------------------


class FakeOpenAI(FakeServer):
    """`embedding_replies`, when given, is called with the payload and may return a Reply or None."""

    def __init__(
        self,
        script: Script = default_script,
        *,
        dimension: int = 256,
        embedding_replies: Callable[[dict[str, Any]], Reply | None] | None = None,
    ) -> None:
        super().__init__()
        self.script = script
        self.dimension = dimension
        self._embedding_replies = embedding_replies

    @property
    def base_url(self) -> str:
        return f"{self.root_url}/v1"

    def reply_to(self, path: str, payload: dict[str, Any], headers: dict[str, str]) -> tuple[str, Reply]:
        if path == "/v1/embeddings":
            scripted = self._embedding_replies(payload) if self._embedding_replies else None
            return "embedder", scripted or self._embeddings(payload)
        if path != "/v1/chat/completions":
            return "unknown_path", api_error(404, "not_found", f"no such path: {path}")
        role = role_of(payload)
        return role, _as_asked(self.script(role, payload), payload)

    def _embeddings(self, payload: dict[str, Any]) -> Reply:
        texts = payload["input"] if isinstance(payload["input"], list) else [payload["input"]]
        rows = [
            {"object": "embedding", "index": index, "embedding": hashed_vector(text, self.dimension)}
            for index, text in enumerate(texts)
        ]
        tokens = sum(len(_WORD.findall(text)) for text in texts)
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return Reply(body={"object": "list", "model": payload["model"], "data": rows, "usage": usage})


def role_of(payload: dict[str, Any]) -> str:
    schema = (payload.get("response_format") or {}).get("json_schema") or {}
    tools = payload.get("tools") or [{}]
    name = schema.get("name") or tools[0].get("function", {}).get("name")
    if name is None:
        match = _SCHEMA_IN_TEXT.search(str(payload["messages"][0]["content"]))
        name = match.group() if match else ""
    return ROLE_OF_SCHEMA.get(name, f"unknown:{name}")


def _as_asked(reply: Reply, payload: dict[str, Any]) -> Reply:
    """Turns a structured answer into a tool call where the request brought tools."""
    if not isinstance(reply.body, dict) or "choices" not in reply.body:
        return reply
    structured = reply.body.pop("structured", False)
    forced = reply.body.pop("as_tool_call", False)
    if (structured and payload.get("tools")) or forced:
        choice = reply.body["choices"][0]
        name = (payload.get("tools") or [{"function": {"name": "RelevanceGrade"}}])[0]["function"]["name"]
        call = {"name": name, "arguments": choice["message"]["content"]}
        choice["message"].update(
            content=None, tool_calls=[{"id": "call_1", "type": "function", "function": call}]
        )
        choice["finish_reason"] = "tool_calls"
    return reply


def hashed_vector(text: str, dimension: int) -> list[float]:
    """A unit vector by hashed words: the same everywhere, near for texts that share words."""
    vector = [0.0] * dimension
    for word in content_words(text) or {"nothing"}:
        digest = hashlib.blake2b(word.encode("utf-8", "replace"), digest_size=8).digest()
        number = int.from_bytes(digest, "big")
        vector[number % dimension] += 1.0 if number >> 63 else -1.0
    length = math.sqrt(sum(value * value for value in vector)) or 1.0
    return [value / length for value in vector]


def roles_asked(requests: Sequence[Any]) -> list[str]:
    """The roles of logged requests, in order."""
    return [request.role for request in requests]
