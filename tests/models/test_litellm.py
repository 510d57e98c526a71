"""Providers in their own protocols, on local servers: Anthropic's messages and Gemini's generateContent."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command import process, run
from fault_server import Action, Call, FaultServer, Handler, status
from served import ask, questions

from selfreflect.errors import ConfigError
from selfreflect.models.backend import backend_of, load_generator
from selfreflect.models.base import ModelSpec, Reply
from selfreflect.store.run import Run

CLAUDE = "litellm:anthropic/claude-sonnet-4-5"
GEMINI = "litellm:gemini/gemini-2.5-flash"
KEYS = {"ANTHROPIC_API_KEY": "sk-ant-a1b2c3d4e5f6", "GEMINI_API_KEY": "AIza-a1b2c3d4e5f6"}


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, key in KEYS.items():
        monkeypatch.setenv(name, key)


def spoken(text: str, stop: str | None = None) -> Action:
    """A response in the protocol of the path, with the provider's own word for how it ended."""

    def give(handler: Handler, call: Call) -> None:
        if call.path.endswith("/v1/messages"):
            block = {"type": "text", "text": text}
            usage = {"input_tokens": 9, "output_tokens": 3}
            reply = {"id": "m", "type": "message", "role": "assistant", "model": "c", "content": [block]}
            handler.give(200, {**reply, "stop_reason": stop or "end_turn", "usage": usage})
        else:
            content = {"parts": [{"text": text}], "role": "model"}
            usage = {"promptTokenCount": 9, "candidatesTokenCount": 3, "totalTokenCount": 12}
            candidate = {"content": content, "finishReason": stop or "STOP", "index": 0}
            handler.give(200, {"candidates": [candidate], "usageMetadata": usage})

    return give


def server(script: Callable[[Call], Action]) -> FaultServer:
    return FaultServer(script)


def base(server: FaultServer) -> str:
    return server.url.removesuffix("/v1")


def reply(name: str, server: FaultServer, **request: Any) -> Any:
    [result] = load_generator(ModelSpec(name, base_url=base(server))).generate([ask(**request)])
    return result


@pytest.mark.parametrize("name", [CLAUDE, GEMINI])
def test_several_answers_are_several_calls_without_what_the_provider_lacks(name: str) -> None:
    with server(lambda call: spoken(f"text {call.number}")) as running:
        result = reply(name, running, n=3)
    assert isinstance(result, Reply)
    assert len(set(result.texts)) == 3
    assert (result.completions[0].finish, result.completions[0].tokens) == ("stop", 3)
    assert len(running.calls) == 3  # what LiteLLM itself refuses costs no call
    sent = json.dumps([call.body for call in running.calls])
    assert not {word for word in ("seed", "min_p", "repetition", "chat_template") if word in sent}


@pytest.mark.parametrize(("name", "stop"), [(CLAUDE, "max_tokens"), (GEMINI, "MAX_TOKENS")])
def test_an_answer_at_the_limit_is_one(name: str, stop: str) -> None:
    with server(lambda call: spoken("half", stop)) as running:
        assert reply(name, running).completions[0].finish == "length"


def test_a_filtered_answer_is_a_failure_of_that_answer() -> None:
    with server(lambda call: spoken("", "SAFETY")) as running:
        assert reply(GEMINI, running).completions[0].finish == "content_filter"


def test_keys_of_a_provider_stay_there(tmp_path: Path) -> None:
    """Neither a server of the user's nor the target of a redirect gets them."""
    with server(lambda call: spoken("stolen")) as thief:
        moved = status(307, "elsewhere", Location=f"{base(thief)}/v1/messages")
        with server(lambda call: moved) as running:
            out = run(*command(running, tmp_path / "run", tmp_path))
            seen = json.dumps([call.headers for call in running.calls])
    assert (out.code, thief.calls) == (2, [])
    texts = [
        seen,
        out.stdout,
        out.stderr,
        *(path.read_text() for path in (tmp_path / "run").rglob("*.json*")),
    ]
    assert not [key for key in KEYS.values() if key in " ".join(texts)]


