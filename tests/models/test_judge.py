"""Judges: which tokens they have to predict, their logits in full precision, and what cannot be a judge."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tiny_chat import (
    INSTRUCT,
    QWEN3,
    R1,
    byte_bpe,
    chatml,
    gemma,
    instruct,
    llama3,
    metaspace_bpe,
    multimodal_config,
    save_config,
    save_lm,
    unigram,
    wrapped,
)
from tokenizers import normalizers
from transformers import PreTrainedTokenizerFast

from selfreflect.errors import DataError, JudgeError
from selfreflect.metric.prompts import masked_words, reference_context, summary_context
from selfreflect.metric.scorer import SelfReflect
from selfreflect.models.judge import Judge

TOKENIZERS = {
    "chatml": chatml,
    "llama3": llama3,
    "gemma": gemma,
    "qwen3": lambda: chatml(QWEN3, plain=("<think>", "</think>")),
    "r1": lambda: chatml(R1),
    "no template": lambda: chatml(None),
    "unigram": lambda: wrapped(unigram()),
    "metaspace": lambda: wrapped(metaspace_bpe()),
    "instruct": lambda: instruct(metaspace_bpe("<s>", "</s>")),
    "instruct unigram": lambda: instruct(unigram("<s>", "</s>")),
}
CONTEXT = summary_context("Capital of France", "Paris, or Lyon.")


def judge(directory: Path, tokenizer: PreTrainedTokenizerFast, kind: str = "llama", **options: str) -> Judge:
    return Judge.load(save_lm(directory, tokenizer, kind), **options)


# --- which tokens are predicted


WORDS = [
    "Paris",
    "end",
    "im",
    "_",
    "<",
    "start",
    "|>",
    "<|im_end|>",
    "<end_of_turn>",
    "[/INST]",
    "user",
    "é?",
]
"""Among them words that occur inside the markers which end a turn."""


@pytest.mark.parametrize("name", TOKENIZERS)
def test_the_tokens_of_the_masked_word(tmp_path: Path, name: str) -> None:
    made = judge(tmp_path, TOKENIZERS[name]())
    tokenizer = made.lm.tokenizer
    conversation = CONTEXT.conversation("The _ is Paris.")
    [prompt] = made.chat.encode([made.chat.render(conversation)])
    merges = 1 if tokenizer.chat_template == INSTRUCT else 0
    for (ids, first), word in zip(made.encode_tasks([conversation] * len(WORDS), WORDS), WORDS, strict=True):
        assert list(ids[:first]) == prompt[:first]
        assert 0 <= len(prompt) - first <= merges, (
            "only the space at the end of a prompt may merge with a word"
        )
        assert tokenizer.decode(ids[first:]).strip() == word
        assert set(ids[first:]).isdisjoint(tokenizer.all_special_ids)


def test_a_word_that_the_tokenizer_drops_cannot_be_masked(tmp_path: Path) -> None:
    backend = byte_bpe()
    backend.normalizer = normalizers.Replace("\u200b", "")
    made = judge(tmp_path, wrapped(backend))
    with pytest.raises(JudgeError, match=r"no token for the word '\\u200b'"):
        made.encode_tasks([CONTEXT.conversation("A _.")], ["\u200b"])


def test_compat_published_doubles_the_bos_and_is_recorded(tmp_path: Path) -> None:
    path = save_lm(tmp_path, llama3())
    ours, published = Judge.load(path), Judge.load(path, compat="published")
    bos = ours.lm.tokenizer.bos_token_id
    conversation = CONTEXT.conversation("The _ is Paris.")
    [(one, first)], [(two, second)] = (
        made.encode_tasks([conversation], ["capital"]) for made in (ours, published)
    )
    assert (one.count(bos), two.count(bos), second - first) == (1, 2, 1)
    assert two == (bos, *one)
    scores = [
        SelfReflect(made).score("q", answers=["a word", "Paris"], summaries={"s": "Lyon"})["s"]
        for made in (ours, published)
    ]
    assert [score.compat for score in scores] == ["", "published"]
    assert scores[0].value != scores[1].value


# --- logits


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gpt2", "gemma2", "cohere", "granite", "phi"])
def test_head_gives_the_logits_of_the_model(tmp_path: Path, kind: str) -> None:
    made = judge(tmp_path, chatml(), kind)
    ids = torch.arange(40)[None]
    with torch.inference_mode():
        hidden = made.decoder(input_ids=ids).last_hidden_state[0]
        logits = made.head(hidden)
        expected = made.lm.model(input_ids=ids).logits[0]
    assert logits.dtype == torch.float32
    assert logits.std() > 0.05
    torch.testing.assert_close(logits, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("kind", ["gemma2", "phi"])
def test_half_precision_judges_give_float32_logits(
    tmp_path: Path, kind: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("selfreflect.models.judge._VOCABULARY_AT_ONCE", 100)
    made = judge(tmp_path, chatml(), kind, dtype=dtype)
    ids = torch.arange(40)[None]
    with torch.inference_mode():
        hidden = made.decoder(input_ids=ids).last_hidden_state[0]
        logits, rounded = made.head(hidden), made.lm.model(input_ids=ids).logits[0]
        made.lm.model.float()
        expected = made.head(hidden.float())
    assert (made.lm.dtype, hidden.dtype, rounded.dtype, logits.dtype) == (
        dtype,
        getattr(torch, dtype),
        getattr(torch, dtype),
        torch.float32,
    )
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-6)  # nothing is lost after the decoder
    torch.testing.assert_close(logits, rounded.float(), rtol=0.05, atol=0.05)


def naive_score(made: Judge, answer: str, conditioning: list[str], summary: str) -> float:
    """The metric with one forward pass of the whole model per prediction."""
    distances: list[float] = []
    for word in masked_words([answer]):
        predicted = []
        for context in (summary_context("q", summary), reference_context("q", conditioning)):
            [(ids, first)] = made.encode_tasks([context.conversation(word.masked)], [word.text])
            logits = made.lm.model(input_ids=torch.tensor([ids])).logits[0]
            predicted.append(torch.softmax(logits[first - 1 : -1].float() / 5, dim=-1))
        distances += ((predicted[0] - predicted[1]).abs().sum(dim=-1) / 2).tolist()
    return sum(distances) / len(distances)


@pytest.mark.parametrize("kind", ["gemma3", "llava"])
def test_a_multimodal_model_is_a_judge(tmp_path: Path, kind: str) -> None:
    tokenizer = gemma() if kind == "gemma3" else chatml()
    made = Judge.load(save_config(tmp_path, tokenizer, multimodal_config(kind, tokenizer)))
    assert not hasattr(made.lm.model.config, "vocab_size"), "the vocabulary is described in the text part"
    assert made.lm.window == 1024
    score = SelfReflect(made).score(
        "q", masked_out=["Paris in the end"], conditioning=["Lyon", "peas"], summaries={"s": "Paris"}
    )["s"]
    with torch.inference_mode():
        expected = naive_score(made, "Paris in the end", ["Lyon", "peas"], "Paris")
    assert expected > 0.01
    assert score.value == pytest.approx(expected, abs=1e-5)


# --- what cannot be a judge


def test_a_token_that_the_model_lacks_is_named(
    tmp_path: Path,
) -> None:
    path = Path(save_lm(tmp_path / "judge", chatml()))
    tokens = json.loads((path / "tokenizer.json").read_text())
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    tokens["added_tokens"].append({"id": 999_999, "content": "Paris", **plain})
    (path / "tokenizer.json").write_text(json.dumps(tokens))
    metric = SelfReflect(Judge.load(str(path)))
    assert metric.score("Where?", answers=["Lyon.", "Nice."], summaries=["In Lyon."])  # needs no such token
    with pytest.raises(DataError, match="'Paris'"):
        metric.score("Where?", answers=["Lyon.", "Paris."], summaries=["In Paris."])
