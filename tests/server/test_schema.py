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
    from schemathesis.specs.openapi.checks import content_type_conformance, status_code_conformance

    checks = [not_a_server_error, status_code_conformance, content_type_conformance]
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


def try_out(operation: schemathesis.APIOperation, mode: str, served: Client, run: str = "") -> None:
    """Send requests to an operation, of a run if one is named."""
    from schemathesis import GenerationMode

    @given(case=operation.as_strategy(generation_mode=GenerationMode(mode)))
    @settings(
        max_examples=10,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        derandomize=True,
        database=None,
    )
    def attempt(case: schemathesis.Case) -> None:
        if run:
            case.path_parameters["id"] = run
        assert_answered(case, served)

    attempt()


@pytest.mark.parametrize("mode", ["positive", "negative"])
def test_no_request_makes_the_server_fail(
    described: schemathesis.BaseSchema, served: Client, mode: str
) -> None:
    [run] = served.get("/api/runs").json()["runs"]
    operations = [result.ok() for result in described.get_all_operations()]
    assert len(operations) >= 11
    for operation in operations:
        if mode == "negative" and operation.path in ("/api/jobs", "/api/options"):
            continue  # there is nothing that could be wrong
        try_out(operation, mode, served)
        if operation.path.startswith("/api/runs/{id}"):
            try_out(operation, mode, served, run["id"])
