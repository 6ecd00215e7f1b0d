"""Who may: keys with scopes, and this machine without one.

No key is needed when all of this holds: the server belongs to an embedded stack and listens on loopback
(`create_app` is told), CRAGLINE_API_AUTH is `auto`, and the request itself is one of this machine to this
machine. The last is more than an address: a page of the internet can make a browser here ask 127.0.0.1, by
a host name that it lets point here. So the Host header must be loopback, and no proxy's header be there.
"""

import base64
import ipaddress
import threading
import time
from collections.abc import Callable
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from api.problems import ApiError
from api.state import ApiState, state_of
from shared import keys
from shared.keys import SCOPES, Principal, Scope

LOCAL = Principal("local", frozenset(SCOPES))
COOKIE = "cragline_key"  # set by the page's login
# how the names of headers begin that proxies and tunnels add
_FORWARDED = ("forwarded", "x-forwarded", "x-real-ip", "x-client-ip", "true-client-ip", "cf-", "via")
_SAFE = ("GET", "HEAD", "OPTIONS")
_bearer = HTTPBearer(
    auto_error=False,
    description="A key of `cragline key create`. On loopback the embedded stack needs none.",
)


def is_loopback(host: str) -> bool:
    """Whether `host`, without a port, is this machine by its loopback address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def needs(scope: Scope) -> Callable[..., Principal]:
    """A dependency that lets in who has `scope`, and says who it is."""

    def check(
        request: Request, _: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)]
    ) -> Principal:
        principal = authenticate(request)
        if not principal.may(scope):
            raise ApiError(
                403, "scope", f"This key may not do that: it lacks the scope {scope!r}. Use one that has it."
            )
        return principal

    return check


Reader = Annotated[Principal, Depends(needs("read"))]
Submitter = Annotated[Principal, Depends(needs("submit"))]


def authenticate(request: Request) -> Principal:
    """Who asks. Raises ApiError: 401 without a valid key, 403 for another site's page, 429 beyond the rate."""
    state = state_of(request)
    kind, token = _given(request)
    if kind != "bearer":  # a browser sends the others by itself, whoever's page made it ask
        _refuse_other_sites(request)
    if token is None:
        if not is_local(request):
            raise _unknown(request, "A key is needed")
        principal = LOCAL
    else:
        found = keys.find(state.engine, token)
        if found is None:
            raise _unknown(request, "This key is not valid, or was revoked")
        principal = found
        _within_rate(state, found)
    request.scope["cragline.key"] = principal.key_id
    return principal


def _given(request: Request) -> tuple[str, str | None]:
    """How the request says who it is, and its key: a bearer token, the password of Basic auth (which a
    browser asks for by itself), or the cookie of the page."""
    kind, _, value = request.headers.get("authorization", "").partition(" ")
    kind, value = kind.lower(), value.strip()
    if not kind and (cookie := request.cookies.get(COOKIE)) and not is_local(request):
        return "cookie", cookie
    if kind == "basic":
        try:
            decoded = base64.b64decode(value, validate=True).decode()
        except ValueError:  # no Base64, or no text in it
            return kind, ""
        return kind, decoded.partition(":")[2]
    return kind, value if kind == "bearer" else ("" if kind else None)


def is_local(request: Request) -> bool:
    """Whether the request may come without a key."""
    state = state_of(request)
    if not state.open_on_loopback or state.settings.api_auth == "required":
        return False
    if any(name.startswith(_FORWARDED) for name in request.headers):
        return False
    if request.client is None or not is_loopback(request.client.host):
        return False
    named = request.headers.get("host", "")
    if any(
        one in named for one in "@/\\?#"
    ):  # stands in no name of a host, and could hide which one is meant
        return False
    try:
        host = urlsplit(f"//{named}").hostname
    except ValueError:
        return False
    return host is not None and is_loopback(host)


def _refuse_other_sites(request: Request) -> None:
    origin = request.headers.get("origin")
    own = f"{request.url.scheme}://{request.headers.get('host', '')}"
    site = request.headers.get("sec-fetch-site", "none")
    foreign = site not in ("none", "same-origin") and request.method not in _SAFE
    # what the browser says of the site holds behind a proxy too, where the scheme looks different from here
    other = site != "same-origin" and origin is not None and origin.lower() != own.lower()
    if foreign or other:
        raise ApiError(403, "other-site", "Pages of other sites may not ask here without a bearer key.")


def _unknown(request: Request, what: str) -> ApiError:
    detail = f"{what}. Send `Authorization: Bearer KEY`; `cragline key create NAME` makes one."
    by_browser = "text/html" in request.headers.get("accept", "")
    scheme = 'Basic realm="cragline", charset="UTF-8"' if by_browser else 'Bearer realm="cragline"'
    return ApiError(401, "key", detail, headers={"WWW-Authenticate": scheme})


def _within_rate(state: ApiState, principal: Principal) -> None:
    assert principal.key_id is not None
    wait = state.rates.wait(principal.key_id)
    if wait > 0:
        seconds = max(1, round(wait + 0.5))
        raise ApiError(
            429,
            "rate",
            f"More than {state.rates.per_minute} requests a minute with this key. Wait {seconds} s.",
            headers={"Retry-After": str(seconds)},
        )


class Rates:
    """A bucket of requests for each key, filled at `per_minute`, holding ten seconds' worth (10 at least)."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.per_minute = per_minute
        self._size = max(10.0, per_minute / 6)
        self._clock = clock
        self._buckets: dict[int, tuple[float, float]] = {}  # key -> (requests left, when)
        self._lock = threading.Lock()

    def wait(self, key_id: int) -> float:
        """0 when a request may go on, which takes it out of the bucket; else the seconds until one may."""
        now = self._clock()
        with self._lock:
            left, when = self._buckets.get(key_id, (self._size, now))
            left = min(self._size, left + (now - when) * self.per_minute / 60)
            if left < 1:
                self._buckets[key_id] = (left, now)
                return (1 - left) * 60 / self.per_minute
            self._buckets[key_id] = (left - 1, now)
            return 0.0
