"""`--server URL`: the same commands, asked of a Cragline elsewhere through its HTTP API.

What the server says is wrong is said here in the same words. The key comes from CRAGLINE_API_KEY and is
sent to no other address: redirects are not followed.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from api.cli.output import address
from shared.clean import one_line
from shared.control import Done
from shared.errors import Conflict, CraglineError, IntakeError, NotFound, UsageError
from shared.settings import get_settings

if TYPE_CHECKING:
    import httpx

ServerOption = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        help="Ask the HTTP API there instead of the database here; CRAGLINE_API_KEY is its key.",
    ),
]
_PATIENCE = 30.0  # seconds for an answer
_SUBMIT_PATIENCE = 600.0  # a million rows take minutes
_BLOCK = 256 * 1024  # bytes
_ERRORS: dict[int, type[CraglineError]] = {404: NotFound, 409: Conflict}


class ServerAway(CraglineError):
    """The server could not be reached, or is not ready."""


class Server:
    """A Cragline elsewhere. Raises UsageError for what is no URL."""

    def __init__(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc
        except ValueError:
            usable = False
        if not usable:
            raise UsageError("--server takes the address of an API, such as https://cragline.example:8585.")
        self.url = url.rstrip("/")
        key = get_settings().api_key
        self._headers = {"Authorization": f"Bearer {key.get_secret_value()}"} if key else {}

    def progress(self, batch_id: int) -> dict[str, Any]:
        """As `history.progress`, with what `history.batch_details` has."""
        found: dict[str, Any] = self.get(f"/v1/batches/{batch_id}")
        return found

    def batches(self, limit: int) -> list[dict[str, Any]]:
        """The newest batches, over as many pages as it takes."""
        found: list[dict[str, Any]] = []
        cursor: dict[str, Any] = {}
        while len(found) < limit:
            page = self.get("/v1/batches", limit=min(limit - len(found), 500), **cursor)
            found += page["batches"]
            if page["next_cursor"] is None:
                break
            cursor = {"cursor": page["next_cursor"]}
        return found

    def get(self, path: str, **params: Any) -> Any:
        return self._json("GET", path, params=params)

    def post(self, path: str, body: dict[str, Any] | None = None) -> Any:
        return self._json("POST", path, json=body or {})

    def act(self, batch_id: int, verb: str, **body: Any) -> Done:
        """Pause, resume, cancel, retry or reprioritise a batch."""
        return Done(**self.post(f"/v1/batches/{batch_id}/{verb}", body))

    def submit(self, file: Path, options: Mapping[str, Any]) -> dict[str, Any]:
        """Send a file as it is, in blocks; it is read at the other end."""
        params = {name: value for name, value in options.items() if value not in (None, [])}
        headers = {"Content-Type": "application/octet-stream"}
        try:
            with file.open("rb") as source:
                blocks = iter(lambda: source.read(_BLOCK), b"")
                found: dict[str, Any] = self._json(
                    "POST",
                    "/v1/batches",
                    params=params | {"filename": file.name},
                    content=blocks,
                    headers=headers,
                    timeout=_SUBMIT_PATIENCE,
                )
                return found
        except FileNotFoundError:
            raise NotFound(f"{file}: there is no such file.") from None
        except OSError as error:
            raise IntakeError(f"{file}: cannot be read ({error.strerror or error}).") from None

    @contextmanager
    def results(self, batch_id: int, **params: Any) -> Iterator[Iterator[bytes]]:
        """The results as they come, in blocks."""
        with self._answer("GET", f"/v1/batches/{batch_id}/results", params=params) as answer:
            yield answer.iter_bytes()

    def _json(self, method: str, path: str, **more: Any) -> Any:
        with self._answer(method, path, **more) as answer:
            answer.read()
            try:
                return answer.json()
            except ValueError:
                raise CraglineError(f"{address(self.url)} is no Cragline: it answers without JSON.") from None

    @contextmanager
    def _answer(self, method: str, path: str, **more: Any) -> "Iterator[httpx.Response]":
        import httpx

        more["headers"] = self._headers | more.get("headers", {})
        try:
            with httpx.stream(method, self.url + path, **({"timeout": _PATIENCE} | more)) as answer:
                if answer.status_code >= 300:
                    answer.read()
                    raise self._error(answer)
                yield answer
        except UnicodeEncodeError:
            raise UsageError("CRAGLINE_API_KEY holds characters that cannot be sent.") from None
        except (httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.LocalProtocolError):
            raise UsageError("--server or CRAGLINE_API_KEY holds what cannot be sent.") from None
        except httpx.HTTPError as error:  # its text may quote the URL
            what = type(error).__name__
            raise ServerAway(
                f"The server {address(self.url)} does not answer ({what}). "
                "Look at the address, and whether `cragline up` runs there."
            ) from None

    def _error(self, answer: "httpx.Response") -> CraglineError:
        """The problem document as one of our errors."""
        try:
            told = answer.json()
            detail = one_line(str(told["detail"]), 2000)
        except (ValueError, KeyError, TypeError):
            what = f"{address(self.url)} answers {answer.status_code}, and without saying why."
            return CraglineError(f"{what} Is it the address of a Cragline's API?")
        if answer.status_code == 503:
            return ServerAway(detail)
        if answer.status_code == 401:
            return CraglineError(f"{detail} The command line reads it from CRAGLINE_API_KEY.")
        if str(told.get("type", "")).endswith((":usage", ":invalid-request")):
            return UsageError(detail)
        return _ERRORS.get(answer.status_code, CraglineError)(detail)


def at(url: str | None) -> Server | None:
    """The server that `--server` names; None for the database here."""
    return None if url is None else Server(url)
