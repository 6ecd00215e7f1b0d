"""Errors of the OpenAI client in Cragline's own words.

Nothing a server says is quoted: an error body may echo the key, the question or anything else. What is
said is made from the status, from codes we know, and from our own settings.
"""

import httpx
import openai

from shared.errors import CallError, PermanentError, TransientError
from workers.models.calls import UnusableOutput
from workers.models.retry_after import retry_after_seconds

WHERE = "openai"
_POLICY_CODES = frozenset(
    {"content_policy_violation", "content_filter", "invalid_prompt", "ResponsibleAIPolicyViolation"}
)
_QUOTA_CODES = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"})
_TOO_LONG_CODES = frozenset({"context_length_exceeded", "string_above_max_length"})
_TOO_LONG_WORDS = (
    "maximum context length",
    "exceeds the context window",
    "prompt is too long",
    "exceed context size",
)


def codes_of(error: openai.APIStatusError) -> frozenset[str]:
    """The `code` and `type` of the error body, to be compared with known ones and never to be quoted."""
    body = error.body if isinstance(error.body, dict) else {}
    inner = body.get("error")
    found = [body.get("code"), body.get("type")]
    if isinstance(inner, dict):
        found += [inner.get("code"), inner.get("type")]
    innererror = body.get("innererror")  # where Azure says why
    if isinstance(innererror, dict):
        found.append(innererror.get("code"))
    return frozenset(code for code in found if isinstance(code, str))


def refuses_temperature(error: Exception) -> bool:
    """Whether the model was asked with a temperature that it does not take."""
    if not isinstance(error, openai.BadRequestError):
        return False
    body = error.body if isinstance(error.body, dict) else {}
    return body.get("param") == "temperature" or "'temperature'" in error.message


def as_call_error(error: Exception, *, model: str, method: str = "", timeout: float = 0.0) -> CallError:
    """The `TransientError` or `PermanentError` that stands for `error`. Raise it outside the `except`
    block, so that the original, which may hold a key, is not carried along as its context."""
    if isinstance(error, CallError):
        return error
    if isinstance(error, (openai.APITimeoutError, httpx.TimeoutException)):
        return TransientError(f"no answer within {timeout:g} s", code="timeout", where=WHERE)
    if isinstance(error, openai.APIStatusError):
        return _status_error(error, model, method)
    if isinstance(error, (openai.APIConnectionError, httpx.TransportError)):
        return TransientError(
            "the server could not be reached, or cut the connection", code="unreachable", where=WHERE
        )
    return UnusableOutput(f"the reply could not be read ({type(error).__name__})", where=WHERE)


def _status_error(error: openai.APIStatusError, model: str, method: str) -> CallError:
    status = error.status_code
    codes = codes_of(error)
    if codes & _QUOTA_CODES or status == 402:
        return PermanentError(
            "the account's quota is used up; add credit or raise its limit", code="quota", where=WHERE
        )
    if status in (401, 403):
        return PermanentError(
            f"the server refused the API key (HTTP {status}); check OPENAI_API_KEY",
            code="bad_key",
            where=WHERE,
        )
    if status == 429:
        return TransientError(
            "rate limit reached (HTTP 429)",
            code="rate_limited",
            where=WHERE,
            retry_after=retry_after_seconds(error.response.headers),
        )
    if status >= 500 or status in (408, 409):
        return TransientError(
            f"the server failed (HTTP {status})",
            code="server_error",
            where=WHERE,
            retry_after=retry_after_seconds(error.response.headers),
            status=status,
        )
    if codes & _POLICY_CODES:
        return refused_by_policy()
    if "model_not_found" in codes or status == 404:
        return PermanentError(
            f"the server knows no model {model!r} (HTTP {status}); check its name and OPENAI_BASE_URL",
            code="no_such_model",
            where=WHERE,
        )
    return PermanentError(_bad_request_message(error, codes, method), code="bad_request", where=WHERE)


def _bad_request_message(error: openai.APIStatusError, codes: frozenset[str], method: str) -> str:
    if codes & _TOO_LONG_CODES or any(words in error.message for words in _TOO_LONG_WORDS):
        return f"the request is longer than the model's context (HTTP {error.status_code})"
    hint = (
        f"; if it does not know structured output by {method}, set CRAGLINE_STRUCTURED_OUTPUT"
        if method
        else ""
    )
    return f"the server refused the request (HTTP {error.status_code}){hint}"


def refused_by_policy() -> PermanentError:
    return PermanentError(
        "the provider's content policy refused the request", code="refused_by_policy", where=WHERE
    )
