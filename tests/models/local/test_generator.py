"""The local generator: transformers' own greedy decoding token for token, and samples that depend on nothing
but their request."""

from __future__ import annotations

import math
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tiny_chat import (
    CHATML,
    CHATML_MARKERS,
    R1,
    chatml,
    gemma,
    llama3,
    multimodal_config,
    save_config,
    save_lm,
    save_scripted,
)

from selfreflect.logprobs import AnswerTokens, first_token
from selfreflect.models.base import Completion, Message, Refusal, Reply, Request, Sampling, as_done
from selfreflect.models.chat import ChatTokenizer
from selfreflect.models.local.decode import Draw, decode
from selfreflect.models.local.generator import HFGenerator, token_texts
from selfreflect.models.local.loading import CausalLM
from selfreflect.models.smollm2 import REVISION
from selfreflect.uncertainty.features import entropy_interval, probabilities

GREEDY = Sampling(temperature=0, max_new_tokens=20)
TEXTS = ["Hi", "What is the capital of France?", "radishes or lettuce " * 6, "no", "<|im_end|> is only text"]


def ask(
    text: str = "Who?", sampling: Sampling = GREEDY, n: int = 1, seed: int = 0, thinking: bool = False
) -> Request:
    return Request(
        messages=(Message(role="user", content=text),), sampling=sampling, n=n, seed=seed, thinking=thinking
    )


def texts(replies: list[Reply | Refusal]) -> list[list[str]]:
    assert all(isinstance(reply, Reply) for reply in replies)
    return [
        [completion.text for completion in reply.completions] for reply in replies if isinstance(reply, Reply)
    ]


def only(generator: HFGenerator, request: Request) -> Completion:
    [reply] = generator.generate([request])
    assert isinstance(reply, Reply)
    [completion] = reply.completions
    return completion


# --- greedy decoding


def reference(lm: CausalLM, prompt: list[int], tokens: int) -> list[int]:
    """New tokens of one prompt by transformers, without the stop token."""
    stop = lm.model.generation_config.eos_token_id
    ids = torch.tensor([prompt])
    out = lm.model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        max_new_tokens=tokens,
        pad_token_id=0,
        eos_token_id=stop,
    )
    new: list[int] = out[0, len(prompt) :].tolist()
    return new[: new.index(stop)] if stop in new else new


def model_path(directory: Path, kind: str) -> str:
    if kind in ("gemma3", "llava"):
        return save_config(directory, chatml(), multimodal_config(kind, chatml()))
    tokenizer = {"llama": llama3, "gemma2": gemma}.get(kind, chatml)()
    return save_lm(directory, tokenizer, kind)


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gemma2", "gpt2", "gemma3", "llava"])
def test_greedy_decoding_is_that_of_transformers(tmp_path: Path, kind: str) -> None:
    generator = HFGenerator.load(model_path(tmp_path, kind), device="cpu")
    lm = generator.lm
    prompts = generator.chat.encode([generator.chat.render(ask(text).messages) for text in TEXTS])
    expected = [reference(lm, prompt, 20) for prompt in prompts]
    assert len({len(prompt) for prompt in prompts}) == len(TEXTS), (
        "the prompts are padded to different lengths"
    )
    assert min(len(prompt) for prompt in prompts) > 8, "a sliding window of 8 is full from the start"
    draws = [Draw(prompt=tuple(prompt), sampling=GREEDY, seed=0, limit=20) for prompt in prompts]
    steps = list(decode(lm.model, draws, frozenset([lm.model.generation_config.eos_token_id]), pad_id=0))
    assert sorted(position for step in steps for position in step.ended) == list(range(len(draws)))
    assert [draw.tokens for draw in draws] == expected
    assert len(set(map(tuple, expected))) == len(TEXTS)
    replies = generator.generate([ask(text) for text in TEXTS])
    assert texts(replies) == [
        [lm.tokenizer.decode(new, skip_special_tokens=True).strip()] for new in expected
    ]
    assert [reply.prompt_tokens for reply in replies if isinstance(reply, Reply)] == [
        len(prompt) for prompt in prompts
    ]


# --- sampling: one small model for all of it

HOT = Sampling(temperature=1.5, max_new_tokens=24)


@pytest.fixture(scope="module")
def lm(tmp_path_factory: pytest.TempPathFactory) -> CausalLM:
    """With so many stop tokens that sequences leave their batch at every step."""
    return HFGenerator.load(
        save_lm(
            tmp_path_factory.mktemp("sampled"),
            chatml(),
            initializer_range=0.3,
            eos_token_id=list(range(300, 320)),
        )
    ).lm


