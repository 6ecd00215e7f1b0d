"""The endpoints, one module a subject; each has a `router`."""

from fastapi import APIRouter

from api.routes import batches, control, health, knowledge, progress, results, runs


def every_router() -> list[APIRouter]:
    modules = (health, batches, control, progress, results, runs, knowledge)
    return [module.router for module in modules]
