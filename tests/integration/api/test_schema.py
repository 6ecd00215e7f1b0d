"""The OpenAPI document: fit for a client generator, and kept to by the server (Schemathesis tries)."""

import re
from collections import Counter
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck
from hypothesis import settings as examples
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from api.app import create_app
from api.security import Rates
from shared.settings import Settings
from tests.integration.api.conftest import HERE, Api

CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
)


@pytest.fixture(scope="module")
def document(api: Api) -> dict[str, Any]:
    made: dict[str, Any] = api.app.openapi()
    return made


def operations(document: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(path, one) for path, methods in document["paths"].items() for one in methods.values()]


def test_operation_ids_are_unique_and_names_of_functions(document: dict[str, Any]) -> None:
    ids = Counter(one["operationId"] for _, one in operations(document))
    assert [name for name, count in ids.items() if count > 1] == []
    assert [name for name in ids if not re.fullmatch(r"[a-z][a-z_]+", name)] == []


def test_every_operation_says_how_its_errors_look_and_who_may(document: dict[str, Any]) -> None:
    problem = {"$ref": "#/components/responses/Problem"}
    for path, one in operations(document):
        assert one["responses"]["4XX"] == one["responses"]["5XX"] == problem, path
        assert "422" not in one["responses"], path
        assert one["description"], path
        assert bool(one.get("security")) == (path not in ("/healthz", "/readyz")), path
    content = document["components"]["responses"]["Problem"]["content"]
    assert set(content) == {"application/problem+json"}


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    references = set(re.findall(r"'#/components/([^']+)'", str(document)))
    assert references
    for reference in references:
        kind, name = reference.split("/")
        assert name in document["components"][kind], reference


# -- the server keeps to it ---------------------------------------------------------------------------------
# without the progress stream, which would go on as long as its batch is open, and /readyz, which rightly is 503
described = schemathesis.openapi.from_dict(create_app(Settings(_env_file=None)).openapi())  # type: ignore[call-arg]
described.config.generation.update(modes=[GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
described = described.exclude(path_regex=r".*/progress$|^/readyz$")


@pytest.fixture(scope="module")
def token(api: Api) -> str:
    """An admin's key, with no rate in its way."""
    api.app.state.cragline.rates = Rates(1_000_000)
    return api.key("tester", "admin")


@described.parametrize()
@examples(
    max_examples=5,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
def test_whatever_is_asked_the_answer_is_as_described(case: Any, api: Api, token: str) -> None:
    headers = {"Authorization": f"Bearer {token}"}
    case.call_and_validate(base_url=HERE, app=api.app, headers=headers, checks=CHECKS)