REQUESTS = [ask(text, HOT, n=3, seed=100 * i) for i, text in enumerate([*TEXTS, TEXTS[0]])]


def test_texts_do_not_depend_on_batches_or_on_the_order_of_requests(lm: CausalLM) -> None:
    one_by_one = [HFGenerator(lm, batch_size=1).generate([request])[0] for request in REQUESTS]
    assert len({text for reply in texts(one_by_one) for text in reply}) == 18, (
        "all different, also those of equal prompts"
    )
    lengths = [
        completion.tokens
        for reply in one_by_one
        if isinstance(reply, Reply)
        for completion in reply.completions
    ]
    assert len(set(lengths)) > 5
    for batch_size in (1, 3, 64):
        generator = HFGenerator(lm, batch_size=batch_size)
        assert generator.generate(REQUESTS) == one_by_one
        order = random.Random(batch_size).sample(range(len(REQUESTS)), len(REQUESTS))
        assert generator.generate([REQUESTS[i] for i in order]) == [one_by_one[i] for i in order]


def test_texts_do_not_depend_on_prompts_that_were_computed_before(lm: CausalLM) -> None:
    """Strategies that begin alike, further batches of one question, and a second turn."""
    context = "You can plant tomatoes and basil in a pot. " * 6
    alike = [ask(context + text, HOT, n=5, seed=9 * i) for i, text in enumerate(TEXTS)]
    alone = [HFGenerator(lm).generate([request])[0] for request in alike]
    generator = HFGenerator(lm, batch_size=8)
    assert generator.generate(alike) == alone
    assert generator.generate(alike[::-1]) == alone[::-1]


def test_a_reply_comes_as_its_last_sequence_ends(lm: CausalLM) -> None:
    generator = HFGenerator(lm, batch_size=64)
    whole = generator.generate(REQUESTS)
    lengths = []
    for reply in whole:
        assert isinstance(reply, Reply)
        lengths.append(max(one.tokens + (one.finish == "stop") for one in reply.completions))
    steps = []
    generator.on_step = lambda tokens, ended: steps.append((tokens, ended))
    came = [(index, len(steps)) for index, reply in as_done(generator, REQUESTS) if reply == whole[index]]
    assert len(set(lengths)) > 1
    assert sorted(came) == list(enumerate(lengths))
    assert sum(ended for _, ended in steps) == 18


def test_the_embedded_model_draws_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    [quick] = HFGenerator.load("smollm2", device="cpu").generate([ask("Hi", GREEDY)])
    monkeypatch.setattr("selfreflect.models.local.step.step_library", lambda: "no gcc")
    [slow] = HFGenerator.load("smollm2", device="cpu").generate([ask("Hi", GREEDY)])
    assert texts([slow]) == texts([quick])


# --- where a completion ends. Scripted models say exactly which tokens come.


def scripted(
    directory: Path, *pieces: str, template: str = CHATML, special: tuple[str, ...] = (), **options
) -> HFGenerator:
    tokenizer = chatml(
        template,
        markers=(*CHATML_MARKERS, *special),
        plain=[piece for piece in pieces if piece not in special],
    )
    return HFGenerator.load(save_scripted(directory, tokenizer, *pieces, **options), device="cpu")


@pytest.mark.parametrize("stop", ["STOP", "HALT", "<|im_end|>"])
def test_stop_tokens_of_the_generation_config_and_of_the_tokenizer(tmp_path: Path, stop: str) -> None:
    tokenizer = chatml(plain=["STOP", "HALT", "Paris"])
    ids = tokenizer.convert_tokens_to_ids(["STOP", "HALT"])
    path = save_scripted(tmp_path, tokenizer, "Paris", stop=stop, eos_token_id=ids)
    assert tokenizer.eos_token == "<|im_end|>"
    assert only(HFGenerator.load(path), ask()) == Completion(text="Paris", finish="stop", tokens=1)


@pytest.mark.parametrize(
    ("limit", "text", "finish"),
    [(1, "Par", "length"), (2, "Paris", "length"), (3, "Paris!", "length"), (4, "Paris!", "stop")],
)
def test_max_new_tokens(tmp_path: Path, limit: int, text: str, finish: str) -> None:
    completion = only(
        scripted(tmp_path, "Par", "is", "!"), ask(sampling=Sampling(temperature=0, max_new_tokens=limit))
    )
    assert (completion.text, completion.finish, completion.tokens) == (text, finish, min(limit, 3))


