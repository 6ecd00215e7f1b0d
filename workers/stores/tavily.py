"""Web search through Tavily. Errors are Cragline's own, every search is recorded, a key is demanded."""

import math
import threading
import time
from hashlib import sha256
from typing import Any

import requests
import urllib3

from shared.clean import clean_text, one_line
from shared.errors import CallError, PermanentError, TransientError
from workers.models.calls import UnusableOutput
from workers.models.rate_headers import heard
from workers.models.retry_after import retry_after_seconds
from workers.models.roles import CallRecorder, CallResult, CallSpec, Document

WHERE = "tavily"
_MAX_QUERY_CHARS = 390  # Tavily refuses queries of more than 400
_MAX_RESULTS = 20  # Tavily's own limit
_MAX_TEXT_CHARS = 20_000
_MAX_BODY_BYTES = 10_000_000


class _Session(requests.Session):
    """A session with a deadline for the whole reply, which keeps the headers that TavilyClient throws away.

    The timeout of requests starts anew with each byte, so that a slow drip would hold a thread for ever.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds
        self._last = threading.local()
        adapter = requests.adapters.HTTPAdapter(pool_maxsize=64, max_retries=0)
        self.mount("https://", adapter)
        self.mount("http://", adapter)

    @property
    def last_headers(self) -> dict[str, str]:
        """Headers of this thread's last reply."""
        headers: dict[str, str] = getattr(self._last, "headers", {})
        return headers

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        self._last.headers = {}
        deadline = time.monotonic() + self._seconds
        response = super().send(request, **{**options, "stream": True})
        self._last.headers = dict(response.headers)
        heard(response.headers)
        if not response._content_consumed:  # redirects come through here once more, already read
            response._content = _body(response, deadline)
            response._content_consumed = True
        return response


def _body(response: requests.Response, deadline: float) -> bytes:
    body = bytearray()
    try:
        while part := response.raw.read1(
            65_536, decode_content=True
        ):  # what is there, without waiting for more
            body += part
            if time.monotonic() > deadline:
                raise requests.exceptions.ReadTimeout("the reply did not end in time")
            if len(body) > _MAX_BODY_BYTES:
                raise ValueError("the reply is too long")
    finally:
        response.close()
    return bytes(body)


class TavilySearch:
    """`roles.WebSearch`. Safe to share between threads.

    Raises PermanentError for a wrong key ("bad_key"), a used-up plan ("quota") and refused requests, and
    TransientError for rate limits, timeouts, cut connections, server errors and unreadable replies.
    """

    def __init__(self, api_key: str, base_url: str | None, timeout: float, recorder: CallRecorder) -> None:
        if not api_key or not api_key.strip():
            # TavilyClient would quietly search without a key, under limits of its own.
            raise PermanentError("web search needs TAVILY_API_KEY", code="no_key", where=WHERE)
        from tavily import TavilyClient

        self._timeout = timeout
        self._recorder = recorder
        self._session = _Session(timeout)
        self._client = TavilyClient(
            api_key=api_key.strip(),
            api_base_url=base_url.rstrip("/") if base_url else None,
            session=self._session,
        )

    def search(self, query: str, k: int) -> list[Document]:
        """At most `k` documents, best first, ids `web:` and a digest of
        address and text, so that two searches of a run agree on what is the same. Queries are cut to 390 characters."""
        query = one_line(clean_text(query), _MAX_QUERY_CHARS)
        spec = CallSpec(
            role="web_search",
            provider="tavily",
            model="search",
            prompt_version="none",
            request={"query": query, "k": k},
        )
        documents: list[Document] = self._recorder.call(spec, lambda: CallResult(self._search(query, k)))
        return documents

    def _search(self, query: str, k: int) -> list[Document]:
        failure: CallError | None = None
        reply: Any = None
        try:
            reply = self._client.search(
                query, max_results=max(1, min(k, _MAX_RESULTS)), timeout=self._timeout
            )
        except Exception as error:  # noqa: BLE001 - mapped, and nothing of it is shown
            failure = self._as_call_error(error)
        if failure is not None:
            raise failure  # out here, so that the client's exception is not its context
        found = reply.get("results") if isinstance(reply, dict) else None
        if not isinstance(found, list):
            raise UnusableOutput("the reply holds no list of results", where=WHERE)
        return _documents(found)[:k]

    def _as_call_error(self, error: Exception) -> CallError:
        """Cragline's word for what TavilyClient raised. Quotes nothing: a body may echo the key."""
        from tavily import errors

        if isinstance(error, errors.UsageLimitExceededError):
            wait = retry_after_seconds(self._session.last_headers)
            return TransientError(
                "rate limit reached (HTTP 429)", code="rate_limited", where=WHERE, retry_after=wait
            )
        if isinstance(error, errors.ForbiddenError):
            return PermanentError(
                "the key may not search, or its plan is used up (HTTP 403, 432 or 433)",
                code="quota",
                where=WHERE,
            )
        if isinstance(error, (errors.InvalidAPIKeyError, errors.MissingAPIKeyError)):
            return PermanentError("the key was refused; check TAVILY_API_KEY", code="bad_key", where=WHERE)
        if isinstance(error, errors.BadRequestError):
            return PermanentError("the search was refused (HTTP 400)", code="bad_request", where=WHERE)
        if isinstance(
            error, (errors.TimeoutError, requests.exceptions.Timeout, urllib3.exceptions.TimeoutError)
        ):
            return TransientError(f"no answer within {self._timeout:g} s", code="timeout", where=WHERE)
        if isinstance(error, requests.exceptions.HTTPError) and error.response is not None:
            return self._status_error(error.response.status_code)
        if isinstance(error, requests.exceptions.JSONDecodeError):
            return UnusableOutput("the reply is not JSON", where=WHERE)
        if isinstance(error, (requests.exceptions.RequestException, urllib3.exceptions.HTTPError, OSError)):
            return TransientError(
                "the server could not be reached, or cut the connection", code="unreachable", where=WHERE
            )
        return UnusableOutput(f"the reply could not be read ({type(error).__name__})", where=WHERE)

    def _status_error(self, status: int) -> CallError:
        if status >= 500 or status in (408, 409):
            return TransientError(
                f"the server failed (HTTP {status})",
                code="server_error",
                where=WHERE,
                retry_after=retry_after_seconds(self._session.last_headers),
                status=status,
            )
        return PermanentError(f"the search was refused (HTTP {status})", code="bad_request", where=WHERE)


def _documents(found: list[Any]) -> list[Document]:
    """The results that hold text, cleaned, each once. What is not a result is left out."""
    documents: dict[str, Document] = {}
    for result in found:
        if not isinstance(result, dict) or not isinstance(result.get("content"), str):
            continue
        text = clean_text(result["content"]).strip()[:_MAX_TEXT_CHARS]
        if not text:
            continue
        url = _line(result.get("url"), 2000)
        score = result.get("score")
        document = Document(
            id=f"web:{sha256(f'{url} {text}'.encode()).hexdigest()[:16]}",
            text=text,
            title=_line(result.get("title"), 300) or url,
            source=url,
            page=None,
            score=_score(score),
            origin="web",
        )
        documents.setdefault(document["id"], document)  # graded twice, it would count twice
    return list(documents.values())


def _line(value: Any, width: int) -> str:
    return one_line(clean_text(value), width) if isinstance(value, str) else ""


def _score(value: Any) -> float | None:
    """None for what is no number of JSON: `1e999` is read as infinity, which no row can keep."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # a whole number beyond any float
        return None
