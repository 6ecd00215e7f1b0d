"""Every error leaves as a problem document (RFC 9457) that says what to do."""

import re
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from psycopg import DataError
from psycopg.errors import UntranslatableCharacter
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException

from shared.clean import clean_json, one_line
from shared.errors import (
    Conflict,
    CraglineError,
    DimensionMismatch,
    IntakeError,
    NotFound,
    StackError,
    UsageError,
)
from shared.logs import redact
from shared.sources import CannotIngest
from shared.urls import FetchError

log = structlog.get_logger()
MEDIA_TYPE = "application/problem+json"
_TOLD = 50  # errors of one request: a body of unknown fields has as many errors as fields
_STATUS: dict[type[CraglineError], tuple[int, str]] = {
    NotFound: (404, "not-found"),
    UsageError: (422, "usage"),
    IntakeError: (422, "intake"),
    DimensionMismatch: (409, "dimension-mismatch"),
    Conflict: (409, "conflict"),
    StackError: (503, "stack"),
    FetchError: (422, "url"),
    CannotIngest: (422, "usage"),
}
_OPTION = re.compile(r"(`cragline [^`]*`)|--([a-z]+(?:-[a-z]+)*)")
_ROW = re.compile(r"\b(?:row|line) (\d+)\b")


class ApiError(CraglineError):
    """An error of the API alone: its status, and a word for the problem's type."""

    def __init__(
        self, status: int, word: str, detail: str, *, headers: dict[str, str] | None = None, **more: Any
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.word = word
        self.headers = headers
        self.more = more


def install(app: FastAPI) -> None:
    app.add_exception_handler(CraglineError, _on_ours)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(OperationalError, _on_database)
    app.add_exception_handler(PoolTimeout, _on_database)
    app.add_exception_handler(DBAPIError, _on_refused)


def problem(
    request: Request,
    status: int,
    word: str | None,
    detail: str,
    *,
    headers: dict[str, str] | None = None,
    **more: Any,
) -> JSONResponse:
    """A problem document; `word` names its type, None where the status says it all."""
    body = {
        "type": f"urn:cragline:problem:{word}" if word else "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": redact(detail),
        "instance": request.url.path,
        **more,
    }
    return JSONResponse(clean_json(body), status, headers, MEDIA_TYPE)


def _on_ours(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, CraglineError)
    if isinstance(error, ApiError):
        return problem(request, error.status, error.word, str(error), headers=error.headers, **error.more)
    kind_of = next((one for kind, one in _STATUS.items() if isinstance(error, kind)), (400, "refused"))
    # the command line's options are fields here; a whole command stays as it is to be typed
    detail = _OPTION.sub(lambda found: found[1] or f"`{found[2]}`", str(error))
    row = _ROW.search(detail) if isinstance(error, IntakeError) else None
    more: dict[str, Any] = {"row": int(row[1])} if row else {}
    return problem(request, *kind_of, detail, **more)


def _on_invalid(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    errors = [
        {"where": one_line(".".join(map(str, one["loc"])), 300), "message": one_line(str(one["msg"]), 300)}
        for one in error.errors()[:_TOLD]
    ]
    said = "; ".join(f"{one['where']}: {one['message']}" for one in errors[:5])
    return problem(request, 422, "invalid-request", f"{said}. Correct it and ask again.", errors=errors)


def _on_http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers) if error.headers else None
    remedy = {
        404: "There is nothing at this address; /v1/openapi.json lists what there is.",
        405: "This address does not take that method; /v1/openapi.json says which it takes.",
    }
    detail = remedy.get(error.status_code, str(error.detail))
    return problem(request, error.status_code, None, detail, headers=headers)


def _on_database(request: Request, error: Exception) -> JSONResponse:
    log.error("the database does not answer", path=request.url.path, error=type(error).__name__)
    detail = "The database does not answer. Ask again in a moment; `cragline doctor` looks what is wrong."
    return problem(request, 503, "database", detail, headers={"Retry-After": "5"})


def _on_refused(request: Request, error: Exception) -> JSONResponse:
    """Only the class goes into the log: the driver's words may quote what was sent."""
    cause = getattr(error, "orig", error)
    if _is_nul(cause):
        detail = (
            "A text holds the character NUL (U+0000), which can be neither stored nor found. Leave it out."
        )
        return problem(request, 422, "invalid-request", detail)
    kind = type(cause).__name__
    log.error("the database refused", path=request.url.path, error=kind)
    if kind == "UndefinedTable":
        detail = "The database has no tables yet. `cragline db upgrade` makes them."
        return problem(request, 503, "database", detail)
    return problem(request, 500, "mistake", "The database refused this; the server's log says more.")


def _is_nul(cause: object) -> bool:
    """In text the driver refuses it itself, without a state; in JSON the server does."""
    if isinstance(cause, UntranslatableCharacter):
        return True
    return isinstance(cause, DataError) and cause.sqlstate is None and "NUL" in str(cause)


def mistake(request: Request, error: Exception) -> JSONResponse:
    """The answer for what nothing else has caught; the traceback goes into the log."""
    log.error("a mistake of ours", path=request.url.path, exc_info=error)
    return problem(request, 500, "mistake", "This failed by a mistake of the server; its log says more.")