def test_the_window(tmp_path: Path) -> None:
    [prompt] = (generator := scripted(tmp_path / "wide", "Par", "is", "!")).chat.encode(
        [generator.chat.render(ask().messages)]
    )
    longer = ask("Who? " * 9)
    for room, text in ((1, "Par"), (2, "Paris")):
        narrow = scripted(tmp_path / str(room), "Par", "is", "!", max_position_embeddings=len(prompt) + room)
        [refused, reply] = narrow.generate([longer, ask()])
        assert isinstance(refused, Refusal)
        assert isinstance(reply, Reply)
        assert reply.completions == (Completion(text=text, finish="length", tokens=room),)
        [too_long] = narrow.chat.encode([narrow.chat.render(longer.messages)])
        window = len(prompt) + room
        expected = (
            f"the prompt has {len(too_long)} tokens, but the window of model {narrow.name!r} holds {window}; "
            "shorten the question or its context, or use a model with a larger window"
        )
        assert refused == Refusal(kind="too_long", message=expected)
    full = scripted(tmp_path / "full", "Par", "is", "!", max_position_embeddings=len(prompt))
    assert [reply.kind for reply in full.generate([ask()]) if isinstance(reply, Refusal)] == ["too_long"]


# --- what is taken off


@pytest.mark.parametrize("special", [(), ("<think>", "</think>")])
def test_reasoning_is_removed(tmp_path: Path, special: tuple[str, ...]) -> None:
    generator = scripted(tmp_path, "<think>", "Hmm", "</think>", "Paris", special=special)
    assert only(generator, ask()) == Completion(text="Paris", finish="stop", tokens=4)


def test_unclosed_reasoning_has_no_text(tmp_path: Path) -> None:
    assert only(scripted(tmp_path / "a", "<think>", "Hmm"), ask()) == Completion(
        text="", finish="unclosed_reasoning", tokens=2
    )
    opened = scripted(tmp_path / "b", "Hmm", "so", template=R1)
    assert only(opened, ask(thinking=True)) == Completion(text="", finish="unclosed_reasoning", tokens=2)
    assert only(opened, ask(thinking=False)) == Completion(text="Hmmso", finish="stop", tokens=2)


@pytest.mark.parametrize("trace", [(), ("<think>", "Hmm", "</think>")])
def test_special_tokens_are_removed(tmp_path: Path, trace: tuple[str, ...]) -> None:
    generator = scripted(
        tmp_path,
        *trace,
        "Par",
        "<|im_start|>",
        "<|extra|>",
        "is",
        special=("<|im_start|>", "<|extra|>", *trace),
    )
    assert "<|im_start|>" not in generator.lm.tokenizer.all_special_tokens, (
        "a special token without a role, as most are"
    )
    assert only(generator, ask()).text == "Paris"


# --- log-probabilities


def teacher_forced(lm: CausalLM, prompt: list[int], new: list[int]) -> torch.Tensor:
    """The model's predictions of some tokens, at temperature 1, (tokens, vocabulary)."""
    with torch.inference_mode():
        logits = lm.model(input_ids=torch.tensor([[*prompt, *new]])).logits[0]
    predictions: torch.Tensor = logits[len(prompt) - 1 : -1].log_softmax(-1)
    return predictions


def test_log_probabilities_are_the_models_own_whatever_the_sampling(tmp_path: Path) -> None:
    generator = HFGenerator.load(model_path(tmp_path, "llama"), device="cpu", batch_size=4)
    lm = generator.lm
    sampling = Sampling(temperature=0.7, top_p=0.8, top_k=40, max_new_tokens=12)
    requests = [replace(ask(text, sampling, n=3, seed=9), logprobs=True) for text in TEXTS]
    replies = generator.generate(requests)
    assert texts(replies) == texts(generator.generate([replace(one, logprobs=False) for one in requests]))
    [prompt] = generator.chat.encode([generator.chat.render(requests[0].messages)])
    draws = [Draw(prompt=tuple(prompt), sampling=sampling, seed=9 + i, limit=12) for i in range(3)]
    list(decode(lm.model, draws, frozenset([lm.model.generation_config.eos_token_id]), pad_id=0))
    assert isinstance(replies[0], Reply)
    for draw, completion in zip(draws, replies[0].completions, strict=True):
        own = completion.logprobs
        assert isinstance(own, AnswerTokens)
        predictions = teacher_forced(lm, prompt, draw.tokens)
        assert len(own.texts) == len(draw.tokens), "these answers are made of all their tokens"
        expected = predictions[range(len(draw.tokens)), draw.tokens]
        torch.testing.assert_close(torch.tensor(own.logprobs), expected, atol=1e-4, rtol=0)
        divergence = -(math.log(predictions.shape[-1]) + predictions.mean(-1)).mean()
        assert own.self_certainty == pytest.approx(float(divergence), abs=1e-4)


