"""What a reply says of its tokens, made harmless: LangChain adds these numbers up, and fails on words or lists.

A paid answer must not be thrown away, and paid again, because of what stands beside it.
"""

import json
from typing import Any

import httpx

from workers.models.calls import told_usage

_DETAILS = ("prompt_tokens_details", "completion_tokens_details")
_OF_THE_BODY = ("content-length", "content-encoding", "transfer-encoding")


def with_sound_usage(response: httpx.Response) -> httpx.Response:
    """The same response, if its `usage` can be read; else one with what can be believed of it, or none.

    `response` has been read. Only chat completions are looked at; what is not a JSON object is nothing to mend.
    """
    if not response.request.url.path.endswith("/chat/completions") or b'"usage"' not in response.content:
        return response
    try:
        body = response.json()
    except (ValueError, RecursionError):
        return response
    if not isinstance(body, dict) or _is_sound(body.get("usage")):
        return response
    body["usage"] = _believed(body["usage"])
    headers = [(name, value) for name, value in response.headers.multi_items() if name not in _OF_THE_BODY]
    return httpx.Response(
        response.status_code,
        headers=headers,
        content=json.dumps(body).encode(),
        request=response.request,
        extensions=response.extensions,
        history=response.history,
    )


def _is_sound(usage: Any) -> bool:
    if usage is None:
        return True
    if not isinstance(usage, dict):
        return False
    counts = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if None in counts or told_usage(*counts) != counts or not _is_number(usage.get("total_tokens")):
        return False
    details = [usage.get(name) or {} for name in _DETAILS]
    return all(isinstance(part, dict) and all(map(_is_number, part.values())) for part in details)


def _is_number(value: Any) -> bool:
    return value is None or isinstance(value, int)


def _believed(usage: Any) -> dict[str, int] | None:
    """Both counts, or nothing: half a usage would be read as if the other half were 0."""
    if not isinstance(usage, dict):
        return None
    read, written = told_usage(usage.get("prompt_tokens"), usage.get("completion_tokens"))
    if read is None or written is None:
        return None
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
