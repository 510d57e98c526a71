"""What the generator asks of vLLM and makes of its results, with a stand-in for vLLM."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from tiny_chat import chatml

from selfreflect.errors import BackendError
from selfreflect.logprobs import AnswerTokens, LikelyToken
from selfreflect.models.base import Message, Refusal, Reply, Request, Sampling
from selfreflect.models.vllm.engine import VLLMGenerator


class Engine:
    """Continues prompt p by the tokens of its seed, until told to fail. The request that came last ends
    first; each step ends one, and shows another that has not ended."""

    model_config = SimpleNamespace(max_model_len=64)

    def __init__(self, tokenizer: Any, reason: str = "stop") -> None:
        self.tokenizer = tokenizer
        self.reason = reason
        self.llm_engine = self
        self.calls: list[tuple[dict[str, list[int]], SimpleNamespace]] = []
        self.waiting: list[tuple[str, SimpleNamespace]] = []
        self.aborted: list[str] = []

    def add_request(self, request_id: str, prompt: dict[str, list[int]], params: SimpleNamespace) -> None:
        self.calls.append((prompt, params))
        self.waiting.append((request_id, params))

    def has_unfinished_requests(self) -> bool:
        return bool(self.waiting)

    def step(self) -> list[SimpleNamespace]:
        if self.reason == "broken":
            raise RuntimeError("a worker died")
        key, params = self.waiting.pop()
        outputs = [SimpleNamespace(request_id=key, finished=True, outputs=self.parts(params.seed))]
        outputs += [SimpleNamespace(request_id=key, finished=False) for key, _ in self.waiting[:1]]
        return outputs

    def parts(self, seed: int) -> list[SimpleNamespace]:
        tokens = self.tokenizer.encode(f"answer {seed}", add_special_tokens=False)
        return [SimpleNamespace(token_ids=tokens, finish_reason=self.reason)]

    def abort_request(self, request_ids: list[str]) -> None:
        self.aborted += request_ids


def generator(monkeypatch: pytest.MonkeyPatch, reason: str = "stop") -> tuple[VLLMGenerator, Engine]:
    kinds = SimpleNamespace(RequestOutputKind=SimpleNamespace(FINAL_ONLY="final"))
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(SamplingParams=SimpleNamespace))
    monkeypatch.setitem(sys.modules, "vllm.sampling_params", kinds)
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
    [(_, first), (_, second), (prompt, third)] = engine.calls
    assert [one.seed for one in (first, second, third)] == [5, 7, 8]
    assert vars(first) == {
        "seed": 5,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 3,
        "min_p": 0.1,
        "max_tokens": 9,
        "output_kind": "final",
    }
    assert second.max_tokens == 64 - len(prompt["prompt_token_ids"]), "the window ends there"
    assert several.prompt_tokens == len(prompt["prompt_token_ids"])


def test_each_completion_comes_when_it_has_ended_and_the_others_are_given_up_with_the_stream(monkeypatch):
    model, engine = generator(monkeypatch)
    stream = model.stream_samples([ask(seed=5), ask(n=3, seed=7)])
    events = [next(stream) for _ in range(2)]
    assert [(index, event.index, event.completion.text) for index, event in events] == [
        (1, 2, "answer 9"),
        (1, 1, "answer 8"),
    ]
    stream.close()
    assert len(engine.aborted) == 2
    earlier = tuple(event for _, event in events)
    [whole] = model.generate([replace(ask(n=3, seed=7), samples=earlier)])
    assert [one.text for one in whole.completions] == ["answer 7", "answer 8", "answer 9"]
    assert [params.seed for _, params in engine.calls[4:]] == [7]


def test_a_completion_that_was_aborted_refuses_its_request(monkeypatch):
    model, _ = generator(monkeypatch, "abort")
    expected = Refusal(kind="backend", message="vLLM ended a completion of 'vllm:tiny' with 'abort'")
    assert model.generate([ask()]) == [expected]


def test_an_engine_that_breaks_is_a_backend_error(monkeypatch):
    model, _ = generator(monkeypatch, "broken")
    with pytest.raises(BackendError, match="a worker died"):
        model.generate([ask()])


def test_log_probabilities_are_those_of_the_sampled_tokens(monkeypatch):
    model, engine = generator(monkeypatch)

    def parts(seed: int) -> list[SimpleNamespace]:
        text = engine.tokenizer.encode("answer 5", add_special_tokens=False)
        tokens = [*text, engine.tokenizer.convert_tokens_to_ids("<|im_end|>")]
        logprobs = [{token: SimpleNamespace(logprob=-float(place))} for place, token in enumerate(tokens)]
        return [SimpleNamespace(token_ids=tokens, finish_reason="stop", logprobs=logprobs)]

    engine.parts = parts
    [reply] = model.generate([replace(ask(seed=5), logprobs=True)])
    assert isinstance(reply, Reply)
    [(_, params)] = engine.calls
    assert params.logprobs == 0
    tokens = reply.completions[0].logprobs
    assert isinstance(tokens, AnswerTokens)
    assert "".join(tokens.texts) == "answer 5"
    assert tokens.logprobs == tuple(-float(place) for place in range(len(tokens.texts)))
    [reply] = model.generate([replace(ask(seed=5), first_tokens=3)])
    assert isinstance(reply, Reply)
    assert (engine.calls[1][1].logprobs, reply.completions[0].logprobs) == (3, None)
    assert reply.completions[0].first_tokens == (LikelyToken(tokens.texts[0], 0.0),)
    assert tokens.self_certainty is None
