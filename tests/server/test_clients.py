"""Clients of other people against the endpoint, over a real socket: Anthropic's, OpenAI's Agents SDK, llm,
and the AI SDK on Node. Each test needs its client, which ``make .venv`` and ``make clients`` install."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from endpoint import EndpointClient, claude, endpoint_server
from fault_server import FaultServer, raw

if TYPE_CHECKING:  # they have much to load: only the process that gets this file imports them
    pass

QUESTION = "What is the capital of Turkey?"
MODEL = "selfreflect/m"
NODE = Path(__file__).parents[1] / "node"
"""The AI SDK, installed by ``npm ci``, and the script that calls it."""


@pytest.fixture(scope="module")
def served() -> Iterator[EndpointClient]:
    with endpoint_server() as client:
        yield client


# --- Anthropic's client


def ask(**fields: Any) -> dict[str, Any]:
    turns = [{"role": "user", "content": QUESTION}]
    return {"model": MODEL, "max_tokens": 64, "messages": turns, **fields}


def test_anthropic_reads_a_message_with_its_distribution(served: EndpointClient) -> None:
    message = claude(served).messages.create(**ask(system="Be brief.", metadata={"user_id": "a"}))
    assert message.content[0].text == "Ankara"  # type: ignore[union-attr]
    assert (message.stop_reason, message.role) == ("end_turn", "assistant")
    assert message.usage.output_tokens > 0
    assert (message.model_extra or {})["selfreflect"]["confidence"] == 0.75
    cut = claude(served).messages.create(**ask(stop_sequences=["kar"]))
    assert (cut.stop_reason, cut.stop_sequence) == ("stop_sequence", "kar")


def test_anthropic_puts_a_stream_together(served: EndpointClient) -> None:
    with claude(served).messages.stream(**ask()) as stream:
        assert "".join(stream.text_stream) == "Ankara"
        message = stream.get_final_message()
    assert message.stop_reason == "end_turn"
    assert message.usage.output_tokens > 0
    assert served.http.get(f"/v1/selfreflect/{message.id}").json()["num_answers"] == 4


def test_anthropic_raises_errors_of_its_own() -> None:
    anthropic = pytest.importorskip("anthropic")
    with endpoint_server(token="t" * 20) as locked:
        with pytest.raises(anthropic.AuthenticationError):
            claude(locked).messages.create(**ask())
        let_in: Any = anthropic.Anthropic(
            base_url=locked.url.removesuffix("/v1"), api_key="t" * 20, max_retries=0
        )
        assert let_in.messages.create(**ask()).content[0].text == "Ankara"
        with pytest.raises(anthropic.NotFoundError):
            let_in.messages.create(**ask(model="selfreflect/other"))
        with pytest.raises(anthropic.BadRequestError) as refused:
            let_in.messages.create(**ask(tools=[{"name": "a", "input_schema": {"type": "object"}}]))
    assert refused.value.body["error"]["type"] == "invalid_request_error"


def test_anthropic_counts_tokens_at_the_server_of_the_model(served: EndpointClient) -> None:
    anthropic = pytest.importorskip("anthropic")
    turns: Any = [{"role": "user", "content": QUESTION}]
    with (
        FaultServer(lambda call: raw(b'{"input_tokens": 12}')) as upstream,
        endpoint_server(upstream=upstream.url, names=["m"]) as client,
    ):
        count = claude(client).messages.count_tokens(model=MODEL, messages=turns)
        assert count.input_tokens == 12
        assert upstream.calls[0].path == "/v1/messages/count_tokens"
        assert upstream.calls[0].body["model"] == "m"
    with pytest.raises(anthropic.BadRequestError):
        claude(served).messages.count_tokens(model=MODEL, messages=turns)


# --- OpenAI's Agents SDK


def agent(served: EndpointClient, *, is_chat: bool, **options: Any) -> Any:
    agents = pytest.importorskip("agents")
    from openai import AsyncOpenAI

    agents.set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=served.url, api_key="none", max_retries=0)
    kind = agents.OpenAIChatCompletionsModel if is_chat else agents.OpenAIResponsesModel
    return agents.Agent("Guide", instructions="Be brief.", model=kind(MODEL, client), **options)


@pytest.mark.parametrize("is_chat", [True, False])
def test_an_agent_answers_whole_and_as_a_stream(served: EndpointClient, is_chat: bool) -> None:
    guide = agent(served, is_chat=is_chat)
    import agents

    async def both() -> tuple[Any, Any]:
        streamed = agents.Runner.run_streamed(guide, QUESTION)
        async for _ in streamed.stream_events():
            pass
        whole = await agents.Runner.run(guide, QUESTION)
        return whole, streamed.final_output

    whole, streamed = asyncio.run(both())
    assert whole.final_output == streamed == "Ankara"
    [response] = whole.raw_responses
    assert response.usage.total_tokens > 0
    if not is_chat:
        assert served.http.get(f"/v1/selfreflect/{response.response_id}").json()["confidence"] == 0.75


# --- simonw's llm


def test_llm_prints_the_answer(served: EndpointClient, tmp_path: Path) -> None:
    pytest.importorskip("llm")
    model = f"- model_id: honest\n  model_name: {MODEL}\n  api_base: {served.url}\n"
    (tmp_path / "extra-openai-models.yaml").write_text(model)
    paths = os.pathsep.join(filter(None, sys.path))
    environment = {**os.environ, "LLM_USER_PATH": str(tmp_path), "PYTHONPATH": paths}
    for options in ([], ["--no-stream"]):
        command = [sys.executable, "-m", "llm", "-m", "honest", "--key", "none", *options, QUESTION]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=200)
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == "Ankara"


# --- Vercel's AI SDK


@pytest.mark.slow
@pytest.mark.parametrize("form", ["chat", "responses", "anthropic", "compatible"])
def test_the_ai_sdk_generates_and_streams(served: EndpointClient, form: str) -> None:
    if shutil.which("node") is None or not (NODE / "node_modules" / "ai").is_dir():
        pytest.skip("needs node, and the AI SDK: make clients")
    command = ["node", str(NODE / "ask.mjs"), served.url, form, MODEL, QUESTION]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["text"] == result["streamed"] == "Ankara"
    assert result["finish"] == "stop"
    assert result["tokens"] > 0
    assert result["refused"] == 404
