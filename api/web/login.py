"""Logging in with an API key: it is kept in a cookie that no script can read and no other site can use."""

from typing import Annotated

from fastapi import Form, Query, Request, Response
from fastapi.responses import RedirectResponse

from api.security import COOKIE, is_local
from api.state import state_of
from api.web.access import page_router, require_own_page
from api.web.links import own_path
from api.web.render import page
from shared import keys

router = page_router()


@router.get("/login")
def login_page(request: Request, next: Annotated[str | None, Query(max_length=1000)] = None) -> Response:
    if is_local(request):
        return RedirectResponse(own_path(next), 303)
    return page(request, "login.html", next=own_path(next), wrong=False)


@router.post("/login")
def log_in(
    request: Request,
    key: Annotated[str, Form(max_length=200)],
    next: Annotated[str | None, Form(max_length=1000)] = None,
) -> Response:
    require_own_page(request)
    token = key.strip()
    if keys.find(state_of(request).engine, token) is None:
        return page(request, "login.html", code=401, next=own_path(next), wrong=True)
    answer = RedirectResponse(own_path(next), 303)
    answer.set_cookie(COOKIE, token, httponly=True, samesite="strict", secure=_over_tls(request), path="/")
    return answer


@router.post("/logout")
def log_out(request: Request) -> Response:
    require_own_page(request)
    answer = RedirectResponse("/login", 303)
    answer.delete_cookie(COOKIE, path="/")
    return answer


def _over_tls(request: Request) -> bool:
    """Here, or at a proxy in front. Whoever invents that header only restricts their own cookie."""
    return "https" in (request.url.scheme, request.headers.get("x-forwarded-proto", "").lower())
