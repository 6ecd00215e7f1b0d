"""The one way in which a chat model is asked: a prompt in, a JSON object out, every failure labelled.

The client never retries and never waits (the runner does), and it has a deadline for the whole reply:
httpx's own timeout starts anew with each byte, so that a slow drip would hold a worker's thread for ever.
"""

import re
import ssl
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import httpx

from shared.errors import CallError
from workers.models.lenient import json_object
from workers.models.openai_errors import as_call_error, refuses_temperature
from workers.models.openai_usage import with_sound_usage
from workers.models.rate_headers import heard

if TYPE_CHECKING:
    from langchain_openai import ChatOpenAI

Method = Literal["json_schema", "function_calling", "json_mode"]

PLACEHOLDER_KEY = "no-key"  # servers of one's own need none, but the client refuses to start without
_NO_TEMPERATURE = re.compile(r"(?:.*/)?(?:o\d|gpt-5(?!-chat)|gpt-6)", re.IGNORECASE)


class _DeadlineStream(httpx.SyncByteStream):
    def __init__(self, stream: httpx.SyncByteStream, deadline: float) -> None:
        self._stream = stream
        self._deadline = deadline

    def __iter__(self) -> Iterator[bytes]:
        for part in self._stream:
            if time.monotonic() > self._deadline:
                raise httpx.ReadTimeout("the reply did not end in time")
            yield part

    def close(self) -> None:
        self._stream.close()


@lru_cache(maxsize=1)
def _trusted() -> ssl.SSLContext:
    """The certificates that are trusted: a megabyte to read, and the same for every client."""
    return httpx.create_ssl_context()


class DeadlineClient(httpx.Client):
    """An httpx client whose timeout also bounds the whole body, not only the pause between two bytes."""

    def __init__(self, seconds: float) -> None:
        super().__init__(
            timeout=httpx.Timeout(seconds, connect=min(seconds, 10.0)),
            follow_redirects=True,
            limits=httpx.Limits(max_connections=200, max_keepalive_connections=50),
            verify=_trusted(),
        )
        self._seconds = seconds

    def send(self, request: httpx.Request, *, stream: bool = False, **options: Any) -> httpx.Response:
        deadline = time.monotonic() + self._seconds
        response = super().send(request, stream=True, **options)
        heard(response.headers)
        assert isinstance(response.stream, httpx.SyncByteStream)
        response.stream = _DeadlineStream(response.stream, deadline)
        if stream:
            return response
        try:
            response.read()
        finally:
            response.close()
        return with_sound_usage(response) if response.is_success else response


@dataclass(frozen=True)
class OpenAISettings:
    """How to reach a server. `base_url` None: OpenAI's own. `timeout`: seconds for a whole call."""

    api_key: str | None = field(repr=False)
    base_url: str | None
    timeout: float = 60.0
    method: Method = "json_schema"
    max_output_tokens: int | None = None

    @property
    def key(self) -> str:
        """The key; a placeholder when only a base URL is set."""
        return self.api_key or PLACEHOLDER_KEY


@dataclass(frozen=True)
class StructuredReply:
    """What came back. `parsed` is None when no wanted JSON object was found; `problem` then says why.

    `problem` is "", "unusable_output", "truncated" or "refused". Tokens are None when the server did not say.
    """

    parsed: dict[str, Any] | None
    text: str
    problem: str
    input_tokens: int | None
    output_tokens: int | None


class ChatModel:
    """One model behind one server, for one schema. Safe to share between threads."""

    def __init__(self, settings: OpenAISettings, model: str, schema: dict[str, Any]) -> None:
        self.settings = settings
        self.model = model
        self.schema = schema
        self._lock = threading.Lock()
        self._runnable: Any = None
        self._temperature: float | None = None if _NO_TEMPERATURE.match(model) else 0.0
        self._http = DeadlineClient(settings.timeout)

    @property
    def name(self) -> str:
        """The schema's name, which is also what a scripted server knows the role by."""
        return str(self.schema["title"])

    @property
    def deterministic(self) -> bool:
        """Whether it is asked at temperature 0."""
        return self._temperature == 0.0

    def invoke(self, system: str, human: str) -> dict[str, Any]:
        """LangChain's {"raw", "parsed", "parsing_error"}. Raises whatever the client raises."""
        from langchain_core.messages import HumanMessage, SystemMessage

        messages = [SystemMessage(system), HumanMessage(human)]
        try:
            result = self._get().invoke(messages)
        except Exception as error:
            if self._temperature is None or not refuses_temperature(error):
                raise
            with self._lock:  # a model we did not know to be of that kind; ask it without, from now on
                self._temperature = None
                self._runnable = None
            result = self._get().invoke(messages)
        assert isinstance(result, dict)
        return result

    def _get(self) -> Any:
        with self._lock:
            if self._runnable is None:
                self._runnable = self._build()
            return self._runnable

    def _build(self) -> Any:
        options: dict[str, Any] = {"strict": True} if self.settings.method == "json_schema" else {}
        # A dict, not a pydantic class: with a class the client itself raises on prose, and the text is lost.
        return self._chat().with_structured_output(
            self.schema, method=self.settings.method, include_raw=True, **options
        )

    def _chat(self) -> "ChatOpenAI":
        from langchain_openai import ChatOpenAI
        from pydantic import SecretStr

        options: dict[str, Any] = {} if self._temperature is None else {"temperature": self._temperature}
        if self.settings.max_output_tokens is not None:
            options["max_tokens"] = self.settings.max_output_tokens
        return ChatOpenAI(
            model=self.model,
            api_key=SecretStr(self.settings.key),
            base_url=self.settings.base_url,
            timeout=self.settings.timeout,
            max_retries=0,
            http_client=self._http,
            **options,
        )


