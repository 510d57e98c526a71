"""Whatever the OpenAPI document allows, and much that it does not: the app never fails in a way that it did
not foresee."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from app_server import Client, serving
from finished_run import write_run
from hypothesis import HealthCheck, given, settings

if TYPE_CHECKING:  # its libraries are many: only the process that gets this file imports them
    import schemathesis


def assert_answered(case: schemathesis.Case, served: Client) -> None:
    """Send a request, and compare the response with the document."""
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

    checks = [not_a_server_error, status_code_conformance]
    checks += [content_type_conformance, response_schema_conformance]
    case.call_and_validate(base_url=served.url, checks=checks, timeout=200)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    root = tmp_path_factory.mktemp("root")
    write_run(root / "one", count=3, failed="no")
    with serving(root, work=lambda job: job.show(note="worked")) as client:
        yield client


@pytest.fixture(scope="module")
def described(served: Client) -> schemathesis.BaseSchema:
    import schemathesis

    return schemathesis.openapi.from_url(f"{served.url}/api/openapi.json")


OPERATIONS = (
    ("POST", "/api/ask"),
    ("POST", "/api/score"),
    ("POST", "/api/check"),
    ("POST", "/api/estimate"),
    ("POST", "/api/runs/{id}/judges"),
    ("POST", "/api/jobs/{id}/cancel"),
    ("GET", "/api/jobs"),
    ("GET", "/api/jobs/{id}"),
    ("GET", "/api/options"),
    ("GET", "/api/runs"),
    ("GET", "/api/runs/{id}"),
    ("GET", "/api/runs/{id}/questions/{index}"),
    ("GET", "/api/runs/{id}/questions/{index}/groups"),
    ("GET", "/api/runs/{id}/questions/{index}/guesses"),
    ("GET", "/api/runs/{id}/export"),
)


def test_every_operation_is_tried(described: schemathesis.BaseSchema) -> None:
    operations = {
        (operation.ok().method.upper(), operation.ok().path) for operation in described.get_all_operations()
    }
    assert operations == set(OPERATIONS)


@pytest.mark.parametrize("mode", ["positive", "negative"])
@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_no_request_makes_the_server_fail(
    described: schemathesis.BaseSchema,
    served: Client,
    method: str,
    path: str,
    mode: str,
) -> None:
    from schemathesis import GenerationMode

    operation = described[path][method]
    if mode == "negative" and method == "GET" and path in ("/api/jobs", "/api/options"):
        assert not list(operation.iter_parameters())  # there is nothing that could be wrong
        return

    @given(case=operation.as_strategy(generation_mode=GenerationMode(mode)))
    @settings(
        max_examples=10,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        derandomize=True,
        database=None,
    )
    def tried(case: schemathesis.Case) -> None:
        assert_answered(case, served)

    tried()


@pytest.mark.parametrize(
    "path", [path for method, path in OPERATIONS if method == "GET" and path.startswith("/api/runs/{id}")]
)
def test_with_a_run_that_is_there(described: schemathesis.BaseSchema, served: Client, path: str) -> None:
    [run] = served.get("/api/runs").json()["runs"]

    @given(case=described[path]["GET"].as_strategy())
    @settings(
        max_examples=10,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        derandomize=True,
        database=None,
    )
    def tried(case: schemathesis.Case) -> None:
        case.path_parameters["id"] = run["id"]
        assert_answered(case, served)

    tried()
