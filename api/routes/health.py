"""`/healthz`, `/readyz`, `/metrics`: for whoever watches over the service."""

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST

from api import readiness
from api.schemas import Alive, Ready
from api.security import Reader
from api.state import state_of

router = APIRouter(tags=["health"])


@router.get("/healthz")
async def healthz() -> Alive:
    """Whether this process answers. It asks nothing else, so that a dead database does not restart it."""
    # on the event loop: the threads may all be waiting for that database
    return Alive(status="alive")


@router.get("/readyz", responses={503: {"model": Ready, "description": "Something is not ready."}})
def readyz(request: Request, response: Response) -> Ready:
    """Whether questions are taken and answered: every part they need, each with what was found."""
    checks = readiness.examine(state_of(request))
    ready = all(check.ready for check in checks)
    if not ready:
        response.status_code = 503
    return Ready(ready=ready, checks=checks)


@router.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {
            "content": {"text/plain": {"schema": {"type": "string"}}},
            "description": "Metrics in Prometheus's text format.",
        }
    },
)
def metrics(request: Request, principal: Reader) -> Response:
    """Metrics over all batches, for Prometheus."""
    state = state_of(request)
    return Response(state.metrics.exposition(state.engine), media_type=CONTENT_TYPE_LATEST)