_shared: dict[tuple[OpenAISettings, str, str], ChatModel] = {}
_sharing = threading.Lock()


def shared_chat_model(settings: OpenAISettings, model: str, schema: dict[str, Any]) -> ChatModel:
    """One `ChatModel` a process for equal arguments, so that tasks share connections to the server."""
    key = (settings, model, str(schema["title"]))
    with _sharing:
        if key not in _shared:
            _shared[key] = ChatModel(settings, model, schema)
        return _shared[key]


def structured_call(chat: ChatModel, system: str, human: str, wanted: str) -> StructuredReply:
    """Asks `chat`, and finds the JSON object with the key `wanted` in whatever it answers.

    Raises TransientError or PermanentError (see `openai_errors`); an answer that was given but is of no
    use is no error here: `problem` says so, because a grader and a rewriter take it differently.
    """
    failure: CallError | None = None
    result: dict[str, Any] = {}
    if chat.settings.method == "json_mode":
        system = f"{system}\n\n{_json_instruction(chat.schema)}"
    try:
        result = chat.invoke(system, human)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is mapped, and nothing of it is shown
        truncated = _reply_cut_short(error)
        if truncated is not None:
            return truncated
        failure = as_call_error(
            error, model=chat.model, method=chat.settings.method, timeout=chat.settings.timeout
        )
    if failure is not None:
        raise failure  # out here, so that the client's exception is not its context
    return _read(result, wanted, chat.settings)


def _json_instruction(schema: dict[str, Any]) -> str:
    fields = ", ".join(f'"{name}": {field["description"]}' for name, field in schema["properties"].items())
    return f"Reply with one JSON object of the form {schema['title']} and nothing else: {{{fields}}}"


def _reply_cut_short(error: Exception) -> StructuredReply | None:
    """The replies that the client turns into exceptions although they were paid for."""
    import openai

    problems: dict[type[Exception], str] = {
        openai.LengthFinishReasonError: "truncated",
        openai.ContentFilterFinishReasonError: "refused",
    }
    problem = problems.get(type(error))
    if problem is None:
        return None
    usage = getattr(getattr(error, "completion", None), "usage", None)
    return StructuredReply(
        parsed=None,
        text="",
        problem=problem,
        input_tokens=getattr(usage, "prompt_tokens", None),
        output_tokens=getattr(usage, "completion_tokens", None),
    )


def _read(result: dict[str, Any], wanted: str, settings: OpenAISettings) -> StructuredReply:
    raw = result["raw"]
    text = _text_of(raw)
    if settings.api_key:  # a server that echoes it must not get it into a grade's detail
        text = text.replace(settings.api_key, "[key]")
    usage = raw.usage_metadata or {}
    parsed = None if _is_truncated(raw) else _object_of(raw, text, wanted)
    if parsed is not None and settings.api_key:
        parsed = _without(settings.api_key, parsed)
    problem = "" if parsed is not None else _problem_of(raw)
    return StructuredReply(parsed, text, problem, usage.get("input_tokens"), usage.get("output_tokens"))


def _without(key: str, value: Any) -> Any:
    """A JSON value with the API key taken out of its every string."""
    if isinstance(value, str):
        return value.replace(key, "[key]")
    if isinstance(value, dict):
        return {name.replace(key, "[key]"): _without(key, item) for name, item in value.items()}
    if isinstance(value, list):
        return [_without(key, item) for item in value]
    return value


def _object_of(raw: Any, text: str, wanted: str) -> dict[str, Any] | None:
    """The arguments of the tool call, or an object in the text: fenced, in prose, in a broken call.

    LangChain's own `parsed` is not used: its parsers mend half a JSON text, and half an answer is none.
    """
    for call in raw.tool_calls:
        arguments = call.get("args")
        if isinstance(arguments, dict) and wanted in arguments:
            return arguments
    return json_object(text, wanted)


def _is_truncated(raw: Any) -> bool:
    return bool(raw.response_metadata.get("finish_reason") == "length")


def _text_of(raw: Any) -> str:
    parts = [raw.content if isinstance(raw.content, str) else str(raw.text)]
    parts += [str(call.get("args") or "") for call in raw.invalid_tool_calls]
    return "\n".join(part for part in parts if part)


def _problem_of(raw: Any) -> str:
    if _is_truncated(raw):
        return "truncated"
    refused = raw.response_metadata.get("finish_reason") == "content_filter"
    if refused or raw.additional_kwargs.get("refusal"):
        return "refused"
    return "unusable_output"
