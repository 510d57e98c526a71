"""Models of LiteLLM behind the endpoint. Its import alone takes five seconds."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest
from command import COMMAND, environment
from fault_server import FaultServer, chat, choice

pytestmark = pytest.mark.slow


@pytest.fixture
def litellm(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else it fetches prices
    import litellm

    return litellm


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
            asked = {
                "model": "selfreflect/litellm:openai/gpt-4o-mini",
                "messages": [{"role": "user", "content": "What?"}],
            }
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
