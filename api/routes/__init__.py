"""The endpoints, one module a subject; each has a `router`."""

from fastapi import APIRouter

from api.routes import batches, events, health, knowledge, results, runs


def every_router() -> list[APIRouter]:
    return [health.router, batches.router, events.router, results.router, runs.router, knowledge.router]
