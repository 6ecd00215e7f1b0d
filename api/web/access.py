"""Who may see the pages, how a page's error looks, and proof that a change was asked for by a page of ours."""

import json
from collections.abc import Callable, Coroutine
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse
from fastapi.routing import APIRoute
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException

from api.problems import MEDIA_TYPE, ApiError
from api.security import COOKIE, needs
from api.web.render import page
from shared.errors import CraglineError
from shared.keys import Principal, Scope


class PageRoute(APIRoute):
    """A route whose errors are pages for people, and problem documents for the page's script."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        inner = super().get_route_handler()

        async def handler(request: Request) -> Response:
            try:
                return await inner(request)
            except (CraglineError, RequestValidationError, HTTPException, DBAPIError, PoolTimeout) as error:
                return _error_page(request, error)

        return handler


def page_router() -> APIRouter:
    return APIRouter(include_in_schema=False, route_class=PageRoute)


def from_script(request: Request) -> bool:
    """Whether the page's script asks, which swaps in a part of the page."""
    return request.headers.get("hx-request") == "true"


def install(app: FastAPI) -> None:
    """An address that nothing is at is told to a browser as a page."""
    usual: Any = app.exception_handlers[HTTPException]

    def on_http(request: Request, error: Exception) -> Response:
        problem: Response = usual(request, error)
        by_browser = request.method == "GET" and "text/html" in request.headers.get("accept", "")
        if by_browser and problem.status_code == 404 and not request.url.path.startswith("/v1"):
            return _as_page(request, problem)
        return problem

    app.add_exception_handler(HTTPException, on_http)


def _error_page(request: Request, error: Exception) -> Response:
    handlers = request.app.exception_handlers
    handler = next(handlers[kind] for kind in type(error).__mro__ if kind in handlers)
    problem: Response = handler(request, error)
    if from_script(request) or problem.media_type != MEDIA_TYPE:
        return problem
    if problem.status_code == 401 and request.method in ("GET", "HEAD"):
        query = f"?{request.url.query}" if request.url.query else ""
        answer = RedirectResponse(f"/login?next={quote(request.url.path + query, safe='')}", 303)
        answer.delete_cookie(COOKIE)
        return answer
    return _as_page(request, problem)


def _as_page(request: Request, problem: Response) -> Response:
    told = json.loads(bytes(problem.body))
    shown = page(request, "error.html", code=problem.status_code, title=told["title"], detail=told["detail"])
    if wait := problem.headers.get("retry-after"):
        shown.headers["Retry-After"] = wait
    return shown


def require_own_page(request: Request) -> None:
    """Raises ApiError unless the request is evidently one of a page of this server.

    Beside the cookie's SameSite=Strict: a page of another site can send none of these three.
    """
    origin = request.headers.get("origin", "").lower()
    own = f"{request.url.scheme}://{request.headers.get('host', '')}".lower()
    if not (
        request.headers.get("sec-fetch-site") == "same-origin"
        or (origin and origin == own)
        or from_script(request)
    ):
        raise ApiError(
            403, "other-site", "This must be asked for from the page itself. Open / and try again."
        )


def _changing(scope: Scope) -> Callable[..., Principal]:
    def check(request: Request, principal: Annotated[Principal, Depends(needs(scope))]) -> Principal:
        require_own_page(request)
        return principal

    return check


Viewer = Annotated[Principal, Depends(needs("read"))]
Changer = Annotated[Principal, Depends(_changing("submit"))]
