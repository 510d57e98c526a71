"""LiteLLM against the endpoint. Its import alone takes five seconds; ``test_openai_sdk.py``, the library that
it calls, is the quick relative."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from endpoint import EndpointClient, endpoint_server

pytestmark = pytest.mark.slow

QUESTION = [{"role": "user", "content": "What is the capital of Turkey?"}]


@pytest.fixture(scope="module")
def served() -> Iterator[EndpointClient]:
    with endpoint_server() as client:
        yield client


@pytest.fixture
def litellm(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else it fetches prices
    import litellm

    return litellm


def options(served: EndpointClient) -> dict[str, Any]:
    return {
        "model": "openai/selfreflect/m",
        "messages": QUESTION,
        "api_base": served.url,
        "api_key": "none",
        "num_retries": 0,
    }


def test_a_completion_and_its_distribution(served: EndpointClient, litellm: Any) -> None:
    response = litellm.completion(**options(served))
    assert response.choices[0].message.content == "Ankara"
    assert response.usage.total_tokens > 0
    detail = served.http.get(f"/v1/selfreflect/{response.id}").json()
    assert detail["confidence"] == 0.75


def test_a_stream(served: EndpointClient, litellm: Any) -> None:
    parts = list(litellm.completion(**options(served), stream=True))
    assert "".join(part.choices[0].delta.content or "" for part in parts) == "Ankara"


def test_an_error_keeps_its_type(served: EndpointClient, litellm: Any) -> None:
    with pytest.raises(litellm.exceptions.NotFoundError):
        litellm.completion(**{**options(served), "model": "openai/selfreflect/other"})


def test_a_response_and_a_message(served: EndpointClient, litellm: Any) -> None:
    common = {"api_base": served.url, "api_key": "none"}
    response = litellm.responses(model="openai/selfreflect/m", input=QUESTION[0]["content"], **common)
    assert response.output[0].content[0].text == "Ankara"
    message = litellm.completion(
        **{**options(served), "model": "anthropic/selfreflect/m", "api_base": served.url.removesuffix("/v1")}
    )
    assert message.choices[0].message.content == "Ankara"
