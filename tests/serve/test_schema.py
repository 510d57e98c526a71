"""Whatever the OpenAPI document allows, and much that it does not: the endpoint never fails in a way that it
did not foresee."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from endpoint import EndpointClient, endpoint_server
from hypothesis import HealthCheck, given, settings

if TYPE_CHECKING:  # its libraries are many: only the process that gets this file imports them
    import schemathesis

OPERATIONS = {
    ("POST", "/v1/chat/completions"),
    ("GET", "/v1/models"),
    ("GET", "/v1/selfreflect/{id}"),
    ("GET", "/health"),
    ("GET", "/metrics"),
}


@pytest.fixture(scope="module")
def served() -> Iterator[EndpointClient]:
    with endpoint_server() as client:
        yield client


@pytest.fixture(scope="module")
def described(served: EndpointClient) -> schemathesis.BaseSchema:
    import schemathesis

    return schemathesis.openapi.from_url(served.url.removesuffix("/v1") + "/openapi.json")


def test_every_operation_is_described(described: schemathesis.BaseSchema) -> None:
    operations = [operation.ok() for operation in described.get_all_operations()]
    assert {(operation.method.upper(), operation.path) for operation in operations} == OPERATIONS


@pytest.mark.parametrize("mode", ["positive", "negative"])
@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/v1/chat/completions"), ("GET", "/v1/selfreflect/{id}")]
)
def test_no_request_makes_the_server_fail(
    described: schemathesis.BaseSchema,
    served: EndpointClient,
    method: str,
    path: str,
    mode: str,
) -> None:
    from schemathesis import GenerationMode
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

    checks = [not_a_server_error, status_code_conformance]
    checks += [content_type_conformance, response_schema_conformance]

    @given(case=described[path][method].as_strategy(generation_mode=GenerationMode(mode)))
    @settings(
        max_examples=15,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        derandomize=True,
        database=None,
    )
    def tried(case: schemathesis.Case) -> None:
        if isinstance(case.body, dict) and isinstance(case.body.get("model"), str):
            case.body["model"] = "selfreflect/m"  # nobody guesses the name of a model
        case.call_and_validate(base_url=served.url.removesuffix("/v1"), checks=checks, timeout=200)

    tried()
