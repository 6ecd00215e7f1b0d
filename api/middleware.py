"""What surrounds every endpoint, the page's too: security headers, the limit of a body, a line in the log."""

import time

import structlog
from fastapi import FastAPI
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api import problems
from shared.settings import Settings

log = structlog.get_logger()
# Scripts and styles come from files of our own only: text of a question or document can never be one.
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS = {
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
UPLOADS = ("/v1/batches", "/v1/ingests", "/upload", "/upload/look")  # where files may be sent to
_MB = 1_000_000
_CLIENT_LEFT = 499  # in the log only
SMALL = 1 * _MB  # bytes of any other body


def install(app: FastAPI, settings: Settings) -> None:
    # the last that is added is the outermost
    app.add_middleware(BodyLimit, largest=settings.api_max_upload_mb * _MB)
    app.add_middleware(LogLine)
    app.add_middleware(SecurityHeaders)


class SecurityHeaders:
    """Sets the headers above where an endpoint has not set its own, and forbids caches to keep answers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        await self._app(scope, receive, with_headers)


class LogLine:
    """One line a request: the route (not the path, whose query may hold anything), the status, the key's
    number. A mistake of ours becomes a problem document here, inside of the security headers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, status = time.monotonic(), 0

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noting)
        except ClientDisconnect:  # in the middle of its own body: there is nobody to answer
            status = _CLIENT_LEFT
        except Exception as error:
            if status:  # half an answer cannot become another one
                raise
            await problems.mistake(Request(scope), error)(scope, receive, noting)
        finally:
            route = getattr(scope.get("route"), "path", "-")
            level = log.debug if route in ("/healthz", "/readyz", "/metrics") else log.info
            level(
                "request",
                method=scope["method"],
                route=route,
                status=status,
                ms=round((time.monotonic() - begun) * 1000),
                key=scope.get("cragline.key"),
            )


class TooLarge(HTTPException):
    def __init__(self, limit: int) -> None:
        remedy = "Send fewer rows at once, or raise CRAGLINE_API_MAX_UPLOAD_MB."
        super().__init__(413, f"The body is larger than the {limit:,} bytes that are taken here. {remedy}")


class BodyLimit:
    """Counts what is received, whatever Content-Length says, and cuts it off at the limit."""

    def __init__(self, app: ASGIApp, largest: int) -> None:
        self._app = app
        self._largest = largest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limit = self._largest if scope["path"] in UPLOADS else SMALL
        announced = Headers(scope=scope).get("content-length", "0")
        announced_too_large = announced.isdecimal() and int(announced) > limit
        taken = 0

        async def counted() -> Message:
            nonlocal taken
            if announced_too_large:
                raise TooLarge(limit)
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > limit:
                raise TooLarge(limit)
            return message

        await self._app(scope, counted, send)
