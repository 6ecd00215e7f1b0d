"""The HTTP API as one FastAPI application.

    middleware   security headers -> limit of the body -> log line -> routes
    routes       api/routes/, one module a subject; the page is api/web/
    errors       api/problems.py: every error leaves as a problem document (RFC 9457)

Endpoints that ask the database are plain functions, which FastAPI runs on a thread each: the event loop is
never held up.
"""

from importlib.metadata import version

from fastapi import FastAPI
from sqlalchemy import Engine

from api import middleware, openapi, problems, web
from api.routes import every_router
from api.state import ApiState
from shared.settings import Settings


def create_app(
    settings: Settings, engine: Engine | None = None, *, open_on_loopback: bool = False
) -> FastAPI:
    """The application, which reads and writes the database of `engine` (default: the one of the settings).

    `open_on_loopback`: requests from this machine need no key. Only for a server that listens on loopback
    and that belongs to an embedded stack.
    """
    app = FastAPI(
        title="Cragline",
        version=version("cragline"),
        summary="Batch question answering with corrective RAG, with every step recorded in Postgres.",
        openapi_url="/v1/openapi.json",
        docs_url=None,  # both would load scripts from the internet
        redoc_url=None,
        generate_unique_id_function=lambda route: route.name,  # operation ids: the functions' names
    )
    app.state.cragline = ApiState(settings, engine, open_on_loopback=open_on_loopback)
    problems.install(app)
    middleware.install(app, settings)
    for router in every_router():
        app.include_router(router)
    app.include_router(web.router)
    web.install(app)
    openapi.install(app)
    return app
