"""Whatever the three forms of requests allow, and much that they do not: the endpoint never fails in a way
that it did not foresee, and every error has the shape of its form."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from endpoint import EndpointClient, endpoint_server
from hypothesis import HealthCheck, given, settings

if TYPE_CHECKING:  # its libraries are many: only the process that gets this file imports them
    import schemathesis

MODEL = {"enum": ["selfreflect/m", "m", "selfreflect/other"]}
TEXT = {"type": "string", "maxLength": 30}
NUMBER = {"type": "number"}
WHOLE = {"type": "integer"}
FLAG = {"type": "boolean"}


def record(required: str = "", **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required.split()}


def parts(*kinds: str) -> dict[str, Any]:
    part = record("type", type={"enum": [*kinds, "image", "tool_use"]}, text=TEXT)
    return {"anyOf": [TEXT, {"type": "array", "items": part, "maxItems": 3}]}


def turns(*roles: str, content: dict[str, Any]) -> dict[str, Any]:
    turn = record("role content", role={"enum": roles}, content=content, name=TEXT)
    return {"type": "array", "items": turn, "maxItems": 4}


SCHEMA = {"enum": [{}, {"type": "object", "properties": {"a": {"type": "integer"}}}, {"type": 3}, True]}
FUNCTION = record("name", name={"enum": ["look_up", ""]}, description=TEXT, parameters=SCHEMA)
TOOL = record("type", type={"enum": ["function", "web_search"]}, function=FUNCTION, name=TEXT)
CHOICE = {"enum": ["auto", "none", "required", "any", {"type": "function", "function": {"name": "look_up"}}]}
COMMON = {
    "tools": {"type": "array", "items": TOOL, "maxItems": 2},
    "tool_choice": CHOICE,
    "model": MODEL,
    "stream": FLAG,
    "temperature": NUMBER,
    "top_p": NUMBER,
    "metadata": record(),
    "user": TEXT,
    "store": FLAG,
    "service_tier": TEXT,
    "reasoning_effort": TEXT,
    "selfreflect": record(
        strategy={"enum": ["basic", "greedy", "none"]}, num_answers=WHOLE, confidence=TEXT, reflect=TEXT
    ),
}
CHAT_TURNS = turns("system", "developer", "user", "assistant", "tool", content=parts("text"))
INPUT = {"anyOf": [TEXT, turns("system", "user", "assistant", content=parts("input_text", "output_text"))]}
MESSAGE_TURNS = turns("user", "assistant", content=parts("text", "thinking"))
BODIES = {
    "/v1/chat/completions": record(
        "model messages",
        messages=CHAT_TURNS,
        n=WHOLE,
        stop=TEXT,
        seed=WHOLE,
        max_tokens=WHOLE,
        response_format=record(
            "type",
            type={"enum": ["text", "json_object", "json_schema", "xml"]},
            json_schema=record(name=TEXT, schema=SCHEMA),
        ),
        **COMMON,
    ),
    "/v1/responses": record(
        "model input",
        input=INPUT,
        instructions=TEXT,
        max_output_tokens=WHOLE,
        previous_response_id=TEXT,
        reasoning=record(effort=TEXT),
        text=record(
            format=record(
                "type", type={"enum": ["text", "json_object", "json_schema", "xml"]}, name=TEXT, schema=SCHEMA
            ),
            verbosity=TEXT,
        ),
        **COMMON,
    ),
    "/v1/messages": record(
        "model messages max_tokens",
        messages=MESSAGE_TURNS,
        system=parts("text"),
        max_tokens=WHOLE,
        stop_sequences={"type": "array", "items": TEXT, "maxItems": 3},
        thinking=record(type=TEXT),
        output_config=record(format=record(type=TEXT, schema=SCHEMA)),
        **COMMON,
    ),
    "/v1/embeddings": record("model input", model=MODEL, input=TEXT),
    "/v1/completions": record("model prompt", model=MODEL, prompt=TEXT, n=WHOLE),
    "/v1/messages/count_tokens": record("model messages", model=MODEL, messages=MESSAGE_TURNS),
    "/v1/responses/input_tokens": record("model input", model=MODEL, input=INPUT),
}
BY_NAME = {"parameters": [{"name": "id", "in": "path", "required": True, "schema": TEXT}]}
PATHS = {
    **{
        path: {"post": {"requestBody": {"required": True, "content": {"application/json": {"schema": body}}}}}
        for path, body in BODIES.items()
    },
    **{path: {"get": BY_NAME} for path in ("/v1/selfreflect/{id}", "/v1/models/{id}")},
    **{path: {"get": {}} for path in ("/v1/models", "/health", "/metrics")},
}


@pytest.fixture(scope="module")
def served() -> Iterator[EndpointClient]:
    with endpoint_server() as client:
        yield client


@pytest.fixture(scope="module")
def described() -> schemathesis.BaseSchema:
    import schemathesis

    paths = {
        path: {
            method: {**operation, "responses": {"default": {"description": ""}}}
            for method, operation in item.items()
        }
        for path, item in PATHS.items()
    }
    document = {"openapi": "3.1.0", "info": {"title": "endpoint", "version": "1"}, "paths": paths}
    return schemathesis.openapi.from_dict(document)


# without a body there is nothing that could be wrong
CASES = [*((path, "positive") for path in PATHS), *((path, "negative") for path in BODIES)]


@pytest.mark.parametrize(("path", "mode"), CASES)
def test_no_request_makes_the_endpoint_fail(
    described: schemathesis.BaseSchema, served: EndpointClient, path: str, mode: str
) -> None:
    from schemathesis import GenerationMode

    [(method, _)] = PATHS[path].items()
    operation = described[path][method.upper()]
    statuses = set()

    @given(case=operation.as_strategy(generation_mode=GenerationMode(mode)))
    @settings(
        max_examples=40,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        derandomize=True,
        database=None,
    )
    def attempt(case: Any) -> None:
        response = case.call(base_url=served.url.removesuffix("/v1"), timeout=200)
        statuses.add(response.status_code)
        assert response.status_code < 500, response.text
        if response.status_code == 200:
            return
        body = response.json()
        if path.startswith("/v1/messages"):
            assert body["type"] == "error"
            assert isinstance(body["error"]["type"], str)
        else:
            assert body["error"].keys() == {"message", "type", "param", "code"}

    attempt()
    assert statuses <= {200, 400, 404, 405, 415}
    if mode == "negative":
        assert 400 in statuses
