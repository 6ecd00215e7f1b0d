"""The endpoints, one module a subject; each has a `router`."""

from fastapi import APIRouter

from api.routes import health


def every_router() -> list[APIRouter]:
    return [health.router]
