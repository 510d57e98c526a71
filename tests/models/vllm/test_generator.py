"""What the generator asks of vLLM and makes of its results, with a stand-in for vLLM."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
from tiny_chat import chatml

from selfreflect.errors import BackendError
from selfreflect.models.base import Message, Refusal, Reply, Request, Sampling
from selfreflect.models.vllm.engine import VLLMGenerator


class Engine:
    """Continues prompt p by the tokens of its seed, until told to fail."""

    model_config = SimpleNamespace(max_model_len=64)

    def __init__(self, tokenizer: Any, reason: str = "stop") -> None:
        self.tokenizer = tokenizer
        self.reason = reason
        self.calls: list[tuple[list[dict[str, list[int]]], list[SimpleNamespace]]] = []

    def generate(self, prompts: Any, params: Any, *, use_tqdm: bool) -> list[SimpleNamespace]:
        self.calls.append((prompts, params))
        if self.reason == "broken":
            raise RuntimeError("a worker died")
        return [SimpleNamespace(outputs=[self.part(one.seed + i) for i in range(one.n)]) for one in params]

    def part(self, seed: int) -> SimpleNamespace:
        tokens = self.tokenizer.encode(f"answer {seed}", add_special_tokens=False)
        return SimpleNamespace(token_ids=tokens, finish_reason=self.reason)


def generator(monkeypatch: pytest.MonkeyPatch, reason: str = "stop") -> tuple[VLLMGenerator, Engine]:
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(SamplingParams=SimpleNamespace))
    tokenizer = chatml()
    engine = Engine(tokenizer, reason)
    return VLLMGenerator(engine, tokenizer, {"name": "vllm:tiny", "revision": "r"}), engine


def ask(text: str = "Hi", n: int = 1, seed: int = 0, limit: int = 9) -> Request:
    sampling = Sampling(temperature=0.5, top_p=0.9, top_k=3, min_p=0.1, max_new_tokens=limit)
    return Request(messages=(Message(role="user", content=text),), sampling=sampling, n=n, seed=seed)


def test_requests_go_to_the_engine_together_and_replies_keep_their_order(monkeypatch):
    model, engine = generator(monkeypatch)
    short, too_long, several = model.generate([ask(seed=5), ask("word " * 90), ask(n=2, seed=7, limit=500)])
    assert isinstance(short, Reply)
    assert isinstance(several, Reply)
    assert (short.text, short.completions[0].finish) == ("answer 5", "stop")
    assert [one.text for one in several.completions] == ["answer 7", "answer 8"]
    assert isinstance(too_long, Refusal)
    assert too_long.kind == "too_long"
    [(prompts, [first, second])] = engine.calls
    assert vars(first) == {
        "n": 1,
        "seed": 5,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 3,
        "min_p": 0.1,
        "max_tokens": 9,
    }
    assert second.max_tokens == 64 - len(prompts[1]["prompt_token_ids"]), "the window ends there"
    assert several.prompt_tokens == len(prompts[1]["prompt_token_ids"])


def test_where_nothing_fits_the_engine_is_not_asked(monkeypatch):
    model, engine = generator(monkeypatch)
    [refusal] = model.generate([ask("word " * 90)])
    assert isinstance(refusal, Refusal)
    assert engine.calls == []


def test_a_completion_that_the_engine_cuts_off_for_length_is_marked(monkeypatch):
    model, _ = generator(monkeypatch, "length")
    [reply] = model.generate([ask()])
    assert isinstance(reply, Reply)
    assert reply.completions[0].finish == "length"


def test_a_completion_that_was_aborted_refuses_its_request(monkeypatch):
    model, _ = generator(monkeypatch, "abort")
    expected = Refusal(kind="backend", message="vLLM ended a completion of 'vllm:tiny' with 'abort'")
    assert model.generate([ask()]) == [expected]


def test_an_engine_that_gives_too_few_completions_refuses_its_request(monkeypatch):
    model, engine = generator(monkeypatch)
    monkeypatch.setattr(engine, "generate", lambda *_, **__: [SimpleNamespace(outputs=[engine.part(0)])])
    expected = Refusal(kind="backend", message="'vllm:tiny' gave 1 of 2 completions")
    assert model.generate([ask(n=2)]) == [expected]


def test_an_engine_that_breaks_is_a_backend_error(monkeypatch):
    model, _ = generator(monkeypatch, "broken")
    with pytest.raises(BackendError, match="vLLM stopped generating with 'vllm:tiny': 'a worker died'"):
        model.generate([ask()])
