"""The OpenAPI document: what FastAPI makes of the endpoints, and how errors look."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from api.problems import MEDIA_TYPE
from api.schemas import BatchBody, IngestBody, Problem

_TEMPLATE = "#/components/schemas/{model}"


def install(app: FastAPI) -> None:
    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _made(app)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's own way to change it


def _made(app: FastAPI) -> dict[str, Any]:
    made = get_openapi(
        title=app.title,
        version=app.version,
        summary=app.summary,
        routes=app.routes,
        separate_input_output_schemas=False,
    )
    components = made.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    named: list[Any] = [(model, "validation") for model in (BatchBody, IngestBody, Problem)]
    _, definitions = models_json_schema(named, ref_template=_TEMPLATE)
    schemas.update(definitions["$defs"])
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    components["responses"] = {
        "Problem": {
            "description": "What was wrong, and what to do about it.",
            "content": {MEDIA_TYPE: {"schema": {"$ref": _TEMPLATE.format(model="Problem")}}},
        }
    }
    problem = {"$ref": "#/components/responses/Problem"}
    for path in made["paths"].values():
        for operation in path.values():
            responses = operation["responses"]
            responses.pop("422", None)
            responses["4XX"] = responses["5XX"] = problem
    return made
