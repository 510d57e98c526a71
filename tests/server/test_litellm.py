"""LiteLLM against the endpoint. Its import alone takes five seconds; ``test_openai_sdk.py``, the library that
it calls, is the quick relative."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from command import COMMAND, environment
from endpoint import EndpointClient, endpoint_server
from fault_server import FaultServer, chat, choice

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


def test_a_model_of_litellm_is_served_with_the_price_of_its_own_list(litellm: Any, tmp_path: Path) -> None:
    usage = {"prompt_tokens": 1000, "completion_tokens": 500, "total_tokens": 1500}
    log = tmp_path / "serve.log"

    def script(call: Any) -> Any:
        return chat(*[choice("Ankara")] * call.n, usage=usage, id="c", created=1, model="gpt-4o-mini")

    with FaultServer(script) as upstream, log.open("wb") as file:
        command = (
            f"serve --model litellm:openai/gpt-4o-mini --base-url {upstream.url} --port 0 --num-answers 2"
        )
        keys = {"SELFREFLECT_API_KEY": "none", "OPENAI_API_KEY": "none"}
        started = subprocess.Popen(
            [*COMMAND, *command.split()], stderr=file, stdout=file, env={**environment(), **keys}
        )
        try:
            while not (address := re.search(r"http://127\.0\.0\.1:\d+/v1", log.read_text())):
                assert started.poll() is None, log.read_text()
                time.sleep(0.2)
            asked = {"model": "selfreflect/litellm:openai/gpt-4o-mini", "messages": QUESTION}
            url = f"{address[0]}/chat/completions"
            transport = httpx2.HTTPTransport(retries=9)  # it listens before it serves
            with httpx2.Client(transport=transport, timeout=200, trust_env=False) as client:
                cost = client.post(url, json=asked).json()["selfreflect"]["cost"]
        finally:
            started.send_signal(signal.SIGINT)
            started.wait(60)
    row = litellm.model_cost["gpt-4o-mini"]
    money = cost["prompt_tokens"] * row["input_cost_per_token"]
    money += cost["completion_tokens"] * row["output_cost_per_token"]
    assert cost["completions"] == 3
    assert cost["money"] == pytest.approx(money)
    assert money > 0
