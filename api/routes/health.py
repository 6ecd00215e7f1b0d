"""`/healthz`: the process is alive."""

from fastapi import APIRouter

from api.schemas import Alive

router = APIRouter(tags=["health"])


@router.get("/healthz")
def healthz() -> Alive:
    """Whether this process answers. It asks nothing else, so that a dead database does not restart it."""
    return Alive(status="alive")
