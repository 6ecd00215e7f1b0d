"""Short looks at servers that are not Cragline's own: does it answer, and does it take the key?

Nothing of a key, and no user or password of a URL, gets into what is said.
"""

from collections.abc import Mapping
from contextlib import suppress
from urllib.parse import urlsplit

from api.cli.output import address

PROBE_SECONDS = 3.0  # for each of connecting, sending and the first byte of the answer
Said = tuple[str, str]  # ok, note or bad; and a sentence


def qdrant(url: str, key: str | None) -> Said:
    """Whether a Qdrant server lists its collections."""
    where = f"Qdrant at {address(url)}"
    status = _status(f"{_as_the_client_reads(url, key)}/collections", {"api-key": key} if key else {})
    if status == 404:
        return "bad", f"{where}: there is a server, but no Qdrant (404)."
    return _judged(status, where, "CRAGLINE_QDRANT_API_KEY")


def _as_the_client_reads(url: str, key: str | None) -> str:
    """Qdrant's client takes a URL without scheme too, and port 6333 where there is none, also for https."""
    whole = url if "://" in url else f"{'https' if key else 'http'}://{url}"
    with suppress(ValueError):  # told in a moment
        parts = urlsplit(whole)
        if parts.hostname and parts.port is None:
            whole = parts._replace(netloc=f"{parts.netloc.rstrip(':')}:6333").geturl()
    return whole.rstrip("/")


def models(base_url: str, key: str | None) -> Said:
    """Whether an OpenAI-compatible server lists its models, which costs nothing."""
    where = f"the server at {address(base_url)}"
    status = _status(f"{base_url.rstrip('/')}/models", {"Authorization": f"Bearer {key}"} if key else {})
    if status in (404, 405):  # some serve the models and not their list
        return (
            "note",
            f"{where} answers, but has no list of models ({status}). Does OPENAI_BASE_URL end in /v1?",
        )
    return _judged(status, where, "OPENAI_API_KEY")


def _judged(status: int | str, where: str, key: str) -> Said:
    if isinstance(status, str):
        return "bad", f"{where}: {status}"
    if status in (401, 403):
        return "bad", f"{where}: key refused ({status}). Look at {key}."
    if 200 <= status < 300:
        return "ok", f"{where} answers"
    return "bad", f"{where} answers with an error ({status})."


def _status(url: str, headers: Mapping[str, str]) -> int | str:
    """The status of a GET, or what is wrong in words. The body, which may be of any length, is not read."""
    import httpx

    try:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            return "not a URL; it should look like http://host:port."
        with httpx.stream(
            "GET", url, headers=headers, timeout=PROBE_SECONDS, follow_redirects=True
        ) as answer:
            return int(answer.status_code)
    except UnicodeEncodeError:
        return "the key or the URL holds characters that cannot be sent."
    except (httpx.InvalidURL, httpx.UnsupportedProtocol, ValueError):
        return "not a URL; it should look like http://host:port."
    except httpx.LocalProtocolError:
        return "the key holds characters that cannot be sent."
    except (httpx.HTTPError, OSError) as error:  # its text may quote the URL
        return f"it does not answer ({type(error).__name__})."
