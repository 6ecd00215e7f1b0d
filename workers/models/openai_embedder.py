"""Embeddings from a server that speaks OpenAI's API."""

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any

from shared.clean import clean_text
from shared.errors import CallError
from workers.models.calls import UnusableOutput
from workers.models.openai_client import DeadlineClient, OpenAISettings
from workers.models.openai_errors import WHERE, as_call_error
from workers.models.roles import CallRecorder, CallResult, CallSpec

_DIMENSIONS = {"text-embedding-3-small": 1536, "text-embedding-3-large": 3072, "text-embedding-ada-002": 1536}
_TEXTS_A_REQUEST = 128
_BYTES_A_REQUEST = 400_000  # OpenAI refuses more than 300,000 tokens in one request
_BYTES_A_TEXT = 20_000  # and more than 8,191 in one text; a token is rarely less than 2.5 bytes


class OpenAIEmbedder:
    """`roles.Embedder`. Safe to share between threads.

    With a recorder each request is recorded with its tokens, but without its vectors (`reusable=False`).
    Errors as of the chat roles.
    """

    def __init__(self, settings: OpenAISettings, model: str, recorder: CallRecorder | None = None) -> None:
        self.model = model
        self.name = f"openai/{model}"
        self._settings = settings
        self._recorder = recorder
        # another server may call another model by a name of OpenAI's
        self._dimension = None if settings.base_url else _DIMENSIONS.get(model)

    @property
    def dimension(self) -> int:
        """Known for OpenAI's models; of others one text is embedded to see, once."""
        if self._dimension is None:
            self._dimension = len(self.embed_query("dimension"))
        return self._dimension

    def embed_documents(self, texts: Sequence[str]) -> list[list[float]]:
        """One vector a text, same order. Texts are cut to what the models read; an empty text is a blank."""
        vectors: list[list[float]] = []
        for batch in _batches([_readable(text) for text in texts]):
            vectors += self._recorded(batch)
        return vectors

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]

    def _recorded(self, batch: list[str]) -> list[list[float]]:
        vectors: list[list[float]] = []

        def perform() -> CallResult:
            found, tokens = self._request(batch)
            vectors.extend(found)
            return CallResult(None, tokens, None)

        if self._recorder is None:
            perform()
        else:
            digest = sha256("\x1f".join(batch).encode()).hexdigest()
            spec = CallSpec(
                role="embedder",
                provider="openai",
                model=self.model,
                prompt_version="none",
                request={"texts": len(batch), "sha256": digest},
                reusable=False,
                size=sum(len(text.encode()) for text in batch),
            )
            self._recorder.call(spec, perform)
        return vectors

    def _request(self, batch: list[str]) -> tuple[list[list[float]], int | None]:
        failure: CallError | None = None
        response: Any = None
        try:
            # The client's own resource, because `embed_documents` of LangChain drops the token counts.
            response = _client(self._settings, self.model).create(
                input=batch, model=self.model, encoding_format="float"
            )
        except Exception as error:  # noqa: BLE001 - mapped, and nothing of it is shown
            failure = as_call_error(error, model=self.model, timeout=self._settings.timeout)
        if failure is not None:
            raise failure  # out here, so that the client's exception is not its context
        tokens = getattr(getattr(response, "usage", None), "prompt_tokens", None)
        return _vectors_of(response, len(batch), tokens), tokens


@lru_cache(maxsize=32)
def _client(settings: OpenAISettings, model: str) -> Any:
    """OpenAI's embeddings resource; one a process, so that tasks share connections to the server."""
    from langchain_openai import OpenAIEmbeddings
    from pydantic import SecretStr

    embeddings = OpenAIEmbeddings(
        model=model,
        openai_api_key=SecretStr(settings.key),
        openai_api_base=settings.base_url,
        request_timeout=settings.timeout,
        max_retries=0,
        check_embedding_ctx_length=False,  # it would download a tokenizer's file
        http_client=DeadlineClient(settings.timeout),
    )
    return embeddings.client


def _readable(text: str) -> str:
    text = clean_text(text)
    encoded = text.encode()
    if len(encoded) > _BYTES_A_TEXT:
        text = encoded[:_BYTES_A_TEXT].decode(errors="ignore")
    return text if text.strip() else " "


def _batches(texts: list[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for text in texts:
        length = len(text.encode())
        if batch and (len(batch) == _TEXTS_A_REQUEST or size + length > _BYTES_A_REQUEST):
            yield batch
            batch, size = [], 0
        batch.append(text)
        size += length
    if batch:
        yield batch


def _vectors_of(response: Any, count: int, tokens: int | None) -> list[list[float]]:
    """The vectors in the order of the texts: servers may send them in any, with an index."""
    try:
        rows = sorted(response.data, key=lambda row: row.index)
        vectors = [[float(value) for value in row.embedding] for row in rows]
        positions = [row.index for row in rows]
    except (AttributeError, TypeError, ValueError):
        vectors, positions = [], []
    widths = {len(vector) for vector in vectors}
    finite = all(math.isfinite(sum(vector)) for vector in vectors)
    if positions != list(range(count)) or len(widths) != 1 or 0 in widths or not finite:
        raise UnusableOutput(
            "the server did not send one vector for each text", where=WHERE, input_tokens=tokens
        )
    return vectors