def test_no_other_host_is_reached(tmp_path: Path) -> None:
    """A proxy for all other addresses sees no telemetry, price list or log."""
    with (
        server(lambda call: spoken("Emerald City")) as running,
        socket.create_server(("127.0.0.1", 0)) as sink,
    ):
        sink.setblocking(False)
        proxy = f"http://127.0.0.1:{sink.getsockname()[1]}"
        changes = {"HTTPS_PROXY": proxy, "HTTP_PROXY": proxy, "NO_PROXY": "127.0.0.1"}
        out = process(*command(running, tmp_path / "run", tmp_path), changes=changes)
        assert out.code == 0, out.said
        with pytest.raises(BlockingIOError):
            sink.accept()


def command(server: FaultServer, out: Path, folder: Path) -> list[str]:
    asked = questions(folder / "asked.txt", 2)
    line = (
        f"answers --questions {asked} --model {CLAUDE} --num-answers 2 --max-new-tokens 5 --out {out} --yes"
    )
    return [*line.split(), "--base-url", base(server)]


def test_a_run_says_what_was_left_out_and_goes_on(tmp_path: Path) -> None:
    limited = status(529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})
    with server(lambda call: limited if call.number == 2 else spoken("Emerald City")) as running:
        out = run(*command(running, tmp_path / "run", tmp_path))
    assert out.code == 0, out.stderr
    [first, _] = Run.load(tmp_path / "run").answers.values()
    assert first.masked_out == ("Emerald City",) * 2
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert '"seed": "left out"' in json.dumps(manifest)


def test_a_field_that_changes_the_distribution_is_not_dropped(tmp_path: Path) -> None:
    said = {"error": {"type": "invalid_request_error", "message": "temperature and top_p cannot both be set"}}
    script = lambda call: status(400, said) if {"temperature", "top_p"} <= {*call.body} else spoken("x")  # noqa: E731
    with server(script) as running:
        assert run(*command(running, tmp_path / "plain", tmp_path)).code == 0
        refused = run(*command(running, tmp_path / "nucleus", tmp_path), "--top-p", "0.9")
    assert refused.code == 2
    assert "top_p" in refused.stderr


def test_a_name_without_a_provider_is_refused() -> None:
    with pytest.raises(ConfigError) as refused:
        load_generator(ModelSpec("litellm:nobody-knows-this"))
    assert "nobody-knows-this" in str(refused.value)


def test_the_price_list_of_the_library_is_used() -> None:
    backend = backend_of(CLAUDE)
    price = backend.price(CLAUDE)
    assert price is not None
    assert 0 < price[0] < price[1]
    assert backend.price("litellm:anthropic/nobody-knows-this") is None


def test_a_server_that_is_not_there_is_said_soon(tmp_path: Path) -> None:
    with server(lambda call: spoken("x")) as running:
        arguments = command(running, tmp_path / "run", tmp_path)
    out = run(*arguments)
    assert out.code == 2
    assert base(running) in out.stderr


@pytest.mark.parametrize("name", [CLAUDE, "litellm:anthropic/nobody-knows-this"])
def test_a_dry_run_says_what_the_provider_takes_or_that_nobody_knows(name: str, tmp_path: Path) -> None:
    asked = questions(tmp_path / "asked.txt", 2)
    line = f"answers --questions {asked} --model {name} --num-answers 2 --out {tmp_path}/run --dry-run --json"
    out = run(*line.split())
    assert out.code == 0, out.stderr
    costs = json.loads(out.stdout)
    assert ("money" in costs["total"]) == (name == CLAUDE)
    assert any(name in note for note in costs["notes"]) == (name != CLAUDE)
    assert costs["dry_run"][0]["model"] == name, "the provider's address is LiteLLM's"