def test_likely_first_tokens_are_those_of_the_prediction(tmp_path: Path) -> None:
    generator = HFGenerator.load(model_path(tmp_path, "llama"), device="cpu")
    request = replace(ask(TEXTS[0], Sampling(temperature=0, max_new_tokens=4)), first_tokens=5)
    [reply] = generator.generate([request])
    assert isinstance(reply, Reply)
    [prompt] = generator.chat.encode([generator.chat.render(request.messages)])
    [draw] = [Draw(prompt=tuple(prompt), sampling=request.sampling, seed=0, limit=4)]
    list(decode(generator.lm.model, [draw], frozenset(), pad_id=0))
    place = first_token(reply.text, token_texts(generator.chat.tokenizer, draw.tokens))
    assert place is not None
    expected = teacher_forced(generator.lm, prompt, draw.tokens)[place].topk(5)
    likely = reply.completions[0].first_tokens
    assert reply.completions[0].logprobs is None
    assert [token.text for token in likely] == [
        token_texts(generator.chat.tokenizer, [int(one)])[0] or "" for one in expected.indices
    ]
    torch.testing.assert_close(
        torch.tensor([token.logprob for token in likely]), expected.values, atol=1e-4, rtol=0
    )


@given(
    text=st.text(max_size=12), specials=st.lists(st.sampled_from(["<|im_end|>", "<|endoftext|>"]), max_size=2)
)
def test_tokens_spell_any_text(text: str, specials: list[str]) -> None:
    chat = ChatTokenizer(chatml())
    ids = chat.tokenizer(text, add_special_tokens=False).input_ids
    ends = chat.tokenizer.convert_tokens_to_ids(specials)
    pieces = token_texts(chat.tokenizer, [*ids, *ends])
    assert "".join(piece or "" for piece in pieces) == chat.tokenizer.decode(ids, skip_special_tokens=True)
    assert pieces[len(ids) :] == [None] * len(ends)


# --- the embedded model


@pytest.fixture(scope="module")
def smollm2() -> HFGenerator:
    return HFGenerator.load("smollm2", device="cpu")


def test_the_embedded_model_knows_the_capital_of_france(smollm2: HFGenerator) -> None:
    assert (
        "Paris"
        in only(
            smollm2, ask("What is the capital of France?", Sampling(temperature=0, max_new_tokens=12))
        ).text
    )
    assert smollm2.revision == REVISION


@pytest.mark.parametrize(
    ("text", "tokens", "mean", "least", "entropies", "certainty"),
    [
        ("What is the capital of France?", 7, -0.368443, 0.152177, (0.749268, 3.586997), 12.6549),
        ("Who wrote the novel Middlemarch?", 24, -0.877205, 0.077974, (2.229132, 4.960465), 11.2749),
    ],
)
def test_the_embedded_model_s_likely_tokens_bound_its_exact_entropy(
    smollm2: HFGenerator,
    text: str,
    tokens: int,
    mean: float,
    least: float,
    entropies: tuple[float, float],
    certainty: float,
) -> None:
    """Known values of a second computation, from whole distributions."""
    sampling = Sampling(temperature=0, max_new_tokens=24)
    completion = only(smollm2, replace(ask(text, sampling), logprobs=True, top_logprobs=20))
    answer = completion.logprobs
    assert isinstance(answer, AnswerTokens)
    exact = np.array(answer.entropies)
    assert len(answer.logprobs) == tokens
    assert np.mean(answer.logprobs) == pytest.approx(mean, abs=5e-5)
    assert np.exp(min(answer.logprobs)) == pytest.approx(least, abs=5e-5)
    assert (exact.mean(), exact.max()) == pytest.approx(entropies, abs=5e-5)
    assert answer.self_certainty == pytest.approx(certainty, abs=5e-4)
    widths = []
    for ranks in (2, 5, 15, 20):
        bounds = entropy_interval(probabilities([row[:ranks] for row in answer.top]), 49152)
        assert (bounds.low <= exact + 1e-5).all()
        assert (exact <= bounds.high + 1e-5).all()
        widths.append(float((bounds.high - bounds.low).mean()))
    assert widths == sorted(widths, reverse=True)
